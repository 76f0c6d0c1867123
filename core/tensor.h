// SPDX-License-Identifier: MIT
// Dense row-major host tensors, used at the boundaries of the engine: files, initial weights,
// tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace halfscope {

using Shape = std::vector<int64_t>;

/// Returns the product of the dimensions; 1 for a scalar (empty shape).
inline int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

/// Returns "[128, 512]"; "[]" for a scalar.
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

/// Returns the position of the element with this flat index, as "[3,5]".
inline std::string position_text(const Shape& shape, size_t index) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0;) {
    const size_t size = static_cast<size_t>(shape[d]);
    text = std::to_string(index % size) + (text.empty() ? "" : ",") + text;
    index /= size;
  }
  return "[" + text + "]";
}

struct Tensor {
  Shape shape;
  std::vector<float> data;  ///< element_count(shape) values, last dimension fastest
};

/// Tensors by variable path ("fc1.weight").
using NamedTensors = std::map<std::string, Tensor>;

/// A tensor in double precision, for state that must be restored bit for bit.
struct DoubleTensor {
  Shape shape;
  std::vector<double> data;
};
using NamedDoubleTensors = std::map<std::string, DoubleTensor>;

}  // namespace halfscope
