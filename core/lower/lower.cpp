// SPDX-License-Identifier: MIT
// Implements each step of the flow in lower.h as a pass over the previous one's graph.
#include "core/lower/lower.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/graph/autodiff.h"
#include "core/graph/unrounded.h"
#include "core/lower/add_planned.h"
#include "core/lower/followed_format.h"
#include "core/lower/fused_chains.h"
#include "core/lower/narrow.h"
#include "core/lower/plan_checks.h"
#include "core/lower/plan_paths.h"
#include "core/lower/rank_gradients.h"
#include "core/lower/result_range.h"
#include "core/lower/same_formats.h"
#include "core/lower/sites.h"
#include "core/lower/update_nodes.h"
#include "core/near_miss.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

struct Expanded {
  Graph graph;
  std::vector<ValueId> new_of;  // by value of the source graph
  ValueId operator()(ValueId source) const { return new_of.at(static_cast<size_t>(source)); }
};

/// Returns whether the node works differently in inference.
bool trains(const Node& node) { return int_attribute(node, "training_mode", 0) != 0; }

/// Returns the plan for a node that only computes the loss, and for its primitives: fp32, unless a
/// rule names their path.
Plan plan_of_loss(const Plan& plan, const Node& node) {
  Plan by_path = plan;
  by_path.defaults = {};
  by_path.defaults.stagewise = resolve(plan, node.path, node.op).stagewise;
  std::erase_if(by_path.rules, [](const PlanRule& rule) { return rule.path.empty(); });
  return by_path;
}

bool makes_loss(const Model& model, NodeId id) {
  return model.first_loss_node != kNone && id >= model.first_loss_node;
}

/// Returns, by node, whether one of these values depends on it.
std::vector<bool> needed_nodes(const Graph& graph, const std::vector<ValueId>& targets) {
  std::vector<bool> wanted(graph.values().size(), false), needed(graph.nodes().size(), false);
  for (ValueId target : targets) wanted[static_cast<size_t>(target)] = true;
  for (size_t id = needed.size(); id-- > 0;) {
    const Node& node = graph.nodes()[id];
    needed[id] = std::any_of(node.outputs.begin(), node.outputs.end(),
                             [&](ValueId output) { return wanted[static_cast<size_t>(output)]; });
    if (!needed[id]) continue;
    for (ValueId input : node.inputs) {
      if (input != kNone) wanted[static_cast<size_t>(input)] = true;
    }
  }
  return needed;
}

/// Copies the source graph and expands the composites that the plan makes stagewise. For inference,
/// copies only the needed nodes, in their inference form.
Expanded expand(const Model& model, const Plan& plan, const std::vector<bool>* needed = nullptr) {
  const Graph& source = model.graph;
  Expanded result;
  result.new_of.assign(source.values().size(), kNone);
  const auto set = [&](ValueId from, ValueId to) { result.new_of[static_cast<size_t>(from)] = to; };
  Graph& graph = result.graph;
  for (const Input& input : source.inputs()) {
    const Value& value = source.value(input.value);
    set(input.value, graph.add_input(input.name, value.shape, value.type));
  }
  for (const Variable& variable : source.variables()) {
    const Shape& shape = source.value(variable.value).shape;
    set(variable.value, variable.buffer
                            ? graph.add_buffer(variable.path, shape, variable.initializer)
                            : graph.add_variable(variable.path, shape, variable.initializer));
  }
  for (const Constant& constant : source.constants()) {
    set(constant.value, source.value(constant.value).type == ElementType::index
                            ? graph.add_index_constant(constant.tensor.shape, constant.indices)
                            : graph.add_constant(constant.tensor));
  }
  for (NodeId id = 0; id < static_cast<NodeId>(source.nodes().size()); ++id) {
    if (needed != nullptr && !(*needed)[static_cast<size_t>(id)]) continue;
    const Node& node = source.node(id);
    Node copy = node;
    for (ValueId& input : copy.inputs) input = input == kNone ? kNone : result(input);
    if (needed != nullptr && trains(node)) copy.attributes["training_mode"] = int64_t{0};
    const std::vector<ValueId> outputs =
        add_planned(graph, copy, makes_loss(model, id) ? plan_of_loss(plan, node) : plan);
    // In inference there are fewer outputs: running statistics do not change.
    for (size_t i = 0; i < std::min(node.outputs.size(), outputs.size()); ++i) {
      set(node.outputs[i], outputs[i]);
    }
  }
  for (size_t i = 0; i < source.variables().size() && needed == nullptr; ++i) {
    const Variable& variable = source.variables()[i];
    if (variable.buffer && variable.next != kNone)
      graph.variables()[i].next = result(variable.next);
  }
  return result;
}

