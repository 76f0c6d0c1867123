# SPDX-License-Identifier: MIT
"""Files of PyTorch's exporter, run and trained by the program and by PyTorch.

    onnx_torch.py --program build/bin/halfscope [--only NAME] [--keep FOLDER]

Runs: networks as users have them are exported at opsets 11, 13 and 17; `halfscope run` must give
PyTorch's outputs (float64) within 1e-5 of the largest. Trainings: the same weights and batches for
a few steps of SGD; losses and trained weights of the `float64` lane must be PyTorch's within 1e-9.
"""
import argparse
import csv
import inspect
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

OPSETS = (11, 13, 17)


class Feed(nn.Module):
    """A layer normalization and GELU before and between linear layers, on [n, t, d]."""

    def __init__(self, tanh: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)
        self.act = nn.GELU(approximate="tanh" if tanh else "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Causal(nn.Module):
    """Causal self-attention as minGPT writes it, with its mask in a buffer."""

    def __init__(self, width: int = 16, heads: int = 4, longest: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest))[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.size()
        q, k, v = (part.view(n, t, self.heads, d // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(d, dim=2))
        scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(n, t, d))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int = 20, width: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(12, width)
        self.norm1, self.norm2, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.attention = Causal(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                  nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)[None]
        x = self.tokens(ids) + self.places(places)
        x = x + self.attention(self.norm1(x))
        x = x + self.feed(self.norm2(x))
        return self.head(self.last(x))


class NextToken(nn.Module):
    """A GPT's probability of every next token of a text, and its own prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Gpt()

    def forward(self, ids: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        scores = self.gpt(ids[:, :-1])
        chances = F.log_softmax(scores, dim=-1).gather(2, ids[:, 1:, None])[:, :, 0]
        own = self.gpt.tokens(scores.argmax(dim=-1))
        return chances, own


class Padded(nn.Module):
    """A text of tokens and padding: positions counted without it, means over what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt, self.pick = Gpt(), nn.Embedding(4, 16)

    def forward(self, ids: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        there = ids.ne(0)
        mask = there.long()
        places = (torch.cumsum(mask, dim=1) - 1).masked_fill(mask == 0, 1)
        x = self.gpt.tokens(ids) + self.gpt.places(places) + self.pick((ids // 2) % 4)
        x = x + (1.0 - there.float()[:, :, None]) * -0.5
        weights = mask[:, :, None].to(x.dtype)
        mean = (self.gpt.attention(x) * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        ends = torch.max(mask.sum(1, keepdim=True) - 1, -ids[:, :1].abs())
        last = x.gather(1, ends[:, :, None].expand(-1, -1, x.size(2)))
        return mean, last


class Heads(nn.Module):
    """nn.MultiheadAttention with a mask, batch first or not."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=batch_first)
        self.register_buffer("mask", torch.triu(torch.full((6, 6), float("-inf")), 1))
        self.batch_first = batch_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.batch_first:
            x = x.transpose(0, 1)
        y, _ = self.attention(x, x, x, attn_mask=self.mask)
        return y if self.batch_first else y.transpose(0, 1)


class Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inputs: int, outputs: int, stride: int, grow: int = 3) -> None:
        super().__init__()
        hidden = inputs * grow
        self.same = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden), nn.ReLU6(), nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.same else self.body(x)


class Mobile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8),
                                  nn.Hardswish())
        self.blocks = nn.Sequential(Inverted(8, 8, 1), Inverted(8, 12, 2))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 4, 1), nn.ReLU(),
                                  nn.Conv2d(4, 12, 1), nn.Hardsigmoid())
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.blocks(self.stem(x))
        y = y * self.gate(y)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


class Unet(nn.Module):
    """Down and up again with a connection across, up by the given module."""

    def __init__(self, up: nn.Module) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 6, 3, 1, 1)
        self.inner = nn.Conv2d(6, 6, 3, 1, 1)
        self.up = up
        self.last = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        across = F.leaky_relu(self.down(x), 0.1)
        low = F.elu(self.inner(F.max_pool2d(across, 2)))
        return torch.tanh(self.last(torch.cat([across, self.up(low)], 1)))


class Odds(nn.Module):
    """Small things that users' forward functions are full of."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.PReLU()
        self.fc = nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        n = x.shape[0]
        y = F.pad(self.slope(x), (1, 2, 0, 1), value=0.5)
        y = y[:, :, 1:-1, ::2].mean(dim=(2, 3), keepdim=True).squeeze(3) + x.amax((2, 3))[..., None]
        z = torch.stack([x[:, 0], x[:, 1]], dim=1).reshape(n, -1)[:, :12]
        z = F.softplus(self.fc(z)).chunk(2, dim=-1)
        norm = F.normalize(x.flatten(1), dim=1) + x.flatten(1).var(1, unbiased=False)[:, None]
        return torch.cat([z[0] * z[1], norm.clamp(min=-0.5)], dim=1), y.expand(-1, -1, 3)


class Reflect(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(F.pad(x, (1, 1, 2, 1), mode="reflect"), 3, 2, 1)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def block(channels: int, norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, channels, 3, padding=1), norm, nn.SiLU(),
                         nn.Conv2d(channels, 3, 3, stride=2, dilation=2))


def up(**how) -> nn.Module:
    return Unet(nn.Upsample(scale_factor=2, **how))


def unpool(**how) -> nn.Module:
    return Unet(nn.ConvTranspose2d(6, 6, **how))


Case = Tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]
IMAGE = lambda: noise(3, 2, 8, 8)
RUNS: Dict[str, Case] = {
    "layer_norm_gelu": (Feed, lambda: noise(3, 5, 12)),
    "layer_norm_gelu_tanh": (lambda: Feed(True), lambda: noise(3, 5, 12)),
    "gpt": (Gpt, lambda: torch.randint(0, 20, (3, 7))),
    "next_token": (NextToken, lambda: torch.randint(0, 20, (3, 8))),
    "padded": (Padded, lambda: torch.randint(1, 20, (3, 7)) *
               torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])),
    "attention_batch_first": (lambda: Heads(True), lambda: noise(3, 6, 16)),
    "attention_batch_second": (lambda: Heads(False), lambda: noise(3, 6, 16)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
                lambda: noise(3, 5, 16)),
    "mobile": (Mobile, lambda: noise(3, 3, 16, 16)),
    "transposed": (lambda: unpool(kernel_size=2, stride=2), IMAGE),
    "transposed_padded": (lambda: unpool(kernel_size=3, stride=2, padding=1, output_padding=1),
                          IMAGE),
    "transposed_grouped": (lambda: unpool(kernel_size=4, stride=2, padding=1, groups=3), IMAGE),
    "transposed_line": (lambda: nn.ConvTranspose1d(4, 3, 4, 3), lambda: noise(3, 4, 7)),
    "nearest": (lambda: up(mode="nearest"), IMAGE),
    "bilinear": (lambda: up(mode="bilinear"), IMAGE),
    "bilinear_corners": (lambda: up(mode="bilinear", align_corners=True), IMAGE),
    "shuffle": (lambda: nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.PixelShuffle(2)), IMAGE),
    "group_norm": (lambda: block(6, nn.GroupNorm(3, 6)), IMAGE),
    "instance_norm": (lambda: block(6, nn.InstanceNorm2d(6, affine=True)), IMAGE),
    "instance_norm_plain": (lambda: block(6, nn.InstanceNorm2d(6)), IMAGE),
    "batch_norm_line": (lambda: nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(),
                                              nn.MaxPool1d(2)), lambda: noise(3, 4, 9)),
    "batch_norm_flat": (lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Sigmoid()),
                        lambda: noise(3, 5)),
    "odds": (Odds, lambda: noise(3, 2, 4, 6)),
    "reflect": (Reflect, IMAGE),
    "one_output": (lambda: nn.Sequential(nn.Linear(5, 1), nn.LogSigmoid()), lambda: noise(3, 5)),
}


