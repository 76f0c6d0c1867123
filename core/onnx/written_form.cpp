// SPDX-License-Identifier: MIT
// The primitives of a recognised composite, kept as the file has them: a stagewise plan runs these,
// in their order and form (x * (1 / r) in place of x / r, say), because each of them rounds.
#include <string_view>
#include <utility>

#include "core/onnx/matches.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// Names of nodes below the composite, by the value they compute; the expansions of core/ops use
/// the same words. "" for nodes of an Attention that none of its parts stands for.
class PartNames {
 public:
  PartNames(const Surroundings& in, const Match& match) : in_(in), match_(match) {}

  std::string of(NodeId id) {
    const std::string name = match_.op == "Attention" ? in_attention(id) : by_work(id);
    if (name.empty()) return name;
    const int number = ++used_[name];
    return number == 1 ? name : name + "_" + std::to_string(number);
  }

 private:
  std::string in_attention(NodeId id) const {
    const Node& node = in_.graph().node(id);
    if (id == match_.root) return "mix";
    if (node.op == "MatMul") return "scores";
    if (node.op == "Softmax") return "softmax";
    if (node.op == "Mul" || node.op == "Div") return "scale";
    const bool masks = (node.op == "Add" || node.op == "Where") && is_before_softmax(id);
    return masks ? "mask" : "";
  }

  /// A Where behind the softmax guards it.
  bool is_before_softmax(NodeId id) const {
    for (const NodeId other : match_.nodes) {
      if (other > id && in_.graph().node(other).op == "Softmax") return true;
    }
    return false;
  }

  std::string by_work(NodeId id) const {
    const Node& node = in_.graph().node(id);
    const bool spreads = match_.op.ends_with("Normalization");
    const auto first = [&](size_t i) { return in_.scalar(node.inputs[i]).has_value(); };
    if (node.op == "ReduceMean") {
      const NodeId of = in_.producer(node.inputs[0]);
      return match_.nodes.contains(of) && is_square(of) ? "var" : "mean";
    }
    if (is_square(id)) return "square";
    if (node.op == "Pow") return in_.scalar(node.inputs[1]) == 0.5 ? "sqrt" : "power";
    if (node.op == "InstanceNormalization") return "instance";
    if (node.op == "Sub") return "centre";
    if (spreads && node.op == "Add") return first(0) || first(1) ? "eps" : "shift";
    if (spreads && node.op == "Div") return first(0) ? "reciprocal" : "normalize";
    if (spreads && node.op == "Mul") return takes_parameter(node) ? "scale" : "normalize";
    if (node.op == "Reshape") {
      const Node* reader = in_.only_reader(node.outputs[0]);
      if (in_.made_by(node.inputs[0], "InstanceNormalization") != nullptr) return "ungroup";
      if (reader != nullptr && reader->op == "InstanceNormalization") return "groups";
    }
    std::string name;
    for (const char c : node.op) name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return name;
  }

  bool is_square(NodeId id) const {
    const Node& node = in_.graph().node(id);
    if (node.op == "Pow") return in_.scalar(node.inputs[1]) == 2.0;
    return node.op == "Mul" && node.inputs[0] == node.inputs[1];
  }

  bool takes_parameter(const Node& node) const {
    return !in_.is_computed(node.inputs[0]) || !in_.is_computed(node.inputs[1]);
  }

  const Surroundings& in_;
  const Match& match_;
  std::map<std::string, int> used_;
};

class FormBuilder {
 public:
  FormBuilder(const Surroundings& in, const Match& match)
      : in_(in), match_(match), names_(in, match) {
    for (const Constant& constant : in.graph().constants()) constants_[constant.value] = &constant;
    for (const ValueId input : match.inputs) {
      const Value& value = in.graph().value(input);
      at_.try_emplace(input, form_.graph.add_input("", value.shape, value.type));
    }
    for (const Parameter& each : match.parameters) {
      const std::string name = form_.graph.inputs().size() == 1 ? "weight" : "bias";
      const ValueId value = form_.graph.add_input(name, each.shape);
      if (each.from == kNone) continue;
      at_.try_emplace(each.from, as(value, in.shape(each.from), name));
    }
  }

  std::shared_ptr<const WrittenForm> run() {
    for (const NodeId id : match_.nodes) {
      const Node& node = in_.graph().node(id);
      std::vector<ValueId> inputs;
      for (const ValueId input : node.inputs) {
        inputs.push_back(input == kNone ? kNone : operand(input));
        if (input != kNone && inputs.back() == kNone) return nullptr;
      }
      const std::vector<ValueId> made =
          form_.graph.add(node.op, names_.of(id), std::move(inputs), node.attributes);
      form_.graph.node(form_.graph.value(made[0]).producer).alias = node.path;
      for (size_t i = 0; i < node.outputs.size(); ++i) at_[node.outputs[i]] = made.at(i);
    }
    form_.output = at_.at(in_.graph().node(match_.root).outputs[0]);
    return std::make_shared<const WrittenForm>(std::move(form_));
  }

 private:
  ValueId as(ValueId value, const Shape& shape, const std::string& name) {
    if (form_.graph.value(value).shape == shape) return value;
    return form_.graph.add1("Reshape", name, {value},
                            {{"shape", shape}, {"allowzero", int64_t{1}}});
  }

  /// kNone for what the composite does not have.
  ValueId operand(ValueId value) {
    if (const auto found = at_.find(value); found != at_.end()) return found->second;
    ValueId made = kNone;
    if (const auto found = constants_.find(value); found != constants_.end()) {
      const Constant& constant = *found->second;
      made = in_.graph().value(value).type == ElementType::index
                 ? form_.graph.add_index_constant(constant.tensor.shape, constant.indices)
                 : form_.graph.add_constant(constant.tensor);
    } else if (const Tensor* start = in_.start_of(value)) {
      // Ones and zeros that train in no composite; their shape may have been given up.
      made = form_.graph.add_constant(Tensor{in_.shape(value), start->data});
    } else if (const Node* reshape = in_.made_by(value, "Reshape")) {
      // Form of a parameter that several composites read.
      const auto from = at_.find(reshape->inputs[0]);
      if (from != at_.end()) made = as(from->second, in_.shape(value), "parameter");
    }
    if (made != kNone) at_[value] = made;
    return made;
  }

  const Surroundings& in_;
  const Match& match_;
  PartNames names_;
  WrittenForm form_;
  std::map<ValueId, ValueId> at_;
  std::map<ValueId, const Constant*> constants_;
};

}  // namespace

std::shared_ptr<const WrittenForm> written_form(const Surroundings& in, const Match& match) {
  // All that the guard of a softmax adds is the choice of zeros, which the operator does itself.
  if (match.op == "Softmax") return nullptr;
  return FormBuilder(in, match).run();
}

}  // namespace halfscope::onnx_files
