// SPDX-License-Identifier: MIT
// Translators: one function per ONNX operator that adds the equivalent nodes to our graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/onnx/importer.h"
#include "core/onnx/node_order.h"

namespace halfscope::onnx_files {

/// One node of a file while it is translated.
class Translation {
 public:
  Translation(Importer& importer, const ::onnx::NodeProto& node, const NodeAttributes& attributes,
              std::vector<BindingPtr> inputs, std::string path, const std::string& what);

  const NodeAttributes& attributes() const { return attributes_; }
  const std::string& path() const { return path_; }
  const std::string& what() const { return what_; }
  const ::onnx::NodeProto& node() const { return node_; }
  Importer& importer() { return importer_; }
  Graph& graph() { return importer_.graph(); }
  int64_t opset() const { return importer_.opset(); }
  Error error(const std::string& text) const { return Error(what_ + ": " + printable(text)); }

  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  Shape shape(size_t i) const;
  DataType type(size_t i) const { return binding(i).type; }
  bool is_known(size_t i) const { return has(i) && binding(i).known != nullptr; }
  /// Returns whether the input is an initializer that trains.
  bool is_trained(size_t i) const { return is_known(i) && binding(i).trainable; }
  /// Returns whether the input has integers, known or not.
  bool is_index(size_t i) const;

  /// Returns a real operand. Throws Error if it is missing.
  ValueId real(size_t i, const char* role = "weight");
  /// Returns a real operand, rounded to its type by an extra node if its unrounded numbers are
  /// known.
  ValueId rounded_real(size_t i);
  /// Returns a weight, which becomes a variable even if the file has it as a constant.
  ValueId weight(size_t i, const char* role);
  /// Returns a weight, except that a constant of one repeated number stays a constant: exporters
  /// write ones and zeros for normalizations without scale and bias.
  ValueId scale_or_bias(size_t i, const char* role);
  ValueId index(size_t i);
  /// Returns an operand, real or integer.
  ValueId any(size_t i, const char* role = "weight") {
    return is_index(i) ? index(i) : real(i, role);
  }
  /// Returns whether one of the inputs from `first` up to `end` has integers known only at run
  /// time, so that the node computes with integers.
  bool computes_integers(size_t first, size_t end) const;
  /// Returns an operand of integer arithmetic. Throws Error unless it is int32 or int64: our
  /// integers have 32 bits and do not wrap earlier.
  ValueId integers(size_t i);
  /// Returns the values of an input. Throws Error naming it if they are only known at run time.
  const KnownTensor& known(size_t i, const char* name) const;
  std::vector<int64_t> known_ints(size_t i, const char* name) const;
  /// Returns the requested shape of the output, which may depend on the number of samples;
  /// `several`, if given, is set to the shape for the whole batch if that differs.
  std::vector<int64_t> known_shape(size_t i, std::vector<int64_t>* several = nullptr) const;
  /// Returns the requested sizes of dimensions `axes` of `value`; the samples may keep theirs.
  std::vector<int64_t> known_sizes(size_t i, const char* name, ValueId value,
                                   const std::vector<int64_t>& axes) const;
  /// Returns whether the input is zeros that do not train, of shape `one` for one sample; for
  /// several samples dimension `axis` is `several`.
  bool is_zeros(size_t i, const Shape& one, size_t axis, int64_t several) const;
  double known_scalar(size_t i, const char* name) const;
  /// Returns the attribute, else the input; which one exists depends on the file's opset.
  std::optional<std::vector<int64_t>> ints(const char* attribute, size_t i) const;

