// SPDX-License-Identifier: MIT
// Slow and obvious versions of gemm.h to compare with bit for bit, and the loops over instruction
// sets and thread counts that every comparison runs in.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/numeric/formats/round.h"
#include "emulation/gemm/gemm.h"
#include "emulation/isa.h"

namespace halfscope::testing {

/// One chain of the documented kind: steps in order, the bias last, then the delivery.
class OracleChain {
 public:
  explicit OracleChain(const SumSpec& spec) : spec_(spec) {}
  void add(float a, float b) {
    const double product = static_cast<double>(a) * b;
    switch (spec_.accumulation.kind) {
      case Accumulation::Kind::fp32:
        single_ = std::fma(a, b, single_);
        break;
      case Accumulation::Kind::fp64:
        wide_ += product;
        break;
      case Accumulation::Kind::pairwise:
        products_.push_back(a * b);
        break;
      case Accumulation::Kind::interleaved16:
        deal_out(a, b);
        break;
      case Accumulation::Kind::kahan:
        add_compensated(a, b);
        break;
      case Accumulation::Kind::format:
        round_sum(product);
        break;
      case Accumulation::Kind::format_mul_add:
        round_sum(round_to_format(product, spec_.write).value);
        break;
      case Accumulation::Kind::fma32_then_round:
        wide_ = round_to_format(std::fma(a, b, static_cast<float>(wide_)), spec_.write).value;
        break;
      case Accumulation::Kind::tensor_core:
        FAIL() << "tensor cores have oracles of their own";
    }
  }
  void bias(float b) {
    if (spec_.accumulation == Accumulation::fp64) {
      wide_ += b;
    } else if (spec_.accumulation.kind == Accumulation::fma32_then_round) {
      wide_ = round_to_format(b + static_cast<float>(wide_), spec_.write).value;
    } else if (spec_.accumulation.kind == Accumulation::format_mul_add) {
      round_sum(round_to_format(b, spec_.write).value);
    } else if (spec_.accumulation.kind == Accumulation::format) {
      round_sum(b);
    } else {
      bias_ = b;
    }
  }
  /// The accumulator, of kinds that have one.
  double value() const {
    return spec_.accumulation.kind == Accumulation::fp32 ? static_cast<double>(single_) : wide_;
  }
  float result() const {
    const auto with_bias = [&](float sum) { return bias_ ? sum + *bias_ : sum; };
    if (spec_.accumulation.kind == Accumulation::pairwise) return with_bias(level_by_level());
    if (spec_.accumulation.kind == Accumulation::interleaved16) return with_bias(in_halves(0, 1));
    if (spec_.accumulation == Accumulation::fp32 ||
        spec_.accumulation.kind == Accumulation::kahan) {
      return with_bias(single_);
    }
    if (spec_.accumulation == Accumulation::fp64 && spec_.write != kFp32) return odd(wide_);
    return static_cast<float>(wide_);
  }

 private:
  // Quadruple precision has 113 bits. That is enough for the exact sum of a product of floats and a
  // value of a format, unless they are far apart. Then the lost part only matters if the rest is a
  // tie, so it is kept visible in the last bit (round to odd).
  void round_sum(double product) {
    if (!std::isfinite(product) || !std::isfinite(wide_)) {
      wide_ = round_to_format(product + wide_, spec_.write).value;
      return;
    }
    const __float128 exact = static_cast<__float128>(product) + wide_;
    const __float128 lost = (product - (exact - wide_)) + (wide_ - (exact - (exact - wide_)));
    double near = static_cast<double>(exact);
    __float128 rest = exact - near;
    if (rest == 0) rest = lost;
    if (rest != 0 && (std::bit_cast<uint64_t>(near) & 1) == 0) {
      near = std::nextafter(near, rest > 0 ? INFINITY : -INFINITY);
    }
    if (exact == 0 && lost == 0) near = product + wide_;  // the sign of zero
    wide_ = round_to_format(near, spec_.write).value;
  }
  /// Neighbours are added until one is left; the odd one out waits for the next level.
  float level_by_level() const {
    std::vector<float> level = products_;
    while (level.size() > 1) {
      std::vector<float> next;
      for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
      if (level.size() % 2 == 1) next.push_back(level.back());
      level = next;
    }
    return level.empty() ? 0.0f : level[0];
  }
  void deal_out(float a, float b) {
    float& sum = dealt_[static_cast<size_t>(count_++ % 16)];
    sum = std::fma(a, b, sum);
  }
  /// The sum of partial sums first, first + step, ...: those at even and at odd places, added.
  float in_halves(size_t first, size_t step) const {
    if (step == 16) return dealt_[first];
    return in_halves(first, 2 * step) + in_halves(first + step, 2 * step);
  }
  void add_compensated(float a, float b) {
    const volatile float y = std::fma(a, b, -lost_);
    const volatile float t = single_ + y;
    const volatile float grown = t - single_;
    lost_ = std::isfinite(t) ? grown - y : 0.0f;
    single_ = t;
  }
  static float odd(double x) {
    float near = static_cast<float>(x);
    if (std::isnan(x) || static_cast<double>(near) == x) return near;
    // Truncate towards zero, then set the last bit.
    if (std::fabs(static_cast<double>(near)) > std::fabs(x)) near = std::nextafter(near, 0.0f);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(near) | 1u);
  }
  SumSpec spec_;
  float single_ = 0, lost_ = 0;
  std::vector<float> products_;
  std::array<float, 16> dealt_{};
  int64_t count_ = 0;
  std::optional<float> bias_;
  double wide_ = 0;
};

