// SPDX-License-Identifier: MIT
// Translators: one function per ONNX operator that adds the nodes it stands for to our graph.
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
  /// Whether the input is an initializer that trains.
  bool is_trained(size_t i) const { return is_known(i) && binding(i).trainable; }
  /// Whether the input is integers, known or not.
  bool is_index(size_t i) const;

  /// An operand. Error if it is left out.
  ValueId real(size_t i, const char* role = "weight");
  /// The same, rounded to its type by a node of its own where the file knows it unrounded.
  ValueId rounded_real(size_t i);
  /// The same of a weight, which becomes a variable even if the file has it as a constant.
  ValueId weight(size_t i, const char* role);
  /// The same, but one number repeated in a constant stays that: exporters write ones and zeros
  /// where a normalization has no scale and bias of its own.
  ValueId scale_or_bias(size_t i, const char* role);
  ValueId index(size_t i);
  /// An operand of either kind: what integers are stays such.
  ValueId any(size_t i, const char* role = "weight") {
    return is_index(i) ? index(i) : real(i, role);
  }
  /// Whether one of the inputs from `first` up to `end` is made of integers at run time, so that
  /// the node computes with integers.
  bool computes_integers(size_t first, size_t end) const;
  /// An operand of integer arithmetic. Error unless it is int32 or int64: our integers have 32 bits
  /// and do not wrap earlier.
  ValueId integers(size_t i);
  /// Error "NAME must be known when the file is read" if it is not.
  const KnownTensor& known(size_t i, const char* name) const;
  std::vector<int64_t> known_ints(size_t i, const char* name) const;
  /// A shape that the output shall have, which may depend on the number of samples; `several`, if
  /// given, becomes what it is for the batch where that differs.
  std::vector<int64_t> known_shape(size_t i, std::vector<int64_t>* several = nullptr) const;
  /// Sizes that dimensions `axes` of `value` shall have; the samples may keep their dimension.
  std::vector<int64_t> known_sizes(size_t i, const char* name, ValueId value,
                                   const std::vector<int64_t>& axes) const;
  /// Whether the input is zeros that do not train, for one sample and for several. It then has the
  /// shape `one`, whose dimension `axis` is `several` there.
  bool is_zeros(size_t i, const Shape& one, size_t axis, int64_t several) const;
  double known_scalar(size_t i, const char* name) const;
  /// The first of attribute and input, whichever the file's opset has.
  std::optional<std::vector<int64_t>> ints(const char* attribute, size_t i) const;

  /// Adds a node under this one's path, or path/SUFFIX.
  ValueId add(const char* op, std::vector<ValueId> inputs, Attributes attributes = {},
              const std::string& suffix = "");
  std::vector<ValueId> add_all(const char* op, std::vector<ValueId> inputs,
                               Attributes attributes = {}, const std::string& suffix = "");
  /// The same of a step on the way to the result, which PyTorch does not round.
  ValueId add_step(const char* op, std::vector<ValueId> inputs, Attributes attributes,
                   const std::string& suffix);
  /// Adds a Reshape unless the value has that shape. `sources`: a DimensionSource for each of its
  /// dimensions, where they are known.
  ValueId reshape(ValueId value, const Shape& shape, const std::string& suffix = "",
                  std::vector<int64_t> sources = {});
  /// Output `output`: the value with that shape, by a Reshape with the name of the node.
  void set_reshaped(size_t output, ValueId value, const Shape& shape, std::vector<int64_t> sources);
  Shape shape_of(ValueId value) { return graph().value(value).shape; }

  void set(size_t output, ValueId value);
  void set_boolean(size_t output, ValueId value);
  void set_integers(size_t output, ValueId value, DataType type);
  /// The output is computed, but what it starts from is known: the numbers of that input.
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
std::span<const Translator> recurrent_translators();
std::span<const Translator> resize_translators();
std::span<const Translator> sampling_translators();
std::span<const Translator> scatter_translators();
std::span<const Translator> window_translators();
/// Operators that files hold as we do (OpDef::onnx).
void translate_same(Translation& translation);
/// Null for operators that are not translated.
Translate find_translator(std::string_view op);
/// All operators that are.
std::vector<std::string> translated_operators();
/// Whether nodes of this operator may be met at all, known or not.
bool is_understood(std::string_view op);

/// Rows of one axis by constant positions.
ValueId gather_rows(Translation& t, ValueId x, int64_t axis, const std::vector<int64_t>& rows,
                    const std::string& suffix);
/// Sets output 0 to these rows of axis 0, arranged as `places`, where the axis is all of one sample
/// and every row of it is read: exporters write views as a Gather from a flat tensor, with the
/// places of one sample. Returns false for others, without a result.
bool set_rows_of_each_sample(Translation& t, ValueId x, const Shape& places,
                             std::vector<int64_t> rows);
/// Output 0. The node that makes it, which must be the translation's own, gets its name: use where
/// the last node is not known before.
void set_named(Translation& t, ValueId value);
/// Cast and its like: input 0 as this type.
void cast_to(Translation& t, DataType to);
/// The axes of a reduction and keepdims, from attributes or input 1.
Attributes reduction_attributes(Translation& t, size_t rank);
/// Whether a reduction leaves its input as it is.
bool reduces_nothing(Translation& t);
/// Throws Error unless the node is of ONNX's own domain, where another one has an operator of that
/// name with another meaning.
void check_domain(const Translation& t);

/// Attribute values that arithmetic on sizes can bear. Throws Error naming the node.
std::vector<int64_t> bounded(const Translation& t, std::vector<int64_t> values, int64_t least,
                             int64_t most, const char* name);

}  // namespace halfscope::onnx_files
