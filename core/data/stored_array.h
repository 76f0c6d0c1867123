// SPDX-License-Identifier: MIT
// An array as a file stores it: .npy (npy.h) or .safetensors (safetensors.h). Conversion of its
// bytes to floats and doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace halfscope {

enum class StoredType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  e4m3,
  e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
};

/// Returns the bytes of one value.
size_t stored_size(StoredType type) noexcept;
/// Returns the type's name in texts: "fp32", "int8", "bool".
const char* stored_name(StoredType type) noexcept;
/// Returns the type with this name in .safetensors files ("F32"), or nothing.
std::optional<StoredType> safetensors_type(std::string_view name) noexcept;
/// Returns whether the type is an integer or bool.
bool is_integer(StoredType type) noexcept;
/// Returns whether fp32 cannot represent all values of the type.
bool beyond_fp32(StoredType type) noexcept;

struct StoredArray {
  std::string name;
  StoredType type = StoredType::f32;
  bool big_endian = false;
  bool fortran_order = false;  ///< the first dimension is contiguous, not the last
  Shape shape{};
  uint64_t count = 0;   ///< number of values
  uint64_t offset = 0;  ///< of the first value: in the file, or in the member of a .npz
  size_t member = 0;    ///< of a .npz

  uint64_t bytes() const noexcept { return count * stored_size(type); }
};

/// Rounding of 64-bit integers that a double cannot represent.
enum class LargeIntegers : uint8_t {
  nearest,
  odd,  ///< to odd, so that rounding again to at most 40 bits gives what the integer would give
};

/// Converts the values in `raw`, whose size is a multiple of the type's. Each is rounded to nearest
/// if fp32 cannot represent it. `out` has room for all.
void decode_values(std::span<const uint8_t> raw, StoredType type, bool big_endian,
                   float* out) noexcept;
void decode_values(std::span<const uint8_t> raw, StoredType type, bool big_endian, double* out,
                   LargeIntegers large = LargeIntegers::nearest) noexcept;

/// Returns the product of the sizes, or nothing if it exceeds 2^60, more than any file can contain.
/// A zero does not make huge other sizes valid: element_count() multiplies in order and must not
/// overflow.
std::optional<uint64_t> checked_count(const Shape& shape) noexcept;

/// Returns the name with invalid UTF-8 and what does not keep the line (core/utf8.h) as "\x1b", to
/// print it.
std::string visible_name(std::string_view name);
/// Returns visible_name() of a name that contains such bytes, and any other name as it is.
std::string printable_name(std::string_view name);

}  // namespace halfscope
