// SPDX-License-Identifier: MIT
// A libFuzzer target: names of formats, roundings and accumulations, which may be any bytes; and
// rounding in the format, mode and tininess that they name, compared with the enumerated format.
// Input: 8 bytes of a double, 1 of the mode, 1 of tininess, 8 of random bits, then the text.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulation.h"
#include "tests/numeric/enumerated_format.h"

namespace {

using namespace halfscope;  // NOLINT: one target

void require(bool ok, const char* what, std::string_view text) {
  if (ok) return;
  std::fprintf(stderr, "%s: \"%.*s\"\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

template <class T>
T take(const uint8_t*& data, size_t& size) {
  T value{};
  const size_t count = size < sizeof(T) ? size : sizeof(T);
  std::memcpy(&value, data, count);
  data += count;
  size -= count;
  return value;
}

void check_names(std::string_view text) {
  if (const std::optional<FloatFormat> format = parse_format(text)) {
    require(is_valid(*format), "an invalid format was read", text);
    const std::optional<FloatFormat> again = parse_format(format_name(*format));
    require(again && *again == *format, "a format's name does not come back", text);
  } else {
    require(!format_problem(text).empty(), "no word about a text that is no format", text);
  }
  if (const std::optional<Accumulation> accumulation = parse_accumulation(text)) {
    const auto again = parse_accumulation(accumulation_name(*accumulation));
    require(again && *again == *accumulation, "an accumulation's name does not come back", text);
  }
}

void check_rounding(const FloatFormat& format, double x, const Rounding& rounding,
                    std::string_view text) {
  constexpr int kMostBits = 16;  // longer ones take too long to enumerate
  if (format.bits() > kMostBits || rounding.mode == RoundingMode::stochastic) return;
  const Rounded<double> got = round_to_format(x, format, rounding);
  Rounded<double> expected = testing::EnumeratedFormat(format).round(x, rounding);
  const bool signalling = x != x && (std::bit_cast<uint64_t>(x) >> 51 & 1) == 0;
  if (signalling) expected.flags |= kInvalid;  // the oracle takes any NaN for a quiet one
  const bool nan = got.value != got.value && expected.value != expected.value;
  require(nan || std::bit_cast<uint64_t>(got.value) == std::bit_cast<uint64_t>(expected.value),
          "a wrong value", text);
  require(got.flags == expected.flags, "wrong flags", text);
  const float stored = static_cast<float>(got.value);
  const float back = decode(encode(stored, format), format);
  require(back != back || back == stored, "a code does not come back", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const double x = take<double>(data, size);
  Rounding rounding;
  rounding.mode = kAllRoundingModes[take<uint8_t>(data, size) % std::size(kAllRoundingModes)];
  const bool before = take<uint8_t>(data, size) % 2 != 0;
  rounding.tininess = before ? Tininess::before_rounding : Tininess::after_rounding;
  rounding.random = take<uint64_t>(data, size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_names(text);
  if (const std::optional<FloatFormat> format = parse_format(text)) {
    check_rounding(*format, x, rounding, text);
    check_rounding(*format, static_cast<double>(static_cast<float>(x)), rounding, text);
  }
  return 0;
}
