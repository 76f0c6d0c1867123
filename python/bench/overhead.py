#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what hs.watch() costs: time and memory of trainings with it over those without it.

Times are taken in pairs that alternate, so that other load on the machine hits both. A block with
every=200 has 200 steps, one of which is recorded. Opening and closing the file do not count.
Memory is the largest resident size of a process of its own.

    python3 python/bench/overhead.py [--pairs N] [--models mlp,lenet,gpt] [--cpu-time]

--cpu-time measures the processor time of one thread instead, which other programs disturb less.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "python"))
from networks import Gpt  # noqa: E402


def mlp():
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                          nn.Linear(256, 10))
    return model, lambda: (torch.randn(128, 784), torch.randint(0, 10, (128,)))


def lenet():
    model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                          nn.Linear(84, 10))
    return model, lambda: (torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))


class GptLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.gpt = Gpt(width=128, layers=4, vocabulary=256, length=64)

    def forward(self, tokens):
        return self.gpt(tokens, tokens.roll(-1, 1))[0]


def gpt():
    return GptLoss(), lambda: (torch.randint(0, 256, (8, 64)), None)


MODELS = {"mlp": mlp, "lenet": lenet, "gpt": gpt}


clock = time.perf_counter


class Training:
    def __init__(self, name):
        torch.manual_seed(0)
        self.model, batch = MODELS[name]()
        self.data = [batch() for _ in range(8)]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.bf16 = name == "gpt"

    def steps(self, count):
        """Trains and returns the seconds."""
        start = clock()
        for i in range(count):
            x, y = self.data[i % len(self.data)]
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                out = self.model(x)
            loss = out if y is None else F.cross_entropy(out, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return clock() - start


def time_ratio(name, every, pairs, file):
    """Returns the median of paired ratios, their quartiles, and milliseconds of a plain step."""
    plain, watched = Training(name), Training(name)
    count = every if every > 1 else 20
    plain.steps(10)
    watched.steps(10)
    ratios, times = [], []
    for pair in range(pairs):
        def with_watch():
            watch = hs.watch(watched.model, watched.optimizer, out=file, every=every,
                             overwrite=True)
            watched.steps(1 if every > 1 else 3)
            seconds = watched.steps(count)
            watch.close()
            return seconds
        if pair % 2:
            b, a = with_watch(), plain.steps(count)
        else:
            a, b = plain.steps(count), with_watch()
        ratios.append(b / a)
        times.append(1000.0 * a / count)
    quartiles = statistics.quantiles(ratios, n=4) if pairs > 1 else [ratios[0]] * 3
    return statistics.median(ratios), quartiles[0], quartiles[2], statistics.median(times)


def peak(name, every, file):
    """Trains in this process and prints its largest resident size in KiB."""
    training = Training(name)
    if every:
        with hs.watch(training.model, training.optimizer, out=file, every=every, overwrite=True):
            training.steps(60)
    else:
        training.steps(60)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def memory(name, every, file):
    def run():
        out = subprocess.run([sys.executable, __file__, "--peak", name, "--every", str(every),
                              "--file", file], check=True, capture_output=True, text=True)
        return int(out.stdout)
    return statistics.median(run() for _ in range(3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--models", default="mlp,lenet,gpt")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.cpu_time:
        global clock
        clock = time.thread_time
        torch.set_num_threads(1)
    if args.peak:
        peak(args.peak, args.every, args.file)
        return
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, "
          f"{'processor' if args.cpu_time else 'wall'} time, load {os.getloadavg()[0]:.1f}")
    print(f"{'model':<7}{'step ms':>9}  {'every=200 (goal 1.01)':<24}{'every=1 (goal 1.15)':<24}"
          "memory, every=1 (goal 1.05)")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "bench.hscope")
        for name in args.models.split(","):
            rare = time_ratio(name, 200, args.pairs, file)
            always = time_ratio(name, 1, 3 * args.pairs, file)
            plain, watched = memory(name, 0, file), memory(name, 1, file)
            print(f"{name:<7}{rare[3]:>9.2f}  "
                  f"{f'{rare[0]:.3f} ({rare[1]:.3f}-{rare[2]:.3f})':<24}"
                  f"{f'{always[0]:.3f} ({always[1]:.3f}-{always[2]:.3f})':<24}"
                  f"{watched / plain:.3f}", flush=True)


if __name__ == "__main__":
    main()
