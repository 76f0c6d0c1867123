// SPDX-License-Identifier: MIT
// Tensors in device memory: values of 16- and 8-bit formats are stored as codes, everything else in
// fp32. Bodies read elements through In<T> and write outputs through Out<T>, and need not know. In
// a recorded step an output goes to fp32 memory unrounded, where the tap measures it, and is
// rounded afterwards. In a plain step it is rounded and stored at once (gpu/engine/writes.h). Both
// ways give the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "core/host_device.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"

namespace halfscope::gpu {

/// Storage of elements in memory. tf32 is fp32 that a library multiplies as tf32.
enum class Storage : uint8_t { fp32, tf32, fp16, bf16, e4m3fn, e5m2 };

/// Returns the format of the codes; fp32 for fp32 and tf32.
HS_HD constexpr FloatFormat format_of(Storage storage) noexcept {
  switch (storage) {
    case Storage::fp16:
      return kFp16;
    case Storage::bf16:
      return kBf16;
    case Storage::e4m3fn:
      return kE4m3fn;
    case Storage::e5m2:
      return kE5m2;
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return kFp32;
}

HS_HD constexpr int64_t bytes_of(Storage storage) noexcept {
  switch (storage) {
    case Storage::fp16:
    case Storage::bf16:
      return 2;
    case Storage::e4m3fn:
    case Storage::e5m2:
      return 1;
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return 4;
}

/// Returns the smallest storage that can represent all values of a format.
constexpr Storage storage_for(const FloatFormat& format) noexcept {
  for (const Storage each : {Storage::e4m3fn, Storage::e5m2, Storage::fp16, Storage::bf16}) {
    if (format_of(each).contains(format)) return each;
  }
  return Storage::fp32;
}

HS_HD inline float half_of_code(uint16_t code) noexcept {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(code));
#else
  return decode(code, kFp16);
#endif
}
/// Returns the fp16 code, rounded to nearest even.
HS_HD inline uint16_t code_of_half(float value) noexcept {
#if defined(__CUDA_ARCH__)
  return __half_as_ushort(__float2half_rn(value));
#else
  return static_cast<uint16_t>(detail::code_of_value(round_to_format(value, kFp16).value, kFp16));
#endif
}
/// Returns the upper half of a float, rounded to nearest even: a carry goes into the exponent, and
/// from the largest one to infinity. A NaN stays NaN: its payload is cut and made quiet.
HS_HD inline uint16_t code_of_bfloat(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  return static_cast<uint16_t>(value != value ? bits >> 16 | 0x40u : rounded >> 16);
}

HS_HD HS_SELDOM inline float value_of_e4m3fn(uint8_t code) noexcept {
  return decode(code, format_of(Storage::e4m3fn));
}
/// Returns the code of a value that an 8-bit storage can represent.
HS_HD HS_SELDOM inline uint8_t code_of_byte(float value, Storage storage) noexcept {
  return static_cast<uint8_t>(detail::code_of_value(value, format_of(storage)));
}
HS_HD HS_SELDOM inline Rounded<float> rounded_by(float value, FloatFormat format,
                                                 Rounding rounding) noexcept {
  return round_to_format(value, format, rounding);
}
HS_HD HS_SELDOM inline float rounded_to(float value, FloatFormat format) noexcept {
  return round_to_format(value, format).value;
}

/// Returns element i as a float.
HS_HD inline float load(const void* memory, Storage storage, int64_t i) noexcept {
  switch (storage) {
    case Storage::fp16:
      return half_of_code(static_cast<const uint16_t*>(memory)[i]);
    case Storage::bf16:
      return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(memory)[i]} << 16);
    case Storage::e4m3fn:
      return value_of_e4m3fn(static_cast<const uint8_t*>(memory)[i]);
    case Storage::e5m2:
      // An e5m2 code is the upper half of an fp16 code.
      return half_of_code(static_cast<uint16_t>(static_cast<const uint8_t*>(memory)[i] << 8));
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return static_cast<const float*>(memory)[i];
}

/// Stores `value`, which the storage must be able to represent.
HS_HD inline void store(void* memory, Storage storage, int64_t i, float value) noexcept {
  switch (storage) {
    case Storage::fp16:
      static_cast<uint16_t*>(memory)[i] = code_of_half(value);
      return;
    case Storage::bf16:
      static_cast<uint16_t*>(memory)[i] = code_of_bfloat(value);
      return;
    case Storage::e4m3fn:
    case Storage::e5m2:
      static_cast<uint8_t*>(memory)[i] = code_of_byte(value, storage);
      return;
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  static_cast<float*>(memory)[i] = value;
}

/// Source of floats. Also converts from a pointer to floats; can be null like a pointer.
class StoredInput {
 public:
  StoredInput() = default;
  HS_HD StoredInput(std::nullptr_t) noexcept {}                         // NOLINT: as a pointer
  HS_HD StoredInput(const float* values) noexcept : memory_(values) {}  // NOLINT: likewise
  HS_HD StoredInput(const void* memory, Storage storage) noexcept
      : memory_(memory), storage_(storage) {}

  HS_HD float operator[](int64_t i) const noexcept { return load(memory_, storage_, i); }
  HS_HD float operator*() const noexcept { return (*this)[0]; }
  HS_HD StoredInput operator+(int64_t n) const noexcept {
    return {static_cast<const std::byte*>(memory_) + n * bytes_of(storage_), storage_};
  }
  HS_HD StoredInput& operator+=(int64_t n) noexcept { return *this = *this + n; }
  HS_HD bool operator==(std::nullptr_t) const noexcept { return memory_ == nullptr; }

  HS_HD const void* memory() const noexcept { return memory_; }
  HS_HD Storage storage() const noexcept { return storage_; }

 private:
  const void* memory_ = nullptr;
  Storage storage_ = Storage::fp32;
};

/// Destination of outputs and their format; can round on storing.
struct Destination {
  void* memory = nullptr;
  Storage storage = Storage::fp32;
  FloatFormat format = kFp32;
  /// Whether storing in 16 bits is the same as rounding to the format.
  bool rounds_itself = bytes_of(storage) == 2 && format == format_of(storage);

  HS_HD Destination operator+(int64_t n) const noexcept {
    return {static_cast<std::byte*>(memory) + n * bytes_of(storage), storage, format,
            rounds_itself};
  }
  /// Returns the value as reading it back would after round(). Without memory, too.
  HS_HD float rounded(float value) const noexcept {
    if (format == format_of(Storage::fp32)) return value;
    if (!rounds_itself) return rounded_to(value, format);
    return storage == Storage::fp16 ? half_of_code(code_of_half(value))
                                    : std::bit_cast<float>(uint32_t{code_of_bfloat(value)} << 16);
  }
  /// Stores a value of the format.
  HS_HD void store(int64_t i, float value) const noexcept { gpu::store(memory, storage, i, value); }
  /// Stores a value rounded to nearest even.
  HS_HD void round(int64_t i, float value) const noexcept {
    if (rounds_itself) {
      static_cast<uint16_t*>(memory)[i] =
          storage == Storage::fp16 ? code_of_half(value) : code_of_bfloat(value);
    } else {
      store(i, rounded_to(value, format));
    }
  }
};

/// Destination of floats. Stores them unrounded or, if it stores now, rounded to nearest even. Also
/// converts from a pointer to floats. Write-only.
class StoredOutput {
 public:
  StoredOutput() = default;
  HS_HD StoredOutput(std::nullptr_t) noexcept {}                // NOLINT: as a pointer
  HS_HD StoredOutput(float* exact) noexcept : exact_(exact) {}  // NOLINT: likewise
  HS_HD StoredOutput(float* exact, const Destination& to, bool now) noexcept
      : exact_(exact), to_(to), now_(now) {}

  class Element {
   public:
    HS_HD Element(const StoredOutput& of, int64_t i) noexcept : of_(of), i_(i) {}
    HS_HD void operator=(float value) const noexcept { of_.write(i_, value); }  // NOLINT: no chains

   private:
    const StoredOutput& of_;
    int64_t i_;
  };
  HS_HD Element operator[](int64_t i) const noexcept { return {*this, i}; }
  HS_HD Element operator*() const noexcept { return {*this, 0}; }
  HS_HD StoredOutput operator+(int64_t n) const noexcept {
    return stores() ? StoredOutput(exact_ + n, to_ + n, now_) : StoredOutput(exact_ + n);
  }
  HS_HD bool operator==(std::nullptr_t) const noexcept { return exact_ == nullptr; }

  HS_HD void write(int64_t i, float value) const noexcept {
    if (stores_now()) {
      to_.round(i, value);
    } else {
      exact_[i] = value;
    }
  }
  /// Returns where unrounded outputs go, or null.
  HS_HD float* exact() const noexcept { return exact_; }
  /// Returns whether outputs are stored in this step; stores(), whether they are in plain steps.
  HS_HD bool stores_now() const noexcept { return now_; }
  HS_HD bool stores() const noexcept { return to_.memory != nullptr; }
  HS_HD const Destination& destination() const noexcept { return to_; }

 private:
  float* exact_ = nullptr;
  Destination to_{};
  bool now_ = false;
};

// double and integers are stored as they are.
template <class T>
struct ElementAccess {
  using In = const T*;
  using Out = T*;
};
template <>
struct ElementAccess<float> {
  using In = StoredInput;
  using Out = StoredOutput;
};
template <class T>
using In = typename ElementAccess<T>::In;
template <class T>
using Out = typename ElementAccess<T>::Out;

/// Returns the address of an operand.
HS_HD inline const void* address(const StoredInput& in) noexcept { return in.memory(); }
template <class T>
HS_HD const void* address(const T* in) noexcept {
  return in;
}
/// Returns whether outputs may never reach unrounded memory.
HS_HD inline bool stored_at_once(const StoredOutput& out) noexcept { return out.stores(); }
template <class T>
HS_HD bool stored_at_once(const T*) noexcept {
  return false;
}
/// Returns the memory of unrounded outputs, for steps that read them again.
HS_HD inline float* exact(const StoredOutput& out) noexcept { return out.exact(); }
template <class T>
HS_HD T* exact(T* out) noexcept {
  return out;
}

}  // namespace halfscope::gpu
