// SPDX-License-Identifier: MIT
// Products, convolutions, pooling, normalizations and losses.
#include <algorithm>
#include <numeric>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 20;  // of strides, dilations, pads and kernels

/// How windows lie on the input, in two dimensions; those of one dimension have a height of 1.
struct Windows {
  std::vector<int64_t> kernel, strides, dilations, pads;
  size_t dimensions = 2;
};

/// Pads such that the output is the input divided by the stride, rounded up.
void pad_same(Windows& windows, const Shape& input, bool upper) {
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = input[input.size() - 2 + i];
    const int64_t out = (size + windows.strides[i] - 1) / windows.strides[i];
    const int64_t reach = windows.dilations[i] * (windows.kernel[i] - 1) + 1;
    const int64_t total = std::max<int64_t>(0, (out - 1) * windows.strides[i] + reach - size);
    windows.pads[i] = upper ? total / 2 : total - total / 2;
    windows.pads[i + 2] = total - windows.pads[i];
  }
}

/// `input` has four dimensions already.
Windows windows_of(Translation& t, const std::vector<int64_t>& kernel, const Shape& input) {
  const size_t d = kernel.size();
  Windows w;
  w.dimensions = d;
  w.kernel = bounded(t, kernel, 1, kMostSize, "a kernel size");
  w.strides = bounded(t, t.attributes().ints("strides", std::vector<int64_t>(d, 1)), 1, kMostSize,
                      "a stride");
  w.dilations = bounded(t, t.attributes().ints("dilations", std::vector<int64_t>(d, 1)), 1,
                        kMostSize, "a dilation");
  w.pads = bounded(t, t.attributes().ints("pads", std::vector<int64_t>(2 * d, 0)), 0, kMostSize,
                   "a pad");
  if (w.strides.size() != d || w.dilations.size() != d || w.pads.size() != 2 * d)
    throw t.error("strides, dilations and pads do not fit its kernel");
  if (d == 1) {
    w.kernel.insert(w.kernel.begin(), 1);
    w.strides.insert(w.strides.begin(), 1);
    w.dilations.insert(w.dilations.begin(), 1);
    w.pads = {0, w.pads[0], 0, w.pads[1]};
  }
  const std::string how = t.attributes().text("auto_pad", "NOTSET");
  if (how == "SAME_UPPER" || how == "SAME_LOWER") {
    pad_same(w, input, how == "SAME_UPPER");
  } else if (how == "VALID") {
    w.pads.assign(4, 0);
  } else if (how != "NOTSET" && !how.empty()) {
    throw t.error("does not know the padding " + how);
  }
  return w;
}

Attributes attributes_of(const Windows& w) {
  return {{"strides", w.strides}, {"dilations", w.dilations}, {"pads", w.pads}};
}

/// [n, c, l] as [n, c, 1, l].
ValueId as_image(Translation& t, ValueId x, const std::string& suffix) {
  Shape shape = t.shape_of(x);
  if (shape.size() == 3) shape.insert(shape.begin() + 2, 1);
  if (shape.size() != 4)
    throw t.error("works on one or two dimensions, not on " + to_string(shape));
  return t.reshape(x, shape, suffix);
}

/// And back, for what came with one dimension.
ValueId from_image(Translation& t, ValueId y, const Windows& w) {
  Shape shape = t.shape_of(y);
  if (w.dimensions == 2) return y;
  shape.erase(shape.begin() + 2);
  return t.reshape(y, shape, "line");
}

void conv(Translation& t) {
  const Shape kernel_shape = t.shape(1);
  if (kernel_shape.size() < 3) throw t.error("its weight has no kernel");
  std::vector<int64_t> kernel(kernel_shape.begin() + 2, kernel_shape.end());
  if (t.attributes().ints("kernel_shape", kernel) != kernel)
    throw t.error("kernel_shape differs from the weight's");
  const ValueId x = as_image(t, t.real(0), "image");
  const ValueId weight = as_image(t, t.weight(1, "weight"), "kernel");
  const Windows w = windows_of(t, kernel, t.shape_of(x));
  Attributes attributes = attributes_of(w);
  attributes["group"] =
      bounded(t, {t.attributes().integer("group", 1)}, 1, kMostSize, "a group")[0];
  std::vector<ValueId> inputs{x, weight};
  if (t.has(2)) inputs.push_back(t.weight(2, "bias"));
  t.set(0, from_image(t, t.add("Conv", inputs, attributes), w));
}

