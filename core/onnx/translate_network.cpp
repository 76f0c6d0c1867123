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

/// Normalizes with statistics that the network computes, as PyTorch writes layers that keep no
/// running statistics, and weights that are normalized.
void normalize_by_computed(Translation& t) {
  const Shape shape = t.shape(0);
  Shape channels(shape.size(), 1);
  channels[1] = shape[1];
  const ValueId x = t.real(0);
  ValueId mean = kNone, variance = kNone;
  if (t.attributes().integer("training_mode", 0) == 0) {
    mean = t.reshape(t.real(3, "running_mean"), channels, "mean");
    variance = t.reshape(t.real(4, "running_var"), channels, "variance");
  } else {
    Attributes others{{"keepdims", int64_t{1}}};
    std::vector<int64_t> axes{0};
    for (size_t axis = 2; axis < shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
    others["axes"] = axes;
    mean = t.add_step("ReduceMean", {x}, others, "mean");
    const ValueId centred = t.add_step("Sub", {x, mean}, {}, "deviation");
    const ValueId squares = t.add_step("Mul", {centred, centred}, {}, "squares");
    variance = t.add_step("ReduceMean", {squares}, others, "variance");
  }
  const double epsilon = t.attributes().real("epsilon", static_cast<double>(1e-5f));
  const ValueId centred = t.add_step("Sub", {x, mean}, {}, "centre");
  const ValueId shifted =
      t.add_step("Add", {variance, t.graph().add_constant(static_cast<float>(epsilon))}, {}, "eps");
  const ValueId deviation = t.add_step("Sqrt", {shifted}, {}, "sqrt");
  const ValueId normal = t.add_step("Div", {centred, deviation}, {}, "normalize");
  const ValueId weight = t.reshape(t.scale_or_bias(1, "weight"), channels, "weight");
  const ValueId bias = t.reshape(t.scale_or_bias(2, "bias"), channels, "bias");
  const ValueId scaled = t.add_step("Mul", {normal, weight}, {}, "scale");
  t.set(0, t.add("Add", {scaled, bias}));
}

void batch_normalization(Translation& t) {
  if (t.attributes().integer("spatial", 1) != 1)
    throw t.error("statistics per activation are not supported");
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("its input must have a batch and channels");
  if (!t.is_known(3) || !t.is_known(4)) return normalize_by_computed(t);
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

/// Moves the classes of scores [n, c, d ...] last and returns [n d ..., c].
ValueId class_rows(Translation& t, ValueId scores, const std::string& suffix) {
  const Shape shape = t.shape_of(scores);
  if (shape.size() < 2) throw t.error("its scores must have the shape [n, c, ...]");
  if (shape.size() == 2) return scores;
  std::vector<int64_t> order(shape.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  const int64_t rows = element_count(shape) / std::max<int64_t>(1, shape[1]);
  scores = t.add("Transpose", {scores}, {{"perm", order}}, suffix + "_last");
  return t.reshape(scores, {rows, shape[1]}, suffix == "classes" ? "rows" : suffix + "_rows");
}

/// Losses of rows that may have weights, in primitives. `logs` [rows, classes] are logarithms of
/// probabilities.
class RowLosses {
 public:
  RowLosses(Translation& t, ValueId logs) : t_(t), logs_(logs), rows_(t.shape_of(logs)[0]) {}

  /// Losses of labels: -weight[label] * logs[label].
  void of_labels(ValueId labels) {
    const Shape column{rows_, 1};
    const ValueId chosen = reshaped(labels, column, "labels");
    const auto number = [&](int64_t value) {
      return t_.graph().add_index_constant({}, {static_cast<int32_t>(value)});
    };
    ValueId safe = chosen;
    if (t_.attributes().has("ignore_index")) {
      const int64_t ignored = t_.attributes().integer("ignore_index", -1);
      if (ignored != static_cast<int32_t>(ignored)) throw t_.error("ignore_index is too large");
      const ValueId other = t_.add("Equal", {chosen, number(ignored)}, {}, "is_ignored");
      counted_ = t_.add("Not", {other}, {}, "counts");
      safe = t_.add("Where", {counted_, chosen, number(0)}, {}, "classes");
    }
    const ValueId picked =
        t_.add("GatherElements", {logs_, safe}, {{"axis", int64_t{1}}}, "picked");
    losses_ = t_.add("Neg", {picked}, {}, "losses");
    weights_ = t_.graph().add_constant(
        Tensor{column, std::vector<float>(static_cast<size_t>(rows_), 1.0f)});
    if (t_.has(2)) {
      const ValueId flat = t_.add("Gather", {t_.real(2), safe}, {{"axis", int64_t{0}}}, "weights");
      weights_ = t_.reshape(flat, column, "weight_rows");
      losses_ = t_.add("Mul", {losses_, weights_}, {}, "weighted");
    }
    if (counted_ == kNone) return;
    losses_ = t_.add("Where", {counted_, losses_, kNone}, {}, "counted");
    weights_ = t_.add("Where", {counted_, weights_, kNone}, {}, "counted_weights");
  }

  /// Losses of probabilities of all classes: the mean counts all rows alike, also with weights.
  void of_probabilities(ValueId targets) {
    ValueId products = t_.add("Mul", {targets, logs_}, {}, "products");
    if (t_.has(2)) products = t_.add("Mul", {products, t_.real(2)}, {}, "weighted");
    const ValueId sums =
        t_.add("ReduceSum", {products},
               {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}}, "sums");
    losses_ = t_.add("Neg", {sums}, {}, "losses");
  }

  /// Sets the output to the losses, reduced as the node says; unreduced ones have this shape.
  void reduce(const Shape& shape) {
    const std::string how = t_.attributes().text("reduction", "mean");
    const Attributes all{{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{0}}};
    if (how == "none") {
      t_.set(0, t_.add("Reshape", {losses_}, {{"shape", shape}, {"allowzero", int64_t{1}}}));
    } else if (how == "sum") {
      t_.set(0, t_.add("ReduceSum", {losses_}, all));
    } else if (how != "mean") {
      throw t_.error("the reduction '" + how + "' is unknown");
    } else if (weights_ == kNone) {
      t_.set(0, t_.add("ReduceMean", {losses_}, all));
    } else {
      // The quotient of the sums is the same, but they could overflow.
      const ValueId mean = t_.add("ReduceMean", {losses_}, all, "mean");
      t_.set(0, t_.add("Div", {mean, t_.add("ReduceMean", {weights_}, all, "share")}));
    }
  }

 private:
  ValueId reshaped(ValueId value, const Shape& shape, const std::string& suffix) {
    return t_.add("Reshape", {value}, {{"shape", shape}, {"allowzero", int64_t{1}}}, suffix);
  }

  Translation& t_;
  ValueId logs_;
  int64_t rows_;
  ValueId losses_ = kNone, weights_ = kNone, counted_ = kNone;
};

void reduce_rows(Translation& t, ValueId logs, bool probabilities) {
  Shape shape = t.shape(0);
  shape.erase(shape.begin() + 1);
  RowLosses losses(t, logs);
  if (probabilities) {
    losses.of_probabilities(class_rows(t, t.real(1), "targets"));
  } else {
    losses.of_labels(t.index(1));
  }
  losses.reduce(shape);
}

void cross_entropy(Translation& t) {
  const ValueId scores = class_rows(t, t.real(0), "classes");
  // PyTorch writes targets that are probabilities, too.
  const bool probabilities = !t.is_index(1) && t.shape(1) == t.shape(0);
  const bool plain = !t.has(2) && !probabilities &&
                     t.attributes().text("reduction", "mean") == "mean" &&
                     t.node().output_size() < 2;
  if (!plain) {
    const ValueId logs = t.add("LogSoftmax", {scores}, {{"axis", int64_t{1}}}, "log_softmax");
    if (t.node().output_size() > 1 && !t.node().output(1).empty()) {
      if (t.shape(0).size() > 2) throw t.error("its second output is not supported");
      t.set(1, logs);
    }
    return reduce_rows(t, logs, probabilities);
  }
  ValueId labels = t.index(1);
  if (t.shape(0).size() > 2) {
    const int64_t rows = t.shape_of(scores)[0];
    labels =
        t.add("Reshape", {labels}, {{"shape", Shape{rows}}, {"allowzero", int64_t{1}}}, "labels");
  }
  Attributes attributes;
  if (t.attributes().has("ignore_index"))
    attributes["ignore_index"] = t.attributes().integer("ignore_index", -1);
  t.set(0, t.add("SoftmaxCrossEntropyLoss", {scores, labels}, attributes));
}

void negative_log_likelihood(Translation& t) {
  reduce_rows(t, class_rows(t, t.real(0), "classes"), false);
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
    {"NegativeLogLikelihoodLoss", negative_log_likelihood},
};

}  // namespace

std::span<const Translator> network_translators() { return kNetworkTranslators; }

}  // namespace halfscope::onnx_files