/// Returns the values as in inference. Nodes that work differently in training, and all that depend
/// on them, are added a second time; without such nodes these are the values themselves. Nodes that
/// only compute the loss are copied too, if a target depends on them, to compute in fp32 there.
std::vector<ValueId> add_inference(Expanded& expanded, const Model& model, const Plan& plan,
                                   const std::vector<ValueId>& targets) {
  std::map<ValueId, ValueId> moved;  // source value -> its value in inference
  const auto of = [&](ValueId source) {
    if (source == kNone) return kNone;
    const auto found = moved.find(source);
    return found == moved.end() ? expanded(source) : found->second;
  };
  const std::vector<bool> needed = needed_nodes(model.graph, targets);
  for (NodeId id = 0; id < static_cast<NodeId>(needed.size()); ++id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    const Node& node = model.graph.node(id);
    const bool loss = makes_loss(model, id);
    const bool depends = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId input) { return moved.contains(input); });
    if (!trains(node) && !depends && !loss) continue;
    Node copy = node;
    for (ValueId& input : copy.inputs) input = of(input);
    if (trains(node)) copy.attributes["training_mode"] = int64_t{0};
    if (loss) copy.path = "metrics/" + node.path;
    // Metrics have a NodePlan's default, which is fp32.
    const std::vector<ValueId> outputs = add_planned(expanded.graph, copy, loss ? Plan{} : plan);
    for (size_t i = 0; i < outputs.size(); ++i) moved[node.outputs[i]] = outputs[i];
  }
  std::vector<ValueId> values;
  for (const ValueId target : targets) values.push_back(of(target));
  return values;
}

/// Returns the outputs that the loss is computed from, if it is not a classifier's: evaluations may
/// judge them.
std::vector<NamedValue> judged_outputs(const Model& model, bool classifies) {
  std::vector<NamedValue> outputs;
  if (classifies) return outputs;
  const std::vector<bool> needed = needed_nodes(model.graph, {model.loss});
  for (const NamedValue& output : model.outputs) {
    const NodeId producer = model.graph.value(output.value).producer;
    if (producer != kNone && needed[static_cast<size_t>(producer)]) outputs.push_back(output);
  }
  return outputs;
}

struct BufferValues {
  std::vector<ValueId> moved;      ///< computed by the forward pass, in the order of the buffers
  std::vector<ValueId> committed;  ///< values that `update` must compute
};

/// Gives every buffer that commits with the step its working copy; `forward_nodes` is the number of
/// training forward nodes.
BufferValues add_working_buffers(Graph& graph, NodeId forward_nodes, BufferCommit commit) {
  BufferValues values;
  const size_t count = graph.variables().size();
  for (size_t i = 0; i < count; ++i) {
    const Variable buffer = graph.variables()[i];
    if (!buffer.buffer || buffer.next == kNone) continue;
    values.moved.push_back(buffer.next);
    if (commit == BufferCommit::always) continue;
    const Shape shape = graph.value(buffer.value).shape;
    const ValueId working = graph.add_buffer(buffer.path + ".working", shape, buffer.initializer);
    for (NodeId id = 0; id < forward_nodes; ++id) {
      for (ValueId& input : graph.node(id).inputs) input = input == buffer.value ? working : input;
    }
    const std::string path = buffer.path.substr(0, buffer.path.rfind('.'));
    const auto copy = [&](ValueId from) {
      const ValueId to = graph.add1("Assign", path, {from});
      graph.node(graph.value(to).producer).phase = Phase::update;
      return to;
    };
    const ValueId restored = copy(buffer.value);
    const ValueId next = copy(buffer.next);
    graph.variables().back().next = buffer.next;
    graph.variables().back().restored = restored;
    graph.variables()[i].next = next;
    values.committed.push_back(next);
  }
  return values;
}

