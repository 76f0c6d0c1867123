// SPDX-License-Identifier: MIT
// Numbers as NVIDIA's libraries have them in memory.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"

namespace halfscope::simulated {

/// Returns nothing for types that gpu/ does not use.
inline std::optional<FloatFormat> format_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return kFp32;
    case CUDA_R_16F:
      return kFp16;
    case CUDA_R_16BF:
      return kBf16;
    case CUDA_R_8F_E4M3:
      return kE4m3fn;
    case CUDA_R_8F_E5M2:
      return kE5m2;
    default:
      return std::nullopt;
  }
}

inline float load(const void* data, int64_t at, const FloatFormat& format) {
  const size_t bytes = static_cast<size_t>(format.bits()) / 8;
  uint32_t code = 0;
  std::memcpy(&code, static_cast<const std::byte*>(data) + static_cast<size_t>(at) * bytes, bytes);
  return decode(code, format);
}
/// Rounded to nearest, ties to even.
inline void store(void* data, int64_t at, const FloatFormat& format, float value) {
  const size_t bytes = static_cast<size_t>(format.bits()) / 8;
  const uint32_t code = encode(value, format);
  std::memcpy(static_cast<std::byte*>(data) + static_cast<size_t>(at) * bytes, &code, bytes);
}

}  // namespace halfscope::simulated
