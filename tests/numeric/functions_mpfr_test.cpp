// SPDX-License-Identifier: MIT
// Functions built from elementary ones, and their gradients, compared with their definitions in 600
// bits, where no intermediate result cancels or overflows. For all numbers of bf16 and fp16 (for
// small ones, where the functions are nearly linear, a part), and samples of fp32.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "core/numeric/elementary/functions.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round_odd.h"

namespace halfscope {
namespace {

class Real {
 public:
  Real(double x = 0) {  // NOLINT: as a number
    mpfr_init2(x_, 600);
    mpfr_set_d(x_, x, MPFR_RNDN);
  }
  Real(const Real& other) : Real() { mpfr_set(x_, other.x_, MPFR_RNDN); }
  Real& operator=(const Real& other) {
    mpfr_set(x_, other.x_, MPFR_RNDN);
    return *this;
  }
  ~Real() { mpfr_clear(x_); }
  mpfr_ptr get() { return x_; }
  mpfr_srcptr get() const { return x_; }
  /// Rounded to odd, so that one more rounding is the only one.
  double to_odd() const {
    double toward_zero = mpfr_get_d(x_, MPFR_RNDZ);
    const bool inexact = mpfr_cmp_d(x_, toward_zero) != 0;
    return inexact ? std::bit_cast<double>(std::bit_cast<uint64_t>(toward_zero) | 1) : toward_zero;
  }

