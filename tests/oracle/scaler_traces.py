# SPDX-License-Identifier: MIT
"""Loss scalers of the frameworks beside HalfScope's: every state after every step must be equal.

  scaler_traces.py --framework torch --tool build/bin/scaler_states     compares 5,000 steps of each case
  scaler_traces.py --framework torch --write vectors/scaler_traces.txt  replaces that framework's vectors

Frameworks: torch, keras3-tensorflow, keras3-torch, tf-keras, deepspeed (each with its own package), and
rules: apex and its fp16_utils, written out from their source, since neither is on PyPI. A framework that
is not installed is skipped. Patterns have one letter per step: F gradients of 1, Z of 0, O infinity; A and
B, with two optimizers, infinity for the first or second one only.
"""
import argparse
import math
import os
import random
import subprocess
import sys
import types

STEPS, VECTOR_STEPS = 5000, 160


def random_pattern(seed, share, letters, steps):
    """`share` of the steps overflow, half of them in bursts."""
    draw = random.Random(seed)
    pattern = []
    while len(pattern) < steps:
        if draw.random() < share:
            pattern += draw.choice(letters) * (1 if draw.random() < 0.5 else draw.randint(2, 6))
        else:
            pattern.append("Z" if draw.random() < 0.1 else "F")
    return "".join(pattern[:steps])


def patterns(steps, letters="O"):
    yield random_pattern(1, 0.02, letters, steps)
    yield random_pattern(2, 0.3, letters, steps)
    yield random_pattern(3, 0.0005, letters, steps)
    yield ("O" * (steps // 2) + "Z" + "F" * steps)[:steps]  # into the floor, or to 0, and on
    yield "F" * steps


# Each framework: a function from options and pattern to one dict of what it knows per step.


def torch_states(options, pattern):
    import torch
    if not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"):
        skip("torch.amp.GradScaler needs PyTorch 2.3 or later")
    scaler = torch.amp.GradScaler("cpu", **options)
    shared = any(letter in "AB" for letter in pattern)
    weights = [torch.zeros(1, requires_grad=True) for _ in range(2 if shared else 1)]
    counts = [0] * len(weights)

    class Counted(torch.optim.SGD):
        def step(self, *args, **kwargs):
            counts[self.which] += 1
            return super().step(*args, **kwargs)

    optimizers = []
    for i, weight in enumerate(weights):
        optimizer = Counted([weight], lr=1.0)
        optimizer.which = i
        optimizers.append(optimizer)
    for letter in pattern:
        scaler.scale(torch.ones(1))
        before = list(counts)
        for i, (weight, optimizer) in enumerate(zip(weights, optimizers)):
            value = {"F": 1.0, "Z": 0.0, "O": math.inf}.get(letter, math.inf if letter == "AB"[i] else 1.0)
            weight.grad = torch.full((1,), value)
            scaler.step(optimizer)
        scaler.update()
        state = {"scale": scaler.get_scale(), "tracker": scaler._get_growth_tracker(), "updates": sum(counts),
                 "skipped": "".join("1" if a == b else "0" for a, b in zip(before, counts))}
        if not shared:
            state["finite"] = int(bool(torch.isfinite(weights[0])))
        yield state


def keras3_states(options, pattern, backend):
    import keras
    import numpy as np
    if not keras.__version__.startswith("3"):
        skip("Keras 3 is not installed")
    weight = keras.Variable(np.zeros(1, "float32"))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), **options)
    optimizer.build([weight])

    def apply(gradient):
        optimizer.apply([gradient], [weight])

    if backend == "tensorflow":
        import tensorflow as tf
        apply = tf.function(apply)
    number = lambda x: keras.ops.convert_to_numpy(x).item()
    gradients = {letter: keras.ops.convert_to_tensor(np.array([value], "float32"))
                 for letter, value in (("F", 1.0), ("Z", 0.0), ("O", math.inf))}
    before = 0
    for letter in pattern:
        apply(gradients[letter])
        updates = int(number(optimizer.iterations))
        yield {"scale": number(optimizer.dynamic_scale), "tracker": int(number(optimizer.step_counter)),
               "updates": updates, "skipped": str(int(updates == before)),
               "finite": int(math.isfinite(number(weight)))}
        before = updates


