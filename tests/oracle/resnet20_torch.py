# SPDX-License-Identifier: MIT
"""PyTorch training ResNet-20 on CIFAR-10 in float64, as an oracle.

    resnet20_torch.py --data DIR --init WEIGHTS.npz --out vectors/resnet20_torch.csv

DIR holds CIFAR-10's binary files; WEIGHTS.npz the parameters and running statistics by PyTorch's
names. Batches are taken in file order. Writes one row per step, "step,loss,grad_norm", and a last
row "eval,LOSS,ACCURACY" over the first test images with the running statistics. The network is that of
He et al. 2016 for CIFAR-10 with shortcuts of option A.
"""
import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.missing = channels - channels_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.missing:
            before = self.missing // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.missing - before))
        return F.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        channels = 16
        for stage in (1, 2, 3):
            blocks = []
            for block in range(3):
                wanted = 16 * 2 ** (stage - 1)
                blocks.append(Block(channels, wanted, 2 if wanted != channels else 1))
                channels = wanted
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3):
            x = stage(x)
        return self.linear(x.mean((2, 3)))


def read_images(folder: Path, prefix: str) -> tuple:
    raw = np.concatenate([np.fromfile(file, np.uint8) for file in sorted(folder.glob(prefix + "*.bin"))])
    records = raw.reshape(-1, 3073)
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float64) / 255.0
    mean, deviation = (np.array(v).reshape(3, 1, 1) for v in (MEAN, DEVIATION))
    # The network reads fp32 numbers.
    pixels = ((pixels - mean) / deviation).astype(np.float32).astype(np.float64)
    return torch.from_numpy(pixels), torch.from_numpy(records[:, 0].astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--test-images", type=int, default=128)
    args = parser.parse_args()
    net = ResNet20().double()
    weights = {key: torch.from_numpy(value.astype(np.float64)) for key, value in np.load(args.init).items()}
    missing, unexpected = net.load_state_dict(weights, strict=False)
    assert not unexpected and all(key.endswith("num_batches_tracked") for key in missing)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    images, labels = read_images(args.data, "data_batch")
    rows = ["step,loss,grad_norm"]
    net.train()
    for step in range(args.steps):
        chosen = slice(step * args.batch, (step + 1) * args.batch)
        loss = F.cross_entropy(net(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in net.parameters()))
        rows.append(f"{step},{loss.item()!r},{norm.item()!r}")
        optimizer.step()
    net.eval()
    images, labels = (part[:args.test_images] for part in read_images(args.data, "test_batch"))
    with torch.no_grad():
        logits = torch.cat([net(part) for part in images.split(100)])
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    rows.append(f"eval,{F.cross_entropy(logits, labels).item()!r},{accuracy!r}")
    args.out.write_text("\n".join(rows) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