/// Optimizers keep wider copies of weights only: a buffer that every reader rounds to a narrower
/// format is stored in that.
void store_buffers_as_read(Graph& graph) {
  for (const Variable& variable : graph.variables()) {
    if (!variable.buffer) continue;
    FloatFormat& stored = graph.value(variable.value).format;
    std::optional<FloatFormat> read;
    bool same = true;
    for (const Node& node : graph.nodes()) {
      const auto end = node.inputs.end();
      if (node.phase == Phase::update || std::find(node.inputs.begin(), end, variable.value) == end)
        continue;
      same = same && node.plan.rounds_weights && (!read || *read == node.plan.read);
      read = node.plan.read;
    }
    if (read && same && stored.contains(*read)) stored = *read;
  }
}

/// Gives a part of a kernel the formats that kInKernel stands for.
void keep_kernel_in_fp32(Node& node) {
  const int64_t place = place_in_kernel(node);
  if (place != 0) node.plan.write = kFp32;
  if (place == kKernelInside) node.plan.read = kFp32;
}

/// Sets the formats of variables and of all forward values. `targets`: see widest_input().
void settle_forward_formats(Graph& graph, const FloatFormat& storage,
                            const std::set<ValueId>& targets) {
  for (const Variable& variable : graph.variables()) graph.value(variable.value).format = storage;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    if (node.phase == Phase::update) continue;  // copies of buffers, see below
    if (node.plan.follows) node.plan.read = node.plan.write = widest_input(graph, node, targets);
    if (is_unrounded(graph, node.outputs[0])) node.plan.write = kFp32;
    keep_kernel_in_fp32(node);
    check_tensor_cores(node);
    check_scale(node);
    check_same_formats(graph, node);
    for (ValueId input : node.inputs) {
      // A layer whose format contains the storage format keeps its variables in its own.
      if (graph.variable_of(input) != nullptr &&
          node.plan.read.contains(graph.value(input).format)) {
        graph.value(input).format = node.plan.read;
      }
    }
    const OpDef& def = find_op(node.op);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      graph.value(node.outputs[i]).format = i < def.statistics_from ? node.plan.write : kFp32;
      graph.value(node.outputs[i]).rounding = node.plan.rounding;
    }
  }
  store_buffers_as_read(graph);
  for (const Variable& variable : graph.variables()) {
    // A buffer's new value is rounded to the buffer's format.
    if (variable.next != kNone)
      graph.value(variable.next).format = graph.value(variable.value).format;
    if (variable.restored != kNone)
      graph.value(variable.restored).format = graph.value(variable.value).format;
  }
}

bool reads_stored(const Graph& graph, NodeId id, ValueId value) {
  const Node& node = graph.node(id);
  if (node.plan.rounds_weights) return false;
  const size_t from = find_op(node.op).stored_inputs_from;
  return from < node.inputs.size() && std::find(node.inputs.begin() + static_cast<int64_t>(from),
                                                node.inputs.end(), value) != node.inputs.end();
}

/// Sets plans and formats of the gradient nodes; see lower.h for the rule.
void settle_gradient_formats(Graph& graph, NodeId first_backward, const GradientMap& gradients) {
  std::map<ValueId, ValueId> forward_of;  // gradient value -> the forward value
  for (const auto& [value, gradient] : gradients) forward_of[gradient] = value;
  // All terms of an Add are gradients of the same value as the sum.
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= first_backward; --id) {
    const Node& node = graph.node(id);
    const auto found = forward_of.find(node.outputs[0]);
    const bool sums =
        node.op == "Add" && found != forward_of.end() &&
        (node.forward == kNone || graph.value(found->second).producer == node.forward);
    if (sums) {
      for (ValueId input : node.inputs) forward_of.emplace(input, found->second);
    }
  }
  for (NodeId id = first_backward; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    if (node.forward == kNone) {  // sums the gradients of a shared variable
      const auto of = forward_of.find(node.outputs[0]);
      node.plan = NodePlan{};
      node.plan.read = node.plan.write =
          format_of_sum(graph, node, of == forward_of.end() ? kNone : of->second);
    } else {
      const bool scaled = scales_operands(graph.node(node.forward));
      node.plan = graph.node(node.forward).plan;
      if (!scaled) {
        node.plan.write = node.plan.read;
      } else if (!find_op(node.op).sums_products()) {
        node.plan.read = node.plan.write;  // scaled codes are only for products
        node.plan.scale = {};
        node.plan.second_scale.reset();
      }
      const auto found = forward_of.find(node.outputs[0]);
      if (found != forward_of.end()) {
        const FloatFormat& format = graph.value(found->second).format;
        if (node.plan.write.contains(format)) node.plan.write = format;
      }
    }
    for (ValueId output : node.outputs) {
      graph.value(output).format = node.plan.write;
      graph.value(output).rounding = node.plan.rounding;
      // An input that is read as stored has its gradient in that format, too.
      const auto found = forward_of.find(output);
      if (node.forward != kNone && found != forward_of.end() &&
          reads_stored(graph, node.forward, found->second)) {
        graph.value(output).format = graph.value(found->second).format;
      }
    }
    // Gradients of intermediate results, and everything that only serves another gradient there.
    const auto of = forward_of.find(node.outputs[0]);
    const bool inside =
        of != forward_of.end()
            ? is_unrounded(graph, of->second)
            : node.forward != kNone && works_unrounded(graph, graph.node(node.forward));
    for (const char* own : {kUnrounded, kInKernel}) node.attributes.erase(own);  // may be copies
    if (of != forward_of.end() && is_inside_kernel(graph, of->second))
      node.plan.write = graph.value(node.outputs[0]).format = kFp32;
    if (!inside) continue;
    node.attributes[kUnrounded] = kStepOfOne;
    if (is_unrounded(graph, node.outputs[0])) {
      node.plan.write = graph.value(node.outputs[0]).format = kFp32;
    }
  }
}

