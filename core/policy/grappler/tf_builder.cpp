// SPDX-License-Identifier: MIT
#include "core/policy/grappler/tf_builder.h"

#include <algorithm>
#include <array>

#include "core/policy/grappler/type_graph.h"

namespace halfscope::grappler {
namespace {

using Names = std::vector<std::string>;

struct OpName {
  std::string_view ours, theirs;
};

/// Operators that are one operator of TensorFlow's, with its floating operands in any order.
constexpr auto kSame = std::to_array<OpName>({{"Abs", "Abs"},
                                              {"Acos", "Acos"},
                                              {"Acosh", "Acosh"},
                                              {"Add", "AddV2"},
                                              {"ArgMax", "ArgMax"},
                                              {"ArgSort", "TopKV2"},
                                              {"Asin", "Asin"},
                                              {"Asinh", "Asinh"},
                                              {"Atan", "Atan"},
                                              {"Atanh", "Atanh"},
                                              {"Ceil", "Ceil"},
                                              {"Clip", "ClipByValue"},
                                              {"Concat", "ConcatV2"},
                                              {"Cos", "Cos"},
                                              {"CumSum", "Cumsum"},
                                              {"Div", "RealDiv"},
                                              {"Elu", "Elu"},
                                              {"EluGrad", "EluGrad"},
                                              {"Equal", "Equal"},
                                              {"Erf", "Erf"},
                                              {"Exp", "Exp"},
                                              {"Expand", "BroadcastTo"},
                                              {"Flatten", "Reshape"},
                                              {"Floor", "Floor"},
                                              {"Gather", "GatherV2"},
                                              {"GatherGrad", "UnsortedSegmentSum"},
                                              {"GlobalAveragePool", "Mean"},
                                              {"Greater", "Greater"},
                                              {"GreaterOrEqual", "GreaterEqual"},
                                              {"Identity", "Identity"},
                                              {"LeakyRelu", "LeakyRelu"},
                                              {"LeakyReluGrad", "LeakyReluGrad"},
                                              {"Less", "Less"},
                                              {"LessOrEqual", "LessEqual"},
                                              {"Log", "Log"},
                                              {"LogSoftmax", "LogSoftmax"},
                                              {"Max", "Maximum"},
                                              {"Min", "Minimum"},
                                              {"Mul", "Mul"},
                                              {"Neg", "Neg"},
                                              {"Pad", "PadV2"},
                                              {"Pow", "Pow"},
                                              {"Reciprocal", "Reciprocal"},
                                              {"ReciprocalGrad", "ReciprocalGrad"},
                                              {"ReduceMax", "Max"},
                                              {"ReduceMean", "Mean"},
                                              {"ReduceMin", "Min"},
                                              {"ReduceSum", "Sum"},
                                              {"Relu", "Relu"},
                                              {"ReluGrad", "ReluGrad"},
                                              {"Reshape", "Reshape"},
                                              {"Round", "Round"},
                                              {"Sigmoid", "Sigmoid"},
                                              {"SigmoidGrad", "SigmoidGrad"},
                                              {"Sign", "Sign"},
                                              {"Sin", "Sin"},
                                              {"Slice", "StridedSlice"},
                                              {"SliceGrad", "StridedSliceGrad"},
                                              {"Softmax", "Softmax"},
                                              {"Softplus", "Softplus"},
                                              {"SoftplusGrad", "SoftplusGrad"},
                                              {"Split", "Split"},
                                              {"Sqrt", "Sqrt"},
                                              {"StopGradient", "StopGradient"},
                                              {"Sub", "Sub"},
                                              {"Tanh", "Tanh"},
                                              {"TanhGrad", "TanhGrad"},
                                              {"Transpose", "Transpose"},
                                              {"Where", "SelectV2"}});

}  // namespace

std::string_view same_op(std::string_view ours) {
  const auto found = std::find_if(kSame.begin(), kSame.end(),
                                  [&](const OpName& each) { return each.ours == ours; });
  return found == kSame.end() ? std::string_view{} : found->theirs;
}

std::string TfBuilder::fresh(const std::string& wanted) {
  // A name must not look like an output ("x:0") or a control input ("^x").
  std::string name = is_control(wanted) ? "_" + wanted : wanted;
  if (parse_input(name).first != name) name += "_";
  const int used = names_[name]++;
  return used == 0 ? name : fresh(name + "_" + std::to_string(used));
}

std::string TfBuilder::append(const std::string& name, const std::string& op, Names inputs,
                              const std::vector<std::pair<std::string, TfType>>& types) {
  TfNode node;
  node.name = fresh(name);
  node.op = op;
  node.inputs = std::move(inputs);
  for (const auto& [attr, type] : types) node.attrs[attr].type = type;
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().name;
}

std::string TfBuilder::filler(TfType type) {
  constexpr TfType kResource = 20;
  const auto found = fillers_.find(type);
  if (found != fillers_.end()) return found->second;
  const std::string name =
      append("constant/" + tf_type_name(type), type == kResource ? "VarHandleOp" : "Const", {},
             {{"dtype", type == kResource ? kTfFloat : type}});
  return fillers_[type] = name;
}

std::string TfBuilder::emit(const std::string& name, const std::string& op_name,
                            const Names& floats, size_t results) {
  const TfOp& op = *find_tf_op(op_name);
  std::map<std::string, TfType, std::less<>> types;
  for (const TfTypeAttr& attr : op.attrs) {
    const bool is_float = attr.name == "T" || attr.name == "U" || attr.name == "Tparams" ||
                          attr.name == "SrcT" || attr.name == "DstT";
    types[attr.name] = is_float ? kTfFloat : attr.usual != 0 ? attr.usual : kTfInt32;
  }
  // Fillers come before the node, so they are made before it.
  Names inputs;
  std::map<std::string, int64_t> numbers;
  size_t next = 0;
  for (const TfArgument& argument : op.inputs) {
    const TfType type = argument.attr.empty() ? argument.fixed : types[argument.attr];
    const bool repeats = !argument.number.empty();
    const size_t times = repeats ? std::max<size_t>(1, floats.size() - next) : 1;
    if (repeats) numbers[argument.number] = static_cast<int64_t>(times);
    for (size_t i = 0; i < times; ++i) {
      const bool given = type == kTfFloat && next < floats.size();
      inputs.push_back(given ? floats[next++] : filler(type));
    }
  }
  std::vector<std::pair<std::string, TfType>> list(types.begin(), types.end());
  const std::string made = append(name, op_name, std::move(inputs), list);
  TfNode& node = graph_.nodes.back();
  for (const auto& [number, times] : numbers) node.attrs[number].i = times;
  for (const TfArgument& argument : op.outputs) {
    if (!argument.number.empty() && !numbers.contains(argument.number))
      node.attrs[argument.number].i = static_cast<int64_t>(results);
  }
  return made;
}

std::string TfBuilder::emit_unknown(const std::string& name, const std::string& ours,
                                    const Names& floats, size_t results) {
  TfOp op;
  op.name = ours + std::to_string(floats.size()) + "_" + std::to_string(results);
  op.is_function = true;
  op.inputs.assign(floats.size(), {.attr = "T"});
  op.outputs.assign(results, {.attr = "T"});
  op.attrs.push_back({.name = "T"});
  graph_.functions[op.name] = op;
  return append(name, op.name, floats, {{"T", kTfFloat}});
}

}  // namespace halfscope::grappler
