// SPDX-License-Identifier: MIT
#include "gpu/engine/layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/lower/execution.h"
#include "core/ops/ops.h"

namespace halfscope::gpu {
namespace {

constexpr int64_t kAlignment = 256;  // whole transactions, and vector loads of any width

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Returns whether the value is stored in its format. Operators that round themselves only round
/// their first output; the others are unrounded.
bool is_of_its_format(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return true;
  const Node& node = graph.node(producer);
  return !find_op(node.op).rounds_itself || value == node.outputs[0];
}

/// Returns the storage of all values. An alias gets that of the value whose memory it shares, which
/// can represent everything that is written there.
std::vector<Storage> storages(const Graph& graph, const std::map<ValueId, ValueId>& alias) {
  const auto root_of = [&](ValueId value) {
    for (auto at = alias.find(value); at != alias.end(); at = alias.find(value)) value = at->second;
    return static_cast<size_t>(value);
  };
  const size_t count = graph.values().size();
  std::vector<Storage> result(count, Storage::fp32);
  for (size_t i = 0; i < count; ++i) {
    const Value& value = graph.values()[i];
    if (value.type == ElementType::real && is_of_its_format(graph, static_cast<ValueId>(i))) {
      result[i] = storage_for(value.format);
    }
  }
  const std::vector<Storage> own = result;
  for (const auto& [value, target] : alias) {
    const NodeId producer = graph.value(value).producer;
    const bool written = producer == kNone || !is_view(graph.node(producer));
    const size_t root = root_of(value);
    if (written && own[static_cast<size_t>(value)] != own[root]) result[root] = Storage::fp32;
  }
  for (const auto& [value, target] : alias)
    result[static_cast<size_t>(value)] = result[root_of(value)];
  return result;
}

/// Returns the only entry that makes and reads each value, `grad` or `eval`; nothing for values
/// that others use, that no node makes, or that share memory with such values.
std::vector<std::optional<Entry>> only_entries(const Executable& executable,
                                               const std::map<ValueId, ValueId>& alias) {
  const Graph& graph = executable.graph;
  std::vector<unsigned> uses(graph.values().size(), 0);  // a bit per entry
  constexpr unsigned kOthers = 1u << kEntryCount;
  for (size_t entry = 0; entry < kEntryCount; ++entry) {
    for (NodeId id : executable.entries[entry]) {
      const Node& node = graph.node(id);
      for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs}) {
        for (ValueId value : *values) {
          if (value != kNone) uses[static_cast<size_t>(value)] |= 1u << entry;
        }
      }
    }
  }
  const auto keep = [&](ValueId value) {
    if (value != kNone) uses[static_cast<size_t>(value)] |= kOthers;
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    if (graph.values()[i].producer == kNone) uses[i] |= kOthers;
  }
  for (const NamedValue& output : executable.outputs) keep(output.value);
  for (const ValueId read :
       {executable.loss, executable.accuracy, executable.logits, executable.eval_loss,
        executable.eval_accuracy, executable.eval_logits}) {
    keep(read);
  }
  // Values in the same memory have the same uses; aliases may be several steps long.
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [value, target] : alias) {
      unsigned &a = uses[static_cast<size_t>(value)], &b = uses[static_cast<size_t>(target)];
      changed = changed || a != b;
      a = b = a | b;
    }
  }
  std::vector<std::optional<Entry>> only(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    for (const Entry entry : {Entry::grad, Entry::eval}) {
      if (uses[i] == 1u << static_cast<unsigned>(entry)) only[i] = entry;
    }
  }
  return only;
}

}  // namespace

