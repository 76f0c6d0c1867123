// SPDX-License-Identifier: MIT
// core/numeric computes everything; this file parses the input and keeps the state.
#include "gui/lab/float_lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "core/numeric/types/float_text.h"

namespace halfscope::gui {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kPoints = 240;  ///< of a series that is drawn

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

uint32_t all_codes(const FloatFormat& format) {
  return static_cast<uint32_t>((uint64_t{1} << format.bits()) - 1);
}

bool is_hex_float(std::string_view text) {
  return text.find_first_of("pP.") != std::string_view::npos &&
         text.find_first_of("xX") != std::string_view::npos;
}

/// Returns floor(log2 |x|) of a finite non-zero x.
int exponent_of(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return exponent - 1;
}

}  // namespace

const char* lab_operation_name(LabOperation operation) noexcept {
  switch (operation) {
    case LabOperation::add:
      return "a + b";
    case LabOperation::sub:
      return "a - b";
    case LabOperation::mul:
      return "a \u00d7 b";
    case LabOperation::div:
      return "a / b";
    case LabOperation::fma:
      return "a \u00d7 b + c";
  }
  return "";
}

std::optional<double> read_double(const std::string& text) {
  const std::string word(trimmed(text));
  if (word.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (end != word.c_str() + word.size()) return std::nullopt;
  return value;
}

std::optional<uint32_t> read_number(std::string_view text, const FloatFormat& format,
                                    std::string& problem) {
  problem.clear();
  text = trimmed(text);
  if (is_hex_float(text)) {
    if (const std::optional<double> value = read_double(std::string(text))) {
      return detail::code_of_value(static_cast<float>(round_to_format(*value, format).value),
                                   format);
    }
  }
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const bool binary = text.starts_with("0b") || text.starts_with("0B");
  if (hex || binary) {
    uint32_t code = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + 2, last, code, hex ? 16 : 2);
    if (error == std::errc() && end == last) {
      if (code <= all_codes(format)) return code;
      problem = fmt::format("{} has only {} bits", format_name(format), format.bits());
      return std::nullopt;
    }
  } else if (const auto number = detail::parse_decimal(text, format)) {
    return detail::code_of_value(number->value, format);
  }
  problem = text.empty() ? "enter a number"
                         : fmt::format(
                               "'{}' is not a number: enter 0.1, 1e-7, inf, 0x1.8p-3 or a "
                               "code such as 0x2e66 or 0b0101",
                               text);
  return std::nullopt;
}

FloatLab::FloatLab() : shown_(kFp16) { entry_edited(); }

std::string FloatLab::format_problem() const { return halfscope::format_problem(format); }

float FloatLab::number() const noexcept { return decode(code, shown_); }

void FloatLab::format_edited() {
  const std::optional<FloatFormat> parsed = parse_format(format);
  if (!parsed) return;
  const float before = number();
  shown_ = *parsed;
  if (typed_) {
    entry_edited();
  } else {
    code = encode(before, shown_);
    entry = value_text(number(), shown_);
    entry_problem_.clear();
  }
}

void FloatLab::set_format(const FloatFormat& to) {
  format = format_name(to);
  format_edited();
}

void FloatLab::entry_edited() {
  const std::optional<uint32_t> read = read_number(entry, shown_, entry_problem_);
  if (!read) return;
  code = *read;
  typed_ = ExactDecimal::parse(trimmed(entry));
}

void FloatLab::set_code(uint32_t to) {
  code = to & all_codes(shown_);
  typed_.reset();
  entry = value_text(number(), shown_);
  entry_problem_.clear();
}

void FloatLab::set_bit(int bit, bool on) {
  const uint32_t mask = uint32_t{1} << bit;
  set_code(on ? code | mask : code & ~mask);
}

void FloatLab::step(int by) {
  const float next = neighbour(number(), by, shown_);
  if (!std::isnan(next)) set_code(detail::code_of_value(next, shown_));
}

void FloatLab::show(LabTab which) { tab = which; }

bool FloatLab::open(std::string_view text) {
  text = trimmed(text);
  const size_t space = text.find(' ');
  const std::optional<FloatFormat> parsed = parse_format(text.substr(0, space));
  if (!parsed) return false;
  std::string problem;
  std::string_view rest = space == std::string_view::npos ? "" : trimmed(text.substr(space));
  if (!rest.empty() && !read_number(rest, *parsed, problem)) return false;
  note.clear();
  if (text.substr(0, space) == "e4m3") {
    note =
        "e4m3 without a suffix has infinities, like the IEEE formats. The OCP format with a "
        "largest value of 448 is e4m3fn.";
  }
  set_format(*parsed);
  if (!rest.empty()) {
    entry = rest;
    entry_edited();
  }
  show(LabTab::bits);
  return true;
}

