# SPDX-License-Identifier: MIT
"""Times PyTorch's training step on a GPU, for a ratio within one run of a benchmark.

    torch_gpu_step.py --model MODEL --precision float32|mixed_float16|mixed_bfloat16
                      [--compile 0] [--steps 50] [--warmup 10] [--batch 512] [--device cuda]

MODEL is mlp:A-B-...-Z, lenet or resnet20 (1x28x28 images), or one of bench/networks.h with the same
sizes: resnet50[:image=N...] or gpt2[:layers=N...]. A step copies a batch from pinned memory to the
device without waiting, as HalfScope's does. Then come forward, mean cross entropy, backward and the
optimizer: SGD, for resnet50 with momentum, for gpt2 a fused AdamW. Convolutional networks have
channels last. float32 multiplies as float32: TF32 is off. The mixed precisions are torch.autocast,
float16 with a GradScaler. cuDNN may try its algorithms. --compile 1 runs torch.compile's version.

The device is synchronized after every fifth of the steps only. Prints one line of JSON; the time
of a step is the median over these fifths, memory is the most that tensors took:
    {"torch": "2.9.0", "device": "...", "ms": ..., "bytes": ...}
"""
import argparse
import json
import math
import statistics
import time
from typing import Any, Dict, Tuple

FIFTHS = 5


def sizes_of(name: str, usual: Dict[str, int]) -> Dict[str, int]:
    """The sizes in "gpt2:layers=2:width=32", with the usual ones where none is given."""
    sizes = dict(usual)
    for part in name.split(":")[1:]:
        key, value = part.split("=")
        if key not in sizes:
            raise SystemExit(f"error: model {name} has no size {key}")
        sizes[key] = int(value)
    return sizes


