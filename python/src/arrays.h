// SPDX-License-Identifier: MIT
// Arrays of other libraries, through DLPack or the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "python/src/elements.h"

namespace halfscope::python {

/// A tensor in host memory that this call borrows.
using Array = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;

/// Returns the element type of an array. Throws a Python TypeError if it is not a floating-point
/// type that is supported.
ElementKind kind_of(const Array& array);

/// The numbers of a tensor of another library. Valid as long as that tensor and this object live.
/// PyTorch's tensors are asked for their address, which costs a fifth of DLPack.
class Borrowed {
 public:
  /// Elements come in the order of `order_of` if given, which has the same shape. Throws a Python
  /// TypeError if the tensor is not on the CPU or has no floating-point type that is supported.
  explicit Borrowed(nanobind::handle tensor, const Borrowed* order_of = nullptr);

  const Elements& elements() const noexcept { return *elements_; }

 private:
  std::optional<Array> array_;  // of other libraries
  std::vector<int64_t> strides_;
  std::optional<Elements> elements_;
};

/// Returns the numbers of an array in row-major order, whatever its strides.
Elements row_major_elements_of(const Array& array);

/// Parses a format. Throws a Python ValueError that says what is wrong with it.
FloatFormat format_from(const std::string& name);

}  // namespace halfscope::python
