# SPDX-License-Identifier: MIT
"""Training steps compared with PyTorch, products layer by layer, and the library's orders of
sums. Every line is added to the report as soon as it is printed."""
from __future__ import annotations

import re
import sys
from typing import Any

from .context import Context
from .evidence import CUT_OFF, PASSED
from .processes import Outcome
from .report import block

TITLE = "Benchmarks"
STEP_SHARE, LAYER_SHARE = 0.6, 0.7  # of the time that is left when each begins
# Formats and sizes of fully connected layers: input, rows, columns, n.
SHAPES = ("fp32 128 128 512", "fp16 128 128 512", "bf16 128 128 512", "tf32 128 128 512",
          "e4m3 128 128 256", "fp16 512 4096 4096", "fp16 512 10 4096")
PROBE = ("import torch; print('PyTorch', torch.__version__, 'CUDA', torch.version.cuda, "
         "torch.cuda.get_device_name() if torch.cuda.is_available() else 'sees no GPU')")


def _probe_pytorch(context: Context) -> None:
    outcome = context.run(context.command("PyTorch", [sys.executable, "-c", PROBE], timeout=90.0))
    text = outcome.out.strip() if outcome.ok else outcome.what()
    context.data["pytorch"] = text
    if not outcome.ok or "sees no GPU" in text:
        context.not_checked("steps against PyTorch", f"PyTorch does not run on this GPU: {text}")
    context.piece("pytorch", text=text)


def _benchmark(context: Context, key: str, seconds: float, program: str,
               *arguments: str) -> Outcome:
    """Runs a benchmark and stores its lines as they arrive."""
    lines: list[str] = []
    context.data[key] = lines

    def keep(line: str, is_error: bool) -> None:
        lines.append(line)
        context.say(line)
        context.piece("row", benchmark=key, line=line, error=is_error)

    outcome = context.run(context.job(key, program, *arguments, timeout=seconds, on_line=keep))
    if not outcome.ok:
        lines.append(outcome.what())
        if outcome.stopped and not outcome.cut:
            context.not_checked(f"the rest of {program}", f"it was {outcome.what()}")
        elif not outcome.cut:
            context.fail(f"{program}: {outcome.what()}")
    return outcome


def _steps(context: Context) -> Outcome:
    quick = ("--models", "mlp:784-16-10", "--plans", "mixed_float16", "--batch", "16",
             "--rounds", "1", "--steps", "5")
    # Fewer steps than by default: most of the time goes into starting PyTorch.
    outcome = _benchmark(context, "steps", context.deadline.left() * STEP_SHARE, "gpu_step_bench",
                         "--python", sys.executable, "--torch-script",
                         str(context.binaries.torch_script),
                         *(quick if context.arguments.quick else ("--steps", "30")))
    lines = outcome.out.splitlines() + outcome.err.splitlines()
    failed = list(dict.fromkeys(line for line in lines if line.startswith("PyTorch failed:")))
    for line in failed:
        context.not_checked("a step against PyTorch", line)
    for line in dict.fromkeys(line for line in lines if line.startswith("torch.compile failed:")):
        context.not_checked("a step against torch.compile", line)
    if outcome.ok and not failed and not any(re.search(r"\sPyTorch\s+[0-9.]", line)
                                             for line in lines):
        context.not_checked("steps against PyTorch", "gpu_step_bench printed no time of PyTorch")
    return outcome


def _orders(context: Context) -> bool:
    """Returns False if it ran out of time."""
    found = 0
    context.data["orders"] = []
    for shape in SHAPES[:2] if context.arguments.quick else SHAPES:
        kind, rows, columns, n = shape.split()
        outcome = context.run(context.job(
            f"order of {shape}", "halfscope", "fprev", "--backend", "cuda", "--input", kind,
            "--rows", rows, "--columns", columns, "--n", n, timeout=60.0))
        if outcome.cut:
            return False
        text = "\n".join((outcome.out or outcome.err).splitlines()[:5])
        head = f"{kind}, [{rows} x {n}] times [{n} x {columns}]"
        context.data["orders"].append([head, text or outcome.what()])
        # Not every device multiplies every format.
        if outcome.ok:
            found += 1
        else:
            context.not_checked(f"the order of sums of {head}", outcome.what())
        context.say(f"{head}:\n{text}")
        context.piece("order", shape=shape, result=outcome.what(), text=text)
    if not found:
        context.fail("halfscope fprev --backend cuda found no order at all")
    return True


def run(context: Context) -> tuple[str, str]:
    _probe_pytorch(context)
    whole = not _steps(context).cut
    layers = ("--models", "mlp:784-16-10", "--plans", "float32,mixed_float16", "--batch", "16",
              "--rounds", "1", "--ms", "1") if context.arguments.quick else ()
    whole &= not _benchmark(context, "layers", context.deadline.left() * LAYER_SHARE,
                            "gpu_layer_bench", *layers).cut
    whole &= _orders(context)
    if not whole:
        return CUT_OFF, f"stopped after {context.deadline.spent():.0f} s"
    return PASSED, ""


def render(data: dict[str, Any]) -> list[str]:
    lines = []
    if data.get("pytorch"):
        lines += [f"{data['pytorch']}", ""]
    for key, title in (("steps", "Training steps against PyTorch"),
                       ("layers", "Products layer by layer")):
        if data.get(key):
            lines += [f"### {title}"] + block("\n".join(data[key])) + [""]
    if data.get("orders"):
        lines += ["### Orders in which the library sums"]
        lines += block("\n".join(f"== {head}\n{text}" for head, text in data["orders"]))
    return lines
