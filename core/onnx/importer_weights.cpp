// SPDX-License-Identifier: MIT
// The parts of Importer that turn initializers into variables and list them.
#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/onnx/importer.h"
#include "core/onnx/node_order.h"
#include "core/onnx/values.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

/// Returns whether two nodes are one node of a loop, in two of its turns.
bool is_other_turn(std::string_view a, std::string_view b) {
  constexpr std::string_view kTurn = "/turn_";
  while (true) {
    const size_t at = a.find(kTurn);
    if (at == a.npos || a.substr(0, at) != b.substr(0, b.find(kTurn))) return a == b;
    a = a.substr(std::min(a.size(), a.find('/', at + kTurn.size())));
    b = b.substr(std::min(b.size(), b.find('/', at + kTurn.size())));
  }
}

}  // namespace

ValueId Importer::real_value(Binding& binding, const std::string& path, const std::string& role,
                             bool weight, const std::string& what) {
  if (binding.value != kNone) {
    if (model_.graph.value(binding.value).type == ElementType::real) return binding.value;
    throw Error(what +
                ": computing reals from integers that are only known at run time is not "
                "supported");
  }
  const KnownTensor& known = *binding.known;
  if (binding.at_run_time) {
    const ValueId made = std::exchange(binding.at_run_time, nullptr)();
    if (made != kNone) return binding.value = made;
  }
  // PyTorch writes parameters as initializers, so its constants are not parameters.
  const bool may_train = weight && !binding.frozen && readings_.readings.empty();
  if (known.real() &&
      (binding.trainable || (may_train && !known.shape.empty() && known.count() > 0))) {
    binding.value = variable(binding, path + "." + role);
  } else {
    Tensor tensor{known.shape, known.true_reals()};
    for (int64_t value : known.ints) tensor.data.push_back(static_cast<float>(value));
    binding.value = model_.graph.add_constant(std::move(tensor));
  }
  elements_ += known.count();
  return binding.value;
}

/// Adds a variable and the nodes that compute the file's tensor from it.
ValueId Importer::variable(Binding& binding, const std::string& wanted) {
  if (binding.form_of != nullptr) return form(binding, wanted);
  if (!binding.known->unrounded.empty()) {  // lanes round it to their storage format
    auto exact = std::make_shared<KnownTensor>(*binding.known);
    exact->reals = std::move(exact->unrounded);
    exact->unrounded.clear();
    binding.known = std::move(exact);
  }
  const KnownTensor& known = *binding.known;
  const std::string name = variable_path(binding.parameter.empty() ? wanted : binding.parameter);
  std::optional<Repeats> repeats;
  if (binding.computed) repeats = find_repeats(known, fixed_batch_);
  const KnownTensor& start = repeats ? repeats->source : known;
  weight_types_[known.type] += start.count();
  const ValueId value = model_.graph.add_variable(name, start.shape, {});
  model_.graph.variables().back().alias = printable(binding.name);
  if (binding.turned) turned_.insert(name);
  starts_[name] = repeats ? std::make_shared<KnownTensor>(start) : binding.known;
  if (!repeats) return value;
  if (!repeats->kept.empty()) {
    return add("Expand", unique_path(name + "/expanded"), {value}, {{"shape", repeats->kept}})
        .front();
  }
  // Gather [rows, size] as [outer, inner, size], then move the axis of `size` back.
  std::vector<int32_t> rows(repeats->rows.begin(), repeats->rows.end());
  const auto axis = static_cast<std::ptrdiff_t>(repeats->axis);
  Shape around = known.shape;
  around.erase(around.begin() + axis);
  const auto count = static_cast<int64_t>(rows.size());
  const ValueId index = model_.graph.add_index_constant({count}, std::move(rows));
  const ValueId picked =
      add("Gather", unique_path(name + "/rows"), {value, index}, {{"axis", int64_t{0}}}).front();
  Shape split = around;
  split.push_back(start.shape[1]);
  const ValueId shaped = add("Reshape", unique_path(name + "/shaped"), {picked},
                             {{"shape", split}, {"allowzero", int64_t{1}}})
                             .front();
  std::vector<int64_t> order;
  for (size_t d = 0; d < known.shape.size(); ++d) {
    const auto last = static_cast<int64_t>(known.shape.size()) - 1;
    const auto own = static_cast<int64_t>(d);
    order.push_back(own == axis ? last : own < axis ? own : own - 1);
  }
  return add("Transpose", unique_path(name + "/table"), {shaped}, {{"perm", order}}).front();
}

