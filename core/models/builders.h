// SPDX-License-Identifier: MIT
// The networks behind build_model(), by family. All throw Error (usage) if the samples do not fit.
#pragma once

#include <array>

#include "core/models/layers.h"

namespace halfscope {

/// ResNet-20 of He et al. 2016 for CIFAR-10, with shortcuts without weights.
Model make_resnet20(const NetworkSize& size);

/// A ResNet with torchvision's layers and names, for images [3, h, w].
struct ResNetShape {
  std::array<int64_t, 4> blocks{};  ///< of each stage
  bool bottleneck = false;          ///< blocks of 1x1, 3x3 and 1x1 instead of 3x3 and 3x3
  int64_t width = 64;               ///< channels of the first stage's 3x3 convolutions
};
inline constexpr ResNetShape kResNet18{{2, 2, 2, 2}, false};
inline constexpr ResNetShape kResNet50{{3, 4, 6, 3}, true};
/// Images with a side below 64 pixels get the stem that is usual for CIFAR: a 3x3 convolution with
/// stride 1 and no pooling, instead of 7x7 with stride 2 and a max pool.
Model make_resnet(const NetworkSize& size, const ResNetShape& shape);

/// EfficientNet-Lite0 (TensorFlow's EfficientNet-Lite, 2020) with the layers and names of timm's
/// `efficientnet_lite0`, without dropout.
Model make_efficientnet_lite0(const NetworkSize& size);

/// Detectors for square images whose sides are multiples of 32: a small RetinaNet (Lin et al. 2017)
/// and a small EfficientDet (Tan, Pang and Le 2020). Outputs are "classes" and "boxes", see
/// core/models/detection_loss.h.
Model make_retinanet_small(const NetworkSize& size);
Model make_efficientdet_small(const NetworkSize& size);

/// GPT-2 (Radford et al. 2019) as in nanoGPT; the head shares the token table. The
/// sequence is the sample's only dimension, the vocabulary its classes.
struct GptShape {
  int64_t layers = 12, width = 768, heads = 12;
  /// Rotary position embeddings (Su et al. 2021), halves turned as in LLaMA, instead of learned
  /// positions.
  bool rotary = false;
  /// Share of the embeddings, and of what is added to the residual stream, that training drops.
  double dropout = 0.0;
};
/// Parses "gpt:LAYERSxWIDTHxHEADS[:rope][:dropout=P]". Throws Error (usage).
GptShape parse_gpt(const std::string& name);
Model make_gpt(const NetworkSize& size, const GptShape& shape);

}  // namespace halfscope
