// SPDX-License-Identifier: MIT
#include "core/data/stored_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/numeric/formats/codes.h"
#include "core/utf8.h"

namespace halfscope {
namespace {

struct TypeRow {
  const char* name;
  std::string_view in_safetensors;
  size_t size;
};

/// In the order of StoredType.
constexpr std::array<TypeRow, 15> kTypes{{{"fp64", "F64", 8},
                                          {"fp32", "F32", 4},
                                          {"fp16", "F16", 2},
                                          {"bf16", "BF16", 2},
                                          {"e4m3fn", "F8_E4M3", 1},
                                          {"e5m2", "F8_E5M2", 1},
                                          {"int64", "I64", 8},
                                          {"int32", "I32", 4},
                                          {"int16", "I16", 2},
                                          {"int8", "I8", 1},
                                          {"uint64", "U64", 8},
                                          {"uint32", "U32", 4},
                                          {"uint16", "U16", 2},
                                          {"uint8", "U8", 1},
                                          {"bool", "BOOL", 1}}};

const TypeRow& row_of(StoredType type) noexcept { return kTypes[static_cast<size_t>(type)]; }

/// The value of every code of a format of at most 16 bits.
template <size_t Codes>
std::array<float, Codes> values_of(const FloatFormat& format) noexcept {
  std::array<float, Codes> values;
  for (size_t code = 0; code < Codes; ++code) {
    values[code] = decode(static_cast<uint32_t>(code), format);
  }
  return values;
}

/// Calls convert(code) for each code of type Raw.
template <class Raw, class To, class Convert>
void for_codes(std::span<const uint8_t> raw, bool big_endian, To* out,
               const Convert& convert) noexcept {
  const size_t count = raw.size() / sizeof(Raw);
  if (sizeof(Raw) == 1 || big_endian == (std::endian::native == std::endian::big)) {
    for (size_t i = 0; i < count; ++i) {
      Raw code;
      std::memcpy(&code, raw.data() + i * sizeof(Raw), sizeof(Raw));
      out[i] = convert(code);
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    std::array<uint8_t, sizeof(Raw)> bytes;
    std::reverse_copy(raw.begin() + static_cast<std::ptrdiff_t>(i * sizeof(Raw)),
                      raw.begin() + static_cast<std::ptrdiff_t>((i + 1) * sizeof(Raw)),
                      bytes.begin());
    out[i] = convert(std::bit_cast<Raw>(bytes));
  }
}

/// Returns a 64-bit integer as To, rounded to nearest or to odd.
template <class To, class Integer>
To from_integer(Integer value, LargeIntegers large) noexcept {
  if constexpr (sizeof(Integer) == 8) {
    if (large == LargeIntegers::odd) {
      bool negative = false;
      if constexpr (std::is_signed_v<Integer>) negative = value < 0;
      const uint64_t magnitude =
          negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
      if (magnitude >> 53 != 0) {
        constexpr uint64_t kBelow = (uint64_t{1} << 11) - 1;
        const uint64_t kept = magnitude & ~kBelow;
        const To odd = static_cast<To>((magnitude & kBelow) != 0 ? kept | (kBelow + 1) : kept);
        return negative ? -odd : odd;
      }
    }
  }
  return static_cast<To>(value);
}

template <class To>
void decode_to(std::span<const uint8_t> raw, StoredType type, bool big, To* out,
               LargeIntegers large) noexcept {
  const auto real = [](auto x) { return static_cast<To>(x); };
  const auto integer = [large](auto x) { return from_integer<To>(x, large); };
  switch (type) {
    case StoredType::f64:
      return for_codes<double>(raw, big, out, real);
    case StoredType::f32:
      return for_codes<float>(raw, big, out, real);
    case StoredType::f16: {
      static const std::array<float, 65536> values = values_of<65536>(kFp16);
      return for_codes<uint16_t>(raw, big, out,
                                 [](uint16_t code) { return static_cast<To>(values[code]); });
    }
    case StoredType::bf16:
      return for_codes<uint16_t>(raw, big, out, [](uint16_t code) {
        return static_cast<To>(std::bit_cast<float>(uint32_t{code} << 16));
      });
    case StoredType::e4m3: {
      static const std::array<float, 256> values = values_of<256>(kE4m3fn);
      return for_codes<uint8_t>(raw, big, out,
                                [](uint8_t code) { return static_cast<To>(values[code]); });
    }
    case StoredType::e5m2: {
      static const std::array<float, 256> values = values_of<256>(kE5m2);
      return for_codes<uint8_t>(raw, big, out,
                                [](uint8_t code) { return static_cast<To>(values[code]); });
    }
    case StoredType::i64:
      return for_codes<int64_t>(raw, big, out, integer);
    case StoredType::i32:
      return for_codes<int32_t>(raw, big, out, integer);
    case StoredType::i16:
      return for_codes<int16_t>(raw, big, out, integer);
    case StoredType::i8:
      return for_codes<int8_t>(raw, big, out, integer);
    case StoredType::u64:
      return for_codes<uint64_t>(raw, big, out, integer);
    case StoredType::u32:
      return for_codes<uint32_t>(raw, big, out, integer);
    case StoredType::u16:
      return for_codes<uint16_t>(raw, big, out, integer);
    case StoredType::u8:
      return for_codes<uint8_t>(raw, big, out, integer);
    case StoredType::boolean:
      return for_codes<uint8_t>(raw, big, out, [](uint8_t x) { return x != 0 ? To{1} : To{0}; });
  }
}

}  // namespace

size_t stored_size(StoredType type) noexcept { return row_of(type).size; }
const char* stored_name(StoredType type) noexcept { return row_of(type).name; }

std::optional<StoredType> safetensors_type(std::string_view name) noexcept {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].in_safetensors == name) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

bool is_integer(StoredType type) noexcept {
  switch (type) {
    case StoredType::f64:
    case StoredType::f32:
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::e4m3:
    case StoredType::e5m2:
      return false;
    default:
      return true;
  }
}

bool beyond_fp32(StoredType type) noexcept {
  return type == StoredType::f64 || type == StoredType::i64 || type == StoredType::i32 ||
         type == StoredType::u64 || type == StoredType::u32;
}

void decode_values(std::span<const uint8_t> raw, StoredType type, bool big_endian,
                   float* out) noexcept {
  decode_to(raw, type, big_endian, out, LargeIntegers::nearest);
}

void decode_values(std::span<const uint8_t> raw, StoredType type, bool big_endian, double* out,
                   LargeIntegers large) noexcept {
  decode_to(raw, type, big_endian, out, large);
}

std::optional<uint64_t> checked_count(const Shape& shape) noexcept {
  constexpr int64_t kMax = int64_t{1} << 60;
  int64_t product = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size == 0) {
      empty = true;
    } else if (size < 0 || product > kMax / size) {
      return std::nullopt;
    } else {
      product *= size;
    }
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

std::string visible_name(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  while (!name.empty()) {
    const Utf8Character next = first_character(name);
    const bool shown = keeps_the_line(next) && next.point != '\\';
    const size_t length = next.length > 0 ? next.length : 1;
    for (const char byte : name.substr(0, length)) {
      const auto code = static_cast<unsigned char>(byte);
      if (shown) {
        result += byte;
      } else if (byte == '\\') {
        result += "\\\\";
      } else {
        result += "\\x";
        result += kDigits[code >> 4];
        result += kDigits[code & 15];
      }
    }
    name.remove_prefix(length);
  }
  return result;
}

std::string printable_name(std::string_view name) {
  for (std::string_view rest = name; !rest.empty();) {
    const Utf8Character next = first_character(rest);
    if (!keeps_the_line(next)) return visible_name(name);
    rest.remove_prefix(next.length);
  }
  return std::string(name);
}

}  // namespace halfscope
