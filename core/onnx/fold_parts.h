// SPDX-License-Identifier: MIT
// Shared by fold.cpp, fold_movement.cpp and fold_select.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/onnx/fold.h"

namespace halfscope::onnx_files {

/// Outputs of an operator.
using Result = std::vector<KnownTensor>;

inline Result one(KnownTensor tensor) {
  Result result;
  result.push_back(std::move(tensor));
  return result;
}

/// Evaluates operators that move elements; nothing for others.
std::optional<Result> fold_movement(const FoldCall& call);
/// Evaluates operators that select and replace elements by tuples of indices; nothing for others.
std::optional<Result> fold_select(const FoldCall& call);

inline int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

/// Rounds towards zero; values outside the range of 64 bits become its nearest end, NaN becomes 0.
inline int64_t to_integer(double value) {
  constexpr double kEnd = 9223372036854775808.0;
  if (std::isnan(value)) return 0;
  if (value >= kEnd) return INT64_MAX;
  if (value < -kEnd) return INT64_MIN;
  return static_cast<int64_t>(value);
}

/// Rounds to the nearest value of a real type.
float rounded(double value, DataType type);

/// Converts a tensor to another type.
KnownTensor converted(const KnownTensor& x, DataType to, const std::string& what);

inline void append(KnownTensor& to, const KnownTensor& from, int64_t at) {
  if (from.real()) {
    to.reals.push_back(from.reals[static_cast<size_t>(at)]);
  } else {
    to.ints.push_back(from.ints[static_cast<size_t>(at)]);
  }
}

/// Maps an index of `to` to the element of `from` that is broadcast there.
class Walk {
 public:
  Walk(const Shape& from, const Shape& to) : sizes_(to), strides_(to.size(), 0) {
    int64_t stride = 1;
    for (size_t i = 0; i < from.size(); ++i) {
      const size_t axis = from.size() - 1 - i;
      strides_[to.size() - 1 - i] = from[axis] == 1 ? 0 : stride;
      stride *= from[axis];
    }
  }
  int64_t operator()(int64_t index) const {
    int64_t offset = 0;
    for (size_t i = sizes_.size(); i-- > 0;) {
      offset += index % sizes_[i] * strides_[i];
      index /= sizes_[i];
    }
    return offset;
  }

 private:
  Shape sizes_;
  std::vector<int64_t> strides_;
};

}  // namespace halfscope::onnx_files
