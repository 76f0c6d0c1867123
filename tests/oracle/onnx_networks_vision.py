# SPDX-License-Identifier: MIT
"""Small networks of torchvision and timm, for onnx_matrix.py: CNNs, vision transformers,
segmentation."""
from functools import partial
from typing import Dict, List

import timm
import torch
import torchvision
from torch import nn
import torch.nn.functional as F
from timm.models import beit, cait, deit, metaformer, mlp_mixer, vision_transformer
from torchvision import models as tv
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import MBConvConfig
from torchvision.models.googlenet import BasicConv2d, Inception
from torchvision.models.mobilenetv3 import InvertedResidualConfig
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.vgg import make_layers

from onnx_network import Network, image


class TinyResNet(nn.Module):
    """torchvision's ResNet with narrow layers."""

    def __init__(self, block, width: int, norm=nn.BatchNorm2d, blocks: int = 2) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width)
        self.inputs = width
        self.layer1 = self.layer(block, width, blocks, 1, norm)
        self.layer2 = self.layer(block, 2 * width, blocks, 2, norm)
        self.fc = nn.Linear(self.inputs, 10)

    def layer(self, block, planes: int, blocks: int, stride: int, norm) -> nn.Module:
        outputs = planes * block.expansion
        down = None
        if stride != 1 or self.inputs != outputs:
            down = nn.Sequential(nn.Conv2d(self.inputs, outputs, 1, stride, bias=False),
                                 norm(outputs))
        layers: List[nn.Module] = [block(self.inputs, planes, stride, down, norm_layer=norm)]
        self.inputs = outputs
        layers += [block(outputs, planes, norm_layer=norm) for _ in range(blocks - 1)]
        return nn.Sequential(*layers)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


def frozen_resnet() -> nn.Module:
    """A detector's backbone: batch norms whose statistics and scales are buffers."""
    model = TinyResNet(BasicBlock, 8, torchvision.ops.FrozenBatchNorm2d)
    for module in model.modules():
        if isinstance(module, torchvision.ops.FrozenBatchNorm2d):
            module.weight.uniform_(0.5, 1.5)
            module.bias.uniform_(-0.2, 0.2)
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return model


def mobilenet_v2() -> nn.Module:
    return tv.MobileNetV2(10, 0.25, [[1, 16, 1, 1], [6, 24, 1, 2], [6, 32, 1, 1]], dropout=0.0)


def mobilenet_v3() -> nn.Module:
    conf = partial(InvertedResidualConfig, width_mult=0.5)
    blocks = [conf(16, 3, 16, 16, True, "RE", 2, 1), conf(16, 3, 48, 24, False, "RE", 2, 1),
              conf(24, 5, 64, 32, True, "HS", 1, 1)]
    return tv.MobileNetV3(blocks, 64, 10, dropout=0.0)


def efficientnet() -> nn.Module:
    conf = partial(MBConvConfig, width_mult=0.25, depth_mult=1.0)
    blocks = [conf(1, 3, 1, 32, 16, 1), conf(6, 3, 2, 16, 24, 2), conf(6, 5, 2, 24, 40, 1)]
    return tv.EfficientNet(blocks, 0.0, 0.0, 10, last_channel=64)


def inception() -> nn.Module:
    return nn.Sequential(BasicConv2d(3, 16, kernel_size=3, padding=1),
                         nn.MaxPool2d(3, 2, ceil_mode=True), Inception(16, 8, 8, 12, 4, 8, 8),
                         Inception(36, 8, 8, 12, 4, 8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(36, 10))


class Vgg(nn.Module):
    """torchvision's VGG with few layers; its own class makes 100 million weights first."""

    def __init__(self, batch_norm: bool) -> None:
        super().__init__()
        self.features = make_layers([8, "M", 16, 16, "M", 32, "M"], batch_norm)
        self.avgpool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(nn.Linear(128, 32), nn.ReLU(True), nn.Dropout(0.0),
                                        nn.Linear(32, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def squeezenet() -> nn.Module:
    fire = tv.squeezenet.Fire
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, ceil_mode=True),
                         fire(16, 4, 16, 16), fire(32, 4, 16, 16), nn.Conv2d(32, 10, 1),
                         nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def regnet() -> nn.Module:
    params = tv.regnet.BlockParams.from_init_params(depth=4, w_0=8, w_a=8.0, w_m=2.0,
                                                    group_width=8, se_ratio=0.25)
    return tv.RegNet(params, 10, stem_width=8)


def convnext() -> nn.Module:
    return tv.ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 2)], 0.0, 1.0, 10)


