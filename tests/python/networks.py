# SPDX-License-Identifier: MIT
"""Small networks and trainings for the tests of the Python package."""
import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(20, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.pool = nn.Conv2d(4, 6, 3), nn.MaxPool2d(2)
        self.fc = nn.Linear(6 * 4 * 4, 5)

    def forward(self, x):
        x = self.relu(self.bn(self.conv1(x)))
        return self.fc(torch.flatten(self.pool(self.conv2(x)), 1))


class Block(nn.Module):
    def __init__(self, width, heads, checkpoint=None):
        super().__init__()
        self.heads, self.checkpoint = heads, checkpoint
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def attend(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for each in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))

    def body(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.mlp(self.ln2(x))

    def forward(self, x):
        if self.checkpoint is None:
            return self.body(x)
        from torch.utils.checkpoint import checkpoint
        return checkpoint(self.body, x, use_reentrant=self.checkpoint == "reentrant")


class Gpt(nn.Module):
    """Like nanoGPT; the head shares the weight of the embedding."""

    def __init__(self, width=32, layers=2, vocabulary=50, length=16, checkpoint=None):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, 4, checkpoint) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten()), {"logits": logits}


def batches(shape, classes, count, seed=1):
    """Yields (x, y): normal numbers and classes."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield (torch.randn(shape, generator=generator),
               torch.randint(0, classes, shape[:1], generator=generator))


def train_classifier(model, optimizer, shape, steps, *, scaler=None, dtype=None, parts=1,
                     before_step=None, classes=5):
    """Trains and returns the losses."""
    losses = []
    for x, y in batches(shape, classes, steps):
        optimizer.zero_grad()
        total = 0.0
        for xs, ys in zip(x.chunk(parts), y.chunk(parts)):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = F.cross_entropy(model(xs), ys) / parts
            (scaler.scale(loss) if scaler is not None else loss).backward()
            total += float(loss.detach())
        if before_step is not None:
            before_step()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        losses.append(total)
    return losses


def train_gpt(model, optimizer, steps, dtype=None):
    generator = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(0, 50, (4, 16), generator=generator)
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            loss, _ = model(tokens, tokens.roll(-1, 1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
