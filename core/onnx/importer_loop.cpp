// SPDX-License-Identifier: MIT
// Loop and Scan, unrolled if the number of iterations is known when the file is read, and lists of
// tensors ("sequences" in ONNX), which only exist during the import.
#include <algorithm>
#include <functional>
#include <string_view>

#include "core/error.h"
#include "core/onnx/importer.h"
#include "core/onnx/node_order.h"

namespace halfscope::onnx_files {
namespace {

constexpr int64_t kMostTurns = 10'000;

using Nodes = google::protobuf::RepeatedPtrField<::onnx::NodeProto>;

BindingPtr known_binding(KnownTensor tensor) {
  auto binding = std::make_shared<Binding>();
  binding->type = tensor.type;
  binding->known = std::make_shared<KnownTensor>(std::move(tensor));
  return binding;
}

/// Numbers of elements before and after an axis.
struct Around {
  size_t outer = 1, inner = 1;
  Around(const Shape& shape, size_t axis) {
    const auto at = shape.begin() + static_cast<int64_t>(axis);
    outer = static_cast<size_t>(element_count(Shape(shape.begin(), at)));
    inner = static_cast<size_t>(element_count(Shape(at + 1, shape.end())));
  }
};

template <class T>
void copy_part(const std::vector<T>& from, std::vector<T>& to, const Around& around, size_t size,
               size_t part) {
  if (from.empty()) return;
  for (size_t o = 0; o < around.outer; ++o) {
    const auto first = from.begin() + static_cast<int64_t>((o * size + part) * around.inner);
    to.insert(to.end(), first, first + static_cast<int64_t>(around.inner));
  }
}

Shape without_axis(Shape shape, size_t axis) {
  shape.erase(shape.begin() + static_cast<int64_t>(axis));
  return shape;
}
Shape with_one(Shape shape, size_t axis) {
  shape.insert(shape.begin() + static_cast<int64_t>(axis), 1);
  return shape;
}

}  // namespace

/// State of a file's node while it is unrolled or while it makes lists.
struct Importer::Unrolled {
  Importer& importer;
  const ::onnx::NodeProto& node;
  const NodeAttributes& attributes;
  const std::vector<BindingPtr>& inputs;
  Scope& scope;
  const std::string& path;
  const std::string& what;
  int depth;
  bool named = false;  ///< whether a node of ours already has the path

