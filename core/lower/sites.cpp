// SPDX-License-Identifier: MIT
#include "core/lower/sites.h"

#include <algorithm>
#include <set>

#include "core/lower/narrow.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

struct VariableName {
  std::string path, leaf;  // "fc1", "weight"
};

VariableName split(const std::string& variable) {
  const size_t dot = variable.rfind('.');
  if (dot == std::string::npos) return {variable, "weight"};  // a variable of the network itself
  return {variable.substr(0, dot), variable.substr(dot + 1)};
}

class SiteFinder {
 public:
  SiteFinder(const Executable& executable, const GradientMap& gradients, const SiteNames& names)
      : executable_(executable), graph_(executable.graph), special_(names) {
    for (const NamedValue& input : executable.inputs) {
      std::string name = input.name;  // names of sites are PATH.TENSOR
      std::replace(name.begin(), name.end(), '.', '_');
      if (graph_.value(input.value).type == ElementType::real) data_names_[input.value] = name;
    }
    if (executable.input != kNone) data_names_[executable.input] = "input";
    for (auto each = gradients.rbegin(); each != gradients.rend(); ++each) {
      forward_of_[each->second].push_back(each->first);
    }
    for (const Node& node : graph_.nodes()) {
      if (node.phase == Phase::forward && !narrows(node))
        op_of_path_.try_emplace(node.path, node.op);
    }
  }

  std::vector<Tap> run() {
    for (const NodeId id : executable_.entry(executable_.forward)) visit(graph_.node(id));
    for (Entry entry : {Entry::accumulate, Entry::norm, Entry::update}) {
      for (NodeId id : executable_.entry(entry)) visit(graph_.node(id));
    }
    return std::move(taps_);
  }

 private:
  void visit(const Node& node) {
    if (node.path.starts_with("metrics/")) return;  // added by lower(), not part of the model
    if (node.phase == Phase::forward) {
      for (ValueId input : node.inputs) visit_source(node, input);
    }
    if (narrows(node)) {
      visit_narrowed(node);
      return;
    }
    for (ValueId output : node.outputs) {
      if (graph_.value(output).type != ElementType::real) continue;
      if (const auto named = special_.find(output); named != special_.end()) {
        const VariableName name = split(named->second.variable);
        add(output, name.path, name.leaf + named->second.suffix, named->second.role,
            named->second.phase, node);
      } else if (node.phase == Phase::forward) {
        // Statistics that are not a variable's next value only serve the gradient.
        if (output != node.outputs[0] && find_op(node.op).statistics_from < node.outputs.size())
          continue;
        add(output, node.path, "activation", Role::activation, Phase::forward, node);
      } else if (node.phase == Phase::backward) {
        visit_gradient(node, output);
      }
    }
  }

  /// Their outputs are sites of operands, if anything.
  static bool narrows(const Node& node) {
    return node.op == "Cast" || node.op == "Quantize" || node.op == "Dequantize" ||
           node.op == "ScaleUpdate";
  }

  /// Returns the name of an input that the caller writes data to, or nullptr.
  const std::string* data_name(ValueId value) const {
    const auto found = data_names_.find(value);
    return found == data_names_.end() ? nullptr : &found->second;
  }

  /// Visits a variable or data that is read as it is stored.
  void visit_source(const Node& reader, ValueId input) {
    if (input == kNone || graph_.value(input).producer != kNone || narrows(reader)) return;
    if (const std::string* name = data_name(input)) {
      add(input, "input", *name, Role::input, Phase::forward, reader);
    } else if (const Variable* variable = graph_.variable_of(input);
               variable != nullptr && !variable->buffer) {
      const VariableName name = split(variable->path);
      add(input, name.path, name.leaf, Role::weight, Phase::forward, reader);
    }
  }

  /// Visits the operand as it is read; if it is scaled, its codes.
  void visit_narrowed(const Node& node) {
    if (node.op == "Dequantize" || node.op == "ScaleUpdate") return;
    const ValueId source = node.inputs[0], output = node.outputs[0];
    if (const std::string* name = data_name(source)) {
      add(output, "input", *name, Role::input, Phase::forward, node);
    } else if (const Variable* variable = graph_.variable_of(source)) {
      const VariableName name = split(variable->path);
      add(output, name.path, name.leaf, Role::weight, Phase::forward, node);
    } else if (source == executable_.loss_scale) {
      add(output, node.path, "loss_scale", Role::input, Phase::forward, node);
    } else if (graph_.value(source).producer == kNone) {
      add(output, node.path, "constant", Role::input, Phase::forward, node);
    } else if (graph_.node(graph_.value(source).producer).phase == Phase::backward) {
      add(output, node.path, "grad_operand", Role::activation_grad, Phase::backward, node);
    } else {
      add(output, node.path, "input", Role::input, Phase::forward, node);
    }
  }