float neighbour(float value, int64_t by, const FloatFormat& format) noexcept {
  if (std::isnan(value)) return kNaN;
  const int64_t last = int64_t{detail::magnitude_code(detail::largest(false, format), format)} +
                       (format.has_infinity() ? 1 : 0);
  const int64_t place = std::clamp(detail::ulp_place(value, format) + by, -last, last);
  const uint32_t sign = place < 0 ? uint32_t{1} << (format.bits() - 1) : 0;
  return decode(sign | static_cast<uint32_t>(std::abs(place)), format);
}

std::string value_text(float value, const FloatFormat& format) {
  return detail::shortest_decimal(value, format);
}

std::string exact_text(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  if (value == 0.0f) return std::signbit(value) ? "-0" : "0";
  return ExactDecimal(static_cast<double>(value)).text();
}

std::string distinct_text(float value, const FloatFormat& format) {
  constexpr size_t kLongest = 17;
  if (std::string exact = exact_text(value); exact.size() <= kLongest) return exact;
  // A few more digits than the significand carries: the rest is far below an ulp.
  const int kept = static_cast<int>((format.mantissa_bits + 1) * std::log10(2.0)) + 4;
  return fmt::format("{:.{}g}", static_cast<double>(value), kept);
}

std::string hex_float(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return fmt::format("{:a}", value);
}

std::string code_text(uint32_t code, const FloatFormat& format) {
  return fmt::format("0x{:0{}x}", code, (format.bits() + 3) / 4);
}

std::string formula_text(float value, const FloatFormat& format) {
  if (!std::isfinite(value) || value == 0.0f) return exact_text(value);
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = std::max(exponent_of(magnitude), format.min_exponent());
  const ExactDecimal significand(std::ldexp(magnitude, -exponent));
  return fmt::format("{} {} \u00d7 2^{}", std::signbit(value) ? "-" : "+", significand.text(),
                     exponent);
}

std::string kind_text(float value, const FloatFormat& format) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "infinity";
  if (value == 0.0f) return "zero";
  return std::fabs(static_cast<double>(value)) < format.min_normal() ? "subnormal" : "normal";
}

