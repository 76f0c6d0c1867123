// SPDX-License-Identifier: MIT
// Autocast decides by function of PyTorch, plans by operator. Where a file says which function a
// node comes from, the plan of its network has a rule for that node if the operator's rule differs.
#include "core/policy/torch.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>

#include "core/graph/op_def.h"
#include "core/plan/own_path.h"
#include "core/policy/frameworks.h"
#include "core/policy/torch_lists.h"

namespace halfscope {
namespace {

using enum TorchList;

/// The function of PyTorch behind each operator that a network may contain.
constexpr TorchFunction kFunctions[] = {
    {"Abs", "abs"},
    {"Accuracy", "argmax"},
    {"Acos", "acos"},
    {"Acosh", "acosh"},
    {"Add", "add"},
    {"And", "logical_and"},
    {"ArgMax", "argmax"},
    {"ArgSort", "argsort"},
    {"Asin", "asin"},
    {"Asinh", "asinh"},
    {"Atan", "atan"},
    {"Atanh", "atanh"},
    {"Attention", "scaled_dot_product_attention"},
    {"AveragePool", "avg_pool2d"},
    {"BatchNormalization", "batch_norm"},
    {"BitwiseAnd", "bitwise_and"},
    {"BitwiseOr", "bitwise_or"},
    {"BitwiseXor", "bitwise_xor"},
    {"Ceil", "ceil"},
    {"Clip", "clamp"},
    {"Dropout", "dropout"},
    {"Concat", "cat"},
    {"Conv", "conv2d"},
    {"ConvGradInput", "conv_transpose2d"},
    {"Cos", "cos"},
    {"CumSum", "cumsum"},
    {"Div", "div"},
    {"Elu", "elu"},
    {"Equal", "eq"},
    {"Erf", "erf"},
    {"Exp", "exp"},
    {"Expand", "expand"},
    {"Flatten", "flatten"},
    {"Floor", "floor"},
    {"Gather", "embedding"},
    {"GatherElements", "gather"},
    {"GatherElementsGrad", "scatter_add"},
    {"GatherGrad", "embedding_dense_backward"},
    {"Gelu", "gelu"},
    {"Gemm", "linear"},
    {"GlobalAveragePool", "adaptive_avg_pool2d"},
    {"Greater", "gt"},
    {"GreaterOrEqual", "ge"},
    {"GroupNormalization", "group_norm"},
    {"HardSigmoid", "hardsigmoid"},
    {"HardSwish", "hardswish"},
    {"Identity", "clone"},
    {"IndexToReal", "to"},
    {"InstanceNormalization", "instance_norm"},
    {"LayerNormalization", "layer_norm"},
    {"LeakyRelu", "leaky_relu"},
    {"Less", "lt"},
    {"LessOrEqual", "le"},
    {"Log", "log"},
    {"LogSigmoid", "log_sigmoid"},
    {"LogSoftmax", "log_softmax"},
    {"MatMul", "matmul"},
    {"Max", "maximum"},
    {"MaxPool", "max_pool2d"},
    {"MeanSquaredError", "mse_loss"},
    {"Min", "minimum"},
    {"Mish", "mish"},
    {"Mod", "remainder"},
    {"Mul", "mul"},
    {"Neg", "neg"},
    {"Not", "logical_not"},
    {"Or", "logical_or"},
    {"PRelu", "prelu"},
    {"Pad", "pad"},
    {"Pow", "pow"},
    {"RMSNormalization", "rms_norm"},
    {"RealToIndex", "to"},
    {"Reciprocal", "reciprocal"},
    {"ReduceMax", "amax"},
    {"ReduceMean", "mean"},
    {"ReduceMin", "amin"},
    {"ReduceSum", "sum"},
    {"Relu", "relu"},
    {"Reshape", "reshape"},
    {"Round", "round"},
    {"Sigmoid", "sigmoid"},
    {"Sign", "sign"},
    {"Sin", "sin"},
    {"Slice", "slice"},
    {"Softmax", "softmax"},
    {"SoftmaxCrossEntropyLoss", "cross_entropy_loss"},
    {"Softplus", "softplus"},
    {"Split", "split"},
    {"Sqrt", "sqrt"},
    {"StopGradient", "detach"},
    {"Sub", "sub"},
    {"Swish", "silu"},
    {"Tanh", "tanh"},
    {"Transpose", "permute"},
    {"Where", "where"},
};

struct Named {
  const char* name;
  TorchAutocast autocast;
  const char* summary;
};

constexpr std::array kPresets{
    Named{"torch-autocast-fp16",
          {true, kFp16},
          "torch.autocast(\"cuda\"), whose default dtype is float16"},
    Named{"torch-autocast-bf16", {true, kBf16}, "torch.autocast(\"cuda\", dtype=torch.bfloat16)"},
    Named{"torch-autocast-cpu-bf16",
          {false, kBf16},
          "torch.autocast(\"cpu\"), whose lists are other ones than CUDA's"},
    Named{
        "torch-autocast-cpu-fp16", {false, kFp16}, "torch.autocast(\"cpu\", dtype=torch.float16)"},
};

/// The words of one autocast.
struct Words {
  explicit Words(const TorchAutocast& autocast)
      : device(autocast.cuda ? "CUDA" : "CPU"),
        off(std::string("torch.autocast(\"") + (autocast.cuda ? "cuda" : "cpu") +
            "\", enabled=False)"),
        dtype(autocast.low == kFp16 ? "float16" : "bfloat16") {}
  std::string device, off, dtype;
};

/// Sets the texts of a rule for `function`.
void explain(const std::string& function, TorchList list, const Words& words, std::string& why,
             std::string& change) {
  const std::string name(function);
  switch (list) {
    case low:
      why = name + " is on autocast's list of lower precision (" + words.device +
            "), so it casts its inputs to " + words.dtype + ".";
      change = "For fp32, call it under " + words.off + " with inputs cast by .float().";
      return;
    case fp32:
      why = name + " is on autocast's fp32 list (" + words.device +
            "), so it casts its inputs to float32.";
      change = "For " + words.dtype + ", call it under " + words.off + ".";
      return;
    case set_dtype:
      why = name + " is on autocast's fp32 list (" + words.device +
            "), so it is called with dtype=torch.float32.";
      change = "Pass another dtype to it, or call it under " + words.off + ".";
      return;
    case promote:
      why = name + " is on autocast's promote list (" + words.device +
            "), so it runs in the widest dtype of its inputs.";
      change = "Cast its inputs: .float() for fp32.";
      return;
    case banned:
      why = name + " raises an error under autocast (" + words.device +
            "): a sigmoid and a logarithm in half precision lose the loss.";
      change = "Use binary_cross_entropy_with_logits on the values before the sigmoid.";
      return;
    case none:
      why = name + " is on none of autocast's lists (" + words.device +
            "), so it runs in the dtype of its inputs.";
      change = "Cast its inputs: .float() for fp32.";
      return;
  }
}

TorchList list_of(std::string_view function, const TorchAutocast& autocast) {
  const TorchListed* row = find_torch_listed(function);
  if (row == nullptr) return none;
  return autocast.cuda ? row->cuda : row->cpu;
}

/// Returns a rule without a selection.
PlanRule rule_for(const std::string& function, const TorchAutocast& autocast) {
  const TorchList list = list_of(function, autocast);
  PlanRule rule;
  explain(function, list, Words(autocast), rule.why, rule.change);
  rule.follow = list == none || list == promote;
  if (list == low) {
    rule.read = rule.write = autocast.low;
    rule.rounds_weights = true;
  }
  if (list == fp32 || list == set_dtype || list == banned) rule.read = rule.write = kFp32;
  return rule;
}

bool same_formats(const PlanRule& a, const PlanRule& b) {
  return a.follow == b.follow && a.read == b.read && a.write == b.write;
}

/// Returns the function that the file says this node comes from; nothing if it says none.
std::optional<std::string> function_of(const Node& node) {
  const int64_t number = int_attribute(node, kTorchFunction, kUnknownFunction);
  if (number == kUnknownFunction) return std::nullopt;
  if (number == 0) return "";
  return torch_lists()[static_cast<size_t>(number) - 1].name;
}

/// TorchScript's exporter broadcasts by adding zeros.
bool all_zero(const Tensor& tensor) {
  return std::all_of(tensor.data.begin(), tensor.data.end(), [](float x) { return x == 0.0f; });
}

/// Returns a rule for a node where the network's code casts or has switched autocast off: no list
/// decides there.
std::optional<PlanRule> rule_by_code(const Node& node, const TorchAutocast& autocast) {
  const auto own = [&](const char* attribute) {
    const std::vector<int64_t> values = ints_attribute(node, attribute);
    return values.size() == 2 ? values[autocast.cuda ? 0 : 1] : 0;
  };
  const Words words(autocast);
  PlanRule rule;
  if (const auto cast = static_cast<TorchCast>(own(kTorchCast)); cast != TorchCast::none) {
    rule.read = rule.write = cast == TorchCast::low ? autocast.low : kFp32;
    rule.why = "The code casts to " + (cast == TorchCast::low ? words.dtype : "float32") +
               " here, as .float() and .to(x.dtype) do.";
    rule.change = "Change the cast in the code.";
    return rule;
  }
  if (own(kAutocastOff) == 0) return std::nullopt;
  rule.follow = true;
  rule.why = "It runs inside of " + words.off + ", so in the dtype of its inputs.";
  rule.change = "Cast its inputs: .float() for fp32.";
  return rule;
}

/// Returns a rule for a node whose function the file names, if that differs from its operator's.
std::optional<PlanRule> rule_by_function(const Node& node, const std::string& usual,
                                         const TorchAutocast& autocast) {
  const std::optional<std::string> function = function_of(node);
  // Inside the fused attention, kernels compute in fp32 or as the operators' rules say.
  if (!function || *function == "scaled_dot_product_attention") return std::nullopt;
  const bool unlisted = list_of(*function, autocast) == none;
  // A product inside a function on no list, such as einsum on the CPU: the product is listed.
  if (unlisted && list_of(usual, autocast) == low) return std::nullopt;
  PlanRule rule = rule_for(*function, autocast);
  // A banned function has a rule even if it changes nothing: its reason says that PyTorch fails.
  const bool changes = !same_formats(rule, rule_for(usual, autocast));
  if (!changes && list_of(*function, autocast) != banned) return std::nullopt;
  if (unlisted) {
    rule.why =
        "This " + node.op +
        " is part of a function that is on none of autocast's lists, so it runs in the dtype "
        "of its inputs.";
  }
  return rule;
}

/// Returns a rule for an operator of two operands of which one is a constant tensor: the result has
/// the wider dtype. Numbers do not widen it.
std::optional<PlanRule> rule_by_constants(const Node& node, const std::string& usual,
                                          const TorchAutocast& autocast,
                                          const std::set<ValueId>& tensors) {
  static constexpr std::string_view kPromoting[] = {"Add", "Concat", "Div", "Max",
                                                    "Min", "Mul",    "Sub", "Where"};
  const bool promotes =
      std::find(std::begin(kPromoting), std::end(kPromoting), node.op) != std::end(kPromoting);
  // Constants inside an interpolation are the function's own.
  const std::optional<std::string> function = function_of(node);
  if (function && !function->empty()) return std::nullopt;
  const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId input) { return tensors.contains(input); });
  if (!promotes || !reads) return std::nullopt;
  PlanRule rule = rule_for(usual, autocast);
  if (!rule.follow) return std::nullopt;
  rule.follow = false;
  rule.read = rule.write = kFp32;
  rule.why += " One of them is a constant tensor of float32.";
  rule.change = "Cast the constant: constant.to(x.dtype).";
  return rule;
}

}  // namespace