def build_resnet20() -> "torch.nn.Module":
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

    blocks = [Block(inputs, outputs) for inputs, outputs in
              ((16, 16), (16, 16), (16, 16), (16, 32), (32, 32), (32, 32),
               (32, 64), (64, 64), (64, 64))]
    return nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def build_resnet50(width: int, depth: int, classes: int) -> "torch.nn.Module":
    """torchvision's ResNet-50 v1.5, with the names of core/models/resnet.cpp."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(4 * width)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if inputs != 4 * width:
                self.downsample = nn.Sequential()
                self.downsample.add_module("0", nn.Conv2d(inputs, 4 * width, 1, stride, bias=False))
                self.downsample.add_module("1", nn.BatchNorm2d(4 * width))

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            inputs = width
            for stage, blocks in enumerate((3, 4, 6, 3)):
                layer = nn.Sequential()
                for i in range(min(blocks, depth)):
                    stride = 2 if stage > 0 and i == 0 else 1
                    layer.add_module(str(i), Block(inputs, width << stage, stride))
                    inputs = 4 * (width << stage)
                setattr(self, f"layer{stage + 1}", layer)
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(inputs, classes)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(torch.flatten(self.avgpool(x), 1))

    return ResNet()


def build_gpt2(sizes: Dict[str, int]) -> "torch.nn.Module":
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads = sizes["width"], sizes["heads"]

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            batch, sequence, _ = x.shape
            q, k, v = (part.view(batch, sequence, heads, width // heads).transpose(1, 2)
                       for part in self.c_attn(x).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.c_proj(y.transpose(1, 2).contiguous().view(batch, sequence, width))

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.attn = nn.LayerNorm(width), Attention()
            self.ln_2, self.mlp = nn.LayerNorm(width), Mlp()

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Gpt2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(sizes["vocabulary"], width)
            self.wpe = nn.Embedding(sizes["sequence"], width)
            self.h = nn.Sequential(*(Block() for _ in range(sizes["layers"])))
            self.ln_f = nn.LayerNorm(width)
            for weight in (self.wte.weight, self.wpe.weight):
                nn.init.normal_(weight, std=0.02)

        def forward(self, tokens: "torch.Tensor") -> "torch.Tensor":
            x = self.wte(tokens) + self.wpe.weight
            logits = F.linear(self.ln_f(self.h(x)), self.wte.weight)
            return logits.view(-1, logits.shape[-1])

    return Gpt2()


class Network:
    """A model, the shape of one sample and of its labels, and how it is trained."""

    def __init__(self, model: "torch.nn.Module", sample: Tuple[int, ...], classes: int,
                 channels_last: bool = False, tokens: bool = False) -> None:
        self.model, self.sample, self.classes = model, sample, classes
        self.channels_last, self.tokens = channels_last, tokens
        self.momentum, self.weight_decay = 0.0, 0.0

    def optimizer(self, **options: Any) -> "torch.optim.Optimizer":
        import torch

        if self.tokens:
            return torch.optim.AdamW(self.model.parameters(), lr=6e-4, weight_decay=0.1, **options)
        return torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=self.momentum,
                               weight_decay=self.weight_decay)


def build(name: str) -> Network:
    from torch import nn

    if name.startswith("mlp:"):
        widths = [int(width) for width in name[4:].split("-")]
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return Network(nn.Sequential(*layers[:-1]), (widths[0],), 10)
    if name == "lenet":
        model = nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))
        return Network(model, (1, 28, 28), 10, channels_last=True)
    if name == "resnet20":
        return Network(build_resnet20(), (1, 28, 28), 10, channels_last=True)
    if name.split(":")[0] == "resnet50":
        sizes = sizes_of(name, {"image": 224, "classes": 1000, "width": 64, "depth": 6})
        network = Network(build_resnet50(sizes["width"], sizes["depth"], sizes["classes"]),
                          (3, sizes["image"], sizes["image"]), sizes["classes"],
                          channels_last=True)
        network.momentum, network.weight_decay = 0.9, 1e-4
        return network
    if name.split(":")[0] == "gpt2":
        sizes = sizes_of(name, {"layers": 12, "width": 768, "heads": 12, "sequence": 1024,
                                "vocabulary": 50257})
        return Network(build_gpt2(sizes), (sizes["sequence"],), sizes["vocabulary"], tokens=True)
    raise SystemExit(f"error: unknown model {name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--precision", required=True,
                        choices=("float32", "mixed_float16", "mixed_bfloat16"))
    parser.add_argument("--compile", type=int, default=0)
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
    network = build(args.model)
    model = network.model.to(args.device)
    if network.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = network.optimizer(**({"fused": True} if on_gpu and network.tokens else {}))
    run = torch.compile(model) if args.compile else model
    criterion = torch.nn.CrossEntropyLoss()

    shape = (args.batch,) + network.sample
    x = torch.randint(0, network.classes, shape) if network.tokens else torch.rand(*shape)
    y = torch.randint(0, network.classes, (x.numel() if network.tokens else args.batch,))
    if on_gpu:
        x, y = x.pin_memory(), y.pin_memory()
    # Older versions know no float16 on the CPU.
    half = torch.float16 if on_gpu and args.precision == "mixed_float16" else torch.bfloat16
    mixed = args.precision != "float32"
    scaler = torch.cuda.amp.GradScaler(enabled=on_gpu and args.precision == "mixed_float16")

    def step() -> None:
        inputs, labels = x.to(args.device, non_blocking=True), y.to(args.device, non_blocking=True)
        if network.channels_last:
            inputs = inputs.to(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=half, enabled=mixed):
            loss = criterion(run(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def wait() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    for _ in range(args.warmup):
        step()
    times = []
    per_fifth = math.ceil(args.steps / FIFTHS)
    for _ in range(FIFTHS):
        start = wait()
        for _ in range(per_fifth):
            step()
        times.append((wait() - start) / per_fifth)
    print(json.dumps({
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "ms": round(statistics.median(times) * 1000.0, 4),
        "bytes": torch.cuda.max_memory_allocated() if on_gpu else 0}))


if __name__ == "__main__":
    main()
