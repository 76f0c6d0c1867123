// SPDX-License-Identifier: MIT
// Replaces primitives that exporters write by composites. recognise_*.cpp find the matches; this
// file copies the graph with one node per match.
#include "core/onnx/recognise.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/onnx/matches.h"
#include "core/ops/ops.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

using Matches = std::map<NodeId, Match>;  ///< by their root nodes
using Forms = std::map<NodeId, std::shared_ptr<const WrittenForm>>;

/// Returns whether autocast is on or off in all of a match, and nothing inside of it is a cast.
bool is_in_one_region(const Surroundings& in, const Match& match) {
  return std::all_of(match.nodes.begin(), match.nodes.end(), [&](NodeId id) {
    const Node& node = in.graph().node(id);
    return !node.attributes.contains(kTorchCast) &&
           ints_attribute(node, kAutocastOff) ==
               ints_attribute(in.graph().node(match.root), kAutocastOff);
  });
}

using CallOf = std::function<std::string(const Node&)>;

/// Returns whether all nodes of a match are of one call, as far as the file says.
bool is_of_one_call(const Surroundings& in, const Match& match, const CallOf& call_of) {
  if (match.op == "RMSNormalization") return true;
  std::set<std::string> calls;
  for (const NodeId id : match.nodes) calls.insert(call_of(in.graph().node(id)));
  calls.erase("");
  return calls.size() < 2;
}

std::optional<Match> match_at(const Surroundings& in, NodeId id, const CallOf& call_of) {
  for (const auto& find : {match_group_normalization, match_normalization, match_function,
                           match_attention, match_softmax}) {
    std::optional<Match> match = find(in, id);
    if (!match || !in.is_closed(*match) || !is_in_one_region(in, *match) ||
        !is_of_one_call(in, *match, call_of)) {
      continue;
    }
    const bool reads_itself = std::any_of(
        match->inputs.begin(), match->inputs.end(),
        [&](ValueId input) { return input != kNone && match->nodes.contains(in.producer(input)); });
    if (!reads_itself) return match;
  }
  return std::nullopt;
}

/// Returns a composite's name for its input i if that is a variable; "" keeps the current name.
std::string parameter_name(const Graph& graph, const Match& match, const std::string& path,
                           size_t i) {
  if (match.op != "Attention") return i == 0 ? "" : path + (i == 1 ? ".weight" : ".bias");
  // Named after the primitive that reads it, because only primitives are run.
  if (i == 0) return path + "/scores.weight";
  const Node node{.op = match.op,
                  .path = path,
                  .inputs = match.inputs,
                  .outputs = {},
                  .attributes = match.attributes,
                  .plan = {}};
  const std::vector<AttentionMask> masks = attention_masks(graph, node);
  for (size_t mask = 0; mask < masks.size(); ++mask) {
    if (masks[mask].value != i || masks[mask].condition != kNone) continue;
    return path + (mask == 0 ? "/mask" : "/mask_" + std::to_string(mask + 1)) + ".bias";
  }
  return "";
}

/// Copies a graph with every match as one node, in the place of the match's last node.
class Rewriting {
 public:
  Rewriting(Model model, const Matches& matches, Forms forms)
      : model_(std::move(model)),
        from_(model_.graph),
        matches_(matches),
        forms_(std::move(forms)),
        new_of_(from_.values().size(), kNone) {
    for (const auto& [root, match] : matches_) {
      gone_.insert(match.nodes.begin(), match.nodes.end());
      as_they_are_.insert(match.inputs.begin(), match.inputs.end());
      for (const Parameter& each : match.parameters) {
        const auto [found, first] = wanted_shapes_.emplace(each.from, each.shape);
        // A match that needs another shape reads the value through a Reshape.
        if (!first && found->second != each.shape) as_they_are_.insert(each.from);
      }
    }
    for (NodeId id = 0; id < static_cast<NodeId>(from_.nodes().size()); ++id) {
      const std::vector<ValueId>& inputs = from_.node(id).inputs;
      (gone_.contains(id) ? read_by_gone_ : as_they_are_).insert(inputs.begin(), inputs.end());
    }
    for (const NamedValue& output : model_.outputs) as_they_are_.insert(output.value);
  }

  Model run() {
    for (const Input& input : from_.inputs()) {
      const Value& value = from_.value(input.value);
      set(input.value, graph().add_input(input.name, value.shape, value.type));
    }
    result_.initial = std::move(model_.initial);
    copy_variables();
    for (const Constant& constant : from_.constants()) {
      set(constant.value, from_.value(constant.value).type == ElementType::index
                              ? graph().add_index_constant(constant.tensor.shape, constant.indices)
                              : graph().add_constant(constant.tensor));
    }
    for (NodeId id = 0; id < static_cast<NodeId>(from_.nodes().size()); ++id) copy_node(id);
    for (const Variable& variable : from_.variables()) {
      if (variable.next == kNone) continue;
      for (Variable& each : graph().variables()) {
        if (each.value == moved(variable.value)) each.next = moved(variable.next);
      }
    }
    result_.name = model_.name;
    result_.input = moved(model_.input);
    result_.labels = moved(model_.labels);
    result_.logits = moved(model_.logits);
    result_.loss = moved(model_.loss);
    for (const NamedValue& output : model_.outputs)
      result_.outputs.push_back({output.name, moved(output.value)});
    return std::move(result_);
  }

 private:
  Graph& graph() { return result_.graph; }
  ValueId moved(ValueId value) const {
    return value == kNone ? kNone : new_of_.at(static_cast<size_t>(value));
  }
  void set(ValueId value, ValueId to) { new_of_.at(static_cast<size_t>(value)) = to; }

