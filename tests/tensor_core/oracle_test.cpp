// SPDX-License-Identifier: MIT
// tensor_core_dot against tests/oracle/tensor_core_exact.py, which evaluates the formula in exact
// fractions: random and shaped cases with subnormals, cancellation, zeros, infinities, NaNs,
// overflow, short blocks and block scales. Both make the cases from the same integers.
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

constexpr int kCases = 2000;

/// Same as FORMATS of the oracle.
enum class Top : uint8_t { ieee, nan, finite };
struct Codes {
  FloatFormat format;
  Top top;
};
constexpr Codes kFloat32{kFp32, Top::ieee}, kTensorFloat{kTf32, Top::ieee},
    kBfloat{kBf16, Top::ieee}, kHalf{kFp16, Top::ieee}, kFp8e5{kE5m2, Top::ieee},
    kFp8e4{kE4m3fn, Top::nan};
constexpr Codes kFp6e3{{3, 2, 3, Encoding::finite_nan}, Top::finite},
    kFp6e2{{2, 3, 1, Encoding::finite_nan}, Top::finite},
    kFp4{{2, 1, 1, Encoding::finite_nan}, Top::finite};

struct Set {
  const char* arch;
  Codes a, b, accumulator;
  BlockScale scale = BlockScale::none;
};

/// Same as SETS of the oracle, which also has the parameters: here they come from the table.
constexpr std::array<Set, 27> kSets{{
    {"v100", kHalf, kHalf, kFloat32},
    {"v100", kHalf, kHalf, kHalf},
    {"t4", kHalf, kHalf, kFloat32},
    {"t4", kHalf, kHalf, kHalf},
    {"a100", kBfloat, kBfloat, kFloat32},
    {"a100", kTensorFloat, kTensorFloat, kFloat32},
    {"ada", kFp8e4, kFp8e4, kFloat32},
    {"ada", kFp8e5, kFp8e4, kFloat32},
    {"ada", kFp8e5, kFp8e5, kHalf},
    {"h100", kHalf, kHalf, kFloat32},
    {"h100", kHalf, kHalf, kHalf},
    {"h100", kBfloat, kBfloat, kFloat32},
    {"h100", kTensorFloat, kTensorFloat, kFloat32},
    {"h100", kFp8e4, kFp8e4, kFloat32},
    {"h100", kFp8e5, kFp8e5, kFloat32},
    {"b200", kFp8e4, kFp8e5, kHalf},
    {"b200", kFp8e5, kFp8e5, kHalf},
    {"h100-wgmma", kHalf, kHalf, kHalf},
    {"h100-wgmma", kFp8e4, kFp8e4, kFloat32},
    {"h100-wgmma", kFp8e5, kFp8e5, kHalf},
    {"b200-tcgen05", kFp8e4, kFp6e2, kFloat32},
    {"b200-tcgen05", kFp8e5, kFp4, kHalf},
    {"rtx-blackwell", kFp6e3, kFp6e3, kFloat32},
    {"rtx-blackwell", kFp8e5, kFp8e5, kFloat32, BlockScale::mxf8f6f4},
    {"b200-tcgen05", kFp4, kFp4, kFloat32, BlockScale::mxf8f6f4},
    {"b200-tcgen05", kFp4, kFp4, kFloat32, BlockScale::mxf4},
    {"rtx-blackwell", kFp4, kFp4, kFloat32, BlockScale::nvf4},
}};

/// The value of a code; NaN is the tensor cores' own.
float decoded(const Codes& codes, uint64_t code) {
  const FloatFormat& f = codes.format;
  const int last = (1 << f.exponent_bits) - 1;
  const uint64_t mantissa = code & ((uint64_t{1} << f.mantissa_bits) - 1);
  const int field = static_cast<int>(code >> f.mantissa_bits) & last;
  const bool negative = (code >> (f.mantissa_bits + f.exponent_bits) & 1) != 0;
  const bool all_ones = mantissa == (uint64_t{1} << f.mantissa_bits) - 1;
  if (codes.top == Top::ieee && field == last) {
    if (mantissa != 0) return std::nanf("");
    return negative ? -HUGE_VALF : HUGE_VALF;
  }
  if (codes.top == Top::nan && field == last && all_ones) return std::nanf("");
  const uint64_t significand = field == 0 ? mantissa : mantissa | uint64_t{1} << f.mantissa_bits;
  const double size =
      std::ldexp(static_cast<double>(significand), std::max(field, 1) - f.bias - f.mantissa_bits);
  return static_cast<float>(negative ? -size : size);
}

/// splitmix64.
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }

 private:
  uint64_t state_;
};

uint64_t code_of(Generator& r, const FloatFormat& f, uint64_t kind) {
  const int64_t last = (int64_t{1} << f.exponent_bits) - 1;
  const uint64_t bits = r.next();
  uint64_t mantissa = bits & ((uint64_t{1} << f.mantissa_bits) - 1);
  const uint64_t sign = bits >> 40 & 1;
  const int64_t chosen = static_cast<int64_t>(bits >> 41);
  int64_t field = 0;
  if (kind == 1 || kind == 5) {
    field = std::min(std::max<int64_t>(f.bias - 2 + chosen % 4, 0), last - 1);
  } else if (kind == 2) {
    field = chosen % 2;
  } else if (kind == 3) {
    field = std::max<int64_t>(last - 1 - chosen % 2, 0);
  } else if (kind == 4) {
    field = chosen % 4 != 0 ? 0 : std::min<int64_t>(f.bias, last - 1);
    mantissa = chosen % 4 != 0 ? 0 : mantissa;
  } else if (kind == 7) {
    field = chosen % last;
  } else {
    field = chosen % (last + 1);
  }
  return sign << (f.exponent_bits + f.mantissa_bits) |
         static_cast<uint64_t>(field) << f.mantissa_bits | mantissa;
}

