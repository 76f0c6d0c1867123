// SPDX-License-Identifier: MIT
// Products, normalizations and losses.
#include <algorithm>
#include <numeric>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

void gemm(Translation& t) {
  const ValueId a = t.real(0), b = t.weight(1, "weight");
  std::vector<ValueId> inputs{a, b};
  const double beta = t.attributes().real("beta", 1.0);
  if (t.has(2) && beta != 0.0) {
    ValueId c = t.weight(2, "bias");
    // The product kernels can add a single row of biases.
    const Shape shape = t.shape_of(c), weight = t.shape_of(b);
    if (shape.size() == 2 && shape[0] == 1 && shape[1] > 1 && weight.size() == 2)
      c = t.reshape(c, {shape[1]}, "bias");
    inputs.push_back(c);
  }
  Attributes attributes{{"transA", t.attributes().integer("transA", 0)},
                        {"transB", t.attributes().integer("transB", 0)}};
  const double alpha = t.attributes().real("alpha", 1.0);
  if (alpha != 1.0) attributes["alpha"] = alpha;
  if (beta != 1.0 && inputs.size() == 3) attributes["beta"] = beta;
  t.set(0, t.add("Gemm", inputs, attributes));
}

void mat_mul(Translation& t) {
  // Either side may be the weight. A constant beside a weight is not one, for example the initial
  // zeros of an unrolled network.
  const ValueId a = t.is_trained(1) ? t.real(0) : t.weight(0, "weight");
  const ValueId b = t.is_trained(0) ? t.real(1) : t.weight(1, "weight");
  t.set(0, t.add("MatMul", {a, b}));
}

void batch_normalization(Translation& t) {
  if (t.attributes().integer("spatial", 1) != 1)
    throw t.error("statistics per activation are not supported");
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("its input must have a batch and channels");
  const ValueId x = t.real(0), scale = t.scale_or_bias(1, "weight"),
                bias = t.scale_or_bias(2, "bias");
  const KnownTensor &mean = t.known(3, "mean"), &variance = t.known(4, "variance");
  if (!mean.real() || !variance.real()) throw t.error("its statistics must be reals");
  Attributes attributes{{"epsilon", t.attributes().real("epsilon", static_cast<double>(1e-5f))},
                        {"momentum", t.attributes().real("momentum", static_cast<double>(0.9f))}};
  // In a training export, a node without training_mode keeps its statistics fixed.
  const bool frozen =
      t.importer().is_training_export() && t.attributes().integer("training_mode", 0) == 0;
  if (frozen || element_count(shape) <= shape[1]) {  // a single value per channel has no variance
    const auto constant = [&](const KnownTensor& of) {
      return t.graph().add_constant(Tensor{of.shape, of.true_reals()});
    };
    t.set(0, t.add("BatchNormalization", {x, scale, bias, constant(mean), constant(variance)},
                   attributes));
    return;
  }
  attributes["training_mode"] = int64_t{1};
  const ValueId kept_mean = t.importer().buffer(mean, t.path(), "running_mean");
  const ValueId kept_variance = t.importer().buffer(variance, t.path(), "running_var");
  const std::vector<ValueId> outputs =
      t.add_all("BatchNormalization", {x, scale, bias, kept_mean, kept_variance}, attributes);
  t.importer().set_buffer_next(kept_mean, outputs[1]);
  t.importer().set_buffer_next(kept_variance, outputs[2]);
  t.set(0, outputs[0]);
}

double epsilon_of(Translation& t) {
  return t.attributes().real("epsilon", static_cast<double>(1e-5f));
}

