// SPDX-License-Identifier: MIT
// What the two ways to decide readings share (readings.h): with dynamo's metadata
// (readings_marked.cpp) and without (readings_unmarked.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/onnx/readings.h"

namespace halfscope::onnx_files {

/// One reading while it is decided.
struct Use {
  const ::onnx::NodeProto* node;
  int input;
  const NodeOrigin* origin;
  std::string stored;  ///< the initializer
  std::string copy;    ///< the name that is read: its own, or that of an Identity
  const KnownTensor* tensor;
  Reading reading{};

  bool trains() const { return reading.trains == Trains::yes; }
};

/// Whether the input is where an operator has its weights.
bool is_weight_input(const std::string& op, int input);
/// "layer1.0" of "layer1.0.weight"; "" of "weight".
std::string owner_of(const std::string& parameter);
bool is_within(const std::string& module, const std::string& outer);
/// The names in a sentence; many of them are counted.
std::string joined(const std::vector<std::string>& names);
/// "weight" or "bias", by where the node reads it.
std::string role_of(const Use& use);
/// `last` below the reader's module; the tensor's own name where that is not known.
std::string module_name(const Use& use, const std::string& last);

/// The metadata of a model that lists its parameters, a name per line (docs/onnx.md).
inline constexpr const char* kParameterList = "halfscope.parameters";

/// The readings of a file, and what is found out about them.
class ReadingWork {
 public:
  ReadingWork(const ::onnx::ModelProto& file, const Initializers& initializers,
              const Origins& origins);

  void train(Use& use, const std::string& name);
  void hold(Use& use, const std::string& why);
  void doubt(const std::string& name, const std::string& why);
  void batch_norms_folded(const std::vector<std::string>& names);
  /// A group normalization is written as an instance normalization of groups, whose scale and bias
  /// are ones and zeros.
  bool is_of_groups(const Use& use) const;
  /// The node that makes a name; null for inputs and initializers.
  const ::onnx::NodeProto* maker(const std::string& name) const;

  const ::onnx::ModelProto& file;
  const Initializers& initializers;
  const Origins& origins;
  const bool from_torch;
  /// Names of all parameters, where the user wrote them into the file (kParameterList).
  std::optional<std::set<std::string>> declared{};
  bool has_copies = false;  ///< the file has Identity nodes for tensors that are stored once
  /// Files that store equal tensors apart say exactly who shares one.
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

}  // namespace halfscope::onnx_files
