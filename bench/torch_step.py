# SPDX-License-Identifier: MIT
"""Times PyTorch's plain float32 training step, for a ratio within one run of a benchmark.

    torch_step.py [--threads N] [--steps 60] [--warmup 5] [--models mlp,lenet,resnet18,gpt]

A step is forward, mean cross entropy, backward and SGD (lr 0.1) on random data made beforehand.
  mlp    784-512-512-10, ReLU between
  lenet  conv 5x5 1-32, ReLU, max pool 2, conv 5x5 32-64, ReLU, max pool 2, fc 1024-256, ReLU,
         fc 256-10, on 28x28 images
  resnet18  torchvision's, with the stem that is usual for CIFAR, on 3x32x32 images
  gpt    4 layers of width 128, 4 heads, sequences of 128 of 65 tokens, attention by
         scaled_dot_product_attention; AdamW
Batches have 128 samples, 32 for resnet18 and 16 for gpt. Prints one line of JSON; times are medians
in milliseconds (lenet runs half as many steps as mlp, the others a sixth):
    {"torch": "2.9.1", "threads": 2, "mlp_ms": ..., "lenet_ms": ...}

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


BATCHES = {"mlp": 128, "lenet": 128, "resnet18": 32, "gpt": 16}
SHARES = {"mlp": 1, "lenet": 2, "resnet18": 6, "gpt": 6}
GPT = {"layers": 4, "width": 128, "heads": 4, "sequence": 128, "vocabulary": 65}


def build_resnet18() -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
                nn.ReLU(inplace=True), nn.Conv2d(width, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width))
            self.shortcut = nn.Identity() if stride == 1 and inputs == width else nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return torch.relu_(self.body(x) + self.shortcut(x))

    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    inputs = 64
    for stage in range(4):
        for i in range(2):
            layers.append(Block(inputs, 64 << stage, 2 if stage > 0 and i == 0 else 1))
            inputs = 64 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def build(name: str) -> Tuple[Any, Tuple[int, ...]]:
    """A model (torch.nn.Module) and the shape of one sample."""
    from torch import nn

    if name == "resnet18":
        return build_resnet18(), (3, 32, 32)
    if name == "gpt":
        from torch_gpu_step import build_gpt2
        return build_gpt2(GPT), (GPT["sequence"],)

    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, 10)), (784,)
    if name == "lenet":
        return nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 28, 28)
    raise SystemExit(f"error: unknown model {name}")


def median_step_ms(name: str, steps: int, warmup: int) -> float:
    """Median wall time of one training step in milliseconds."""
    import torch

    torch.manual_seed(1)
    model, shape = build(name)
    batch = BATCHES[name]
    if name == "gpt":
        x = [torch.randint(0, GPT["vocabulary"], (batch, *shape)) for _ in range(4)]
        y = [torch.randint(0, GPT["vocabulary"], (batch * shape[0],)) for _ in range(4)]
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    else:
        x = [torch.rand(batch, *shape) for _ in range(4)]
        y = [torch.randint(0, 10, (batch,)) for _ in range(4)]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
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
    parser.add_argument("--models", default="mlp,lenet,resnet18,gpt", help="which (default: all)")
    args = parser.parse_args()
    limit_threads(args.threads)
    import torch

    torch.set_num_threads(args.threads)
    result: Dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    for name in args.models.split(","):
        steps = max(1, args.steps // SHARES[name])
        result[f"{name}_ms"] = round(median_step_ms(name, steps, args.warmup), 4)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