/// Adds the nodes that compute the file's form of a parameter, such as its transpose or a function
/// of it.
ValueId Importer::form(const Binding& binding, const std::string& wanted) {
  const Reading& form = binding.form;
  Binding& of = *binding.form_of;
  const std::string what = of.parameter.empty() ? wanted : of.parameter;
  ValueId value = real_value(of, what, "weight", true, what);
  const auto then = [&](const char* op, const char* name, std::vector<ValueId> inputs,
                        Attributes attributes = {}) {
    // The network computed it in a call before the one that reads it.
    attributes[kTorchFunction] = kUnknownFunction;
    return add(op, unique_path(what + "/" + name), std::move(inputs), std::move(attributes))
        .front();
  };
  if (form.padding_row >= 0) {
    // Only the rows before and after the padding row get a gradient.
    const int64_t row = form.padding_row, rows = model_.graph.value(value).shape[0];
    const auto part = [&](int64_t begin, int64_t end) {
      return then("Slice", "part", {value},
                  {{"starts", std::vector<int64_t>{begin}},
                   {"ends", std::vector<int64_t>{end}},
                   {"axes", std::vector<int64_t>{0}}});
    };
    std::vector<ValueId> parts;
    if (row > 0) parts.push_back(part(0, row));
    parts.push_back(then("StopGradient", "padding", {part(row, row + 1)}));
    if (row + 1 < rows) parts.push_back(part(row + 1, rows));
    return then("Concat", "padded", parts, {{"axis", int64_t{0}}});
  }
  if (!form.functions.empty()) {
    for (const std::string& op : form.functions) value = then(op.c_str(), "computed", {value});
    return value;
  }
  if (form.spread) {
    return then("Expand", "expanded", {value}, {{"shape", binding.known->shape}});
  }
  return then("Transpose", "transposed", {value}, {{"perm", std::vector<int64_t>{1, 0}}});
}

BindingPtr Importer::binding_of(const Reading& reading, const BindingPtr& stored) {
  std::string key = reading.identity;
  if (reading.is_form()) {
    key += (reading.transposed ? " transposed" : "") + std::string(reading.spread ? " as " : "") +
           (reading.spread ? stored->name : "") + " row " + std::to_string(reading.padding_row);
    for (const std::string& op : reading.functions) key += " " + op;
  }
  if (const auto found = identities_.find(key); found != identities_.end()) return found->second;
  const auto binding = std::make_shared<Binding>(*stored);
  identities_[key] = binding;
  binding->value = binding->as_index = kNone;
  binding->trainable = reading.trains == Trains::yes;
  binding->frozen = !binding->trainable;
  binding->computed = reading.computed;
  binding->turned = reading.turned;
  binding->parameter = reading.name;
  if (!reading.is_form()) return binding;
  binding->form = reading;
  Reading home = reading;
  auto base = std::make_shared<Binding>(*stored);
  if (reading.padding_row >= 0) {
    home.padding_row = -1;
  } else {
    // The base tensor has another name, or is not in the file.
    home.transposed = home.spread = home.turned = false;
    home.functions.clear();
    home.computed = reading.computed && !reading.functions.empty();
    base->known = reading.functions.empty() ? initializers_.at(reading.stored) : reading.undone;
    base->name = reading.stored;
  }
  binding->form_of = binding_of(home, base);
  return binding;
}

void Importer::restore_bias(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                            std::vector<BindingPtr>& inputs) const {
  const auto found = readings_.removed_biases.find(&node);
  if (found == readings_.removed_biases.end() || inputs.size() < 2 || inputs[1] == nullptr ||
      inputs[1]->known == nullptr || inputs[1]->known->shape.size() < 2) {
    return;
  }
  const Shape& weight = inputs[1]->known->shape;
  int64_t count = weight[0];
  if (node.op_type() == "ConvTranspose") count = weight[1] * attributes.integer("group", 1);
  if (node.op_type() == "Gemm" && attributes.integer("transB", 0) == 0) count = weight[1];
  auto zeros = std::make_shared<KnownTensor>();
  zeros->type = inputs[1]->type;
  zeros->shape = {count};
  zeros->reals.assign(static_cast<size_t>(count), 0.0f);
  inputs.resize(3);
  inputs[2] = std::make_shared<Binding>(Binding{.name = found->second,
                                                .known = std::move(zeros),
                                                .type = inputs[1]->type,
                                                .trainable = true,
                                                .parameter = printable(found->second)});
}

/// Returns the module of a node. Layers that the exporter merged with their successors, and layers
/// that TorchScript does not call as a module (the projection of an attention), are named by their
/// weight.
std::string Importer::module_of(const ::onnx::NodeProto& node, const NodeOrigin& origin) const {
  const Reading* weight = readings_.find(node, 1);
  if (weight == nullptr || weight->trains == Trains::no) return origin.module;
  const size_t dot = weight->name.rfind('.');
  if (dot == std::string::npos) return origin.module;
  const std::string owner = weight->name.substr(0, dot);
  const bool within = origin.call.empty() && node.op_type() != "Transpose" &&
                      owner.starts_with(origin.module + ".");
  return origin.rewritten || within ? owner : origin.module;
}

void Importer::list_parameters(OnnxImport& result) const {
  const Graph& graph = result.model.graph;
  std::map<ValueId, ImportParameter*> by_value;
  result.parameters.reserve(graph.variables().size());
  for (const Variable& variable : graph.variables()) {
    if (variable.buffer) continue;
    result.parameters.push_back({.name = variable.path,
                                 .file_name = variable.alias,
                                 .shape = graph.value(variable.value).shape,
                                 .turned = turned_.contains(variable.path)});
    by_value[variable.value] = &result.parameters.back();
  }
  for (const Node& node : graph.nodes()) {
    for (ValueId input : node.inputs) {
      const auto found = by_value.find(input);
      if (found == by_value.end()) continue;
      if (node.path.starts_with(found->second->name + "/")) {  // computed from it, as in the file
        by_value[node.outputs[0]] = found->second;
        continue;
      }
      std::vector<std::string>& readers = found->second->readers;
      const bool known = std::any_of(readers.begin(), readers.end(), [&](const std::string& each) {
        return each == node.path || is_other_turn(each, node.path);
      });
      if (!known) readers.push_back(node.path);
    }
  }
}

}  // namespace halfscope::onnx_files
