// SPDX-License-Identifier: MIT
// Evaluates nodes whose inputs are all known when the file is read: arithmetic on shapes, masks and
// positions that exporters leave in a graph. Reals are computed in double and rounded once to their
// type; integers are computed in 64 bits and wrap.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/onnx/known_tensor.h"
#include "core/onnx/node_attributes.h"

namespace halfscope::onnx_files {

struct FoldCall {
  const ::onnx::NodeProto& node;
  const NodeAttributes& attributes;
  std::vector<const KnownTensor*> in;  ///< null for missing optional inputs
  int64_t opset = 0;
  const std::filesystem::path& folder;  ///< of external data
  const std::string& what;              ///< the node in messages
  bool unrounded = false;               ///< nothing is rounded to a type below float32

  bool has(size_t i) const { return i < in.size() && in[i] != nullptr; }
  const KnownTensor& input(size_t i) const;  ///< throws Error if it is missing
};

/// Returns the outputs; nothing for operators that are not evaluated. Throws Error if the inputs do
/// not fit the operator, or an output has more than kMostFolded elements.
std::optional<std::vector<KnownTensor>> fold(const FoldCall& call);

/// Outputs of a node in the file's types, with the unrounded numbers if they are known.
struct Folded {
  std::vector<KnownTensor> outputs;
  /// By output: whether intermediate roundings change it, so that lanes in different formats get
  /// different numbers. `outputs` then has the numbers in the file's types.
  std::vector<bool> rounds_within;
};
/// Runs fold() in the file's types and once more without rounding to them.
std::optional<Folded> fold_twice(const FoldCall& call);

/// Returns the axes as non-negative numbers. Throws Error naming `what` if one is out of range.
std::vector<int64_t> checked_axes(std::vector<int64_t> axes, size_t rank, const std::string& what);
int64_t checked_axis(int64_t axis, size_t rank, const std::string& what);

/// Returns NumPy's broadcast of two shapes. Throws Error naming `what` if they do not fit.
Shape broadcast_of(const Shape& a, const Shape& b, const std::string& what);

/// Returns the output shape of Reshape: one -1 for the remaining elements, 0 for the input's own
/// size unless `zero_is_size`.
Shape reshaped(const Shape& from, const std::vector<int64_t>& target, bool zero_is_size,
               const std::string& what);

}  // namespace halfscope::onnx_files
