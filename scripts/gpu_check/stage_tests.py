# SPDX-License-Identifier: MIT
"""Every test of gpu_test that needs a device, one process per operator, many at once. A mismatch, a
crash or a timeout ends its own process only."""
from __future__ import annotations

import re
from typing import Any

from . import gtest
from .bits_table import SPECIAL, BitsTable, grid, legend, read
from .context import Context
from .evidence import CUT_OFF, FAILED, PASSED
from .processes import Outcome
from .report import block, table

TITLE = "Tests on the device, by operator"
MOST_PROCESSES = 16
GROUP_SECONDS = 300.0
LIST_SECONDS = 60.0
DEVICE_SUITES = ("CudaBackend", "LibrariesOnDevice", "MmaOnDevice", "CudnnProbe", "NcclOnDevice")
MOST_DIFFERENCES = 60  # in the Markdown; the JSON has all


def group_of(name: str) -> str | None:
    """Returns the operator of a test, or the test itself if it has none; None if it needs no
    device."""
    test, _, parameter = name.partition("/Cuda") if "/Cuda" in name else (name, "", None)
    if parameter is not None:
        return parameter[1:] if parameter.startswith("_") and len(parameter) > 1 else test
    suite = re.sub(r"^[^/.]+/", "", name).partition(".")[0]
    return name if suite in DEVICE_SUITES else None


def groups_of(names: list[str]) -> dict[str, list[str]]:
    """Groups tests by process: operators first, because they are the most informative."""
    groups: dict[str, list[str]] = {}
    for name in names:
        group = group_of(name)
        if group is not None:
            groups.setdefault(group, []).append(name)
    return dict(sorted(groups.items(), key=lambda each: "." in each[0]))


def _verdict(outcome: Outcome, results: gtest.Results, wanted: int) -> str:
    """Returns "passed", or what is wrong with a process."""
    if outcome.error or not outcome.started or outcome.stopped:
        return outcome.what()
    if outcome.crashed:
        return f"crashed, {outcome.what()}" + (f" in {results.running}" if results.running else "")
    if results.failed or not outcome.ok:
        return f"{len(results.failed)} failed" if results.failed else outcome.what()
    if results.skipped:
        return f"{len(results.skipped)} skipped"
    if len(results.passed) != wanted:
        return f"{len(results.passed)} of {wanted} tests passed, the others did not run"
    return PASSED


def _finish(context: Context, bits: BitsTable, group: str, tests: list[str], outcome: Outcome,
            done: str) -> None:
    results = gtest.parse_results(outcome.out)
    verdict = _verdict(outcome, results, len(tests))
    rows = read(context.folder() / f"{_file(group)}.tsv")
    wrong = [text for text in (bits.add(*row) for row in rows) if text]
    if "." not in group:
        bits.add_row(group)
    if wrong and verdict == PASSED:
        verdict = f"{len(wrong)} comparisons differ"
    entry = {"result": verdict, "seconds": round(outcome.seconds, 1), "tests": len(tests),
             "passed": len(results.passed), "failed": results.failed, "skipped": results.skipped,
             "notes": results.notes, "comparisons": len(rows)}
    explained = [line for line in outcome.out.splitlines() if "explained" in line]
    if explained:
        entry["explained"] = explained
    context.data["groups"][group] = entry
    first = wrong[0] if wrong else " ".join(results.notes[1:])
    text = f"{verdict}" + (f"; {first}" if first and verdict != PASSED else "")
    context.say(f"{done} {group}: {text} ({outcome.seconds:.1f} s)")
    if verdict != PASSED and not outcome.cut:
        context.data["failures"].append(f"{group}: {text}")
    context.piece("tests", group=group, rows=[row for row in rows if row[3] != "equal"], **entry)


