// SPDX-License-Identifier: MIT
#include "emulation/gemm/model_products.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/accumulate.h"
#include "emulation/gemm/block_product.h"
#include "emulation/gemm/driver.h"

namespace halfscope::gemm_detail {
namespace {

/// Rows of k elements each.
struct Rows {
  const float* data;
  int64_t k;
  std::span<const float> operator[](int64_t row) const {
    return {data + row * k, static_cast<size_t>(k)};
  }
};

/// Computes the diagnostics of that product with the reference.
SumDiagnostics diagnose_rows(int64_t m, int64_t n, const Rows& a, const Rows& b,
                             const SumSpec& spec) {
  std::vector<SumDiagnostics> rows(static_cast<size_t>(m));
  for_each_in_turn(threads_for(m * n * a.k), m, 1, [&](int64_t i) {
    for (int64_t j = 0; j < n; ++j) {
      rows[static_cast<size_t>(i)].merge(diagnose_sum(spec, a[i], b[j]).value_or(SumDiagnostics{}));
    }
  });
  SumDiagnostics all;
  for (const SumDiagnostics& row : rows) all.merge(row);
  return all;
}

bool is_interleaved(const SumSpec& spec) {
  return spec.accumulation == Accumulation(Accumulation::interleaved16);
}

/// Computes a product under interleaved16: kPartialSums products of fp32 chains, each over every
/// kPartialSums-th k. In this order, sums that belong together in the tree meet like the digits of
/// a binary counter, so that few are in memory at a time.
void interleaved_product(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                         const ResultView& c) {
  constexpr int64_t kOrder[kPartialSums] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
  std::vector<std::vector<float>> waiting;
  for (int turn = 0; turn < kPartialSums; ++turn) {
    const int64_t first = std::min(kOrder[turn], k);
    std::vector<float> sums(static_cast<size_t>(m * n));
    tiled_gemm(m, n, (k - first + kPartialSums - 1) / kPartialSums,
               {a.data + first * a.column_stride, a.row_stride, kPartialSums * a.column_stride},
               {b.data + first * b.row_stride, kPartialSums * b.row_stride, b.column_stride},
               nullptr, nullptr, sums.data(), SumSpec{}, {0, n, 1}, nullptr);
    for (int digits = turn; digits % 2 != 0; digits /= 2) {
      const std::vector<float>& other = waiting.back();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] = other[i] + sums[i];
      waiting.pop_back();
    }
    waiting.push_back(std::move(sums));
  }
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = waiting.back()[static_cast<size_t>(i * n + j)];
      if (c.row_bias != nullptr) {
        sum += c.row_bias[i];
      } else if (c.column_bias != nullptr) {
        sum += c.column_bias[j];
      }
      const bool is_nan = sum != sum;
      c.data[i * c.row_stride + j * c.column_stride] =
          is_nan ? std::numeric_limits<float>::quiet_NaN() : sum;
    }
  }
}

/// Computes c(i, j) = sum over k of a[i] * b[j].
void product_of_rows(int64_t m, int64_t n, const Rows& a, const Rows& b, const ResultView& c,
                     const SumSpec& spec, SumDiagnostics* diagnostics) {
  if (m <= 0 || n <= 0) return;
  if (a.k > 0 && has_block_tiles(spec, diagnostics != nullptr)) {
    block_product(m, n, a.k, {a.data, a.k, 1}, {b.data, 1, b.k}, c, spec, diagnostics);
    return;
  }
  if (is_interleaved(spec)) {
    interleaved_product(m, n, a.k, {a.data, a.k, 1}, {b.data, 1, b.k}, c);
    if (diagnostics != nullptr) *diagnostics = diagnose_rows(m, n, a, b, spec);
    return;
  }
  if (has_tiles(spec) && c.column_stride == 1) {
    std::vector<float> memory;
    float* to = c.data;
    if (c.row_stride != n) {
      memory.resize(static_cast<size_t>(m * n));
      to = memory.data();
    }
    tiled_gemm(m, n, a.k, {a.data, a.k, 1}, {b.data, 1, b.k}, c.row_bias, c.column_bias, to, spec,
               {c.first, c.row_stride, c.column_stride}, diagnostics);
    for (int64_t i = 0; to != c.data && i < m; ++i) {
      std::copy_n(to + i * n, n, c.data + i * c.row_stride);
    }
    return;
  }
  for_each_on(threads_for(m * n * std::max<int64_t>(a.k, 1)), m * n, [&](int64_t item) {
    const int64_t i = item / n, j = item % n;
    const float* bias = c.row_bias != nullptr      ? c.row_bias + i
                        : c.column_bias != nullptr ? c.column_bias + j
                                                   : nullptr;
    const int64_t at = i * c.row_stride + j * c.column_stride;
    c.data[at] = sum_of_products(spec, a[i], b[j], bias, c.first + at);
  });
  if (diagnostics != nullptr) *diagnostics = diagnose_rows(m, n, a, b, spec);
}

