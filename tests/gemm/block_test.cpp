// SPDX-License-Identifier: MIT
// The tensor-core tiles against the reference, bit for bit: every profile they take, operands of
// every kind, and inputs for which they must hand elements over to the reference.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "core/numeric/sums/accumulate.h"
#include "emulation/gemm/block_product.h"
#include "tests/gemm/oracles.h"
#include "tests/special_values.h"

namespace halfscope::testing {
namespace {

using Floats = std::vector<float>;

struct Product {
  int64_t m, n, k;
  Floats a, b, bias;  ///< a is [m, k], b is [k, n]
};

/// Values around 2^center, within 2^spread of it to either side; every `zeros`-th is zero.
Floats some_values(std::mt19937& engine, int64_t count, const FloatFormat& format, int center,
                   int spread, int zeros) {
  Floats out(static_cast<size_t>(count));
  for (float& x : out) {
    const int exponent = center - spread + static_cast<int>(engine() % (2 * spread + 1));
    const float fraction = 1.0f + static_cast<float>(engine() % 4096) / 4096.0f;
    x = std::ldexp(fraction, exponent) * (engine() % 2 == 0 ? 1.0f : -1.0f);
    x = round_to_format(x, format).value;
    if (!std::isfinite(x)) x = 1.0f;
    if (zeros > 0 && engine() % zeros == 0) x = engine() % 2 == 0 ? 0.0f : -0.0f;
  }
  return out;
}

Product some_product(uint32_t seed, int64_t m, int64_t n, int64_t k, const FloatFormat& format,
                     int center = -1, int spread = 3, int zeros = 0) {
  std::mt19937 engine(seed);
  return {m,
          n,
          k,
          some_values(engine, m * k, format, center, spread, zeros),
          some_values(engine, k * n, format, center, spread, zeros),
          some_values(engine, n, format, center, spread, 0)};
}

SumSpec spec_of(const std::string& accumulation, const FloatFormat& read) {
  return {.accumulation = parse_accumulation(accumulation).value(), .write = read, .read = read};
}

Floats reference(const Product& p, const SumSpec& spec) {
  Floats c;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      Floats row(p.a.begin() + i * p.k, p.a.begin() + (i + 1) * p.k), column;
      for (int64_t l = 0; l < p.k; ++l) column.push_back(p.b[static_cast<size_t>(l * p.n + j)]);
      c.push_back(sum_of_products(spec, row, column, p.bias.empty() ? nullptr : &p.bias[j]));
    }
  }
  return c;
}

void check(const Product& p, const SumSpec& spec, const std::string& what) {
  const Floats expected = reference(p, spec);
  everywhere([&](const std::string& where) {
    Floats c(expected.size(), 777.0f);
    gemm(p.m, p.n, p.k, {p.a.data(), p.k, 1}, {p.b.data(), p.n, 1},
         p.bias.empty() ? nullptr : p.bias.data(), c.data(), spec);
    expect_same(expected, c, what + ", " + accumulation_name(spec.accumulation) + ", " + where);
  });
}

/// Returns how many elements the tiles leave to the reference; all of them if there are no tiles.
int64_t redone(const Product& p, const SumSpec& spec, Isa isa) {
  const Isa before = active_isa();
  set_active_isa(isa);
  int64_t count = p.m * p.n;
  if (gemm_detail::has_block_tiles(spec)) {
    Floats c(static_cast<size_t>(p.m * p.n));
    count = gemm_detail::block_product(p.m, p.n, p.k, {p.a.data(), p.k, 1}, {p.b.data(), p.n, 1},
                                       {c.data(), p.n, 1, nullptr, nullptr}, spec);
  }
  set_active_isa(before);
  return count;
}

/// On every instruction set that has tiles.
void expect_redone(const Product& p, const SumSpec& spec, int64_t expected,
                   const std::string& what) {
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::baseline) continue;
    EXPECT_EQ(redone(p, spec, isa), expected) << what << isa_name(isa);
  }
}

struct Profile {
  const char* accumulation;
  FloatFormat read;
};

std::vector<Profile> profiles() {
  std::vector<Profile> all;
  for (const char* name : {"tensor-core:v100", "tensor-core:a100", "tensor-core:h100",
                           "tensor-core:v100,acc=fp16", "tensor-core:a100,acc=fp16",
                           "tensor-core:h100,acc=fp16", "tensor-core:h100-wgmma,acc=fp16"}) {
    all.push_back({name, kFp16});
  }
  for (const char* name : {"tensor-core:a100", "tensor-core:h100"}) {
    all.push_back({name, kBf16});
    all.push_back({name, kTf32});
  }
  for (const char* name :
       {"tensor-core:ada", "tensor-core:ada,acc=fp16", "tensor-core:h100-wgmma",
        "tensor-core:h100-wgmma,acc=fp16", "tensor-core:b200-tcgen05", "tensor-core:h100",
        "tensor-core:b200,acc=fp16", "tensor-core:rtx-blackwell,acc=fp16"}) {
    all.push_back({name, kE4m3fn});
    all.push_back({name, kE5m2});
  }
  all.push_back({"tensor-core:b200-tcgen05", kE2m1});
  return all;
}

