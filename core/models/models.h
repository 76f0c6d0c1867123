// SPDX-License-Identifier: MIT
// Built-in networks: functions that build a forward graph up to the loss. Node paths are the layer
// names; variables are PATH.weight and PATH.bias. All are initialized from uniform distributions:
// by default in +-1/sqrt(fan_in) like PyTorch's Linear and Conv2d, elsewhere with the deviations
// that are usual for the network (see core/models/builders.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/model.h"

namespace halfscope {

/// Builds the network with this name (model_names()) and a loss, for samples of `sample_shape`
/// [channels, h, w], or [t] for tokens, and `classes` classes. Throws Error (usage) if the name is
/// unknown or the data does not fit.
Model build_model(const std::string& name, int64_t batch, const Shape& sample_shape,
                  int64_t classes);

/// Builds the same network without labels and loss, for add_loss() or for inference; its output is
/// "logits".
Model build_network(const std::string& name, int64_t batch, const Shape& sample_shape,
                    int64_t classes);

/// Parses "mlp:784-512-10" to {784, 512, 10}. Throws Error (usage).
std::vector<int64_t> mlp_widths(const std::string& name);

/// Samples that a network is usually trained on.
struct UsualSamples {
  Shape sample;
  int64_t classes = 0;
};
/// Returns the usual samples of a built-in network: ImageNet's if it was made for them, 1,024
/// tokens of GPT-2's vocabulary for gpt. Throws Error (usage) for an unknown name.
UsualSamples usual_samples(const std::string& name);

/// Returns the loss of a built-in network, as parse_loss() reads it. Throws Error (usage) for an
/// unknown name.
std::string usual_loss(const std::string& name);

/// Returns the names that `--model` accepts.
std::vector<std::string> model_names();

/// Throws Error (usage) if the name of a network is a PyTorch file's.
void refuse_torch_network(const std::string& model);

/// Builds a fully connected network: fc1, relu1, fc2, ..., loss. widths = {inputs, hidden ...,
/// classes}.
Model build_mlp(const std::vector<int64_t>& widths, int64_t batch, const Shape& sample_shape);

/// Builds conv1 5x5 1-32, relu1, pool1 2x2, conv2 5x5 32-64, relu2, pool2 2x2, flatten, fc1 256,
/// relu3, fc2 classes, loss; valid padding. With `hot`, conv2's weights are multiplied by a fixed
/// gain (gain2) that the next layer divides out (rescale2). Then conv2's outputs, and only these,
/// exceed 65504: conv2 overflows fp16 at any loss scale.
Model build_lenet(int64_t batch, const Shape& sample_shape, int64_t classes, bool hot);

/// Returns initial values of the variables of the source graph that `given` does not contain, by
/// path. Element i of variable t is
///   center + float(bits * 2^-23 - 1) * float(bound),
///   bits = splitmix64(start + i) >> 40, start = seed * 2^32 + t * 2^26,
/// and from t = 64 on splitmix64 of this start; t counts variables with a bound other than 0.
/// Throws Error (usage) if one has more than 2^26 elements.
NamedTensors initial_weights(const Graph& graph, uint64_t seed, const NamedTensors& given = {});

}  // namespace halfscope