def tf_keras_states(options, pattern):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    import tf_keras
    weight = tf.Variable([0.0])
    applied = tf.Variable(0)

    class Counted(tf_keras.optimizers.SGD):
        def update_step(self, gradient, variable):
            applied.assign_add(1)
            super().update_step(gradient, variable)

    optimizer = tf_keras.mixed_precision.LossScaleOptimizer(Counted(1.0, jit_compile=False), **options)
    optimizer.build([weight])

    @tf.function
    def apply(gradient):
        optimizer.get_scaled_loss(tf.constant(1.0))
        optimizer.apply_gradients([(optimizer.get_unscaled_gradients([gradient])[0], weight)])

    gradients = {"F": tf.constant([1.0]), "Z": tf.constant([0.0]), "O": tf.constant([math.inf])}
    for letter in pattern:
        before = int(applied)
        apply(gradients[letter])
        state = {"scale": float(optimizer.loss_scale), "updates": int(optimizer.iterations),
                 "finite": int(math.isfinite(weight.numpy()[0])), "skipped": str(int(int(applied) == before))}
        if optimizer.dynamic:
            state["tracker"] = int(optimizer.dynamic_counter)
        yield state


def deepspeed_states(options, pattern):
    import logging
    from deepspeed.runtime.fp16 import fused_optimizer, loss_scaler
    loss_scaler.logger.setLevel(logging.ERROR)
    loss_scaler.dist = types.SimpleNamespace(get_rank=lambda: 1)  # no messages, no process group
    fused = options.get("fused", False)
    arguments = {key: value for key, value in options.items() if key != "fused"}
    if fused:
        config = types.SimpleNamespace(dynamic_loss_scale=True, cur_iter=0, last_overflow_iter=-1, scale_factor=2.0,
                                       cur_scale=arguments["init_scale"], scale_window=arguments["scale_window"],
                                       min_loss_scale=arguments["min_scale"], cur_hysteresis=1, delayed_shift=1,
                                       consecutive_hysteresis=False)
        owner = types.SimpleNamespace(loss_scale_config=config, verbose=False)
        update = lambda overflow: fused_optimizer.FP16_Optimizer._update_scale(owner, overflow)
    else:
        config = loss_scaler.DynamicLossScaler(**arguments)
        update = config.update_scale
    for letter in pattern:
        try:
            update(letter == "O")
        except Exception as error:  # pylint: disable=broad-except
            if "already at minimum" not in str(error):
                raise
            yield {"stop": 1}
            return
        state = {"scale": config.cur_scale, "iteration": config.cur_iter, "last_overflow": config.last_overflow_iter,
                 "skipped": str(int(letter == "O")), "stop": 0}
        if not fused:
            state["hysteresis"] = config.cur_hysteresis
        yield state


def rules_states(options, pattern):
    """apex.amp.scaler.LossScaler and apex.fp16_utils.DynamicLossScaler, from their source (6424da3)."""
    options = dict(options)
    if options.pop("kind") == "apex":
        scale, least, most, window = options["init"], options.get("min"), options["max"], options["window"]
        scale, clean = min(most, scale), 0
        for letter in pattern:
            if scale == 0.0:
                yield {"stop": 2}  # 1. / scale raises ZeroDivisionError
                return
            if letter == "O":
                scale = max(least, scale / 2.0) if least else scale / 2.0
                clean = 0
            else:
                clean += 1
            if clean == window:
                scale, clean = min(most, scale * 2.0), 0
            yield {"scale": scale, "tracker": clean, "skipped": str(int(letter == "O")), "stop": 0}
        return
    scale, factor, window = options["init"], options["factor"], options["window"]
    last = -1
    for i, letter in enumerate(pattern):
        if letter == "O":
            scale, last = max(scale / factor, 1), i
        elif (i - last) % window == 0:
            scale *= factor
        yield {"scale": float(scale), "iteration": i + 1, "last_overflow": last, "skipped": str(int(letter == "O"))}