def randomize(model: nn.Module) -> None:
    """Statistics and scales that differ from where they start, so that they matter."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                if module.running_mean is not None:
                    module.running_mean.uniform_(-0.5, 0.5)
                    module.running_var.uniform_(0.5, 2.0)
            if isinstance(module, (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)):
                if module.weight is not None:
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.uniform_(-0.5, 0.5)


def export(model: nn.Module, x: torch.Tensor, path: Path, opset: int, training: bool = False,
           open_batch: bool = False) -> None:
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    # PyTorch 2.9 and later export with dynamo by default, which does not know the mode.
    chosen = training and "dynamo" in inspect.signature(torch.onnx.export).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, x, str(path), opset_version=opset, input_names=["x"],
                          training=mode, do_constant_folding=not training,
                          dynamic_axes={"x": {0: "batch"}} if open_batch else None,
                          **({"dynamo": False} if chosen else {}))


def call(program: str, *arguments: object) -> None:
    done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}: {done.stdout.strip()[-600:]}")


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        raise AssertionError(f"shape {ours.shape}, PyTorch has {theirs.shape}")
    if not np.isfinite(ours).all():
        raise AssertionError("not finite")
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))


def run_case(name: str, opset: int, program: str, folder: Path) -> float:
    make, inputs = RUNS[name]
    torch.manual_seed(5)
    model = make()
    randomize(model)
    model.eval()
    x = inputs()
    # Odd opsets of the list leave the batch open.
    export(model, x, folder / "net.onnx", opset, open_batch=opset != 13)
    np.save(folder / "x.npy", x.numpy())
    call(program, "run", folder / "net.onnx", "--input", folder / "x.npy", "--out",
         folder / "y.npz", "--force", "--quiet")
    with torch.no_grad():
        exact = model.double()(x.double() if x.is_floating_point() else x)
    exact = exact if isinstance(exact, tuple) else (exact,)
    with np.load(folder / "y.npz") as archive:
        ours = [archive[key].astype(np.float64) for key in archive.files]
    if len(ours) != len(exact):
        raise AssertionError(f"{len(ours)} outputs, PyTorch has {len(exact)}")
    # Outputs are unnamed in the export: pair them by shape.
    worst = 0.0
    for each in exact:
        fitting = [o for o in ours if o.shape == tuple(each.shape)]
        if len(fitting) != 1:
            raise AssertionError(f"no output of shape {tuple(each.shape)}")
        worst = max(worst, difference(fitting[0], each.numpy()))
    if worst > 1e-5:
        raise AssertionError(f"differs by {worst:.2e}")
    return worst


class Flat(nn.Module):
    """A network of images with batch normalization, as plain as tutorials have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 6, 3, stride=2), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean((2, 3)))


