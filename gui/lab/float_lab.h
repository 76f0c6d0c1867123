// SPDX-License-Identifier: MIT
// FloatLab: the state of the float lab and its computed values. It needs no run. Every number comes
// from core/numeric. The tabs that draw it are in lab_tabs.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"
#include "gui/lab/exact_decimal.h"

namespace halfscope::gui {

enum class LabTab : uint8_t { bits, rounding, line, arithmetic, accumulate, formats };
enum class LabOperation : uint8_t { add, sub, mul, div, fma };
const char* lab_operation_name(LabOperation operation) noexcept;  // "a + b"

/// One way of summing the same term repeatedly.
struct LabSeries {
  std::string name{};
  std::vector<float> sums{};   ///< after `every`, 2 `every` ... terms, and the last
  int64_t stalled_after = -1;  ///< terms after which further ones change nothing; -1: none
  float last = 0.0f;
};
struct LabSums {
  std::vector<LabSeries> series{};
  std::vector<int64_t> terms{};  ///< of every point
  float term = 0.0f;             ///< x, rounded to the format
};

struct FloatLab {
  LabTab tab = LabTab::bits;
  std::string format = "fp16";  ///< as typed; shown() is the last that was one
  std::string entry = "0.1";    ///< a decimal, inf, nan, a hexadecimal float or a code as 0x2e66
  uint32_t code = 0;
  std::string note{};  ///< what a preset shows

  // Rounding
  std::string value = "2049.5";
  uint32_t random = 0x9e3779b9u;
  // Number line
  double line_low = -8.0, line_high = 8.0;
  // Arithmetic
  LabOperation operation = LabOperation::add;
  RoundingMode mode = RoundingMode::nearest_even;
  std::string a = "2048", b = "1", c = "0";
  // Accumulate
  std::string term = "1";
  int count = 4096;
  LabSums sums{};  ///< of `sums_of`, kept while nothing is edited
  std::string sums_of{};

  FloatLab();

  const FloatFormat& shown() const noexcept { return shown_; }
  std::string format_problem() const;  ///< why `format` is none; empty if it is
  const std::string& entry_problem() const noexcept { return entry_problem_; }
  /// Returns the typed decimal while the bits are still its rounding.
  const std::optional<ExactDecimal>& typed() const noexcept { return typed_; }
  float number() const noexcept;  ///< of `code`

  /// Parses `format` or `entry` after an edit: sets a problem or changes the bits.
  void format_edited();
  void entry_edited();
  void set_format(const FloatFormat& format);
  void set_code(uint32_t code);
  void set_bit(int bit, bool on);
  /// Moves to a neighbouring value; stays at the last one and at NaN.
  void step(int by);
  void show(LabTab which);

  /// Parses "e4m3 0x7e", "fp16 0.1" or "fp16". Returns false and changes nothing for other text.
  bool open(std::string_view text);

 private:
  FloatFormat shown_;
  std::optional<ExactDecimal> typed_{};
  std::string entry_problem_{};
};

/// Returns the code of a text: a number, rounded once, or a code. Empty if it is neither, with the
/// reason in `problem`.
std::optional<uint32_t> read_number(std::string_view text, const FloatFormat& format,
                                    std::string& problem);
/// Parses a decimal or a hexadecimal float as a double.
std::optional<double> read_double(const std::string& text);

/// Returns the value `by` ulps further; NaN for NaN.
float neighbour(float value, int64_t by, const FloatFormat& format) noexcept;
std::string value_text(float value, const FloatFormat& format);  ///< shortest that reads back
std::string exact_text(float value);                             ///< all digits, "inf", "nan"
/// Returns all digits if they are few, else enough to distinguish the value from its neighbours.
std::string distinct_text(float value, const FloatFormat& format);
std::string hex_float(double value);                              ///< "0x1.998p-4"
std::string code_text(uint32_t code, const FloatFormat& format);  ///< "0x2e66"
/// Returns "+ 1.599609375 x 2^-4", with a times sign that fonts without Unicode have, too.
std::string formula_text(float value, const FloatFormat& format);
std::string kind_text(float value, const FloatFormat& format);  ///< "normal", "infinity" ...
std::string flags_text(uint8_t flags);                          ///< "inexact, underflow"; "exact"

/// A value between two neighbours, and the bits that decide between them.
struct RoundingPlace {
  float below = 0.0f, above = 0.0f;  ///< of the magnitude, with the sign
  double fraction = 0.0;             ///< how far it is from below to above
  std::string kept{};                ///< significand bits that stay, "1.0000000000"
  bool guard = false, round = false, sticky = false;
};
/// Returns the rounding place of a finite non-zero value; empty for others.
std::optional<RoundingPlace> rounding_place(double value, const FloatFormat& format);

struct LabResult {
  float a = 0.0f, b = 0.0f, c = 0.0f;  ///< the operands, rounded to the format
  float value = 0.0f;
  uint8_t flags = 0;
  std::string exact{};  ///< all digits; for endless quotients the first ones, then dots
  double error_ulps = 0.0;
};
LabResult calculate(const FloatLab& lab);

/// Sums x in fp32, bf16 and the format: there plain, compensated and stochastic.
LabSums accumulate(float x, int64_t count, const FloatFormat& format, uint64_t seed = 1);

struct LabPreset {
  const char* name;
  const char* tip;
  void (*apply)(FloatLab& lab);
};
std::span<const LabPreset> lab_presets();

}  // namespace halfscope::gui
