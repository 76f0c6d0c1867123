// SPDX-License-Identifier: MIT
// Sums that round after every term in modes other than nearest even, compared with an evaluation in
// quadruple precision that has its own rounding; and the guarantees of stochastic sums.
#include <cmath>

#include "core/numeric/formats/rng.h"
#include "core/numeric/sums/accumulate.h"
#include "tests/gemm/oracles.h"
#include "tests/special_values.h"

namespace halfscope::testing {
namespace {

using Floats = std::vector<float>;
using Quad = __float128;

constexpr RoundingMode kOthers[] = {RoundingMode::nearest_away, RoundingMode::toward_zero,
                                    RoundingMode::up,           RoundingMode::down,
                                    RoundingMode::odd,          RoundingMode::stochastic};

Quad power(int exponent) { return static_cast<Quad>(std::ldexp(1.0, exponent)); }

/// Rounds an exact value that is not zero, from the definition: in units of the last place.
double rounded(Quad exact, const FloatFormat& format, const RoundingChoice& how, uint32_t draw) {
  const bool negative = exact < 0;
  const Quad x = negative ? -exact : exact;
  int exponent = std::ilogb(static_cast<double>(x));
  if (power(exponent) > x) --exponent;
  const int unit = std::max(exponent, format.min_exponent()) - format.mantissa_bits;
  const Quad units = x * power(-unit);
  if (units >= power(40)) return negative ? -INFINITY : INFINITY;
  int64_t whole = static_cast<int64_t>(units);
  const Quad rest = units - static_cast<Quad>(whole);
  bool up = false;
  switch (how.mode) {
    case RoundingMode::nearest_even:
      up = rest > 0.5 || (rest == 0.5 && whole % 2 != 0);
      break;
    case RoundingMode::nearest_away:
      up = rest >= 0.5;
      break;
    case RoundingMode::toward_zero:
      break;
    case RoundingMode::up:
      up = rest > 0 && !negative;
      break;
    case RoundingMode::down:
      up = rest > 0 && negative;
      break;
    case RoundingMode::odd:
      up = rest > 0 && whole % 2 == 0;
      break;
    case RoundingMode::stochastic: {
      const int64_t random = draw >> (32 - how.random_bits);
      const Quad part = rest * power(how.random_bits);
      up = static_cast<int64_t>(part) + random >= int64_t{1} << how.random_bits;
      break;
    }
  }
  if (up) ++whole;
  const double size = std::ldexp(static_cast<double>(whole), unit);
  if (size <= format.max_finite()) return negative ? -size : size;
  const bool stays = how.mode == RoundingMode::toward_zero || how.mode == RoundingMode::odd ||
                     how.mode == (negative ? RoundingMode::up : RoundingMode::down) ||
                     format.saturates();
  if (stays) return negative ? -format.max_finite() : format.max_finite();
  const double beyond = format.has_infinity() ? INFINITY : NAN;
  return negative ? -beyond : beyond;
}

/// One chain of finite terms; draws as accumulate.h has them.
class RoundedOracle {
 public:
  RoundedOracle(const SumSpec& spec, int64_t terms, int64_t element)
      : spec_(spec), mul_add_(spec.accumulation.kind == Accumulation::format_mul_add) {
    const int64_t draws = (terms + 1) * (mul_add_ ? 2 : 1);
    first_ = static_cast<uint64_t>(element * (draws + draws % 2));
  }
  void add(float a, float b, int64_t k) {
    Quad product = static_cast<Quad>(a) * b;
    bool minus = std::signbit(a) != std::signbit(b);
    if (mul_add_ && product != 0) {
      const double near = round(product, 2 * k);
      product = near;
      minus = std::signbit(near);
    }
    if (!std::isfinite(static_cast<double>(product)) || !std::isfinite(sum_)) {
      sum_ = static_cast<double>(product) + sum_;
      if (std::isinf(sum_) && !spec_.write.has_infinity()) sum_ = NAN;
      return;
    }
    const Quad exact = product + sum_;
    if (exact != 0) {
      sum_ = round(exact, mul_add_ ? 2 * k + 1 : k);
    } else {
      const bool both = product == 0 && minus && std::signbit(sum_) && sum_ == 0;
      const bool either = product != 0 || minus || std::signbit(sum_);
      const bool down = spec_.accumulation.rounding.mode == RoundingMode::down;
      sum_ = both || (down && either) ? -0.0 : 0.0;
    }
  }
  double sum() const { return sum_; }