def mnasnet() -> nn.Module:
    block = tv.mnasnet._stack
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         block(8, 12, 3, 2, 3, 2, 0.01), block(12, 16, 5, 1, 3, 1, 0.01),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def begun(model: nn.Module) -> nn.Module:
    """With a head that is not all zeros, so that outputs say something."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=0.1)
    return model


def timm_model(name: str, **how):
    return lambda: timm.create_model(name, pretrained=False, num_classes=10, **how)


class Unet(nn.Module):
    """Two levels down and up again with connections across, up by the given module."""

    def __init__(self, up, norm: bool = False) -> None:
        super().__init__()
        self.down1, self.down2 = self.double(2, 8, norm), self.double(8, 16, norm)
        self.middle = self.double(16, 16, norm)
        self.up2, self.up1 = up(16), up(8)
        self.merge2, self.merge1 = self.double(32, 8, norm), self.double(16, 8, norm)
        self.last = nn.Conv2d(8, 2, 1)

    @staticmethod
    def double(inputs: int, outputs: int, norm: bool) -> nn.Module:
        middle: List[nn.Module] = [nn.BatchNorm2d(outputs)] if norm else []
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), *middle, nn.ReLU(),
                             nn.Conv2d(outputs, outputs, 3, padding=1), nn.LeakyReLU(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.merge2(torch.cat([b, self.up2(self.middle(F.max_pool2d(b, 2)))], 1))
        return self.last(self.merge1(torch.cat([a, self.up1(x)], 1)))


class Segment(nn.Module):
    """A narrow backbone, one of torchvision's heads, and interpolation to the image's size."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.classifier = TinyResNet(BasicBlock, 16, blocks=1), head
        self.backbone.fc = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.classifier(self.backbone.features(x))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


def aspp() -> nn.Module:
    head = tv.segmentation.deeplabv3.ASPP(32, [2, 4], 16)
    head.project[3] = nn.Identity()  # a dropout
    return nn.Sequential(head, nn.Conv2d(16, 3, 1))


