// SPDX-License-Identifier: MIT
// Sums of products. Matrix products and the three products of a convolution are all matrix products
// here, c(i, j) = sum over k of a(i, k) * b(k, j), and operands are read in place. A source says
// where the operands are, which terms exist, and where outputs go. It has a batch of `count`
// products (of a MatMul, or the groups of a convolution), each m x n; product(p) is one of them.
// Three bodies accept any source:
//   ProductElement   one output: any accumulation except those of tensor cores
//   CoreElement      one output as a tensor core sums it, in integers: any core, on any device
//   ProductTile      64 x 64 outputs in shared memory and registers: one ascending-k chain of fp32
//                    fused multiply-adds per output, same bits as ProductElement
#pragma once

#include <cmath>
#include <cstdint>

#include "core/numeric/sums/chain.h"
#include "core/numeric/sums/tensor_core_chain.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/indexing.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Sizes of a 2-D convolution; layouts as in ONNX. `in` and `out` are the channels of one group.
struct ConvGeometry {
  int64_t batch = 1, group = 1, in = 1, height = 1;
  Divisor width = 1, out = 1;
  int64_t kernel_h = 1;
  Divisor kernel_w = 1, stride_h = 1, stride_w = 1;
  int64_t dilation_h = 1, dilation_w = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t out_height = 1;
  Divisor out_width = 1;
  Divisor pixels = out_height * out_width, taps = kernel_h * kernel_w, plane = height * width;

  /// Returns the position in x that tap l = (channel, kernel_h, kernel_w) of output j = (image,
  /// pixel) reads, or -1 on the padding.
  HS_HD int64_t input(int64_t l, int64_t j) const {
    const int64_t image = j / pixels, pixel = j - image * pixels, p = pixel / out_width;
    const int64_t channel = l / taps, tap = l - channel * taps, r = tap / kernel_w;
    const int64_t row = p * stride_h - pad_top + r * dilation_h;
    const int64_t column =
        (pixel - p * out_width) * stride_w - pad_left + (tap - r * kernel_w) * dilation_w;
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    return inside ? ((image * group * in + channel) * height + row) * width + column : -1;
  }
};

template <class T>
struct GemmSource {
  In<T> x, w;
  Out<T> y;
  int64_t m;
  Divisor n;
  int64_t k;
  int64_t a_row, a_column, b_row, b_column;  ///< strides
  int64_t count = 1;
  Strided a_batch{}, b_batch{};           ///< strides of the batch
  int64_t bias_row = 0, bias_column = 1;  ///< strides
  int64_t first = 0;                      ///< position of c(0, 0)

  HS_HD GemmSource product(int64_t p) const {
    GemmSource one = *this;
    one.x += a_batch.offset(p);
    one.w += b_batch.offset(p);
    one.first = p * m * n;
    return one;
  }

  HS_HD T a(int64_t i, int64_t l) const { return x[i * a_row + l * a_column]; }
  HS_HD T b(int64_t l, int64_t j) const { return w[l * b_row + j * b_column]; }
  HS_HD bool present(int64_t, int64_t) const { return true; }
  HS_HD int64_t bias_index(int64_t i, int64_t j) const { return i * bias_row + j * bias_column; }
  HS_HD int64_t place(int64_t i, int64_t j) const { return first + i * n + j; }
};

/// i: output channel; j: (image, pixel); k: (in, kernel_h, kernel_w). Taps on the zero padding
/// count as products with zero.
template <class T>
struct ConvSource {
  In<T> x, w;
  Out<T> y;
  int64_t m;
  Divisor n;
  int64_t k;
  ConvGeometry s;
  int64_t count = 1, group = 0;

