// SPDX-License-Identifier: MIT
// Forward convolution. Per image it is the product
//   y[out x pixels] = w[out x taps] x[taps x pixels]
// Rows of a tile are output channels and vectors run along output pixels, so the sums go straight
// into NCHW. The x panel of one tile (taps x 32 pixels) is gathered into the first-level cache just
// before it is used. The matrix of all patches is never stored.
#include <algorithm>
#include <vector>

#include "emulation/gemm/conv_image.h"
#include "emulation/gemm/driver.h"
#include "emulation/gemm/model_products.h"

namespace halfscope {
namespace gemm_detail {
namespace {

/// Finds the runs of consecutive image elements under output pixels [first, first + count).
int find_runs(const ImageLayout& layout, int64_t out_width, int64_t first, int64_t count,
              Run* runs) {
  int found = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t oh = (first + done) / out_width, ow = (first + done) % out_width;
    const int64_t length = std::min(count - done, out_width - ow);
    runs[found++] = {layout.pixel_offset(oh, ow), done, static_cast<int>(length)};
    done += length;
  }
  return found;
}

template <class T>
void forward(const Chains<T>& chains, const ConvShape& s, const float* x, const float* w,
             const float* bias, float* y) {
  const ImageLayout layout(s);
  const int64_t pixels = output_pixels(s), out_width = s.out_width();
  const int64_t taps = s.in * s.kernel_h * s.kernel_w, image_size = s.x_image();
  const int panel = chains.panel();
  const int64_t panels = ceil_div(pixels, panel), row_tiles = ceil_div(s.out, chains.kernels.rows);
  const int64_t pitch = chains.row_pitch();
  const int64_t kb = k_block(chains, taps);
  T* const packed_w = scratch<T, Purpose::rows>(row_tiles * taps * pitch);
  int64_t* const offsets = scratch<int64_t, Purpose::offsets>(taps);
  T* wide_bias = nullptr;
  if (bias != nullptr) {
    wide_bias = scratch<T, Purpose::bias>(s.out);
    std::copy_n(bias, s.out, wide_bias);
  }
  for (int64_t c = 0, tap = 0; c < s.in; ++c) {
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < s.kernel_w; ++kw) offsets[tap++] = layout.tap_offset(c, kh, kw);
    }
  }
  const int threads = threads_for(s.batch * pixels * s.out * std::max<int64_t>(taps, 1));
  on_threads(threads, [&](const Team& team) {
    team.for_part(row_tiles, [&](int64_t t) {
      const Part rows(s.out, row_tiles, t);
      pack_lines(chains.kernels, rows.size(), taps, w + rows.begin * taps, taps, 1,
                 packed_w + t * taps * pitch, pitch);
    });
    team.wait();
    T* const packed_x = scratch<T, Purpose::panels>(kb * panel);
    std::fill(packed_x, packed_x + kb * panel, T{0});
    Tile<T> tile{};
    tile.a_stride = pitch;
    const T* image = nullptr;
    int64_t image_index = -1;
    const Part mine(s.batch * panels, team.size, team.self);
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      const int64_t n = item / panels, p0 = item % panels * panel;
      if (n != image_index) {
        image_index = n;
        if (layout.is_plain<T>()) {
          image = reinterpret_cast<const T*>(x + n * image_size);
        } else {
          T* copy = scratch<T, Purpose::image>(s.in * layout.channel_size());
          layout.fill(x + n * image_size, 0, s.in, copy);
          image = copy;
        }
      }
      const int64_t columns = std::min<int64_t>(panel, pixels - p0);
      Run runs[64];
      const int run_count = find_runs(layout, out_width, p0, columns, runs);
      const int64_t width = panel_width(chains, columns);
      for (int64_t k0 = 0; k0 == 0 || k0 < taps; k0 += kb) {
        const int64_t kc = std::min(kb, taps - k0);
        chains.kernels.copy_runs(kc, image, offsets + k0, runs, run_count, packed_x, width);
        for (int64_t t = 0; t < row_tiles; ++t) {
          const Part rows(s.out, row_tiles, t);
          tile.k = kc;
          tile.a = packed_w + (t * taps + k0) * pitch;
          tile.b = packed_x;
          tile.b_stride = width;
          tile.columns = static_cast<int>(columns);
          tile.accumulate = k0 > 0;
          tile.finish = k0 + kb >= taps;
          tile.row_bias = wide_bias == nullptr ? nullptr : wide_bias + rows.begin;
          run_tile_to(chains, tile, static_cast<int>(rows.size()), false,
                      y + n * s.y_image() + rows.begin * pixels + p0, pixels);
        }
      }
    }
  });
}

}  // namespace
}  // namespace gemm_detail

void conv_forward(const ConvShape& shape, const float* x, const float* w, const float* bias,
                  float* y, const SumSpec& spec, Diagnostics* diagnostics) {
  SumDiagnostics* const seen = gemm_detail::prepare(spec, diagnostics);
  if (shape.batch <= 0 || shape.out <= 0 || gemm_detail::output_pixels(shape) == 0) return;
  // The tiles of this file collect no diagnostics, so use a matrix product with the same chains.
  if (seen != nullptr || gemm_detail::needs_model(spec))
    return gemm_detail::for_groups(shape, seen, [&](int64_t group, SumDiagnostics* part) {
      gemm_detail::model_conv_forward(shape, group, x, w, bias, y, spec, part);
    });
  const gemm_detail::OperandFacts facts =
      gemm_detail::facts_of(spec, gemm_detail::steps_of(shape), shape.batch * shape.x_image(), x,
                            shape.group * shape.weights(), w);
  gemm_detail::with_chains(spec, facts, [&](const auto& chains) {
    gemm_detail::for_groups(shape, nullptr, [&](int64_t group, SumDiagnostics*) {
      gemm_detail::forward(chains, shape, x + group * shape.in * shape.height * shape.width,
                           w + group * shape.weights(),
                           bias == nullptr ? nullptr : bias + group * shape.out,
                           y + group * shape.out * gemm_detail::output_pixels(shape));
    });
  });
}

}  // namespace halfscope
