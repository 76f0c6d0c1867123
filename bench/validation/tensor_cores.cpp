// SPDX-License-Identifier: MIT
// Products on tensor cores, by the models of core/numeric/sums/tensor_core.h.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "bench/validation/rows.h"
#include "core/models/zoo/net.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/tensor_core.h"
#include "emulation/gemm/gemm.h"

namespace halfscope::validation {
namespace {

const std::string kWriteUp = "write-up";

std::string bits_of(float x) { return fmt::format("{:#010x}", std::bit_cast<uint32_t>(x)); }

TensorCoreProfile profile(const std::string& arch, const FloatFormat& input) {
  return tensor_core_profile(arch, input).value();
}

/// A dot product with ones, in one block on an A100.
float with_ones(std::vector<float> terms) {
  const std::vector<float> ones(terms.size(), 1.0f);
  return tensor_core_dot(profile("a100", kBf16), terms, ones, 0.0f);
}

void add_vectors(std::vector<Row>& rows) {
  const TensorCoreProfile a100 = profile("a100", kBf16);
  const std::vector<float> a{1.5f, 0x1p-23f, 0x1p-24f, 0x1p-24f}, b{1.5f, 1.0f, 1.0f, 1.0f};
  const auto text = [](float x) {
    const double above = static_cast<double>(x) - 2.25;
    return above == 0.0 ? std::string("2.25") : "2.25 + " + power(above);
  };
  rows.push_back(exact(
      "A100, bf16: 1.5 x 1.5 + 2^-23 + 2^-24 + 2^-24", kWriteUp, "2.25 + 2^-22",
      text(tensor_core_dot(a100, a, b, 0.0f)),
      "C1 and C2 were measured on an A100. C3 is a unit test of the write-up's emulator, which "
      "had no differences from the A100."));
  rows.push_back(exact("A100, bf16: the same with 2.25 x 1 as the first product", kWriteUp, "2.25",
                       text(with_ones({2.25f, 0x1p-23f, 0x1p-24f, 0x1p-24f}))));
  std::vector<float> terms(8, round_to_format(1e-7f, kBf16).value);
  terms[0] = 1.0f;
  float chain = 0.0f;
  for (const float x : terms) chain += x;
  rows.push_back(exact("1 + 7 times 1e-7: on an A100, and term by term in fp32", kWriteUp,
                       "0x3f800003, 0x3f800007",
                       bits_of(with_ones(terms)) + ", " + bits_of(chain)));
}

/// The A100's block with its last step changed: rounded to nearest even instead of cut off.
float block_to_nearest(const FusedDot& unit, const float* a, const float* b, float c) {
  const detail::RawFloat start = detail::raw_float(std::bit_cast<uint32_t>(c), -126);
  int top = start.significand != 0 ? start.exponent : detail::kNoExponent;
  uint64_t size[8];
  int exponent[8];
  for (int k = 0; k < unit.products; ++k) {
    const detail::RawFloat x = detail::raw_float(std::bit_cast<uint32_t>(a[k]), -126);
    const detail::RawFloat y = detail::raw_float(std::bit_cast<uint32_t>(b[k]), -126);
    size[k] = uint64_t{x.significand} * y.significand;
    exponent[k] = x.exponent + y.exponent;
    if (size[k] != 0) top = std::max(top, exponent[k]);
  }
  int64_t sum = detail::aligned_c(unit, std::bit_cast<uint32_t>(c), start, top);
  for (int k = 0; k < unit.products; ++k) {
    const bool negative = std::signbit(a[k]) != std::signbit(b[k]);
    sum += detail::aligned(size[k], 46 - unit.fraction_bits + top - exponent[k], negative);
  }
  const double exact = static_cast<double>(sum) * std::ldexp(1.0, top - unit.fraction_bits);
  return static_cast<float>(exact);  // to nearest even
}

/// A bf16 matrix product computed in three ways; how many results differ after rounding to bf16.
struct Differences {
  int64_t outputs = 0, in_fp32 = 0, to_nearest = 0;
};

Differences differences(int64_t k) {
  constexpr int64_t kRows = 64, kColumns = 256;
  zoo::Draw draw(static_cast<uint64_t>(k));
  const auto matrix = [&](int64_t rows) {
    std::vector<float> values = draw.uniforms(rows * k, -1.0, 1.0);
    for (float& x : values) x = round_to_format(x, kBf16).value;
    return values;
  };
  const std::vector<float> a = matrix(kRows), b = matrix(kColumns);  // both with k last
  const MatrixView left{a.data(), k, 1}, right{b.data(), 1, k};
  const auto product = [&](const Accumulation& accumulation) {
    std::vector<float> c(kRows * kColumns);
    const SumSpec spec{.accumulation = accumulation, .write = kBf16, .read = kBf16};
    gemm(kRows, kColumns, k, left, right, nullptr, c.data(), spec);
    return c;
  };
  const std::vector<float> core = product(parse_accumulation("tensor-core:a100").value());
  const std::vector<float> chain = product(Accumulation::fp32);
  const FusedDot unit = profile("a100", kBf16).dot;
  Differences result;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      const auto at = static_cast<size_t>(i * kColumns + j);
      float nearest = 0.0f;
      for (int64_t first = 0; first < k; first += unit.products) {
        nearest =
            block_to_nearest(unit, a.data() + i * k + first, b.data() + j * k + first, nearest);
      }
      const float wanted = round_to_format(core[at], kBf16).value;
      ++result.outputs;
      result.in_fp32 += round_to_format(chain[at], kBf16).value != wanted ? 1 : 0;
      result.to_nearest += round_to_format(nearest, kBf16).value != wanted ? 1 : 0;
    }
  }
  return result;
}

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

