# SPDX-License-Identifier: MIT
"""Runs the output of `halfscope diagnose --fix-as` as a user would: pasted after a model.

    fix_texts.py --program build/bin/halfscope [--only NAME]

A small network is exported by PyTorch, run in fp16 so that one layer overflows, and diagnosed. The
text for PyTorch is executed; the modules that it names then compute in fp32 under autocast, with
the bits of float32, and the others do not. Keras and torchao are tried where they are installed; Transformer
Engine has a stand-in, because it needs a GPU.
"""
import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import types
import warnings
from pathlib import Path
from typing import Dict, List

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

SAMPLES = 16


class Block(nn.Module):
    def __init__(self, width: int, large: float) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        with torch.no_grad():
            self.first.weight.mul_(large)
            self.second.weight.div_(large)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(self.first(x))) + x


class Network(nn.Module):
    """blocks.1.first overflows in fp16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Linear(12, 16)
        self.blocks = nn.Sequential(Block(16, 1.0), Block(16, 2e5), Block(16, 1.0))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)))


class Bench:
    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.model = Network().eval()
        self.x = torch.randn(SAMPLES, 12, generator=torch.Generator().manual_seed(5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(self.model, (self.x,), str(folder / "net.onnx"), dynamo=False,
                              opset_version=17, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.PRESERVE, input_names=["x"])
        np.savez(folder / "x.npz", x=self.x.numpy())
        self.runs: Dict[str, Path] = {}

    def call(self, *arguments: object) -> str:
        done = subprocess.run([self.program, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode in (0, 1), f"{arguments}: {done.stderr}"
        return done.stdout

    def run(self, plan: str) -> Path:
        if plan not in self.runs:
            path = self.folder / f"{plan}.hscope"
            self.call("run", self.folder / "net.onnx", "--input", self.folder / "x.npz", "--plan",
                      plan, "--record", path, "--quiet", "--force")
            self.runs[plan] = path
        return self.runs[plan]

    def text(self, plan: str, target: str, *more: object) -> str:
        return self.call("diagnose", self.run(plan), "--fix-as", target, *more)


def paste(text: str, **names: object) -> Dict[str, object]:
    scope = dict(names)
    exec(compile(text, "pasted", "exec"), scope)  # pylint: disable=exec-used
    return scope


def outputs_of(model: nn.Module, x: torch.Tensor) -> Dict[str, torch.Tensor]:
    """Returns the inputs and outputs of each module in one forward pass."""
    seen: Dict[str, torch.Tensor] = {}
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_hook(
            lambda _, inputs, output, name=name: seen.update(
                {name: output.detach(), name + "<": inputs[0].detach()})))
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return seen


def check_autocast(bench: Bench) -> str:
    text = bench.text("mixed_float16", "pytorch")
    model = Network().eval()
    scope = paste(text, model=model)
    kept: List[str] = scope["KEEP_FP32"]  # type: ignore[assignment]
    assert "blocks.1.first" in kept, text
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = outputs_of(model, bench.x)
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if name not in kept:
            assert seen[name].dtype == torch.bfloat16, f"{name} returns {seen[name].dtype}"
            continue
        exact = nn.functional.linear(seen[name + "<"].float(), module.weight, module.bias)
        assert seen[name].dtype == torch.float32, f"{name} returns {seen[name].dtype}"
        assert torch.equal(seen[name], exact), f"{name} does not compute in fp32"
        rounded = nn.functional.linear(seen[name + "<"].bfloat16(), module.weight.bfloat16(),
                                       module.bias.bfloat16()).float()
        assert not torch.equal(seen[name], rounded), f"{name}: bf16 would give the same"
    # In fp16 the network overflows without the text, and does not with it.
    with torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        assert not torch.isfinite(bench.model(bench.x)).all()
        assert torch.isfinite(model(bench.x)).all()
    # Gradients go through.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(bench.x).float().square().mean()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    return f"{kept} in fp32"


def check_half(bench: Bench) -> str:
    """model.half() as a whole: what is kept in fp32 has fp32 weights and hands on fp16."""
    text = bench.text("float16", "pytorch")
    model = Network().eval().half()
    scope = paste(text, model=model)
    kept: List[str] = scope["KEEP_FP32"]  # type: ignore[assignment]
    for name in kept:
        assert model.get_submodule(name).weight.dtype == torch.float32, name
    with torch.no_grad():
        y = model(bench.x.half())
    assert y.dtype == torch.float16 and torch.isfinite(y).all(), text
    return f"{kept} in fp32"


def check_proof(bench: Bench) -> str:
    text = bench.text("mixed_float16", "pytorch", "--verify")
    kept = paste(text, model=Network())["KEEP_FP32"]
    plan = json.loads(bench.text("mixed_float16", "plan"))
    fp32 = [rule["path"] for rule in plan["rules"] if "path" in rule
            and "fp32" in (rule.get("format"), rule.get("write"))]
    assert set(kept) <= set(fp32), f"{kept} and {fp32}"
    return f"{kept}, the plan {fp32}"


def check_report(bench: Bench) -> str:
    out = bench.folder / "report.json"
    bench.call("report", bench.run("mixed_float16"), "--json", out, "--force")
    fixes = json.loads(out.read_text())["recommendation"]["fixes"]
    assert set(fixes) == {"pytorch", "torchao", "transformer-engine", "keras", "tensorflow"}
    assert fixes["pytorch"] == bench.text("mixed_float16", "pytorch")
    for target, text in fixes.items():
        compile(text, target, "exec")
    return f"{sum(map(len, fixes.values()))} characters"


def check_tensorflow(bench: Bench) -> str:
    text = bench.text("mixed_float16", "tensorflow")
    scope = paste(text)
    environment = scope["os"].environ  # type: ignore[attr-defined]
    prefix = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
    for edit in ("ALLOWLIST_REMOVE", "INFERLIST_REMOVE", "CLEARLIST_REMOVE", "DENYLIST_ADD"):
        assert "MatMul" in environment.pop(prefix + edit).split(",")
    flat = " ".join(text.replace("\n# ", " ").split())
    assert "apply to operator types" in flat and "stem" in flat, text
    return text.splitlines()[-1]


def check_torchao(bench: Bench) -> str:
    text = bench.text("mixed_float16", "torchao")
    try:
        import torchao.float8  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        compile(text, "torchao", "exec")
        return "torchao is missing: compiled only"
    model = Network()
    scope = paste(text, model=model)
    kept: List[str] = scope["NOT_FLOAT8"]  # type: ignore[assignment]
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            assert (type(module) is nn.Linear) == (name in kept), f"{name} is {type(module)}"
    return f"{kept} not converted"


def check_transformer_engine(bench: Bench) -> str:
    """The wrapper with a stand-in for Transformer Engine; the configuration with the real
    nvdlfw-inspect where it is installed."""
    text = bench.text("mixed_float16", "transformer-engine")
    on = [True]

    @contextlib.contextmanager
    def autocast(enabled=True):
        on.append(enabled)
        yield
        on.pop()

    package, engine = types.ModuleType("transformer_engine"), types.ModuleType("pytorch")
    engine.autocast = autocast
    package.pytorch = engine
    sys.modules.update({"transformer_engine": package, "transformer_engine.pytorch": engine})
    model = Network()
    scope = paste(text, model=model)
    kept: List[str] = scope["KEEP_OUT_OF_FP8"]  # type: ignore[assignment]
    seen: Dict[str, bool] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            parametrize.register_parametrization(module, "weight", Look(seen, name, on))
    model(bench.x)
    assert seen == {name: name not in kept for name in seen} and kept, f"{seen} and {kept}"
    try:
        from nvdlfw_inspect import config_manager  # pylint: disable=import-outside-toplevel
    except ImportError:
        return f"{kept} out of fp8; nvdlfw-inspect is missing: configuration not read"
    import yaml  # pylint: disable=import-outside-toplevel
    (section,) = yaml.safe_load(scope["CONFIG"]).values()
    assert section["transformer_engine"] == {"DisableFP8Layer": {"enabled": True}}, section
    spec = config_manager.ConfigSpec()
    spec.initialize(section)
    for name, module in model.named_modules():
        found = config_manager.is_layer_in_cfg(f"model.{name}", spec)
        inside = any(f"{name}.".startswith(f"{each}.") for each in kept)
        assert found == inside, f"{name}: {found}"
    return f"{kept} out of fp8, also by the configuration"


class Look(nn.Module):
    """Notes whether fp8 was on when the weight was read."""

    def __init__(self, seen: Dict[str, bool], name: str, on: List[bool]) -> None:
        super().__init__()
        self.seen, self.name, self.on = seen, name, on

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.seen[self.name] = self.on[-1]
        return weight


def check_keras(bench: Bench) -> str:
    text = bench.text("mixed_float16", "keras")
    try:
        import keras  # pylint: disable=import-outside-toplevel
    except ImportError:
        compile(text, "keras", "exec")
        return "Keras is missing: compiled only"
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((12,))
    x = inputs
    for name in ("stem", "first", "second", "head"):
        x = keras.layers.Dense(8, name=name)(x)
    model = keras.Model(inputs, x)
    paste(text, model=model)
    kept = [layer.name for layer in model.layers if layer.compute_dtype == "float32"
            and layer.weights]
    assert "first" in kept and "stem" not in kept, kept
    values = keras.ops.convert_to_tensor(np.ones((2, 12), np.float32))
    for layer in model.layers[1:]:
        values = layer(values)
        wanted = "float32" if layer.name in kept else "bfloat16"
        assert keras.backend.standardize_dtype(values.dtype) == wanted, layer.name
    return f"{kept} in float32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="", help="cases whose name begins like this")
    options = parser.parse_args()
    failed: List[str] = []
    ran = 0
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.program, Path(temporary))
        for function in (check_autocast, check_half, check_proof, check_report, check_tensorflow,
                         check_torchao, check_transformer_engine, check_keras):
            name = function.__name__.removeprefix("check_")
            if not name.startswith(options.only):
                continue
            ran += 1
            try:
                print(f"{name}: {function(bench)}", flush=True)
            except (AssertionError, KeyError, SyntaxError) as error:
                failed.append(name)
                print(f"{name}: FAILED: {error!r}", flush=True)
    print(f"{ran - len(failed)} of {ran} texts do what they say")
    if failed or ran == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
