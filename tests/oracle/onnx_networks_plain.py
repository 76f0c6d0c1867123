# SPDX-License-Identifier: MIT
"""Small networks of plain torch.nn, for onnx_matrix.py: what people write by hand."""
import math
from typing import Dict

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

from onnx_network import Network, image, line, rows, sequence, tokens

D = 16  # width of most networks here


class MlpActivations(nn.Module):
    """A linear layer and another activation, thirteen times."""

    def __init__(self) -> None:
        super().__init__()
        acts = [nn.Mish(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Softplus(),
                nn.ELU(), nn.SELU(), nn.CELU(), nn.Softsign(), nn.Hardswish(), nn.LogSigmoid(),
                nn.Hardtanh(), nn.Tanhshrink()]
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in acts)
        self.acts = nn.ModuleList(acts)
        self.head = nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, act in zip(self.layers, self.acts):
            x = x + act(layer(x))
        return self.head(x)


class Glu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(D, 4 * D), nn.Linear(D, 5)
        self.slope, self.many = nn.PReLU(), nn.PReLU(D)
        self.threshold = nn.Threshold(0.1, -0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.slope(F.glu(self.up(x)))
        a, b = y.chunk(2, -1)
        return self.head(self.many(self.threshold(a) * torch.sigmoid(b)))


class NormNet(nn.Module):
    """Convolutions and three equal normalizations, whose fresh weights are all ones and zeros."""

    def __init__(self, norm) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), norm(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), norm(8)
        self.conv3, self.norm3 = nn.Conv2d(8, 8, 3, padding=1, stride=2), norm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        x = x + F.silu(self.norm2(self.conv2(x)))
        return self.head(F.leaky_relu(self.norm3(self.conv3(x)), 0.1).mean((2, 3)))


class LayerNormNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.rms, self.head = nn.RMSNorm(D), nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, self.layers):
            x = x + F.gelu(layer(norm(x)))
        return self.head(self.rms(x))


class EncoderNet(nn.Module):
    def __init__(self, norm_first: bool = False, batch_first: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, 4, 32, 0.0, batch_first=batch_first,
                                           norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head, self.batch_first = nn.Linear(D, 5), batch_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.batch_first:
            return self.head(self.encoder(x.transpose(0, 1)).mean(0))
        return self.head(self.encoder(x).mean(1))


class DecoderNet(nn.Module):
    """nn.TransformerDecoder over a memory, with the causal mask that nn.Transformer makes."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(D, 4, 32, 0.0, batch_first=True)
        self.decoder, self.head = nn.TransformerDecoder(layer, 2), nn.Linear(D, 7)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return self.head(self.decoder(x, memory, tgt_mask=self.mask))


class Translator(nn.Module):
    """nn.Transformer as the tutorial has it: embeddings, sinusoidal positions, a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, D), nn.Embedding(20, D)
        self.transformer = nn.Transformer(D, 2, 1, 1, 32, 0.0, batch_first=True)
        self.generator = nn.Linear(D, 20)
        self.register_buffer("places", sinusoids(8, D))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = torch.triu(torch.full((target.size(1), target.size(1)), float("-inf")), 1)
        a = self.source(source) * math.sqrt(D) + self.places[:source.size(1)]
        b = self.target(target) * math.sqrt(D) + self.places[:target.size(1)]
        return self.generator(self.transformer(a, b, tgt_mask=mask))


def sinusoids(length: int, width: int) -> torch.Tensor:
    place = torch.arange(length)[:, None].float()
    rate = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
    return table


class MaskedHeads(nn.Module):
    """nn.MultiheadAttention with a causal mask and one of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 4, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.ones(6, 6, dtype=torch.bool), 1))
        self.head = nn.Linear(D, 5)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        padding = torch.arange(6, device=x.device)[None, :] >= lengths
        y, _ = self.attention(x, x, x, attn_mask=self.mask, key_padding_mask=padding)
        return self.head(y[:, -1])


class CrossHeads(nn.Module):
    """Cross attention whose keys and values have widths of their own, with averaged weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2, kdim=8, vdim=8, batch_first=True)
        self.head = nn.Linear(D + 5, 5)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        y, weights = self.attention(x, memory, memory)
        return self.head(torch.cat([y.mean(1), weights.mean(1)], -1))


