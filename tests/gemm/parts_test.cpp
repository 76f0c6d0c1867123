// SPDX-License-Identifier: MIT
// Chains on the register tiles that are promoted or split, and chains in fp16 and bf16 of operands
// that are themselves short, against the reference, bit for bit.
#include <limits>

#include "core/numeric/sums/accumulate.h"
#include "tests/gemm/oracles.h"

namespace halfscope::testing {
namespace {

using Floats = std::vector<float>;

void check(int64_t m, int64_t n, int64_t k, const Floats& a, const Floats& b, const Floats& bias,
           const SumSpec& spec, const std::string& what) {
  for (const bool biased : {false, true}) {
    Floats expected;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const Floats row(a.begin() + i * k, a.begin() + (i + 1) * k);
        Floats column;
        for (int64_t l = 0; l < k; ++l) column.push_back(b[static_cast<size_t>(l * n + j)]);
        expected.push_back(sum_of_products(spec, row, column, biased ? &bias[j] : nullptr));
      }
    }
    everywhere([&](const std::string& where) {
      Floats c(expected.size(), 777.0f);
      gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, biased ? bias.data() : nullptr, c.data(),
           spec);
      expect_same(expected, c, what + ", " + spec_name(spec) + ", " + where);
    });
  }
}

TEST(Parts, PromotedAndSplitChains) {
  struct Size {
    int64_t m, n, k;
  };
  uint32_t seed = 0;
  for (const char* options : {"promote=1", "promote=7", "promote=64", "split-k=2", "split-k=5",
                              "promote=600", "promote=9,split-k=3", "split-k=300"}) {
    for (const char* kind : {"fp32", "fp64", "format", "format-mul-add", "fma32-then-round",
                             "pairwise", "interleaved16", "kahan"}) {
      for (const FloatFormat& write : {kFp32, kFp16, kBf16, kE5m2}) {
        const SumSpec spec{*parse_accumulation(std::string(kind) + ":" + options), write};
        for (const Size& s : {Size{5, 35, 70}, Size{30, 3, 20}, Size{2, 4, 1300}, Size{3, 4, 0}}) {
          if (s.k > 1000 && write != kFp32) continue;
          ++seed;
          Values values(seed, seed % 3 == 0);
          const Floats a = values(s.m * s.k), b = values(s.k * s.n), bias = values(s.n);
          check(s.m, s.n, s.k, a, b, bias, spec, "k = " + std::to_string(s.k));
        }
      }
    }
  }
}

TEST(Parts, TreesOfEveryLength) {
  for (int64_t k = 0; k < 70; ++k) {
    Values values(static_cast<uint32_t>(k));
    const Floats a = values(2 * k), b = values(k * 19), bias = values(19);
    check(2, 19, k, a, b, bias, {Accumulation::pairwise}, "k = " + std::to_string(k));
    check(2, 19, k, a, b, bias, {Accumulation::interleaved16}, "k = " + std::to_string(k));
    check(2, 19, k, a, b, bias, {Accumulation::kahan}, "k = " + std::to_string(k));
  }
}

/// Any bit pattern whose low 12 bits, at least, are zero; exponents from a range.
Floats short_values(std::mt19937& engine, int64_t count, int bits, int lowest, int highest,
                    bool specials) {
  Floats out(static_cast<size_t>(count));
  for (float& x : out) {
    const uint32_t exponent =
        static_cast<uint32_t>(lowest) + static_cast<uint32_t>(engine() % (highest - lowest + 1));
    uint32_t word = (engine() & 0x807fffffu) | exponent << 23;
    if (engine() % 9 == 0) word &= 0x80000000u;
    if (engine() % 5 == 0) word &= 0xfff80000u;  // ties are more frequent among short ones
    if (specials && engine() % 60 == 0) word |= 0x7f800000u;
    if (specials && engine() % 60 == 0) word = (word & 0x80000000u) | 0x7f800000u;
    x = std::bit_cast<float>(word & ~((1u << bits) - 1));
  }
  return out;
}

TEST(Parts, NarrowChainsOfShortOperands) {
  std::mt19937 engine(5);
  struct Range {
    int lowest, highest;
  };
  for (const Range& range : {Range{120, 128}, Range{113, 121}, Range{100, 115}, Range{130, 136},
                             Range{60, 66}, Range{0, 64}, Range{185, 191}, Range{0, 254}}) {
    for (const char* kind : {"format", "format-mul-add", "fma32-then-round"}) {
      for (const FloatFormat& write : {kFp16, kBf16}) {
        for (const int bits : {12, 13, 16}) {
          for (const bool specials : {false, true}) {
            const SumSpec spec{*parse_accumulation(kind), write};
            const Floats a = short_values(engine, 7 * 40, bits, range.lowest, range.highest, false);
            const Floats b =
                short_values(engine, 40 * 37, bits, range.lowest, range.highest, specials);
            const Floats bias = short_values(engine, 37, 0, range.lowest, range.highest, specials);
            check(7, 37, 40, a, b, bias, spec, "exponents from " + std::to_string(range.lowest));
          }
        }
      }
    }
  }
}

// A NaN with all bits set must not become a zero when its bits are rounded.
TEST(Parts, NanOfAllOnes) {
  const float nan = std::bit_cast<float>(0x7fffffffu);
  for (const char* kind : {"format", "format-mul-add", "fma32-then-round"}) {
    for (const FloatFormat& write : {kFp16, kBf16}) {
      const Floats a{1, 2, 3, 4}, b{1, nan, 1, 1}, bias{1};
      check(1, 1, 4, a, b, bias, {*parse_accumulation(kind), write}, "nan");
      check(1, 1, 4, a, {1, 1, 1, 1}, {nan}, {*parse_accumulation(kind), write}, "nan bias");
    }
  }
}

}  // namespace
}  // namespace halfscope::testing
