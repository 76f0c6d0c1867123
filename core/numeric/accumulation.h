// SPDX-License-Identifier: MIT
// Accumulation: the named orders and precisions in which operators sum (ARCHITECTURE: Plan).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace halfscope {

enum class Accumulation : uint8_t {
  fp32,    ///< one ascending-k chain of fp32 fused multiply-adds per output element
  fp64,    ///< the same chain in double, rounded once at the end
  format,  ///< exact fma, rounded to the write format after every term
};

constexpr std::string_view accumulation_name(Accumulation accumulation) noexcept {
  switch (accumulation) {
    case Accumulation::fp32:
      return "fp32";
    case Accumulation::fp64:
      return "fp64";
    case Accumulation::format:
      return "format";
  }
  return "unknown";
}

constexpr std::optional<Accumulation> parse_accumulation(std::string_view text) noexcept {
  for (Accumulation each : {Accumulation::fp32, Accumulation::fp64, Accumulation::format}) {
    if (text == accumulation_name(each)) return each;
  }
  return std::nullopt;
}

}  // namespace halfscope