  /// Returns whether only removed nodes read the value and no match takes it, such as ones and
  /// zeros that a composite does not have.
  bool is_left_over(ValueId value) const {
    return read_by_gone_.contains(value) && !as_they_are_.contains(value) &&
           !wanted_shapes_.contains(value);
  }

  /// Returns the new names of parameters, after the nodes that now read them. A parameter keeps its
  /// name if the new one is taken, or if the old one comes from a node that stays.
  std::map<ValueId, std::string> parameter_paths() const {
    std::set<std::string> paths, gone;
    for (const Variable& variable : from_.variables()) paths.insert(variable.path);
    for (NodeId id : gone_) gone.insert(from_.node(id).path);
    std::map<ValueId, std::string> result;
    for (const auto& [root, match] : matches_) {
      std::vector<ValueId> inputs = match.inputs;
      for (const Parameter& each : match.parameters) inputs.push_back(each.from);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Variable* variable = inputs[i] == kNone ? nullptr : from_.variable_of(inputs[i]);
        const std::string path = parameter_name(from_, match, from_.node(root).path, i);
        if (variable == nullptr || path.empty() || result.contains(inputs[i]) ||
            !gone.contains(variable->path.substr(0, variable->path.rfind('.')))) {
          continue;
        }
        if (paths.insert(path).second) result[inputs[i]] = path;
      }
    }
    return result;
  }

  void copy_variables() {
    const std::map<ValueId, std::string> renamed = parameter_paths();
    for (const Variable& variable : from_.variables()) {
      auto start = result_.initial.extract(variable.path);
      if (is_left_over(variable.value)) continue;
      const auto found = renamed.find(variable.value);
      const std::string path = found != renamed.end() ? found->second : variable.path;
      Shape shape = from_.value(variable.value).shape;
      if (const auto wanted = wanted_shapes_.find(variable.value);
          wanted != wanted_shapes_.end() && !as_they_are_.contains(variable.value)) {
        shape = wanted->second;
      }
      if (!start.empty()) {
        start.key() = path;
        start.mapped().shape = shape;
        result_.initial.insert(std::move(start));
      }
      set(variable.value, variable.buffer
                              ? graph().add_buffer(path, shape, variable.initializer)
                              : graph().add_variable(path, shape, variable.initializer));
      graph().variables().back().alias = variable.alias;
    }
  }

  ValueId parameter(const Parameter& wanted, const std::string& path) {
    if (wanted.from == kNone) {
      const auto count = static_cast<size_t>(element_count(wanted.shape));
      return graph().add_constant(Tensor{wanted.shape, std::vector<float>(count, wanted.value)});
    }
    const ValueId value = moved(wanted.from);
    if (graph().value(value).shape == wanted.shape) return value;
    for (const Constant& constant : from_.constants()) {
      if (constant.value == wanted.from)
        return graph().add_constant(Tensor{wanted.shape, constant.tensor.data});
    }
    return graph().add1("Reshape", path, {value},
                        {{"shape", wanted.shape}, {"allowzero", int64_t{1}}});
  }

  void copy_node(NodeId id) {
    const Node& node = from_.node(id);
    if (const auto found = matches_.find(id); found != matches_.end()) {
      const Match& match = found->second;
      std::vector<ValueId> inputs;
      for (ValueId input : match.inputs) inputs.push_back(moved(input));
      for (const Parameter& each : match.parameters) {
        const char* name = inputs.size() == 1 ? "/weight" : "/bias";
        inputs.push_back(parameter(each, node.path + name));
      }
      Attributes attributes = match.attributes;
      if (const auto off = node.attributes.find(kAutocastOff); off != node.attributes.end())
        attributes.insert(*off);
      set(node.outputs[0], graph().add1(match.op, node.path, std::move(inputs), attributes));
      graph().node(graph().value(moved(node.outputs[0])).producer).written = forms_.at(id);
    } else if (!gone_.contains(id)) {
      std::vector<ValueId> inputs;
      for (ValueId input : node.inputs) inputs.push_back(moved(input));
      const std::vector<ValueId> outputs =
          graph().add(node.op, node.path, std::move(inputs), node.attributes);
      for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], outputs.at(i));
    }
  }

  Model model_;
  const Graph& from_;
  const Matches& matches_;
  Forms forms_;
  std::set<NodeId> gone_;
  std::set<ValueId> as_they_are_;  ///< read by remaining nodes, or as an operand of a match
  std::set<ValueId> read_by_gone_;
  std::map<ValueId, Shape> wanted_shapes_;  ///< for the parameters of matches
  std::vector<ValueId> new_of_;
  Model result_;
};

}  // namespace

Model recognise_composites(Model model, const std::function<FloatFormat(const Node&)>& type_of,
                           bool own_squares, const CallOf& call_of) {
  const Surroundings surroundings(model, type_of, own_squares);
  Matches matches;
  std::set<NodeId> taken;
  // Visit later nodes first, so that a normalization's own Mul is not matched as something smaller.
  for (NodeId id = static_cast<NodeId>(model.graph.nodes().size()) - 1; id >= 0; --id) {
    if (taken.contains(id)) continue;
    std::optional<Match> match = match_at(surroundings, id, call_of);
    if (!match || std::any_of(match->nodes.begin(), match->nodes.end(),
                              [&](NodeId node) { return taken.contains(node); })) {
      continue;
    }
    taken.insert(match->nodes.begin(), match->nodes.end());
    matches.emplace(match->root, std::move(*match));
  }
  if (matches.empty()) return model;
  Forms forms;
  for (const auto& [root, match] : matches) forms[root] = written_form(surroundings, match);
  return Rewriting(std::move(model), matches, std::move(forms)).run();
}

}  // namespace halfscope::onnx_files