/// Returns the lines of a matrix along k as contiguous rows, copied if necessary.
Rows lines_of(int64_t lines, int64_t k, const float* data, int64_t line_stride, int64_t k_stride,
              std::vector<float>& memory) {
  if (k_stride == 1 && line_stride == k) return {data, k};
  memory.resize(static_cast<size_t>(lines * k));
  float* to = memory.data();
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < k; ++i) *to++ = data[line * line_stride + i * k_stride];
  }
  return {memory.data(), k};
}

/// Calls f(oh, ow) for the output pixels of s in row-major order.
template <class F>
void for_pixels(const ConvShape& s, const F& f) {
  for (int64_t oh = 0; oh < s.out_height(); ++oh) {
    for (int64_t ow = 0; ow < s.out_width(); ++ow) f(oh, ow);
  }
}

/// Calls f(image, its patches) for every image. Several images run at a time on one thread each
/// (nested parallel regions are not split again); with few images, each runs on all threads.
template <class F>
void for_images(int64_t batch, int64_t patch_size, const F& f) {
  const int threads = batch < omp_get_max_threads() ? 1 : threads_for(batch * patch_size);
  on_threads(threads, [&](const Team& team) {
    std::vector<float> patches(static_cast<size_t>(patch_size));
    team.for_part(batch, [&](int64_t n) { f(n, patches.data()); });
  });
}

/// Diagnostics of images that are processed in parallel.
class PerImage {
 public:
  PerImage(int64_t images, SumDiagnostics* total)
      : total_(total), images_(static_cast<size_t>(total != nullptr ? images : 0)) {}
  SumDiagnostics* of(int64_t image) {
    return total_ != nullptr ? &images_[static_cast<size_t>(image)] : nullptr;
  }
  void merge() {
    for (const SumDiagnostics& image : images_) total_->merge(image);
  }

 private:
  SumDiagnostics* total_;
  std::vector<SumDiagnostics> images_;
};

/// Returns the element of one image's channel that tap (kh, kw) of output pixel (oh, ow) reads, or
/// 0 on the padding.
float pixel_of(const ConvShape& s, const float* channel, int64_t oh, int64_t ow, int64_t kh,
               int64_t kw) {
  const int64_t h = oh * s.stride_h + kh * s.dilation_h - s.pad_top;
  const int64_t w = ow * s.stride_w + kw * s.dilation_w - s.pad_left;
  const bool inside = h >= 0 && h < s.height && w >= 0 && w < s.width;
  return inside ? channel[h * s.width + w] : 0.0f;
}

/// Returns the output pixel along one axis that reads input position `at` with tap `tap`, or -1.
int64_t reader_of(int64_t at, int64_t tap, int64_t pad, int64_t dilation, int64_t stride,
                  int64_t outputs) {
  const int64_t moved = at + pad - tap * dilation;
  if (moved < 0 || moved % stride != 0 || moved / stride >= outputs) return -1;
  return moved / stride;
}

/// Returns whether the tiles can round to `format`. They do not support flushing, formats without
/// -0 or NaN, and ties without mantissa bits.
bool tiles_round_to(const FloatFormat& format) noexcept {
  const bool usual = format.encoding == Encoding::ieee || format.encoding == Encoding::finite_nan;
  return usual && format.mantissa_bits > 0 && !format.flush_in && !format.flush_out;
}

}  // namespace

