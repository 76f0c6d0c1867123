// SPDX-License-Identifier: MIT
// Elements: the numbers of a tensor that another framework owns, read as fp32 without copying the
// tensor. The view is valid as long as the tensor is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/numeric/formats/float_format.h"

namespace halfscope::python {

/// A storage type of floating-point numbers.
enum class ElementKind : uint8_t { f64, f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz };

/// Returns the number of bytes of an element.
int64_t element_size(ElementKind kind) noexcept;
/// Returns the format with the type's values; fp32 for f64, which no format describes.
FloatFormat format_of(ElementKind kind) noexcept;

class Elements {
 public:
  /// `strides` are in elements; empty: the tensor is in row-major order. Dense tensors in any order
  /// of dimensions, such as transposes and channels-last images, are read in memory order. With
  /// `order_of`, the strides of another tensor of this shape, elements come in that tensor's order.
  Elements(const void* data, ElementKind kind, std::span<const int64_t> shape,
           std::span<const int64_t> strides, std::span<const int64_t> order_of = {});

  int64_t size() const noexcept { return size_; }
  ElementKind kind() const noexcept { return kind_; }
  /// Returns the elements as fp32 numbers in memory; null if they are not.
  const float* as_floats() const noexcept;
  /// Converts elements first .. first + n to fp32. Values of f64 are rounded to odd, so that finite
  /// ones stay finite and another rounding to a narrow format is right.
  void load(int64_t first, int64_t n, float* out) const noexcept;
  /// Copies elements first .. first + n of an f64 tensor.
  void load_doubles(int64_t first, int64_t n, double* out) const noexcept;
  /// Copies elements first .. first + n, in the order of load(), to n * element_size() bytes.
  void copy(int64_t first, int64_t n, uint8_t* out) const noexcept;

 private:
  template <class Visit>
  void runs(int64_t first, int64_t n, const Visit& visit) const noexcept;

  const uint8_t* data_;
  ElementKind kind_;
  int64_t size_ = 1;
  bool dense_ = true;
  std::vector<int64_t> shape_, strides_;  // of tensors that are not dense, outermost first
};

}  // namespace halfscope::python