void add_share(std::vector<Row>& rows, int64_t k, const Differences& ours, int64_t published) {
  constexpr int64_t kOutputs = 21 * 2560;  // of the write-up's products with these k
  const double share = ratio(published, kOutputs);
  rows.push_back(within(
      fmt::format("share of bf16 results that differ between an A100 and fp32 chains, K = {}", k),
      kWriteUp, fmt::format("{} ({} of {})", percent(share), published, kOutputs),
      ratio(ours.in_fp32, ours.outputs), {0.5 * share, 2.0 * share},
      fmt::format(
          "The write-up multiplies activations and weights of Qwen3-4B, we multiply numbers "
          "uniform in [-1, 1): {} of {} results differ.",
          ours.in_fp32, ours.outputs),
      Unit::percent));
}

void add_ratio(std::vector<Row>& rows, int64_t k, const Differences& ours, int to_nearest,
               int in_fp32) {
  rows.push_back(within(
      fmt::format(
          "results that would differ if the A100's blocks rounded to nearest, as a multiple "
          "of those of fp32 chains, K = {}",
          k),
      kWriteUp, fmt::format("{:.2f} ({} / {})", ratio(to_nearest, in_fp32), to_nearest, in_fp32),
      ratio(ours.to_nearest, ours.in_fp32), {0.7, 1.3},
      fmt::format("Ours: {} / {}. Without the step that cuts bits off, the model is no better than "
                  "fp32 chains. Both operands are uniform, but the write-up's draws are unknown.",
                  ours.to_nearest, ours.in_fp32)));
}

void add_differences(std::vector<Row>& rows) {
  const Differences narrow = differences(4096), middle = differences(9728),
                    wide = differences(11008);
  add_share(rows, 4096, narrow, 132);
  add_share(rows, 9728, middle, 271);
  add_ratio(rows, 4096, narrow, 27, 28);
  add_ratio(rows, 11008, wide, 287, 286);
}

/// Errors of fp8 dot products of length 4096, as shares.
struct Fp8Errors {
  double largest = 0.0;  ///< relative to each result
  double overall = 0.0;  ///< largest error over the largest result
};

Fp8Errors fp8_errors(const std::vector<float>& a, const std::vector<float>& b,
                     const std::string& accumulation) {
  constexpr int64_t kSide = 64, kLength = 4096;
  std::vector<float> c(kSide * kSide);
  const SumSpec spec{
      .accumulation = parse_accumulation(accumulation).value(), .write = kFp32, .read = kE4m3fn};
  gemm(kSide, kSide, kLength, {a.data(), kLength, 1}, {b.data(), 1, kLength}, nullptr, c.data(),
       spec);
  Fp8Errors result;
  double most = 0.0, size = 0.0;
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      double exact = 0.0;  // products of e4m3 numbers have 8 bits
      for (int64_t k = 0; k < kLength; ++k) {
        exact += static_cast<double>(a[static_cast<size_t>(i * kLength + k)]) *
                 static_cast<double>(b[static_cast<size_t>(j * kLength + k)]);
      }
      const double ours = static_cast<double>(c[static_cast<size_t>(i * kSide + j)]);
      const double error = std::fabs(ours - exact);
      result.largest = std::max(result.largest, error / std::fabs(exact));
      most = std::max(most, error);
      size = std::max(size, std::fabs(exact));
    }
  }
  result.overall = most / size;
  return result;
}

