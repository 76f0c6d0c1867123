// SPDX-License-Identifier: MIT
#include "core/models/layers.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "core/models/detection_loss.h"

namespace halfscope {

std::vector<std::string_view> split_sizes(std::string_view text, char separator) {
  std::vector<std::string_view> items;
  for (size_t end = text.find(separator); end != text.npos; end = text.find(separator)) {
    items.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  items.push_back(text);
  return items;
}

int64_t size_in(std::string_view text) {
  int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && size >= 1 && size <= int64_t{1} << 20 ? size : 0;
}

double fan_in_bound(int64_t fan_in) { return 1.0 / std::sqrt(static_cast<double>(fan_in)); }

double bound_of_deviation(double deviation) { return deviation * std::sqrt(3.0); }

ValueId add_batch_norm(Graph& graph, const std::string& path, std::vector<ValueId> inputs) {
  const ValueId mean = inputs.at(3), var = inputs.at(4);
  const std::vector<ValueId> outputs = graph.add("BatchNormalization", path, std::move(inputs),
                                                 {{"training_mode", int64_t{1}},
                                                  {"epsilon", 1e-5},
                                                  {"momentum", 0.9},
                                                  {"unbiased", int64_t{1}}});
  for (Variable& variable : graph.variables()) {
    if (variable.value == mean) variable.next = outputs[1];
    if (variable.value == var) variable.next = outputs[2];
  }
  return outputs[0];
}

void Layers::add_labels(int64_t rows) {
  if (size_.with_loss) model_.labels = graph().add_input("labels", {rows}, ElementType::index);
}

ValueId Layers::samples(Labels labels) {
  Shape shape{size_.batch};
  shape.insert(shape.end(), size_.sample.begin(), size_.sample.end());
  model_.input = graph().add_input("input", shape);
  if (labels == Labels::one) add_labels(size_.batch);
  return model_.input;
}

ValueId Layers::tokens() {
  const int64_t sequence = size_.sample.at(0);
  const ValueId tokens = graph().add_input("tokens", {size_.batch, sequence}, ElementType::index);
  add_labels(size_.batch * sequence);
  return tokens;
}

ValueId Layers::max_pool(const std::string& path, ValueId x, Window window) {
  return op("MaxPool", path, {x},
            {{"kernel_shape", std::vector<int64_t>(2, window.kernel)},
             {"strides", std::vector<int64_t>(2, window.stride)},
             {"pads", std::vector<int64_t>(4, window.pad)}});
}

ValueId Layers::linear(const std::string& path, ValueId x, int64_t out) {
  const Initializer initial{fan_in_bound(shape(x).at(1))};
  return linear(path, x, out, initial, initial);
}

ValueId Layers::linear(const std::string& path, ValueId x, int64_t out, Initializer weight,
                       Initializer bias) {
  const ValueId w = graph().add_variable(path + ".weight", {out, shape(x).at(1)}, weight);
  const ValueId b = graph().add_variable(path + ".bias", {out}, bias);
  return op("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
}

ValueId Layers::conv_weight(const std::string& path, ValueId x, int64_t out, int64_t kernel,
                            Initializer initial, int64_t groups) {
  return graph().add_variable(path + ".weight", {out, shape(x).at(1) / groups, kernel, kernel},
                              initial);
}

ValueId Layers::conv(const std::string& path, ValueId x, ValueId weight, Window window,
                     int64_t groups) {
  Attributes attributes{{"strides", std::vector<int64_t>(2, window.stride)},
                        {"pads", std::vector<int64_t>(4, window.pad)}};
  if (groups != 1) attributes["group"] = groups;
  return op("Conv", path, {x, weight}, std::move(attributes));
}

ValueId Layers::batch_norm(const std::string& path, ValueId x) {
  const Shape channels{shape(x).at(1)};
  const ValueId weight = graph().add_variable(path + ".weight", channels, {.center = 1.0});
  const ValueId bias = graph().add_variable(path + ".bias", channels, {});
  const ValueId mean = graph().add_buffer(path + ".running_mean", channels, {});
  const ValueId var = graph().add_buffer(path + ".running_var", channels, {.center = 1.0});
  return add_batch_norm(graph(), path, {x, weight, bias, mean, var});
}

ValueId Layers::layer_norm(const std::string& path, ValueId x) {
  const Shape channels{shape(x).back()};
  const ValueId weight = graph().add_variable(path + ".weight", channels, {.center = 1.0});
  const ValueId bias = graph().add_variable(path + ".bias", channels, {});
  return op("LayerNormalization", path, {x, weight, bias}, {{"epsilon", 1e-5}});
}

Model Layers::finish_detector(ValueId classes, ValueId codes) {
  model_.outputs = {{"classes", classes}, {"boxes", codes}};
  if (size_.with_loss) add_detection_loss(model_, classes, codes);
  return std::move(model_);
}

Model Layers::finish(ValueId logits) {
  model_.outputs.push_back({"logits", logits});
  if (!size_.with_loss) return std::move(model_);
  model_.logits = logits;
  model_.first_loss_node = static_cast<NodeId>(graph().nodes().size());
  model_.loss = op("SoftmaxCrossEntropyLoss", "loss", {logits, model_.labels});
  return std::move(model_);
}

}  // namespace halfscope
