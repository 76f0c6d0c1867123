// SPDX-License-Identifier: MIT
// Built-in networks: functions that build a forward graph up to the loss. Node paths are the
// layer names; variables are PATH.weight and PATH.bias, initialised uniformly in
// +-1/sqrt(fan_in), as PyTorch's Linear and Conv2d are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/model.h"

namespace halfscope {

/// "mlp:A-B-...-Z", "lenet" or "lenet-hot", for samples of `sample_shape` [channels, h, w] and
/// `classes` classes. Throws Error (usage) if the name is unknown or the data does not fit.
Model build_model(const std::string& name, int64_t batch, const Shape& sample_shape,
                  int64_t classes);

/// The same without labels and loss, for add_loss() or for inference; its output is "logits".
Model build_network(const std::string& name, int64_t batch, const Shape& sample_shape,
                    int64_t classes);

/// {784, 512, 10} of "mlp:784-512-10". Throws Error (usage).
std::vector<int64_t> mlp_widths(const std::string& name);

/// What `--model` accepts.
std::vector<std::string> model_names();

/// Fully connected: fc1, relu1, fc2, ..., loss. widths = {inputs, hidden ..., classes}.
Model build_mlp(const std::vector<int64_t>& widths, int64_t batch, const Shape& sample_shape);

/// conv1 5x5 1-32, relu1, pool1 2x2, conv2 5x5 32-64, relu2, pool2 2x2, flatten, fc1 256, relu3,
/// fc2 classes, loss; valid padding. With `hot`, conv2's weights stand behind a fixed gain (gain2)
/// that the layer after it takes back (rescale2), so that conv2's values, and only these, lie
/// beyond 65504: it overflows fp16 whatever the loss scale.
Model build_lenet(int64_t batch, const Shape& sample_shape, int64_t classes, bool hot);

/// Initial values of all variables of the source graph, by path. Element i of variable t is
///   float(bits * 2^-23 - 1) * float(bound), bits = splitmix64(seed * 2^32 + t * 2^26 + i) >> 40.
NamedTensors initial_weights(const Graph& graph, uint64_t seed, const NamedTensors& given = {});

}  // namespace halfscope