  void visit_gradient(const Node& node, ValueId output) {
    const auto found = forward_of_.find(output);
    if (found == forward_of_.end()) return;
    for (const ValueId value : found->second) {
      if (const Variable* variable = graph_.variable_of(value)) {
        const VariableName name = split(variable->path);
        add(output, name.path, name.leaf + "_grad", Role::weight_grad, Phase::backward, node);
      } else if (const NodeId producer = graph_.value(value).producer; producer != kNone) {
        const Node& forward = graph_.node(producer);
        add(output, forward.path, "activation_grad", Role::activation_grad, Phase::backward,
            forward);
      }
    }
  }

  void add(ValueId value, const std::string& path, std::string tensor, Role role, Phase phase,
           const Node& node) {
    if (!tapped_.insert({value, path + "." + tensor}).second) return;
    SiteInfo site;
    site.path = path;
    site.tensor = std::move(tensor);
    // Two operands of one node may be narrowed: "input", "input_2", ...
    const std::string base = site.tensor;
    for (int n = 2; !names_.insert(site.name()).second; ++n)
      site.tensor = base + "_" + std::to_string(n);
    site.role = role;
    site.phase = phase;
    const auto op = op_of_path_.find(path);  // the layer's operator, if there is one
    site.op = op != op_of_path_.end() ? op->second : path == "input" ? "Input" : node.op;
    site.format = graph_.value(value).format;
    site.shape = graph_.value(value).shape;
    site.order = static_cast<int>(taps_.size());
    if (node.op == "Quantize") site.scale = scale_name(node.plan.scale);
    taps_.push_back({value, std::move(site)});
  }

  const Executable& executable_;
  const Graph& graph_;
  const SiteNames& special_;
  std::map<ValueId, std::string> data_names_;
  std::map<ValueId, std::vector<ValueId>> forward_of_;  // gradient -> values, latest first
  std::map<std::string, std::string> op_of_path_;
  std::set<std::pair<ValueId, std::string>> tapped_;
  std::set<std::string> names_;
  std::vector<Tap> taps_;
};

}  // namespace

std::vector<Tap> find_sites(const Executable& executable, const GradientMap& gradients,
                            const SiteNames& names) {
  return SiteFinder(executable, gradients, names).run();
}

namespace {

/// Returns whether this is a constant with more than one element: the frozen weights of an exported
/// network. Scalars are settings, for example an epsilon.
bool is_constant_tensor(const Graph& graph, ValueId value) {
  return element_count(graph.value(value).shape) > 1 &&
         std::any_of(graph.constants().begin(), graph.constants().end(),
                     [&](const Constant& each) { return each.value == value; });
}

}  // namespace

std::vector<LayerInfo> describe_layers(const Graph& graph, NodeId count) {
  std::set<std::string> paths;
  for (NodeId id = 0; id < count; ++id) paths.insert(graph.node(id).path);
  std::vector<LayerInfo> layers;
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.node(id);
    LayerInfo layer;
    layer.path = node.path;
    layer.op = node.op;
    layer.read = node.plan.read;
    layer.write = node.plan.write;
    layer.follows = node.plan.follows;
    if (node.alias != node.path) layer.alias = node.alias;
    for (ValueId input : node.inputs) {
      if (input == kNone || graph.value(input).type != ElementType::real) continue;
      const ValueId source = before_narrowing(graph, input);
      if (const NodeId p = graph.value(source).producer;
          p != kNone && graph.node(p).op == "Quantize") {
        continue;  // factor of a scaled operand
      }
      if (const Variable* variable = graph.variable_of(source)) {
        if (!variable->buffer)
          layer.parameters += element_count(graph.value(variable->value).shape);
        // A variable that is not named after a node: only this shows who reads it.
        const std::string owner = split(variable->path).path;
        if (!paths.contains(owner)) layer.inputs.push_back(owner);
      } else if (is_constant_tensor(graph, source)) {
        layer.parameters += element_count(graph.value(source).shape);
      } else if (graph.value(source).producer != kNone) {
        layer.inputs.push_back(graph.node(graph.value(source).producer).path);
      } else if (std::any_of(graph.inputs().begin(), graph.inputs().end(),
                             [&](const Input& each) { return each.value == source; })) {
        layer.inputs.push_back("input");
      }
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace halfscope