/// Returns the nodes of `order` that `targets` depend on, without looking past values in `given`.
std::vector<NodeId> nodes_for(const Graph& graph, const std::vector<NodeId>& order,
                              const std::vector<ValueId>& targets, const std::set<NodeId>& given) {
  std::vector<bool> wanted(graph.values().size(), false);
  for (ValueId target : targets) wanted[static_cast<size_t>(target)] = true;
  std::vector<NodeId> result;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Node& node = graph.node(*id);
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
      return wanted[static_cast<size_t>(output)];
    });
    if (!any || given.contains(*id)) continue;
    result.push_back(*id);
    for (ValueId input : node.inputs) {
      if (input != kNone) wanted[static_cast<size_t>(input)] = true;
    }
  }
  std::reverse(result.begin(), result.end());
  return result;
}

/// Returns the graph inputs that the needed nodes or the targets themselves read.
std::vector<NamedValue> used_inputs(const Model& model, const Expanded& expanded,
                                    const std::vector<bool>& needed,
                                    const std::vector<ValueId>& targets) {
  std::vector<NamedValue> used;
  for (const Input& input : model.graph.inputs()) {
    bool reads = std::find(targets.begin(), targets.end(), input.value) != targets.end();
    for (size_t id = 0; id < needed.size() && !reads; ++id) {
      const std::vector<ValueId>& inputs = model.graph.nodes()[id].inputs;
      reads = needed[id] && std::find(inputs.begin(), inputs.end(), input.value) != inputs.end();
    }
    if (reads) used.push_back({input.name, expanded(input.value)});
  }
  return used;
}

/// Returns the model's own input, or the first real one among those used.
ValueId main_input(const Model& model, const Expanded& expanded,
                   const std::vector<NamedValue>& used) {
  if (model.input != kNone) return expanded(model.input);
  for (const NamedValue& input : used) {
    if (expanded.graph.value(input.value).type == ElementType::real) return input.value;
  }
  return kNone;
}

}  // namespace

std::map<std::string, Shape> Executable::output_shapes() const {
  std::map<std::string, Shape> shapes;
  for (const NamedValue& output : outputs) shapes[output.name] = graph.value(output.value).shape;
  return shapes;
}