  HS_HD ConvSource product(int64_t p) const {
    ConvSource one = *this;
    one.x += p * s.in * s.plane;
    one.w += p * m * k;
    one.group = p;
    return one;
  }
  HS_HD T a(int64_t i, int64_t l) const { return w[i * k + l]; }
  HS_HD T b(int64_t l, int64_t j) const {
    const int64_t at = s.input(l, j);
    return at < 0 ? T{0} : x[at];
  }
  HS_HD bool present(int64_t, int64_t) const { return true; }
  HS_HD int64_t bias_index(int64_t i, int64_t) const { return group * s.out + i; }
  HS_HD int64_t place(int64_t i, int64_t j) const {
    return ((j / s.pixels * s.group + group) * s.out + i) * s.pixels + j % s.pixels;
  }
};

/// i: input channel; j: (image, input pixel); k: (kernel_h, kernel_w, out). Only existing outputs
/// count, unless missing ones count as products with zero.
template <class T>
struct ConvGradInputSource {
  In<T> dy, w;
  Out<T> y;  ///< dx
  int64_t m;
  Divisor n;
  int64_t k;
  ConvGeometry s;
  bool zeros_take_part;
  int64_t count = 1, group = 0;

  HS_HD ConvGradInputSource product(int64_t p) const {
    ConvGradInputSource one = *this;
    one.dy += p * s.out * s.pixels;
    one.w += p * s.out * s.in * s.taps;
    one.group = p;
    return one;
  }

  HS_HD T a(int64_t i, int64_t l) const {
    const int64_t tap = l / s.out, channel = l % s.out;
    return w[(channel * s.in + i) * s.taps + tap];
  }
  /// Returns the output pixel that reads input pixel j through the tap of l, or -1.
  HS_HD int64_t reader(int64_t l, int64_t j) const {
    const int64_t tap = l / s.out, pixel = j % s.plane;
    const int64_t h = pixel / s.width, r = tap / s.kernel_w;
    const int64_t row = h + s.pad_top - r * s.dilation_h;
    const int64_t column = pixel - h * s.width + s.pad_left - (tap - r * s.kernel_w) * s.dilation_w;
    if (row < 0 || column < 0) return -1;
    const int64_t p = row / s.stride_h, q = column / s.stride_w;
    if (p * s.stride_h != row || q * s.stride_w != column) return -1;
    return p < s.out_height && q < s.out_width ? p * s.out_width + q : -1;
  }
  HS_HD T b(int64_t l, int64_t j) const {
    const int64_t at = reader(l, j);
    if (at < 0) return T{0};
    return dy[(j / s.plane * s.group * s.out + l % s.out) * s.pixels + at];
  }
  HS_HD bool present(int64_t l, int64_t j) const { return zeros_take_part || reader(l, j) >= 0; }
  HS_HD int64_t bias_index(int64_t, int64_t) const { return 0; }
  HS_HD int64_t place(int64_t i, int64_t j) const {
    return ((j / s.plane * s.group + group) * s.in + i) * s.plane + j % s.plane;
  }
};

/// i: output channel; j: (in, kernel_h, kernel_w); k: (image, pixel).
template <class T>
struct ConvGradWeightSource {
  In<T> dy, x;
  Out<T> y;  ///< dw
  int64_t m;
  Divisor n;
  int64_t k;
  ConvGeometry s;
  int64_t count = 1, group = 0;

  HS_HD ConvGradWeightSource product(int64_t p) const {
    ConvGradWeightSource one = *this;
    one.dy += p * s.out * s.pixels;
    one.x += p * s.in * s.plane;
    one.group = p;
    return one;
  }

  HS_HD T a(int64_t i, int64_t l) const {
    return dy[(l / s.pixels * s.group * s.out + i) * s.pixels + l % s.pixels];
  }
  HS_HD T b(int64_t l, int64_t j) const {
    const int64_t at = s.input(j, l);
    return at < 0 ? T{0} : x[at];
  }
  HS_HD bool present(int64_t, int64_t) const { return true; }
  HS_HD int64_t bias_index(int64_t, int64_t) const { return 0; }
  HS_HD int64_t place(int64_t i, int64_t j) const { return (group * m + i) * n + j; }
};

