// SPDX-License-Identifier: MIT
// A hash of bytes that is the same on every machine: for names of files and to tell contents apart.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace halfscope {

/// Returns the FNV-1a hash, 64 bits. `start` is the hash of what comes before.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t start = 0xcbf29ce484222325U) noexcept {
  uint64_t hash = start;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// The same of the bytes of numbers.
template <class Numbers>
uint64_t hash_values(const Numbers& numbers, uint64_t start) noexcept {
  const std::span values(numbers);
  static_assert(std::is_arithmetic_v<typename decltype(values)::value_type>);
  return fnv1a({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, start);
}

}  // namespace halfscope