inline std::vector<float> oracle_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                                      const float* bias, const SumSpec& spec) {
  std::vector<float> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      OracleChain chain(spec);
      for (int64_t l = 0; l < k; ++l) {
        chain.add(a.data[i * a.row_stride + l * a.column_stride],
                  b.data[l * b.row_stride + j * b.column_stride]);
      }
      if (bias != nullptr) chain.bias(bias[j]);
      c[i * n + j] = chain.result();
    }
  }
  return c;
}

/// Returns the index of the input element for output pixel and tap, or -1 on the padding.
inline int64_t input_index(const ConvShape& s, int64_t n, int64_t c, int64_t oh, int64_t ow,
                           int64_t kh, int64_t kw) {
  const int64_t h = oh * s.stride_h - s.pad_top + kh * s.dilation_h;
  const int64_t w = ow * s.stride_w - s.pad_left + kw * s.dilation_w;
  if (h < 0 || h >= s.height || w < 0 || w >= s.width) return -1;
  return ((n * s.in + c) * s.height + h) * s.width + w;
}

inline std::vector<float> oracle_forward(const ConvShape& s, const float* x, const float* w,
                                         const float* bias, const SumSpec& spec) {
  std::vector<float> y;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t o = 0; o < s.out; ++o)
      for (int64_t oh = 0; oh < s.out_height(); ++oh)
        for (int64_t ow = 0; ow < s.out_width(); ++ow) {
          OracleChain chain(spec);
          for (int64_t c = 0; c < s.in; ++c)
            for (int64_t kh = 0; kh < s.kernel_h; ++kh)
              for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
                const int64_t at = input_index(s, n, c, oh, ow, kh, kw);
                chain.add(w[((o * s.in + c) * s.kernel_h + kh) * s.kernel_w + kw],
                          at < 0 ? 0.0f : x[at]);
              }
          if (bias != nullptr) chain.bias(bias[o]);
          y.push_back(chain.result());
        }
  return y;
}

/// For an input gradient: returns whether missing taps are products with zero (gemm.h).
inline bool takes_missing_taps(const SumSpec& spec) {
  return spec.accumulation.kind == Accumulation::pairwise ||
         spec.accumulation.kind == Accumulation::interleaved16 ||
         spec.accumulation.kind == Accumulation::kahan;
}

inline std::vector<float> oracle_grad_input(const ConvShape& s, const float* dy, const float* w,
                                            const SumSpec& spec) {
  std::vector<OracleChain> chains(static_cast<size_t>(s.batch * s.in * s.height * s.width),
                                  OracleChain(spec));
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t c = 0; c < s.in; ++c)
      for (int64_t kh = 0; kh < s.kernel_h; ++kh)
        for (int64_t kw = 0; kw < s.kernel_w; ++kw)
          for (int64_t o = 0; o < s.out; ++o) {
            const float weight = w[((o * s.in + c) * s.kernel_h + kh) * s.kernel_w + kw];
            std::set<int64_t> reached;
            for (int64_t oh = 0; oh < s.out_height(); ++oh)
              for (int64_t ow = 0; ow < s.out_width(); ++ow) {
                const int64_t at = input_index(s, n, c, oh, ow, kh, kw);
                if (at < 0) continue;
                chains[at].add(dy[((n * s.out + o) * s.out_height() + oh) * s.out_width() + ow],
                               weight);
                reached.insert(at);
              }
            if (!takes_missing_taps(spec)) continue;
            const int64_t plane = s.height * s.width, first = (n * s.in + c) * plane;
            for (int64_t at = first; at < first + plane; ++at) {
              if (!reached.contains(at)) chains[at].add(0.0f, weight);
            }
          }
  std::vector<float> dx;
  for (const OracleChain& chain : chains) dx.push_back(chain.result());
  return dx;
}