TEST(Blocks, EveryProfile) {
  uint32_t seed = 0;
  for (const Profile& profile : profiles()) {
    const SumSpec spec = spec_of(profile.accumulation, profile.read);
    check(some_product(++seed, 5, 70, 100, profile.read), spec, "near one");
    check(some_product(++seed, 37, 9, 65, profile.read, -4, 9, 3), spec, "wide, zeros");
    check(some_product(++seed, 3, 4, 1, profile.read), spec, "one term");
    check(some_product(++seed, 2, 33, 1500, profile.read, 0, 2), spec, "long");
    check(some_product(++seed, 3, 17, 64, profile.read, -10, 16, 2), spec, "tiny");
    Product large = some_product(++seed, 3, 17, 64, profile.read, 7, 8, 2);
    large.bias.clear();
    check(large, spec, "large");
  }
}

TEST(Blocks, OperandsOfTwoFormats) {
  uint32_t seed = 500;
  for (const char* name : {"tensor-core:ada", "tensor-core:ada,acc=fp16", "tensor-core:h100-wgmma",
                           "tensor-core:h100", "tensor-core:h100,acc=fp16",
                           "tensor-core:h100-wgmma,acc=fp16", "tensor-core:b200-tcgen05"}) {
    for (const bool first : {true, false}) {
      SumSpec spec = spec_of(name, first ? kE4m3fn : kE5m2);
      spec.read_b = first ? kE5m2 : kE4m3fn;
      for (const int64_t n : {70, 3}) {
        for (const int center : {-1, -7, 6}) {
          // Subnormals of one format are normal numbers of the other.
          Product p = some_product(++seed, 37, n, 100, spec.read, center, 6, 3);
          std::mt19937 engine(seed);
          p.b = some_values(engine, p.k * p.n, *spec.read_b, center, 9, 3);
          if (center > 0) p.bias.clear();
          check(p, spec, "two formats");
        }
      }
      Product p = some_product(++seed, 40, 70, 300, spec.read, -3, 3, 4);
      std::mt19937 engine(seed);
      p.b = some_values(engine, p.k * p.n, *spec.read_b, -3, 3, 4);
      expect_redone(p, spec, 0, name);
    }
  }
}

TEST(Blocks, OrdinaryOperandsNeedNoReference) {
  for (const Profile& profile : profiles()) {
    const SumSpec spec = spec_of(profile.accumulation, profile.read);
    if (profile.read == kTf32) continue;
    expect_redone(some_product(5, 40, 70, 300, profile.read, -3, 3, 4), spec, 0,
                  profile.accumulation);
  }
  expect_redone(some_product(5, 40, 70, 300, kFp16), spec_of("tensor-core:h100", kFp16), 0, "");
  expect_redone(some_product(5, 40, 70, 300, kBf16), spec_of("tensor-core:h100", kBf16), 0, "");
}

TEST(Blocks, PromotedAndSplit) {
  uint32_t seed = 100;
  for (const Profile& profile : profiles()) {
    for (const char* options :
         {"promote=1", "promote=24", "promote=32", "promote=50", "split-k=2", "split-k=7",
          "promote=16,split-k=3", "promote=5,split-k=2", "split-k=200"}) {
      const SumSpec spec = spec_of(std::string(profile.accumulation) + "," + options, profile.read);
      check(some_product(++seed, 3, 18, 131, profile.read, -3, 4, 5), spec, "parts");
    }
  }
  check(some_product(1, 2, 3, 2600, kFp16), spec_of("tensor-core:h100,promote=1100", kFp16), "");
  check(some_product(1, 2, 3, 2600, kFp16), spec_of("tensor-core:a100,split-k=2", kFp16), "");
  check(some_product(1, 2, 3, 1, kFp16, -12), spec_of("tensor-core:a100,acc=fp16,split-k=2", kFp16),
        "a single slice");
}

TEST(Blocks, Squares) {  // more rows and columns than are taken at a time
  check(some_product(7, 1030, 3, 20, kFp16), spec_of("tensor-core:a100", kFp16), "rows");
  check(some_product(8, 3, 1100, 20, kBf16), spec_of("tensor-core:a100", kBf16), "columns");
  check(some_product(8, 70, 130, 40, kFp16), spec_of("tensor-core:v100", kFp16), "tiles");
}

TEST(Blocks, SpecialsGoToTheReference) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const FloatFormat& format : {kFp16, kBf16}) {
    Product p = some_product(3, 20, 40, 50, format);
    p.a[3 * 50 + 4] = kInf;
    p.b[4 * 40 + 7] = 0.0f;
    p.a[5 * 50 + 6] = -kNan;
    p.b[8 * 40 + 9] = -kInf;
    p.a[11 * 50 + 8] = 0.0f;
    const SumSpec spec = spec_of("tensor-core:a100", format);
    check(p, spec, "specials");
    p.bias.clear();
    expect_redone(p, spec, 2 * 40 + 1 * 20 - 2, "two rows and a column: ");
  }
}