Executable lower_inference(const Model& model, const Plan& as_written) {
  const Plan plan = by_paths(as_written, model.graph);
  std::vector<NamedValue> outputs = model.outputs;
  if (outputs.empty() && model.logits != kNone) outputs.push_back({"logits", model.logits});
  if (outputs.empty()) throw Error("network '" + model.name + "' has no outputs");
  std::vector<ValueId> sources;
  for (const NamedValue& output : outputs) sources.push_back(output.value);
  const std::vector<bool> needed = needed_nodes(model.graph, sources);
  Expanded expanded = expand(model, plan, &needed);
  check_paths(model.graph, expanded.graph, plan);
  const NodeId layer_nodes = static_cast<NodeId>(expanded.graph.nodes().size());
  Executable out;
  out.forward = Entry::eval;
  out.inputs = used_inputs(model, expanded, needed, sources);
  out.input = main_input(model, expanded, out.inputs);
  std::vector<ValueId> targets;
  for (const NamedValue& output : outputs) {
    targets.push_back(expanded(output.value));
    out.outputs.push_back({output.name, targets.back()});
    if (output.value == model.logits) out.logits = targets.back();
  }
  out.graph = std::move(expanded.graph);
  if (plan.fuses) fuse_chains(out.graph, {targets.begin(), targets.end()});
  settle_forward_formats(out.graph, plan.storage, {});
  set_result_ranges(out.graph);
  const Narrowed narrowed = narrow_operands(out.graph);
  targets.insert(targets.end(), narrowed.updates.begin(), narrowed.updates.end());
  out.entries[static_cast<size_t>(Entry::eval)] = nodes_for(out.graph, narrowed.order, targets, {});
  out.taps = find_sites(out, {}, {});
  out.layers = describe_layers(out.graph, layer_nodes);
  return out;
}