inline std::vector<float> oracle_grad_weight(const ConvShape& s, const float* x, const float* dy,
                                             const SumSpec& spec) {
  std::vector<float> dw;
  for (int64_t o = 0; o < s.out; ++o)
    for (int64_t c = 0; c < s.in; ++c)
      for (int64_t kh = 0; kh < s.kernel_h; ++kh)
        for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
          OracleChain chain(spec);
          for (int64_t n = 0; n < s.batch; ++n)
            for (int64_t oh = 0; oh < s.out_height(); ++oh)
              for (int64_t ow = 0; ow < s.out_width(); ++ow) {
                const int64_t at = input_index(s, n, c, oh, ow, kh, kw);
                chain.add(at < 0 ? 0.0f : x[at],
                          dy[((n * s.out + o) * s.out_height() + oh) * s.out_width() + ow]);
              }
          dw.push_back(chain.result());
        }
  return dw;
}

inline std::vector<float> oracle_sum_except(int64_t outer, int64_t n, int64_t inner, const float* x,
                                            const SumSpec& spec) {
  std::vector<float> out;
  for (int64_t j = 0; j < n; ++j) {
    OracleChain chain(spec);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) chain.add(x[(o * n + j) * inner + i], 1.0f);
    out.push_back(chain.result());
  }
  return out;
}

/// Reproducible values with both signs; `wide` spreads the exponents and adds zeros.
class Values {
 public:
  explicit Values(uint32_t seed, bool wide = false, FloatFormat format = kFp32)
      : engine_(seed), wide_(wide), format_(format) {}
  std::vector<float> operator()(int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = next();
    return out;
  }

 private:
  float next() {
    const double unit = static_cast<double>(engine_()) / 4294967296.0 * 2 - 1;
    double scale = 1;
    if (wide_) {
      if (engine_() % 16 == 0) return engine_() % 2 ? 0.0f : -0.0f;
      scale = std::ldexp(1.0, static_cast<int>(engine_() % 40) - 26);
    }
    return round_to_format(static_cast<float>(unit * scale), format_).value;
  }
  std::mt19937 engine_;
  bool wide_;
  FloatFormat format_;
};

/// Same bits, where every NaN counts as the quiet one.
inline void expect_same(const std::vector<float>& expected, const std::vector<float>& actual,
                        const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    const uint32_t want =
        std::isnan(expected[i]) ? 0x7fc00000u : std::bit_cast<uint32_t>(expected[i]);
    ASSERT_EQ(want, std::bit_cast<uint32_t>(actual[i]))
        << what << " element " << i << ": " << expected[i] << " != " << actual[i];
  }
}

/// Runs f(description) for every instruction set of this machine and several numbers of threads.
template <class F>
void everywhere(F f, std::initializer_list<int> thread_counts = {1, 2, 3}) {
  const Isa before = active_isa();
  const int threads_before = omp_get_max_threads();
  for (const Isa isa : supported_isas()) {
    for (const int threads : thread_counts) {
      set_active_isa(isa);
      omp_set_num_threads(threads);
      f(std::string(isa_name(isa)) + ", " + std::to_string(threads) + " threads");
    }
  }
  set_active_isa(before);
  omp_set_num_threads(threads_before);
}

inline std::vector<SumSpec> all_specs() {
  return {{Accumulation::fp32, kFp32},
          {Accumulation::fp64, kFp32},
          {Accumulation::fp64, kFp16},
          {Accumulation::format, kFp16},
          {Accumulation::format, kBf16},
          {Accumulation::format, kE4m3fn},
          {Accumulation::format, kFp32},
          {Accumulation::pairwise, kFp16},
          {Accumulation::interleaved16, kFp16},
          {Accumulation::kahan, kFp32},
          {Accumulation::format_mul_add, kFp16},
          {Accumulation::format_mul_add, kE5m2},
          {Accumulation::format_mul_add, kFp32},
          {Accumulation::fma32_then_round, kFp16},
          {Accumulation::fma32_then_round, kBf16}};
}

inline std::string spec_name(const SumSpec& spec) {
  return std::string(accumulation_name(spec.accumulation)) + " to e" +
         std::to_string(spec.write.exponent_bits) + "m" + std::to_string(spec.write.mantissa_bits);
}

}  // namespace halfscope::testing