bool has_tiles(const SumSpec& spec) noexcept {
  switch (spec.accumulation.kind) {
    case Accumulation::Kind::fp32:
    case Accumulation::Kind::fp64:
    case Accumulation::Kind::pairwise:
    case Accumulation::Kind::kahan:
      return true;
    case Accumulation::Kind::format:
    case Accumulation::Kind::format_mul_add:
    case Accumulation::Kind::fma32_then_round:
      return tiles_round_to(spec.write) && has_rounded_tiles(spec);
    case Accumulation::Kind::interleaved16:
      return false;  // several products on tiles
    case Accumulation::Kind::tensor_core:
      return spec.read == kFp32;  // fp32 chains
  }
  return false;
}

bool needs_model(const SumSpec& spec) noexcept {
  const Accumulation& how = spec.accumulation;
  return !has_tiles(spec) || !how.is_single_chain() || how.kind == Accumulation::pairwise ||
         how.kind == Accumulation::kahan || how.rounds_otherwise();
}

void model_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias,
                float* c, const SumSpec& spec, SumDiagnostics* diagnostics, int64_t first) {
  if (k > 0 && has_block_tiles(spec, diagnostics != nullptr)) {
    block_product(m, n, k, a, b, {c, n, 1, nullptr, bias, first}, spec, diagnostics);
    return;
  }
  if (is_interleaved(spec) && diagnostics == nullptr) {
    interleaved_product(m, n, k, a, b, {c, n, 1, nullptr, bias, first});
    return;
  }
  std::vector<float> a_memory, b_memory;
  const Rows rows = lines_of(m, k, a.data, a.row_stride, a.column_stride, a_memory);
  const Rows columns = lines_of(n, k, b.data, b.column_stride, b.row_stride, b_memory);
  product_of_rows(m, n, rows, columns, {c, n, 1, nullptr, bias, first}, spec, diagnostics);
}

void model_conv_forward(const ConvShape& s, int64_t group, const float* x, const float* w,
                        const float* bias, float* y, const SumSpec& spec,
                        SumDiagnostics* diagnostics) {
  PerImage seen(s.batch, diagnostics);
  const int64_t pixels = s.out_height() * s.out_width();
  const int64_t taps = s.in * s.kernel_h * s.kernel_w, plane = s.height * s.width;
  w += group * s.weights();
  if (bias != nullptr) bias += group * s.out;
  for_images(s.batch, pixels * taps, [&](int64_t n, float* patches) {
    float* to = patches;
    for_pixels(s, [&](int64_t oh, int64_t ow) {
      for (int64_t c = 0; c < s.in; ++c) {
        for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
          for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
            *to++ = pixel_of(s, x + ((n * s.group + group) * s.in + c) * plane, oh, ow, kh, kw);
          }
        }
      }
    });
    const int64_t first = (n * s.group + group) * s.out * pixels;
    product_of_rows(s.out, pixels, {w, taps}, {patches, taps},
                    {y + first, pixels, 1, bias, nullptr, first}, spec.swapped(), seen.of(n));
  });
  seen.merge();
}

void model_conv_grad_input(const ConvShape& s, int64_t group, const float* dy, const float* w,
                           float* dx, const SumSpec& spec, SumDiagnostics* diagnostics) {
  PerImage seen(s.batch, diagnostics);
  const int64_t taps = s.kernel_h * s.kernel_w, k = taps * s.out;
  const int64_t plane = s.height * s.width, pixels = s.out_height() * s.out_width();
  w += group * s.weights();
  // w[out, in, tap] as lines of (tap, out), one per input channel.
  std::vector<float> weights(static_cast<size_t>(s.in * k));
  for (int64_t c = 0; c < s.in; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t o = 0; o < s.out; ++o) {
        weights[static_cast<size_t>((c * taps + tap) * s.out + o)] = w[(o * s.in + c) * taps + tap];
      }
    }
  }
  for_images(s.batch, plane * k, [&](int64_t n, float* patches) {
    float* to = patches;
    for (int64_t at = 0; at < plane; ++at) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t oh = reader_of(at / s.width, tap / s.kernel_w, s.pad_top, s.dilation_h,
                                     s.stride_h, s.out_height());
        const int64_t ow = reader_of(at % s.width, tap % s.kernel_w, s.pad_left, s.dilation_w,
                                     s.stride_w, s.out_width());
        for (int64_t o = 0; o < s.out; ++o) {
          const bool exists = oh >= 0 && ow >= 0;
          *to++ = exists
                      ? dy[((n * s.group + group) * s.out + o) * pixels + oh * s.out_width() + ow]
                      : 0.0f;
        }
      }
    }
    const int64_t first = (n * s.group + group) * s.in * plane;
    product_of_rows(s.in, plane, {weights.data(), k}, {patches, k},
                    {dx + first, plane, 1, nullptr, nullptr, first}, spec.swapped(), seen.of(n));
  });
  seen.merge();
}