std::optional<TorchAutocast> torch_autocast(std::string_view preset) {
  for (const Named& named : kPresets) {
    if (preset == named.name) return named.autocast;
  }
  return std::nullopt;
}

std::optional<TorchAutocast> torch_autocast(const Plan& plan) {
  for (const Named& named : kPresets) {
    if (extends(plan, torch_autocast_plan(named.autocast))) return named.autocast;
  }
  return std::nullopt;
}

const TorchFunction* torch_function(std::string_view op) {
  const auto* const found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                         [&](const TorchFunction& each) { return each.op == op; });
  return found == std::end(kFunctions) ? nullptr : found;
}

Plan torch_autocast_plan(const TorchAutocast& autocast) {
  Plan plan;
  for (const Named& named : kPresets) {
    if (named.autocast == autocast) plan.name = named.name;
  }
  plan.defaults.read = plan.defaults.write = autocast.low;
  plan.buffers = BufferCommit::always;  // the forward pass of a batch normalization moves them
  for (const OpDef& def : op_table()) {
    const TorchFunction* function = torch_function(def.name);
    if (function == nullptr || def.autocast == Autocast::internal) continue;
    PlanRule rule = rule_for(function->name, autocast);
    rule.op = def.name;
    plan.rules.push_back(std::move(rule));
  }
  return plan;
}

