// SPDX-License-Identifier: MIT
#include "core/onnx/translate.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "core/graph/unrounded.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {

Translation::Translation(Importer& importer, const ::onnx::NodeProto& node,
                         const NodeAttributes& attributes, std::vector<BindingPtr> inputs,
                         std::string path, const std::string& what)
    : importer_(importer),
      node_(node),
      attributes_(attributes),
      inputs_(std::move(inputs)),
      path_(std::move(path)),
      what_(what) {
  for (const BindingPtr& input : inputs_) {
    if (input == nullptr || !is_real(input->type)) continue;
    type_ = input->type;
    break;
  }
}

const Binding& Translation::binding(size_t i) const {
  if (!has(i)) throw error("input " + std::to_string(i) + " is missing");
  if (inputs_[i]->sequence != nullptr)
    throw error("its input is a list of tensors, which is not supported");
  return *inputs_[i];
}

Shape Translation::shape(size_t i) const {
  const Binding& of = binding(i);
  return of.known != nullptr ? of.known->shape : importer_.graph().value(of.value).shape;
}

bool Translation::is_index(size_t i) const {
  const Binding& of = binding(i);
  if (of.known != nullptr) return !of.known->real();
  return importer_.graph().value(of.value).type == ElementType::index;
}

bool Translation::computes_integers(size_t first, size_t end) const {
  for (size_t i = first; i < std::min(end, inputs_.size()); ++i) {
    if (has(i) && !is_known(i) && is_index(i)) return true;
  }
  return false;
}

ValueId Translation::integers(size_t i) {
  const DataType type = binding(i).type;
  if (!is_index(i)) throw error("its inputs mix reals and integers");
  if (type != DataType::int32 && type != DataType::int64)
    throw error("computing with " + type_name(type) +
                " at run time is not supported; int32 and int64 are");
  return index(i);
}

ValueId Translation::real(size_t i, const char* role) {
  binding(i);
  return followed(i, importer_.real_value(*inputs_[i], path_, role, false, what_));
}

ValueId Translation::rounded_real(size_t i) {
  const ValueId value = real(i);
  if (!is_known(i) || binding(i).known->unrounded.empty()) return value;
  const ValueId rounded = add("Identity", {value}, {}, "rounded");
  importer_.set_node_type(graph().node(graph().value(rounded).producer).path, type(i));
  return rounded;
}

ValueId Translation::weight(size_t i, const char* role) {
  binding(i);
  return followed(i, importer_.real_value(*inputs_[i], path_, role, true, what_));
}

ValueId Translation::scale_or_bias(size_t i, const char* role) {
  if (!is_known(i) || binding(i).trainable) return weight(i, role);
  const std::vector<float>& values = binding(i).known->reals;
  const bool same =
      std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
  return same ? real(i, role) : weight(i, role);
}

ValueId Translation::index(size_t i) {
  binding(i);
  return followed(i, importer_.index_value(*inputs_[i], what_));
}

/// Reports constants that depend on the batch size to SampleAxes, which tracks the sample axis.
ValueId Translation::followed(size_t i, ValueId value) {
  if (inputs_[i]->several != nullptr && importer_.samples() != nullptr)
    importer_.samples()->add_constant(value, *inputs_[i]->several, what_);
  return value;
}

const KnownTensor& Translation::known(size_t i, const char* name) const {
  const Binding& of = binding(i);
  if (of.known == nullptr) {
    throw Error(what_ + ": its " + name + " is only known at run time, which is not supported",
                "export the network with fixed shapes, or simplify the file");
  }
  if (of.several != nullptr && importer_.samples() != nullptr)
    importer_.samples()->refuse(
        what_, std::string("it takes its ") + name + " from the number of samples");
  return *of.known;
}

std::vector<int64_t> Translation::known_shape(size_t i, std::vector<int64_t>* several) const {
  const Binding& of = binding(i);
  if (of.known == nullptr || of.several == nullptr) return known_ints(i, "shape");
  if (of.known->real()) throw error("its shape must be integers");
  if (several != nullptr) *several = of.several->ints;
  return of.known->ints;
}

std::vector<int64_t> Translation::known_sizes(size_t i, const char* name, ValueId value,
                                              const std::vector<int64_t>& axes) const {
  const Binding& of = binding(i);
  const SampleAxes* samples = importer_.samples();
  if (of.known == nullptr || of.several == nullptr || samples == nullptr || of.known->real())
    return known_ints(i, name);
  const std::vector<int64_t>&one = of.known->ints, &several = of.several->ints;
  const Shape from = importer_.graph().value(value).shape, from_several = samples->shape(value);
  if (one.size() != axes.size() || several.size() != axes.size()) return known_ints(i, name);
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto axis = static_cast<size_t>(axes[k]);
    const bool stays = one[k] == from.at(axis) && several[k] == from_several.at(axis);
    if (one[k] != several[k] && !stays) return known_ints(i, name);  // throws
  }
  return one;
}

