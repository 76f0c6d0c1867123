// SPDX-License-Identifier: MIT
// core/lab and core/numeric compute everything; this file parses the input and keeps the state.
#include "gui/lab/float_lab.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/numeric/formats/codes.h"

namespace halfscope::gui {

FloatLab::FloatLab() : shown_(kFp16) {
  entry_edited();
  blocks.entry = fmt::format(
      "{:.4g}", static_cast<double>(blocks.values[static_cast<size_t>(blocks.selected)]));
}

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
LabResult calculate(const FloatLab& lab) {
  const FloatFormat& format = lab.shown();
  std::string problem;
  const auto read = [&](const std::string& text) {
    const std::optional<uint32_t> code = read_number(text, format, problem);
    return code ? decode(*code, format) : std::numeric_limits<float>::quiet_NaN();
  };
  LabResult result{.a = read(lab.a), .b = read(lab.b), .c = read(lab.c)};
  result.result = calculate(lab.operation, result.a, result.b, result.c, format,
                            {.mode = lab.mode, .random = lab.random});
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
                  lab.operation = Operation::add;
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
                  lab.terms = "4096x1";
                  lab.moment = -1;
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
