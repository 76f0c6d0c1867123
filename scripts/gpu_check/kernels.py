# SPDX-License-Identifier: MIT
"""Reads the output of `halfscope train --kernels`, `report --json` and `report --steps`."""
from __future__ import annotations

import csv
import io
import re
import statistics
from collections import Counter
from typing import Any


def parse_lines(text: str, lane: str) -> dict[str, Any]:
    """The lines of a lane: {"products": [[node, operator, kernel]], "entries": [[entry, text]]}.
    An entry has a line for each way in which it was launched."""
    products, entries = [], []
    for line in text.splitlines():
        if not line.startswith(lane + " "):
            continue
        rest = line[len(lane) + 1:]
        entry = re.match(r"entry (\S+): (.+)$", rest)
        product = re.match(r"(\S+) (\S+): (.+)$", rest)
        if entry:
            entries.append(list(entry.groups()))
        elif product:
            products.append(list(product.groups()))
    return {"products": products, "entries": entries}


def capture_failed(text: str) -> bool:
    """Returns whether a capture was tried and failed; launching one by one on purpose is fine."""
    return text.startswith("not captured")


def without_shape(kernel: str) -> str:
    """Returns the text of a kernel without the sizes, which differ between layers."""
    return re.sub(r"( of)? \[[0-9x ]+\]( with \[[0-9x ]+\])?( of)?", "", kernel)


def by_kernel(products: list[list[str]]) -> list[list[Any]]:
    """[operator, how many products, kernel], the most frequent first."""
    counts = Counter((operator, without_shape(kernel)) for _, operator, kernel in products)
    return [[operator, count, kernel] for (operator, kernel), count in counts.most_common()]


def step_times(text: str, lane: str) -> list[float]:
    """Milliseconds of each step, from steps.csv."""
    return [float(row["ms"]) for row in csv.DictReader(io.StringIO(text))
            if row.get("lane") == lane and row.get("ms")]


def usual_time(times: list[float]) -> float | None:
    """The median of the second half: the first steps load kernels and capture graphs."""
    return round(statistics.median(times[len(times) // 2:]), 4) if times else None


def equal_losses(text: str, lane: str, other: str) -> tuple[int, int]:
    """Returns how many steps both lanes have, and in how many the losses are identical."""
    losses: dict[str, dict[str, str]] = {lane: {}, other: {}}
    for row in csv.DictReader(io.StringIO(text)):
        if row.get("lane") in losses:
            losses[row["lane"]][row["step"]] = row["loss"]
    common = losses[lane].keys() & losses[other].keys()
    return len(common), sum(losses[lane][step] == losses[other][step] for step in common)


def share(part: int, whole: int) -> str:
    return f"{100.0 * part / whole if whole else 100.0:.3f}%"


def check_site(site: dict[str, Any]) -> dict[str, Any]:
    """A kernel's tensor compared with the emulator's; `fault` if no order of sums explains it."""
    n, differing = site["n"], site["differing"]
    text = f"{share(n - differing, n)} equal"
    if differing:
        text += f", at most {site['max_ulps']} ulps"
    if site["beyond"]:
        text += f", {site['beyond']} beyond the bound of sums"
    if site["order"]:
        text += f"; {share(site['explained'], site['sampled'])} explained by {site['order']}"
    if site["unexplained"]:
        text += f"; not explained: {site['unexplained']}"
    fault = bool(site["beyond"]) or (differing > 0 and not site["kernel"])
    return {"site": site["site"], "op": site["op"], "kernel": site["kernel"] or "own kernel",
            "n": n, "differing": differing, "text": text, "fault": fault}


def check_lane(report: dict[str, Any], lane: str) -> dict[str, Any] | None:
    """Returns a lane's comparisons with the emulator, from report.json; None if there are none."""
    for entry in report.get("kernels") or []:
        if entry["lane"] != lane:
            continue
        sites = [check_site(site) for site in entry["sites"]]
        total = sum(site["n"] for site in sites)
        return {"text": entry["text"], "steps": entry["steps"], "tensors": len(sites),
                "equal": share(total - sum(site["differing"] for site in sites), total),
                "differing": [site for site in sites if site["differing"] or site["fault"]]}
    return None
