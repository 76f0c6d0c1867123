# SPDX-License-Identifier: MIT
"""Networks for torch_dtypes.py: those of onnx_matrix.py that need no further package, and networks
that compute their own loss or use operators that the others do not."""
from typing import Callable, Dict

import torch
from torch import nn
import torch.nn.functional as F

import onnx_networks_plain
from onnx_network import Network, image, rows, sequence

D = 8


class WithLoss(nn.Module):
    """A small network and a loss of its output and targets."""

    def __init__(self, loss: Callable) -> None:
        super().__init__()
        self.first, self.last, self.loss = nn.Linear(D, D), nn.Linear(D, D), loss

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.loss(self.last(torch.relu(self.first(x))), t)


class Functions(nn.Module):
    """One function of each element between two layers."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(D, D), nn.Linear(D, 5), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.function(self.first(x)))


class Resnet(nn.Module):
    """A residual block with a projection, batch normalization and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv1, self.norm1 = nn.Conv2d(4, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.short, self.short_norm = nn.Conv2d(4, 8, 1, 2), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.stem(x))), 2)
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        y = torch.relu(y + self.short_norm(self.short(x)))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, hard functions."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depth = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm, self.reduce, self.excite = nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.project, self.head = nn.Conv2d(8, 4, 1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.expand(x))
        x = F.hardswish(self.norm(self.depth(x)))
        gate = F.hardsigmoid(self.excite(F.silu(self.reduce(x.mean((2, 3), keepdim=True)))))
        return self.head(self.project(x * gate).mean((2, 3)))


class Unet(nn.Module):
    """Down, up by nearest neighbours and by a transposed convolution, and concatenations."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.middle, self.up = nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 4, 2, 2)
        self.norm, self.join = nn.InstanceNorm2d(8, affine=True), nn.Conv2d(16, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.leaky_relu(self.down1(x), 0.1)
        b = F.elu(self.norm(self.down2(F.avg_pool2d(a, 2))))
        c = F.interpolate(self.middle(F.max_pool2d(b, 2)), scale_factor=2, mode="nearest")
        d = self.up(self.join(torch.cat([b, c], 1)))
        return self.last(torch.cat([a, d], 1))


class Vit(nn.Module):
    """Patches, a class token, positions, attention with a fused kernel, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, D, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, D) * 0.1)
        self.positions = nn.Parameter(torch.randn(1, 5, D) * 0.1)
        self.norm1, self.norm2, self.norm = (nn.LayerNorm(D) for _ in range(3))
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down, self.head = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        q, k, v = self.qkv(self.norm1(x)).reshape(*x.shape[:2], 3, 2, D // 2).unbind(2)
        y = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v)))
        x = x + self.out(y.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(self.norm(x)[:, 0])


class Decoder(nn.Module):
    """Causal attention written out, RMS normalization, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, D), nn.Linear(D, 20, bias=False)
        self.scale1, self.scale2 = (nn.Parameter(torch.ones(D)) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(D, 12), nn.Linear(D, 12), nn.Linear(12, D)

    @staticmethod
    def rms(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        y = self.rms(x, self.scale1)
        scores = self.q(y) @ self.k(y).transpose(1, 2) / D ** 0.5
        mask = torch.ones(x.shape[1], x.shape[1]).tril() == 0
        x = x + self.o(torch.softmax(scores.masked_fill(mask, -1e4), -1) @ self.v(y))
        y = self.rms(x, self.scale2)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class Generator(nn.Module):
    """A small DCGAN generator."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = nn.Linear(D, 4 * 4)
        self.up1, self.norm1 = nn.ConvTranspose2d(4, 4, 4, 2, 1), nn.BatchNorm2d(4)
        self.up2 = nn.ConvTranspose2d(4, 1, 4, 2, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.seed(z)).reshape(-1, 4, 2, 2)
        return torch.tanh(self.up2(torch.relu(self.norm1(self.up1(x)))))


class Discriminator(nn.Module):
    """Its loss is binary cross-entropy with logits."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 4, 2, 1), nn.Conv2d(4, 8, 4, 2, 1)
        self.norm, self.act, self.head = nn.BatchNorm2d(8), nn.PReLU(8), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(self.down1(x), 0.2)
        x = self.act(self.norm(self.down2(x)))
        return F.binary_cross_entropy_with_logits(self.head(x.flatten(1)), real)


class Detector(nn.Module):
    """A head with classes, boxes by exp, and centres by sigmoid; smooth L1 and cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8)
        self.classes, self.boxes = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 4, 1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.body(x)))
        classes = self.classes(y).flatten(2).transpose(1, 2).reshape(-1, 6)
        centre, size = (self.boxes(y) * self.scale).split(2, 1)
        found = torch.cat([torch.sigmoid(centre), torch.exp(size)], 1)
        return F.cross_entropy(classes, labels.flatten()) + F.smooth_l1_loss(found, boxes)


