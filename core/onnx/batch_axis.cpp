// SPDX-License-Identifier: MIT
#include "core/onnx/batch_axis.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/onnx/graph_copy.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

const char* const kNumberOfSamples = "it computes with the number of samples";

std::string described(const Node& node) { return node.path + " (" + node.op + ")"; }

/// Returns what a node does with the samples.
SampleResult result_of(const Graph& graph, const Node& node, const SamplePlaces& places,
                       std::span<const int64_t> sources) {
  const OpDef& def = find_op(node.op);
  if (def.keeps_samples == nullptr) return samples::unfit("it is not known to keep samples apart");
  SampleResult result = def.keeps_samples(SampleNode(graph, node, places, sources));
  if (!result.refusal.empty() || !result.place) return result;
  const size_t outputs = std::min(node.outputs.size(), def.statistics_from);
  for (size_t i = 0; i < outputs; ++i) {
    const Shape& shape = graph.value(node.outputs[i]).shape;
    const auto [axis, before] = *result.place;
    if (axis >= shape.size() || before < 1 || shape[axis] < 1 || shape[axis] % before != 0)
      return samples::unfit("its output has no dimension for the samples");
  }
  return result;
}

bool reads_samples(const Node& node, const SamplePlaces& places) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return places.contains(input); });
}

void set_outputs(const Node& node, const std::optional<SamplePlace>& place, SamplePlaces& places) {
  const size_t outputs = std::min(node.outputs.size(), find_op(node.op).statistics_from);
  for (size_t i = 0; i < outputs; ++i) {
    places.erase(node.outputs[i]);
    if (place) places[node.outputs[i]] = *place;
  }
}

/// The dimension of 1 in `one` that is the batch in `several`, if nothing else differs.
std::optional<size_t> only_difference(const Shape& one, const Shape& several, int64_t batch) {
  std::optional<size_t> found;
  if (one.size() != several.size()) return std::nullopt;
  for (size_t i = 0; i < one.size(); ++i) {
    if (one[i] == several[i]) continue;
    if (found || one[i] != 1 || several[i] != batch) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace

std::optional<SamplePlace> SampleAxes::place(ValueId value) const {
  const auto found = places_.find(value);
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

Shape SampleAxes::shape(ValueId value) const {
  Shape shape = graph_.value(value).shape;
  if (const auto at = place(value)) shape[at->axis] *= batch_;
  return shape;
}

void SampleAxes::refuse(const std::string& what, const std::string& reason) {
  if (refusal_.empty()) refusal_ = what + ": " + reason;
}

void SampleAxes::add_constant(ValueId constant, const KnownTensor& several,
                              const std::string& what) {
  const auto axis = only_difference(graph_.value(constant).shape, several.shape, batch_);
  const std::vector<Constant>& all = graph_.constants();
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const Constant& each) { return each.value == constant; });
  const bool fits = std::all_of(several.ints.begin(), several.ints.end(), [](int64_t value) {
    return value >= INT32_MIN && value <= INT32_MAX;
  });
  if (!axis || !known || !fits) {
    refuse(what, kNumberOfSamples);
    return;
  }
  places_[constant] = {*axis, 1};
  constants_[constant] = several;
}

void SampleAxes::expect(ValueId value, const Shape& several, const std::string& what) {
  if (!refusal_.empty() || shape(value) == several) return;
  const auto axis = only_difference(graph_.value(value).shape, several, batch_);
  const NodeId made_by = graph_.value(value).producer;
  if (!axis || place(value) || made_by == kNone || graph_.node(made_by).op != "Expand") {
    refuse(what, "its shape and its operand's depend on the number of samples in different ways");
    return;
  }
  places_[value] = {*axis, 1};
}

void SampleAxes::picked(ValueId value, size_t axis, const std::string& what) {
  if (const auto at = place(value); at && at->axis == axis) refuse(what, "it picks samples");
}

void SampleAxes::follow() {
  const auto end = static_cast<NodeId>(graph_.nodes().size());
  if (!next_sources_.empty() && next_ < end) sources_[end - 1] = std::exchange(next_sources_, {});
  for (; next_ < end && refusal_.empty(); ++next_) visit(next_);
  next_ = end;
}

void SampleAxes::visit(NodeId id) {
  const Node& node = graph_.node(id);
  if (!reads_samples(node, places_)) {
    const bool joint = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId input) { return joint_.contains(input); });
    if (joint) joint_.insert(node.outputs.begin(), node.outputs.end());
    return;
  }
  const auto sources = sources_.find(id);
  SampleResult result = result_of(
      graph_, node, places_,
      sources == sources_.end() ? std::span<const int64_t>{} : std::span(sources->second));
  if (!result.refusal.empty()) {
    refuse(described(node), result.refusal);
    return;
  }
  set_outputs(node, result.place, places_);
  if (!result.place) joint_.insert(node.outputs.begin(), node.outputs.end());
  if (!result.others.empty()) others_[id] = std::move(result.others);
  if (!result.copies.empty()) copies_[id] = std::move(result.copies);
}