bool Translation::is_zeros(size_t i, const Shape& one, size_t axis, int64_t several) const {
  const Binding& of = binding(i);
  const auto zeros = [](const KnownTensor& known) {
    return known.real() && std::all_of(known.reals.begin(), known.reals.end(),
                                       [](float value) { return value == 0.0f; });
  };
  if (of.known == nullptr || of.trainable || of.known->shape != one || !zeros(*of.known))
    return false;
  Shape wanted = one;
  wanted.at(axis) = several;
  return of.several == nullptr || (of.several->shape == wanted && zeros(*of.several));
}

std::vector<int64_t> Translation::known_ints(size_t i, const char* name) const {
  const KnownTensor& tensor = known(i, name);
  if (tensor.real()) throw error(std::string("its ") + name + " must be integers");
  return tensor.ints;
}

double Translation::known_scalar(size_t i, const char* name) const {
  const KnownTensor& tensor = known(i, name);
  if (tensor.count() != 1) throw error(std::string("its ") + name + " must be one number");
  // Uses the unrounded number, because Clip and Pad round their own results.
  return tensor.real() ? static_cast<double>(tensor.true_reals()[0]) : tensor.number(0);
}

std::optional<std::vector<int64_t>> Translation::ints(const char* attribute, size_t i) const {
  if (auto given = attributes_.ints(attribute)) return given;
  if (has(i)) return known_ints(i, attribute);
  return std::nullopt;
}

std::vector<ValueId> Translation::add_all(const char* op, std::vector<ValueId> inputs,
                                          Attributes attributes, const std::string& suffix) {
  const std::string path = suffix.empty() ? path_ : importer_.unique_path(path_ + "/" + suffix);
  return importer_.add(op, path, std::move(inputs), std::move(attributes));
}

ValueId Translation::add(const char* op, std::vector<ValueId> inputs, Attributes attributes,
                         const std::string& suffix) {
  return add_all(op, std::move(inputs), std::move(attributes), suffix).front();
}

ValueId Translation::add_step(const char* op, std::vector<ValueId> inputs, Attributes attributes,
                              const std::string& suffix) {
  attributes[kUnrounded] = kStepOfOne;
  return add(op, std::move(inputs), std::move(attributes), suffix);
}

ValueId Translation::reshape(ValueId value, const Shape& shape, const std::string& suffix,
                             std::vector<int64_t> sources) {
  if (shape_of(value) == shape) return value;
  if (importer_.samples() != nullptr) importer_.samples()->set_sources(std::move(sources));
  return add("Reshape", {value}, {{"shape", shape}, {"allowzero", int64_t{1}}}, suffix);
}

void Translation::set_reshaped(size_t output, ValueId value, const Shape& shape,
                               std::vector<int64_t> sources) {
  if (importer_.samples() != nullptr) importer_.samples()->set_sources(std::move(sources));
  set(output, add("Reshape", {value}, {{"shape", shape}, {"allowzero", int64_t{1}}}));
}

void Translation::set(size_t output, ValueId value) {
  if (outputs_.size() <= output) outputs_.resize(output + 1);
  auto binding = std::make_shared<Binding>();
  binding->value = value;
  // Operators that move integers do not change their type.
  const DataType integers = has(0) && is_integer(type(0)) ? type(0) : DataType::int64;
  binding->type = graph().value(value).type == ElementType::index ? integers : type_;
  outputs_[output] = std::move(binding);
}

void Translation::set_boolean(size_t output, ValueId value) {
  set_integers(output, value, DataType::boolean);
}

void Translation::set_integers(size_t output, ValueId value, DataType type) {
  set(output, value);
  outputs_[output]->type = type;
}

void Translation::set_start(size_t output, size_t input) {
  auto known = std::make_shared<KnownTensor>(*binding(input).known);
  known->type = outputs_[output]->type;
  outputs_[output]->known = std::move(known);
  // Values computed from this output must not become constants either.
  outputs_[output]->trainable = binding(input).trainable;
  outputs_[output]->frozen = binding(input).frozen;
}

void Translation::set_known(size_t output, KnownTensor tensor) {
  if (outputs_.size() <= output) outputs_.resize(output + 1);
  auto binding = std::make_shared<Binding>();
  binding->type = tensor.type;
  binding->known = std::make_shared<KnownTensor>(std::move(tensor));
  outputs_[output] = std::move(binding);
}

