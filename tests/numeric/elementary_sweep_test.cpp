// SPDX-License-Identifier: MIT
// Elementary functions of all 2^32 fp32 numbers, rounded to fp32, compared with the correctly
// rounded ones. MPFR checks only results so close to the middle of two floats that an error of a
// few units of double could matter; the others are right as long as elementary_mpfr_test.cpp
// passes. There is only one implementation, so the number of wrong results is known exactly.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/elementary/inverse.h"

namespace halfscope {
namespace {

constexpr int64_t kBlock = 1 << 12;

struct Function {
  const char* name;
  void (*block)(const float* x, double* y);  ///< kBlock elements
  int (*oracle)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
  int64_t wrong;  ///< doubles so near to a tie of floats that no digit is left to break it
};

template <double (*kFunction)(double)>
void block_of(const float* x, double* y) {
  for (int64_t i = 0; i < kBlock; ++i) y[i] = kFunction(static_cast<double>(x[i]));
}

// MPFR declares some of these as macros.
const Function kFunctions[] = {
    {"exp", block_of<elementary::exp>,
     [](auto y, auto x, auto mode) { return mpfr_exp(y, x, mode); }, 0},
    {"expm1", block_of<elementary::expm1>,
     [](auto y, auto x, auto mode) { return mpfr_expm1(y, x, mode); }, 0},
    {"log", block_of<elementary::log>,
     [](auto y, auto x, auto mode) { return mpfr_log(y, x, mode); }, 5},
    {"log1p", block_of<elementary::log1p>,
     [](auto y, auto x, auto mode) { return mpfr_log1p(y, x, mode); }, 9},
    {"tanh", block_of<elementary::tanh>,
     [](auto y, auto x, auto mode) { return mpfr_tanh(y, x, mode); }, 0},
    {"erf", block_of<elementary::erf>,
     [](auto y, auto x, auto mode) { return mpfr_erf(y, x, mode); }, 0},
    {"erfc", block_of<elementary::erfc>,
     [](auto y, auto x, auto mode) { return mpfr_erfc(y, x, mode); }, 1},
    {"sin", block_of<elementary::sin>,
     [](auto y, auto x, auto mode) { return mpfr_sin(y, x, mode); }, 2},
    {"cos", block_of<elementary::cos>,
     [](auto y, auto x, auto mode) { return mpfr_cos(y, x, mode); }, 4},
    {"asin", block_of<elementary::asin>,
     [](auto y, auto x, auto mode) { return mpfr_asin(y, x, mode); }, 0},
    {"acos", block_of<elementary::acos>,
     [](auto y, auto x, auto mode) { return mpfr_acos(y, x, mode); }, 2},
    {"atan", block_of<elementary::atan>,
     [](auto y, auto x, auto mode) { return mpfr_atan(y, x, mode); }, 2},
    {"asinh", block_of<elementary::asinh>,
     [](auto y, auto x, auto mode) { return mpfr_asinh(y, x, mode); }, 6},
    {"acosh", block_of<elementary::acosh>,
     [](auto y, auto x, auto mode) { return mpfr_acosh(y, x, mode); }, 2},
    {"atanh", block_of<elementary::atanh>,
     [](auto y, auto x, auto mode) { return mpfr_atanh(y, x, mode); }, 0},
};

/// In 200 bits, a function of a float is never close to the middle of two floats without being
/// exactly the middle.
float correctly_rounded(const Function& f, float argument) {
  mpfr_t x, y;
  mpfr_init2(x, 24);
  mpfr_init2(y, 200);
  mpfr_set_flt(x, argument, MPFR_RNDN);
  f.oracle(y, x, MPFR_RNDN);
  const float result = mpfr_get_flt(y, MPFR_RNDN);
  mpfr_clear(x);
  mpfr_clear(y);
  return result;
}

class ElementarySweep : public ::testing::TestWithParam<Function> {};

TEST_P(ElementarySweep, AllFloatsAreRoundedCorrectlyButFew) {
  const Function& f = GetParam();
  int64_t close = 0, wrong = 0;
#pragma omp parallel reduction(+ : close, wrong)
  {
    std::vector<float> x(kBlock), below(kBlock), above(kBlock);
    std::vector<double> y(kBlock);
#pragma omp for schedule(dynamic, 64)
    for (int64_t first = 0; first < int64_t{1} << 32; first += kBlock) {
      for (int64_t i = 0; i < kBlock; ++i) {
        x[static_cast<size_t>(i)] = std::bit_cast<float>(static_cast<uint32_t>(first + i));
      }
      f.block(x.data(), y.data());
      for (size_t i = 0; i < kBlock; ++i) {
        below[i] = static_cast<float>(y[i] * (1.0 - 0x1p-50));
        above[i] = static_cast<float>(y[i] * (1.0 + 0x1p-50));
      }
      for (size_t i = 0; i < kBlock; ++i) {
        if (below[i] == above[i] || std::isnan(y[i])) continue;
        ++close;
        wrong += static_cast<float>(y[i]) != correctly_rounded(f, x[i]) ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(wrong, f.wrong);
  EXPECT_GT(close, 0);
  RecordProperty("close", std::to_string(close));
}

INSTANTIATE_TEST_SUITE_P(Functions, ElementarySweep, ::testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace halfscope
