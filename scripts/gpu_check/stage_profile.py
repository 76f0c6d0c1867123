# SPDX-License-Identifier: MIT
"""Every kernel of one training step under Nsight Compute, ranked by time.

Two runs for each network and backend: the first times every launch of two steps and shows which
launches the second step has, the second measures rates of those. All first runs come first. Clocks
stay as they are.
"""
from __future__ import annotations

from typing import Any

from . import ncu
from .context import Context
from .evidence import CUT_OFF, FAILED, NOT_RUN, PASSED
from .libraries import find_tool
from .processes import Outcome
from .report import table

TITLE = "Kernels of one training step, by time"
PLAN = "mixed_float16"
BACKENDS = ("cuda", "cuda-fast")
NETWORKS = (("mlp:784-4096-4096-4096-10", 512), ("lenet", 512), ("resnet20", 512))
QUICK = (("mlp:784-16-10", 16),)
STEPS = 2  # the first launches kernels one by one, the second as a CUDA graph
MOST_KERNELS = 25  # in the Markdown; the JSON has all
MOST_SECONDS = 120.0


def _ncu(context: Context, tool: str, name: str, network: tuple[str, int], backend: str,
         metrics: list[str], *more: str, timeout: float) -> Outcome:
    run = context.folder() / "profile.hscope"
    train = [str(context.binaries.program("halfscope")), "train", "--model", network[0],
             "--batch", str(network[1]), "--steps", str(STEPS), "--lanes", f"{backend}:{PLAN}",
             "--no-record", "--no-eval", "--quiet", "--force", "--out", str(run)]
    command = [tool, "--csv", "--page", "details", "--print-units", "base",
               "--print-kernel-base", "demangled", "--clock-control", "none",
               "--graph-profiling", "node", "--metrics", ",".join(metrics), *more, *train]
    return context.run(context.command(name, command, timeout=timeout, env={"LC_ALL": "C"}))


def _said(outcome: Outcome, *starts: str) -> list[str]:
    return [line.partition("== ")[2] for line in (outcome.out + "\n" + outcome.err).splitlines()
            if line.startswith(starts)]


def _cannot_profile(outcome: Outcome) -> str:
    """Returns what ncu cannot do on this machine, such as reading counters without permission, or
    nothing if the program failed."""
    errors = [each for each in _said(outcome, "==ERROR==") if "application" not in each.lower()]
    return "; ".join(errors[:2])


def _why(outcome: Outcome) -> str:
    """Returns ncu's description of a failure."""
    said = _said(outcome, "==ERROR==", "==WARNING==")
    return f"ncu {outcome.what()}" + (f": {'; '.join(said[:3])}" if said else "")


def _time(context: Context, tool: str, network: tuple[str, int], backend: str,
          seconds: float) -> str:
    """Returns why ncu cannot profile here, or nothing."""
    label = f"{network[0]} on {backend}"
    outcome = _ncu(context, tool, f"times of {label}", network, backend,
                   [ncu.TIME, ncu.REGISTERS], timeout=seconds)
    launches = ncu.parse(outcome.out)
    entry: dict[str, Any] = {"model": network[0], "batch": network[1], "backend": backend,
                             "result": outcome.what(), "launches": len(launches)}
    context.data["profiles"].append(entry)
    cannot = _cannot_profile(outcome) if not launches else ""
    if cannot:
        context.data["profiles"].pop()
        return cannot
    if not launches:
        entry["head"] = "\n".join((outcome.out + "\n" + outcome.err).strip().splitlines()[:20])
        context.fail(f"{label}: no kernel was measured: {_why(outcome)}")
    elif not outcome.ok:
        context.fail(f"{label}: {_why(outcome)}")
    step = ncu.last_step(launches, STEPS)
    if step is None and launches:
        context.not_checked(f"one step of {label} alone", f"no kernel ran exactly {STEPS} times: "
                            "all launches are ranked")
    start, length = step or (0, len(launches))
    entry.update(skip=start, kernels=length, one_step=step is not None,
                 rows=ncu.rank(launches[start:]))
    entry["us"] = round(sum(row["us"] for row in entry["rows"]), 1)
    context.say(f"{label}: {entry['kernels']} kernels, {entry['us']:.0f} us; "
                + ", ".join(f"{row['kernel'][:40]} {row['share']}%" for row in entry["rows"][:3]))
    context.piece("profile", **entry)
    return ""


