#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads `halfscope report --tensorboard` with TensorBoard's own reader and compares every tag and
every value with the CSV tables and the report JSON of the same run."""
import argparse
import collections
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from tensorboard.backend.event_processing import event_accumulator

LIMIT = 64  # histograms of a tensor


def number(text):
    return float(text) if text != "" else None


def shares(rows):
    """The tags of shares, by step, from stats.csv."""
    counts = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
    keys = ("n", "zero", "pos_inf", "neg_inf", "nan", "overflow", "underflow", "lost")
    for row in rows:
        for key in ((row["role"], ""), (row["role"], "/" + row["path"])):
            counts[key][int(row["step"])].update({name: int(row[name]) for name in keys})
    tags = {}
    for (role, layer), series in counts.items():
        def add(tag, count, of):
            if layer and not any(each[count] for each in series.values()):
                return
            tags[tag] = {step: each[count] / of(each) if of(each) else 0.0
                         for step, each in series.items()}

        def non_zero(each):
            return each["n"] - each["zero"] - each["pos_inf"] - each["neg_inf"] - each["nan"]
        add(f"overflow/{role}{layer}", "overflow", lambda each: each["n"])
        add(f"underflow/{role}{layer}", "underflow", non_zero)
        if role == "update":
            add(f"lost_updates{layer}", "lost", non_zero)
    return tags


def steps(rows):
    tags = collections.defaultdict(dict)
    for row in rows:
        for column in ("loss", "loss_scale", "grad_norm", "skipped", "accuracy"):
            if number(row[column]) is not None:
                tags[column][int(row["step"])] = number(row[column])
    return tags


def histograms(rows):
    """By tensor and first step: the counts by exponent, of neighbouring windows together."""
    windows = collections.defaultdict(list)
    for row in rows:
        pairs = (pair.split(":") for pair in row["exponents"].split())
        windows[row["site"]].append((int(row["step"]), {int(e): int(count) for e, count in pairs}))
    tags = {}
    for site, series in windows.items():
        each = -(-len(series) // LIMIT)
        found = {}
        for begin in range(0, len(series), each):
            total = collections.Counter()
            for _, counts in series[begin:begin + each]:
                total.update(counts)
            if total:
                found[series[begin][0]] = dict(total)
        if found:
            tags[f"exponents/{site}"] = found
    return tags


def compare_scalars(where, events, wanted):
    got = {event.step: event.value for event in events}
    assert len(got) == len(events), (where, "two points at a step")
    assert got.keys() == wanted.keys(), (where, sorted(got.keys() ^ wanted.keys())[:5])
    for step, value in wanted.items():
        with np.errstate(over="ignore"):
            nearest = np.float32(value)
        same = np.float32(got[step]) == nearest or (math.isnan(got[step]) and math.isnan(value))
        assert same, (where, step, got[step], value)
    return len(wanted)


def compare_histograms(where, events, wanted):
    assert [event.step for event in events] == sorted(wanted), (where, [event.step for event in events])
    for event in events:
        value, counts = event.histogram_value, wanted[event.step]
        first, last = min(counts), max(counts)
        assert (value.min, value.max) == (first, last + 1), (where, value.min, value.max)
        assert value.num == sum(counts.values()), where
        assert value.sum == sum(e * count for e, count in counts.items()), where
        assert value.sum_squares == sum(e * e * count for e, count in counts.items()), where
        assert list(value.bucket_limit) == [float(e + 1) for e in range(first, last + 1)], where
        assert list(value.bucket) == [float(counts.get(e, 0)) for e in range(first, last + 1)], where
    return len(events)


def check(program, folder, words, seen):
    run = folder / f"{len(list(folder.iterdir()))}.hscope"
    out = run.with_suffix(".logs")
    subprocess.run([program, "train", *words, "--quiet", "--out", str(run)], check=True)
    subprocess.run([program, "report", str(run), "--quiet", "--tensorboard", str(out), "--steps",
                    f"{run}.steps.csv", "--stats", f"{run}.stats.csv", "--json", f"{run}.json"], check=True)
    report = json.loads(pathlib.Path(f"{run}.json").read_text())
    tables = {name: list(csv.DictReader(open(f"{run}.{name}.csv", newline="")))
              for name in ("steps", "stats")}
    lanes = [lane["name"] for lane in report["lanes"]]
    assert sorted(path.name for path in out.iterdir()) == sorted(lanes), (list(out.iterdir()), lanes)
    for lane in lanes:
        everything = {kind: 0 for kind in (event_accumulator.SCALARS, event_accumulator.HISTOGRAMS,
                                           event_accumulator.TENSORS)}
        read = event_accumulator.EventAccumulator(str(out / lane), size_guidance=everything).Reload()
        tags = read.Tags()
        mine = {name: [row for row in rows if row["lane"] == lane] for name, rows in tables.items()}
        wanted = {**steps(mine["steps"]), **shares(mine["stats"])}
        scalars = set(tags["scalars"]) - {"test/loss", "test/accuracy", "learning_rate"}
        assert scalars == wanted.keys(), (lane, scalars ^ wanted.keys())
        for tag in wanted:
            seen["points"] += compare_scalars((lane, tag), read.Scalars(tag), wanted[tag])
        info = next(each for each in report["lanes"] if each["name"] == lane)
        if info["test_loss"] is not None:
            last = read.Scalars("test/loss")[-1]
            compare_scalars((lane, "test/loss"), [last], {last.step: float(info["test_loss"])})
            seen["evaluations"] += 1
        shapes = histograms(mine["stats"])
        assert set(tags["histograms"]) == shapes.keys(), (lane, set(tags["histograms"]) ^ shapes.keys())
        for tag in shapes:
            seen["histograms"] += compare_histograms((lane, tag), read.Histograms(tag), shapes[tag])
        assert tags["tensors"] == ["findings"], tags["tensors"]
        text = read.Tensors("findings")[0].tensor_proto.string_val[0].decode()
        rules = [each["rule"] for each in report["findings"] if each["lane"] == lane]
        assert [line.split("`")[1] for line in text.splitlines() if line.startswith("- ")] == rules, (text, rules)
        seen["findings"] += len(rules)
        times = [event.wall_time for event in read.Scalars("loss")]
        assert times == sorted(times) and times[-1] > 0, times[:5]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    seen = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check(program, folder, ["--model", "mlp:784-16-10", "--steps", "150", "--lanes",
                                "float32,mixed_float16,bfloat16"], seen)
        check(program, folder, ["--model", "lenet", "--steps", "6", "--every", "2", "--lanes",
                                "float32,float16", "--loss-scale", "none", "--lr", "1000"], seen)
    for kind in ("points", "evaluations", "histograms", "findings"):
        assert seen[kind] > 0, seen
    print("equal:", ", ".join(f"{count} {kind}" for kind, count in seen.items()))


if __name__ == "__main__":
    sys.exit(main())
