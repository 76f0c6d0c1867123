// SPDX-License-Identifier: MIT
// Shared by the two ways to decide readings (readings.h): with dynamo's metadata
// (readings_marked.cpp) and without (readings_unmarked.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/onnx/readings.h"

namespace halfscope::onnx_files {

/// One reading that is being decided.
struct Use {
  const ::onnx::NodeProto* node;
  int input;
  const NodeOrigin* origin;
  std::string stored;  ///< the initializer
  std::string copy;    ///< the name that the node reads: the initializer's, or that of an Identity
  const KnownTensor* tensor;
  Reading reading{};

  bool trains() const { return reading.trains == Trains::yes; }
};

/// Returns whether an operator has its weights in this input.
bool is_weight_input(const std::string& op, int input);
/// Returns whether a node multiplies by this matrix from the right.
bool is_right_factor(const Use& use);
/// Returns "layer1.0" for "layer1.0.weight", and "" for "weight".
std::string owner_of(const std::string& parameter);
bool is_within(const std::string& module, const std::string& outer);
/// Lists names for a sentence: at most three and the number of the others.
std::string joined(const std::vector<std::string>& names);
/// Returns the role of a tensor, such as "weight" or "bias", from the input that reads it.
std::string role_of(const Use& use);
/// Returns `last` below the reader's module; the tensor's own name if the module is unknown.
std::string module_name(const Use& use, const std::string& last);

/// Key of a model's metadata that lists its parameters, one name per line (docs/onnx.md).
inline constexpr const char* kParameterList = "halfscope.parameters";

/// The readings of a file and the findings about them.
class ReadingWork {
 public:
  ReadingWork(const ::onnx::ModelProto& file, const Initializers& initializers,
              const Origins& origins);

  void train(Use& use, const std::string& name);
  void hold(Use& use, const std::string& why);
  void doubt(const std::string& name, const std::string& why);
  void batch_norms_folded(const std::vector<std::string>& names);
  /// Returns whether the tensor is scale or bias of an instance normalization that stands for a
  /// group normalization: exporters write ones and zeros there.
  bool is_of_groups(const Use& use) const;
  /// Returns the node that produces a name; null for inputs and initializers.
  const ::onnx::NodeProto* maker(const std::string& name) const;

  const ::onnx::ModelProto& file;
  const Initializers& initializers;
  const Origins& origins;
  const bool from_torch, from_tensorflow;
  /// Names of all parameters, if the user wrote them into the file (kParameterList).
  std::optional<std::set<std::string>> declared{};
  bool has_copies = false;  ///< the file has Identity nodes for tensors that are stored once
  /// The file stores equal tensors separately, so nodes that read one tensor really share it.
  bool stores_equal_apart = false;
  std::vector<Use> uses;
  Readings result;

 private:
  void collect();
  void find_evidence();

  std::map<std::string, const ::onnx::NodeProto*> maker_;
  std::set<std::string> held_;
};

void decide_marked(ReadingWork& work, const Signature& signature);
void decide_unmarked(ReadingWork& work);
/// Adds doubts about what tf2onnx computed in advance or left out.
void doubt_tensorflow(ReadingWork& work);

}  // namespace halfscope::onnx_files