 private:
  double round(Quad exact, int64_t draw) const {
    return rounded(exact, spec_.write, spec_.accumulation.rounding,
                   random_draw(spec_.key, first_ + static_cast<uint64_t>(draw)));
  }
  const SumSpec& spec_;
  const bool mul_add_;
  uint64_t first_;
  double sum_ = 0;
};

/// Returns one sum, cut as in promotion and split k.
float oracle_sum(const SumSpec& spec, const Floats& a, const Floats& b, const float* bias,
                 int64_t element) {
  const int64_t n = static_cast<int64_t>(a.size());
  const Accumulation& how = spec.accumulation;
  const auto chain = [&](int64_t begin, int64_t end, const float* last) {
    RoundedOracle sum(spec, n, element);
    for (int64_t k = begin; k < end; ++k) sum.add(a[k], b[k], k);
    if (last != nullptr) sum.add(*last, 1.0f, n);
    return static_cast<float>(sum.sum());
  };
  if (how.promote == 0 && how.split_k == 1) return chain(0, n, bias);
  float total = 0;
  const int64_t part = std::max<int64_t>(1, (n + how.split_k - 1) / how.split_k);
  for (int64_t begin = 0; begin < n; begin += part) {
    const int64_t end = std::min(begin + part, n);
    const int64_t length = how.promote > 0 ? how.promote : part;
    float own = 0;
    for (int64_t at = begin; at < end; at += length) {
      own += chain(at, std::min(at + length, end), nullptr);
    }
    total += how.split_k > 1 ? own : 0;
    if (how.split_k == 1) total = own;
  }
  return bias != nullptr ? total + *bias : total;
}

Accumulation way(const std::string& kind, const RoundingChoice& rounding,
                 const std::string& more = "") {
  return parse_accumulation(kind + ":rounding=" + rounding_name(rounding) + more).value();
}

/// Values whose products stay within what quadruple precision adds exactly.
Floats short_values(uint32_t seed, int64_t count) {
  Values values(seed, seed % 3 != 0, kFp16);
  return values(count);
}

struct Size {
  int64_t m, n, k;
};

void check(const SumSpec& spec, const Size& s, uint32_t seed, bool biased) {
  const Floats a = short_values(seed, s.m * s.k), b = short_values(seed + 1, s.k * s.n);
  const Floats bias = short_values(seed + 2, s.n);
  Floats expected;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      const Floats row(a.begin() + i * s.k, a.begin() + (i + 1) * s.k);
      Floats column;
      for (int64_t l = 0; l < s.k; ++l) column.push_back(b[static_cast<size_t>(l * s.n + j)]);
      const float* last = biased ? &bias[static_cast<size_t>(j)] : nullptr;
      expected.push_back(oracle_sum(spec, row, column, last, i * s.n + j));
      const float reference = sum_of_products(spec, row, column, last, i * s.n + j);
      expect_same({expected.back()}, {reference}, "reference, " + spec_name(spec));
    }
  }
  everywhere([&](const std::string& where) {
    Floats c(expected.size(), 777.0f);
    gemm(s.m, s.n, s.k, {a.data(), s.k, 1}, {b.data(), s.n, 1}, biased ? bias.data() : nullptr,
         c.data(), spec);
    expect_same(expected, c, spec_name(spec) + ", " + where);
  });
}

TEST(RoundedSums, TilesAndReferenceAgainstQuadruplePrecision) {
  uint32_t seed = 0;
  for (const RoundingMode mode : kOthers) {
    for (const char* kind : {"format", "format-mul-add"}) {
      for (const char* name : {"fp16", "bf16", "e4m3fn", "e5m2", "e5m2:sat", "fp32", "tf32"}) {
        for (const Size& s : {Size{5, 35, 33}, Size{9, 3, 20}, Size{1, 1, 7}, Size{3, 4, 0}}) {
          ++seed;
          const FloatFormat write = parse_format(name).value();
          check({way(kind, {.mode = mode}), write, kFp16, seed * 77u}, s, seed, seed % 2 == 0);
        }
      }
    }
  }
}