Layout::Layout(const Executable& executable)
    : alias_(memory_aliases(executable.graph)),
      only_(only_entries(executable, alias_)),
      places_(executable.graph.values().size(), -1),
      storages_(storages(executable.graph, alias_)) {
  const Graph& graph = executable.graph;
  for (const Variable& variable : graph.variables()) add(graph, variable.value);
  if (executable.input != kNone) add(graph, executable.input);
  if (executable.labels != kNone) add(graph, executable.labels);
  for (const NamedValue& input : executable.inputs) add(graph, input.value);
  for (const NamedValue& output : executable.outputs) add(graph, output.value);
  const auto only = [&](Entry entry) {
    return [this, entry](ValueId value) { return only_in(value) == entry; };
  };
  const auto shared = [this](ValueId value) { return !only_in(value).has_value(); };
  add_nodes(executable,
            {Entry::begin, Entry::grad, Entry::accumulate, Entry::norm, Entry::update, Entry::eval},
            shared);
  const int64_t begin = bytes_;
  add_nodes(executable, {Entry::grad}, only(Entry::grad));
  const int64_t end = std::exchange(bytes_, begin);
  add_nodes(executable, {Entry::eval}, only(Entry::eval));
  bytes_ = std::max(bytes_, end);
}

template <class Chosen>
void Layout::add_nodes(const Executable& executable, std::initializer_list<Entry> entries,
                       const Chosen& chosen) {
  const Graph& graph = executable.graph;
  for (const Entry entry : entries) {
    for (NodeId id : executable.entry(entry)) {
      const Node& node = graph.node(id);
      for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs}) {
        for (ValueId value : *values) {
          if (value != kNone && chosen(value)) add(graph, value);
        }
      }
      exact_bytes_ = std::max(exact_bytes_, exact_place(graph, node, node.outputs.size()));
    }
  }
}

int64_t Layout::exact_place(const Graph& graph, const Node& node, size_t i) const {
  int64_t place = 0;
  for (size_t k = 0; k < i; ++k) {
    if (bytes_of(storage(node.outputs[k])) < 4) {
      place += aligned(element_count(graph.value(node.outputs[k]).shape) * 4);
    }
  }
  return place;
}

void Layout::add(const Graph& graph, ValueId value) {
  int64_t& place = places_[static_cast<size_t>(value)];
  if (place >= 0) return;
  if (const auto alias = alias_.find(value); alias != alias_.end()) {
    add(graph, alias->second);
    place = places_[static_cast<size_t>(alias->second)];
    return;
  }
  place = bytes_;
  const int64_t count = element_count(graph.value(value).shape), bytes = bytes_of(storage(value));
  bytes_ += aligned(count * bytes);
  if (graph.value(value).type == ElementType::real) {
    exact_bytes_ = std::max(exact_bytes_, aligned(count * 4));
  }
}

std::map<ValueId, std::vector<IndexUse>> index_uses(const Graph& graph) {
  std::map<ValueId, std::vector<IndexUse>> uses;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    const OpDef* def = lookup_op(node.op);  // null for empty places
    if (def == nullptr || def->picks == Picks::nothing) continue;
    const Picks use = def->picks;
    const bool loss = use == Picks::classes;
    const bool backward = use == Picks::rows_of_result;
    const bool labels = loss || takes_labels(node);
    const Shape& table = graph.value(backward ? node.outputs[0] : node.inputs[0]).shape;
    const size_t axis = labels ? 1 : static_cast<size_t>(axis_attribute(node, table.size(), 0));
    uses[node.inputs[1]].push_back({.node = id,
                                    .classes = table[axis],
                                    .ignored = loss ? int_attribute(node, "ignore_index", -1) : -1,
                                    .labels = labels});
  }
  return uses;
}

void check_indices(const Graph& graph, const IndexUse& use, const std::vector<int32_t>& indices) {
  const Node& node = graph.node(use.node);
  const bool loss = use.labels && !takes_labels(node);
  for (int32_t index : indices) {
    const bool ignored = use.labels ? index < 0 || index == use.ignored : false;
    if (ignored || (index < use.classes && index >= -use.classes)) continue;
    throw Error(node.path + " (" + node.op + "): " + (loss ? "label " : "index ") +
                std::to_string(index) + " is out of range: there are " +
                std::to_string(use.classes) + (loss ? " classes" : " elements"));
  }
}

}  // namespace halfscope::gpu
