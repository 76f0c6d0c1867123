# SPDX-License-Identifier: MIT
"""First questions about a device: does each backend train, with which kernels, in CUDA graphs,
and with the emulator's bits? One process per network and backend, so that one that fails does not
take the others with it."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import gtest, kernels
from .context import Context
from .evidence import CUT_OFF, PASSED
from .processes import Job, Outcome
from .report import table

TITLE = "First look: kernels, CUDA graphs, bits"
BACKENDS = ("cuda-own", "cuda", "cuda-fast")
PLAN = "mixed_float16"
# Network, batch and steps.
NETWORKS = (("mlp:784-512-512-10", 128, 20), ("resnet20", 64, 20))
QUICK = (("mlp:784-16-10", 16, 5),)
CUDNN_TEST = "CudnnEngines.ExistForEveryConvolutionThatItIsGiven"
CUDNN_PROBE = "CudnnProbe.TellsTheEngineOfEveryConvolution"
PROBE_SECONDS = 90.0  # cuDNN compiles some of its engines
LAUNCH_SECONDS = 40.0
KEPT_SECONDS = 15.0  # of the stage, to read what runs that were stopped have recorded
MOST_TENSORS = 30  # per lane in the Markdown; the JSON has all that differ


def _probe_cudnn(context: Context, test: str, what: str) -> None:
    """One of the tests that ask cuDNN for engines."""
    outcome = context.run(context.job(what, "gpu_test", f"--gtest_filter={test}",
                                      timeout=PROBE_SECONDS))
    results = gtest.parse_results(outcome.out)
    result = "passed" if outcome.ok and results.passed else outcome.what()
    if results.skipped or (outcome.ok and not results.passed):
        result = "not checked"
        context.not_checked(what, " ".join(results.notes[1:]) or f"gpu_test has no test {test}")
    elif result != "passed":
        context.fail(f"{what}: {result}; {' '.join(results.notes)}")
    rows = [line.split("\t")[1:] for line in outcome.out.splitlines()
            if line.startswith("cudnn\t")]
    entry = {"what": what, "result": result, "notes": results.notes, "rows": rows}
    context.data["cudnn"].append(entry)
    context.say(f"{what}: {result}")
    context.piece("cudnn", **entry)


def _probes(context: Context) -> None:
    context.data["cudnn"] = []
    if context.binaries.simulated:
        context.not_checked("cuDNN's engines for an H100", "the simulated cuDNN describes none")
    else:
        _probe_cudnn(context, CUDNN_TEST, "cuDNN's engines for an H100")
    _probe_cudnn(context, CUDNN_PROBE, "cuDNN's engines for convolutions of networks")


def _train(context: Context, name: str, network: tuple[str, int, int], lanes: str, run: Path,
           *more: str, **options: Any) -> Job:
    model, batch, steps = network
    return context.job(name, "halfscope", "train", "--model", model, "--batch", str(batch),
                       "--steps", str(steps), "--lanes", lanes, "--kernels", "--no-eval",
                       "--quiet", "--force", "--out", str(run), *more, **options)


def _steps_csv(context: Context, run: Path) -> str:
    """steps.csv of a run file, or nothing if there is none."""
    path = run.with_suffix(".csv")
    path.unlink(missing_ok=True)
    done = context.run(context.job("export", "halfscope", "report", str(run), "--steps", str(path),
                                   "--force"))
    return path.read_text(encoding="utf-8") if done.ok and path.is_file() else ""


def _about_lane(context: Context, entry: dict[str, Any], outcome: Outcome, lane: str) -> None:
    """Reads kernels and graphs from the program's output."""
    said = kernels.parse_lines(outcome.err, lane)
    if said["products"]:
        entry["products"] = said["products"]
    known = entry.setdefault("entries", [])
    known += [each for each in said["entries"] if each not in known]
    for name, text in said["entries"]:
        if kernels.capture_failed(text):
            context.fail(f"{entry['model']} on {entry['backend']}: entry {name} {text}")