TEST(RoundedSums, FewRandomBits) {
  for (const int bits : {1, 3, 8, 31}) {
    for (const char* kind : {"format", "format-mul-add"}) {
      for (const FloatFormat& write : {kFp16, kBf16, kFp32}) {
        const RoundingChoice rounding{RoundingMode::stochastic, bits};
        check({way(kind, rounding), write, kFp16, 5}, {6, 19, 40}, 3, true);
      }
    }
  }
}

TEST(RoundedSums, PromotedAndSplit) {
  uint32_t seed = 100;
  for (const RoundingMode mode : {RoundingMode::stochastic, RoundingMode::up}) {
    for (const char* kind : {"format", "format-mul-add"}) {
      for (const char* more :
           {",promote=1", ",promote=7", ",promote=16", ",split-k=3", ",promote=5,split-k=2"}) {
        for (const bool biased : {false, true}) {
          ++seed;
          check({way(kind, {.mode = mode}, more), kFp16, kFp16, seed}, {5, 21, 41}, seed, biased);
        }
      }
    }
  }
}

TEST(RoundedSums, SpecialOperands) {
  const float nan = std::bit_cast<float>(0x7fffffffu);
  const Floats specials{0.0f, -0.0f, kInf, -kInf, nan, 3e38f, -3e38f, 1e-45f, -1e-45f, 1.5f};
  for (const RoundingMode mode : kOthers) {
    for (const char* kind : {"format", "format-mul-add"}) {
      for (const char* name : {"fp16", "bf16", "e4m3fn", "e5m2:sat", "fp32"}) {
        const SumSpec spec{way(kind, {.mode = mode}), parse_format(name).value(), kFp32, 9};
        Floats a, b, expected;
        for (const float x : specials) {
          a.insert(a.end(), {0.25f, x, -0.25f});
          for (const float y : specials) {
            const Floats left{0.25f, x, -0.25f}, right{1.0f, y, 1.0f};
            const auto element = static_cast<int64_t>(expected.size());
            expected.push_back(sum_of_products(spec, left, right, nullptr, element));
          }
        }
        for (const float one : {0.0f, 1.0f, 2.0f}) {
          for (const float y : specials) b.push_back(one == 1.0f ? y : 1.0f);
        }
        everywhere([&](const std::string& where) {
          Floats c(expected.size());
          gemm(10, 10, 3, {a.data(), 3, 1}, {b.data(), 10, 1}, nullptr, c.data(), spec);
          expect_same(expected, c, spec_name(spec) + ", " + where);
        });
      }
    }
  }
}

/// Sums of values go the same way, each with the draws of its place.
TEST(RoundedSums, SumsOfValues) {
  for (const RoundingMode mode : {RoundingMode::stochastic, RoundingMode::down}) {
    for (const char* kind : {"format", "format-mul-add"}) {
      for (const int64_t inner : {int64_t{1}, int64_t{6}}) {
        const int64_t outer = 30, n = 11;
        const SumSpec spec{way(kind, {.mode = mode}), kBf16, kBf16, 4};
        const Floats x = short_values(8, outer * n * inner);
        Floats expected;
        for (int64_t j = 0; j < n; ++j) {
          Floats line;
          for (int64_t o = 0; o < outer; ++o)
            for (int64_t i = 0; i < inner; ++i) line.push_back(x[(o * n + j) * inner + i]);
          const Floats ones(line.size(), 1.0f);
          expected.push_back(oracle_sum(spec, line, ones, nullptr, j));
          EXPECT_EQ(sum_of_values(spec, line, j), static_cast<double>(expected.back()));
        }
        everywhere([&](const std::string& where) {
          Floats out(expected.size());
          sum_except(outer, n, inner, x.data(), out.data(), spec);
          expect_same(expected, out, spec_name(spec) + ", " + where);
        });
      }
    }
  }
}

