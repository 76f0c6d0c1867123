# SPDX-License-Identifier: MIT
"""Times PyTorch's plain float32 training step, for a ratio within one run of a benchmark.

    torch_step.py [--threads N] [--steps 60] [--warmup 5] [--batch 128] [--models mlp,lenet]

A step is forward, mean cross entropy, backward and SGD (lr 0.1) on random data made beforehand.
  mlp    784-512-512-10, ReLU between
  lenet  conv 5x5 1-32, ReLU, max pool 2, conv 5x5 32-64, ReLU, max pool 2, fc 1024-256, ReLU,
         fc 256-10, on 28x28 images
Prints one line of JSON; times are medians in milliseconds (lenet runs half as many steps as mlp):
    {"torch": "1.13.0", "threads": 2, "batch": 128, "mlp_ms": ..., "lenet_ms": ...}

PyTorch's OpenMP threads and OpenBLAS's own threads are two pools. So that they do not fight for
the cores, OPENBLAS_NUM_THREADS, OMP_NUM_THREADS and MKL_NUM_THREADS are set to N and
OMP_WAIT_POLICY to PASSIVE before PyTorch is loaded, unless the environment sets them. On two cores
this makes the step several times faster for PyTorch than its defaults do.
"""
import argparse
import json
import os
import statistics
import time
from typing import Any, Dict, List, Tuple


def limit_threads(threads: int) -> None:
    """Sets up the thread pools; must come before torch is imported, see above."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def build(name: str) -> Tuple[Any, Tuple[int, ...]]:
    """A model (torch.nn.Module) and the shape of one sample."""
    from torch import nn

    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, 10)), (784,)
    if name == "lenet":
        return nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 28, 28)
    raise SystemExit(f"error: unknown model {name}")


def median_step_ms(name: str, batch: int, steps: int, warmup: int) -> float:
    """Median wall time of one training step in milliseconds."""
    import torch

    torch.manual_seed(1)
    model, shape = build(name)
    x = [torch.rand(batch, *shape) for _ in range(4)]
    y = [torch.randint(0, 10, (batch,)) for _ in range(4)]
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times: List[float] = []
    for step in range(warmup + steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x[step % 4]), y[step % 4])
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warmup:]) * 1000.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="torch threads (default: all cores)")
    parser.add_argument("--steps", type=int, default=60, help="timed steps (default: 60)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before (default: 5)")
    parser.add_argument("--batch", type=int, default=128, help="samples per step (default: 128)")
    parser.add_argument("--models", default="mlp,lenet", help="which models (default: mlp,lenet)")
    args = parser.parse_args()
    limit_threads(args.threads)
    import torch

    torch.set_num_threads(args.threads)
    result: Dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads(),
                              "batch": args.batch}
    for name in args.models.split(","):
        steps = args.steps if name == "mlp" else max(1, args.steps // 2)
        result[f"{name}_ms"] = round(median_step_ms(name, args.batch, steps, args.warmup), 4)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