def _launches(entry: dict[str, Any]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in entry["entries"]
                     if "(with statistics)" not in text)


def _launch(context: Context, network: tuple[str, int, int], backend: str) -> None:
    """Trains on one backend at full speed, without recording."""
    lane, model = f"{backend}:{PLAN}", network[0]
    run = context.folder() / f"{backend}-{model.split(':')[0]}.hscope"
    outcome = context.run(_train(context, f"{model} on {backend}", network, lane, run,
                                 "--no-record", timeout=LAUNCH_SECONDS))
    entry: dict[str, Any] = {"model": model, "backend": backend, "batch": network[1],
                             "result": outcome.what(), "seconds": round(outcome.seconds, 1)}
    context.data["lanes"].append(entry)
    _about_lane(context, entry, outcome, lane)
    times = kernels.step_times(_steps_csv(context, run), lane)
    entry.update(steps=len(times), ms=kernels.usual_time(times))
    label = f"{model} on {backend}"
    if not outcome.ok:
        context.fail(f"{label}: {outcome.what()}")
        entry["error"] = outcome.err[-2000:]
    elif len(times) != network[2]:
        context.fail(f"{label}: {len(times)} of {network[2]} steps are in the run file")
    if outcome.ok and not entry["products"]:
        context.not_checked(f"the kernels of {label}", "halfscope train --kernels named none")
    if outcome.ok and not entry["entries"]:
        context.not_checked(f"whether {label} runs as CUDA graphs",
                            "halfscope train --kernels did not say")
    context.say(f"{label}: {entry['result']}, {entry['ms']} ms per step; {_launches(entry)}")
    context.piece("launch", **entry)


def _bits(context: Context, entry: dict[str, Any], outcome: Outcome, run: Path,
          steps: int) -> None:
    """Reads the comparison of every kernel with the emulator from the recorded run."""
    label = f"{entry['model']} on {entry['backend']}"
    lane, emulated = f"{entry['backend']}:{PLAN}", f"emulated:{PLAN}"
    _about_lane(context, entry, outcome, lane)
    bits: dict[str, Any] = {"result": outcome.what(), "stopped": outcome.stopped}
    entry["bits"] = bits
    if outcome.stopped:
        context.not_checked(f"all bits of {label}", f"the comparison was {outcome.what()}: what "
                            "follows is from the steps before")
    elif not outcome.ok:
        context.fail(f"bits of {label}: {outcome.what()}")
    both, equal = kernels.equal_losses(_steps_csv(context, run), lane, emulated)
    bits.update(steps=both, equal_losses=equal)
    report = run.with_suffix(".json")
    report.unlink(missing_ok=True)
    told = context.run(context.job("report", "halfscope", "report", str(run), "--json",
                                   str(report), "--force", "--quiet"))
    checks = None
    if told.ok and report.is_file():
        checks = kernels.check_lane(json.loads(report.read_text(encoding="utf-8")), lane)
    if checks is None and outcome.stopped:
        context.not_checked(f"any bits of {label}", "no step was compared in this time")
    elif checks is None:
        context.fail(f"bits of {label}: no kernel was compared with the emulator"
                     + ("" if told.ok else f": {told.what()}"))
    else:
        bits["kernels"] = checks
        for site in checks["differing"]:
            if site["fault"]:
                context.fail(f"{label}: kernel fault at {site['site']}: {site['text']}")
    if entry["backend"] == "cuda-own" and equal != both:
        context.fail(f"{label}: {both - equal} of {both} losses differ from the emulator's, whose "
                     "bits these kernels have to have")
    elif both < steps and outcome.ok:
        context.fail(f"bits of {label}: {both} of {steps} steps were compared")
    share = checks["equal"] if checks else "no"
    context.say(f"bits of {label}: {share} of elements equal, {equal} of {both} losses equal")
    context.piece("bits", model=entry["model"], backend=entry["backend"], **bits)