/// A convolution's element e is the e-th of its result, and term k the k-th tap.
TEST(RoundedSums, Convolutions) {
  const ConvShape s{.batch = 3,
                    .in = 2,
                    .height = 6,
                    .width = 5,
                    .out = 4,
                    .kernel_h = 3,
                    .kernel_w = 2,
                    .stride_h = 2,
                    .pad_top = 1,
                    .pad_left = 1};
  const int64_t pixels = s.out_height() * s.out_width(), taps = 6, plane = 30;
  const Floats x = short_values(1, s.batch * s.in * plane),
               w = short_values(2, s.out * s.in * taps);
  const Floats dy = short_values(4, s.batch * s.out * pixels), bias = short_values(5, s.out);
  for (const RoundingMode mode : {RoundingMode::stochastic, RoundingMode::toward_zero}) {
    for (const char* kind : {"format", "format-mul-add"}) {
      const SumSpec spec{way(kind, {.mode = mode}), kFp16, kFp16, 11};
      Floats y, dx, dw;
      for (int64_t n = 0; n < s.batch; ++n)
        for (int64_t o = 0; o < s.out; ++o)
          for (int64_t p = 0; p < pixels; ++p) {
            Floats left, right;
            for (int64_t c = 0; c < s.in; ++c)
              for (int64_t t = 0; t < taps; ++t) {
                const int64_t at =
                    input_index(s, n, c, p / s.out_width(), p % s.out_width(), t / 2, t % 2);
                left.push_back(w[(o * s.in + c) * taps + t]);
                right.push_back(at < 0 ? 0.0f : x[at]);
              }
            y.push_back(oracle_sum(spec, left, right, &bias[o], std::ssize(y)));
          }
      for (int64_t n = 0; n < s.batch; ++n)
        for (int64_t c = 0; c < s.in; ++c)
          for (int64_t at = 0; at < plane; ++at) {
            Floats left, right;
            for (int64_t t = 0; t < taps; ++t)
              for (int64_t o = 0; o < s.out; ++o) {
                float found = 0;
                for (int64_t p = 0; p < pixels; ++p) {
                  const int64_t from =
                      input_index(s, n, c, p / s.out_width(), p % s.out_width(), t / 2, t % 2);
                  if (from == (n * s.in + c) * plane + at) found = dy[(n * s.out + o) * pixels + p];
                }
                left.push_back(w[(o * s.in + c) * taps + t]);
                right.push_back(found);
              }
            dx.push_back(oracle_sum(spec, left, right, nullptr, std::ssize(dx)));
          }
      for (int64_t o = 0; o < s.out; ++o)
        for (int64_t c = 0; c < s.in; ++c)
          for (int64_t t = 0; t < taps; ++t) {
            Floats left, right;
            for (int64_t n = 0; n < s.batch; ++n)
              for (int64_t p = 0; p < pixels; ++p) {
                const int64_t at =
                    input_index(s, n, c, p / s.out_width(), p % s.out_width(), t / 2, t % 2);
                left.push_back(dy[(n * s.out + o) * pixels + p]);
                right.push_back(at < 0 ? 0.0f : x[at]);
              }
            dw.push_back(oracle_sum(spec, left, right, nullptr, std::ssize(dw)));
          }
      everywhere([&](const std::string& where) {
        Floats got(y.size());
        conv_forward(s, x.data(), w.data(), bias.data(), got.data(), spec);
        expect_same(y, got, "y, " + spec_name(spec) + ", " + where);
        got.assign(dx.size(), 0.0f);
        conv_grad_input(s, dy.data(), w.data(), got.data(), spec);
        expect_same(dx, got, "dx, " + spec_name(spec) + ", " + where);
        got.assign(dw.size(), 0.0f);
        conv_grad_weight(s, x.data(), dy.data(), got.data(), spec);
        expect_same(dw, got, "dw, " + spec_name(spec) + ", " + where);
      });
    }
  }
}

