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

namespace {

void multiply_in_fp16(FloatLab& lab, const char* squared) {
  lab.set_format(kFp16);
  lab.operation = Operation::mul;
  lab.mode = RoundingMode::nearest_even;
  lab.a = lab.b = squared;
  lab.show(LabTab::arithmetic);
}

}  // namespace

std::span<const LabPreset> lab_presets() {
  static constexpr std::array kPresets{
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
      LabPreset{"Ties to even", "Halfway between two numbers.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.value = "2049";
                  lab.show(LabTab::rounding);
                  lab.note =
                      "2049 is as far from 2048 as from 2050. Round to nearest even picks the one "
                      "whose last bit is 0, so that errors do not add up in one direction.";
                }},
      LabPreset{"256 \u00d7 256 = infinity", "Overflow in fp16.",
                [](FloatLab& lab) {
                  multiply_in_fp16(lab, "256");
                  lab.note =
                      "65536 is larger than 65504, the largest fp16 number, so the product is "
                      "infinity. Squares of activations overflow this early. bf16 has no problem.";
                }},
      LabPreset{"1e-5 squared = 0", "Underflow in fp16.",
                [](FloatLab& lab) {
                  multiply_in_fp16(lab, "1e-5");
                  lab.note =
                      "1e-10 is far below 2^-24, the smallest fp16 number, so the product becomes "
                      "0. Adam squares gradients: keep its second moment in fp32.";
                }},
      LabPreset{"Loss scale", "A gradient that fp16 loses, and how to save it.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.entry = "1e-8";
                  lab.entry_edited();
                  lab.shift = 16.0;
                  lab.show(LabTab::same_number);
                  lab.note =
                      "fp16 flushes a gradient of 1e-8 to zero. Multiplied by a loss scale of 2^16 "
                      "it is 0.000655, and fp16 stores it. Move the slider to 0 and see it vanish.";
                }},
      LabPreset{"bf16 needs no loss scale", "The same gradient in bf16.",
                [](FloatLab& lab) {
                  lab.set_format(kBf16);
                  lab.entry = "1e-8";
                  lab.entry_edited();
                  lab.shift = 0.0;
                  lab.show(LabTab::same_number);
                  lab.note =
                      "bf16 has the eight exponent bits of fp32, so 1e-8 is an ordinary number. It "
                      "pays with precision: seven fraction bits, an error of up to 0.39%.";
                }},
      LabPreset{
          "7 bits can be enough", "A sum of bf16 numbers.",
          [](FloatLab& lab) {
            lab.set_format(kBf16);
            lab.walk.kind = WalkState::Kind::dot;
            lab.walk.accumulation = "fp32";
            lab.walk.list_a = "0.1,0.2,0.3,0.4,0.6,0.7,0.8,0.9,1.1,1.3,1.7,1.9";
            lab.walk.list_b = "12x1";
            lab.walk.first = 11;
            lab.show(LabTab::walk);
            lab.note =
                "bf16 stores these numbers with errors of up to 0.26%, some up, some down. In "
                "an fp32 sum most of that cancels: the sum is off by only 0.015%.";
          }},
      LabPreset{"Block with an outlier", "One value sets the scale of all.",
                [](FloatLab& lab) {
                  lab.blocks.values = block_example(BlockExample::outlier);
                  lab.blocks.format = "mxfp4";
                  lab.blocks.rule = BlockScaleRule::floor;
                  lab.blocks.selected = 11;
                  lab.blocks.entry = "60";
                  lab.show(LabTab::blocks);
                  lab.note =
                      "60 makes the scale of all 32 values 8. Elements of mxfp4 start at 0.5, so "
                      "everything up to 2 becomes 0. Drag the outlier down, and the others return.";
                }},
      LabPreset{"Rounding at random", "Why stochastic rounding has no bias.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  lab.drops.value = "2048.25";
                  lab.show(LabTab::stochastic);
                  lab.note =
                      "Round to nearest turns 2048.25 into 2048 every time, so small updates never "
                      "arrive. Stochastic rounding goes up in one of eight cases: on average, "
                      "nothing is lost.";
                }},
      LabPreset{"fma or two roundings", "The same formula, two results.",
                [](FloatLab& lab) {
                  lab.set_format(kFp16);
                  const WalkState fresh;
                  lab.walk.kind = WalkState::Kind::fma;
                  lab.walk.a = fresh.a;
                  lab.walk.b = fresh.b;
                  lab.walk.c = fresh.c;
                  lab.walk.first = 2;
                  lab.show(LabTab::walk);
                  lab.note =
                      "mul + add rounds twice and loses the last bit of the product; here that bit "
                      "is the whole result. fma rounds once. Press Next to see where it goes.";
                }},
      LabPreset{"Tensor cores cut bits", "fp8 sums keep 13 bits on some GPUs.", [](FloatLab& lab) {
                  lab.set_format(kE4m3fn);
                  lab.walk.kind = WalkState::Kind::tensor_core;
                  lab.walk.arch = "ada";
                  lab.walk.list_a = "16,8x0.015625";
                  lab.walk.list_b = "16,8x1";
                  lab.walk.start = "0";
                  lab.walk.first = 1;
                  lab.show(LabTab::walk);
                  lab.note =
                      "Ada sums fp8 products with 13 bits below the largest exponent. Next to 256, "
                      "eight products of 2^-6 vanish. Choose b200-tcgen05, which keeps 25 bits.";
                }}};
  return kPresets;
}

}  // namespace halfscope::gui