TEST(Blocks, ValuesOfNoFormatGoToTheReference) {
  for (const float x : {1 + 0x1p-12f, 0x1p-25f, 0x1.8p-24f, 65536.0f, 0x1p-140f, 3e38f}) {
    Product p = some_product(4, 6, 10, 20, kFp16);
    p.b[35] = x;
    check(p, spec_of("tensor-core:h100", kFp16), "off the grid");
    expect_redone(p, spec_of("tensor-core:h100", kFp16), 6, "one column: ");
  }
  Product p = some_product(4, 6, 10, 20, kTf32);
  p.b[35] = 1 + 0x1p-20f;  // the hardware drops the rest, and so do the tiles
  check(p, spec_of("tensor-core:h100", kTf32), "tf32");
  expect_redone(p, spec_of("tensor-core:h100", kTf32), 0, "tf32: ");
}

TEST(Blocks, SumsBeyondInt32GoToTheReference) {
  const float largest = 2 - 0x1p-10f;
  for (const float first : {0.0f, 0.5f}) {
    const int64_t k = 32;
    Product p = some_product(4, 3, 5, k, kFp16);
    p.bias.clear();
    for (int64_t l = 0; l < k; ++l) {  // a first block of one term, a second one full of large ones
      p.a[static_cast<size_t>(k + l)] = l == 0 ? first : l < 16 ? 0.0f : largest;
      p.b[static_cast<size_t>(l * 5 + 2)] = largest;
    }
    check(p, spec_of("tensor-core:h100", kFp16), "all at the top");
    // The second block alone fits, together with c it does not.
    expect_redone(p, spec_of("tensor-core:h100", kFp16), first > 0 ? 1 : 0, "top: ");
    for (float& x : p.a) x = -std::fabs(x);
    check(p, spec_of("tensor-core:h100", kFp16), "all at the bottom");
    expect_redone(p, spec_of("tensor-core:h100", kFp16), first > 0 ? 1 : 0, "bottom: ");
  }
  for (const FloatFormat& format : {kE4m3fn, kE5m2}) {
    Product p = some_product(4, 3, 5, 96, format);
    p.bias.clear();
    for (float& x : p.a) x = 1.75f;
    for (float& x : p.b) x = -1.75f;
    check(p, spec_of("tensor-core:b200-tcgen05", format), "32 products");
    expect_redone(p, spec_of("tensor-core:b200-tcgen05", format), 15, "32 products: ");
    expect_redone(p, spec_of("tensor-core:h100-wgmma", format), 0, "13 bits: ");
  }
}

TEST(Blocks, HugeAndTinyExponents) {
  for (const FloatFormat& format : {kBf16, kTf32}) {
    for (const char* name : {"tensor-core:a100", "tensor-core:h100"}) {
      const SumSpec spec = spec_of(name, format);
      uint32_t seed = 50;
      for (const int center : {-126, -100, -70, -64, -55, -50, 50, 57, 60, 63, 64, 100}) {
        check(some_product(++seed, 4, 20, 40, format, center, 3, 4), spec,
              "exponents of " + std::to_string(center));
      }
      check(some_product(++seed, 4, 20, 40, format, 0, 60, 4), spec, "all exponents");
      check(some_product(++seed, 4, 20, 40, format, 0, 126, 4), spec, "all exponents there are");
      expect_redone(some_product(1, 4, 20, 40, format, -44, 3, 4), spec, 0, "small: ");
      expect_redone(some_product(1, 4, 20, 40, format, 50, 3, 4), spec, 0, "large: ");
      expect_redone(some_product(1, 4, 20, 40, format, 70, 3, 0), spec, 80, "too large: ");
    }
  }
}

TEST(Blocks, HalfAccumulatorsThatOverflowOrVanish) {
  for (const char* name : {"tensor-core:v100,acc=fp16", "tensor-core:a100,acc=fp16",
                           "tensor-core:h100,acc=fp16", "tensor-core:h100-wgmma,acc=fp16"}) {
    const SumSpec spec = spec_of(name, kFp16);
    check(some_product(2, 6, 20, 64, kFp16, 6, 4), spec, "overflow");
    check(some_product(3, 6, 20, 64, kFp16, -14, 8, 6), spec, "subnormal");
    check(some_product(4, 6, 20, 64, kFp16, -20, 3, 3), spec, "vanishing");
    Product p = some_product(4, 6, 20, 64, kFp16, -20, 3);
    for (float& x : p.a) x = std::fabs(x);
    for (float& x : p.b) x = -std::fabs(x);
    p.bias.clear();
    check(p, spec, "negative zeros");
  }
}

}  // namespace
}  // namespace halfscope::testing