/// Results of 64 x 64 equal sums: 2048, then `terms` times 0.5. In fp16 between 2048 and 4096 the
/// last place is 2, so each term adds it with probability 1/4 or, to nearest even, never.
Floats many_sums(const std::string& accumulation, int64_t terms, uint64_t key) {
  const int64_t n = 64, k = terms + 1;
  Floats a(static_cast<size_t>(n * k), 0.5f), ones(a.size(), 1.0f), c(n * n);
  for (int64_t i = 0; i < n; ++i) a[static_cast<size_t>(i * k)] = 2048.0f;
  const SumSpec spec{parse_accumulation(accumulation).value(), kFp16, kFp16, key};
  gemm(n, n, k, {a.data(), k, 1}, {ones.data(), 1, k}, nullptr, c.data(), spec);
  return c;
}

TEST(RoundedSums, StochasticSumsAreUnbiasedAndHaveTheVarianceOfTheirSteps) {
  const int64_t terms = 1000;
  for (const char* how : {"format:rounding=stochastic", "format-mul-add:rounding=stochastic",
                          "format:rounding=stochastic:2"}) {
    const Floats sums = many_sums(how, terms, 1234);
    double mean = 0, variance = 0;
    for (const float x : sums) mean += static_cast<double>(x) / static_cast<double>(sums.size());
    for (const float x : sums) variance += (x - mean) * (x - mean);
    variance /= static_cast<double>(sums.size() - 1);
    // Binomial: 1000 trials of 2 with p = 1/4. Four standard errors of mean and variance.
    const double wanted = 4.0 * 1000 * 0.25 * 0.75, count = static_cast<double>(sums.size());
    EXPECT_NEAR(mean, 2048 + 500, 4 * std::sqrt(wanted / count)) << how;
    EXPECT_NEAR(variance, wanted, 4 * wanted * std::sqrt(2 / count)) << how;
  }
  for (const float x : many_sums("format", terms, 0)) ASSERT_EQ(x, 2048.0f);
  for (const float x : many_sums("format:rounding=up", terms, 0)) ASSERT_EQ(x, 2048.0f + 2 * terms);
}

TEST(RoundedSums, ElementsAndKeysDrawIndependently) {
  const Floats one = many_sums("format:rounding=stochastic", 1000, 1);
  const Floats other = many_sums("format:rounding=stochastic", 1000, 2);
  const Floats again = many_sums("format:rounding=stochastic", 1000, 1);
  EXPECT_EQ(one, again);
  const double n = static_cast<double>(one.size());
  double between = 0, neighbours = 0, below = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    between += (one[i] - 2548.0) * (other[i] - 2548.0) / 750.0 / n;
    neighbours += (one[i] - 2548.0) * (one[(i + 1) % one.size()] - 2548.0) / 750.0 / n;
    below += (one[i] - 2548.0) * (one[(i + 64) % one.size()] - 2548.0) / 750.0 / n;
  }
  EXPECT_LT(std::fabs(between), 4 / std::sqrt(n));
  EXPECT_LT(std::fabs(neighbours), 4 / std::sqrt(n));
  EXPECT_LT(std::fabs(below), 4 / std::sqrt(n));
}

TEST(RoundedSums, Names) {
  for (const char* text :
       {"format:rounding=stochastic", "format:promote=128,rounding=stochastic:8",
        "format-mul-add:rounding=toward-zero,promote=128", "format:rounding=odd,split-k=2"}) {
    const std::optional<Accumulation> how = parse_accumulation(text);
    ASSERT_TRUE(how) << text;
    EXPECT_EQ(parse_accumulation(accumulation_name(*how)), how) << text;
  }
  EXPECT_EQ(accumulation_name(*parse_accumulation("format:promote=128,rounding=stochastic:8")),
            "format:rounding=stochastic:8,promote=128");
  EXPECT_EQ(parse_accumulation("format:rounding=nearest-even"), Accumulation(Accumulation::format));
  for (const char* text :
       {"fp32:rounding=up", "kahan:rounding=stochastic", "fma32-then-round:rounding=up",
        "tensor-core:h100,rounding=up", "format:rounding=", "format:rounding=nearest",
        "format:rounding=stochastic:33", "format:rounding=up,rounding=down", "format:rounding"}) {
    EXPECT_FALSE(parse_accumulation(text)) << text;
  }
}

}  // namespace
}  // namespace halfscope::testing
