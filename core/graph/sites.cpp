// SPDX-License-Identifier: MIT
#include "core/graph/sites.h"

#include <algorithm>
#include <set>

namespace halfscope {
namespace {

struct VariableName {
  std::string path, leaf;  // "fc1", "weight"
};

VariableName split(const std::string& variable) {
  const size_t dot = variable.rfind('.');
  return {variable.substr(0, dot), variable.substr(dot + 1)};
}

class SiteFinder {
 public:
  SiteFinder(const Executable& executable, const GradientMap& gradients,
             const std::map<ValueId, size_t>& updates)
      : executable_(executable), graph_(executable.graph), updates_(updates) {
    for (const auto& [value, gradient] : gradients) forward_of_[gradient] = value;
  }

  std::vector<Tap> run() {
    for (Entry entry : {Entry::grad, Entry::update}) {
      for (NodeId id : executable_.entry(entry)) visit(graph_.node(id));
    }
    return std::move(taps_);
  }

 private:
  void visit(const Node& node) {
    if (node.path.starts_with("metrics/")) return;  // ours, not the model's
    if (node.phase == Phase::forward) {
      for (ValueId input : node.inputs) visit_source(node, input);
    }
    if (node.op == "Cast") {
      visit_cast(node);
      return;
    }
    for (ValueId output : node.outputs) {
      if (graph_.value(output).type != ElementType::real) continue;
      if (node.phase == Phase::forward) {
        add(output, node.path, "activation", Role::activation, node);
      } else if (node.phase == Phase::backward) {
        visit_gradient(node, output);
      } else if (const auto update = updates_.find(output); update != updates_.end()) {
        const VariableName name = split(graph_.variables()[update->second].path);
        add(output, name.path, name.leaf + "_update", Role::update, node);
      }
    }
  }

  /// A variable or the data read without a Cast.
  void visit_source(const Node& reader, ValueId input) {
    if (input == kNone || graph_.value(input).producer != kNone || reader.op == "Cast") return;
    if (input == executable_.input) {
      add(input, "input", "input", Role::input, reader);
    } else if (const Variable* variable = graph_.variable_of(input)) {
      const VariableName name = split(variable->path);
      add(input, name.path, name.leaf, Role::weight, reader);
    }
  }

  void visit_cast(const Node& cast) {
    const ValueId source = cast.inputs[0], output = cast.outputs[0];
    if (source == executable_.input) {
      add(output, "input", "input", Role::input, cast);
    } else if (const Variable* variable = graph_.variable_of(source)) {
      const VariableName name = split(variable->path);
      add(output, name.path, name.leaf, Role::weight, cast);
    } else if (source == executable_.loss_scale) {
      add(output, cast.path, "loss_scale", Role::input, cast);
    } else if (graph_.value(source).producer == kNone) {
      add(output, cast.path, "constant", Role::input, cast);
    } else if (graph_.node(graph_.value(source).producer).phase == Phase::backward) {
      add(output, cast.path, "grad_operand", Role::activation_grad, cast);
    } else {
      add(output, cast.path, "input", Role::input, cast);
    }
  }

  void visit_gradient(const Node& node, ValueId output) {
    const auto found = forward_of_.find(output);
    if (found == forward_of_.end()) return;
    if (const Variable* variable = graph_.variable_of(found->second)) {
      const VariableName name = split(variable->path);
      add(output, name.path, name.leaf + "_grad", Role::weight_grad, node);
    } else if (const NodeId producer = graph_.value(found->second).producer; producer != kNone) {
      const Node& forward = graph_.node(producer);
      add(output, forward.path, "activation_grad", Role::activation_grad, forward);
    }
  }

  void add(ValueId value, const std::string& path, std::string tensor, Role role, const Node& node) {
    if (!tapped_.insert(value).second) return;
    SiteInfo site;
    site.path = path;
    site.tensor = std::move(tensor);
    // Two operands of one node may be narrowed: "input", "input_2", ...
    const std::string base = site.tensor;
    for (int n = 2; !names_.insert(site.name()).second; ++n) site.tensor = base + "_" + std::to_string(n);
    site.role = role;
    site.phase = role == Role::update ? Phase::update
                 : role == Role::activation_grad || role == Role::weight_grad ? Phase::backward
                                                                              : Phase::forward;
    site.op = op_of(path, node);
    site.format = graph_.value(value).format;
    site.shape = graph_.value(value).shape;
    site.order = static_cast<int>(taps_.size());
    taps_.push_back({value, std::move(site)});
  }

  /// The operator of the layer that the site belongs to.
  std::string op_of(const std::string& path, const Node& fallback) const {
    for (const Node& node : graph_.nodes()) {
      if (node.path == path && node.phase == Phase::forward && node.op != "Cast") return node.op;
    }
    return path == "input" ? "Input" : fallback.op;
  }

  const Executable& executable_;
  const Graph& graph_;
  const std::map<ValueId, size_t>& updates_;
  std::map<ValueId, ValueId> forward_of_;  // gradient -> value
  std::set<ValueId> tapped_;
  std::set<std::string> names_;
  std::vector<Tap> taps_;
};

}  // namespace

std::vector<Tap> find_sites(const Executable& executable, const GradientMap& gradients,
                            const std::map<ValueId, size_t>& updates) {
  return SiteFinder(executable, gradients, updates).run();
}

std::vector<LayerInfo> describe_layers(const Graph& graph, NodeId count) {
  std::vector<LayerInfo> layers;
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.node(id);
    LayerInfo layer;
    layer.path = node.path;
    layer.op = node.op;
    layer.read = node.plan.read;
    layer.write = node.plan.write;
    layer.follows = node.plan.follows;
    for (ValueId input : node.inputs) {
      if (input == kNone || graph.value(input).type != ElementType::real) continue;
      ValueId source = input;
      for (NodeId p = graph.value(source).producer; p != kNone && graph.node(p).op == "Cast";
           p = graph.value(source).producer) {
        source = graph.node(p).inputs[0];
      }
      if (const Variable* variable = graph.variable_of(source)) {
        layer.parameters += element_count(graph.value(variable->value).shape);
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
