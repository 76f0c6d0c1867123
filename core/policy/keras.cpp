// SPDX-License-Identifier: MIT
// The rules that do not depend on the network; keras_network.cpp adds those that do.
#include "core/policy/keras.h"

#include <map>

#include "core/graph/op_def.h"
#include "core/policy/frameworks.h"
#include "core/policy/keras_rules.h"

namespace halfscope {
namespace keras {
namespace {

/// How Keras treats the operands and results of an operator.
enum class Kind : uint8_t {
  layer,    ///< casts its inputs to the compute dtype and returns it
  raw,      ///< an operation without a layer: the dtype of its inputs
  moves,    ///< moves elements, so a cast before or after it gives the same numbers
  product,  ///< a layer that sums products
  island,   ///< a layer that computes in fp32 inside
  as_is,    ///< an island that does not cast its inputs (autocast=False) in Keras 3
  rows,     ///< an embedding: looks up in fp32, returns the compute dtype
  softmax,
  loss,
};

struct Row {
  Kind kind;
  const char* layer;  ///< the Keras layer or function that users call
};

/// By operator. Operators that are missing here are raw.
const std::map<std::string_view, Row>& rows() {
  static const std::map<std::string_view, Row> table{
      {"Gemm", {Kind::product, "Dense"}},
      {"MatMul", {Kind::product, "Dense, EinsumDense, Dot"}},
      {"Conv", {Kind::product, "Conv1D, Conv2D, Conv3D, DepthwiseConv2D"}},
      {"ConvGradInput", {Kind::product, "Conv1DTranspose, Conv2DTranspose, Conv3DTranspose"}},
      {"Attention", {Kind::product, "MultiHeadAttention"}},
      {"BatchNormalization", {Kind::island, "BatchNormalization"}},
      {"LayerNormalization", {Kind::as_is, "LayerNormalization"}},
      {"GroupNormalization", {Kind::as_is, "GroupNormalization"}},
      {"InstanceNormalization", {Kind::as_is, "GroupNormalization(groups=-1)"}},
      {"RMSNormalization", {Kind::island, "RMSNormalization"}},
      {"Softmax", {Kind::softmax, "Softmax"}},
      {"LogSoftmax", {Kind::softmax, "activation log_softmax"}},
      {"Gather", {Kind::rows, "Embedding"}},
      {"Add", {Kind::layer, "Add"}},
      {"Sub", {Kind::layer, "Subtract"}},
      {"Mul", {Kind::layer, "Multiply, Rescaling"}},
      {"Max", {Kind::layer, "Maximum"}},
      {"Min", {Kind::layer, "Minimum"}},
      {"Concat", {Kind::layer, "Concatenate"}},
      {"Relu", {Kind::layer, "ReLU"}},
      {"LeakyRelu", {Kind::layer, "LeakyReLU"}},
      {"PRelu", {Kind::layer, "PReLU"}},
      {"Elu", {Kind::layer, "ELU"}},
      {"Clip", {Kind::layer, "ReLU(max_value)"}},
      {"Sigmoid", {Kind::layer, "Activation(\"sigmoid\")"}},
      {"HardSigmoid", {Kind::layer, "Activation(\"hard_sigmoid\")"}},
      {"HardSwish", {Kind::layer, "Activation(\"hard_swish\")"}},
      {"Tanh", {Kind::layer, "Activation(\"tanh\")"}},
      {"Gelu", {Kind::layer, "Activation(\"gelu\")"}},
      {"Swish", {Kind::layer, "Activation(\"swish\")"}},
      {"LogSigmoid", {Kind::layer, "Activation(\"log_sigmoid\")"}},
      {"Mish", {Kind::layer, "Activation(\"mish\")"}},
      {"Softplus", {Kind::layer, "Activation(\"softplus\")"}},
      {"MaxPool", {Kind::layer, "MaxPooling1D, MaxPooling2D, MaxPooling3D"}},
      {"AveragePool", {Kind::layer, "AveragePooling1D, AveragePooling2D, AveragePooling3D"}},
      {"GlobalAveragePool", {Kind::layer, "GlobalAveragePooling2D"}},
      {"ReduceMean", {Kind::layer, "GlobalAveragePooling1D, GlobalAveragePooling2D"}},
      {"ReduceMax", {Kind::layer, "GlobalMaxPooling1D, GlobalMaxPooling2D"}},
      {"Flatten", {Kind::moves, "Flatten"}},
      {"Reshape", {Kind::moves, "Reshape"}},
      {"Transpose", {Kind::moves, "Permute"}},
      {"Expand", {Kind::moves, "UpSampling2D, RepeatVector"}},
      {"Slice", {Kind::moves, "Cropping2D"}},
      {"Split", {Kind::moves, "split"}},
      {"Pad", {Kind::moves, "ZeroPadding2D"}},
      {"Identity", {Kind::moves, "Identity"}},
      {"StopGradient", {Kind::moves, "stop_gradient"}},
      {"SoftmaxCrossEntropyLoss", {Kind::loss, "SparseCategoricalCrossentropy"}},
      {"MeanSquaredError", {Kind::loss, "MeanSquaredError"}},
  };
  return table;
}

constexpr const char* kDtypeFloat32 = "Set dtype=\"float32\" on this layer.";

PlanRule rule_of_op(const char* op, const KerasPolicy& policy) {
  const auto found = rows().find(op);
  const Row row = found == rows().end() ? Row{Kind::raw, ""} : found->second;
  const FloatFormat& compute = policy.compute;
  const std::string layer = row.layer;
  const std::string dtype = dtype_name(compute);
  PlanRule rule{.path = "", .op = op, .read = compute, .write = compute};
  rule.change = kDtypeFloat32;
  switch (row.kind) {
    case Kind::layer:
      rule.why = "A Keras layer (" + layer + ") casts its inputs to its compute dtype, " + dtype +
                 ", and returns it.";
      break;
    case Kind::product:
      rule.why = "A Keras layer (" + layer + ") casts inputs and weights to its compute dtype, " +
                 dtype + ", and returns it. Weights are stored in float32.";
      break;
    case Kind::island:
      rule.why = layer + " casts its inputs to " + dtype +
                 ", computes in float32 inside and returns " + dtype +
                 ". Its weights and statistics stay float32.";
      if (row.layer == std::string_view("RMSNormalization") && !policy.keras3)
        rule.why = "tf.keras has no RMSNormalization. This is what Keras 3 does.";
      break;
    case Kind::as_is:
      if (policy.keras3) {
        rule.read = kFp32;
        rule.why = layer +
                   " of Keras 3 takes its inputs as they arrive (autocast=False), computes "
                   "in float32 inside and returns " +
                   dtype + ". Its weights stay float32.";
      } else if (row.layer == std::string_view("LayerNormalization")) {
        rule.why = layer + " of tf.keras casts its inputs to " + dtype +
                   " and normalizes in float32. Its weights are stored in float32.";
      } else {
        rule.why = layer + " of tf.keras computes in " + dtype +
                   (compute == kFp16 ? ", and only mean and variance in float32."
                                     : ", mean and variance too.");
      }
      break;
    case Kind::softmax:
      rule.why = layer + " takes and returns the compute dtype, " + dtype +
                 ". Its kernel sums in float32.";
      rule.change = "Use Activation(\"softmax\", dtype=\"float32\").";
      break;
    case Kind::rows:
      rule.read = kFp32;
      rule.why = layer + " looks up rows of its float32 table and casts them to " + dtype + ".";
      break;
    case Kind::raw:
    case Kind::moves:
      rule.read = rule.write = std::nullopt;
      rule.follow = true;
      rule.why = row.kind == Kind::raw
                     ? "An operation outside Keras layers computes in the dtype of its inputs."
                     : "It only moves elements. So the dtype of its inputs gives the same "
                       "numbers as the cast of a Keras layer.";
      rule.change = "Cast its inputs, or set dtype=\"float32\" on the layer around it.";
      break;
    case Kind::loss:
      if (policy.keras3) {
        rule.read = rule.write = kFp32;
        rule.why = "A loss of Keras 3 casts predictions and targets to float32.";
        rule.change = "Give the loss a dtype: " + layer + "(dtype=\"float16\").";
      } else {
        rule.read = rule.write = std::nullopt;
        rule.follow = true;
        rule.why = "A loss of tf.keras casts the targets to the dtype of the predictions.";
        rule.change =
            "Make the predictions float32: Activation(\"linear\", dtype=\"float32\") as the last "
            "layer.";
      }
      break;
  }
  return rule;
}

std::string policy_name(const FloatFormat& compute) {
  return compute == kFp32 ? "float32" : "mixed_" + dtype_name(compute);
}

std::string preset_name(const KerasPolicy& policy) {
  return (policy.keras3 ? "keras3-" : "keras-") + policy_name(policy.compute);
}

const std::vector<KerasPolicy>& policies() {
  static const std::vector<KerasPolicy> all{{false, kFp16}, {false, kBf16}, {false, kFp32},
                                            {true, kFp16},  {true, kBf16},  {true, kFp32}};
  return all;
}

}  // namespace

std::string dtype_name(const FloatFormat& format) {
  return format == kFp16 ? "float16" : format == kBf16 ? "bfloat16" : "float32";
}

}  // namespace keras

std::optional<KerasPolicy> keras_policy(std::string_view preset) {
  for (const KerasPolicy& policy : keras::policies()) {
    if (keras::preset_name(policy) == preset) return policy;
  }
  return std::nullopt;
}

std::optional<KerasPolicy> keras_policy(const Plan& plan) {
  for (const KerasPolicy& policy : keras::policies()) {
    if (policy.compute != kFp32 && extends(plan, keras_plan(policy))) return policy;
  }
  return std::nullopt;
}

Plan keras_plan(const KerasPolicy& policy) {
  Plan plan;
  plan.name = keras::preset_name(policy);
  // Keras updates moving statistics in the forward pass, so skipped steps change them, too.
  plan.buffers = BufferCommit::always;
  plan.why = "The Keras policy is float32.";
  plan.change =
      "Set a mixed policy: " +
      std::string(policy.keras3 ? "keras.config.set_dtype_policy(\"mixed_float16\")."
                                : "mixed_precision.set_global_policy(\"mixed_float16\").");
  if (policy.compute == kFp32) return plan;
  plan.defaults.read = plan.defaults.write = policy.compute;
  plan.why = "A Keras layer casts its inputs to its compute dtype, " +
             keras::dtype_name(policy.compute) + ", and returns it.";
  plan.change = keras::kDtypeFloat32;
  if (!policy.keras3) {
    // A loss that HalfScope adds obeys only rules with a path. Rules by operator override this one
    // for all other nodes.
    const PlanRule loss = keras::rule_of_op("MeanSquaredError", policy);
    plan.rules.push_back({.path = "*", .op = "", .follow = true});
    plan.rules.back().why = loss.why;
    plan.rules.back().change = loss.change;
  }
  for (const OpDef& def : op_table()) {
    if (def.autocast != Autocast::internal)
      plan.rules.push_back(keras::rule_of_op(def.name, policy));
  }
  return plan;
}

std::vector<Preset> keras_presets() {
  std::vector<Preset> presets;
  for (const KerasPolicy& policy : keras::policies()) {
    const std::string package = policy.keras3 ? "Keras 3" : "tf.keras";
    Preset row{.info = {.name = keras::preset_name(policy), .group = "Keras", .summary = ""}};
    row.info.scaler = policy.keras3 ? "keras3" : "tf-keras";
    if (policy.compute == kFp32) {
      row.info.summary = package + "'s policy float32";
      row.make = [policy] { return keras_plan(policy); };
    } else {
      row.info.summary = package + "'s policy " + keras::policy_name(policy.compute) +
                         ", with its float32 islands";
      row.info.needs_network = true;
      row.make_for = [policy](const Model& network) { return keras_plan(policy, network); };
    }
    presets.push_back(std::move(row));
  }
  return presets;
}

}  // namespace halfscope