struct Case {
  std::vector<float> a, b, a_scales, b_scales;
  float c = 0.0f;
};

Case make_case(const Set& set, const TensorCoreProfile& profile, uint64_t index, uint64_t number) {
  Generator r(index * 1000003 + number);
  const uint64_t kind = r.below(8);
  const uint64_t step = static_cast<uint64_t>(profile.step());
  uint64_t n = (1 + r.below(2)) * step;
  if (r.below(4) == 0) n -= r.below(step);
  const uint64_t draw = kind == 6 ? 1 : kind;
  std::vector<uint64_t> a(n), b(n);
  for (uint64_t& code : a) code = code_of(r, set.a.format, draw);
  for (uint64_t& code : b) code = code_of(r, set.b.format, draw);
  if (kind == 5) {
    const FloatFormat& f = set.b.format;
    for (size_t k = 1; k + 1 < n; k += 2) {
      a[k] = a[k - 1];
      b[k] = b[k - 1] ^ uint64_t { 1 } << (f.exponent_bits + f.mantissa_bits);
    }
  }
  if (kind == 6) {
    const uint64_t i = r.below(n), j = r.below(n);
    for (size_t k = 0; k < n; ++k) {
      const uint64_t x = code_of(r, set.a.format, 2), y = code_of(r, set.b.format, 2);
      a[k] = k == i || k == j ? x : 0;
      b[k] = k == i || k == j ? y : 0;
    }
  }
  uint64_t c_kind = kind;
  if (kind == 0 && r.below(2) != 0) c_kind = 7;
  uint64_t c = code_of(r, set.accumulator.format, c_kind);
  if ((kind == 2 || kind == 6) && r.below(2) != 0) c = 0;

  Case result;
  for (const uint64_t code : a) result.a.push_back(decoded(set.a, code));
  for (const uint64_t code : b) result.b.push_back(decoded(set.b, code));
  result.c = decoded(set.accumulator, c);
  if (const uint64_t block = static_cast<uint64_t>(profile.scale_block()); block != 0) {
    const uint64_t count = (n + block - 1) / block;
    for (uint64_t i = 0; i < 2 * count; ++i) {
      const uint64_t bits = r.next();
      float scale = 0.0f;
      if (set.scale == BlockScale::nvf4) {
        scale = decoded(kFp8e4, bits >> 60 != 0 ? bits % 128 : 0x38);
      } else {
        const uint64_t code = kind == 0 ? bits % 256 : 117 + bits % 20;
        scale = code == 255 ? std::nanf("") : std::ldexp(1.0f, static_cast<int>(code) - 127);
      }
      (i < count ? result.a_scales : result.b_scales).push_back(scale);
    }
  }
  return result;
}

std::vector<uint8_t> stored_results() {
  const std::string path = HALFSCOPE_SOURCE_DIR "/tests/oracle/vectors/tensor_core_exact.bin.gz";
  std::vector<uint8_t> bytes(kSets.size() * kCases * 4 + 1);
  const gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  const int got = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  bytes.resize(static_cast<size_t>(std::max(got, 0)));
  return bytes;
}

TEST(TensorCoreOracle, ExactFractionsGiveTheSameBits) {
  const std::vector<uint8_t> stored = stored_results();
  ASSERT_EQ(stored.size(), kSets.size() * kCases * 4);
  size_t at = 0, infinities = 0, nans = 0, subnormals = 0;
  for (size_t s = 0; s < kSets.size(); ++s) {
    const Set& set = kSets[s];
    std::optional<TensorCoreProfile> profile =
        tensor_core_profile(set.arch, set.a.format, set.accumulator.format, set.scale);
    ASSERT_TRUE(profile) << s;
    profile->b_format = set.b.format;
    int wrong = 0;
    for (uint64_t number = 0; number < kCases; ++number, at += 4) {
      const Case each = make_case(set, *profile, s, number);
      const float result =
          tensor_core_dot(*profile, each.a, each.b, each.c, {}, each.a_scales, each.b_scales);
      const uint32_t bits = std::bit_cast<uint32_t>(result);
      const uint32_t expected = uint32_t{stored[at]} | uint32_t{stored[at + 1]} << 8 |
                                uint32_t{stored[at + 2]} << 16 | uint32_t{stored[at + 3]} << 24;
      if (bits != expected && ++wrong <= 3) {
        ADD_FAILURE() << set.arch << " set " << s << " case " << number << std::hex << ": " << bits
                      << ", expected " << expected;
      }
      infinities += std::isinf(result) ? 1 : 0;
      nans += std::isnan(result) ? 1 : 0;
      subnormals += std::fpclassify(result) == FP_SUBNORMAL ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0) << set.arch << " set " << s;
  }
  // The cases reach what they are for.
  EXPECT_GT(infinities, 1000u);
  EXPECT_GT(nans, 1000u);
  EXPECT_GT(subnormals, 100u);
}

}  // namespace
}  // namespace halfscope
