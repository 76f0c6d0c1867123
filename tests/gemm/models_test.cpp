// SPDX-License-Identifier: MIT
// Differences between the named accumulations, on sums with results known by hand; chains that are
// promoted or split; tensor cores in every product, compared with fused_dot block by block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/tensor_core.h"
#include "tests/gemm/oracles.h"

namespace halfscope::testing {
namespace {

using Floats = std::vector<float>;

SumSpec spec_of(const std::string& accumulation, const FloatFormat& write = kFp32,
                const FloatFormat& read = kFp16) {
  return {.accumulation = parse_accumulation(accumulation).value(), .write = write, .read = read};
}

/// Computes the sum in every possible way: reference, product, and sum of values if b is all ones.
float sum_of(const Floats& a, const Floats& b, const SumSpec& spec) {
  const float expected = sum_of_products(spec, a, b);
  const int64_t k = static_cast<int64_t>(a.size());
  everywhere([&](const std::string& where) {
    float c = 777.0f;
    gemm(1, 1, k, {a.data(), k, 1}, {b.data(), 1, 1}, nullptr, &c, spec);
    EXPECT_EQ(c, expected) << where << ", " << spec_name(spec);
  });
  return expected;
}

float sum_of(const Floats& a, const SumSpec& spec) {
  return sum_of(a, Floats(a.size(), 1.0f), spec);
}

// Adding values one by one gives the sum of them all.
TEST(Models, SumsGoOnOneByOne) {
  for (const char* accumulation :
       {"fp32", "fp64", "format", "format-mul-add", "fma32-then-round"}) {
    for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn}) {
      const SumSpec spec = spec_of(accumulation, format, format);
      ASSERT_TRUE(adds_one_by_one(spec.accumulation)) << accumulation;
      // Small ones are lost, large ones overflow, and there are a subnormal, an infinity and a NaN.
      const Floats x{1.0f,  1e-4f,    -3.0f, 200.0f, 0x1p-130f, 0.1f, 440.0f,
                     60e3f, 60.01e3f, -1e5f, 3e38f,  3e38f,     -7.0f};
      double sum = 0.0;
      Floats so_far;
      for (const float value : x) {
        sum = add_value(spec, sum, value);
        so_far.push_back(value);
        const double expected = sum_of_values(spec, so_far);
        EXPECT_TRUE(sum == expected || (std::isnan(sum) && std::isnan(expected)))
            << spec_name(spec) << ": " << sum << ", not " << expected;
      }
    }
  }
  for (const char* accumulation : {"pairwise", "kahan", "interleaved16", "fp32:promote=4",
                                   "format:split-k=2", "format:rounding=stochastic"}) {
    EXPECT_FALSE(adds_one_by_one(parse_accumulation(accumulation).value())) << accumulation;
  }
}

// Adding 1 to 2048 in fp16 gives 2048: the sum of 4096 ones shows where a chain has stalled.
TEST(Models, ManyOnes) {
  const Floats ones(4096, 1.0f);
  EXPECT_EQ(sum_of(ones, spec_of("fp32")), 4096.0f);
  EXPECT_EQ(sum_of(ones, spec_of("format", kFp16)), 2048.0f);
  EXPECT_EQ(sum_of(ones, spec_of("format-mul-add", kFp16)), 2048.0f);
  EXPECT_EQ(sum_of(ones, spec_of("fma32-then-round", kBf16)), 256.0f);
  EXPECT_EQ(sum_of(ones, spec_of("format:promote=1024", kFp16)), 4096.0f);
  EXPECT_EQ(sum_of(ones, spec_of("format:split-k=2", kFp16)), 4096.0f);
  EXPECT_EQ(sum_of(ones, spec_of("format:split-k=3", kBf16)), 768.0f);
  EXPECT_EQ(sum_of(ones, spec_of("tensor-core:h100")), 4096.0f);
  EXPECT_EQ(sum_of(ones, spec_of("tensor-core:h100,acc=fp16", kFp16)), 4096.0f)
      << "blocks of 16 are exact below 32768";
}