namespace {

std::array<std::span<const Translator>, 13> all_translators() {
  return {attention_translators(), einsum_translators(),   function_translators(),
          math_translators(),      movement_translators(), network_translators(),
          recurrent_translators(), resize_translators(),   sampling_translators(),
          scatter_translators(),   choice_translators(),   window_translators(),
          quantize_translators()};
}

}  // namespace

Translate find_translator(std::string_view op) {
  for (const auto& list : all_translators()) {
    for (const Translator& each : list) {
      if (each.op == op) return each.run;
    }
  }
  const OpDef* def = lookup_op(op);
  return def != nullptr && def->onnx.read > 0 ? translate_same : nullptr;
}

std::vector<std::string> translated_operators() {
  std::vector<std::string> names;
  for (const auto& list : all_translators()) {
    for (const Translator& each : list) names.emplace_back(each.op);
  }
  for (const OpDef& def : op_table()) {
    if (def.onnx.read > 0) names.emplace_back(def.name);
  }
  return names;
}

bool is_understood(std::string_view op) {
  // These operators can only be folded or unrolled.
  constexpr std::array<std::string_view, 18> kFolded{"ConcatFromSequence",
                                                     "Constant",
                                                     "ConstantOfShape",
                                                     "DequantizeLinear",
                                                     "EyeLike",
                                                     "If",
                                                     "Loop",
                                                     "NonZero",
                                                     "Range",
                                                     "Scan",
                                                     "SequenceAt",
                                                     "SequenceConstruct",
                                                     "SequenceEmpty",
                                                     "SequenceInsert",
                                                     "SequenceLength",
                                                     "Shape",
                                                     "Size",
                                                     "SplitToSequence"};
  return find_translator(op) != nullptr ||
         std::find(kFolded.begin(), kFolded.end(), op) != kFolded.end();
}

ValueId gather_rows(Translation& t, ValueId x, int64_t axis, const std::vector<int64_t>& rows,
                    const std::string& suffix) {
  std::vector<int32_t> indices;
  for (int64_t row : rows) indices.push_back(static_cast<int32_t>(row));
  const ValueId constant =
      t.graph().add_index_constant({static_cast<int64_t>(rows.size())}, std::move(indices));
  return t.add("Gather", {x, constant}, {{"axis", axis}}, suffix);
}

bool set_rows_of_each_sample(Translation& t, ValueId x, const Shape& places,
                             std::vector<int64_t> rows) {
  const SampleAxes* samples = t.importer().samples();
  const Shape from = t.shape_of(x);
  if (samples == nullptr || samples->place(x) != SamplePlace{0, 1}) return false;
  // With so few rows or dimensions, the indices could also belong to the first sample alone.
  if (from[0] < 2 || places.size() < 2 || places[0] != 1) return false;
  for (int64_t& row : rows) row += row < 0 ? from[0] : 0;
  if (static_cast<int64_t>(std::set(rows.begin(), rows.end()).size()) != from[0]) return false;
  Shape apart = from, result = places;
  apart.insert(apart.begin(), 1);
  result.insert(result.end(), from.begin() + 1, from.end());
  std::vector<int64_t> sources(result.size(), kAdded), apart_sources(apart.size(), kAdded);
  for (size_t i = 0; i < places.size() && places[i] == 1; ++i) sources[i] = kAnything;
  apart_sources[0] = kAnything;
  const bool in_order =
      static_cast<int64_t>(rows.size()) == from[0] && std::is_sorted(rows.begin(), rows.end());
  if (!in_order) {
    x = t.reshape(x, apart, "samples_apart", std::move(apart_sources));
    x = gather_rows(t, x, 1, rows, "rows");
  }
  t.set_reshaped(0, x, result, std::move(sources));
  return true;
}

void set_named(Translation& t, ValueId value) {
  t.graph().node(t.graph().value(value).producer).path = t.path();
  t.set(0, value);
}

void check_domain(const Translation& t) {
  const std::string& domain = t.node().domain();
  if (!domain.empty() && domain != "ai.onnx")
    throw t.error("this operator of domain '" + domain + "' is not supported");
}

std::vector<int64_t> bounded(const Translation& t, std::vector<int64_t> values, int64_t least,
                             int64_t most, const char* name) {
  for (int64_t value : values) {
    if (value < least || value > most) {
      throw t.error(std::string(name) + " of " + std::to_string(value) + " is out of range");
    }
  }
  return values;
}

}  // namespace halfscope::onnx_files