/// The gradient of a convolution with regard to its input, with a bias.
void conv_transpose(Translation& t) {
  const Shape kernel_shape = t.shape(1);
  if (kernel_shape.size() < 3) throw t.error("its weight has no kernel");
  const std::vector<int64_t> kernel(kernel_shape.begin() + 2, kernel_shape.end());
  const int64_t group =
      bounded(t, {t.attributes().integer("group", 1)}, 1, kMostSize, "a group")[0];
  if (t.attributes().text("auto_pad", "NOTSET") != "NOTSET" || t.attributes().has("output_shape"))
    throw t.error("auto_pad and output_shape are not supported");
  const ValueId x = as_image(t, t.real(0), "image");
  const ValueId weight = as_image(t, t.weight(1, "weight"), "kernel");
  const Shape in = t.shape_of(x);
  const Windows w = windows_of(t, kernel, in);
  std::vector<int64_t> extra =
      bounded(t, t.attributes().ints("output_padding", std::vector<int64_t>(kernel.size(), 0)), 0,
              kMostSize, "a pad");
  if (extra.size() == 1) extra.insert(extra.begin(), 0);
  if (extra.size() != 2) throw t.error("output_padding does not fit its kernel");
  Shape out{in[0], checked_count({kernel_shape[1], group}, t.what()), 0, 0};
  for (size_t i = 0; i < 2; ++i) {
    // The convolution of such an output would have more windows than the input has elements.
    if (extra[i] >= w.strides[i]) throw t.error("output_padding must be below the stride");
    out[i + 2] = (in[i + 2] - 1) * w.strides[i] + w.dilations[i] * (w.kernel[i] - 1) + 1 +
                 extra[i] - w.pads[i] - w.pads[i + 2];
  }
  checked_count(out, t.what());
  Attributes attributes = attributes_of(w);
  attributes["shape"] = out;
  attributes["group"] = group;
  ValueId y = t.add("ConvGradInput", {x, weight}, attributes, t.has(2) ? "product" : "");
  if (t.has(2)) {
    const ValueId bias = t.reshape(t.weight(2, "bias"), {1, out[1], 1, 1}, "bias");
    y = t.add("Add", {y, bias});
  }
  t.set(0, from_image(t, y, w));
}

void pool(Translation& t, const char* op, bool averages) {
  const std::vector<int64_t> kernel = t.attributes().ints("kernel_shape", {});
  if (kernel.empty()) throw t.error("has no kernel_shape");
  const ValueId x = as_image(t, t.real(0), "image");
  if (t.shape(0).size() != kernel.size() + 2) throw t.error("its kernel does not fit the input");
  const Windows w = windows_of(t, kernel, t.shape_of(x));
  Attributes attributes = attributes_of(w);
  attributes["kernel_shape"] = w.kernel;
  attributes["ceil_mode"] = t.attributes().integer("ceil_mode", 0);
  if (averages) attributes["count_include_pad"] = t.attributes().integer("count_include_pad", 0);
  t.set(0, from_image(t, t.add(op, {x}, attributes), w));
}
void max_pool(Translation& t) { pool(t, "MaxPool", false); }
void average_pool(Translation& t) { pool(t, "AveragePool", true); }

void global_average_pool(Translation& t) { t.set(0, t.add("GlobalAveragePool", {t.real(0)})); }

void global_max_pool(Translation& t) {
  std::vector<int64_t> axes(std::max<size_t>(t.shape(0).size(), 2) - 2);
  std::iota(axes.begin(), axes.end(), int64_t{2});
  if (axes.empty()) throw t.error("has nothing to pool");
  t.set(0, t.add("ReduceMax", {t.real(0)}, {{"axes", axes}, {"keepdims", int64_t{1}}}));
}

void gemm(Translation& t) {
  const ValueId a = t.real(0), b = t.weight(1, "weight");
  std::vector<ValueId> inputs{a, b};
  const double beta = t.attributes().real("beta", 1.0);
  if (t.has(2) && beta != 0.0) {
    ValueId c = t.weight(2, "bias");
    // One row of biases is what the product kernels add themselves.
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
  // Either side may be the weight.
  const ValueId a = t.weight(0, "weight"), b = t.weight(1, "weight");
  t.set(0, t.add("MatMul", {a, b}));
}

void batch_normalization(Translation& t) {
  if (t.attributes().integer("spatial", 1) != 1)
    throw t.error("statistics per activation are not supported");
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("needs a batch and channels");
  const ValueId x = t.real(0), scale = t.scale_or_bias(1, "weight"),
                bias = t.scale_or_bias(2, "bias");
  const KnownTensor &mean = t.known(3, "mean"), &variance = t.known(4, "variance");
  if (!mean.real() || !variance.real()) throw t.error("its statistics must be reals");
  Attributes attributes{{"epsilon", t.attributes().real("epsilon", static_cast<double>(1e-5f))},
                        {"momentum", t.attributes().real("momentum", static_cast<double>(0.9f))}};
  if (element_count(shape) <= shape[1]) {  // one value per channel has no variance
    const auto constant = [&](const KnownTensor& of) {
      return t.graph().add_constant(Tensor{of.shape, of.reals});
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
  // The scale may be anything that broadcasts to the normalized dimensions.
  const auto parameter = [&](size_t i, const char* role) {
    const ValueId value = t.weight(i, role);
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
  if (shape.size() < 2) throw t.error("needs a batch and channels");
  const int64_t groups = t.attributes().integer("num_groups", 0);
  if (groups < 1 || shape[1] % groups != 0)
    throw t.error(std::to_string(groups) + " groups do not fit " + to_string(shape));
  // Up to opset 20 the scale and the bias stand for groups, not for channels.
  const auto per_channel = [&](size_t i, const char* role) {
    const ValueId value = t.weight(i, role);
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
    throw t.error("only the mean is supported");
  ValueId scores = t.real(0), labels = t.index(1);
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("needs scores [n, c, ...]");
  if (shape.size() > 2) {  // [n, c, d ...] as [n d ..., c]
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
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"MaxPool", max_pool},
    {"AveragePool", average_pool},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalMaxPool", global_max_pool},
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
