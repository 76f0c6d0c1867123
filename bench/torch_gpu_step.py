# SPDX-License-Identifier: MIT
"""Times PyTorch's training step on a GPU, for a ratio within one run of a benchmark.

    torch_gpu_step.py --model mlp:A-B-...-Z|lenet|resnet20 --precision float32|mixed_float16|mixed_bfloat16
                      [--steps 50] [--warmup 10] [--batch 512] [--device cuda]

A step is forward, mean cross entropy, backward and SGD (lr 0.1) on random samples that lie on the
device, as 1x28x28 images (lenet, resnet20) or flat. float32 multiplies as float32: TF32 is off.
The mixed precisions are torch.autocast, float16 with a GradScaler. cuDNN may try its algorithms.
Prints one line of JSON; times are medians in milliseconds, memory is the most that tensors took:
    {"torch": "2.9.0", "device": "...", "ms": ..., "bytes": ...}
"""
import argparse
import json
import statistics
import time
from typing import Tuple


def build(name: str) -> Tuple["torch.nn.Module", Tuple[int, ...]]:
    """A model and the shape of one sample."""
    import torch
    from torch import nn

    class Block(nn.Module):
        """He et al. 2015; a narrowing one has a shortcut of strided samples and zero channels."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.narrows, self.more = inputs != outputs, outputs - inputs
            stride = 2 if self.narrows else 1
            self.body = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs))

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            kept = x
            if self.narrows:
                kept = nn.functional.pad(x[:, :, ::2, ::2],
                                         (0, 0, 0, 0, self.more // 2, self.more // 2))
            return torch.relu(self.body(x) + kept)

    if name.startswith("mlp:"):
        widths = [int(width) for width in name[4:].split("-")]
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1]), (widths[0],)
    if name == "lenet":
        return nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 28, 28)
    if name == "resnet20":
        blocks = [Block(inputs, outputs) for inputs, outputs in
                  ((16, 16), (16, 16), (16, 16), (16, 32), (32, 32), (32, 32),
                   (32, 64), (64, 64), (64, 64))]
        return nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                             *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(64, 10)), (1, 28, 28)
    raise SystemExit(f"error: unknown model {name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--precision", required=True,
                        choices=("float32", "mixed_float16", "mixed_bfloat16"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", default="cuda", help="cpu only tries the program out")
    args = parser.parse_args()
    import torch

    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    on_gpu = args.device != "cpu"
    model, shape = build(args.model)
    model.to(args.device)
    x = torch.rand(args.batch, *shape, device=args.device)
    y = torch.randint(0, 10, (args.batch,), device=args.device)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Older versions know no float16 on the CPU.
    half = torch.float16 if on_gpu and args.precision == "mixed_float16" else torch.bfloat16
    mixed = args.precision != "float32"
    scaler = torch.cuda.amp.GradScaler(enabled=on_gpu and args.precision == "mixed_float16")
    times = []
    for _ in range(args.warmup + args.steps):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=half, enabled=mixed):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    print(json.dumps({
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "ms": round(statistics.median(times[args.warmup:]) * 1000.0, 4),
        "bytes": torch.cuda.max_memory_allocated() if on_gpu else 0}))


if __name__ == "__main__":
    main()
