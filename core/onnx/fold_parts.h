// SPDX-License-Identifier: MIT
// What fold.cpp, fold_movement.cpp and fold_select.cpp share.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/onnx/fold.h"

namespace halfscope::onnx_files {

/// What an operator makes.
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

/// Towards zero; what 64 bits do not hold becomes the nearest end, NaN 0.
inline int64_t to_integer(double value) {
  constexpr double kEnd = 9223372036854775808.0;
  if (std::isnan(value)) return 0;
  if (value >= kEnd) return INT64_MAX;
  if (value < -kEnd) return INT64_MIN;
  return static_cast<int64_t>(value);
}

/// The value of a real type that is nearest.
float rounded(double value, DataType type);

/// The same numbers as another type.
KnownTensor converted(const KnownTensor& x, DataType to, const std::string& what);

inline void append(KnownTensor& to, const KnownTensor& from, int64_t at) {
  if (from.real()) {
    to.reals.push_back(from.reals[static_cast<size_t>(at)]);
  } else {
    to.ints.push_back(from.ints[static_cast<size_t>(at)]);
  }
}

/// Where the element of a tensor lies that broadcasts to a place of `to`.
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
