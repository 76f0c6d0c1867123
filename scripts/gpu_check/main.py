# SPDX-License-Identifier: MIT
"""Runs the steps of a call of scripts/gpu-check, in order."""
from __future__ import annotations

import importlib
import signal
import sys
import traceback
from pathlib import Path

from . import binaries as programs
from . import device as gpu
from . import pack, processes, report, sources
from .arguments import Arguments, parse
from .context import Context
from .evidence import CUT_OFF, FAILED, NOT_RUN, PASSED, Evidence
from .output import say
from .stop import NO_GPU, USAGE, Stop

FIRST_SECONDS, OTHER_SECONDS = 180.0, 530.0


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _on_signal(number: int, _: object) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # the report is being written
    raise processes.Interrupted(number)


def run_stage(context: Context, name: str) -> str:
    """Runs one stage to its end, its limit or its failure; its result is in the report."""
    module = importlib.import_module(f".stage_{name}", __package__)
    limit = context.arguments.limit or (FIRST_SECONDS if name == "first" else OTHER_SECONDS)
    context.stage = name
    context.deadline = processes.Deadline(limit)
    context.data = context.evidence.begin(name, limit)
    context.say(f"\n== {name}: {module.TITLE} (at most {limit:.0f} s)")
    result, why = CUT_OFF, "an error in gpu-check itself"
    if context.arguments.quick and name in ("first", "profile", "bench"):
        context.not_checked("networks of their usual sizes", "--quick uses small ones")
    try:
        result, why = module.run(context)
        if result == PASSED and context.data["failures"]:
            result, why = FAILED, f"{len(context.data['failures'])} failures"
    except processes.Interrupted as interrupted:
        why = str(interrupted)
        raise
    except Exception:
        context.fail("gpu-check itself failed: " + traceback.format_exc(limit=-3))
        result = FAILED
    finally:
        context.evidence.end(name, result, why, context.deadline.spent())
        for line in module.render(context.data):
            context.say(line)
        context.say(f"== {name}: {result} in {context.deadline.spent():.0f} s"
                    + (f": {why}" if why else ""))
    return result


def _find_binaries(arguments: Arguments) -> programs.Binaries:
    if arguments.binaries is not None:
        return programs.from_pack(arguments.binaries)
    if not gpu.is_visible():
        raise Stop(NO_GPU, "no NVIDIA GPU is visible on this machine, so nothing was checked",
                   "to build for another machine, use --pack DIR")
    return programs.from_build(arguments.arch or gpu.architectures())


def check(arguments: Arguments) -> int:
    binaries = _find_binaries(arguments)
    programs.missing_programs(binaries)
    for note in binaries.notes:
        say(f"note: {note}")
    device = gpu.examine(binaries)
    work = programs.BUILD / "gpu-check"
    # A simulated device tests gpu-check, not a GPU: its report stays out of the documentation.
    docs = work if binaries.simulated else sources.ROOT / "docs" / "gpu"
    try:
        evidence = Evidence(docs, work, arguments.report, device.name, binaries.info)
    except OSError as error:
        own = Path(error.filename or ".").resolve().is_relative_to(sources.ROOT)
        raise Stop(USAGE, f"cannot write the report: {error}",
                   "gpu-check writes into its checkout: copy it to a place where it may"
                   if own else "name another folder with --report") from error
    notes = [f"note: {each}" for each in binaries.notes]
    other = gpu.mismatch(device, str(binaries.info.get("architecture", "")))
    if other:
        notes.append(f"note: {other}")
    work_of = {"NCCL": "messages"}
    notes += [f"not checked: {work_of.get(label, 'products')} by {label}, because {why}"
              for label, why in device.missing.items()]
    evidence.state.update(doctor=device.text, libraries=device.libraries, notes=notes)
    say(f"{device.name}, compute capability {device.capability}")
    for line in device.libraries + notes[len(binaries.notes):]:
        say(line)
    # Orders of sums are cached between stages, but not in the user's cache.
    binaries.env["HALFSCOPE_CACHE"] = str(work / "cache")
    evidence.log("call", arguments=sys.argv[1:], device=device.name, binaries=binaries.info,
                 libraries=device.libraries, notes=notes)
    context = Context(arguments, binaries, evidence, sources.cpus())
    evidence.save()
    bad = []
    try:
        for name in arguments.stages:
            if run_stage(context, name) not in (PASSED, NOT_RUN):
                bad.append(name)
    except processes.Interrupted as interrupted:
        print(f"gpu-check: {interrupted}; the report has everything up to here", file=sys.stderr)
        return 1
    finally:
        processes.stop_all()
        evidence.save()
        evidence.close()
        _summary(evidence, arguments.report)
    return 1 if bad else 0


def _summary(evidence: Evidence, folder: Path | None) -> None:
    say("\n== summary")
    for name, data in evidence.state["stages"].items():
        why = f": {data['why']}" if data.get("why") else ""
        say(f"{name:<9} {data['result']}, {data['seconds']} s{why}")
    for line in report.not_checked(evidence.state):
        say(line)
    say(f"wrote {evidence.folders[0] / evidence.name}.md and .json"
        + (f", and to {folder}" if folder else ""))


def main(argv: list[str]) -> int:
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _on_signal)
    try:
        arguments = parse(argv)
        if arguments.pack is not None:
            pack.pack(arguments)
            return 0
        return check(arguments)
    except Stop as stop:
        print(f"gpu-check: {stop}", file=sys.stderr)
        return stop.code
    except processes.Interrupted as interrupted:  # before there was a report
        print(f"gpu-check: {interrupted}", file=sys.stderr)
        return 1