def _file(group: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", group)


def run(context: Context) -> tuple[str, str]:
    context.data["groups"] = {}
    bits = BitsTable(context.data)
    arguments = ["--gtest_list_tests"]
    if context.arguments.tests:
        arguments.append(f"--gtest_filter={context.arguments.tests}")
        context.not_checked("all tests", f"--tests chose '{context.arguments.tests}'")
    listed = context.run(context.job("list of tests", "gpu_test", *arguments,
                                     timeout=LIST_SECONDS))
    groups = groups_of(gtest.parse_list(listed.out))
    if not groups:
        context.fail(f"gpu_test lists no test that needs a device: {listed.what()}")
        return FAILED, "no tests"
    at_once = max(1, min(MOST_PROCESSES, context.cpus, len(groups)))
    threads = str(max(1, context.cpus // at_once))
    jobs = []
    for group, tests in groups.items():
        rows = context.folder() / f"{_file(group)}.tsv"
        rows.unlink(missing_ok=True)
        jobs.append(context.job(
            group, "gpu_test", f"--gtest_filter={':'.join(tests)}", "--gtest_color=no",
            timeout=GROUP_SECONDS, env={"HALFSCOPE_BITS_TABLE": str(rows),
                                        "OMP_NUM_THREADS": threads, "GOMP_SPINCOUNT": "2000"}))
    context.say(f"{sum(map(len, groups.values()))} tests in {len(groups)} processes, {at_once} at "
                "once")
    stopped = []
    for count, outcome in enumerate(context.run_all(jobs, at_once), 1):
        group = outcome.job.name
        if outcome.cut:
            stopped.append(group)
        if outcome.started or outcome.error:
            _finish(context, bits, group, groups[group], outcome, f"[{count}/{len(groups)}]")
        else:
            context.data["groups"][group] = {"result": "not run", "seconds": 0.0,
                                             "tests": len(groups[group]), "notes": []}
            if "." not in group:
                bits.add_row(group)
    if not bits.data["compared"]:
        context.not_checked("the table of operators and variants",
                            "gpu_test wrote no comparisons (HALFSCOPE_BITS_TABLE)")
    if stopped:
        return CUT_OFF, f"stopped after {context.deadline.spent():.0f} s; {len(stopped)} of " \
                        f"{len(groups)} processes did not end: {', '.join(stopped[:12])}"
    return PASSED, ""


def render(data: dict[str, Any]) -> list[str]:
    lines = []
    groups = data.get("groups", {})
    passed = sum(each["result"] == PASSED for each in groups.values())
    lines.append(f"{passed} of {len(groups)} processes passed; {data.get('compared', 0)} "
                 "comparisons with the emulator.")
    failed = {name: each["result"] for name, each in groups.items() if each["result"] != PASSED}
    if data.get("variants"):
        lines += ["", "`=` equal bits, `x` different bits, `!` error, `.` not compared; one sign "
                  "per variant. The result of a failed process is at the end of its row.", ""]
        lines += block("\n".join(grid(data, failed))) + [""] + legend(data)
    bad = [[name, each["result"], " ".join(each["notes"][:4])] for name, each in groups.items()
           if each["result"] != PASSED]
    if bad:
        lines += ["", "Processes that did not pass:", ""]
        lines += table(["operator or test", "result", ""], bad)
    differences = data.get("differences", [])
    if differences:
        lines += ["", "First differences:", ""]
        lines += table(["operator", "variant", "case", ""], differences[:MOST_DIFFERENCES])
        if len(differences) > MOST_DIFFERENCES:
            lines.append(f"\nand {len(differences) - MOST_DIFFERENCES} more in the JSON file")
    special = data.get("special", [])
    if special:
        equal = sum(verdict == "equal" for _, _, verdict in special)
        lines += ["", f"Special values through the device's own `mma` instructions ({SPECIAL}): "
                  f"{equal} of {len(special)} as the model computes them. They are reported, not "
                  "judged."]
        other = [each for each in special if each[2] != "equal"]
        if other:
            lines += [""] + table(["case", "variant", ""], other[:MOST_DIFFERENCES])
    explained = [line for each in groups.values() for line in each.get("explained", [])]
    if explained:
        lines += ["", "Sums of the libraries:"] + block("\n".join(dict.fromkeys(explained)))
    return lines
