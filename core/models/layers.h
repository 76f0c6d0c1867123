// SPDX-License-Identifier: MIT
// Layers: builds a network layer by layer, for the files of built-in networks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/model.h"

namespace halfscope {

/// A built-in network and the samples that it is built for.
struct NetworkSize {
  std::string name;  ///< of the model
  int64_t batch = 1;
  Shape sample{};  ///< of one sample, without the batch
  int64_t classes = 0;
  bool with_loss = true;  ///< adds labels, and cross-entropy of the logits
};

/// Windows of a convolution or a pool, the same in both directions.
struct Window {
  int64_t kernel = 1, stride = 1, pad = 0;
};

/// Adds a batch normalization in training mode with PyTorch's defaults: epsilon 1e-5, momentum 0.1
/// in its terms, the sample's variance kept. `inputs`: x, scale, shift, running mean and variance,
/// of which the last two are variables that it updates.
ValueId add_batch_norm(Graph& graph, const std::string& path, std::vector<ValueId> inputs);

class Layers {
 public:
  explicit Layers(NetworkSize size) : size_(std::move(size)) { model_.name = size_.name; }

  /// Add the inputs: real samples [batch, sample ...] with one label each, or tokens [batch, t]
  /// with one label per token.
  enum class Labels : uint8_t { one, none };
  ValueId samples(Labels labels = Labels::one);
  ValueId tokens();

  Graph& graph() { return model_.graph; }
  const Shape& shape(ValueId value) const { return model_.graph.value(value).shape; }
  const NetworkSize& size() const { return size_; }

  ValueId op(const std::string& op, const std::string& path, std::vector<ValueId> inputs,
             Attributes attributes = {}) {
    return graph().add1(op, path, std::move(inputs), std::move(attributes));
  }
  ValueId relu(const std::string& path, ValueId x) { return op("Relu", path, {x}); }
  ValueId add(const std::string& path, ValueId a, ValueId b) { return op("Add", path, {a, b}); }
  ValueId flatten(const std::string& path, ValueId x) { return op("Flatten", path, {x}); }
  ValueId reshape(const std::string& path, ValueId x, Shape to) {
    return op("Reshape", path, {x}, {{"shape", std::move(to)}});
  }
  ValueId transpose(const std::string& path, ValueId x, std::vector<int64_t> axes) {
    return op("Transpose", path, {x}, {{"perm", std::move(axes)}});
  }
  ValueId scale(const std::string& path, ValueId x, float factor) {
    return op("Mul", path, {x, graph().add_constant(factor)});
  }
  ValueId max_pool(const std::string& path, ValueId x, Window window);

  /// Adds x w^T + b for x [n, in], with w [out, in] and b [out]. By default both are initialized
  /// like PyTorch's Linear.
  ValueId linear(const std::string& path, ValueId x, int64_t out);
  ValueId linear(const std::string& path, ValueId x, int64_t out, Initializer weight,
                 Initializer bias);

  /// Adds the weight of a convolution, [out, in / groups, kernel, kernel].
  ValueId conv_weight(const std::string& path, ValueId x, int64_t out, int64_t kernel,
                      Initializer initial, int64_t groups = 1);
  /// Adds a convolution without a bias, with these weights.
  ValueId conv(const std::string& path, ValueId x, ValueId weight, Window window,
               int64_t groups = 1);
  /// Adds PATH.weight, PATH.bias and running statistics, and their batch normalization.
  ValueId batch_norm(const std::string& path, ValueId x);
  /// Adds PATH.weight and PATH.bias of a LayerNormalization over the last dimension.
  ValueId layer_norm(const std::string& path, ValueId x);

  /// Ends the network with its logits [rows, classes] and, if asked for, the loss.
  Model finish(ValueId logits);
  /// The same for a detector: logits [samples, anchors, labels] and codes of boxes [samples,
  /// anchors, 4].
  Model finish_detector(ValueId classes, ValueId codes);

 private:
  void add_labels(int64_t rows);

  NetworkSize size_;
  Model model_;
};

/// Split "784-512-10" at the separator, and read one size: a number from 1 to 2^20, or 0 if it is
/// not one.
std::vector<std::string_view> split_sizes(std::string_view text, char separator);
int64_t size_in(std::string_view text);

/// Returns 1 / sqrt(fan in), the bound of PyTorch's Linear and Conv2d.
double fan_in_bound(int64_t fan_in);
/// Returns the bound of a uniform distribution with this standard deviation.
double bound_of_deviation(double deviation);

}  // namespace halfscope