void layer_normalization(Translation& t, const char* op) {
  const Shape shape = t.shape(0);
  const int64_t axis = checked_axis(t.attributes().integer("axis", -1), shape.size(), t.what());
  const Shape normalized(shape.begin() + axis, shape.end());
  // The scale may have any shape that broadcasts to the normalized dimensions.
  const auto parameter = [&](size_t i, const char* role) {
    const ValueId value = t.scale_or_bias(i, role);
    if (t.shape_of(value) == normalized) return value;
    return t.add("Expand", {value}, {{"shape", normalized}}, role);
  };
  std::vector<ValueId> inputs{t.real(0), parameter(1, "weight")};
  if (t.has(2)) inputs.push_back(parameter(2, "bias"));
  t.set(0, t.add(op, inputs, {{"axis", axis}, {"epsilon", epsilon_of(t)}}));
}
void layer_norm(Translation& t) { layer_normalization(t, "LayerNormalization"); }
void rms_norm(Translation& t) { layer_normalization(t, "RMSNormalization"); }

void instance_normalization(Translation& t) {
  const ValueId x = t.real(0), scale = t.scale_or_bias(1, "weight"),
                bias = t.scale_or_bias(2, "bias");
  t.set(0, t.add("InstanceNormalization", {x, scale, bias}, {{"epsilon", epsilon_of(t)}}));
}

void group_normalization(Translation& t) {
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("its input must have a batch and channels");
  const int64_t groups = t.attributes().integer("num_groups", 0);
  if (groups < 1 || shape[1] % groups != 0)
    throw t.error(std::to_string(groups) + " groups do not fit " + to_string(shape));
  // Up to opset 20, scale and bias are given per group instead of per channel.
  const auto per_channel = [&](size_t i, const char* role) {
    const ValueId value = t.scale_or_bias(i, role);
    if (t.shape_of(value) == Shape{shape[1]}) return value;
    const std::string suffix(role);
    const ValueId column = t.reshape(value, {groups, 1}, suffix);
    const ValueId wide =
        t.add("Expand", {column}, {{"shape", Shape{groups, shape[1] / groups}}}, suffix + "_wide");
    return t.reshape(wide, {shape[1]}, suffix + "_channels");
  };
  const ValueId x = t.real(0), scale = per_channel(1, "weight"), bias = per_channel(2, "bias");
  t.set(0, t.add("GroupNormalization", {x, scale, bias},
                 {{"num_groups", groups}, {"epsilon", epsilon_of(t)}}));
}

void cross_entropy(Translation& t) {
  if (t.has(2)) throw t.error("class weights are not supported");
  if (t.attributes().text("reduction", "mean") != "mean")
    throw t.error("only the reduction 'mean' is supported");
  ValueId scores = t.real(0), labels = t.index(1);
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("its scores must have the shape [n, c, ...]");
  if (shape.size() > 2) {  // reshape [n, c, d ...] to [n d ..., c]
    std::vector<int64_t> order(shape.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    const int64_t rows = element_count(shape) / std::max<int64_t>(1, shape[1]);
    scores = t.add("Transpose", {scores}, {{"perm", order}}, "classes_last");
    scores = t.reshape(scores, {rows, shape[1]}, "rows");
    labels =
        t.add("Reshape", {labels}, {{"shape", Shape{rows}}, {"allowzero", int64_t{1}}}, "labels");
  }
  Attributes attributes;
  if (t.attributes().has("ignore_index"))
    attributes["ignore_index"] = t.attributes().integer("ignore_index", -1);
  t.set(0, t.add("SoftmaxCrossEntropyLoss", {scores, labels}, attributes));
}

constexpr Translator kNetworkTranslators[] = {
    {"Gemm", gemm},
    {"MatMul", mat_mul},
    {"BatchNormalization", batch_normalization},
    {"LayerNormalization", layer_norm},
    {"RMSNormalization", rms_norm},
    {"SimplifiedLayerNormalization", rms_norm},
    {"InstanceNormalization", instance_normalization},
    {"GroupNormalization", group_normalization},
    {"SoftmaxCrossEntropyLoss", cross_entropy},
};

}  // namespace

std::span<const Translator> network_translators() { return kNetworkTranslators; }

}  // namespace halfscope::onnx_files
