// SPDX-License-Identifier: MIT
#include "analysis/cost/memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/cost/work.h"
#include "core/lower/known_values.h"
#include "core/lower/narrow.h"

namespace halfscope {
namespace {

/// Returns the memory of values that are known before any input, and that an operator reads whose
/// result is not.
std::set<ValueId> kept_parts(const Executable& executable, const Storage& storage) {
  const std::vector<bool> known = known_values(executable);
  std::set<ValueId> kept;
  for (const NodeId id : executable.entry(executable.forward)) {
    const Node& node = executable.graph.node(id);
    if (known[static_cast<size_t>(node.outputs[0])]) continue;
    for (const ValueId input : node.inputs) {
      if (input == kNone || !known[static_cast<size_t>(input)]) continue;
      for (const ValueId part : storage.parts(input)) kept.insert(part);
    }
  }
  return kept;
}

/// Adds up which values are in memory while an entry runs.
class Walk {
 public:
  explicit Walk(const Executable& executable)
      : executable_(executable), graph_(executable.graph), storage_(executable.graph) {}

  MemoryUse use() {
    find_gradients();
    add_variables();
    find_readers();
    run();
    return use_;
  }

 private:
  enum class Kind : uint8_t { free, copy, activation, gradient, temporary };

  bool trains() const { return executable_.forward == Entry::grad; }

  void add_variables() {
    if (!trains()) return add_kept();
    std::set<ValueId> trained, averages;
    for (const auto& [gradient, variable] : gradients_) trained.insert(variable);
    for (const AveragedVariable& each : executable_.averages) averages.insert(each.average);
    for (const Variable& variable : graph_.variables()) {
      held_.insert(variable.value);
      int64_t& sum = variable.buffer                                              ? use_.buffers
                     : averages.contains(variable.value)                          ? use_.optimizer
                     : trained.contains(variable.value) || variable.next == kNone ? use_.weights
                     : is_made_by_update(variable.next)                           ? use_.optimizer
                                                                                  : use_.buffers;
      sum += storage_.bytes(variable.value);
    }
    for (const Constant& constant : graph_.constants()) {
      held_.insert(constant.value);
      if (is_read(constant.value)) use_.buffers += storage_.bytes(constant.value);
    }
    add_inputs();
  }

  /// Inference keeps what is known before any input in the form in which it is read, and computes
  /// none of it again.
  void add_kept() {
    for (const ValueId part : kept_parts(executable_, storage_)) {
      const Variable* variable = graph_.variable_of(part);
      const bool constant = variable == nullptr && graph_.value(part).producer == kNone;
      const bool buffer = variable != nullptr && variable->buffer;
      (constant || buffer ? use_.buffers : use_.weights) += storage_.bytes(part);
    }
    const std::vector<bool> known = known_values(executable_);
    for (ValueId value = 0; value < static_cast<ValueId>(known.size()); ++value) {
      if (!known[static_cast<size_t>(value)]) continue;
      for (const ValueId part : storage_.parts(value)) held_.insert(part);
    }
    add_inputs();
  }

  void add_inputs() {
    for (const NamedValue& input : executable_.inputs) use_.inputs += storage_.bytes(input.value);
    for (const Input& input : graph_.inputs()) held_.insert(input.value);
    // Working copies of buffers, which only this program has.
    for (const NodeId id : executable_.entry(Entry::begin)) {
      for (const ValueId output : graph_.node(id).outputs) held_.insert(output);
    }
  }

  bool is_made_by_update(ValueId value) const {
    const std::vector<NodeId>& update = executable_.entry(Entry::update);
    return std::find(update.begin(), update.end(), graph_.value(value).producer) != update.end();
  }

  bool is_read(ValueId value) const {
    for (const NodeId id : executable_.entry(executable_.forward)) {
      const std::vector<ValueId>& inputs = graph_.node(id).inputs;
      if (std::find(inputs.begin(), inputs.end(), value) != inputs.end()) return true;
    }
    return false;
  }

