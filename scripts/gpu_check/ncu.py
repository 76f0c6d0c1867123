# SPDX-License-Identifier: MIT
"""Reads the CSV of Nsight Compute and ranks kernels.

`ncu --csv` prints a row per kernel and metric (page details) or a row per kernel with a second
line of units (page raw), between lines of its own that start with ==. Both forms are read.
"""
from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import Any

TIME = "gpu__time_duration.sum"
REGISTERS = "launch__registers_per_thread"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3,
                "msecond": 1e3, "s": 1e6, "second": 1e6}
MOST_LENGTH = 100


@dataclass
class Launch:
    """One run of a kernel; times in microseconds."""

    name: str
    grid: str = ""
    metrics: dict[str, float] = field(default_factory=dict)


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def parse(text: str) -> list[Launch]:
    """All launches in the order in which they ran; empty if this is not such a CSV."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return []
    rows = list(csv.reader(io.StringIO("\n".join(
        line for line in lines[start:] if line.startswith('"')))))
    head = rows[0]
    if "Kernel Name" not in head:
        return []
    launches: dict[str, Launch] = {}
    units = dict(zip(head, rows[1])) if len(rows) > 1 and not rows[1][0] else {}
    for values in rows[1:]:
        row = dict(zip(head, values))
        if not row.get("ID", "").isdigit():
            continue
        launch = launches.setdefault(row["ID"], Launch(row["Kernel Name"],
                                                       row.get("Grid Size", "")))
        if "Metric Name" in row:
            found = [(row["Metric Name"], row.get("Metric Unit", ""), row.get("Metric Value"))]
        else:
            found = [(name, units.get(name, ""), row.get(name)) for name in head if "__" in name]
        for name, unit, value in found:
            number = _number(value)
            if number is not None:
                scale = MICROSECONDS.get(unit, 1.0) if name == TIME else 1.0
                launch.metrics[name] = number * scale
    return [launches[key] for key in sorted(launches, key=int)]


def short_name(name: str) -> str:
    """Returns a demangled kernel name without parameters, namespaces and deeply nested parts."""
    name = re.sub(r"\((anonymous namespace|unnamed)\)::|<unnamed>::", "", name)
    name = re.sub(r"\b(halfscope|gpu|std|cutlass|cudnn|cublasLt)::", "", name)
    depth, kept = 0, []
    for char in name:
        if char == "<":
            depth += 1
        if char == "(" and depth == 0:
            break
        if depth <= 3:
            kept.append(char)
        elif depth == 4 and char == "<":
            kept.append("<..>")
        if char == ">":
            depth -= 1
    short = re.sub(r"^void ", "", "".join(kept)).strip() or name
    return short if len(short) <= MOST_LENGTH else short[:MOST_LENGTH - 2] + ".."


def last_step(launches: list[Launch], steps: int) -> tuple[int, int] | None:
    """Returns where the last of `steps` equal steps begins, and its number of launches. A kernel
    that runs once per step, found by name and grid, gives the distance between steps."""
    places: dict[tuple[str, str], list[int]] = {}
    for i, launch in enumerate(launches):
        places.setdefault((launch.name, launch.grid), []).append(i)
    lengths: dict[int, int] = {}
    for found in places.values():
        if len(found) == steps and steps > 1:
            gap = found[-1] - found[-2]
            lengths[gap] = lengths.get(gap, 0) + 1
    if not lengths:
        return None
    length = max(lengths, key=lambda each: (lengths[each], each))
    return len(launches) - length, length


def rank(launches: list[Launch]) -> list[dict[str, Any]]:
    """Kernels by their total time, with shares of it; rates are weighted by time."""
    groups: dict[str, list[Launch]] = {}
    for launch in launches:
        groups.setdefault(launch.name, []).append(launch)
    total = sum(launch.metrics.get(TIME, 0.0) for launch in launches)
    rows = []
    for name, each in groups.items():
        time = sum(launch.metrics.get(TIME, 0.0) for launch in each)
        row: dict[str, Any] = {"kernel": short_name(name), "full": name, "count": len(each),
                               "us": round(time, 3),
                               "share": round(100.0 * time / total, 2) if total else 0.0}
        for key, metric in (("dram", DRAM), ("sm", SM)):
            rates = [(launch.metrics[metric], launch.metrics.get(TIME, 1.0)) for launch in each
                     if metric in launch.metrics]
            weight = sum(one for _, one in rates)
            row[key] = round(sum(rate * one for rate, one in rates) / weight, 1) if weight else None
        row["registers"] = max((int(launch.metrics[REGISTERS]) for launch in each
                                if REGISTERS in launch.metrics), default=None)
        rows.append(row)
    return sorted(rows, key=lambda row: -row["us"])
