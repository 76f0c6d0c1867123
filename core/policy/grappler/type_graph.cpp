// SPDX-License-Identifier: MIT
#include "core/policy/grappler/type_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace halfscope::grappler {
namespace {

constexpr size_t kMissing = SIZE_MAX;

Error bad_graph(const std::string& what) {
  return Error(
      "bad TensorFlow graph: " + what,
      "export the graph again; it must be complete and come from TensorFlow 2.21 or older");
}

/// The type attribute and the type of each operand or result.
using Types = std::vector<std::pair<TypeId, TfType>>;

TfType single_type(const TfNode& node, const TfOp& op, const std::string& attr) {
  if (const auto found = node.attrs.find(attr); found != node.attrs.end())
    return found->second.type;
  const TfTypeAttr* known = op.attr(attr);
  if (known != nullptr && known->usual != 0) return known->usual;
  throw bad_graph(fmt::format("node '{}' ({}) has no attribute {}", node.name, node.op, attr));
}

void append(Types& types, const TfNode& node, const TfOp& op, const TfArgument& argument) {
  if (argument.list) {
    const auto found = node.attrs.find(argument.attr);
    if (found == node.attrs.end()) {
      throw bad_graph(
          fmt::format("node '{}' ({}) has no attribute {}", node.name, node.op, argument.attr));
    }
    for (size_t i = 0; i < found->second.types.size(); ++i) {
      types.emplace_back(TypeId{.attr = argument.attr, .index = static_cast<int>(i)},
                         found->second.types[i]);
    }
    return;
  }
  int64_t times = 1;
  if (!argument.number.empty()) {
    if (const auto found = node.attrs.find(argument.number); found != node.attrs.end())
      times = found->second.i;
  }
  constexpr int64_t kMostTimes = 1 << 20;  // of a damaged file
  if (times < 0 || times > kMostTimes) {
    throw bad_graph(fmt::format("node '{}' has {} = {}", node.name, argument.number, times));
  }
  const TypeId id =
      argument.attr.empty() ? TypeId{.fixed = argument.fixed} : TypeId{.attr = argument.attr};
  const TfType type = argument.attr.empty() ? argument.fixed : single_type(node, op, argument.attr);
  types.insert(types.end(), static_cast<size_t>(times), {id, type});
}

Types types_of(const TfNode& node, const TfOp& op, const std::vector<TfArgument>& arguments) {
  Types types;
  for (const TfArgument& argument : arguments) append(types, node, op, argument);
  return types;
}

void sort_unique(std::vector<size_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// Throws Error if nodes wait for each other. As in TensorFlow, loops go from NextIteration to
/// Merge; no other edge may close a cycle, and neither may a control input.
void check_cycles(const TfGraph& graph, const std::unordered_map<std::string, size_t>& by_name) {
  const auto is = [&](size_t node, std::string_view op) {
    const std::string& name = graph.nodes[node].op;
    return name == op || name == "Ref" + std::string(op);
  };
  const size_t count = graph.nodes.size();
  std::vector<std::vector<size_t>> sources(count), readers(count);
  std::vector<size_t> waits(count, 0);
  for (size_t node = 0; node < count; ++node) {
    for (const std::string& input : graph.nodes[node].inputs) {
      const bool control = is_control(input);
      const auto found = by_name.find(control ? input.substr(1) : parse_input(input).first);
      if (found == by_name.end()) {
        throw bad_graph(fmt::format("node '{}' waits for '{}', which does not exist",
                                    graph.nodes[node].name, input.substr(1)));
      }
      if (!control && is(node, "Merge") && is(found->second, "NextIteration")) continue;
      sources[node].push_back(found->second);
      readers[found->second].push_back(node);
      ++waits[node];
    }
  }
  std::vector<size_t> ready;
  for (size_t node = 0; node < count; ++node) {
    if (waits[node] == 0) ready.push_back(node);
  }
  size_t done = 0;
  for (; done < ready.size(); ++done) {
    for (const size_t reader : readers[ready[done]]) {
      if (--waits[reader] == 0) ready.push_back(reader);
    }
  }
  if (done == count) return;
  // Each node that is left waits for another one that is left, so going backwards meets a cycle.
  const auto is_left = [&](size_t node) { return waits[node] > 0; };
  size_t node = 0;
  while (!is_left(node)) ++node;
  std::vector<size_t> way;
  while (std::find(way.begin(), way.end(), node) == way.end()) {
    way.push_back(node);
    node = *std::find_if(sources[node].begin(), sources[node].end(), is_left);
  }
  constexpr size_t kShown = 4;
  const size_t length = static_cast<size_t>(way.end() - std::find(way.begin(), way.end(), node));
  std::string text = "'" + graph.nodes[node].name + "'";
  for (size_t i = 0; i < std::min(length, kShown); ++i) {
    text += " reads '" +
            graph.nodes[i + 1 == length ? node : way[way.size() - length + i + 1]].name + "'";
    if (i + 1 < std::min(length, kShown)) text += ", which";
  }
  if (length > kShown) text += fmt::format(" and so on through {} nodes", length);
  throw Error("bad TensorFlow graph: a cycle that is not a loop: " + text,
              "only loops from NextIteration to Merge may be cycles; export the graph again");
}

}  // namespace

std::string TypeId::text() const {
  if (attr.empty()) return tf_type_name(fixed);
  return index < 0 ? attr : attr + "[" + std::to_string(index) + "]";
}

std::pair<std::string, size_t> parse_input(const std::string& input) {
  const size_t colon = input.rfind(':');
  if (colon == std::string::npos) return {input, 0};
  size_t port = 0;
  const char* end = input.data() + input.size();
  const auto [stop, failed] = std::from_chars(input.data() + colon + 1, end, port);
  if (failed != std::errc{} || stop != end) return {input, 0};
  return {input.substr(0, colon), port};
}

size_t TypeGraph::intern(size_t node, const TypeId& id, TfType type) {
  for (size_t v = first_.at(node); v < vertices_.size(); ++v) {
    if (vertices_[v].id == id) return v;
  }
  vertices_.push_back({.node = node, .id = id, .type = type});
  return vertices_.size() - 1;
}

void TypeGraph::add_vertices(const TfGraph& graph, size_t index) {
  const TfNode& node = graph.nodes[index];
  const auto function = graph.functions.find(node.op);
  const TfOp* op = function != graph.functions.end() ? &function->second : find_tf_op(node.op);
  if (op == nullptr) {
    throw bad_graph(fmt::format("node '{}' has the unknown operator {}", node.name, node.op));
  }
  ops_.push_back(op);
  first_.push_back(vertices_.size());
  const Types inputs = types_of(node, *op, op->inputs), outputs = types_of(node, *op, op->outputs);
  const auto given = std::count_if(node.inputs.begin(), node.inputs.end(),
                                   [](const std::string& input) { return !is_control(input); });
  if (static_cast<size_t>(given) != inputs.size()) {
    throw bad_graph(fmt::format("node '{}' ({}) has {} inputs instead of {}", node.name, node.op,
                                given, inputs.size()));
  }
  std::vector<size_t>& in = input_vertex_.emplace_back();
  for (size_t port = 0; port < inputs.size(); ++port) {
    in.push_back(intern(index, inputs[port].first, inputs[port].second));
    vertices_[in.back()].in_ports.push_back(port);
  }
  std::vector<size_t>& out = output_vertex_.emplace_back();
  for (size_t port = 0; port < outputs.size(); ++port) {
    out.push_back(intern(index, outputs[port].first, outputs[port].second));
    vertices_[out.back()].out_ports.push_back(port);
  }
  readers_.emplace_back(outputs.size());
  // Types of neither operands nor results, such as StackV2's elem_type.
  for (const TfTypeAttr& attr : op->attrs) {
    const auto found = node.attrs.find(attr.name);
    if (attr.list) {
      const size_t count = found == node.attrs.end() ? 0 : found->second.types.size();
      for (size_t i = 0; i < count; ++i)
        intern(index, {.attr = attr.name, .index = static_cast<int>(i)}, found->second.types[i]);
    } else if (found != node.attrs.end() || attr.usual != 0) {
      intern(index, {.attr = attr.name}, single_type(node, *op, attr.name));
    }
  }
}

TypeGraph::TypeGraph(const TfGraph& graph) {
  std::unordered_map<std::string, size_t> by_name;
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    if (!by_name.emplace(graph.nodes[node].name, node).second)
      throw bad_graph(fmt::format("two nodes have the name '{}'", graph.nodes[node].name));
    add_vertices(graph, node);
  }
  first_.push_back(vertices_.size());
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    std::vector<Port>& sources = sources_.emplace_back();
    for (const std::string& input : graph.nodes[node].inputs) {
      if (is_control(input)) continue;
      const auto [name, port] = parse_input(input);
      const auto found = by_name.find(name);
      if (found == by_name.end() || port >= readers_[found->second].size()) {
        throw bad_graph(fmt::format("node '{}' reads '{}', which does not exist",
                                    graph.nodes[node].name, input));
      }
      const Port reader{node, sources.size()};
      sources.push_back({found->second, port});
      readers_[found->second][port].push_back(reader);
      const size_t from = output_vertex_[found->second][port], to = of_input(reader);
      vertices_[to].from.push_back(from);
      vertices_[from].to.push_back(to);
    }
  }
  add_edges({});
  check_cycles(graph, by_name);
}

void TypeGraph::add_edges(const std::vector<std::pair<size_t, size_t>>& edges) {
  for (const auto& [from, to] : edges) {
    vertices_.at(from).to.push_back(to);
    vertices_.at(to).from.push_back(from);
  }
  for (TypeVertex& vertex : vertices_) {
    sort_unique(vertex.from);
    sort_unique(vertex.to);
  }
}

size_t TypeGraph::find(size_t node, const TypeId& id) const {
  const auto [begin, end] = vertices_of(node);
  for (size_t v = begin; v < end; ++v) {
    if (vertices_[v].id == id) return v;
  }
  return kMissing;
}

const std::vector<Port>& TypeGraph::readers(Port output) const {
  return readers_.at(output.node).at(output.port);
}

}  // namespace halfscope::grappler