void add_fp8(std::vector<Row>& rows) {
  constexpr int64_t kCount = 64 * 4096;
  struct Operands {
    std::string name;
    std::vector<float> a, b;
    bool positive;
  };
  zoo::Draw draw(2412);
  std::vector<Operands> all;
  all.push_back(
      {"uniform in [0, 1)", draw.uniforms(kCount, 0, 1), draw.uniforms(kCount, 0, 1), true});
  all.push_back({"|N(0, 1)|", draw.normals(kCount), draw.normals(kCount), true});
  for (std::vector<float>* each : {&all[1].a, &all[1].b}) {
    for (float& x : *each) x = std::fabs(x);
  }
  all.push_back({"N(0, 1)", draw.normals(kCount), draw.normals(kCount), false});
  double smallest = 1.0, largest = 0.0, least_gain = INFINITY;
  std::string errors, gains;
  for (Operands& each : all) {
    for (std::vector<float>* values : {&each.a, &each.b}) {
      for (float& x : *values) x = round_to_format(x, kE4m3fn).value;
    }
    const auto measured = [&](const std::string& accumulation) {
      const Fp8Errors found = fp8_errors(each.a, each.b, accumulation);
      return each.positive ? found.largest : found.overall;
    };
    const double plain = measured("tensor-core:h100-wgmma");
    const double gain = plain / measured("tensor-core:h100-wgmma,promote=128");
    smallest = std::min(smallest, plain);
    largest = std::max(largest, plain);
    least_gain = std::min(least_gain, gain);
    errors += (errors.empty() ? "" : ", ") + percent(plain);
    gains += (gains.empty() ? "" : ", ") + fmt::format("{:.0f}", gain);
  }
  rows.push_back(
      {.what = "largest error of fp8 products on Hopper, K = 4096: uniform, |N(0, 1)|, N(0, 1)",
       .source = paper("2412.19437", "section 3.3.2"),
       .published = "nearly 2%",
       .ours = errors,
       .accepted = "2% is between them",
       .pass = smallest < 0.02 && largest > 0.02,
       .note =
           "The paper does not say how its random matrices are distributed, and that decides the "
           "result. In sums of positive numbers all losses have the same sign; in other sums "
           "they cancel. The first two errors are relative to each result. Results of N(0, 1) "
           "can be close to 0, so the third is the largest error over the largest result."});
  rows.push_back({.what = "how many times smaller the same errors are with a promotion to fp32 "
                          "every 128 terms",
                  .source = paper("2412.19437", "section 3.3.2"),
                  .published = "\"significantly\"",
                  .ours = gains,
                  .accepted = "at least 10",
                  .pass = least_gain >= 10.0,
                  .note = "The paper gives no number. We ask for an order of magnitude."});
  const auto kept_bits = [](const std::string& arch) {
    int bits = 0;
    const TensorCoreProfile core = profile(arch, kE4m3fn);
    const std::vector<float> zero(32, 0.0f);
    for (int n = 1; n <= 23; ++n) {
      const float c = 1.0f + std::ldexp(1.0f, -n);
      if (tensor_core_dot(core, zero, zero, c) != 1.0f) bits = n;
    }
    return bits;
  };
  rows.push_back(exact("fraction bits of fp8 accumulators on Hopper (wgmma) and Ada",
                       paper("2411.10958", "FP22 accumulator"), "13, 13",
                       fmt::format("{}, {}", kept_bits("h100-wgmma"), kept_bits("ada")),
                       "Not an independent check: HalfScope's models were built from such "
                       "publications. What is independent: 240,000 published results of real GPUs, "
                       "which `gpu_vectors_test` compares bit for bit where the test data is."));
}

}  // namespace

Table tensor_cores() {
  Table table{
      .letter = 'C',
      .title = "Tensor cores",
      .introduction =
          "Products in the order and with the bits of a GPU's tensor cores, computed without "
          "a GPU. The write-up is \"GPU Floating-Point Determinism: Closing the Tolerance "
          "Band\", an unsigned text in a public repository that compares an emulator with "
          "CUTLASS on an A100."};
  add_vectors(table.rows);
  add_differences(table.rows);
  add_fp8(table.rows);
  return table;
}

}  // namespace halfscope::validation