def _rates(context: Context, tool: str, entry: dict[str, Any], seconds: float) -> None:
    label = f"{entry['model']} on {entry['backend']}"
    outcome = _ncu(context, tool, f"rates of {label}", (entry["model"], entry["batch"]),
                   entry["backend"], [ncu.TIME, ncu.REGISTERS, ncu.DRAM, ncu.SM],
                   "--launch-skip", str(entry["skip"]), "--launch-count", str(entry["kernels"]),
                   timeout=seconds)
    launches = ncu.parse(outcome.out)
    rates = {row["full"]: row for row in ncu.rank(launches)}
    if not any(row["dram"] is not None for row in rates.values()):
        context.not_checked(f"memory and SM rates of {label}", _why(outcome))
        return
    for row in entry["rows"]:
        measured = rates.get(row["full"], {})
        row.update(dram=measured.get("dram"), sm=measured.get("sm"))
    context.piece("rates", model=entry["model"], backend=entry["backend"], rows=entry["rows"])


def run(context: Context) -> tuple[str, str]:
    context.data["profiles"] = []
    tool = find_tool("ncu")
    if tool is None:
        context.not_checked("kernel times", "ncu (Nsight Compute) is not on this machine")
        return NOT_RUN, "ncu is not here"
    networks = QUICK if context.arguments.quick else NETWORKS
    wanted = [(network, backend) for network in networks for backend in BACKENDS]
    for i, (network, backend) in enumerate(wanted):
        if context.deadline.passed():
            return CUT_OFF, f"stopped after {context.deadline.spent():.0f} s; {len(wanted) - i} " \
                            f"of {len(wanted)} profiles did not run"
        cannot = _time(context, tool, network, backend, min(
            MOST_SECONDS, max(10.0, context.deadline.left() / (len(wanted) - i))))
        if cannot:
            context.not_checked("kernel times", f"ncu cannot profile here: {cannot}")
            return NOT_RUN, "ncu cannot profile here"
    if not any(entry["rows"] for entry in context.data["profiles"]):
        return FAILED, "ncu measured nothing"
    timed = [entry for entry in context.data["profiles"] if entry["rows"]]
    for i, entry in enumerate(timed):
        label = f"{entry['model']} on {entry['backend']}"
        if context.deadline.left() < 5.0:
            context.not_checked(f"memory and SM rates of {label}", "the stage's time was over")
            continue
        _rates(context, tool, entry,
               min(MOST_SECONDS, max(5.0, context.deadline.left() / (len(timed) - i))))
    return PASSED, ""


def render(data: dict[str, Any]) -> list[str]:
    lines = []
    for entry in data.get("profiles", []):
        what = "one step" if entry.get("one_step") else "all launches"
        lines += ["", f"{entry['model']} on {entry['backend']}, {PLAN}, batch {entry['batch']}: "
                  f"{what}, {entry['kernels']} kernels, {entry['us']} us. ncu: {entry['result']}.",
                  ""]
        if entry.get("head"):
            lines += ["```", entry["head"], "```"]
        rows = entry.get("rows", [])
        lines += table(["kernel", "launches", "us", "share", "DRAM", "SM", "registers"], [
            [f"`{row['kernel']}`", row["count"], f"{row['us']:.1f}", f"{row['share']:.1f}%",
             _percent(row["dram"]), _percent(row["sm"]), row["registers"] or "-"]
            for row in rows[:MOST_KERNELS]])
        if len(rows) > MOST_KERNELS:
            lines.append(f"\nand {len(rows) - MOST_KERNELS} more in the JSON file")
    return lines


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"