class Reductions(nn.Module):
    """Sums, means, norms, cumulative sums, extremes, and what depends on them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D, D), nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        parts = [y.sum(-1), y.mean(-1), y.norm(dim=-1), y.cumsum(-1)[:, -1], y.amax(-1),
                 y.logsumexp(-1), y.std(-1)]
        return self.last(torch.stack(parts, -1))


class Products(nn.Module):
    """einsum, bmm, matmul and PReLU of tensors that both come from layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.slope = nn.Linear(D, D), nn.Linear(D, D), nn.PReLU()
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a(x), self.slope(self.b(x))
        scores = torch.einsum("bid,bjd->bij", a, b) + torch.bmm(a, b.transpose(1, 2))
        return self.head(torch.softmax(scores, -1) @ torch.tanh(a) @ torch.ones(D, 6))


class Norms(nn.Module):
    """All normalizations in one network."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, 4, 3, padding=1) for c in (3, 4, 4, 4))
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.GroupNorm(2, 4),
                                    nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([4, 6, 6])])
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms):
            x = torch.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))


def bce_by_hand(p: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean()


def targets(width: int = D):
    return lambda n: {"x": torch.randn(n, D), "t": torch.rand(n, width)}


def loss(function: Callable) -> Network:
    return Network("dtypes", lambda: WithLoss(function), targets(), "output")


def function(call: Callable) -> Network:
    return Network("dtypes", lambda: Functions(call), rows(D))


def net(make, inputs, how: str = "cross-entropy") -> Network:
    return Network("dtypes", make, inputs, how)


OWN: Dict[str, Network] = {
    "resnet_block": net(Resnet, image(3, 12)),
    "mobile_block": net(Mobile, image(3, 6)),
    "unet": net(Unet, image(1, 8), "mse"),
    "vit_fused_attention": net(Vit, image(3, 8)),
    "decoder_rms_swiglu": net(Decoder, lambda n: {"ids": torch.randint(0, 20, (n, 6))}),
    "gan_generator": net(Generator, rows(D), "mse"),
    "gan_discriminator": net(Discriminator, lambda n: {
        "x": torch.randn(n, 1, 8, 8), "real": torch.rand(n, 1)}, "output"),
    "detection_head": net(Detector, lambda n: {
        "x": torch.randn(n, 3, 8, 8), "boxes": torch.rand(n, 4, 4, 4),
        "labels": torch.randint(0, 6, (n, 16))}, "output"),
    "reductions": net(Reductions, rows(D)),
    "products": net(Products, sequence(6, D)),
    "norms": net(Norms, image(3, 6)),
    "loss_cross_entropy": loss(lambda y, t: F.cross_entropy(y, t.argmax(-1))),
    "loss_bce_logits": loss(F.binary_cross_entropy_with_logits),
    "loss_bce_logits_weighted": loss(lambda y, t: F.binary_cross_entropy_with_logits(
        y, t, weight=torch.full((D,), 0.5), pos_weight=torch.full((D,), 2.0))),
    "loss_bce": loss(lambda y, t: F.binary_cross_entropy(torch.sigmoid(y), t)),
    "loss_bce_by_hand": loss(lambda y, t: bce_by_hand(torch.sigmoid(y), t)),
    "loss_mse": loss(F.mse_loss),
    "loss_l1": loss(F.l1_loss),
    "loss_smooth_l1": loss(F.smooth_l1_loss),
    "loss_huber": loss(F.huber_loss),
    "loss_kl": loss(lambda y, t: F.kl_div(y.log_softmax(-1), t.softmax(-1),
                                          reduction="batchmean")),
    "loss_of_mean": loss(lambda y, t: (y * t).mean() + y.square().mean()),
    **{f"f_{name}": function(call) for name, call in {
        "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
        "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
        "mish": F.mish, "softplus": F.softplus, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "elu": F.elu, "selu": F.selu, "celu": lambda x: F.celu(x, 0.5),
        "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "relu6": F.relu6,
        "logsigmoid": F.logsigmoid, "exp": torch.exp, "log": lambda x: torch.log(x.abs() + 1),
        "pow": lambda x: x ** 3, "pow_tensor": lambda x: (x.abs() + 1) ** x,
        "square": lambda x: x ** 2, "sqrt": lambda x: torch.sqrt(x.abs() + 1),
        "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
        "reciprocal": lambda x: torch.reciprocal(x.abs() + 1),
        "one_over": lambda x: 1 / (x.abs() + 1), "sin": torch.sin, "erf": torch.erf,
        "tan": torch.tan, "cosh": torch.cosh, "log2": lambda x: torch.log2(
            x.abs() + 1), "log1p": lambda x: torch.log1p(x.abs()), "expm1": torch.expm1,
        "cumsum": lambda x: x.cumsum(-1), "prod": lambda x: x * x.prod(-1, keepdim=True),
        "sum": lambda x: x / x.abs().sum(-1, keepdim=True),
        "mean": lambda x: x - x.mean(-1, keepdim=True),
        "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
        "normalize": F.normalize, "var": lambda x: x * x.var(-1, keepdim=True),
        "cosine": lambda x: x * F.cosine_similarity(x, x.roll(1, -1), -1)[:, None],
        "addcmul": lambda x: torch.addcmul(x, x.exp(), x),         "where": lambda x: torch.where(x > 0, x, x.exp()), "maximum": lambda x: torch.maximum(
            x, x.exp()), "clamp": lambda x: x.clamp(-1, 1), "cat": lambda x: torch.cat(
                [x[:, :4], x[:, 4:].exp()], -1),
        "layer_norm": lambda x: F.layer_norm(x, (D,)), "glu": lambda x: torch.cat(
            [F.glu(x, -1)] * 2, -1)}.items()},
    "interpolate_bilinear": net(lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(2, 1, 3)), image(1, 6), "mse"),
    "reflection_pad": net(lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReflectionPad2d(2), nn.Conv2d(2, 1, 3)), image(1, 6), "mse"),
    "adaptive_pools": net(lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)), image(3, 8)),
}

FROM_MATRIX = (
    "mlp_activations", "mlp_glu_prelu", "mlp_batch_norm", "mlp_dueling", "group_norm",
    "instance_norm", "layer_norm", "transformer_encoder", "transformer_encoder_prenorm",
    "transformer_decoder", "transformer_translator", "mha_masks", "tied_autoencoder",
    "shared_modules", "conv1d_wavenet", "conv3d", "pixel_shuffle_bilinear", "grid_sample_stn",
    "einsum_attention", "mixture_logsumexp", "siamese", "mlp_mixer", "min_gpt_tied",
    "sinusoidal_buffer", "class_token_layer_scale", "experts_bilinear", "rotary_rms")


def networks() -> Dict[str, Network]:
    return {**OWN, **{name: onnx_networks_plain.NETWORKS[name] for name in FROM_MATRIX}}