/// Calls deliver_sum() for accumulations that deliver something other than an fp32 sum.
HS_HD HS_SELDOM inline float delivered_otherwise(ChainSpec how, double sum, bool biased, float bias,
                                                 int64_t terms, int64_t element) noexcept {
  return deliver_sum(how, sum, biased ? &bias : nullptr, terms, element);
}

/// Finishes a sum: adds the bias as the accumulation defines it. If the sum is scaled, instead
/// multiplies it in fp32 by the operands' scales and alpha, and then adds beta times the bias.
template <class T>
struct Epilogue {
  ChainSpec how;
  In<T> bias = nullptr;
  bool scaled = false;
  In<T> first_scale = nullptr, second_scale = nullptr;  ///< null: 1
  T alpha = 1, beta = 1;

  /// Finishes the sum of `terms` terms for output number `element`.
  HS_HD T finish(double sum, int64_t bias_index, int64_t terms, int64_t element) const {
    const T own_bias = bias == nullptr ? T{0} : bias[bias_index];
    const T* const added = bias == nullptr ? nullptr : &own_bias;
    if (!scaled) return plain(sum, added, terms, element);
    T factor = 1;
    if (first_scale != nullptr) factor *= *first_scale;
    if (second_scale != nullptr) factor *= *second_scale;
    factor *= alpha;
    const T value = plain(sum, static_cast<const T*>(nullptr), terms, element) * factor;
    return added != nullptr ? value + beta * *added : value;
  }

 private:
  HS_HD float plain(double sum, const float* added, int64_t terms, int64_t element) const {
    const bool biased = added != nullptr;
    const float bias_or_zero = biased ? *added : 0.0f;
    if (how.is_wide() || (biased && how.sums_in_format() && how.is_single_chain())) {
      return delivered_otherwise(how, sum, biased, bias_or_zero, terms, element);
    }
    const float plain_sum = static_cast<float>(sum);
    return quiet_nan_of(biased ? plain_sum + bias_or_zero : plain_sum);
  }
  HS_HD double plain(double sum, const double* added, int64_t, int64_t) const {
    return added != nullptr ? sum + *added : sum;
  }
};

/// The factors of output (i, j).
template <class Source>
struct SourceTerms {
  Source source;
  int64_t i, j;
  HS_HD auto left(int64_t k) const { return source.a(i, k); }
  HS_HD auto right(int64_t k) const { return source.b(k, j); }
  HS_HD bool present(int64_t k) const { return source.present(k, j); }
};

/// One output; item = (p * m + i) * n + j.
template <class T, class Source>
struct ProductElement {
  Source source;
  Epilogue<T> epilogue;

  HS_HD void operator()(int64_t item) const {
    const Source one = source.product(item / (source.m * source.n));
    const int64_t i = item / source.n % source.m, j = item % source.n, at = one.place(i, j);
    const double total = sum(SourceTerms<Source>{one, i, j}, at, T{0});
    one.y[at] = epilogue.finish(total, one.bias_index(i, j), one.k, at);
  }

 private:
  HS_HD double sum(const SourceTerms<Source>& terms, int64_t element, float) const {
    return sum_of_terms(epilogue.how, terms, source.k, element);
  }
  HS_HD double sum(const SourceTerms<Source>& terms, int64_t, double) const {
    double total = 0.0;
    for (int64_t k = 0; k < source.k; ++k) {
      if (terms.present(k)) total += terms.left(k) * terms.right(k);
    }
    return total;
  }
};

/// One output; item = (p * m + i) * n + j.
template <class Source>
struct CoreElement {
  Source source;
  Epilogue<float> epilogue;
  CoreSpec how;

  HS_HD void operator()(int64_t item) const {
    const Source one = source.product(item / (source.m * source.n));
    const int64_t i = item / source.n % source.m, j = item % source.n, at = one.place(i, j);
    const float sum = tensor_core_sum(how, SourceTerms<Source>{one, i, j}, one.k);
    one.y[at] = epilogue.finish(static_cast<double>(sum), one.bias_index(i, j), one.k, at);
  }
};

