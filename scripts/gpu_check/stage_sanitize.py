# SPDX-License-Identifier: MIT
"""Tests under compute-sanitizer: memcheck, then racecheck and synccheck while there is time."""
from __future__ import annotations

import re
from collections import Counter
from typing import Any

from . import gtest
from .context import Context
from .evidence import FAILED, NOT_RUN, PASSED
from .libraries import find_tool
from .processes import Outcome
from .report import block

TITLE = "Tests under compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "synccheck")
ERRORS_FOUND = 99
# Lines that report an error, without headings and locations.
ERROR_LINE = re.compile(r"^========= (Invalid|Misaligned|Program hit|Error|Barrier|Divergent)")
# Few and small, but with every kind of kernel: single elements, sums, tensor cores, tiles, indices,
# the tap, replayed steps.
OWN_TESTS = ("MakeTheSameIndices", "SumWhatWasGatheredOften", "RunAgainAndWithoutStatistics",
             "TreatSpecialValuesAlike", "SumAsTensorCoresDo", "OverflowIsTheEmulators",
             "LanesDoNotDisturbEachOther", "InferenceIsTheEmulators")
# Around the libraries: the operands copied for them must be as large as they assume. Races
# inside them are not ours.
LIBRARY_TESTS = ("AreNearTheEmulatorAndRepeatTheirBits",)


def choose(names: list[str], wanted: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Returns the tests with these names that need a device, and the names without a test."""
    chosen, unknown = [], []
    for each in wanted:
        found = [name for name in names if name.partition(".")[2].partition("/")[0] == each
                 and ("/Cuda" in name or "OnDevice." in name)]
        chosen += found
        if not found:
            unknown.append(each)
    return chosen, unknown


def verdict_of(outcome: Outcome, tests: int) -> tuple[bool, str]:
    """Returns whether the tool found no errors, and a line about it."""
    lines = (outcome.out + "\n" + outcome.err).splitlines()
    passed = len(gtest.parse_results(outcome.out).passed)
    errors = [line for line in lines if ERROR_LINE.match(line)]
    if outcome.code == ERRORS_FOUND or errors:
        counted = Counter(line.strip("= ") for line in lines
                          if ERROR_LINE.match(line) or "SUMMARY" in line)
        return False, "errors: " + "; ".join(
            f"{count} {text}" for text, count in counted.most_common(3))
    if outcome.stopped:
        return True, f"stopped after {outcome.seconds:.0f} s, no errors until then"
    if not outcome.ok:
        return False, outcome.what()
    if passed != tests:
        return False, f"{passed} of {tests} tests passed, the others did not run"
    return True, f"no errors ({passed} tests, {outcome.seconds:.0f} s)"


def run(context: Context) -> tuple[str, str]:
    context.data["tools"] = {}
    sanitizer = find_tool("compute-sanitizer")
    if sanitizer is None:
        context.not_checked("memory accesses, races and barriers",
                            "compute-sanitizer is not on this machine")
        return NOT_RUN, "compute-sanitizer is not here"
    listed = context.run(context.job("list of tests", "gpu_test", "--gtest_list_tests",
                                     timeout=60.0))
    names = gtest.parse_list(listed.out)
    own, unknown = choose(names, OWN_TESTS)
    library, more = choose(names, LIBRARY_TESTS)
    for each in unknown + more:
        context.fail(f"gpu_test has no test {each} that needs a device")
    if not own:
        return FAILED, "no tests"
    for i, tool in enumerate(TOOLS):
        if context.deadline.left() < 1.0:
            context.not_checked(tool, "the stage's time was over")
            continue
        tests = own + (library if tool == "memcheck" else [])
        options = ["--tool", tool, "--error-exitcode", str(ERRORS_FOUND), "--print-limit", "20"]
        if tool == "memcheck":  # the program checks the results of its calls itself
            options += ["--report-api-errors", "no"]
        # Leaves time for the tools that follow.
        seconds = context.deadline.left() * (0.5 if i + 1 < len(TOOLS) else 1.0)
        outcome = context.run(context.command(tool, [
            sanitizer, *options, str(context.binaries.program("gpu_test")),
            f"--gtest_filter={':'.join(tests)}"], timeout=seconds))
        good, verdict = verdict_of(outcome, len(tests))
        context.data["tools"][tool] = verdict
        context.say(f"{tool}: {verdict}")
        if not good:
            context.fail(f"{tool}: {verdict}")
        elif outcome.stopped:
            context.not_checked(f"all tests under {tool}", f"it was {outcome.what()}")
        context.piece("sanitize", tool=tool, verdict=verdict)
    return PASSED, ""


def render(data: dict[str, Any]) -> list[str]:
    lines = [f"{tool}: {verdict}" for tool, verdict in data.get("tools", {}).items()]
    return block("\n".join(lines)) if lines else []
