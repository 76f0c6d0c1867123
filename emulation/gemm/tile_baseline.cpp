// SPDX-License-Identifier: MIT
// Register tiles for any processor: the vectors are small arrays. Correctness only; see
// tile_avx2.cpp and tile_avx512.cpp for speed.
#include <bit>
#include <cmath>
#include <limits>

#include "core/numeric/formats/fused.h"
#include "emulation/gemm/tile_body.h"

namespace halfscope::gemm_detail {
namespace {

float fused(float a, float b, float c) { return fused_multiply_add(a, b, c); }
/// Operands of double chains are floats, so the product is exact and one rounding remains.
double fused(double a, double b, double c) { return a * b + c; }

template <class T>
struct ArrayVector {
  using Scalar = T;
  static constexpr int kLanes = 4;
  struct Reg {
    T lane[kLanes];
  };
  template <class F>
  static Reg each(F f) {
    Reg out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = f(i);
    return out;
  }
  static Reg zero() {
    return each([](int) { return T{0}; });
  }
  static Reg broadcast(const T* p) {
    return each([=](int) { return *p; });
  }
  static Reg load(const T* p) {
    return each([=](int i) { return p[i]; });
  }
  static Reg load_some(const T* p, int n) {
    return each([=](int i) { return i < n ? p[i] : T{0}; });
  }
  static void store(T* p, const Reg& x) { store_some(p, kLanes, x); }
  static void store_some(T* p, int n, const Reg& x) {
    for (int i = 0; i < n; ++i) p[i] = x.lane[i];
  }
  // For tiles that collect diagnostics.
  using Count = int64_t;
  static Count count_none() { return 0; }
  /// Counts the lanes where a == b.
  static Count count_same(Count n, const Reg& a, const Reg& b) {
    for (int i = 0; i < kLanes; ++i) n += a.lane[i] == b.lane[i] ? 1 : 0;
    return n;
  }
  static int64_t total(Count n) { return n; }
  static Reg larger(const Reg& size, const Reg& x) {
    return each([&](int i) {
      const T other = std::fabs(x.lane[i]);
      return other > size.lane[i] ? other : size.lane[i];
    });
  }
  static Reg fma(const Reg& a, const Reg& b, const Reg& c) {
    return each([&](int i) { return fused(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static Reg add(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static Reg mul(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Reg sub(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static Reg fms(const Reg& a, const Reg& b, const Reg& c) {
    return each([&](int i) { return fused(a.lane[i], b.lane[i], -c.lane[i]); });
  }
  static Reg finite_or_zero(const Reg& x) {
    return each([&](int i) { return std::isfinite(x.lane[i]) ? x.lane[i] : T{0}; });
  }
  static Reg quiet(const Reg& x) {
    return each([&](int i) {
      return std::isnan(x.lane[i]) ? std::numeric_limits<T>::quiet_NaN() : x.lane[i];
    });
  }
  /// Converts to float. With `odd`: the nearest float or, if that is even and inexact, its
  /// neighbour on the other side; the next float is one integer away. Neither zero nor infinity is
  /// odd.
  static void deliver(float* to, int n, const Reg& x, bool odd) {
    for (int i = 0; i < n; ++i) {
      const float nearest = static_cast<float>(x.lane[i]);
      uint32_t bits = std::bit_cast<uint32_t>(nearest);
      if (odd && (bits & 1) == 0) {
        const T magnitude = std::fabs(x.lane[i]), back = std::fabs(static_cast<T>(nearest));
        if (magnitude > back) ++bits;
        if (magnitude < back) --bits;
      }
      to[i] = std::isnan(x.lane[i]) ? std::numeric_limits<float>::quiet_NaN()
                                    : std::bit_cast<float>(bits);
    }
  }
  static void copy(const T* from, T* to, int n) {
    for (int i = 0; i < n; ++i) to[i] = from[i];
  }
};

using FloatVector = ArrayVector<float>;

struct DoubleVector : ArrayVector<double> {
  static constexpr uint64_t kSign = uint64_t{1} << 63;
  static constexpr uint64_t kExponent = uint64_t{0x7ff} << 52;
  static uint64_t bits(double x) { return std::bit_cast<uint64_t>(x); }
  static double value(uint64_t x) { return std::bit_cast<double>(x); }
  static Reg min(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Reg max(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Reg exponent(const Reg& x) {
    return each([&](int i) { return value(bits(x.lane[i]) & kExponent); });
  }
  static Reg or_sign(const Reg& x, const Reg& sign) {
    return each([&](int i) { return value(bits(x.lane[i]) | (bits(sign.lane[i]) & kSign)); });
  }
  static Reg select_above(const Reg& x, const Reg& limit, const Reg& otherwise) {
    return each([&](int i) {
      return std::fabs(x.lane[i]) > limit.lane[i] ? otherwise.lane[i] : x.lane[i];
    });
  }
  static Reg to_odd(const Reg& s, const Reg& error) {
    return each([&](int i) {
      const uint64_t sum = bits(s.lane[i]);
      const double e = error.lane[i];
      if (e == 0 || std::isnan(e) || (sum & 1) != 0) return s.lane[i];
      return value(((sum ^ bits(e)) & kSign) != 0 ? sum - 1 : sum + 1);
    });
  }
};

template <class T>
void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, T* to,
               int64_t to_stride, bool pad) {
  const int64_t padded = pad ? (rows + 7) / 8 * 8 : rows;
  for (int64_t i = 0; i < padded; ++i) {
    const float* line = from + (i < rows ? i : rows - 1) * from_stride;
    for (int64_t j = 0; j < columns; ++j) to[j * to_stride + i] = line[j];
  }
}

}  // namespace

const KernelSet& baseline_kernels() noexcept {
  static const KernelSet set{
      make_kernels<FmaStep<FloatVector>, 4>(),       make_kernels<FmaStep<DoubleVector>, 4>(),
      make_kernels<FormatStep<DoubleVector>, 4>(),   make_kernels<MulAddStep<DoubleVector>, 4>(),
      make_kernels<ShortcutStep<DoubleVector>, 4>(), make_kernels<KahanStep<FloatVector>, 4>(),
      make_pairwise_kernels<FloatVector, 4>()};
  return set;
}

const KernelSet& baseline_noting_kernels() noexcept {
  static const KernelSet set{make_kernels<FmaStep<FloatVector>, 4, true>(),
                             make_kernels<FmaStep<DoubleVector>, 4, true>(),
                             make_kernels<FormatStep<DoubleVector>, 4, true>(),
                             make_kernels<MulAddStep<DoubleVector>, 4, true>(),
                             make_kernels<ShortcutStep<DoubleVector>, 4, true>(),
                             {},
                             {}};
  return set;
}

}  // namespace halfscope::gemm_detail
