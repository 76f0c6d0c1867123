# SPDX-License-Identifier: MIT
"""Compares the exported tables of a run with the tables of an oracle.

    compare_run.py --steps steps.csv --lane NAME --losses P_losses.csv[.gz] [--loss-column loss]
                   [--loss-rtol 1e-6] [--until STEP] [--stats stats.csv --counts P_counts.csv[.gz]]

Checks, for one lane of steps.csv and stats.csv (columns: docs/reference/csv.md):
  - both have the same steps (with --until STEP: only steps below STEP count);
  - each loss is within --loss-rtol of the oracle's, relative; NaN and infinities must be equal;
  - skipped is the same, if the oracle's table has that column;
  - n, underflow, subnormal and overflow of every step and site of the counts table are identical.
    Statistics must be per step (step_count 1). Sites the oracle does not have are not compared.
The loss column is `loss` for mixed_fp16_numpy.py, `loss32` or `loss64` for mlp_torch.py.

Prints the first difference of each kind and how many there are. Exit code 0: no difference;
1: a difference; 2: a file or column is missing. Needs the standard library only.
"""
import argparse
import csv
import gzip
import math
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

Row = Dict[str, str]
COUNTERS = ("n", "underflow", "subnormal", "overflow")


class UsageError(Exception):
    """A file or column is missing, or nothing is left to compare."""


def read_table(path: Path, columns: Tuple[str, ...]) -> List[Row]:
    """Rows of a CSV file, gzipped if its name ends in .gz."""
    try:
        with (gzip.open(path, "rt", newline="") if path.suffix == ".gz"
              else open(path, newline="")) as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in columns if name not in (reader.fieldnames or [])]
            if missing:
                raise UsageError(f"{path} has no column {', '.join(missing)}")
            return list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def to_float(text: str) -> float:
    """A number; an empty cell is NaN."""
    return float(text) if text else math.nan


class Differences:
    """Counts differences by kind and keeps the first of each."""

    def __init__(self) -> None:
        self.first: Dict[str, str] = {}
        self.count: Dict[str, int] = {}

    def add(self, kind: str, text: str) -> None:
        self.first.setdefault(kind, text)
        self.count[kind] = self.count.get(kind, 0) + 1

    def report(self) -> int:
        for kind, text in self.first.items():
            print(f"{kind}: {self.count[kind]} difference(s), the first: {text}")
        return 1 if self.first else 0


def relative_difference(run: float, oracle: float) -> float:
    """|run - oracle| / |oracle|; 0 if equal or both NaN, inf if only one is finite."""
    if run == oracle or (math.isnan(run) and math.isnan(oracle)):
        return 0.0
    if not (math.isfinite(run) and math.isfinite(oracle)):
        return math.inf
    return abs(run - oracle) / abs(oracle) if oracle != 0 else math.inf


def by_step(rows: List[Row], until: Optional[int]) -> Dict[int, Row]:
    """Rows keyed by step, below `until` only."""
    keyed = {int(row["step"]): row for row in rows}
    return {step: row for step, row in keyed.items() if until is None or step < until}


def compare_losses(run: Dict[int, Row], oracle: Dict[int, Row], column: str, rtol: float,
                   out: Differences) -> None:
    """Compares losses and skipped steps."""
    worst = (0.0, -1)
    for step in sorted(set(run) | set(oracle)):
        if step not in run or step not in oracle:
            where = "oracle" if step in oracle else "run"
            out.add("steps", f"step {step} is only in the {where}")
            continue
        mine, theirs = to_float(run[step]["loss"]), to_float(oracle[step][column])
        difference = relative_difference(mine, theirs)
        worst = max(worst, (difference, step))
        if difference > rtol:
            out.add("loss", f"step {step}: run {mine!r}, oracle {theirs!r}, "
                            f"relative {difference:.3e} > {rtol:g}")
        if "skipped" in oracle[step] and int(run[step]["skipped"]) != int(oracle[step]["skipped"]):
            out.add("skipped", f"step {step}: run {run[step]['skipped']}, "
                               f"oracle {oracle[step]['skipped']}")
    print(f"losses: {len(oracle)} steps, largest relative difference {worst[0]:.3e}"
          + (f" at step {worst[1]}" if worst[1] >= 0 else ""))


def compare_counts(run: List[Row], oracle: List[Row], until: Optional[int],
                   out: Differences) -> None:
    """Compares the counters of every step and site of the oracle."""
    keyed: Dict[Tuple[int, str], Row] = {}
    for row in run:
        if int(row["step_count"]) != 1:
            raise UsageError("the statistics are not per step (step_count is not 1)")
        keyed[int(row["step"]), row["site"]] = row
    compared = 0
    for theirs in oracle:
        step, site = int(theirs["step"]), theirs["site"]
        if until is not None and step >= until:
            continue
        compared += 1
        mine = keyed.get((step, site))
        if mine is None:
            out.add("sites", f"step {step}: {site} is only in the oracle")
            continue
        for counter in COUNTERS:
            if int(mine[counter]) != int(theirs[counter]):
                out.add(counter, f"step {step}, {site}: run {mine[counter]}, "
                                 f"oracle {theirs[counter]}")
    if compared == 0:
        raise UsageError("no counts to compare")
    print(f"counts: {compared} rows of {len(COUNTERS)} counters")


def compare(args: argparse.Namespace) -> int:
    """Runs all comparisons; returns the exit code."""
    out = Differences()
    steps = [row for row in read_table(args.steps, ("step", "lane", "loss", "skipped"))
             if row["lane"] == args.lane]
    if not steps:
        raise UsageError(f"{args.steps} has no lane {args.lane}")
    losses = by_step(read_table(args.losses, ("step", args.loss_column)), args.until)
    if not losses:
        raise UsageError("no losses to compare")
    compare_losses(by_step(steps, args.until), losses, args.loss_column, args.loss_rtol, out)
    if args.counts is not None:
        stats = [row for row in read_table(args.stats, ("step", "step_count", "lane", "site")
                                           + COUNTERS) if row["lane"] == args.lane]
        compare_counts(stats, read_table(args.counts, ("step", "site") + COUNTERS), args.until, out)
    return out.report()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=Path, required=True, help="the run's steps.csv")
    parser.add_argument("--lane", required=True, help="lane of the run")
    parser.add_argument("--losses", type=Path, required=True, help="the oracle's losses")
    parser.add_argument("--loss-column", default="loss", help="its column (default: loss)")
    parser.add_argument("--loss-rtol", type=float, default=1e-6,
                        help="relative tolerance (default: 1e-6)")
    parser.add_argument("--until", type=int, metavar="STEP", help="compare steps below STEP only")
    parser.add_argument("--stats", type=Path, help="the run's stats.csv")
    parser.add_argument("--counts", type=Path, help="the oracle's counts")
    args = parser.parse_args()
    if (args.stats is None) != (args.counts is None):
        parser.error("--stats and --counts go together")
    try:
        code = compare(args)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except (KeyError, ValueError, TypeError) as error:
        print(f"error: malformed table: {error!r}", file=sys.stderr)
        code = 2
    print("equal" if code == 0 else "NOT equal" if code == 1 else "not compared")
    sys.exit(code)


if __name__ == "__main__":
    main()