void model_conv_grad_weight(const ConvShape& s, int64_t group, const float* x, const float* dy,
                            float* dw, const SumSpec& spec, SumDiagnostics* diagnostics) {
  const int64_t pixels = s.out_height() * s.out_width(), k = s.batch * pixels;
  const int64_t taps = s.kernel_h * s.kernel_w, plane = s.height * s.width;
  // dy[batch, out, pixel] as lines of (batch, pixel), one per output channel.
  std::vector<float> gradients(static_cast<size_t>(s.out * k));
  for (int64_t o = 0; o < s.out; ++o) {
    for (int64_t n = 0; n < s.batch; ++n) {
      std::copy_n(dy + ((n * s.group + group) * s.out + o) * pixels, pixels,
                  gradients.data() + (o * s.batch + n) * pixels);
    }
  }
  // Patches of enough input channels for an efficient product, within a memory limit.
  constexpr int64_t kLines = 256, kElements = 1 << 24;
  const int64_t lines = std::clamp<int64_t>(kElements / std::max<int64_t>(k, 1), 1, kLines);
  const int64_t together = std::clamp<int64_t>(lines / taps, 1, s.in);
  std::vector<float> patches(static_cast<size_t>(together * taps * k));
  const int64_t of_group = group * s.weights();
  for (int64_t first = 0; first < s.in; first += together) {
    const int64_t channels = std::min(together, s.in - first);
    for_each_on(threads_for(channels * taps * k), channels * taps, [&](int64_t line) {
      const int64_t c = first + line / taps, tap = line % taps;
      float* to = patches.data() + line * k;
      for (int64_t n = 0; n < s.batch; ++n) {
        for_pixels(s, [&](int64_t oh, int64_t ow) {
          *to++ = pixel_of(s, x + ((n * s.group + group) * s.in + c) * plane, oh, ow,
                           tap / s.kernel_w, tap % s.kernel_w);
        });
      }
    });
    SumDiagnostics part;
    product_of_rows(
        s.out, channels * taps, {gradients.data(), k}, {patches.data(), k},
        {dw + of_group + first * taps, s.in * taps, 1, nullptr, nullptr, of_group + first * taps},
        spec.swapped(), diagnostics != nullptr ? &part : nullptr);
    if (diagnostics != nullptr) diagnostics->merge(part);
  }
}

void model_sum_except(int64_t outer, int64_t n, int64_t inner, const float* x, float* out,
                      const SumSpec& spec) {
  if (spec.accumulation.rounds_otherwise() && has_tiles(spec)) {
    // A product with ones; the values are lines of (outer, inner).
    std::vector<float> memory;
    const float one = 1.0f;
    MatrixView values{x, n, 1};
    if (inner != 1) {
      memory.resize(static_cast<size_t>(outer * n * inner));
      for (int64_t line = 0; line < outer * n; ++line) {
        const int64_t o = line / n, j = line % n;
        std::copy_n(x + line * inner, inner, memory.data() + (j * outer + o) * inner);
      }
      values = {memory.data(), 1, outer * inner};
    }
    tiled_gemm(1, n, outer * inner, {&one, 0, 0}, values, nullptr, nullptr, out, spec, {0, n, 1},
               nullptr);
    return;
  }
  const bool is_wide =
      spec.accumulation.kind == Accumulation::fp64 && spec.accumulation.is_single_chain();
  on_threads(threads_for(outer * n * inner), [&](const Team& team) {
    std::vector<float> values(static_cast<size_t>(outer * inner));
    team.for_part(n, [&](int64_t j) {
      for (int64_t o = 0; o < outer; ++o) {
        std::copy_n(x + (o * n + j) * inner, inner, values.data() + o * inner);
      }
      const double sum = sum_of_values(spec, values, j);
      out[j] = is_wide ? deliver(sum, spec.write) : static_cast<float>(sum);
      if (out[j] != out[j]) out[j] = std::numeric_limits<float>::quiet_NaN();
    });
  });
}

}  // namespace halfscope::gemm_detail