class TiedAutoencoder(nn.Module):
    """The decoder's weights are the encoder's, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 12), nn.Linear(12, 6)
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(12)), nn.Parameter(torch.zeros(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        code = torch.tanh(self.second(torch.tanh(self.first(x))))
        y = torch.tanh(F.linear(code, self.second.weight.t(), self.bias1))
        return F.linear(y, self.first.weight.t(), self.bias2)


class SharedModule(nn.Module):
    """One layer and one norm called three times, a linear layer tied to another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(D, D), nn.LayerNorm(D)
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, D)
        self.second.weight = self.first.weight
        self.head = nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.norm(x + torch.tanh(self.layer(x)))
        return self.head(self.second(F.relu(self.first(x))))


class SharedConv(nn.Module):
    """A convolution of shared weights over levels, as detectors' heads have it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.score = nn.Conv2d(8, 2, 1)
        self.scales = nn.ParameterList(nn.Parameter(torch.tensor(1.0)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, levels = self.stem(x), []
        for scale in self.scales:
            levels.append((self.score(F.relu(self.head(x))) * scale).flatten(2))
            x = F.max_pool2d(x, 2)
        return torch.cat(levels, 2)


class Wavenet(nn.Module):
    """Dilated causal Conv1d with gates and skips."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 8, 1)
        self.filters = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2 ** i) for i in range(3))
        self.gates = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2 ** i) for i in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))
        self.head = nn.Conv1d(8, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = self.stem(x), 0
        for i, (filter_, gate, skip) in enumerate(zip(self.filters, self.gates, self.skips)):
            y = F.pad(x, (2 ** i, 0))
            y = torch.tanh(filter_(y)) * torch.sigmoid(gate(y))
            total = total + skip(y)
            x = x + y
        return self.head(F.relu(total)).mean(2)


class Conv3dNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(2, 4, 3, padding=1)
        self.conv2 = nn.Conv3d(4, 6, 3, padding=1, stride=2)
        self.norm, self.head = nn.GroupNorm(2, 6), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool3d(F.relu(self.conv1(x)), 2)
        return self.head(F.adaptive_avg_pool3d(F.relu(self.norm(self.conv2(x))), 1).flatten(1))


class SuperResolution(nn.Module):
    """PixelShuffle beside an upsampled input, as in EDSR."""

    def __init__(self, **how) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 1, 1), nn.Conv2d(8, 4, 3, 1, 1)
        self.shuffle, self.up = nn.PixelShuffle(2), nn.Upsample(scale_factor=2, **how)
        self.last = nn.Conv2d(1, 1, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.shuffle(self.conv2(F.relu(self.conv1(x))))
        return y + self.up(self.last(x))


class Stn(nn.Module):
    """A spatial transformer: affine_grid and grid_sample."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Linear(64, 6)
        nn.init.normal_(self.locate.weight, std=0.01)
        self.locate.bias.data = torch.tensor([1.0, 0.0, 0.05, 0.0, 1.0, -0.05])
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = self.locate(x.flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.size()), align_corners=False)
        x = F.grid_sample(x, grid, align_corners=False)
        return self.head(torch.tanh(self.conv(x)).mean((2, 3)))


class EinsumAttention(nn.Module):
    """Attention in einsum, as in many papers' code, with a soft cap and logsumexp."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Parameter(torch.randn(3, 2, D, 8) * 0.2)
        self.out, self.head = nn.Parameter(torch.randn(2, 8, D) * 0.2), nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("btd,hde->bhte", x, w) for w in self.qkv)
        scores = torch.einsum("bhqe,bhke->bhqk", q, k) / math.sqrt(8)
        chances = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
        y = torch.einsum("bhqk,bhke,hed->bqd", chances, v, self.out)
        return self.head((x + y).mean(1))


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(20, D, mode="mean"), nn.Linear(D, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.bag(ids)))


class MixtureDensity(nn.Module):
    """Log-likelihood of a mixture by logsumexp, for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.weight = nn.Linear(8, D), nn.Linear(D, 3)
        self.mean, self.scale = nn.Linear(D, 3), nn.Linear(D, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.hidden(x))
        scale = F.softplus(self.scale(h)) + 0.1
        inner = -0.5 * ((y - self.mean(h)) / scale) ** 2 - torch.log(scale)
        return torch.logsumexp(F.log_softmax(self.weight(h), -1) + inner, -1, keepdim=True)


class Siamese(nn.Module):
    """One tower for two inputs, and the distance of what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, D))
        self.head = nn.Linear(D, 1)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        p, q = self.tower(a), self.tower(b)
        near = F.cosine_similarity(p, q)[:, None]
        return self.head((p - q).abs()) + near + F.pairwise_distance(p, q)[:, None]