std::vector<SampleCopies> SampleAxes::copies(NodeId node) const {
  const auto found = copies_.find(node);
  return found == copies_.end() ? std::vector<SampleCopies>{} : found->second;
}

std::string SampleAxes::mixed_from(NodeId id, SamplePlace other) const {
  SamplePlaces places = places_;
  set_outputs(graph_.node(id), other, places);
  for (++id; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
    const Node& node = graph_.node(id);
    if (!reads_samples(node, places)) continue;
    const auto sources = sources_.find(id);
    const SampleResult result = result_of(
        graph_, node, places,
        sources == sources_.end() ? std::span<const int64_t>{} : std::span(sources->second));
    if (!result.refusal.empty()) return result.mixes ? described(node) : "";
    set_outputs(node, result.place, places);
  }
  return "";
}

void SampleAxes::finish(const std::vector<NamedValue>& outputs) {
  for (const NamedValue& output : outputs) {
    const auto at = place(output.value);
    if (at && (at->axis != 0 || graph_.value(output.value).shape[0] != 1))
      refuse("output " + output.name, "its first dimension is not the number of samples");
  }
  if (std::none_of(outputs.begin(), outputs.end(), [&](const NamedValue& output) {
        return place(output.value).has_value() || joint_.contains(output.value);
      })) {
    refuse("output " + outputs.front().name, "it has no dimension for the samples");
  }
  constexpr size_t kMostVisits = 100'000'000;
  if (others_.size() * graph_.nodes().size() > kMostVisits)
    refuse(described(graph_.node(others_.begin()->first)),
           "the samples may be in too many different dimensions");
  for (auto each = others_.begin(); each != others_.end() && refusal_.empty(); ++each) {
    for (const SamplePlace& other : each->second) {
      const std::string mixer = mixed_from(each->first, other);
      if (mixer.empty()) continue;
      refuse(mixer, "it mixes samples if they are in dimension " + std::to_string(other.axis) +
                        " of " + described(graph_.node(each->first)));
      break;
    }
  }
}

namespace {

/// Writes the graph of several samples.
class Writer {
 public:
  Writer(const Model& one, const SampleAxes& axes)
      : one_(one), axes_(axes), copy_(one, [&](ValueId value) { return axes.shape(value); }) {
    for (const Node& node : one.graph.nodes()) paths_.insert(node.path);
    for (const Variable& variable : one.graph.variables()) paths_.insert(variable.path);
  }

  Model run() {
    for (const auto& [value, several] : axes_.constants())
      copy_.set(value, constant(several, one_.graph.value(value).type));
    for (NodeId id = 0; id < static_cast<NodeId>(one_.graph.nodes().size()); ++id)
      add(one_.graph.node(id), axes_.copies(id));
    return copy_.finish();
  }

 private:
  bool several(ValueId value) const { return value != kNone && axes_.place(value).has_value(); }

  ValueId constant(const KnownTensor& known, ElementType type) {
    if (type == ElementType::real) {
      Tensor tensor{known.shape, known.true_reals()};
      for (int64_t number : known.ints) tensor.data.push_back(static_cast<float>(number));
      return copy_.graph().add_constant(std::move(tensor));
    }
    return copy_.graph().add_index_constant(known.shape, {known.ints.begin(), known.ints.end()});
  }

  std::string free_path(const std::string& wanted) {
    std::string path = wanted;
    for (int i = 2; !paths_.insert(path).second; ++i) path = wanted + "_" + std::to_string(i);
    return path;
  }

