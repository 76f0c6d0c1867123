// SPDX-License-Identifier: MIT
// Ranges of formats, and what a single rounding or a few do to the numbers of bug reports.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/validation/rows.h"
#include "core/models/zoo/net.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"

namespace halfscope::validation {
namespace {

double rounded(double x, const FloatFormat& format) { return round_to_format(x, format).value; }

std::string rounded_text(double x, const FloatFormat& format) {
  return long_number(rounded(x, format));
}

/// Returns "1000, 936, 832, 624".
std::string rounded_list(std::span<const double> values, const FloatFormat& format) {
  std::string text;
  for (const double x : values) text += (text.empty() ? "" : ", ") + rounded_text(x, format);
  return text;
}

/// Returns the largest number, the smallest normal and the smallest number, from all codes.
std::string limits(const FloatFormat& format) {
  double largest = 0.0, smallest = INFINITY, normal = INFINITY;
  for (uint32_t code = 0; code < uint32_t{1} << (format.bits() - 1); ++code) {
    const double x = static_cast<double>(decode(code, format));
    if (!std::isfinite(x) || x == 0.0) continue;
    largest = std::max(largest, x);
    smallest = std::min(smallest, x);
    if (code >> format.mantissa_bits != 0) normal = std::min(normal, x);
  }
  return fmt::format("{}, {}, {}", long_number(largest), power(normal), power(smallest));
}

void add_limits(std::vector<Row>& rows) {
  rows.push_back(exact("e4m3: largest number, smallest normal, smallest number",
                       paper("2209.05433", "table 1"), "448, 2^-6, 2^-9", limits(kE4m3fn)));
  rows.push_back(exact("e5m2: largest number, smallest normal, smallest number",
                       paper("2209.05433", "table 1"), "57344, 2^-14, 2^-16", limits(kE5m2)));
  rows.push_back(exact("largest numbers of e4m3fnuz and e5m2fnuz", paper("2206.02915", "formats"),
                       "240, 57344",
                       fmt::format("{}, {}", long_number(kE4m3fnuz.max_finite()),
                                   long_number(kE5m2fnuz.max_finite()))));
  rows.push_back(exact("fp16: smallest number", paper("1710.03740", "section 3.1"), "2^-24",
                       power(static_cast<double>(decode(1, kFp16)))));
  const auto first_gap = [](const FloatFormat& format) {
    double n = 1.0;
    while (rounded(n + 1.0, format) == n + 1.0) n += 1.0;
    return long_number(n);
  };
  rows.push_back(
      in_zoo("F50", exact("all whole numbers are exact in fp16, bf16 up to",
                          pull("sonos/tract", 2587) + ", " + pull("nkalyanv99/UNI-D2", 6),
                          "2048, 256", first_gap(kFp16) + ", " + first_gap(kBf16))));
}

/// Returns the largest power of two that fp16 rounds to zero.
double largest_flushed() {
  double x = 1.0;
  while (rounded(x, kFp16) != 0.0) x *= 0.5;
  return x;
}

void add_overflows(std::vector<Row>& rows) {
  rows.push_back(
      in_zoo("F33", exact("65519 and 65520 in fp16", issue("NVIDIA/NeMo", 11541), "65504, inf",
                          rounded_text(65519.0, kFp16) + ", " + rounded_text(65520.0, kFp16))));
  rows.push_back(in_zoo("F1", exact("T5's feed-forward output 66246.3906 in fp16",
                                    issue("huggingface/transformers", 5651), "inf",
                                    rounded_text(66246.3906, kFp16))));
  const float layer = round_to_format(6.27e4f, kFp16).value;
  const float keep = round_to_format(0.9f, kFp16).value;
  rows.push_back(in_zoo(
      "F2",
      exact("mT5: largest output of a layer, and after dropout with p = 0.1",
            "[transformers, debugging](https://huggingface.co/docs/transformers/v5.9.0/debugging)",
            "6.27e+04, inf",
            fmt::format("{:.2e}, {}", static_cast<double>(layer),
                        long_number(static_cast<double>(div(layer, keep, kFp16).value))))));
  // A sum in fp32 that is rounded to fp16 before the operation that would bring it back into range.
  const float squares = round_to_format(9.0f * 100.0f * 100.0f, kFp16).value;
  rows.push_back(exact("2-norm of nine values of 100 whose sum of squares is stored in fp16",
                       issue("jax-ml/jax", 39899), "inf",
                       long_number(static_cast<double>(sqrt(squares, kFp16).value))));
  const float total = round_to_format(65520.0f, kFp16).value;
  rows.push_back(exact("mean of 65520 ones whose sum is stored in fp16",
                       pull("huggingface/candle", 3765), "inf",
                       long_number(static_cast<double>(div(total, 65520.0f, kFp16).value))));
}

void add_constants(std::vector<Row>& rows) {
  const auto eps = [](double x) { return static_cast<float>(rounded(x, kFp16)); };
  rows.push_back(
      in_zoo("F5", exact("normalizing a row of zeros in fp16 with an epsilon of 1e-12",
                         pull("pytorch/pytorch", 192017), "NaN",
                         long_number(static_cast<double>(div(0.0f, eps(1e-12), kFp16).value)))));
  const auto gradient = [&](double epsilon) {
    return std::isfinite(div(1.0f, eps(epsilon), kFp16).value) ? "works" : "too low";
  };
  rows.push_back(in_zoo(
      "F5", exact("epsilon of 1e-5 and 1e-4 for the gradient of the same row",
                  pull("pytorch/pytorch", 33596), "too low, works",
                  fmt::format("{}, {}", gradient(1e-5), gradient(1e-4)),
                  "The gradient of a row of zeros is 1 / epsilon, which must not exceed 65504.")));
  rows.push_back(
      in_zoo("F34", exact("a learning rate of 1.993e-17 in fp16", pull("tinygrad/tinygrad", 2981),
                          "0", rounded_text(1.993e-17, kFp16))));
  rows.push_back(in_zoo("F29", exact("Gemma's constant sqrt(3072) = 55.4256 in bf16",
                                     pull("huggingface/transformers", 29402), "55.5",
                                     rounded_text(std::sqrt(3072.0), kBf16))));
}

void add_positions(std::vector<Row>& rows) {
  const std::array grid{999.0, 937.0, 833.0, 625.0};
  rows.push_back(in_zoo(
      "F44", exact("diffusion time steps 999, 937, 833, 625 in bf16", pull("utensils/mold", 811),
                   "1000, 936, 832, 624", rounded_list(grid, kBf16))));
  const std::array steps{999.3986, 988.4937, 987.1741};
  rows.push_back(in_zoo("F44", exact("diffusion time steps 999.3986, 988.4937, 987.1741 in bf16",
                                     issue("modelscope/DiffSynth-Studio", 562), "1000, 988, 988",
                                     rounded_list(steps, kBf16))));
  rows.push_back(in_zoo(
      "F19", exact("step between numbers of bf16 at 65536", pull("huggingface/diffusers", 13922),
                   "512", long_number(rounded(65536.0 + 257.0, kBf16) - 65536.0))));
}

/// ONNX Runtime's sigmoid with every step in fp16.
float sigmoid_in_fp16(float x) {
  const double small = elementary::exp(-std::fabs(static_cast<double>(x)));
  const float below = add(1.0f, static_cast<float>(rounded(small, kFp16)), kFp16).value;
  const float high = div(1.0f, below, kFp16).value;
  return x > 0.0f ? high : sub(1.0f, high, kFp16).value;
}

void add_functions(std::vector<Row>& rows) {
  std::string text;
  for (const float x : {-7.8477f, 7.3320f, -7.8008f, 6.6016f}) {
    text += fmt::format("{}{:.4f}", text.empty() ? "" : ", ",
                        static_cast<double>(sigmoid_in_fp16(round_to_format(x, kFp16).value)));
  }
  rows.push_back(in_zoo(
      "F13", exact("sigmoid of -7.8477, 7.3320, -7.8008, 6.6016, all steps in fp16",
                   pull("microsoft/onnxruntime", 14784), "0.0000, 0.9990, 0.0000, 0.9990", text)));
}

void add_tf32(std::vector<Row>& rows) {
  const Rounding away{.mode = RoundingMode::nearest_away};
  const double ties_away = round_to_format(1024.5, kTf32, away).value;
  rows.push_back(in_zoo(
      "F27",
      exact("1024.5 times 1 in tf32", issue("pytorch/pytorch", 53635), "1025",
            long_number(ties_away),
            fmt::format(
                "1024.5 is halfway between two numbers of tf32. The published value needs ties "
                "that go away from zero, as in the conversion `cvt.rna.tf32`. HalfScope's plans "
                "round ties to even and give {}.",
                rounded_text(1024.5, kTf32)))));
  const double z = rounded(3.14, kTf32);
  rows.push_back(in_zoo(
      "F27",
      exact("z S z for z = (0, 3.14) and S = 1, with z S in tf32", issue("pytorch/pytorch", 78275),
            "9.8616", fmt::format("{:.5g}", static_cast<double>(static_cast<float>(z) * 3.14f)),
            fmt::format("The second product is a dot product, which cuBLAS does not run "
                        "in tf32. With both operands in tf32 it would be {:.5g}.",
                        z * z))));
  constexpr int kRepeats = 100;
  zoo::Draw draw(53635);
  double mean = 0.0;
  for (int i = 0; i < kRepeats; ++i) {
    double squares = 0.0;
    for (const float x : draw.normals(128 * 3)) {
      const double exact = static_cast<double>(x);
      const double error = round_to_format(exact, kTf32, away).value - exact;
      squares += error * error;
    }
    mean += std::sqrt(squares) / kRepeats;
  }
  rows.push_back(in_zoo(
      "F27", within("2-norm of A I - A in tf32, A normal, 128 x 3", issue("pytorch/pytorch", 58688),
                    "0.0041", mean, {0.0037, 0.0045},
                    "Ours is the mean over 100 draws; the published draw is unknown. If tf32 "
                    "cut bits off instead of rounding, the norm would be twice as large.")));
}

/// Share of the pairs of significands of fp16 for which w + u is w. u has an exponent that is
/// `shift` smaller.
struct Lost {
  int64_t pairs = 0, lost = 0;
  double smallest_lost = INFINITY;  ///< ratio w / u of a lost pair
  double largest_kept = 0.0;        ///< and of any other
};

Lost lost_updates(int shift, bool subtract) {
  Lost result;
  for (int i = 0; i < 1024; ++i) {
    const float w = 1.0f + static_cast<float>(i) * 0x1p-10f;
    for (int j = 0; j < 1024; ++j) {
      const float u = std::ldexp(1.0f + static_cast<float>(j) * 0x1p-10f, -shift);
      const float sum = subtract ? sub(w, u, kFp16).value : add(w, u, kFp16).value;
      ++result.pairs;
      const double ratio = static_cast<double>(w) / static_cast<double>(u);
      if (sum == w) {
        ++result.lost;
        result.smallest_lost = std::min(result.smallest_lost, ratio);
      } else {
        result.largest_kept = std::max(result.largest_kept, ratio);
      }
    }
  }
  return result;
}

void add_updates(std::vector<Row>& rows) {
  const auto quantity = [](const Lost& lost) {
    return lost.lost == 0 ? "none" : lost.lost == lost.pairs ? "all" : "some";
  };
  const Lost ten = lost_updates(10, false), eleven = lost_updates(11, false),
             twelve = lost_updates(12, false), minus = lost_updates(12, true);
  rows.push_back(exact(
      "additions to an fp16 weight that are lost if the update is shifted by 10, 11, 12 bits",
      paper("1710.03740", "section 3.1"), "none, some, all",
      fmt::format("{}, {}, {}", quantity(ten), quantity(eleven), quantity(twelve)),
      fmt::format("All 1,048,576 pairs of significands were tried for each shift. At 11 bits, {} "
                  "are lost: exact ties at an even weight. Subtractions have an exception: numbers "
                  "below a power of two are twice as dense, so at 12 bits {} of the subtractions "
                  "from such a weight still change it.",
                  eleven.lost, minus.pairs - minus.lost)));
  rows.push_back(exact("smallest ratio of weight to update at which fp16 can lose the update",
                       paper("1710.03740", "section 3.1"), "2048",
                       long_number(eleven.smallest_lost)));
  const auto next = [](double x) { return rounded(x, kBf16); };
  rows.push_back(in_zoo(
      "F17", exact("step of bf16 above 1, and 1 - 1e-3 x 0.01 in bf16: a step of weight decay",
                   issue("Nerogar/OneTrainer", 996), "about 0.008, 1",
                   fmt::format("about {:.1g}, {}", next(1.0 + 0x1p-7) - 1.0,
                               long_number(next(1.0 - 1e-3 * 0.01))))));
  const double up = round_to_format(1.0 + 0x1p-30, kBf16, {.mode = RoundingMode::up}).value;
  const double down = round_to_format(1.0 - 0x1p-30, kBf16, {.mode = RoundingMode::down}).value;
  rows.push_back(in_zoo(
      "F16", exact("neighbors of 1 in bf16, and 1 - 6e-4 in bf16", pull("workofart/ml-by-hand", 85),
                   "1.0078125, 0.99609375, 1",
                   fmt::format("{:.9g}, {:.9g}, {}", up, down, rounded_text(0.9994, kBf16)))));
}

void add_corrections(std::vector<Row>& rows) {
  rows.push_back(differs(
      "magnitude below which fp16 rounds to zero", paper("1710.03740", "section 3.1"), "2^-24",
      power(largest_flushed()),
      "2^-24 is the smallest number of fp16. Numbers between 2^-25 and 2^-24 round up to it; 2^-25 "
      "itself is a tie and becomes 0."));
  rows.push_back(differs("largest ratio of weight to update at which fp16 can keep the update",
                         paper("1710.03740", "section 3.1"), "2048",
                         long_number(lost_updates(11, false).largest_kept),
                         "The paper's rule about shifts is exact (table A). As a ratio it is not: "
                         "significands add up to a "
                         "factor of 2, so updates survive up to a ratio just below 4096."));
  const double position = 15962.0;
  const double below = round_to_format(position, kBf16, {.mode = RoundingMode::down}).value;
  const double above = round_to_format(position, kBf16, {.mode = RoundingMode::up}).value;
  rows.push_back(in_zoo(
      "F19",
      differs("neighbors of position 15962 in bf16", pull("huggingface/candle", 3520),
              "15936, 15968", long_number(below) + ", " + long_number(above),
              fmt::format("The step of bf16 there is 64, not 16. So the damage is larger than the "
                          "thread says: 15962 becomes {}, which is 26 positions away.",
                          rounded_text(position, kBf16)))));
  rows.push_back(in_zoo(
      "F19",
      differs("cosines of 15962 and 15968", pull("huggingface/candle", 3520), "-0.547, -0.882",
              fmt::format("{:.3f}, {:.3f}", elementary::cos(15962.0), elementary::cos(15968.0)),
              "In radians. The conclusion of the thread, that neighboring positions get "
              "unrelated angles, is right.")));
  std::set<double> distinct;
  for (int i = 0; i < 512; ++i) distinct.insert(rounded(65536.0 + i, kBf16));
  rows.push_back(
      in_zoo("F19", differs("distinct positions in a grid of 512 that starts at 65536, in bf16",
                            pull("huggingface/diffusers", 13922), "1",
                            long_number(static_cast<double>(distinct.size())),
                            "The upper half of the grid rounds up. A grid of up to 257 has one.")));
}

}  // namespace

Table roundings() {
  Table table{.letter = 'A',
              .title = "Ranges and single roundings",
              .introduction =
                  "Limits of formats, and numbers that a bug report or a paper gives before and "
                  "after rounding."};
  add_limits(table.rows);
  add_overflows(table.rows);
  add_constants(table.rows);
  add_positions(table.rows);
  add_functions(table.rows);
  add_tf32(table.rows);
  add_updates(table.rows);
  return table;
}

Table corrections() {
  Table table{.letter = 'N',
              .title = "Published figures that do not hold",
              .introduction =
                  "Figures that we computed and did not find. They are listed here so "
                  "that nobody tunes a test to them."};
  add_corrections(table.rows);
  return table;
}

}  // namespace halfscope::validation