  /// Adds a node under this one's path, or path/SUFFIX.
  ValueId add(const char* op, std::vector<ValueId> inputs, Attributes attributes = {},
              const std::string& suffix = "");
  std::vector<ValueId> add_all(const char* op, std::vector<ValueId> inputs,
                               Attributes attributes = {}, const std::string& suffix = "");
  /// Adds an intermediate step, which PyTorch does not round.
  ValueId add_step(const char* op, std::vector<ValueId> inputs, Attributes attributes,
                   const std::string& suffix);
  /// Adds a Reshape unless the value has that shape. `sources`: a DimensionSource for each
  /// dimension, if known.
  ValueId reshape(ValueId value, const Shape& shape, const std::string& suffix = "",
                  std::vector<int64_t> sources = {});
  /// Sets an output to the value in that shape, with a Reshape that has the name of the node.
  void set_reshaped(size_t output, ValueId value, const Shape& shape, std::vector<int64_t> sources);
  Shape shape_of(ValueId value) { return graph().value(value).shape; }

  void set(size_t output, ValueId value);
  void set_boolean(size_t output, ValueId value);
  void set_integers(size_t output, ValueId value, DataType type);
  /// Sets the known initial numbers of a computed output to those of an input.
  void set_start(size_t output, size_t input);
  void set_known(size_t output, KnownTensor tensor);
  void set_type(DataType type) { type_ = type; }
  DataType result_type() const { return type_; }
  const std::vector<BindingPtr>& outputs() const { return outputs_; }

 private:
  const Binding& binding(size_t i) const;
  ValueId followed(size_t i, ValueId value);

  Importer& importer_;
  const ::onnx::NodeProto& node_;
  const NodeAttributes& attributes_;
  std::vector<BindingPtr> inputs_;
  std::string path_;
  const std::string& what_;
  std::vector<BindingPtr> outputs_;
  DataType type_ = DataType::float32;
};

using Translate = void (*)(Translation&);

struct Translator {
  std::string_view op;
  Translate run;
};

std::span<const Translator> attention_translators();
std::span<const Translator> choice_translators();
std::span<const Translator> einsum_translators();
std::span<const Translator> function_translators();
std::span<const Translator> math_translators();
std::span<const Translator> movement_translators();
std::span<const Translator> network_translators();
std::span<const Translator> quantize_translators();
std::span<const Translator> recurrent_translators();
std::span<const Translator> resize_translators();
std::span<const Translator> sampling_translators();
std::span<const Translator> scatter_translators();
std::span<const Translator> window_translators();
/// Translates operators that are the same in files and here (OpDef::onnx).
void translate_same(Translation& translation);
/// Returns the translator of an operator, or null.
Translate find_translator(std::string_view op);
/// Returns all operators that have a translator.
std::vector<std::string> translated_operators();
/// Returns whether the operator is supported, at run time or for known inputs only.
bool is_understood(std::string_view op);

/// Picks rows of one axis at constant positions.
ValueId gather_rows(Translation& t, ValueId x, int64_t axis, const std::vector<int64_t>& rows,
                    const std::string& suffix);
/// Sets output 0 to these rows of axis 0, arranged as `places`, where the axis is all of one sample
/// and every row of it is read: exporters write views as a Gather from a flat tensor, with the
/// places of one sample. Returns false for others, without a result.
bool set_rows_of_each_sample(Translation& t, ValueId x, const Shape& places,
                             std::vector<int64_t> rows);
/// Sets output 0 and gives its node, which this translation must have added, the node's name. For
/// translations whose last node is not known in advance.
void set_named(Translation& t, ValueId value);
/// Translates Cast and similar operators: input 0 as this type.
void cast_to(Translation& t, DataType to);
/// Returns the axes of a reduction and keepdims, from attributes or input 1.
Attributes reduction_attributes(Translation& t, size_t rank);
/// Returns whether a reduction leaves its input unchanged.
bool reduces_nothing(Translation& t);
/// Throws Error unless the node is in ONNX's own domain. For operators that mean something else in
/// another domain.
void check_domain(const Translation& t);

/// Returns attribute values after checking that they are from `least` to `most`, so that arithmetic
/// on sizes cannot overflow. Throws Error naming the node.
std::vector<int64_t> bounded(const Translation& t, std::vector<int64_t> values, int64_t least,
                             int64_t most, const char* name);

}  // namespace halfscope::onnx_files
