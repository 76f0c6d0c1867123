// SPDX-License-Identifier: MIT
// KnownTensor: a tensor of an ONNX file whose values are known when the file is read: initializers,
// constants, and everything computed from them and from shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/tensor.h"

namespace halfscope::onnx_files {

/// Numbers of TensorProto.DataType (onnx.proto3, opset 21).
enum class DataType : int32_t {
  undefined = 0,
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  uint16 = 4,
  int16 = 5,
  int32 = 6,
  int64 = 7,
  string = 8,
  boolean = 9,
  float16 = 10,
  float64 = 11,
  uint32 = 12,
  uint64 = 13,
  complex64 = 14,
  complex128 = 15,
  bfloat16 = 16,
  float8e4m3fn = 17,
  float8e4m3fnuz = 18,
  float8e5m2 = 19,
  float8e5m2fnuz = 20,
  uint4 = 21,
  int4 = 22,
};

/// Returns "float16", or "type 99" for numbers that ONNX does not define.
std::string type_name(DataType type);

/// Returns whether values are floats. Complex numbers and strings are neither real nor integers.
bool is_real(DataType type) noexcept;
bool is_integer(DataType type) noexcept;  ///< booleans too
/// Returns the value of an integer type whose bits are all set, by which BitwiseNot turns them.
/// Throws Error naming `what` for other types.
int64_t all_bits(DataType type, const std::string& what);
constexpr bool is_float8(DataType type) noexcept {
  return type >= DataType::float8e4m3fn && type <= DataType::float8e5m2fnuz;
}

/// Returns the format of a real type; nothing for float64 and other types.
std::optional<FloatFormat> format_of(DataType type);
/// Returns the type that has exactly the values of a format, whether the format saturates or not.
std::optional<DataType> type_of(const FloatFormat& format);

/// Largest number of elements of a tensor in a file or network, and largest dimension.
inline constexpr int64_t kMostElements = int64_t{1} << 33;
/// Largest number of elements that may be computed while a file is read.
inline constexpr int64_t kMostFolded = int64_t{1} << 28;

/// Returns the product of the dimensions. Throws Error naming `what` if one is negative or there
/// are more than `most` elements.
int64_t checked_count(const Shape& shape, const std::string& what, int64_t most = kMostElements);

struct KnownTensor {
  DataType type = DataType::float32;
  Shape shape{};
  std::vector<float> reals{};   ///< of real types
  std::vector<int64_t> ints{};  ///< of integer types; booleans are 0 and 1
  /// The numbers before the file rounded them to a narrower type, if they are known and differ from
  /// `reals`. Rounding them once gives `reals`.
  std::vector<float> unrounded{};

  int64_t count() const noexcept { return element_count(shape); }
  bool real() const noexcept { return is_real(type); }
  /// Returns the numbers that a lane in fp32 computes with; lanes in narrower formats round them.
  const std::vector<float>& true_reals() const noexcept {
    return unrounded.empty() ? reals : unrounded;
  }
  double number(int64_t i) const {
    return real() ? static_cast<double>(reals[static_cast<size_t>(i)])
                  : static_cast<double>(ints[static_cast<size_t>(i)]);
  }
};

KnownTensor known_ints(std::vector<int64_t> values, Shape shape, DataType type = DataType::int64);
/// Returns a tensor of one dimension.
KnownTensor known_list(std::vector<int64_t> values);

}  // namespace halfscope::onnx_files