  /// Finds the gradients of variables: an update reads a variable and then its gradient
  /// (core/ops/training.cpp).
  void find_gradients() {
    for (const NodeId id : executable_.entry(Entry::update)) {
      const Node& node = graph_.node(id);
      if (node.inputs.size() < 2) continue;
      const ValueId variable = storage_.root(node.inputs[0]);
      const ValueId gradient = storage_.root(node.inputs[1]);
      const NodeId made_by = graph_.value(gradient).producer;
      if (graph_.variable_of(variable) == nullptr || made_by == kNone ||
          graph_.node(made_by).phase != Phase::backward) {
        continue;
      }
      gradients_[gradient] = variable;
    }
    for (const auto& [gradient, variable] : gradients_) use_.gradients += storage_.bytes(variable);
  }

  void find_readers() {
    const std::vector<NodeId>& entry = executable_.entry(executable_.forward);
    for (size_t i = 0; i < entry.size(); ++i) {
      const Node& node = graph_.node(entry[i]);
      if (storage_.is_view(node)) continue;
      for (const ValueId input : node.inputs) {
        if (input == kNone) continue;
        for (const ValueId part : storage_.parts(input)) {
          last_[part] = i;
          if (node.phase == Phase::backward) backward_.insert(part);
        }
      }
    }
    for (const NamedValue& output : executable_.outputs) {
      last_[storage_.root(output.value)] = entry.size();
    }
  }

  Kind kind_of(ValueId root, const Node& made_by) const {
    if (gradients_.contains(root)) return Kind::gradient;
    if (held_.contains(root) || !last_.contains(root) || storage_.in_registers(root))
      return Kind::free;
    if (made_by.phase == Phase::backward) return Kind::temporary;
    const ValueId source = before_narrowing(graph_, root);
    if (source != root && graph_.variable_of(source) != nullptr) return Kind::copy;
    return !trains() || backward_.contains(root) ? Kind::activation : Kind::temporary;
  }

  void run() {
    const std::vector<NodeId>& entry = executable_.entry(executable_.forward);
    std::map<size_t, std::vector<ValueId>> freed;  // by the position of the last reader
    int64_t live = use_.always(), named = live, activations = 0;
    const auto mark_peak = [&] {
      if (live <= use_.peak) return;
      use_.peak = live;
      use_.temporary = live - named;
      if (!trains()) use_.activations = activations;
    };
    mark_peak();
    for (size_t i = 0; i < entry.size(); ++i) {
      const Node& node = graph_.node(entry[i]);
      if (storage_.is_view(node)) continue;
      for (const ValueId output : node.outputs) {
        if (output == kNone) continue;
        const ValueId root = storage_.root(output);
        const Kind kind = kind_of(root, node);
        if (kind == Kind::free || !made_.insert(root).second) continue;
        // A gradient is kept in the format of its variable, whatever computes it.
        const int64_t bytes = storage_.bytes(kind == Kind::gradient ? gradients_.at(root) : root);
        live += bytes;
        if (kind == Kind::copy) use_.weight_copies += bytes;
        if (kind == Kind::activation) activations += bytes;
        if (kind != Kind::temporary) named += bytes;
        if (kind != Kind::gradient) freed[last_.at(root)].push_back(root);
        kinds_[root] = kind;
      }
      if (trains() && node.phase == Phase::forward) use_.activations = activations;
      mark_peak();
      for (const ValueId root : freed[i]) {
        live -= storage_.bytes(root);
        if (kinds_.at(root) != Kind::temporary) named -= storage_.bytes(root);
        if (!trains() && kinds_.at(root) == Kind::activation) activations -= storage_.bytes(root);
      }
    }
    // The optimizer's step: all gradients, and nothing of the passes.
    live = use_.always() + use_.gradients;
    named = live;
    if (trains()) mark_peak();
  }

  const Executable& executable_;
  const Graph& graph_;
  Storage storage_;
  MemoryUse use_;
  std::set<ValueId> held_;                ///< not made by the entry
  std::map<ValueId, ValueId> gradients_;  ///< to their variables
  std::map<ValueId, size_t> last_;
  std::set<ValueId> backward_, made_;
  std::map<ValueId, Kind> kinds_;
};

}  // namespace

MemoryUse memory_of(const Executable& executable) { return Walk(executable).use(); }

int64_t kept_weight_bytes(const Executable& executable) {
  const Storage storage(executable.graph);
  int64_t bytes = 0;
  for (const ValueId part : kept_parts(executable, storage)) bytes += storage.bytes(part);
  return bytes;
}

}  // namespace halfscope