class Lraspp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = TinyResNet(BasicBlock, 8, blocks=1)
        self.backbone.fc = nn.Identity()
        self.classifier = tv.segmentation.lraspp.LRASPPHead(8, 16, 3, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.backbone.layer1(F.relu(self.backbone.bn1(self.backbone.conv1(x))))
        y = self.classifier({"low": low, "high": self.backbone.layer2(low)})
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class Pyramid(nn.Module):
    """torchvision's feature pyramid: one top-down path by nearest interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.body1, self.body2 = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.fpn = torchvision.ops.FeaturePyramidNetwork([8, 16], 8)
        self.head = nn.Conv2d(8, 2, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.relu(self.body1(x))
        levels = self.fpn({"a": a, "b": F.relu(self.body2(a))})
        return torch.cat([self.head(level).flatten(2) for level in levels.values()], 2)


def fcn_head() -> nn.Module:
    head = tv.segmentation.fcn.FCNHead(32, 3)
    head[3] = nn.Identity()  # a dropout
    return head


def net(family: str, make, side: int = 32, lr: float = 0.05, loss: str = "cross-entropy",
        channels: int = 3) -> Network:
    return Network(family, make, image(channels, side), loss, lr)


def cnn(make, **how) -> Network:
    return net("cnn", make, **how)


def vit(make, side: int = 16, **how) -> Network:
    return net("vit", make, side, **how)


def unet(make, side: int = 16, **how) -> Network:
    return net("unet", make, side, loss="mse", lr=how.pop("lr", 0.1), **how)


SMALL = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_classes": 10}
NETWORKS: Dict[str, Network] = {
    "resnet_basic": cnn(lambda: TinyResNet(BasicBlock, 8)),
    "resnet_bottleneck": cnn(lambda: TinyResNet(Bottleneck, 16, blocks=1), lr=0.02),
    "resnet_frozen_bn": cnn(frozen_resnet),
    "mobilenet_v2": cnn(mobilenet_v2, lr=0.01),
    "mobilenet_v3": cnn(mobilenet_v3, side=64, lr=0.2),
    "efficientnet": cnn(efficientnet),
    "densenet": cnn(lambda: tv.DenseNet(8, (2, 2), 8, num_classes=10)),
    "shufflenet_v2": cnn(lambda: tv.ShuffleNetV2([2, 2, 1], [8, 16, 32, 64, 64], 10), side=64),
    "squeezenet": cnn(squeezenet),
    "regnet": cnn(regnet),
    "convnext": cnn(convnext),
    "googlenet_inception": cnn(inception),
    "vgg": cnn(lambda: Vgg(False)),
    "vgg_bn": cnn(lambda: Vgg(True)),
    "mnasnet": cnn(mnasnet, lr=0.1),
    "timm_resnet_se": cnn(timm_model("seresnet18", channels=(8, 16, 16, 16), stem_width=8,
                                     layers=(1, 1, 1, 1)), side=64, lr=0.02),
    "timm_resnetv2": cnn(timm_model("resnetv2_50", layers=(1, 1), channels=(16, 32),
                                       stem_chs=8)),
    "timm_convnext_grn": cnn(lambda: timm.models.ConvNeXt(
        num_classes=10, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), use_grn=True,
        ls_init_value=None), side=64),
    "timm_ghostnet": cnn(lambda: timm.models.GhostNet(
        [[[3, 16, 16, 0, 1]], [[3, 32, 24, 0.25, 2]], [[5, 48, 24, 0.25, 1]]], num_classes=10,
        width=0.5, drop_rate=0.0)),
    "vit_torchvision": vit(lambda: begun(
        tv.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=10))),
    "swin": vit(lambda: tv.SwinTransformer([2, 2], 16, [2, 2], [2, 2], [2, 2],
                                           stochastic_depth_prob=0.0, num_classes=10)),
    "swin_v2": vit(lambda: tv.SwinTransformer(
        [2, 2], 16, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0, num_classes=10,
        block=tv.swin_transformer.SwinTransformerBlockV2,
        downsample_layer=tv.swin_transformer.PatchMergingV2)),
    "maxvit": vit(lambda: tv.MaxVit((16, 16), 8, 2, [8, 16], [1, 1], 8, 0.0, num_classes=10),
                  lr=0.2),
    "timm_vit": vit(lambda: vision_transformer.VisionTransformer(num_heads=2, **SMALL)),
    "timm_vit_gap_rms": vit(lambda: vision_transformer.VisionTransformer(
        num_heads=2, global_pool="avg", qk_norm=True, init_values=0.1, **SMALL)),
    "timm_deit_distilled": vit(lambda: deit.VisionTransformerDistilled(num_heads=2, **SMALL)),
    "timm_beit": vit(lambda: beit.Beit(num_heads=2, init_values=0.1, use_rel_pos_bias=True,
                                       use_abs_pos_emb=False, **SMALL)),
    "timm_cait": vit(lambda: cait.Cait(num_heads=2, init_values=0.1, depth_token_only=1, **SMALL)),
    "timm_mixer": vit(lambda: begun(mlp_mixer.MlpMixer(
        num_classes=10, img_size=16, patch_size=4, num_blocks=2, embed_dim=16))),
    "timm_poolformer": vit(lambda: metaformer.MetaFormer(
        num_classes=10, depths=(1, 1), dims=(8, 16), token_mixers=metaformer.Pooling,
        norm_layers=metaformer.GroupNorm1, mlp_act=nn.GELU, use_mlp_head=False), 32),
    "timm_xcit": vit(timm_model("xcit_nano_12_p16_224", img_size=32, embed_dim=16, depth=1,
                                num_heads=2, cls_attn_layers=1), 32),
    "unet_transposed": unet(lambda: Unet(lambda c: nn.ConvTranspose2d(c, c, 2, 2)), channels=2),
    "unet_bilinear": unet(lambda: Unet(lambda c: nn.Upsample(
        scale_factor=2, mode="bilinear", align_corners=True)), channels=2),
    "unet_nearest_bn": unet(lambda: Unet(lambda c: nn.Upsample(scale_factor=2), True), channels=2),
    "fcn": unet(lambda: Segment(fcn_head())),
    "deeplab_aspp": unet(lambda: Segment(aspp())),
    "lraspp": unet(Lraspp, 64),
    "feature_pyramid": unet(Pyramid),
}