/// kTile x kTile outputs by 256 threads, 4 x 4 each; k in pieces of kDepth. Steps: load, multiply,
/// load, multiply, ..., store.
template <class Source>
struct ProductTile {
  static constexpr int kTile = 64, kDepth = 16, kThreads = 256, kSide = 4;
  static constexpr int kAcross = kTile / kSide;

  Source source;
  Epilogue<float> epilogue;

  struct Shared {
    float a[kDepth][kTile + 1];  // + 1: columns start in different banks
    float b[kDepth][kTile];
    bool present[kDepth][kTile];
  };
  struct State {
    float sum[kSide][kSide];
  };

  HS_HD int64_t across() const { return ceil_div(source.n, kTile); }
  HS_HD int64_t blocks_of_one() const { return ceil_div(source.m, kTile) * across(); }
  int64_t blocks() const { return source.count * blocks_of_one(); }
  HS_HD int64_t steps() const { return 2 * ceil_div(source.k, kDepth) + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const Source one = source.product(block / blocks_of_one());
    block %= blocks_of_one();
    const int64_t first_i = block / across() * kTile, first_j = block % across() * kTile;
    if (s == 0) {
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) state.sum[i][j] = 0.0f;
      }
    }
    if (s + 1 == steps()) {
      store(one, first_i, first_j, thread, state);
    } else if (s % 2 == 0) {
      load(one, s / 2 * kDepth, first_i, first_j, thread, shared);
    } else {
      multiply(s / 2 * kDepth, thread, shared, state);
    }
  }

 private:
  HS_HD void load(const Source& one, int64_t first_k, int64_t first_i, int64_t first_j, int thread,
                  Shared& shared) const {
    for (int at = thread; at < kDepth * kTile; at += kThreads) {
      // Adjacent threads read along k for a and along j for b, which is mostly adjacent in memory.
      const int ka = at % kDepth, i = at / kDepth, kb = at / kTile, j = at % kTile;
      const bool has_a = first_i + i < one.m && first_k + ka < one.k;
      shared.a[ka][i] = has_a ? one.a(first_i + i, first_k + ka) : 0.0f;
      const bool has_b = first_j + j < one.n && first_k + kb < one.k;
      shared.b[kb][j] = has_b ? one.b(first_k + kb, first_j + j) : 0.0f;
      shared.present[kb][j] = has_b && one.present(first_k + kb, first_j + j);
    }
  }
  HS_HD void multiply(int64_t first_k, int thread, const Shared& shared, State& state) const {
    const int row = thread / kAcross * kSide, column = thread % kAcross * kSide;
    const int depth = static_cast<int>(smaller(kDepth, source.k - first_k));
    for (int k = 0; k < depth; ++k) {
      for (int j = 0; j < kSide; ++j) {
        if (!shared.present[k][column + j]) continue;
        for (int i = 0; i < kSide; ++i) {
          state.sum[i][j] =
              std::fma(shared.a[k][row + i], shared.b[k][column + j], state.sum[i][j]);
        }
      }
    }
  }
  HS_HD void store(const Source& one, int64_t first_i, int64_t first_j, int thread,
                   const State& state) const {
    for (int di = 0; di < kSide; ++di) {
      for (int dj = 0; dj < kSide; ++dj) {
        const int64_t i = first_i + thread / kAcross * kSide + di;
        const int64_t j = first_j + thread % kAcross * kSide + dj;
        if (i >= one.m || j >= one.n) continue;
        const int64_t at = one.place(i, j);
        one.y[at] = epilogue.finish(static_cast<double>(state.sum[di][dj]), one.bias_index(i, j),
                                    one.k, at);
      }
    }
  }
};

}  // namespace halfscope::gpu
