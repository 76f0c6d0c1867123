// SPDX-License-Identifier: MIT
// Diagnostics of accumulators against a count that follows the oracle's chains step by step, and
// of tensor cores against the definition of a block in plain doubles.
#include <cmath>
#include <limits>

#include "core/numeric/sums/sum_diagnostics.h"
#include "core/numeric/sums/tensor_core.h"
#include "tests/gemm/oracles.h"

namespace halfscope::testing {
namespace {

using Floats = std::vector<float>;

/// One chain over every step-th term in [begin, end).
void follow(const SumSpec& spec, const Floats& a, const Floats& b, int64_t begin, int64_t end,
            int64_t step, SumDiagnostics& seen) {
  OracleChain chain(spec);
  for (int64_t k = begin; k < end && std::isfinite(chain.value()); k += step) {
    const double before = chain.value();
    chain.add(a[k], b[k]);
    const double after = chain.value();
    double product = static_cast<double>(a[k]) * b[k];
    if (spec.accumulation.kind == Accumulation::format_mul_add) {
      product = round_to_format(product, spec.write).value;  // may already saturate
    }
    if (a[k] != 0 && b[k] != 0) {
      ++seen.products;
      if (after == before) ++seen.swamped;
    }
    if (std::isfinite(after)) seen.largest = std::max(seen.largest, std::fabs(after));
    // Beyond the largest by half a last place or more, it is an overflow also if it saturates.
    const double largest = spec.write.max_finite();
    const double half = std::ldexp(1.0, std::ilogb(largest) - spec.write.mantissa_bits - 1);
    const bool saturated = spec.accumulation.sums_in_format() && spec.write.saturates() &&
                           std::fabs(product + before) >= largest + half;
    if ((saturated || !std::isfinite(after)) && std::isfinite(a[k]) && std::isfinite(b[k])) {
      seen.overflowed = 1;
      if (seen.first_overflow < 0 || k < seen.first_overflow) seen.first_overflow = k;
    }
  }
}

SumDiagnostics expected_of(const SumSpec& spec, const Floats& a, const Floats& b) {
  SumDiagnostics seen{.sums = 1};
  const int64_t n = static_cast<int64_t>(a.size());
  const Accumulation& how = spec.accumulation;
  const int64_t part = std::max<int64_t>(1, (n + how.split_k - 1) / how.split_k);
  for (int64_t begin = 0; begin < n; begin += part) {
    const int64_t end = std::min(begin + part, n), length = how.promote > 0 ? how.promote : part;
    for (int64_t at = begin; at < end; at += length) {
      const int64_t last = std::min(at + length, end);
      if (how.kind != Accumulation::interleaved16) {
        follow(spec, a, b, at, last, 1, seen);
        continue;
      }
      SumSpec one = spec;
      one.accumulation.kind = Accumulation::fp32;
      for (int64_t j = 0; j < 16; ++j) follow(one, a, b, at + j, last, 16, seen);
    }
  }
  return seen;
}

std::string text(const SumDiagnostics& d) {
  return std::to_string(d.sums) + " sums, " + std::to_string(d.products) + " products, " +
         std::to_string(d.swamped) + " swamped, largest " + std::to_string(d.largest) + ", " +
         std::to_string(d.overflowed) + " overflowed, first at " + std::to_string(d.first_overflow);
}

struct Matrices {
  int64_t m, n, k;
  Floats a, b;