 private:
  mpfr_t x_;
};

template <class F>
Real made(const F& f) {
  Real y;
  f(y.get());
  return y;
}
Real operator+(const Real& a, const Real& b) {
  return made([&](mpfr_ptr y) { mpfr_add(y, a.get(), b.get(), MPFR_RNDN); });
}
Real operator-(const Real& a, const Real& b) {
  return made([&](mpfr_ptr y) { mpfr_sub(y, a.get(), b.get(), MPFR_RNDN); });
}
Real operator*(const Real& a, const Real& b) {
  return made([&](mpfr_ptr y) { mpfr_mul(y, a.get(), b.get(), MPFR_RNDN); });
}
Real operator/(const Real& a, const Real& b) {
  return made([&](mpfr_ptr y) { mpfr_div(y, a.get(), b.get(), MPFR_RNDN); });
}
Real exp_of(const Real& x) {
  return made([&](mpfr_ptr y) { mpfr_exp(y, x.get(), MPFR_RNDN); });
}
Real log_of(const Real& x) {
  return made([&](mpfr_ptr y) { mpfr_log(y, x.get(), MPFR_RNDN); });
}
Real tanh_of(const Real& x) {
  return made([&](mpfr_ptr y) { mpfr_tanh(y, x.get(), MPFR_RNDN); });
}
Real erf_of(const Real& x) {
  return made([&](mpfr_ptr y) { mpfr_erf(y, x.get(), MPFR_RNDN); });
}
Real root_of(const Real& x) {
  return made([&](mpfr_ptr y) { mpfr_sqrt(y, x.get(), MPFR_RNDN); });
}
Real pi() {
  return made([](mpfr_ptr y) { mpfr_const_pi(y, MPFR_RNDN); });
}
Real sigmoid(const Real& x) { return Real(1) / (Real(1) + exp_of(Real(0) - x)); }
Real softplus(const Real& x) { return log_of(Real(1) + exp_of(x)); }
Real tanh_argument(const Real& x) {
  return root_of(Real(2) / pi()) * (x + Real(fn::kGeluCubic) * x * x * x);
}
Real one_minus_square(const Real& x) { return Real(1) - x * x; }

struct Definition {
  const char* name;
  std::function<double(double)> ours;
  std::function<Real(const Real&)> definition;
};

std::vector<Definition> functions() {
  const Real half(0.5), one(1);
  const auto slope_of_tanh_argument = [=](const Real& x) {
    return root_of(Real(2) / pi()) * (one + Real(3) * Real(fn::kGeluCubic) * x * x);
  };
  return {
      {"Sigmoid", fn::Sigmoid{}, sigmoid},
      {"Softplus", fn::Softplus{}, softplus},
      {"LogSigmoid", fn::LogSigmoid{}, [](const Real& x) { return log_of(sigmoid(x)); }},
      {"Elu", fn::Elu{.alpha = 0.75},
       [=](const Real& x) { return mpfr_sgn(x.get()) > 0 ? x : Real(0.75) * (exp_of(x) - one); }},
      {"Mish", fn::Mish{}, [](const Real& x) { return x * tanh_of(softplus(x)); }},
      {"Swish", fn::Swish{}, [](const Real& x) { return x * sigmoid(x); }},
      {"Swish, alpha", fn::Swish{.alpha = 1.75},
       [](const Real& x) { return x * sigmoid(Real(1.75) * x); }},
      {"Gelu", fn::Gelu{},
       [=](const Real& x) { return half * x * (one + erf_of(x / root_of(Real(2)))); }},
      {"Gelu, tanh", fn::Gelu{.tanh = true},
       [=](const Real& x) { return half * x * (one + tanh_of(tanh_argument(x))); }},
      {"SoftplusGrad", [](double x) { return fn::SoftplusGrad{}(1, x); }, sigmoid},
      {"LogSigmoidGrad", [](double x) { return fn::LogSigmoidGrad{}(1, x); },
       [=](const Real& x) { return sigmoid(Real(0) - x); }},
      {"EluGrad", [](double x) { return fn::EluGrad{.alpha = 0.75}(1, x); },
       [=](const Real& x) { return mpfr_sgn(x.get()) > 0 ? one : Real(0.75) * exp_of(x); }},
      {"ErfGrad", [](double x) { return fn::ErfGrad{}(1, x); },
       [](const Real& x) { return Real(2) / root_of(pi()) * exp_of(Real(0) - x * x); }},
      {"AsinGrad", [](double x) { return fn::AsinGrad{}(1, x); },
       [=](const Real& x) { return one / root_of(one_minus_square(x)); }},
      {"AcosGrad", [](double x) { return fn::AcosGrad{}(1, x); },
       [=](const Real& x) { return Real(0) - one / root_of(one_minus_square(x)); }},
      {"AtanGrad", [](double x) { return fn::AtanGrad{}(1, x); },
       [=](const Real& x) { return one / (one + x * x); }},
      {"AsinhGrad", [](double x) { return fn::AsinhGrad{}(1, x); },
       [=](const Real& x) { return one / root_of(one + x * x); }},
      {"AcoshGrad", [](double x) { return fn::AcoshGrad{}(1, x); },
       [=](const Real& x) { return one / root_of(x * x - one); }},
      {"AtanhGrad", [](double x) { return fn::AtanhGrad{}(1, x); },
       [=](const Real& x) { return one / one_minus_square(x); }},
      {"MishGrad", [](double x) { return fn::MishGrad{}(1, x); },
       [](const Real& x) {
         const Real t = tanh_of(softplus(x));
         return t + x * one_minus_square(t) * sigmoid(x);
       }},
      {"SwishGrad", [](double x) { return fn::SwishGrad{}(1, x); },
       [=](const Real& x) {
         const Real s = sigmoid(x);
         return s * (one + x * (one - s));
       }},
      {"GeluGrad", [](double x) { return fn::GeluGrad{}(1, x); },
       [=](const Real& x) {
         const Real density = exp_of(Real(-0.5) * x * x) / root_of(Real(2) * pi());
         return half * (one + erf_of(x / root_of(Real(2)))) + x * density;
       }},
      {"GeluGrad, tanh", [](double x) { return fn::GeluGrad{.tanh = true}(1, x); },
       [=](const Real& x) {
         const Real t = tanh_of(tanh_argument(x));
         return half * (one + t) + half * x * one_minus_square(t) * slope_of_tanh_argument(x);
       }},
  };
}

/// Beyond 2^12 the definitions would need more bits.
bool usable(float x) { return std::fabs(x) <= 4096 && x != 0; }

TEST(FunctionsAgainstMpfr, HalfAndBfloatAreRoundedCorrectly) {
  for (const FloatFormat& format : {kBf16, kFp16}) {
    for (const Definition& f : functions()) {
      int64_t wrong = 0;
      for (uint32_t code = 0; code < 0x10000; ++code) {
        const float x = decode(code, format);
        if (!usable(x) || (std::fabs(x) < 0x1p-6f && code % 16 != 0)) continue;
        const double want = f.definition(Real(static_cast<double>(x))).to_odd();
        const float expected = round_to_format(round_to_odd(want), format).value;
        const float got =
            round_to_format(deliver(f.ours(static_cast<double>(x)), format), format).value;
        const bool outside = std::isnan(got) && std::isnan(expected);  // of the domain
        if (got != expected && !outside && wrong++ < 3) {
          ADD_FAILURE() << f.name << "(" << x << ") = " << expected << ", not " << got;
        }
      }
      EXPECT_EQ(wrong, 0) << f.name << " in " << format_name(format);
    }
  }
}

TEST(FunctionsAgainstMpfr, SamplesOfFp32) {
  std::mt19937_64 random(3);
  for (const Definition& f : functions()) {
    double worst = 0;
    for (int i = 0; i < 3000; ++i) {
      const double size = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                                     static_cast<int>(random() % 30) - 22);
      const float x = static_cast<float>(random() % 3 == 0 ? size : -size);
      const Real want = f.definition(Real(static_cast<double>(x)));
      const double near = mpfr_get_d(want.get(), MPFR_RNDN);
      if (std::fabs(near) < 0x1p-149) continue;
      const Real error = (Real(f.ours(static_cast<double>(x))) - want) / want;
      worst = std::max(worst, std::fabs(mpfr_get_d(error.get(), MPFR_RNDN)));
    }
    // A quarter of a unit in the last place of fp32; near zeros of gradients, some accuracy is
    // lost.
    EXPECT_LT(worst, 0x1p-26) << f.name;
  }
}

// Tails of the approximation by tanh, computed with mpmath in 300 digits.
TEST(FunctionsByHand, TailsOfGelu) {
  const fn::Gelu gelu{.tanh = true};
  const fn::GeluGrad slope{.tanh = true};
  struct Row {
    double x, y, gradient;
  };
  for (const Row& row : {Row{-0.5, -0.15428599017485608, 0.13263009646535769},
                         Row{-3, -0.0036373920817730192, -0.011584166630969727},
                         Row{-6.75, -4.1759483204184403e-14, -4.6774514937772015e-13},
                         Row{-8.5, -1.0174447308598319e-24, -1.7239866867738095e-23},
                         Row{-10.25, -3.4305316059528883e-40, -8.2292807600658273e-39},
                         Row{-11.5, -9.1287251610038574e-55, -2.7220795806357311e-53},
                         Row{7, 6.9999999999999977, 1.0000000000000277}}) {
    EXPECT_NEAR(gelu(row.x) / row.y, 1, 1e-13) << row.x;
    EXPECT_NEAR(slope(1, row.x) / row.gradient, 1, 1e-13) << row.x;
  }
  EXPECT_EQ(gelu(3e38), 3e38);
  EXPECT_EQ(gelu(-3e38), 0);
  EXPECT_EQ(slope(1, 3e38), 1);
  EXPECT_EQ(slope(1, -3e38), 0);
}

}  // namespace
}  // namespace halfscope