class Decoder(nn.Module):
    """One number for every sample, by way of a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1)
        self.act = nn.PReLU()
        self.fc = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.act(self.up(x)).mean((2, 3)))


class Words(nn.Module):
    """A GPT whose scores are those of the last position."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Gpt()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.gpt(ids)[:, -1]


TRAININGS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)),
            lambda n: noise(n, 6), "cross-entropy", 4),
    "layer_norm_mlp": (lambda: nn.Sequential(nn.Linear(6, 12), Feed(), nn.Linear(12, 4)),
                       lambda n: noise(n, 6), "cross-entropy", 4),
    "batch_norm_cnn": (Flat, lambda n: noise(n, 1, 10, 10), "cross-entropy", 3),
    "mobile": (Mobile, lambda n: noise(n, 3, 16, 16), "cross-entropy", 5),
    "group_norm": (lambda: nn.Sequential(block(6, nn.GroupNorm(3, 6)), nn.Flatten(),
                                         nn.Linear(12, 3)),
                   lambda n: noise(n, 2, 8, 8), "cross-entropy", 3),
    "instance_norm": (lambda: nn.Sequential(block(6, nn.InstanceNorm2d(6, affine=True)),
                                            nn.Flatten(), nn.Linear(12, 3)),
                      lambda n: noise(n, 2, 8, 8), "cross-entropy", 3),
    "gpt": (Words, lambda n: torch.randint(0, 20, (n, 7)), "cross-entropy", 20),
    "decoder": (Decoder, lambda n: noise(n, 2, 4, 4), "mse", 1),
    "bilinear": (lambda: nn.Sequential(up(mode="bilinear"), nn.Flatten(), nn.Linear(128, 3)),
                 lambda n: noise(n, 2, 8, 8), "cross-entropy", 3),
}


