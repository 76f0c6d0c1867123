// SPDX-License-Identifier: MIT
// Evaluates nodes all of whose inputs are known when the file is read: the arithmetic on shapes,
// masks and positions that exporters leave in a graph. Reals are computed in double and rounded to
// their type once; integers in 64 bits, wrapping.
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
  std::vector<const KnownTensor*> in;  ///< null for optional inputs left out
  int64_t opset = 0;
  const std::filesystem::path& folder;  ///< of external data
  const std::string& what;              ///< the node in messages
  bool unrounded = false;               ///< nothing is rounded to a type below float32

  bool has(size_t i) const { return i < in.size() && in[i] != nullptr; }
  const KnownTensor& input(size_t i) const;  ///< Error if it is left out
};

/// The outputs; nothing for operators that are not evaluated. Throws Error where the inputs do not
/// fit the operator, and for results of more than kMostFolded elements.
std::optional<std::vector<KnownTensor>> fold(const FoldCall& call);

/// What a node gives in the file's types, with the unrounded numbers where they are known.
struct Folded {
  std::vector<KnownTensor> outputs;
  /// By output: roundings on the way change it, so that no single number stands for it in lanes of
  /// different formats. It is what the file's types give.
  std::vector<bool> rounds_within;
};
/// fold() in the file's types and once more without rounding to them.
std::optional<Folded> fold_twice(const FoldCall& call);

/// Axes made non-negative. Throws Error naming `what` if one is out of range.
std::vector<int64_t> checked_axes(std::vector<int64_t> axes, size_t rank, const std::string& what);
int64_t checked_axis(int64_t axis, size_t rank, const std::string& what);

/// Numpy's broadcast of two shapes. Throws Error naming `what` if they do not fit.
Shape broadcast_of(const Shape& a, const Shape& b, const std::string& what);

/// The shape that Reshape gives: one -1 for what is left, 0 for the input's own size unless
/// `zero_is_size`.
Shape reshaped(const Shape& from, const std::vector<int64_t>& target, bool zero_is_size,
               const std::string& what);

}  // namespace halfscope::onnx_files
