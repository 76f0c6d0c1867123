# SPDX-License-Identifier: MIT
"""Reads GoogleTest's output: lists of tests, results, and the first failures."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_FAILURE_LINES = 8


def parse_list(text: str) -> list[str]:
    """The full names in the output of --gtest_list_tests."""
    names, suite = [], ""
    for line in text.splitlines():
        bare = line.partition("#")[0].rstrip()
        if not bare:
            continue
        if line.startswith("  ") and suite:
            names.append(suite + bare.strip())
        elif bare.endswith(".") and " " not in bare:
            suite = bare
    return names


@dataclass
class Results:
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    running: str = ""  # the test that had begun when the output ended
    notes: list[str] = field(default_factory=list)  # the first lines of failures and skips


def parse_results(text: str) -> Results:
    """The tests of one program that ran, in the order in which they ended."""
    results = Results()
    noting = 0
    for line in text.splitlines():
        mark = re.match(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?)(,.*)?( \(\d+ ms( total)?\))?$",
                        line)
        if mark:
            kind, name = mark.group(1), mark.group(2)
            noting = 0
            # The list at the end repeats the names, without times.
            if kind == "RUN":
                results.running = name
            elif name == results.running:
                {"OK": results.passed, "FAILED": results.failed,
                 "SKIPPED": results.skipped}[kind].append(name)
                results.running = ""
            continue
        if re.search(r": (Failure|Skipped)$", line):
            noting = MOST_FAILURE_LINES
        if noting and line.strip() and len(results.notes) < 4 * MOST_FAILURE_LINES:
            results.notes.append(line.rstrip()[:400])
            noting -= 1
    return results