std::string flags_text(uint8_t flags) {
  constexpr std::array<std::pair<uint8_t, const char*>, 7> kNames{
      std::pair{kInexact, "inexact"},
      std::pair{kOverflow, "overflow"},
      std::pair{kUnderflow, "underflow"},
      std::pair{kSubnormal, "subnormal"},
      std::pair{kFlushed, "becomes 0"},
      std::pair{kInvalid, "invalid"},
      std::pair{kDivideByZero, "division by zero"}};
  std::string text;
  for (const auto& [flag, name] : kNames) {
    if ((flags & flag) == 0) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text.empty() ? "exact" : text;
}

std::optional<RoundingPlace> rounding_place(double value, const FloatFormat& format) {
  if (!std::isfinite(value) || value == 0.0) return std::nullopt;
  const int exponent = exponent_of(value);
  if (exponent > std::min(format.max_exponent() + 1, 127)) return std::nullopt;
  const int quantum = std::max(exponent, format.min_exponent()) - format.mantissa_bits;
  const double scaled = std::ldexp(std::fabs(value), -quantum);  // exact, or far below one
  const double kept = std::floor(scaled);
  const double sign = value < 0.0 ? -1.0 : 1.0;
  RoundingPlace place;
  const double above = std::ldexp(kept + 1.0, quantum);
  const bool is_float = above <= static_cast<double>(std::numeric_limits<float>::max());
  place.below = static_cast<float>(sign * std::ldexp(kept, quantum));
  place.above = static_cast<float>(sign) *
                (is_float ? static_cast<float>(above) : std::numeric_limits<float>::infinity());
  place.fraction = scaled - kept;
  double rest = 2.0 * place.fraction;
  place.guard = rest >= 1.0;
  rest = 2.0 * (rest - (place.guard ? 1.0 : 0.0));
  place.round = rest >= 1.0;
  place.sticky = rest != (place.round ? 1.0 : 0.0);
  const uint32_t bits = static_cast<uint32_t>(kept);
  for (int bit = format.mantissa_bits; bit >= 0; --bit) {
    place.kept += (bits >> bit & 1) != 0 ? '1' : '0';
    if (bit == format.mantissa_bits && bit > 0) place.kept += '.';
  }
  return place;
}

namespace {

/// Returns the exact result of the operation; empty if it is not a number. `approximate` is near
/// it.
std::string exact_result(LabOperation operation, double a, double b, double c,
                         std::optional<ExactDecimal>& decimal, double& approximate) {
  const bool finite =
      std::isfinite(a) && std::isfinite(b) && (operation != LabOperation::fma || std::isfinite(c));
  if (!finite || (operation == LabOperation::div && b == 0.0)) return "";
  const ExactDecimal x(a), y(b), z(c);
  switch (operation) {
    case LabOperation::add:
      decimal = x + y;
      break;
    case LabOperation::sub:
      decimal = x - y;
      break;
    case LabOperation::mul:
      decimal = x * y;
      break;
    case LabOperation::fma:
      decimal = x * y + z;
      break;
    case LabOperation::div: {
      approximate = a / b;
      // Operands have 24 bits, so a quotient that ends has no more.
      if (std::fma(approximate, b, -a) == 0.0) {
        decimal = ExactDecimal(approximate);
        break;
      }
      return fmt::format("{:.17g}...", approximate);
    }
  }
  approximate = decimal->approximate();
  return decimal->text();
}

}  // namespace

LabResult calculate(const FloatLab& lab) {
  const FloatFormat& format = lab.shown();
  std::string problem;
  const auto read = [&](const std::string& text) {
    const std::optional<uint32_t> code = read_number(text, format, problem);
    return code ? decode(*code, format) : kNaN;
  };
  LabResult result{.a = read(lab.a), .b = read(lab.b), .c = read(lab.c)};
  const Rounding rounding{.mode = lab.mode, .random = lab.random};
  Rounded<float> rounded{};
  switch (lab.operation) {
    case LabOperation::add:
      rounded = add(result.a, result.b, format, rounding);
      break;
    case LabOperation::sub:
      rounded = sub(result.a, result.b, format, rounding);
      break;
    case LabOperation::mul:
      rounded = mul(result.a, result.b, format, rounding);
      break;
    case LabOperation::div:
      rounded = div(result.a, result.b, format, rounding);
      break;
    case LabOperation::fma:
      rounded = fma(result.a, result.b, result.c, format, rounding);
      break;
  }
  result.value = rounded.value;
  result.flags = rounded.flags;
  std::optional<ExactDecimal> decimal;
  double approximate = 0.0;
  result.exact =
      exact_result(lab.operation, static_cast<double>(result.a), static_cast<double>(result.b),
                   static_cast<double>(result.c), decimal, approximate);
  result.error_ulps = std::numeric_limits<double>::quiet_NaN();
  if (!result.exact.empty() && std::isfinite(result.value)) {
    const double value = static_cast<double>(result.value);
    const double difference =
        decimal ? (ExactDecimal(value) - *decimal).approximate() : value - approximate;
    result.error_ulps = difference / ulp_size(approximate, format);
  }
  return result;
}

namespace {

/// One way of summing; `add_term` adds x to the sum and may keep a compensation.
class Sum {
 public:
  enum class Kind : uint8_t { plain, kahan, stochastic };
  Sum(Kind kind, const FloatFormat& format, uint64_t key)
      : kind_(kind), format_(format), key_(key) {}

  /// Returns false if the sum did not change, and so never will again.
  bool add_term(float x, int64_t index) {
    const float before = sum_, lost = lost_;
    switch (kind_) {
      case Kind::plain:
        sum_ = add(sum_, x, format_).value;
        break;
      case Kind::kahan: {
        const float y = sub(x, lost_, format_).value;
        const float t = add(sum_, y, format_).value;
        lost_ = sub(sub(t, sum_, format_).value, y, format_).value;
        sum_ = t;
        break;
      }
      case Kind::stochastic: {
        const Rounding rounding{.mode = RoundingMode::stochastic,
                                .random = random_draw(key_, static_cast<uint64_t>(index))};
        sum_ = add(sum_, x, format_, rounding).value;
        return true;
      }
    }
    const bool same_sum = sum_ == before || (std::isnan(sum_) && std::isnan(before));
    return !(same_sum && (lost_ == lost || std::isnan(lost_)));
  }
  float value() const noexcept { return sum_; }

 private:
  Kind kind_;
  FloatFormat format_;
  uint64_t key_;
  float sum_ = 0.0f, lost_ = 0.0f;
};

LabSeries run_series(std::string name, Sum sum, float x, int64_t count, int64_t every) {
  LabSeries series{.name = std::move(name)};
  for (int64_t i = 1; i <= count; ++i) {
    if (series.stalled_after < 0 && !sum.add_term(x, i)) series.stalled_after = i - 1;
    if (i % every == 0 || i == count) series.sums.push_back(sum.value());
  }
  series.last = sum.value();
  return series;
}

}  // namespace

LabSums accumulate(float x, int64_t count, const FloatFormat& format, uint64_t seed) {
  LabSums result;
  const int64_t every = std::max<int64_t>(1, count / static_cast<int64_t>(kPoints));
  for (int64_t i = 1; i <= count; ++i) {
    if (i % every == 0 || i == count) result.terms.push_back(i);
  }
  result.term = static_cast<float>(round_to_format(x, format).value);
  const std::string name = format_name(format);
  const auto add_series = [&](const std::string& label, Sum::Kind kind, const FloatFormat& in) {
    const float term = round_to_format(x, in).value;
    result.series.push_back(
        run_series(label, Sum(kind, in, random_key(seed, 0, 0)), term, count, every));
  };
  add_series(name, Sum::Kind::plain, format);
  add_series(name + " Kahan", Sum::Kind::kahan, format);
  add_series(name + " stochastic", Sum::Kind::stochastic, format);
  if (format != kBf16) add_series("bf16", Sum::Kind::plain, kBf16);
  if (format != kFp16) add_series("fp16", Sum::Kind::plain, kFp16);
  if (format != kFp32) add_series("fp32", Sum::Kind::plain, kFp32);
  return result;
}

std::span<const LabPreset> lab_presets() {
  static constexpr std::array<LabPreset, 6> kPresets{
      LabPreset{
          "Why 65504", "The largest fp16 number.",
          [](FloatLab& lab) {
            lab.set_format(kFp16);
            lab.set_code(0x7bff);
            lab.show(LabTab::bits);
            lab.note =
                "fp16 has five exponent bits. The pattern 11111 is reserved for infinity and "
                "NaN, so the largest exponent is 30 - 15 = 15. With all ten fraction bits "
                "set, this gives 1.9990234375 \u00d7 2^15 = 65504. The next value is infinity.";
          }},
      LabPreset{"Why 2048 + 1 = 2048", "Additions that change nothing.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.operation = LabOperation::add;
                  lab.mode = RoundingMode::nearest_even;
                  lab.a = "2048";
                  lab.b = "1";
                  lab.show(LabTab::arithmetic);
                  lab.note =
                      "fp16 has 11 significant bits, so above 2048 it has only even integers. 2049 "
                      "is halfway between 2048 and 2050 and rounds to the even significand: 2048. "
                      "A sum of ones stalls there.";
                }},
      LabPreset{"0.1 in every format", "How a decimal is stored.",
                [](FloatLab& lab) {
                  lab.entry = "0.1";
                  lab.entry_edited();
                  lab.show(LabTab::bits);
                  lab.note =
                      "A tenth has infinitely many binary digits, so every format stores the "
                      "nearest value it has. The table below shows them with all digits.";
                }},
      LabPreset{"Smallest fp16", "The last number before zero.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.set_code(0x0001);
                  lab.show(LabTab::bits);
                  lab.note =
                      "The smallest fp16 number is the last fraction bit at the lowest exponent: "
                      "2^-24. Half of it (2^-25) and everything smaller becomes 0: underflow.";
                }},
      LabPreset{"Stalled sums", "Adding one, over and over.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.term = "1";
                  lab.count = 4096;
                  lab.show(LabTab::accumulate);
                  lab.note =
                      "A sum of ones stalls at 2048 in fp16 and at 256 in bf16. Kahan summation "
                      "and stochastic rounding keep growing.";
                }},
      LabPreset{"Ties to even", "Halfway between two numbers.", [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.value = "2049";
                  lab.show(LabTab::rounding);
                  lab.note =
                      "2049 is as far from 2048 as from 2050. Round to nearest even picks the one "
                      "whose last bit is 0, so that errors do not add up in one direction.";
                }}};
  return kPresets;
}

}  // namespace halfscope::gui
