// SPDX-License-Identifier: MIT
// Gradient of a convolution with respect to its input. One kernel tap after the other adds
//   dx[pixel moved by the tap, in] += sum over out of dy[out, pixel] * w[out, in, tap]
// Rows of a tile are consecutive pixels of dy, read in place; vectors run along input channels.
// The chains of one image wait in a pixel-major scratch between taps. Pixels that a tap moves
// off the image compute into a spare row: only taps that exist take part in a chain.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "emulation/gemm/conv_image.h"
#include "emulation/gemm/driver.h"
#include "emulation/gemm/model_products.h"

namespace halfscope {
namespace gemm_detail {
namespace {

/// targets[pixel of dy] = row of the chain scratch that the tap (kh, kw) adds to, or `spare`.
void find_targets(const ConvShape& s, int64_t kh, int64_t kw, int64_t spare, int64_t width,
                  int64_t* targets) {
  const int64_t out_height = s.out_height(), out_width = s.out_width();
  for (int64_t oh = 0; oh < out_height; ++oh) {
    const int64_t h = oh * s.stride_h + kh * s.dilation_h - s.pad_top;
    for (int64_t ow = 0; ow < out_width; ++ow) {
      const int64_t w = ow * s.stride_w + kw * s.dilation_w - s.pad_left;
      const bool exists = h >= 0 && h < s.height && w >= 0 && w < s.width;
      *targets++ = (exists ? h * s.width + w : spare) * width;
    }
  }
}

template <class T>
void grad_input(const Chains<T>& chains, const ConvShape& s, const float* dy, const float* w,
                float* dx) {
  const int64_t pixels = output_pixels(s), in_pixels = s.height * s.width;
  const int64_t taps = s.kernel_h * s.kernel_w;
  const int panel = chains.panel();
  const int64_t panels = ceil_div(s.in, panel);
  const int64_t row_tiles = ceil_div(pixels, chains.kernels.rows);
  // w as [panel][tap][out][channel of the panel].
  T* const packed_w = scratch<T, Purpose::rows>(panels * taps * s.out * panel);
#pragma omp parallel num_threads(threads_for(s.batch* pixels* s.out* s.in* taps))
  {
#pragma omp for schedule(static)
    for (int64_t item = 0; item < panels * taps; ++item) {
      const int64_t first = item / taps * panel, tap = item % taps;
      const int64_t lines = std::min<int64_t>(panel, s.in - first);
      pack_lines(chains.kernels, lines, s.out, w + first * taps + tap, taps, s.in * taps,
                 packed_w + item * s.out * panel, panel_width(chains, lines));
    }
    int64_t* const all_targets = scratch<int64_t, Purpose::offsets>(taps * pixels);
    const int64_t capacity = in_pixels + 1;  // and the spare row
    T* const rows = scratch<T, Purpose::chains>(capacity * panel);
    float* delivered = nullptr;
    const T* image = nullptr;
    int64_t image_index = -1, targets_width = -1;
    const Part mine(s.batch * panels, omp_get_num_threads(), omp_get_thread_num());
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      const int64_t n = item / panels, q = item % panels;
      if (n != image_index) {
        image_index = n;
        const float* from = dy + n * s.out * pixels;
        if constexpr (std::is_same_v<T, float>) {
          image = from;
        } else {
          T* wide = scratch<T, Purpose::image>(s.out * pixels);
          std::copy_n(from, s.out * pixels, wide);
          image = wide;
        }
      }
      const int64_t columns = std::min<int64_t>(panel, s.in - q * panel);
      const int vectors = vectors_for(chains, columns);
      const int64_t width = panel_width(chains, columns);
      if (width != targets_width) {
        targets_width = width;
        for (int64_t tap = 0; tap < taps; ++tap) {
          find_targets(s, tap / s.kernel_w, tap % s.kernel_w, in_pixels, width,
                       all_targets + tap * pixels);
        }
      }
      std::fill(rows, rows + capacity * width, T{0});
      for (int64_t tap = 0; tap < taps; ++tap) {
        for (int64_t t = 0; t < row_tiles; ++t) {
          const Part part(pixels, row_tiles, t);
          const int64_t* targets = all_targets + tap * pixels + part.begin;
          if (std::all_of(targets, targets + part.size(),
                          [&](int64_t target) { return target == in_pixels * width; })) {
            continue;
          }
          Tile<T> tile{};
          tile.k = s.out;
          tile.a = image + part.begin;
          tile.a_stride = pixels;
          tile.b = packed_w + (q * taps + tap) * s.out * panel;
          tile.b_stride = width;
          tile.c = rows;
          tile.c_row = targets;
          tile.columns = vectors * chains.lanes();
          tile.accumulate = true;
          tile.rounding = &chains.rounding;
          chains.kernels.strided[part.size() - 1][vectors - 1](tile);
        }
      }
      float* results;
      if constexpr (std::is_same_v<T, float>) {
        results = rows;
      } else {
        delivered = scratch<float, Purpose::delivered>(in_pixels * width);
        results = delivered;
      }
      chains.kernels.deliver(in_pixels * width, rows, results, chains.odd);
      active_kernels().fp32.transpose(in_pixels, columns, results, width,
                                      dx + (n * s.in + q * panel) * in_pixels, in_pixels, false);
    }
  }
}

}  // namespace
}  // namespace gemm_detail

void conv_grad_input(const ConvShape& shape, const float* dy, const float* w, float* dx,
                     const SumSpec& spec, Diagnostics* diagnostics) {
  SumDiagnostics* const seen = gemm_detail::prepare(spec, diagnostics);
  if (shape.batch <= 0 || shape.in <= 0 || shape.height <= 0 || shape.width <= 0) return;
  if (gemm_detail::output_pixels(shape) == 0) {
    std::fill(dx, dx + shape.batch * shape.in * shape.height * shape.width, 0.0f);
    return;
  }
  if (gemm_detail::needs_model(spec))
    return gemm_detail::model_conv_grad_input(shape, dy, w, dx, spec, seen);
  const gemm_detail::OperandFacts facts =
      gemm_detail::facts_of(spec, gemm_detail::steps_of(shape),
                            shape.batch * shape.out * gemm_detail::output_pixels(shape), dy,
                            shape.out * shape.in * shape.kernel_h * shape.kernel_w, w);
  gemm_detail::with_chains(
      spec, facts, [&](const auto& chains) { gemm_detail::grad_input(chains, shape, dy, w, dx); });
  if (seen == nullptr) return;
  // The tiles of this file take no notes: the same sums once more, as a matrix product.
  std::vector<float> again(
      static_cast<size_t>(shape.batch * shape.in * shape.height * shape.width));
  gemm_detail::model_conv_grad_input(shape, dy, w, again.data(), spec, seen);
}

}  // namespace halfscope