Executable lower(const Model& model, const Plan& as_written, const TrainingSpec& spec) {
  if (model.loss == kNone) throw Error("network '" + model.name + "' has no loss to train");
  const Plan plan = by_paths(as_written, model.graph);
  Expanded expanded = expand(model, plan);
  check_paths(model.graph, expanded.graph, plan);
  const NodeId layer_nodes = static_cast<NodeId>(expanded.graph.nodes().size());
  const bool classifies = model.logits != kNone && model.labels != kNone;
  Executable out;
  out.outputs = judged_outputs(model, classifies);
  std::vector<ValueId> judged{classifies ? model.logits : model.loss};
  for (const NamedValue& output : out.outputs) judged.push_back(output.value);
  const bool binary = spec.scores && !classifies && model.binary_scores != kNone;
  if (binary) judged.push_back(model.binary_scores);
  judged = add_inference(expanded, model, plan, judged);
  const ValueId eval_target = judged.front();
  if (binary) {
    out.eval_logits = judged.back();
    out.eval_targets = expanded(model.binary_targets);
  }
  for (size_t i = 0; i < out.outputs.size(); ++i) out.outputs[i].value = judged[i + 1];
  std::vector<ValueId> targets{model.loss};
  if (classifies) targets.insert(targets.end(), {model.logits, model.labels});
  out.inputs = used_inputs(model, expanded, needed_nodes(model.graph, targets), targets);
  out.input = main_input(model, expanded, out.inputs);
  out.graph = std::move(expanded.graph);
  Graph& graph = out.graph;
  if (model.labels != kNone) out.labels = expanded(model.labels);
  out.ignored_label = model.ignored_label;
  if (classifies) out.logits = expanded(model.logits);
  out.loss = expanded(model.loss);
  const size_t model_variables = graph.variables().size();
  const BufferValues buffers = add_working_buffers(graph, layer_nodes, plan.buffers);
  // The metrics are the same function of the logits in every lane, whatever its plan.
  out.eval_loss = eval_target;
  if (classifies) {
    const auto metric = [&](const char* op, const char* path, ValueId logits) {
      return graph.add1(op, path, {logits, out.labels});  // a NodePlan's default is fp32
    };
    out.accuracy = metric("Accuracy", "metrics/accuracy", out.logits);
    out.eval_loss = metric("SoftmaxCrossEntropyLoss", "metrics/loss", eval_target);
    if (spec.scores) out.eval_logits = eval_target;
    out.eval_accuracy = eval_target == out.logits
                            ? out.accuracy
                            : metric("Accuracy", "metrics/eval_accuracy", eval_target);
  }
  if (plan.fuses) {
    std::set<ValueId> read{judged.begin(), judged.end()};
    read.insert({out.loss, out.logits});
    fuse_chains(graph, read);
  }
  settle_forward_formats(graph, plan.storage, target_inputs(model, expanded.new_of));
  for (const Node& node : graph.nodes()) check_trains(node);

  out.loss_scale = graph.add_input("loss_scale", {});
  const NodeId first_backward = static_cast<NodeId>(graph.nodes().size());
  const GradientMap gradients = differentiate(graph, out.loss, out.loss_scale);
  settle_gradient_formats(graph, first_backward, gradients);
  set_result_ranges(graph);

  out.inverse_scale = graph.add_input("inverse_scale", {});
  out.learning_rate = graph.add_input("learning_rate", {});
  out.clip = graph.add_input("clip", {});
  out.keep_sum = graph.add_input("keep_sum", {});
  const UpdateScalars scalars{out.inverse_scale, out.clip, out.learning_rate};
  add_rank_inputs(out, plan, spec);
  std::vector<ValueId> grad_targets{out.loss}, sum_targets, step_gradients, rank_gradients;
  if (classifies) grad_targets.push_back(out.accuracy);
  std::vector<ValueId> update_targets = buffers.committed;
  std::vector<size_t> trained;  // indices of variables, in the order of step_gradients
  grad_targets.insert(grad_targets.end(), buffers.moved.begin(), buffers.moved.end());
  SiteNames names;
  for (size_t i = 0, buffer = 0; i < model_variables; ++i) {
    const Variable variable = graph.variables()[i];
    if (variable.buffer) {
      if (variable.next == kNone) continue;
      names[buffers.moved[buffer++]] = {variable.path, "", Role::state, Phase::forward};
      continue;
    }
    const auto found = gradients.find(variable.value);
    if (found == gradients.end()) continue;
    ValueId gradient = found->second;
    grad_targets.push_back(gradient);
    if (spec.micro_batches > 1) {
      gradient = add_gradient_sum(
          graph, i, gradient, out.keep_sum,
          plan.gradient_sum.value_or(spec.sum_format.value_or(graph.value(variable.value).format)));
      names[gradient] = {variable.path, "_grad_sum", Role::weight_grad, Phase::backward};
      sum_targets.push_back(gradient);
    }
    if (spec.ranks > 1) {
      rank_gradients.push_back(gradient);
      gradient = add_rank_sum(out, i, gradient, spec.micro_batches, sum_targets);
      names[gradient] = {variable.path, "_grad_reduced", Role::weight_grad, Phase::backward};
    }
    step_gradients.push_back(gradient);
    trained.push_back(i);
  }
  if (step_gradients.empty()) {
    throw Error("no variable of '" + model.name + "' affects its loss: nothing to train");
  }
  out.gradient_norm = graph.add1("GradientNorm", "metrics/gradient_norm", step_gradients);
  graph.node(graph.value(out.gradient_norm).producer).phase = Phase::backward;
  if (spec.ranks > 1) sum_targets.push_back(add_rank_norm(out, rank_gradients));
  add_steps(out, plan, spec, scalars, trained, std::move(step_gradients), names, update_targets);

  for (const Variable& variable : graph.variables()) {
    const bool is_sum =
        std::find(sum_targets.begin(), sum_targets.end(), variable.next) != sum_targets.end();
    if (variable.next != kNone && !is_sum) {
      graph.value(variable.next).rounding = plan.storage_rounding;
    }
  }
  const Narrowed narrowed = narrow_operands(graph);
  grad_targets.insert(grad_targets.end(), narrowed.updates.begin(), narrowed.updates.end());
  std::set<NodeId> given;
  const auto set_entry = [&](Entry entry, const std::vector<ValueId>& targets) {
    std::vector<NodeId> nodes = nodes_for(graph, narrowed.order, targets, given);
    given.insert(nodes.begin(), nodes.end());
    out.entries[static_cast<size_t>(entry)] = std::move(nodes);
  };
  std::vector<ValueId> begin_targets;
  for (const Variable& variable : graph.variables()) {
    if (variable.restored != kNone) begin_targets.push_back(variable.restored);
  }
  set_entry(Entry::begin, begin_targets);
  set_entry(Entry::grad, grad_targets);
  set_entry(Entry::accumulate, sum_targets);
  set_entry(Entry::norm, {out.gradient_norm});
  set_entry(Entry::update, update_targets);
  given.clear();
  std::vector<ValueId> eval_targets{out.eval_loss};
  if (classifies) eval_targets.push_back(out.eval_accuracy);
  for (const NamedValue& output : out.outputs) eval_targets.push_back(output.value);
  set_entry(Entry::eval, eval_targets);
  out.taps = find_sites(out, gradients, names);
  out.layers = describe_layers(graph, layer_nodes);
  return out;
}

}  // namespace halfscope