// 2^24 + 1 is not an fp32 number.
TEST(Models, SmallTermsBesideALargeOne) {
  Floats terms(9, 1.0f);
  terms[0] = 0x1p24f;
  EXPECT_EQ(sum_of(terms, spec_of("fp32", kFp32, kFp32)), 0x1p24f);
  EXPECT_EQ(sum_of(terms, spec_of("fp64", kFp32, kFp32)), 0x1p24f + 8.0f);
  EXPECT_EQ(sum_of(terms, spec_of("kahan", kFp32, kFp32)), 0x1p24f + 8.0f);
  // ((2^24 + 1) + (1 + 1)) + ((1 + 1) + (1 + 1)) = 2^24 + 6; the ninth makes a tie, to even.
  EXPECT_EQ(sum_of(terms, spec_of("pairwise", kFp32, kFp32)), 0x1p24f + 8.0f);
  terms.pop_back();
  EXPECT_EQ(sum_of(terms, spec_of("pairwise", kFp32, kFp32)), 0x1p24f + 6.0f);
  terms.push_back(1.0f);
  // 2^24 + 1 + 1 loses both ones; the other 15 partial sums are 2 each.
  Floats long_terms(33, 1.0f);
  long_terms[0] = 0x1p24f;
  EXPECT_EQ(sum_of(long_terms, spec_of("interleaved16", kFp32, kFp32)), 0x1p24f + 30.0f);
  // Parts of 3 terms and sums of parts are as under fp32.
  EXPECT_EQ(sum_of(long_terms, spec_of("interleaved16:promote=3", kFp32, kFp32)),
            sum_of(long_terms, spec_of("pairwise:promote=3", kFp32, kFp32)));
  // (2^24 + 1 + 1) is lost, then threes that were summed among themselves: 3, 3 -> 2^24 + 4 + 4
  EXPECT_EQ(sum_of(terms, spec_of("fp32:promote=3", kFp32, kFp32)), 0x1p24f + 8.0f);
  EXPECT_EQ(sum_of(terms, spec_of("fp32:split-k=3", kFp32, kFp32)), 0x1p24f + 8.0f);
}

// The product (1 + 2^-9)^2 = 1 + 2^-8 + 2^-18 loses its last bit if it is rounded before the sum.
TEST(Models, RoundingTheProductOrNot) {
  const Floats a{1.0f, 1 + 0x1p-9f}, b{-1.0f, 1 + 0x1p-9f};
  EXPECT_EQ(sum_of(a, b, spec_of("format", kFp16)), 0x1p-8f + 0x1p-18f);
  EXPECT_EQ(sum_of(a, b, spec_of("format-mul-add", kFp16)), 0x1p-8f);
  EXPECT_EQ(sum_of(a, b, spec_of("fma32-then-round", kFp16)), 0x1p-8f + 0x1p-18f);
}

// 1 + 2^-11 + 2^-35 is just above an fp16 tie, which fp32 cannot distinguish.
TEST(Models, TheShortcutRoundsTwice) {
  const Floats a{1.0f, 0x1p-11f}, b{1.0f, 1 + 0x1p-10f};
  const Floats tiny{1.0f, 0x1.004p-11f}, near{1.0f, 0x1.ff8p-1f};
  // 0x1.004p-11 * 0x1.ff8p-1 = 2^-11 * (1 + 2^-10) * (1 - 2^-10) = 2^-11 - 2^-31: below the tie
  EXPECT_EQ(sum_of(tiny, near, spec_of("format", kFp16)), 1.0f);
  EXPECT_EQ(sum_of(tiny, near, spec_of("fma32-then-round", kFp16)), 1.0f) << "to even, by luck";
  const Floats odd{1 + 0x1p-10f, 0x1.004p-11f};
  EXPECT_EQ(sum_of(odd, near, spec_of("format", kFp16)), 1 + 0x1p-10f);
  EXPECT_EQ(sum_of(odd, near, spec_of("fma32-then-round", kFp16)), 1 + 0x1p-9f);
  EXPECT_EQ(sum_of(a, b, spec_of("format", kFp16)), 1 + 0x1p-10f);
}

// NUMERICS-style probes: an aligned sum that is cut off below 2^-F of its largest term.
TEST(Models, TensorCoresCutOffBelowTheirLargestTerm) {
  Floats terms(16, 0.0f);
  terms[0] = 1.0f;
  for (size_t k = 1; k < 15; ++k) terms[k] = 0x1p-24f;
  EXPECT_EQ(sum_of(terms, spec_of("tensor-core:v100")), 1.0f);
  EXPECT_EQ(sum_of(terms, spec_of("tensor-core:a100")), 0x1.00000cp0f);
  EXPECT_EQ(sum_of(terms, spec_of("tensor-core:h100")), 0x1.00000ep0f);
  EXPECT_EQ(sum_of(terms, spec_of("tensor-core:h100", kFp32, kFp32)), 1.0f)
      << "operands in fp32 are not for tensor cores";
  EXPECT_EQ(sum_of_values(spec_of("tensor-core:h100"), terms), 1.0) << "nor are plain sums";
}