  void add(const Node& node, const std::vector<SampleCopies>& copies) {
    Node changed = node;
    changed.inputs = copy_.moved(node.inputs);
    if (const auto shape = changed.attributes.find("shape");
        shape != changed.attributes.end() && several(node.outputs[0])) {
      shape->second = axes_.shape(node.outputs[0]);
    }
    for (const SampleCopies& each : copies)
      changed.inputs[each.input] = copied(changed.inputs[each.input], each.place, node.path);
    const bool starts = node.op == "BatchNormalization" && several(node.inputs[0]) &&
                        int_attribute(node, "training_mode", 0) == 0;
    if (starts) start_statistics(node, changed);
    const std::vector<ValueId> outputs =
        copy_.graph().add(changed.op, changed.path, changed.inputs, changed.attributes);
    if (starts) {
      for (size_t i = 0; i < 2; ++i) next_of(changed.inputs[3 + i]) = outputs.at(1 + i);
    }
    // Statistics are for the gradients alone, and for running ones, which the samples share.
    const size_t results = find_op(node.op).statistics_from;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Shape& shape = copy_.graph().value(outputs.at(i)).shape;
      if (i < results && shape != axes_.shape(node.outputs[i])) {
        throw Error(described(node) + ": its output has shape " + to_string(shape) + " for " +
                    std::to_string(axes_.batch()) + " samples, expected " +
                    to_string(axes_.shape(node.outputs[i])));
      }
      copy_.set(node.outputs[i], outputs[i]);
    }
  }

  /// A value that all samples share, once for each of them.
  ValueId copied(ValueId value, SamplePlace place, const std::string& path) {
    const auto add = [&](const char* op, ValueId from, const Shape& shape) {
      Attributes attributes{{"shape", shape}};
      if (std::string(op) == "Reshape") attributes["allowzero"] = int64_t{1};
      return copy_.graph().add1(op, free_path(path + "/samples"), {from}, attributes);
    };
    Shape shape = copy_.graph().value(value).shape, apart = shape;
    int64_t& size = shape[place.axis];
    const int64_t rest = size / place.before;
    size *= axes_.batch();
    if (rest * place.before == 1) return add("Expand", value, shape);
    // Between what comes before the samples in that dimension and what comes after.
    apart[place.axis] = rest;
    apart.insert(apart.begin() + static_cast<int64_t>(place.axis), {place.before, 1});
    value = add("Reshape", value, apart);
    apart[place.axis + 1] = axes_.batch();
    return add("Reshape", add("Expand", value, apart), shape);
  }

  /// One value per channel has no variance, so the file's statistics are constants there; with
  /// several samples there is one.
  void start_statistics(const Node& node, Node& changed) {
    const auto buffer = [&](size_t i, const char* name) {
      const std::vector<Constant>& all = one_.graph.constants();
      const auto found = std::find_if(all.begin(), all.end(), [&](const Constant& each) {
        return each.value == node.inputs.at(i);
      });
      if (found == all.end()) throw Error(described(node) + ": its statistics are not constants");
      const std::string path = free_path(node.path + name);
      copy_.result().initial[path] = found->tensor;
      changed.inputs[i] = copy_.graph().add_buffer(path, found->tensor.shape, {});
    };
    buffer(3, ".running_mean");
    buffer(4, ".running_var");
    changed.attributes["training_mode"] = int64_t{1};
  }

  ValueId& next_of(ValueId buffer) {
    std::vector<Variable>& all = copy_.graph().variables();
    return std::find_if(all.begin(), all.end(),
                        [&](const Variable& each) { return each.value == buffer; })
        ->next;
  }

  const Model& one_;
  const SampleAxes& axes_;
  GraphCopy copy_;
  std::set<std::string> paths_;
};

void check_size(const Graph& graph, const SampleAxes& axes) {
  int64_t elements = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId output : node.outputs) {
      const int64_t one = element_count(graph.value(output).shape);
      const int64_t copies = axes.place(output) ? axes.batch() : 1;
      elements +=
          copies > kMostElements / std::max<int64_t>(one, 1) ? kMostElements + 1 : one * copies;
    }
    if (elements > kMostElements) throw too_many_numbers(described(node));
  }
}

}  // namespace

Error too_many_numbers(const std::string& what) {
  return Error(what + ": up to this node, the network has more than " +
                   std::to_string(kMostElements) + " numbers",
               "use a smaller batch or smaller inputs");
}

std::optional<Model> with_batch(const Model& one, SampleAxes& axes) {
  check_size(one.graph, axes);
  try {
    return Writer(one, axes).run();
  } catch (const Error& error) {  // an operator that does not do what its rule says
    axes.refuse("with " + std::to_string(axes.batch()) + " samples", error.what());
    return std::nullopt;
  }
}

}  // namespace halfscope::onnx_files