class Mixer(nn.Module):
    class Block(nn.Module):
        def __init__(self, patches: int, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(patches, 8), nn.GELU(), nn.Linear(8, patches))
            self.channels = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, D, 4, 4)
        self.blocks = nn.Sequential(self.Block(16, D), self.Block(16, D))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Causal(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.register_buffer("mask", torch.tril(torch.ones(length, length))[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.size()
        q, k, v = (part.view(n, t, 4, d // 4).transpose(1, 2) for part in self.qkv(x).split(d, 2))
        scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, -1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(n, t, d))


class MinGpt(nn.Module):
    """minGPT: learned positions, tril in a buffer, the head tied to the embedding if asked for."""

    def __init__(self, tied: bool = True, length: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, D), nn.Embedding(length, D)
        self.attention = nn.ModuleList(Causal(length) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(5))
        self.feed = nn.ModuleList(nn.Sequential(nn.Linear(D, 32), nn.GELU(), nn.Linear(32, D))
                                  for _ in range(2))
        self.head = nn.Linear(D, 20, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        for i in range(2):
            x = x + self.attention[i](self.norms[2 * i](x))
            x = x + self.feed[i](self.norms[2 * i + 1](x))
        return self.head(self.norms[4](x))


class Sinusoidal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, D), nn.LayerNorm(D)
        self.register_buffer("places", sinusoids(12, D)[None])
        self.layer, self.head = nn.Linear(D, D), nn.Linear(D, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) * math.sqrt(D) + self.places[:, :ids.size(1)]
        return self.head(torch.relu(self.layer(self.norm(x))).mean(1))


class ClassToken(nn.Module):
    """A ViT by hand: class token and positions as parameters, LayerScale, biases of q and v."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, D, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D))
        self.pos_embed = nn.Parameter(torch.randn(1, 5, D) * 0.02)
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 5)
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(D)), nn.Parameter(torch.zeros(D))
        self.out, self.gamma = nn.Linear(D, D), nn.Parameter(torch.full((D,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        n = x.shape[0]
        x = torch.cat([self.cls_token.expand(n, -1, -1), x], 1) + self.pos_embed
        bias = torch.cat([self.q_bias, torch.zeros_like(self.v_bias), self.v_bias])
        qkv = F.linear(self.norm(x), self.qkv.weight, bias).reshape(n, 5, 3, 2, D // 2)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, 5, D)
        return self.head((x + self.gamma * self.out(y))[:, 0])


class Temperature(nn.Module):
    """CLIP's head: normalized embeddings of image and text, scaled by exp(logit_scale)."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.labels_ = nn.Linear(12, D), nn.Parameter(torch.randn(6, D))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = F.normalize(self.image(x), dim=-1), F.normalize(self.labels_, dim=-1)
        return self.logit_scale.exp() * a @ b.t() / self.temperature


class WeightNorm(nn.Module):
    """Weights that are computed from parameters in every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = parametrizations.weight_norm(nn.Conv1d(3, 8, 3, padding=1))
        self.fc = parametrizations.weight_norm(nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.relu(self.conv(x)).mean(2))


class Experts(nn.Module):
    """A dense mixture of experts by bmm, a deep set's sum, FiLM."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(D, 3), nn.Parameter(torch.randn(3, D, D) * 0.2)
        self.film, self.bilinear = nn.Linear(D, 2 * D), nn.Bilinear(D, 4, 5)
        self.side = nn.Linear(D, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = x.sum(1)
        gates = F.softmax(self.gate(pooled), -1)
        y = torch.matmul(pooled[None], self.experts).permute(1, 0, 2)
        y = torch.bmm(gates[:, None], y)[:, 0]
        scale, shift = self.film(pooled).chunk(2, -1)
        return self.bilinear(torch.tanh(y * (1 + scale) + shift), self.side(pooled))


class Rotary(nn.Module):
    """Rotary positions in complex-free form, and a hand-written RMS norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.qk = nn.Parameter(torch.ones(D)), nn.Linear(D, 2 * D, bias=False)
        angle = torch.outer(torch.arange(6.0), 10000 ** (-torch.arange(0, D, 2).float() / D))
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin(), persistent=False)
        self.head = nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        q, k = (z * self.cos + torch.cat([-z[..., D // 2:], z[..., :D // 2]], -1) * self.sin
                for z in self.qk(y).chunk(2, -1))
        mask = torch.full((6, 6), float("-inf")).triu(1)
        chances = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(D) + mask, -1)
        return self.head(chances @ y)


class BatchNormMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(12, D), nn.BatchNorm1d(D)
        self.fc2, self.bn2 = nn.Linear(D, D), nn.BatchNorm1d(D)
        self.head = nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.bn2(self.fc2(F.relu(self.bn1(self.fc1(x)))))))


class Dueling(nn.Module):
    """Two heads of a Q-network; a clamped square root and a maximum on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, D), nn.ReLU(), nn.Linear(D, D), nn.ReLU())
        self.value, self.advantage = nn.Linear(D, 1), nn.Linear(D, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        a = self.advantage(h)
        q = self.value(h) + a - a.mean(1, keepdim=True)
        return q + torch.sqrt(h.pow(2).sum(1, keepdim=True).clamp(min=1e-6)) - torch.maximum(
            a, -a).amax(1, keepdim=True)


def two(a, b):
    """Inputs of two kinds at once."""
    def make(n: int) -> Dict[str, torch.Tensor]:
        return {**a(n), **b(n)}
    return make


def net(make, inputs, loss: str = "cross-entropy", lr: float = 0.05,
        **more) -> Network:
    return Network("plain", make, inputs, loss, lr, **more)


def small_noise(shape, name: str):
    return lambda n: {name: torch.randn(n, *shape)}


NETWORKS: Dict[str, Network] = {
    "mlp_activations": net(MlpActivations, rows(D)),
    "mlp_glu_prelu": net(Glu, rows(D), lr=0.1),
    "mlp_batch_norm": net(BatchNormMlp, rows(12)),
    "mlp_dueling": net(Dueling, rows(8), "mse"),
    "group_norm": net(lambda: NormNet(lambda c: nn.GroupNorm(4, c)), image(3, 12)),
    "instance_norm": net(lambda: NormNet(lambda c: nn.InstanceNorm2d(c, affine=True)),
                         image(3, 12)),
    "layer_norm": net(LayerNormNet, rows(D)),
    "transformer_encoder": net(EncoderNet, sequence(6, D)),
    "transformer_encoder_prenorm": net(lambda: EncoderNet(True), sequence(6, D)),
    "transformer_encoder_batch_second": net(lambda: EncoderNet(batch_first=False), sequence(6, D)),
    "transformer_decoder": net(DecoderNet, two(sequence(6, D), small_noise((5, D), "memory"))),
    "transformer_translator": net(Translator, two(tokens(6, 20, "source"),
                                                  tokens(5, 20, "target"))),
    "mha_masks": net(MaskedHeads, two(sequence(6, D), lambda n: {
        "lengths": torch.randint(3, 7, (n, 1))})),
    "mha_cross": net(CrossHeads, two(sequence(6, D), small_noise((5, 8), "memory"))),
    "tied_autoencoder": net(TiedAutoencoder, rows(24), "mse", 0.5),
    "shared_modules": net(SharedModule, rows(D)),
    "shared_conv_head": net(SharedConv, image(3, 16), "mse", 0.2),
    "conv1d_wavenet": net(Wavenet, line(2, 16)),
    "conv3d": net(Conv3dNet, lambda n: {"x": torch.randn(n, 2, 8, 8, 8)}),
    "pixel_shuffle_bilinear": net(lambda: SuperResolution(mode="bilinear"), image(1, 8), "mse"),
    "pixel_shuffle_bicubic": net(lambda: SuperResolution(mode="bicubic"), image(1, 8), "mse"),
    "upsample_bilinear_corners": net(
        lambda: SuperResolution(mode="bilinear", align_corners=True), image(1, 8), "mse"),
    "grid_sample_stn": net(Stn, image(1, 8)),
    "einsum_attention": net(EinsumAttention, sequence(6, D)),
    "embedding_bag": net(Bag, tokens(6, 20), lr=0.5),
    "mixture_logsumexp": net(MixtureDensity, two(rows(8), small_noise((1,), "y")), "mse", 0.01),
    "siamese": net(Siamese, two(lambda n: {"a": torch.randn(n, 1, 8, 8)},
                                lambda n: {"b": torch.randn(n, 1, 8, 8)}), "mse", 0.01),
    "mlp_mixer": net(Mixer, image(3, 16)),
    "min_gpt_tied": net(MinGpt, tokens(8, 20)),
    "min_gpt_untied": net(lambda: MinGpt(False), tokens(6, 20), lr=0.2),
    "sinusoidal_buffer": net(Sinusoidal, tokens(8, 20)),
    "class_token_layer_scale": net(ClassToken, image(3, 8)),
    "temperature_logit_scale": net(Temperature, rows(12), lr=0.02),
    "weight_norm": net(WeightNorm, line(3, 12), lr=0.1, variants="script-training"),
    "experts_bilinear": net(Experts, sequence(5, D), lr=0.01),
    "rotary_rms": net(Rotary, sequence(6, D), lr=0.2),
}