def keep_variance_as_onnx(model: nn.Module) -> None:
    """Running variances of the population, as ONNX defines them; PyTorch's are the sample's."""
    def before(module: nn.Module, inputs: Tuple[torch.Tensor]) -> None:
        module.kept = module.running_var.clone()

    def after(module: nn.Module, inputs: Tuple[torch.Tensor], _: torch.Tensor) -> None:
        if module.training:
            axes = [axis for axis in range(inputs[0].dim()) if axis != 1]
            variance = inputs[0].detach().var(axes, unbiased=False)
            module.running_var = 0.9 * module.kept + 0.1 * variance
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after)


def train_case(name: str, program: str, folder: Path, opset: int = 14) -> float:
    """Losses of every step, and what the trained network then computes."""
    make, inputs, loss, classes = TRAININGS[name]
    torch.manual_seed(9)
    batch, steps, rate, momentum = 4, 6, 0.05, 0.9
    model = make()
    randomize(model)
    x = inputs(batch * 3)
    y = torch.randint(0, classes, (len(x),)) if loss == "cross-entropy" else noise(len(x), classes)
    model.train()
    # This moves the running statistics on, and the file has them like that.
    export(model, x[:batch], folder / "net.onnx", opset, training=True)
    model.double().train()
    keep_variance_as_onnx(model)
    np.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
    call(program, "train", "--model", folder / "net.onnx", "--loss", loss, "--data",
         folder / "data.npz", "--lanes", "float64", "--optimizer",
         f"sgd:lr={rate},momentum={momentum}", "--batch", batch, "--steps", steps, "--no-shuffle",
         "--out", folder / "run.hscope", "--no-eval", "--save-weights", folder / "w.npz", "--force",
         "--quiet")
    call(program, "report", folder / "run.hscope", "--steps", folder / "steps.csv", "--force")
    with open(folder / "steps.csv", newline="", encoding="ascii") as stream:
        losses = [float(row["loss"]) for row in csv.DictReader(stream)]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    worst = 0.0
    for step in range(steps):
        rows = slice(step * batch % len(x), step * batch % len(x) + batch)
        scores = model(x[rows].double() if x.is_floating_point() else x[rows])
        value = (F.cross_entropy(scores, y[rows]) if loss == "cross-entropy"
                 else F.mse_loss(scores, y[rows].double()))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        worst = max(worst, abs(losses[step] - value.item()) / abs(value.item()))
    if len(losses) != steps:
        raise AssertionError(f"{len(losses)} steps")
    if worst > 1e-9:
        raise AssertionError(f"losses differ by {worst:.2e}")
    # In inference, with the weights and running statistics after the last step.
    np.save(folder / "x.npy", x.numpy())
    call(program, "run", folder / "net.onnx", "--init", folder / "w.npz", "--input",
         folder / "x.npy", "--batch", batch, "--lanes", "float64", "--out", folder / "y.npy",
         "--force", "--quiet")
    model.eval()
    with torch.no_grad():
        scores = model(x.double() if x.is_floating_point() else x).numpy()
    gap = difference(np.load(folder / "y.npy").astype(np.float64), scores)
    if gap > 1e-5:
        raise AssertionError(f"in inference it differs by {gap:.2e} after the training")
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="", help="cases whose name begins like this")
    parser.add_argument("--keep", type=Path, help="folder for the files of the last case")
    options = parser.parse_args()
    torch.set_num_threads(2)
    cases = [(f"run/{name}/opset{opset}", run_case, (name, opset))
             for name in RUNS for opset in OPSETS]
    cases += [(f"train/{name}", train_case, (name,)) for name in TRAININGS]
    failed: List[str] = []
    ran = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, function, arguments in cases:
            if not name.startswith(options.only):
                continue
            ran += 1
            try:
                gap = function(*arguments, program=options.program, folder=folder)
                print(f"{name}: {gap:.1e}")
            except AssertionError as error:
                failed.append(name)
                print(f"{name}: FAILED: {error}")
    print(f"{ran - len(failed)} of {ran} cases agree with PyTorch")
    if failed or ran == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