def keras_on(backend):
    return lambda options, pattern: keras3_states(options, pattern, backend)


def deepspeed_options(**changes):
    return {"init_scale": 65536.0, "scale_window": 1000, "min_scale": 1.0, "delayed_shift": 2,
            "consecutive_hysteresis": False, "raise_error_at_min_scale": True, **changes}


FRAMEWORKS = {
    "torch": ("torch", torch_states, [
        ("torch", {}), ("torch:init=1024,interval=3", {"init_scale": 1024.0, "growth_interval": 3}),
        ("torch:growth=1.1,backoff=0.9,interval=7",
         {"growth_factor": 1.1, "backoff_factor": 0.9, "growth_interval": 7}),
        ("torch:init=1000,growth=3,backoff=0.3,interval=50",
         {"init_scale": 1000.0, "growth_factor": 3.0, "backoff_factor": 0.3, "growth_interval": 50}),
        ("torch:interval=1", {"growth_interval": 1})]),
    "torch-shared": ("torch", torch_states, [
        ("torch:interval=5", {"growth_interval": 5})]),
    "keras3-tensorflow": ("keras", keras_on("tensorflow"), [
        ("keras3", {}), ("keras3:init=1000,interval=3", {"initial_scale": 1000.0, "dynamic_growth_steps": 3}),
        ("keras3:interval=1", {"dynamic_growth_steps": 1})]),
    "keras3-torch": ("keras", keras_on("torch"), [
        ("keras3:backend=torch", {}),
        ("keras3:init=1000,interval=3,backend=torch", {"initial_scale": 1000.0, "dynamic_growth_steps": 3}),
        ("keras3:interval=1,backend=torch", {"dynamic_growth_steps": 1})]),
    "tf-keras": ("tf_keras", tf_keras_states, [
        ("tf-keras", {}), ("tf-keras:init=1000,interval=3", {"initial_scale": 1000, "dynamic_growth_steps": 3}),
        ("tf-keras:init=0.25,interval=4", {"initial_scale": 0.25, "dynamic_growth_steps": 4}),
        ("tf-keras:interval=1", {"dynamic_growth_steps": 1}),
        ("tf-keras:static=1024", {"dynamic": False, "initial_scale": 1024})]),
    "deepspeed": ("deepspeed", deepspeed_states, [
        ("deepspeed", deepspeed_options()),
        ("deepspeed:window=3", deepspeed_options(scale_window=3)),
        ("deepspeed:window=5,consecutive,no-raise",
         deepspeed_options(scale_window=5, consecutive_hysteresis=True, raise_error_at_min_scale=False)),
        ("deepspeed:init=4294967296,window=7,hysteresis=4,min=0.25,no-raise",
         deepspeed_options(init_scale=2.0**32, scale_window=7, delayed_shift=4, min_scale=0.25,
                           raise_error_at_min_scale=False)),
        ("deepspeed:window=3,hysteresis=1,min=0.3",
         deepspeed_options(scale_window=3, delayed_shift=1, min_scale=0.3)),
        ("deepspeed:window=3,fused", {"fused": True, "init_scale": 65536.0, "scale_window": 3, "min_scale": 1.0})]),
    "rules": ("math", rules_states, [
        ("apex", {"kind": "apex", "init": 65536.0, "max": 2.0**24, "window": 2000}),
        ("apex:window=3,min=128,max=262144",
         {"kind": "apex", "init": 65536.0, "max": 2.0**18, "min": 128.0, "window": 3}),
        ("apex:init=33554432", {"kind": "apex", "init": 2.0**25, "max": 2.0**24, "window": 2000}),
        ("apex-fp16-utils", {"kind": "fp16_utils", "init": 2**32, "factor": 2.0, "window": 1000}),
        ("apex-fp16-utils:factor=3,window=3", {"kind": "fp16_utils", "init": 2**32, "factor": 3.0, "window": 3})]),
}

COLUMNS = ["scale", "tracker", "hysteresis", "iteration", "last_overflow", "updates", "skipped", "finite", "stop"]


def skip(why):
    print("skipped:", why)
    sys.exit(0)