  Floats row(int64_t i) const { return {a.begin() + i * k, a.begin() + (i + 1) * k}; }
  Floats column(int64_t j) const {
    Floats column;
    for (int64_t l = 0; l < k; ++l) column.push_back(b[static_cast<size_t>(l * n + j)]);
    return column;
  }
};

void check(const Matrices& x, const SumSpec& spec, const std::string& what) {
  SumDiagnostics expected;
  for (int64_t i = 0; i < x.m; ++i) {
    for (int64_t j = 0; j < x.n; ++j) {
      const SumDiagnostics one = expected_of(spec, x.row(i), x.column(j));
      const std::optional<SumDiagnostics> reference = diagnose_sum(spec, x.row(i), x.column(j));
      ASSERT_TRUE(reference);
      ASSERT_EQ(one, *reference) << what << spec_name(spec) << "\n"
                                 << text(one) << "\n"
                                 << text(*reference);
      expected.merge(one);
    }
  }
  const Floats bias(static_cast<size_t>(x.n), 1000.0f);
  everywhere([&](const std::string& where) {
    Floats c(static_cast<size_t>(x.m * x.n)), plain(c);
    const MatrixView a{x.a.data(), x.k, 1}, b{x.b.data(), x.n, 1};
    Diagnostics seen;
    gemm(x.m, x.n, x.k, a, b, bias.data(), c.data(), spec, &seen);
    ASSERT_TRUE(seen);
    ASSERT_EQ(*seen, expected) << what << spec_name(spec) << ", " << where << "\n"
                               << text(*seen) << "\n"
                               << text(expected);
    gemm(x.m, x.n, x.k, a, b, bias.data(), plain.data(), spec);
    expect_same(plain, c, "same bits with diagnostics");
  });
}

Matrices matrices(int64_t m, int64_t n, int64_t k, uint32_t seed, const FloatFormat& format,
                  bool wide, float scale = 1.0f) {
  Values values(seed, wide, format);
  Matrices x{m, n, k, values(m * k), values(k * n)};
  for (float& value : x.a) value *= scale;
  for (size_t i = 0; i < x.b.size(); i += 7) x.b[i] = 0.0f;
  return x;
}

TEST(Diagnostics, LongChainsOfWhichAnyMayBeTheLargest) {
  for (const char* kind : {"format", "format-mul-add", "fma32-then-round"}) {
    for (const char* format : {"fp16", "bf16"}) {
      const SumSpec spec{*parse_accumulation(kind), *parse_format(format), kFp16};
      Matrices x = matrices(23, 37, 1100, 5, spec.write, false);
      check(x, spec, "both signs, ");
      // Later tiles have larger sums, which come and go between two looks of a tile.
      for (size_t i = 0; i < x.a.size(); ++i) {
        const float size = 1.0f + static_cast<float>(i / 1100 / 3) / 16;
        x.a[i] = i % 5 == 2 ? -size : i % 5 == 1 ? size : 0.0f;
      }
      for (float& b : x.b) b = b > 0 ? 1.0f : 0.5f;
      check(x, spec, "coming and going, ");
    }
  }
}

TEST(Diagnostics, ChainsAgainstTheOracle) {
  uint32_t seed = 0;
  for (const char* kind : {"fp32", "fp64", "format", "format-mul-add", "fma32-then-round",
                           "interleaved16", "format:promote=9", "fp32:split-k=3",
                           "format:promote=5,split-k=2", "interleaved16:promote=40"}) {
    for (const char* format : {"fp16", "bf16", "e4m3fn", "e5m2:sat", "fp32"}) {
      for (const bool wide : {false, true}) {
        const SumSpec spec{*parse_accumulation(kind), *parse_format(format), kFp16};
        check(matrices(9, 35, 70, ++seed, kFp16, wide), spec, "");
        check(matrices(3, 2, 600, ++seed, kFp16, wide), spec, "long, ");
      }
    }
  }
}

TEST(Diagnostics, Overflow) {
  uint32_t seed = 50;
  for (const char* kind : {"format", "format-mul-add", "fma32-then-round", "format:promote=16"}) {
    for (const char* format : {"fp16", "e4m3fn", "e5m2:sat", "e5m2"}) {
      const SumSpec spec{*parse_accumulation(kind), *parse_format(format), kFp32};
      const float limit = static_cast<float>(spec.write.max_finite());
      check(matrices(6, 35, 60, ++seed, kFp32, false, limit / 4), spec, "overflow, ");
    }
  }
  Matrices special = matrices(5, 20, 30, 3, kFp16, false);
  special.a[7] = std::numeric_limits<float>::infinity();
  special.b[33] = std::numeric_limits<float>::quiet_NaN();
  for (const char* kind : {"fp32", "fp64", "interleaved16", "format"}) {
    check(special, {*parse_accumulation(kind), kFp16, kFp16}, "infinite operands, ");
  }
}

TEST(Diagnostics, KnownCounts) {
  // 3000 ones: fp16 counts to 2048, the other 952 are lost. fp32 loses none.
  const Floats ones(3000, 1.0f);
  const SumSpec half{Accumulation::format, kFp16, kFp16};
  const std::optional<SumDiagnostics> seen = diagnose_sum(half, ones, ones);
  ASSERT_TRUE(seen);
  EXPECT_EQ(text(*seen), text({1, 3000, 952, 2048.0, 0, -1}));
  // Each of 16 chains of fp32 loses the 187 or 186 ones after its first term, 2^25.
  Floats large = ones;
  std::fill_n(large.begin(), 16, 0x1p25f);
  const SumSpec dealt{Accumulation::interleaved16, kFp32, kFp32};
  EXPECT_EQ(text(diagnose_sum(dealt, large, ones).value()), text({1, 3000, 2984, 0x1p25, 0, -1}));
  const SumSpec promoted{*parse_accumulation("format:promote=1000"), kFp16, kFp16};
  EXPECT_EQ(text(diagnose_sum(promoted, ones, ones).value()), text({1, 3000, 0, 1000.0, 0, -1}));
  const SumSpec tiny{Accumulation::format, FloatFormat{4, 3, 7}, kFp16};
  const Floats thirty(40, 30.0f);
  EXPECT_EQ(diagnose_sum(tiny, thirty, Floats(40, 1.0f))->first_overflow, 8)
      << "nine times 30 exceed 240";
  for (const char* kind : {"pairwise", "kahan", "format:rounding=stochastic"}) {
    const SumSpec spec{*parse_accumulation(kind), kFp16, kFp16};
    EXPECT_FALSE(diagnose_sum(spec, ones, ones)) << kind;
    Floats c(1);
    Diagnostics none = SumDiagnostics{};
    gemm(1, 1, 3000, {ones.data(), 1, 1}, {ones.data(), 1, 1}, nullptr, c.data(), spec, &none);
    EXPECT_FALSE(none) << kind;
  }
}

TEST(Diagnostics, MergeIsAssociative) {
  const SumDiagnostics x{1, 2, 1, 3.0, 0, -1}, y{2, 5, 0, 7.0, 1, 9}, z{1, 1, 1, 2.0, 1, 4};
  SumDiagnostics left = x, right = y, all = x;
  left.merge(y);
  left.merge(z);
  right.merge(z);
  all.merge(right);
  EXPECT_EQ(left, all);
  EXPECT_EQ(text(all), text({4, 8, 2, 7.0, 2, 4}));
}

/// Convolutions report the diagnostics of their matrix products.
TEST(Diagnostics, Convolutions) {
  const ConvShape s{.batch = 3,
                    .in = 2,
                    .height = 7,
                    .width = 6,
                    .out = 5,
                    .kernel_h = 3,
                    .kernel_w = 3,
                    .pad_top = 1,
                    .pad_left = 1,
                    .pad_bottom = 1,
                    .pad_right = 1};
  const int64_t pixels = 42, taps = 9;
  Values values(5, true, kFp16);
  const Floats x = values(s.batch * s.in * pixels), w = values(s.out * s.in * taps);
  const Floats dy = values(s.batch * s.out * pixels);
  for (const char* kind : {"format", "fp32", "format:promote=8"}) {
    const SumSpec spec{*parse_accumulation(kind), kFp16, kFp16};
    SumDiagnostics y, dw;
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t o = 0; o < s.out; ++o)
        for (int64_t p = 0; p < pixels; ++p) {
          Floats left, right;
          for (int64_t c = 0; c < s.in; ++c)
            for (int64_t t = 0; t < taps; ++t) {
              const int64_t at = input_index(s, n, c, p / s.width, p % s.width, t / 3, t % 3);
              left.push_back(w[(o * s.in + c) * taps + t]);
              right.push_back(at < 0 ? 0.0f : x[at]);
            }
          y.merge(expected_of(spec, left, right));
        }
    for (int64_t o = 0; o < s.out; ++o)
      for (int64_t c = 0; c < s.in; ++c)
        for (int64_t t = 0; t < taps; ++t) {
          Floats left, right;
          for (int64_t n = 0; n < s.batch; ++n)
            for (int64_t p = 0; p < pixels; ++p) {
              const int64_t at = input_index(s, n, c, p / s.width, p % s.width, t / 3, t % 3);
              left.push_back(dy[(n * s.out + o) * pixels + p]);
              right.push_back(at < 0 ? 0.0f : x[at]);
            }
          dw.merge(expected_of(spec, left, right));
        }
    everywhere([&](const std::string& where) {
      Floats out(dy.size()), plain(dy.size());
      Diagnostics seen;
      conv_forward(s, x.data(), w.data(), nullptr, out.data(), spec, &seen);
      EXPECT_EQ(text(seen.value()), text(y)) << where;
      conv_forward(s, x.data(), w.data(), nullptr, plain.data(), spec);
      expect_same(plain, out, where);
      out.resize(w.size());
      conv_grad_weight(s, x.data(), dy.data(), out.data(), spec, &seen);
      EXPECT_EQ(text(seen.value()), text(dw)) << where;
      // With a kernel of ones and all pixels padded alike, dx sees each dy at most once per tap.
      out.resize(x.size());
      conv_grad_input(s, dy.data(), w.data(), out.data(), spec, &seen);
      EXPECT_EQ(seen->sums, std::ssize(x)) << where;
      EXPECT_GT(seen->products, 0) << where;
    });
  }
}

/// Evaluates a block by definition: raw exponents, their maximum, and everything below its grid.
void follow_blocks(const TensorCoreProfile& profile, const Floats& a, const Floats& b,
                   SumDiagnostics& seen) {
  const auto raw = [&](float x) {
    return std::max(std::ilogb(x), profile.a_format.min_exponent());
  };
  const int64_t n = static_cast<int64_t>(a.size()), step = profile.dot.products;
  double c = 0;
  for (int64_t begin = 0; begin < n && std::isfinite(c); begin += step) {
    const int64_t end = std::min(begin + step, n);
    bool zero = c == 0 || end - begin < step;
    int top = -100000;
    if (c != 0) {
      const bool half = profile.dot.output == BlockOutput::rne_fp16;
      top = std::max(std::ilogb(c), half ? -14 : -126);
    }
    for (int64_t k = begin; k < end; ++k) {
      if (a[k] == 0 || b[k] == 0) zero = true;
      if (a[k] != 0 && b[k] != 0) top = std::max(top, raw(a[k]) + raw(b[k]));
    }
    if (zero) top = std::max(top, profile.dot.zero_exponent);
    for (int64_t k = begin; k < end; ++k) {
      const double product = std::fabs(static_cast<double>(a[k]) * b[k]);
      if (product == 0) continue;
      ++seen.products;
      if (product < std::ldexp(1.0, top - profile.dot.fraction_bits)) ++seen.swamped;
    }
    const size_t so_far = static_cast<size_t>(end);
    c = tensor_core_dot(profile, std::span(a).first(so_far), std::span(b).first(so_far), 0.0f);
    if (std::isfinite(c)) {
      seen.largest = std::max(seen.largest, std::fabs(c));
    } else if (seen.first_overflow < 0) {
      seen.overflowed = 1;
      seen.first_overflow = begin;
    }
  }
}

TEST(Diagnostics, TensorCores) {
  uint32_t seed = 0;
  for (const char* kind : {"v100", "a100", "h100", "h100,acc=fp16", "a100,acc=fp16"}) {
    for (const FloatFormat& read : {kFp16, kBf16}) {
      const SumSpec spec{*parse_accumulation(std::string("tensor-core:") + kind), kFp16, read};
      const std::optional<TensorCoreProfile> profile = tensor_core_profile(
          spec.accumulation.arch, read, spec.accumulation.half_accumulator ? kFp16 : kFp32);
      if (!profile) continue;
      for (const float scale : {1.0f, 3000.0f}) {
        const Matrices x = matrices(7, 70, 65, ++seed, read, true, scale);
        SumDiagnostics expected;
        bool fits = true;
        for (const float value : x.a) fits = fits && round_to_format(value, read).value == value;
        if (!fits) continue;
        for (int64_t i = 0; i < x.m; ++i) {
          for (int64_t j = 0; j < x.n; ++j) {
            SumDiagnostics one{.sums = 1};
            follow_blocks(*profile, x.row(i), x.column(j), one);
            expected.merge(one);
          }
        }
        EXPECT_GT(expected.swamped, 0) << kind;
        everywhere([&](const std::string& where) {
          Floats c(static_cast<size_t>(x.m * x.n)), plain(c);
          Diagnostics seen;
          gemm(x.m, x.n, x.k, {x.a.data(), x.k, 1}, {x.b.data(), x.n, 1}, nullptr, c.data(), spec,
               &seen);
          ASSERT_EQ(text(seen.value()), text(expected)) << kind << ", " << where;
          gemm(x.m, x.n, x.k, {x.a.data(), x.k, 1}, {x.b.data(), x.n, 1}, nullptr, plain.data(),
               spec);
          expect_same(plain, c, where);
        });
      }
    }
  }
}

/// Parts of sums, overflow, infinite operands and values that no operand can have go to the
/// reference element by element, which TensorCores compares with the definition.
TEST(Diagnostics, TensorCoresInPartsAndBeyondTheTiles) {
  uint32_t seed = 90;
  for (const char* how : {"h100,promote=32", "h100,split-k=3", "v100,promote=8,split-k=2",
                          "h100,acc=fp16,promote=48", "a100", "h100,acc=fp16"}) {
    for (const bool special : {false, true}) {
      const SumSpec spec{*parse_accumulation(std::string("tensor-core:") + how), kFp16, kFp16};
      Matrices x = matrices(9, 70, 100, ++seed, kFp16, false, 256.0f);
      if (special) {
        x.a[5] = std::numeric_limits<float>::infinity();
        x.a[x.k + 3] = 65504.0f;
        x.b[70 * 4 + 9] = 0x1p-40f;
        x.b[70 * 3 + 11] = 65504.0f;
      }
      SumDiagnostics expected;
      for (int64_t i = 0; i < x.m; ++i) {
        for (int64_t j = 0; j < x.n; ++j) {
          expected.merge(diagnose_sum(spec, x.row(i), x.column(j)).value());
        }
      }
      everywhere([&](const std::string& where) {
        Floats c(static_cast<size_t>(x.m * x.n));
        Diagnostics seen;
        gemm(x.m, x.n, x.k, {x.a.data(), x.k, 1}, {x.b.data(), x.n, 1}, nullptr, c.data(), spec,
             &seen);
        ASSERT_EQ(text(seen.value()), text(expected)) << how << ", " << where;
      });
    }
  }
}

}  // namespace
}  // namespace halfscope::testing
