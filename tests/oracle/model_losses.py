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
    train("gpt:2x32x4:rope", 3, (12,), 37, 0.1, gpt(2, 32, 4, 12, 37, True))