def run(context: Context) -> tuple[str, str]:
    networks = QUICK if context.arguments.quick else NETWORKS
    context.data["lanes"] = []
    for network in networks:
        for backend in BACKENDS:
            if not context.deadline.passed():
                _launch(context, network, backend)
    jobs, wanted = [], {}
    at_once = min(len(context.data["lanes"]), context.cpus)
    for entry, network in zip(context.data["lanes"],
                              [each for each in networks for _ in BACKENDS]):
        lane, emulated = f"{entry['backend']}:{PLAN}", f"emulated:{PLAN}"
        path = context.folder() / f"bits-{entry['backend']}-{network[0].split(':')[0]}.hscope"
        job = _train(context, f"bits of {network[0]} on {entry['backend']}", network,
                     f"{emulated},{lane}", path, "--compare", f"{lane},{emulated}", "--threads",
                     str(max(1, context.cpus // max(1, at_once))))
        wanted[job.name] = (entry, path, network[2])
        jobs.append(job)
    for outcome in context.run_all(jobs, at_once, KEPT_SECONDS):
        entry, path, steps = wanted[outcome.job.name]
        if outcome.started or outcome.error:
            _bits(context, entry, outcome, path, steps)
    _probes(context)  # last: cuDNN may compile engines for longer than all else takes
    wanted_bits = len(networks) * len(BACKENDS)
    whole = sum("bits" in each and not each["bits"]["stopped"] for each in context.data["lanes"])
    if whole < wanted_bits:
        return CUT_OFF, f"stopped after {context.deadline.spent():.0f} s; {wanted_bits - whole} " \
                        f"of {wanted_bits} comparisons of bits did not come to their end"
    return PASSED, ""


def render(data: dict[str, Any]) -> list[str]:
    lines = []
    for probe in data.get("cudnn", []):
        lines.append(f"- {probe['what']}: {probe['result']}.")
        other = [row for row in probe["rows"] if len(row) >= 6 and "cuDNN" not in row[5][:5]]
        if probe["rows"]:
            lines.append(f"- cuDNN runs {len(probe['rows']) - len(other)} of "
                         f"{len(probe['rows'])} convolutions that it was asked about; the JSON "
                         "file lists its engines.")
        lines += [f"- not cuDNN: {' '.join(row[:4])}: {row[5]}" for row in other[:MOST_TENSORS]]
    lines.append("")
    lanes = data.get("lanes", [])
    rows = []
    for each in lanes:
        bits = each.get("bits", {})
        compared = bits.get("kernels")
        rows.append([each["model"], each["backend"], each["result"],
                     each["ms"] if each["ms"] is not None else "-",
                     _launches(each) or "-",
                     f"{compared['equal']} of {compared['tensors']} tensors" if compared else "-",
                     f"{bits['equal_losses']} of {bits['steps']}" if "steps" in bits else "-"])
    lines += table(["network", "backend", "result", "ms per step", "CUDA graphs", "equal elements",
                    "equal losses"], rows)
    for each in lanes:
        title = f"{each['model']} on {each['backend']}"
        if each.get("products"):
            lines += ["", f"Kernels of {title}:", ""]
            lines += table(["operator", "products", "kernel"], kernels.by_kernel(each["products"]))
        differing = each.get("bits", {}).get("kernels", {}).get("differing", [])
        if differing:
            lines += ["", f"Tensors of {title} that differ from the emulator's on the same "
                      "operands:", ""]
            lines += table(["tensor", "kernel", ""],
                           [[site["site"], kernels.without_shape(site["kernel"]),
                             site["text"] + ("; KERNEL FAULT" if site["fault"] else "")]
                            for site in differing[:MOST_TENSORS]])
            if len(differing) > MOST_TENSORS:
                lines.append(f"\nand {len(differing) - MOST_TENSORS} more in the JSON file")
    return lines