TEST(Models, TensorCoresInEveryProduct) {
  const ConvShape s{.batch = 2,
                    .in = 3,
                    .height = 5,
                    .width = 6,
                    .out = 4,
                    .kernel_h = 3,
                    .kernel_w = 2,
                    .stride_h = 2,
                    .pad_top = 1,
                    .pad_right = 1};
  Values values(11, false, kFp16);
  const Floats x = values(2 * 3 * 30), w = values(4 * 3 * 6);
  const int64_t oh = s.out_height(), ow = s.out_width();
  const Floats dy = values(2 * 4 * oh * ow), bias = values(4);
  for (const char* name : {"tensor-core:v100", "tensor-core:a100,promote=8",
                           "tensor-core:h100,split-k=2", "tensor-core:h100,acc=fp16"}) {
    const SumSpec spec = spec_of(name);
    const auto dot = [&](const Floats& a, const Floats& b) {
      const Accumulation& how = spec.accumulation;
      const auto profile =
          tensor_core_profile(how.arch, kFp16, how.half_accumulator ? kFp16 : kFp32);
      return tensor_core_dot(*profile, a, b, 0.0f,
                             {.slices = how.split_k, .promote_every = how.promote});
    };
    Floats y, dx, dw;
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t o = 0; o < s.out; ++o)
        for (int64_t p = 0; p < oh * ow; ++p) {
          Floats a, b;
          for (int64_t t = 0; t < 18; ++t) {
            const int64_t at = input_index(s, n, t / 6, p / ow, p % ow, t % 6 / 2, t % 2);
            a.push_back(w[static_cast<size_t>(o * 18 + t)]);
            b.push_back(at < 0 ? 0.0f : x[static_cast<size_t>(at)]);
          }
          y.push_back(dot(a, b) + bias[static_cast<size_t>(o)]);
        }
    for (int64_t o = 0; o < s.out; ++o)
      for (int64_t t = 0; t < 18; ++t) {
        Floats a, b;
        for (int64_t n = 0; n < s.batch; ++n)
          for (int64_t p = 0; p < oh * ow; ++p) {
            const int64_t at = input_index(s, n, t / 6, p / ow, p % ow, t % 6 / 2, t % 2);
            a.push_back(dy[static_cast<size_t>((n * s.out + o) * oh * ow + p)]);
            b.push_back(at < 0 ? 0.0f : x[static_cast<size_t>(at)]);
          }
        dw.push_back(dot(a, b));
      }
    for (int64_t at = 0; at < static_cast<int64_t>(x.size()); ++at) {
      const int64_t n = at / 90, c = at / 30 % 3;
      Floats a, b;
      for (int64_t t = 0; t < 6; ++t)
        for (int64_t o = 0; o < s.out; ++o) {
          float gradient = 0.0f;
          for (int64_t p = 0; p < oh * ow; ++p) {
            if (input_index(s, n, c, p / ow, p % ow, t / 2, t % 2) == at) {
              gradient = dy[static_cast<size_t>((n * s.out + o) * oh * ow + p)];
            }
          }
          a.push_back(w[static_cast<size_t>((o * 3 + c) * 6 + t)]);
          b.push_back(gradient);
        }
      dx.push_back(dot(a, b));
    }
    everywhere([&](const std::string& where) {
      Floats out(y.size());
      conv_forward(s, x.data(), w.data(), bias.data(), out.data(), spec);
      expect_same(y, out, std::string(name) + " forward, " + where);
      out.resize(dx.size());
      conv_grad_input(s, dy.data(), w.data(), out.data(), spec);
      expect_same(dx, out, std::string(name) + " grad input, " + where);
      out.resize(dw.size());
      conv_grad_weight(s, x.data(), dy.data(), out.data(), spec);
      expect_same(dw, out, std::string(name) + " grad weight, " + where);
    });
  }
}

TEST(Models, NamesGoThereAndBack) {
  for (const char* name :
       {"fp32", "fp64", "pairwise", "interleaved16", "kahan", "format", "format-mul-add",
        "fma32-then-round", "tensor-core:h100", "tensor-core:h100,acc=fp16", "fp32:promote=128",
        "format:split-k=4", "tensor-core:a100,acc=fp16,promote=128,split-k=2",
        "kahan:promote=16,split-k=3", "interleaved16:promote=48"}) {
    const auto accumulation = parse_accumulation(name);
    ASSERT_TRUE(accumulation) << name;
    EXPECT_EQ(accumulation_name(*accumulation), name);
  }
  EXPECT_EQ(accumulation_name(parse_accumulation("tensor-core:promote=8,h200").value()),
            "tensor-core:h100,promote=8");
  for (const char* name :
       {"", "fp16", "fp32:", "fp32:promote", "fp32:promote=0", "fp32:promote=-1", "fp32:promote=1x",
        "fp32:split-k=1", "fp32:h100", "fp32:acc=fp16", "fp32:promote=2,promote=3", "tensor-core",
        "tensor-core:", "tensor-core:k80", "tensor-core:h100,h100", "tensor-core:h100,acc=fp32",
        "tensor-core:h100,", "fp32:promote=99999999999999999999", "format:split-k=2,split-k=2"}) {
    EXPECT_FALSE(parse_accumulation(name)) << name;
  }
  for (const std::string& name : accumulation_names())
    EXPECT_TRUE(parse_accumulation(name)) << name;
}

}  // namespace
}  // namespace halfscope::testing
