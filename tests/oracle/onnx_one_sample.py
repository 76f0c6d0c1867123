# SPDX-License-Identifier: MIT
"""Networks exported by PyTorch with one sample, and what PyTorch computes from several.

    onnx_one_sample.py tests/onnx/files/one_sample.zip

NAME.onnx, NAME.in0.npy with 3 samples and NAME.out0.npy in float64, rounded; both exporters (opset
17 and the newer one, NAME_dynamo). Metadata, which would be most of the bytes, is left out.
"""
import argparse
import io
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Callable, Dict, Tuple

import numpy as np
import onnx
import torch
from torch import nn
import torch.nn.functional as F

SAMPLES = 3


class Encoder(nn.Module):
    """Tokens, a mask made from them, and layers that may want the sequence first."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.tokens, self.places = nn.Embedding(9, 8), nn.Embedding(5, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.layers(x, src_key_padding_mask=ids == 0)
        return self.head(x.mean(1 if self.batch_first else 0))


class Windows(nn.Module):
    """Attention within shifted windows, which are part of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm, self.head = nn.Linear(4, 12), nn.LayerNorm(4), nn.Linear(4, 3)
        hidden = torch.arange(64).view(4, 4, 4) % 3 == 0
        self.register_buffer("mask", torch.where(hidden, -100.0, 0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-1, -1), (1, 2))
        y = y.view(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        q, k, v = self.qkv(y).reshape(y.shape[0], 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        scores = scores.view(n, 4, 2, 4, 4) + self.mask[:, None][None]
        y = (scores.view(-1, 2, 4, 4).softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, c)
        y = y.view(n, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return self.head((x + torch.roll(y, (1, 1), (1, 2))).mean((1, 2)))


class Queries(nn.Module):
    """A class token before the sequence, and learned queries that attend to it."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.query = nn.Parameter(torch.randn(1, 2, 8))
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        y, _ = self.attention(self.query.expand(x.shape[0], -1, -1), x, x)
        return self.head(y.flatten(1))


class Images(nn.Module):
    """Groups of channels normalized and shuffled, a batch normalization, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 1, groups=2)
        self.groups, self.batch = nn.GroupNorm(2, 4), nn.BatchNorm2d(4)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.groups(self.up(x.view(-1, 1, 6, 6)))
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        y = F.relu(self.batch(F.relu(self.down(y))))
        return self.shuffle(y).squeeze(1) + F.interpolate(x.view(-1, 1, 6, 6), scale_factor=2.0,
                                                          mode="bilinear").squeeze(1)


class Recurrent(nn.Module):
    """Both directions of a sequence, and states that start from zeros for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 2, bidirectional=True, batch_first=True)
        self.gru, self.rnn = nn.GRU(4, 3), nn.RNN(3, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (_, cell) = self.lstm(x)
        z, last = self.gru(y.transpose(0, 1))
        y, _ = self.rnn(z.transpose(0, 1) + last[0][:, None])
        return self.head(torch.cat([y[:, -1], cell[1]], 1))


class Warped(nn.Module):
    """An image turned by what a layer says, then resized to what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.conv = nn.Linear(32, 6), nn.Conv2d(2, 3, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = self.turn(x.flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.size()), align_corners=False)
        y = self.conv(F.grid_sample(x, grid, align_corners=False))
        near = F.grid_sample(x[:, :1], grid, mode="nearest", align_corners=True)
        return near + F.interpolate(y, size=x.shape[-2:], mode="bilinear").sum(1, keepdim=True)


class Pooled(nn.Module):
    """The mean of an image with its channels last, and class tokens that attend to the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.Linear(2, 4), nn.LayerNorm(4)
        self.q, self.k, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = self.norm(F.adaptive_avg_pool2d(x, 1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = torch.cat([y.flatten(2), x.flatten(2)], 2).transpose(1, 2)
        n, t, _ = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(n, 1, 2, 2).permute(0, 2, 1, 3)
        k = self.k(x).reshape(n, t, 2, 2).permute(0, 2, 1, 3)
        y = (q @ k.transpose(-2, -1)).softmax(-1) @ k
        return self.head(y.transpose(1, 2).reshape(n, 4))


class Picked(nn.Module):
    """Tables and places that all samples share, and masks that are picked by sample and place."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.kinds, self.head = nn.Embedding(9, 4), nn.Embedding(3, 4), nn.Linear(4, 3)
        self.register_buffer("kind", torch.tensor([[0, 2, 1, 1, 0, 2, 2, 1, 0]]))
        self.register_buffer("place", (torch.arange(5)[:, None] - torch.arange(5) + 4) % 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        n, t = ids.shape
        x = self.tokens(ids) + self.kinds(torch.gather(self.kind.expand(n, -1), 1, ids))
        scores = x @ x.transpose(1, 2)
        scores = scores + torch.gather(scores, -1, self.place.expand(n, -1, -1))
        seen = (ids != 0)[torch.arange(n)[:, None, None], torch.arange(t)[None, None]]
        return self.head((scores.masked_fill(~seen, -9.0).softmax(-1) @ x).mean(1))


def networks() -> Dict[str, Tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]]:
    def ids() -> torch.Tensor:
        return torch.randint(0, 9, (SAMPLES, 5))
    return {
        "encoder": (lambda: Encoder(True), ids),
        "encoder_sequence_first": (lambda: Encoder(False), ids),
        "windows": (Windows, lambda: torch.randn(SAMPLES, 4, 4, 4)),
        "queries": (Queries, lambda: torch.randn(SAMPLES, 5, 8)),
        "images": (Images, lambda: torch.randn(SAMPLES, 36)),
        "recurrent": (Recurrent, lambda: torch.randn(SAMPLES, 4, 3)),
        "warped": (Warped, lambda: torch.randn(SAMPLES, 2, 4, 4)),
        "pooled": (Pooled, lambda: torch.randn(SAMPLES, 2, 4, 3)),
        "picked": (Picked, ids),
    }


def exported(module: nn.Module, sample: torch.Tensor, dynamo: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "net.onnx"
        if dynamo:
            torch.onnx.export(module, (sample,), file, dynamo=True, external_data=False,
                              verbose=False)
        else:
            opset = 20 if isinstance(module, Warped) else 17
            torch.onnx.export(module, (sample,), file, dynamo=False, opset_version=opset)
        model = onnx.load(file)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    del model.functions[:]
    return model.SerializeToString()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    warnings.filterwarnings("ignore")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        def write(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content,
                             zipfile.ZIP_DEFLATED)
        for name, (make, samples) in networks().items():
            torch.manual_seed(3)
            module, x = make().eval(), samples()
            files = {name: exported(module, x[:1], False),
                     name + "_dynamo": exported(module, x[:1], True)}
            with torch.no_grad():
                y = module.double()(x.double() if x.is_floating_point() else x)
            for each, content in files.items():
                write(each + ".onnx", content)
                for key, array in (("in0", x.float()), ("out0", y.float())):
                    buffer = io.BytesIO()
                    np.save(buffer, array.numpy())
                    write(f"{each}.{key}.npy", buffer.getvalue())


if __name__ == "__main__":
    main()