std::vector<PlanRule> torch_node_rules(const TorchAutocast& autocast, const Model& model) {
  std::vector<PlanRule> rules;
  std::set<ValueId> tensors;  // constants of several elements: tensors of float32, not numbers
  for (const Constant& constant : model.graph.constants()) {
    if (model.graph.value(constant.value).type == ElementType::real &&
        element_count(constant.tensor.shape) > 1 && !all_zero(constant.tensor)) {
      tensors.insert(constant.value);
    }
  }
  for (const Node& node : model.graph.nodes()) {
    const TorchFunction* usual = torch_function(node.op);
    if (usual == nullptr) continue;
    const std::optional<PlanRule> code = rule_by_code(node, autocast);
    std::optional<PlanRule> rule;
    if (!code) rule = rule_by_function(node, usual->name, autocast);
    if (!rule) rule = rule_by_constants(node, usual->name, autocast, tensors);
    if (!rule) rule = code;
    if (!rule) continue;
    rule->path = own_path_glob(node.path);
    rules.push_back(*std::move(rule));
  }
  return rules;
}

Plan torch_autocast_plan(const TorchAutocast& autocast, const Model& model) {
  Plan plan = torch_autocast_plan(autocast);
  for (PlanRule& rule : torch_node_rules(autocast, model)) plan.rules.push_back(std::move(rule));
  return plan;
}

std::vector<Preset> torch_presets() {
  std::vector<Preset> rows;
  for (const Named& named : kPresets) {
    rows.push_back(
        {.info = {named.name, "PyTorch", named.summary},
         .make = [autocast = named.autocast] { return torch_autocast_plan(autocast); },
         .make_for = [autocast = named.autocast](
                         const Model& network) { return torch_autocast_plan(autocast, network); }});
  }
  return rows;
}

}  // namespace halfscope