def same(a, b):
    return a == b or (a != a and b != b)


def tool_states(tool, text, pattern):
    lines = subprocess.run([tool, text, pattern], check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        words = line.split()
        row = dict(zip(COLUMNS, words))
        yield {key: value if key == "skipped" else float.fromhex(value) if key == "scale" else float(value)
               for key, value in row.items()}


def compare(tool, name, steps):
    _, states, cases = FRAMEWORKS[name]
    compared = 0
    for text, options in cases:
        for which, pattern in enumerate(patterns(steps, "OAB" if name == "torch-shared" else "O")):
            if name == "torch-shared":
                pattern = pattern[:-1] + "A"
            for step, (wanted, got) in enumerate(zip(states(options, pattern), tool_states(tool, text, pattern))):
                for key, value in wanted.items():
                    equal = got[key] == value if key == "skipped" else same(got[key], float(value))
                    if not equal:
                        sys.exit(f"{text}, pattern {which}, step {step} ({pattern[step]}): {key} is {got[key]}, "
                                 f"but {value} in {name}")
                compared += 1
    print(f"{name}: {len(cases)} configurations, {compared} steps, no difference")


def write(file, name):
    """Replaces the framework's blocks of the file: CASE NAME, TEXT, PATTERN, then a line of known values per key."""
    blocks = []
    if os.path.exists(file):
        with open(file, encoding="ascii") as old:
            blocks = [b for b in old.read().split("\n\n") if b.strip() and f"case {name} " not in b]
    head = [b for b in blocks if b.startswith("#")] or ["# Written by tests/oracle/scaler_traces.py."]
    blocks = [b.strip("\n") for b in blocks if not b.startswith("#")]
    _, states, cases = FRAMEWORKS[name]
    for text, options in cases:
        for which, pattern in enumerate(patterns(VECTOR_STEPS, "OAB" if name == "torch-shared" else "O")):
            if which == 2:
                continue  # hardly an overflow in so few steps
            if which == 3 and name.startswith(("torch", "keras3", "rules")):
                pattern = "O" * 150 + "ZZFFFOFFFF"  # to 0 in fp32
            if name == "torch-shared":
                pattern = pattern[:-1] + "A"
            rows = list(states(options, pattern))
            lines = [f"case {name} {text}", "pattern " + pattern]
            for key in COLUMNS:
                if any(key in row for row in rows):
                    values = [row.get(key, "?") for row in rows]
                    lines.append(key + " " + packed([repr(float(v)) if key == "scale" and v != "?" else str(v)
                                                     for v in values]))
            blocks.append("\n".join(lines))
    blocks.sort(key=lambda b: b.split("\n")[0])
    with open(file, "w", encoding="ascii") as out:
        out.write("\n\n".join(head + blocks) + "\n")


def packed(values):
    """1 1 1 2 3 4 7 -> 1*3 2:4 7"""
    runs = []  # of first value, count, step from one to the next
    for value in values:
        last = runs[-1] if runs else None
        whole = last and value.isdigit() and last[0].isdigit()
        if last and last[0] == value and last[2] == 0:
            last[1] += 1
        elif whole and int(value) == int(last[0]) + last[1] and (last[2] == 1 or last[1] == 1):
            last[1:] = [last[1] + 1, 1]
        else:
            runs.append([value, 1, 0])
    return " ".join(f"{value}:{int(value) + count - 1}" if up else value if count == 1 else f"{value}*{count}"
                    for value, count, up in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", required=True, choices=FRAMEWORKS)
    parser.add_argument("--tool", help="the program scaler_states")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--write", metavar="FILE", help="replace this framework's vectors in FILE")
    options = parser.parse_args()
    if options.framework.startswith("keras3-"):
        os.environ["KERAS_BACKEND"] = options.framework.removeprefix("keras3-")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        __import__(FRAMEWORKS[options.framework][0])
    except ImportError as error:
        skip(str(error))
    if options.write:
        write(options.write, options.framework)
    if options.tool:
        compare(options.tool, options.framework, options.steps)


if __name__ == "__main__":
    main()