  Graph& graph() { return importer.model_.graph; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Binding& input(size_t i) const {
    if (!has(i)) throw Error(what + ": input " + std::to_string(i) + " is missing");
    return *inputs[i];
  }
  /// Returns a known number.
  int64_t number(const Binding& of, const char* name) const {
    if (of.known == nullptr || of.known->count() != 1) {
      throw Error(what + ": its " + name + " is only known at run time, which is not supported",
                  "export the network with fixed shapes");
    }
    return static_cast<int64_t>(of.known->number(0));
  }
  const std::vector<BindingPtr>& list(size_t i) const {
    if (input(i).sequence == nullptr) throw Error(what + ": its input must be a list of tensors");
    return *input(i).sequence;
  }
  void set(int output, const BindingPtr& binding) {
    if (output >= node.output_size() || node.output(output).empty()) return;
    importer.bind(scope, node.output(output), std::make_shared<Binding>(*binding), what);
  }
  void set_list(std::vector<BindingPtr> parts) {
    auto binding = std::make_shared<Binding>();
    binding->sequence = std::make_shared<const std::vector<BindingPtr>>(std::move(parts));
    set(0, binding);
  }

  Shape shape_of(const Binding& of) {
    if (of.sequence != nullptr)
      throw Error(what + ": its input must be a tensor, not a list of tensors");
    return of.known != nullptr ? of.known->shape : graph().value(of.value).shape;
  }
  ValueId value_of(Binding& of) {
    if (of.known != nullptr && !of.known->real()) return importer.index_value(of, what);
    return of.known == nullptr ? of.value : importer.real_value(of, path, "weight", false, what);
  }
  BindingPtr computed(ValueId value, DataType type) {
    auto binding = std::make_shared<Binding>();
    binding->value = value;
    binding->type = type;
    return binding;
  }
  /// Adds a node; the first one gets the path itself.
  std::vector<ValueId> add(const char* op, ValueId input, Attributes attributes_of,
                           const std::string& suffix) {
    const std::string at =
        suffix.empty() && !named ? path : importer.unique_path(path + "/" + suffix);
    named = named || suffix.empty();
    std::vector<ValueId> made = importer.add(op, at, {input}, std::move(attributes_of));
    return made;
  }
  ValueId reshaped(ValueId value, const Shape& shape, const std::string& suffix) {
    if (graph().value(value).shape == shape) return value;
    return add("Reshape", value, {{"shape", shape}, {"allowzero", int64_t{1}}}, suffix).front();
  }

  /// Splits into parts of length 1 along an axis; `keep` keeps that axis.
  std::vector<BindingPtr> parts(Binding& of, size_t axis, bool keep, const std::string& name);
  /// Joins tensors along an existing axis, or along a new one.
  BindingPtr joined(const std::vector<BindingPtr>& parts, int64_t axis, bool new_axis,
                    const std::string& name);

  void loop();
  void scan();
  void split_to_sequence();
  void insert();

  /// Adds the body's constants once for all iterations, and returns its other nodes.
  Nodes prepare(const ::onnx::GraphProto& body, Scope& shared);
  BindingPtr result(const ::onnx::GraphProto& body, const Scope& inner, int i) const {
    const BindingPtr found = i < body.output_size() ? inner.find(body.output(i).name()) : nullptr;
    if (found == nullptr) throw Error(what + ": an output of its body is missing");
    return found;
  }
  void give(Scope& inner, const ::onnx::GraphProto& body, int i, const BindingPtr& value) {
    if (i >= body.input_size()) throw Error(what + ": its body has too few inputs");
    importer.bind(inner, body.input(i).name(), std::make_shared<Binding>(*value), what);
  }
  void too_many(int64_t turns) const {
    throw Error(what + ": " + std::to_string(turns) + " turns are too many to unroll",
                "use at most " + std::to_string(kMostTurns) +
                    " turns, for example with a smaller "
                    "batch");
  }
};

std::vector<BindingPtr> Importer::Unrolled::parts(Binding& of, size_t axis, bool keep,
                                                  const std::string& name) {
  const Shape shape = shape_of(of);
  const int64_t size = shape[axis];
  if (size > kMostTurns) too_many(size);
  Shape part = shape;
  part[axis] = 1;
  if (!keep) part = without_axis(shape, axis);
  std::vector<BindingPtr> result;
  if (of.known != nullptr && !of.trainable) {
    const Around around(shape, axis);
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
      KnownTensor tensor{.type = of.known->type, .shape = part};
      copy_part(of.known->reals, tensor.reals, around, static_cast<size_t>(size), i);
      copy_part(of.known->ints, tensor.ints, around, static_cast<size_t>(size), i);
      if (!of.known->unrounded.empty())
        copy_part(of.known->unrounded, tensor.unrounded, around, static_cast<size_t>(size), i);
      result.push_back(known_binding(std::move(tensor)));
    }
    return result;
  }
  std::vector<ValueId> values{value_of(of)};
  if (size != 1) {
    const std::vector<int64_t> ones(static_cast<size_t>(size), 1);
    values = add("Split", values[0], {{"axis", static_cast<int64_t>(axis)}, {"split", ones}}, name);
  }
  for (ValueId value : values)
    result.push_back(computed(reshaped(value, part, name + "_part"), of.type));
  return result;
}

BindingPtr Importer::Unrolled::joined(const std::vector<BindingPtr>& parts, int64_t axis,
                                      bool new_axis, const std::string& name) {
  if (parts.empty())
    throw Error(what + ": the list is empty, so the shape of the result is unknown");
  const size_t rank = shape_of(*parts[0]).size() + (new_axis ? 1 : 0);
  const auto along = static_cast<size_t>(checked_axis(axis, rank, what));
  const bool known = std::all_of(parts.begin(), parts.end(), [](const BindingPtr& part) {
    return part->known != nullptr && !part->trainable;
  });
  if (known) {
    const KnownTensor& first = *parts[0]->known;
    KnownTensor all{.type = first.type,
                    .shape = new_axis ? with_one(first.shape, along) : first.shape};
    const Around around(all.shape, along);
    all.shape[along] = 0;
    for (const BindingPtr& part : parts) {
      const Shape shape = new_axis ? with_one(part->known->shape, along) : part->known->shape;
      Shape rest = shape, wanted = all.shape;
      if (shape.size() == rank) rest[along] = wanted[along] = 0;
      if (rest != wanted || part->known->real() != first.real())
        throw Error(what + ": the shapes or types of its tensors do not match");
      all.shape[along] += shape[along];
    }
    for (size_t o = 0; o < around.outer; ++o) {
      for (const BindingPtr& part : parts) {
        const KnownTensor& of = *part->known;
        const auto length = static_cast<int64_t>(of.count()) / static_cast<int64_t>(around.outer);
        const auto start = static_cast<int64_t>(o) * length;
        if (of.real()) {
          const std::vector<float>& exact = of.true_reals();
          all.unrounded.insert(all.unrounded.end(), exact.begin() + start,
                               exact.begin() + start + length);
          all.reals.insert(all.reals.end(), of.reals.begin() + start,
                           of.reals.begin() + start + length);
        } else {
          all.ints.insert(all.ints.end(), of.ints.begin() + start,
                          of.ints.begin() + start + length);
        }
      }
    }
    return known_binding(std::move(all));
  }
  std::vector<ValueId> values;
  for (const BindingPtr& part : parts) {
    const ValueId value = value_of(*part);
    const Shape shape = graph().value(value).shape;
    values.push_back(new_axis ? reshaped(value, with_one(shape, along), name + "_part") : value);
  }
  if (values.size() == 1)
    return computed(add("Identity", values[0], {}, named ? name : "").front(), parts[0]->type);
  const std::string at =
      std::exchange(named, true) ? importer.unique_path(path + "/" + name) : path;
  return computed(
      importer.add("Concat", at, values, {{"axis", static_cast<int64_t>(along)}}).front(),
      parts[0]->type);
}

Nodes Importer::Unrolled::prepare(const ::onnx::GraphProto& body, Scope& shared) {
  for (const ::onnx::TensorProto& proto : body.initializer())
    importer.bind_initializer(proto, importer.initializer(proto), shared);
  Nodes rest;
  for (const ::onnx::NodeProto& each : body.node()) {
    const bool constant = each.op_type() == "Constant" && importer.find_function(each) == nullptr;
    if (constant) {
      importer.run_node(each, shared, depth + 1);
    } else {
      *rest.Add() = each;
    }
  }
  return rest;
}

void Importer::Unrolled::loop() {
  const ::onnx::GraphProto* body = attributes.graph("body");
  if (body == nullptr) throw Error(what + ": lacks a body");
  if (!has(0) && !has(1)) throw Error(what + ": the loop never ends");
  const int64_t turns = has(0) ? number(*inputs[0], "number of turns") : kMostTurns + 1;
  if (has(0) && !has(1) && turns > kMostTurns) too_many(turns);
  bool goes_on = !has(1) || number(*inputs[1], "condition") != 0;
  const int carried = std::max(0, static_cast<int>(inputs.size()) - 2);
  const int stacked = body->output_size() - 1 - carried;
  std::vector<BindingPtr> state;
  for (int i = 0; i < carried; ++i) state.push_back(inputs[static_cast<size_t>(i) + 2]);
  if (std::count(state.begin(), state.end(), nullptr) > 0 || stacked < 0)
    throw Error(what + ": its inputs do not fit its body");
  std::vector<std::vector<BindingPtr>> collected(static_cast<size_t>(stacked));
  Scope shared{.outer = &scope, .prefix = path + "/"};
  const Nodes nodes = prepare(*body, shared);
  for (int64_t turn = 0; turn < turns && goes_on; ++turn) {
    if (turn == kMostTurns) too_many(has(0) ? turns : turn + 1);
    Scope inner{.outer = &shared, .prefix = path + "/turn_" + std::to_string(turn) + "/"};
    give(inner, *body, 0, known_binding(known_ints({turn}, {})));
    give(inner, *body, 1, known_binding(known_ints({1}, {}, DataType::boolean)));
    for (int i = 0; i < carried; ++i) give(inner, *body, i + 2, state[static_cast<size_t>(i)]);
    importer.run_nodes(nodes, inner, depth + 1);
    if (has(1)) goes_on = number(*result(*body, inner, 0), "condition") != 0;
    for (int i = 0; i < carried; ++i) state[static_cast<size_t>(i)] = result(*body, inner, i + 1);
    for (int i = 0; i < stacked; ++i)
      collected[static_cast<size_t>(i)].push_back(result(*body, inner, 1 + carried + i));
  }
  for (int i = 0; i < carried; ++i) set(i, state[static_cast<size_t>(i)]);
  for (int i = 0; i < stacked; ++i) {
    const bool read = carried + i < node.output_size() && !node.output(carried + i).empty();
    if (read) set(carried + i, joined(collected[static_cast<size_t>(i)], 0, true, "turns"));
  }
}

void Importer::Unrolled::scan() {
  const ::onnx::GraphProto* body = attributes.graph("body");
  if (body == nullptr) throw Error(what + ": lacks a body");
  if (importer.opset_ < 9) throw Error(what + ": the Scan of opset 8 is not supported");
  const auto scanned = static_cast<int>(attributes.integer("num_scan_inputs", 0));
  const int carried = static_cast<int>(inputs.size()) - scanned;
  const int stacked = body->output_size() - carried;
  if (scanned < 1 || carried < 0 || stacked < 0 ||
      std::count(inputs.begin(), inputs.end(), nullptr) > 0)
    throw Error(what + ": its inputs do not fit its body");
  const auto each = [&](const char* name, int i) {
    const std::vector<int64_t> given = attributes.ints(name, {});
    return static_cast<size_t>(i) < given.size() ? given[static_cast<size_t>(i)] : 0;
  };
  std::vector<BindingPtr> state(inputs.begin(), inputs.begin() + carried);
  std::vector<std::vector<BindingPtr>> given, collected(static_cast<size_t>(stacked));
  for (int i = 0; i < scanned; ++i) {
    Binding& from = *inputs[static_cast<size_t>(carried + i)];
    const auto axis =
        static_cast<size_t>(checked_axis(each("scan_input_axes", i), shape_of(from).size(), what));
    given.push_back(parts(from, axis, false, "input_" + std::to_string(i)));
    if (each("scan_input_directions", i) != 0)
      std::reverse(given.back().begin(), given.back().end());
    if (given.back().size() != given[0].size())
      throw Error(what + ": its inputs have different lengths");
  }
  Scope shared{.outer = &scope, .prefix = path + "/"};
  const Nodes nodes = prepare(*body, shared);
  for (size_t turn = 0; turn < given[0].size(); ++turn) {
    Scope inner{.outer = &shared, .prefix = path + "/turn_" + std::to_string(turn) + "/"};
    for (int i = 0; i < carried; ++i) give(inner, *body, i, state[static_cast<size_t>(i)]);
    for (int i = 0; i < scanned; ++i)
      give(inner, *body, carried + i, given[static_cast<size_t>(i)][turn]);
    importer.run_nodes(nodes, inner, depth + 1);
    for (int i = 0; i < carried; ++i) state[static_cast<size_t>(i)] = result(*body, inner, i);
    for (int i = 0; i < stacked; ++i)
      collected[static_cast<size_t>(i)].push_back(result(*body, inner, carried + i));
  }
  for (int i = 0; i < carried; ++i) set(i, state[static_cast<size_t>(i)]);
  for (int i = 0; i < stacked; ++i) {
    std::vector<BindingPtr>& all = collected[static_cast<size_t>(i)];
    if (each("scan_output_directions", i) != 0) std::reverse(all.begin(), all.end());
    const bool read = carried + i < node.output_size() && !node.output(carried + i).empty();
    if (read) set(carried + i, joined(all, each("scan_output_axes", i), true, "turns"));
  }
}

/// Splits into parts of length 1, for unbinding and iterating.
void Importer::Unrolled::split_to_sequence() {
  Binding& from = *inputs.at(0);
  const auto axis =
      static_cast<size_t>(checked_axis(attributes.integer("axis", 0), shape_of(from).size(), what));
  bool keep = attributes.integer("keepdims", 1) != 0;
  if (has(1)) {
    keep = true;
    const KnownTensor* sizes = input(1).known.get();
    const bool ones =
        sizes != nullptr && !sizes->real() && !sizes->ints.empty() &&
        std::all_of(sizes->ints.begin(), sizes->ints.end(), [](int64_t size) { return size == 1; });
    if (!ones) throw Error(what + ": splitting into parts larger than 1 is not supported");
  }
  set_list(parts(from, axis, keep, "parts"));
}

void Importer::Unrolled::insert() {
  std::vector<BindingPtr> all = list(0);
  const auto size = static_cast<int64_t>(all.size());
  int64_t at = has(2) ? number(input(2), "position") : size;
  if (at < 0) at += size;
  if (at < 0 || at > size) throw Error(what + ": its position is out of range");
  input(1);
  all.insert(all.begin() + at, inputs[1]);
  set_list(std::move(all));
}

bool Importer::run_unrolled(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                            const std::vector<BindingPtr>& inputs, Scope& scope,
                            const std::string& path, const std::string& what, int depth) {
  const std::string_view op = node.op_type();
  Unrolled u{*this, node, attributes, inputs, scope, path, what, depth};
  if (op == "Loop") {
    u.loop();
  } else if (op == "Scan") {
    u.scan();
  } else if (op == "SequenceEmpty") {
    u.set_list({});
  } else if (op == "SequenceConstruct") {
    for (size_t i = 0; i < inputs.size(); ++i) u.input(i);
    u.set_list(inputs);
  } else if (op == "SequenceInsert") {
    u.insert();
  } else if (op == "SplitToSequence") {
    if (!u.has(0)) throw Error(what + ": input 0 is missing");
    u.split_to_sequence();
  } else if (op == "SequenceLength") {
    u.set(0, known_binding(known_ints({static_cast<int64_t>(u.list(0).size())}, {})));
  } else if (op == "SequenceAt") {
    const auto size = static_cast<int64_t>(u.list(0).size());
    const int64_t given = u.number(u.input(1), "position");
    const int64_t at = given < 0 ? given + size : given;
    if (at < 0 || at >= size) throw Error(what + ": its position is out of range");
    u.set(0, u.list(0)[static_cast<size_t>(at)]);
  } else if (op == "ConcatFromSequence") {
    u.set(0, u.joined(u.list(0), attributes.integer("axis", 0),
                      attributes.integer("new_axis", 0) != 0, "joined"));
  } else {
    return false;
  }
  return true;
}

}  // namespace halfscope::onnx_files
