// SPDX-License-Identifier: MIT
#include "core/numeric/formats/rounding.h"

#include <charconv>

namespace halfscope {
namespace {

constexpr int kMostRandomBits = 32;

}  // namespace

std::string rounding_name(const RoundingChoice& rounding) {
  std::string name(rounding_mode_name(rounding.mode));
  const bool usual = rounding.random_bits == RoundingChoice{}.random_bits;
  if (rounding.mode != RoundingMode::stochastic || usual) return name;
  return name + ":" + std::to_string(rounding.random_bits);
}

std::optional<RoundingChoice> parse_rounding(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<RoundingMode> mode = parse_rounding_mode(text.substr(0, colon));
  if (!mode) return std::nullopt;
  RoundingChoice rounding{.mode = *mode};
  if (colon == std::string_view::npos) return rounding;
  const std::string_view bits = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(bits.data(), bits.data() + bits.size(), rounding.random_bits);
  const bool plain = !bits.starts_with('0');  // one spelling only
  const bool fits = plain && error == std::errc() && end == bits.data() + bits.size() &&
                    rounding.random_bits >= 1 && rounding.random_bits <= kMostRandomBits;
  if (*mode != RoundingMode::stochastic || !fits) return std::nullopt;
  return rounding;
}

}  // namespace halfscope
