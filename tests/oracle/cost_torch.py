# SPDX-License-Identifier: MIT
"""Prints what PyTorch counts and keeps in a training step of built-in networks.

    python3 tests/oracle/cost_torch.py > tests/oracle/vectors/cost_torch.csv

`forward` and `step` are the operations that torch.utils.flop_counter.FlopCounterMode counts (it
multiplies gradients of grouped convolutions by the number of groups), `saved` the bytes of tensors
that autograd keeps for the backward pass, each storage once: without parameters, buffers, the input
and the labels, with indices as 32 bits. In fp32, and in bf16 under autocast, with its copies of
weights. Needs torch, torchvision and timm.
"""
from typing import Dict, Tuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def resnet(name: str, image: int) -> nn.Module:
    import torchvision

    model = getattr(torchvision.models, name)(num_classes=10)
    if image < 64:
        model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = nn.Identity()
    return model


def efficientnet() -> nn.Module:
    import timm

    model = timm.create_model("efficientnet_lite0", num_classes=10)
    for module in model.modules():
        if isinstance(module, nn.ReLU6):
            module.inplace = False
    return model


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512),
                         nn.ReLU(), nn.Linear(512, 10))


def count(name: str, batch: int, sample: Tuple[int, ...], model: nn.Module) -> None:
    x, y = torch.rand((batch,) + sample), torch.randint(10, (batch,))
    with FlopCounterMode(display=False) as counter:
        loss = nn.functional.cross_entropy(model(x), y)
        forward = counter.get_total_flops()
        loss.backward()
    saved = {}
    for mode in ("fp32", "bf16"):
        known = {t.untyped_storage().data_ptr()
                 for t in [x, y, *model.parameters(), *model.buffers()]}
        kept: Dict[int, int] = {}
        alive = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                floats = tensor.is_floating_point()
                kept[storage.data_ptr()] = storage.nbytes() // (1 if floats else 2)
                alive.append(storage)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), \
                torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode == "bf16"):
            nn.functional.cross_entropy(model(x), y)
        saved[mode] = sum(kept.values())
    shape = "x".join(str(size) for size in sample)
    print(f"{name},{batch},{shape},{forward},{counter.get_total_flops()},{saved['fp32']},"
          f"{saved['bf16']}", flush=True)


if __name__ == "__main__":
    print("model,batch,sample,forward,step,saved_fp32,saved_bf16")
    count("mlp:784-512-512-10", 64, (1, 28, 28), mlp())
    count("resnet18", 16, (3, 32, 32), resnet("resnet18", 32))
    count("resnet18", 4, (3, 224, 224), resnet("resnet18", 224))
    count("resnet50", 4, (3, 224, 224), resnet("resnet50", 224))
    count("efficientnet-lite0", 4, (3, 224, 224), efficientnet())
