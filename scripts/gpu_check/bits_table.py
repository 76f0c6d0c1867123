# SPDX-License-Identifier: MIT
"""The table operator x variant: the result of each comparison in the GPU tests.

gpu_test appends a line to the file that HALFSCOPE_BITS_TABLE names for every comparison:
    operator <tab> case <tab> variant <tab> equal | differs: TEXT | error: TEXT
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

SPECIAL = "mma special values"  # reported, not judged
SIGNS = {"equal": "=", "differs": "x", "error": "!"}
WORST_FIRST = "!x="
NOT_RUN = "."
TEN = 10
PLAIN, CORES = "bits", "tensor cores"


def read(path: Path) -> list[list[str]]:
    """Complete lines as [operator, case, variant, verdict]; a killed process may end in a line."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    whole = data[:data.rfind(b"\n") + 1]
    rows = [line.split("\t", 3) for line in whole.decode("utf-8", "replace").splitlines()]
    return [row for row in rows if len(row) == 4]


def sign(verdict: str) -> str:
    return SIGNS.get(verdict.partition(":")[0], "!")


class BitsTable:
    """All comparisons so far. The report stores `data`."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        data.update(variants=[], cells={}, differences=[], special=[], compared=0)

    def add(self, operator: str, case: str, variant: str, verdict: str) -> str:
        """Adds one comparison; returns what is wrong with it, or nothing."""
        mark = sign(verdict)
        if operator == SPECIAL:
            self.data["special"].append([case, variant, verdict])
            return ""
        self.data["compared"] += 1
        if variant not in self.data["variants"]:
            self.data["variants"].append(variant)
        row = self.data["cells"].setdefault(operator, {})
        worst = min(mark + row.get(variant, "="), key=WORST_FIRST.index)
        row[variant] = worst
        if mark == "=":
            return ""
        self.data["differences"].append([operator, variant, case, verdict])
        return f"{operator} in {variant}, {case}: {verdict}"

    def add_row(self, operator: str) -> None:
        """Adds an operator whose tests were started: it gets a row even without comparisons."""
        self.data["cells"].setdefault(operator, {})


def sections(data: dict[str, Any]) -> dict[str, list[str]]:
    """Variants by what was compared: "many tiles, fp16 fp32" is in the section "many tiles", and
    the many variants of tensor cores, which only products have, are in one of their own."""
    found: dict[str, list[str]] = {PLAIN: []}
    for variant in data.get("variants", []):
        what, comma, _ = variant.partition(", ")
        plain = CORES if "tensor-core:" in variant else PLAIN
        found.setdefault(what if comma else plain, []).append(variant)
    return {what: variants for what, variants in found.items() if variants}


def in_tens(signs: str) -> str:
    """One character per variant, with a gap after every ten."""
    return " ".join(signs[i:i + TEN] for i in range(0, len(signs), TEN))


def grid(data: dict[str, Any], verdicts: dict[str, str]) -> list[str]:
    """The lines of the table: a row per operator and a sign per variant, by section. `verdicts`
    is printed after the row of an operator whose process failed."""
    cells = data.get("cells", {})
    parts = sections(data)
    width = max((len(name) for name in [*cells, *parts]), default=0)
    lines: list[str] = []
    first = True  # this part has every operator, also those that were not compared at all
    for what, variants in parts.items():
        head = "".join(f"{i + 1:<{TEN + 1}}" for i in range(0, len(variants), TEN)).rstrip()
        lines += ([""] if lines else []) + [what.ljust(width) + "  " + head]
        for operator, row in sorted(cells.items()):
            signs = [row.get(variant, NOT_RUN) for variant in variants]
            if first or set(signs) != {NOT_RUN}:
                after = verdicts.get(operator, "")
                lines.append(f"{operator.ljust(width)}  {in_tens(''.join(signs))}  "
                             f"{after if first else ''}".rstrip())
        first = False
    return lines


def legend(data: dict[str, Any]) -> list[str]:
    """The variants of each section by number."""
    lines = []
    for what, variants in sections(data).items():
        names = [variant.removeprefix(f"{what}, ") for variant in variants]
        lines.append(f"- {what}: " + "; ".join(f"{i + 1} {name}" for i, name in enumerate(names)))
    return lines
