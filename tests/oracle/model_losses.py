# SPDX-License-Identifier: MIT
"""Prints the losses of built-in networks as other implementations of them train, in float64.

    python3 tests/oracle/model_losses.py > tests/oracle/vectors/model_losses.csv

Needs torch, torchvision, timm and transformers. The networks are torchvision's (with the stem that
is usual for CIFAR below 64 pixels), timm's and Hugging Face's GPT-2, for rotary positions with the
function of its Llama. Weights come from initial_weights() (core/models/models.h) for seed 1, the
data is drawn as in tests/train/model_oracle_test.cpp.
"""
import math
from typing import Callable, Dict, List, Tuple

import numpy as np
import torch
from torch import nn

STEPS = 20


def splitmix64(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(seed: int, count: int, end: int) -> torch.Tensor:
    words = splitmix64(np.uint64(seed << 40) + np.arange(count, dtype=np.uint64))
    return torch.tensor((words % np.uint64(end)).astype(np.int64))


class Start:
    """The initial values of variables, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.number = 0

    def uniform(self, shape: Tuple[int, ...], bound: float) -> torch.Tensor:
        start = np.array([(1 << 32) + (self.number << 26)], dtype=np.uint64)
        if self.number >= 64:
            start = splitmix64(start)
        self.number += 1
        bits = splitmix64(start + np.arange(math.prod(shape), dtype=np.uint64)) >> np.uint64(40)
        unit = bits.astype(np.float32) * np.float32(2.0 ** -23) - np.float32(1.0)
        return torch.tensor((unit * np.float32(bound)).reshape(shape).astype(np.float64))


def start_weights(model: nn.Module) -> None:
    start = Start()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            shape = tuple(module.weight.shape)
            fan_out = shape[0] * shape[2] * shape[3] // module.groups
            bound = math.sqrt(2.0 / fan_out) * math.sqrt(3.0)
            module.weight.data.copy_(start.uniform(shape, bound))
        if isinstance(module, nn.Linear):
            bound = 1.0 / math.sqrt(module.in_features)
            module.weight.data.copy_(start.uniform(tuple(module.weight.shape), bound))
            module.bias.data.copy_(start.uniform(tuple(module.bias.shape), bound))


def resnet(name: str, image: int) -> nn.Module:
    import torchvision

    model = getattr(torchvision.models, name)(num_classes=10)
    if image < 64:
        model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = nn.Identity()
    model = model.double()
    start_weights(model)
    return model


def efficientnet() -> nn.Module:
    import timm

    model = timm.create_model("efficientnet_lite0", num_classes=10).double()
    start_weights(model)
    return model


def gpt(layers: int, width: int, heads: int, sequence: int, vocabulary: int,
        rotary: bool) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.models.gpt2 import modeling_gpt2
    from transformers.models.llama import modeling_llama

    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=vocabulary, n_positions=sequence, n_embd=width, n_layer=layers, n_head=heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager")).double()
    start, deviation = Start(), 0.02
    body = model.transformer

    def fill(weight: torch.Tensor, transposed: bool, size: float = deviation) -> None:
        shape = tuple(weight.t().shape) if transposed else tuple(weight.shape)
        value = start.uniform(shape, size * math.sqrt(3.0))
        weight.data.copy_(value.t() if transposed else value)

    fill(body.wte.weight, False)
    if rotary:
        body.wpe.weight.data.zero_()
        body.wpe.weight.requires_grad_(False)
    else:
        fill(body.wpe.weight, False)
    for block in body.h:
        small = deviation / math.sqrt(2.0 * layers)
        fill(block.attn.c_attn.weight, True)
        fill(block.attn.c_proj.weight, True, small)
        fill(block.mlp.c_fc.weight, True)
        fill(block.mlp.c_proj.weight, True, small)
    if rotary:
        size = width // heads
        frequency = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.outer(torch.arange(sequence, dtype=torch.float64), frequency)
        angles = torch.cat((angles, angles), -1)[None]
        # The product stores both tables in fp32.
        cosines, sines = angles.cos().float().double(), angles.sin().float().double()
        plain = modeling_gpt2.eager_attention_forward

        def turned(module: nn.Module, q: torch.Tensor, k: torch.Tensor, *rest, **options):
            q, k = modeling_llama.apply_rotary_pos_emb(q, k, cosines, sines)
            return plain(module, q, k, *rest, **options)

        modeling_gpt2.eager_attention_forward = turned
    return model


ANCHOR_SIZES = 2


def anchor_count(side: int) -> int:
    return sum(ANCHOR_SIZES * (side // stride) ** 2 for stride in (8, 16, 32))


class Detector(nn.Module):
    """The parts of both detectors; layers are made in the order of HalfScope's variables."""

    def __init__(self) -> None:
        super().__init__()
        self.start = Start()
        self.layers = nn.ModuleList()

    def conv(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1,
             bias: bool = False, value: float = 0.0) -> nn.Conv2d:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias)
        layer = layer.double()
        bound = math.sqrt(2.0 / (inputs // groups * kernel * kernel)) * math.sqrt(3.0)
        layer.weight.data.copy_(self.start.uniform(tuple(layer.weight.shape), bound))
        if bias:
            layer.bias.data.fill_(float(np.float32(value)))
        self.layers.append(layer)
        return layer

    def normalized(self, inputs: int, outputs: int, kernel: int, stride: int = 1,
                   groups: int = 1) -> nn.Sequential:
        conv = self.conv(inputs, outputs, kernel, stride, groups)
        norm = nn.BatchNorm2d(outputs).double()
        self.layers.append(norm)
        return nn.Sequential(conv, norm)

    def outputs(self, width: int, classes: int) -> None:
        prior = -math.log((1.0 - 0.01) / 0.01)
        self.towers, self.last = [], []
        for count, value in ((classes, prior), (4, 0.0)):
            self.towers.append(self.tower(width))
            self.last.append(self.conv(width, ANCHOR_SIZES * count, 3, bias=True, value=value))

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        levels = self.pyramid(self.body(x))
        results = []
        for tower, last in zip(self.towers, self.last):
            parts = []
            for level in levels:
                y = last(tower(level))
                y = y.permute(0, 2, 3, 1)
                parts.append(y.reshape(y.shape[0], -1, last.out_channels // ANCHOR_SIZES))
            results.append(torch.cat(parts, 1))
        return results[0], results[1]


def up(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(x, scale_factor=2, mode="nearest")


class RetinaNet(Detector):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = self.normalized(3, 32, 3, 2)
        self.blocks = []
        inputs = 32
        for width in (48, 64, 96, 128):
            self.blocks.append((self.normalized(inputs, width, 3, 2),
                                self.normalized(width, width, 3),
                                self.normalized(inputs, width, 1, 2)))
            inputs = width
        self.lateral = [self.conv(width, 64, 1, bias=True) for width in (128, 96, 64)]
        self.out = [self.conv(64, 64, 3, bias=True) for _ in range(3)]
        self.outputs(64, classes)

    def tower(self, width: int) -> nn.Module:
        return nn.Sequential(self.conv(width, width, 3, bias=True), nn.ReLU(),
                             self.conv(width, width, 3, bias=True), nn.ReLU())

    def body(self, x: torch.Tensor) -> List[torch.Tensor]:
        x = torch.relu(self.stem(x))
        levels = []
        for first, second, shortcut in self.blocks:
            x = torch.relu(second(torch.relu(first(x))) + shortcut(x))
            levels.append(x)
        return levels[1:]

    def pyramid(self, levels: List[torch.Tensor]) -> List[torch.Tensor]:
        p5 = self.lateral[0](levels[2])
        p4 = self.lateral[1](levels[1]) + up(p5)
        p3 = self.lateral[2](levels[0]) + up(p4)
        return [conv(p) for conv, p in zip(self.out, (p3, p4, p5))]


class EfficientDet(Detector):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = self.normalized(3, 24, 3, 2)
        self.blocks = []
        inputs = 24
        for width, kernel, stride in ((32, 3, 2), (48, 5, 2), (80, 3, 2), (80, 3, 1), (112, 5, 2)):
            inside = 4 * inputs
            self.blocks.append((self.normalized(inputs, inside, 1),
                                self.normalized(inside, inside, kernel, stride, inside),
                                self.normalized(inside, width, 1)))
            inputs = width
        self.into = [self.normalized(width, 64, 1) for width in (48, 80, 112)]
        self.nodes = []
        for _ in range(2):
            for count in (2, 2, 3, 2):
                shares = [nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(count)]
                self.layers.append(nn.ParameterList(shares))
                self.nodes.append((shares, self.conv(64, 64, 3, groups=64),
                                   self.normalized(64, 64, 1)))
        self.outputs(64, classes)

    def tower(self, width: int) -> nn.Module:
        return nn.Sequential(self.conv(width, width, 3, groups=width),
                             self.conv(width, width, 1, bias=True), nn.SiLU())

    def body(self, x: torch.Tensor) -> List[torch.Tensor]:
        x = nn.functional.silu(self.stem(x))
        results = []
        for expand, depthwise, project in self.blocks:
            y = nn.functional.silu(expand(x))
            y = project(nn.functional.silu(depthwise(y)))
            x = y + x if y.shape == x.shape else y
            results.append(x)
        return [results[1], results[3], results[4]]

    def fused(self, node, inputs: List[torch.Tensor]) -> torch.Tensor:
        shares, depthwise, pointwise = node
        positive = [torch.relu(share) for share in shares]
        total = sum(positive) + float(np.float32(1e-4))
        mixed = sum(share / total * x for share, x in zip(positive, inputs))
        return pointwise(depthwise(nn.functional.silu(mixed)))

    def pyramid(self, levels: List[torch.Tensor]) -> List[torch.Tensor]:
        p = [layer(level) for layer, level in zip(self.into, levels)]
        for layer in range(2):
            nodes = self.nodes[4 * layer:4 * layer + 4]
            pool = nn.MaxPool2d(3, 2, 1)
            inner4 = self.fused(nodes[0], [p[1], up(p[2])])
            out3 = self.fused(nodes[1], [p[0], up(inner4)])
            out4 = self.fused(nodes[2], [p[1], inner4, pool(out3)])
            p = [out3, out4, self.fused(nodes[3], [p[2], pool(out4)])]
        return p


def detection_loss(results, labels: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """The focal loss of torchvision and smooth L1, summed as in HalfScope."""
    from torchvision.ops import sigmoid_focal_loss

    logits, boxes = results
    answers = torch.zeros_like(logits)
    found = labels > 0
    answers[found] = nn.functional.one_hot(labels[found] - 1, logits.shape[2]).double()
    focal = sigmoid_focal_loss(logits[labels >= 0], answers[labels >= 0], reduction="sum")
    # smooth_l1_loss(beta=1/9), with its numbers in fp32 as the product has them.
    beta, half, factor = (float(np.float32(x)) for x in (1.0 / 9.0, 0.5 / 9.0, 4.5))
    size = (boxes[found] - codes[found]).abs()
    smooth = torch.where(size < beta, factor * size * size, size - half).sum()
    return (focal + smooth) / max(1, int(found.sum()))


def mlp(widths: Tuple[int, ...]) -> nn.Module:
    layers: List[nn.Module] = [nn.Flatten()]
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).double()
    start_weights(model)
    return model


def train(name: str, batch: int, sample: Tuple[int, ...], classes: int, rate: float,
          model: nn.Module, loss_name: str = "cross-entropy") -> None:
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate,
                                momentum=0.9)
    count = batch * math.prod(sample)
    if len(sample) == 1:
        x, y = draw(3, count, classes).reshape(batch, -1), draw(4, count, classes)
    else:
        x = draw(1, count, 256).reshape((batch,) + sample)
        x = (x.float() / 255.0).double()
        y = draw(2, batch, classes)
    objective: Callable[..., torch.Tensor] = nn.functional.cross_entropy
    if loss_name == "bce":
        y = draw(5, batch * classes, 2).double().reshape(batch, classes)
        objective = nn.functional.binary_cross_entropy_with_logits
    elif loss_name == "detection":
        anchors = anchor_count(sample[1])
        labels = draw(6, batch * anchors, 20).reshape(batch, anchors) - 1
        labels = torch.where(labels > classes, torch.zeros_like(labels), labels)
        codes = (draw(7, batch * anchors * 4, 201) - 100).float() / 64.0
        codes = codes.double().reshape(batch, anchors, 4)
        objective = lambda results, _: detection_loss(results, labels, codes)
    elif "=" in loss_name:
        objective = nn.CrossEntropyLoss(label_smoothing=float(loss_name.split("=")[1]))
    for step in range(STEPS):
        optimizer.zero_grad()
        result = model(x)
        logits = result.logits.reshape(-1, classes) if hasattr(result, "logits") else result
        loss = objective(logits, y)
        loss.backward()
        optimizer.step()
        shape = "x".join(str(size) for size in sample)
        print(f"{name},{loss_name},{batch},{shape},{classes},{rate},{step},{loss.item():.12g}",
              flush=True)


if __name__ == "__main__":
    print("model,loss,batch,sample,classes,rate,step,loss")
    train("mlp:12-9-5", 6, (1, 3, 4), 5, 0.1, mlp((12, 9, 5)), "cross-entropy+smoothing=0.125")
    train("mlp:12-9-5", 6, (1, 3, 4), 5, 0.1, mlp((12, 9, 5)), "bce")
    train("resnet18", 4, (3, 16, 16), 10, 0.001, resnet("resnet18", 16))
    train("resnet18", 2, (3, 64, 64), 10, 0.001, resnet("resnet18", 64))
    train("resnet50", 3, (3, 16, 16), 10, 0.00001, resnet("resnet50", 16))
    train("efficientnet-lite0", 4, (3, 64, 64), 10, 0.00001, efficientnet())
    train("gpt:2x32x4", 3, (12,), 37, 0.1, gpt(2, 32, 4, 12, 37, False))
    train("gpt:17x16x2", 3, (12,), 37, 0.1, gpt(17, 16, 2, 12, 37, False))
    train("retinanet-small", 2, (3, 64, 64), 3, 0.00001, RetinaNet(3), "detection")
    train("efficientdet-small", 2, (3, 64, 64), 3, 0.00001, EfficientDet(3), "detection")
    train("gpt:2x32x4:rope", 3, (12,), 37, 0.1, gpt(2, 32, 4, 12, 37, True))
