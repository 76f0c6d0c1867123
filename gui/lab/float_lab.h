// SPDX-License-Identifier: MIT
// FloatLab: the state of the float lab and its computed values. It needs no run. Every number comes
// from core/lab. The tabs that draw it are in lab_tabs.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/lab/calculation.h"
#include "core/lab/exact_decimal.h"
#include "core/lab/number_text.h"
#include "core/lab/rounding_place.h"
#include "core/lab/running_sum.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"
#include "gui/lab/lab_state.h"
#include "gui/lab/microscope_desk.h"
#include "gui/lab/puzzle_study.h"

namespace halfscope::gui {

using namespace lab;  // the lab in the viewer shows what core/lab computes

enum class LabTab : uint8_t {
  bits,
  rounding,
  stochastic,
  line,
  same_number,
  arithmetic,
  walk,
  accumulate,
  blocks,
  formats,
  builder,
  step,
  puzzles,
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
  Operation operation = Operation::add;
  RoundingMode mode = RoundingMode::nearest_even;
  std::string a = "2048", b = "1", c = "0";
  // All formats
  double shift = 0.0;  ///< the number is multiplied by 2^shift, as by a loss scale
  // Accumulate
  std::string terms = "4096x1";
  int64_t moment = -1;  ///< terms added at the marker; -1: where the sum stalls, or the end
  RunningSums sums{};   ///< of `sums_of`, kept while nothing is edited
  SumMoment at_moment{};
  std::string sums_of{}, moment_of{};

  BlocksState blocks{};
  DropsState drops{};
  WalkState walk{};
  bool moving = false;  ///< a tab animates: the next frame must be drawn without waiting for input
  // Training step
  MicroscopeDesk desk{};
  PuzzleStudy puzzle{};

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

/// The operands of the lab, rounded to its format, and the result of its operation.
struct LabResult {
  float a = 0.0f, b = 0.0f, c = 0.0f;
  Calculation result{};
};
LabResult calculate(const FloatLab& lab);

struct LabPreset {
  const char* name;
  const char* tip;
  void (*apply)(FloatLab& lab);
};
std::span<const LabPreset> lab_presets();

}  // namespace halfscope::gui
