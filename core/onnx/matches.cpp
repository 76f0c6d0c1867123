// SPDX-License-Identifier: MIT
#include "core/onnx/matches.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/numeric/formats/round.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {

namespace {

bool is_near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

}  // namespace

bool is_close(double a, double b) {
  if (is_near(a, b)) return true;
  for (const FloatFormat& format : {kFp16, kBf16}) {
    const double whole = round_to_format(b, format).value;
    const double inverse = round_to_format(1.0 / b, format).value;
    if (is_near(a, whole) || is_near(a, 1.0 / inverse)) return true;
  }
  return false;
}

Surroundings::Surroundings(const Model& model, TypeOf type_of, bool own_squares)
    : graph_(model.graph),
      initial_(model.initial),
      type_of_(std::move(type_of)),
      own_squares_(own_squares) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
    for (ValueId input : graph_.node(id).inputs) {
      if (input != kNone) readers_[input].push_back(id);
    }
  }
  for (const NamedValue& output : model.outputs) kept_.insert(output.value);
  for (const Constant& constant : graph_.constants()) constants_[constant.value] = &constant;
  for (const Input& input : graph_.inputs()) computed_.insert(input.value);
  for (const Node& node : graph_.nodes()) {
    if (std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](ValueId input) { return computed_.contains(input); })) {
      computed_.insert(node.outputs.begin(), node.outputs.end());
    }
  }
}

const Node* Surroundings::made_by(ValueId value, const char* op) const {
  const NodeId id = value == kNone ? kNone : producer(value);
  if (id == kNone || graph_.node(id).op != op) return nullptr;
  return &graph_.node(id);
}

const Node* Surroundings::only_reader(ValueId value) const {
  const auto found = readers_.find(value);
  if (kept_.contains(value) || found == readers_.end() || found->second.size() != 1) return nullptr;
  return &graph_.node(found->second[0]);
}

const Tensor* Surroundings::constant(ValueId value) const {
  const auto found = constants_.find(value);
  return found == constants_.end() ? nullptr : &found->second->tensor;
}

std::optional<double> Surroundings::scalar(ValueId value) const {
  const Tensor* tensor = constant(value);
  if (tensor == nullptr || tensor->data.size() != 1) return std::nullopt;
  return static_cast<double>(tensor->data[0]);
}

std::optional<ValueId> Surroundings::beside(const Node& node, double constant) const {
  for (size_t i = 0; i < 2; ++i) {
    const auto number = scalar(node.inputs[i]);
    if (number && is_close(*number, constant)) return node.inputs[1 - i];
  }
  return std::nullopt;
}

bool Surroundings::repeats(ValueId value, float number) const {
  const std::vector<float>* data = nullptr;
  if (const auto found = constants_.find(value); found != constants_.end()) {
    data = &found->second->tensor.data;
  } else if (const Tensor* start = start_of(value)) {
    data = &start->data;
  }
  return data != nullptr && !data->empty() &&
         std::all_of(data->begin(), data->end(), [&](float each) { return each == number; });
}

const Tensor* Surroundings::start_of(ValueId value) const {
  const Variable* variable = graph_.variable_of(value);
  if (variable == nullptr || variable->buffer) return nullptr;
  const auto start = initial_.find(variable->path);
  return start == initial_.end() ? nullptr : &start->second;
}

ValueId Surroundings::through_identities(ValueId value, std::set<NodeId>& nodes) const {
  while (const Node* identity = made_by(value, "Identity")) {
    const Node* reader = only_reader(value);
    if (reader == nullptr || identity->attributes.contains(kTorchCast)) break;
    const FloatFormat own = type_of_(*identity);
    const NodeId made = producer(identity->inputs[0]);
    if (own != type_of_(*reader) && made != kNone && !own.contains(type_of_(graph_.node(made))))
      break;
    nodes.insert(producer(value));
    value = identity->inputs[0];
  }
  return value;
}

Product Surroundings::product_of(ValueId value) const {
  Product product;
  take_apart(value, product, 0);
  return product;
}

void Surroundings::take_apart(ValueId value, Product& product, int depth) const {
  if (const auto number = scalar(value)) {
    product.constant *= *number;
    return;
  }
  const bool inner = depth == 0 || (readers_.at(value).size() == 1 && !kept_.contains(value));
  if (const Node* mul = made_by(value, "Mul"); mul != nullptr && inner && depth < 8) {
    product.nodes.insert(producer(value));
    for (ValueId input : mul->inputs) take_apart(input, product, depth + 1);
    return;
  }
  if (const Node* minus = made_by(value, "Neg"); minus != nullptr && inner && depth < 8) {
    product.nodes.insert(producer(value));
    product.constant = -product.constant;
    take_apart(minus->inputs[0], product, depth + 1);
    return;
  }
  if (const Node* div = made_by(value, "Div"); div != nullptr && inner) {
    if (const auto divisor = scalar(div->inputs[1])) {
      product.nodes.insert(producer(value));
      product.constant /= *divisor;
      take_apart(div->inputs[0], product, depth + 1);
      return;
    }
  }
  product.factors.push_back(value);
}

bool Surroundings::is_closed(const Match& match) const {
  for (NodeId id : match.nodes) {
    if (id == match.root) continue;
    for (ValueId output : graph_.node(id).outputs) {
      if (kept_.contains(output)) return false;
      const auto found = readers_.find(output);
      if (found == readers_.end()) continue;
      for (NodeId reader : found->second) {
        if (!match.nodes.contains(reader)) return false;
      }
    }
  }
  return true;
}

}  // namespace halfscope::onnx_files
