// SPDX-License-Identifier: MIT
// Gradient of a convolution with respect to its weights:
//   dw[out, tap] = sum over (image, pixel) of x[image, tap moved by pixel] * dy[image, out, pixel]
// Rows of a tile are taps (in, kh, kw), read from the image in place. Vectors run along output
// channels of dy, which is made pixel-major for a block of images at a time. A tap-major scratch
// stores the chains from image to image. Each thread owns different taps or channels.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "emulation/gemm/conv_image.h"
#include "emulation/gemm/driver.h"
#include "emulation/gemm/model_products.h"

namespace halfscope {
namespace gemm_detail {
namespace {

/// How threads share rows x panels: `row_parts` times `panel_parts` threads get work.
struct Grid {
  int64_t row_parts, panel_parts;
};

Grid share(int64_t rows, int64_t panels, int64_t rows_per_tile, int64_t threads) {
  Grid best{1, 1};
  int64_t best_cost = INT64_MAX;
  for (int64_t panel_parts = 1; panel_parts <= std::min(panels, threads); ++panel_parts) {
    const int64_t row_parts = std::min(rows, threads / panel_parts);
    const int64_t part_rows = ceil_div(rows, row_parts);
    constexpr int64_t kRowsInLatency = 4;  // a lower tile takes just as long
    const int64_t cost = std::max(part_rows, ceil_div(part_rows, rows_per_tile) * kRowsInLatency) *
                         ceil_div(panels, panel_parts);
    if (cost < best_cost) {
      best_cost = cost;
      best = {row_parts, panel_parts};
    }
  }
  return best;
}

template <class T>
void grad_weight(const Chains<T>& chains, const ConvShape& s, const float* x, const float* dy,
                 float* dw) {
  constexpr int64_t kSteps = 512;            // of k, while one panel of dy stays in the cache
  constexpr int64_t kPackedBytes = 1 << 20;  // of dy that are pixel-major at a time
  const ImageLayout layout(s);
  const int64_t pixels = output_pixels(s), out_width = s.out_width();
  const int64_t taps = s.kernel_h * s.kernel_w, rows = s.in * taps;
  const int64_t image_size = s.x_image();
  const int panel = chains.panel();
  const int64_t panels = ceil_div(s.out, panel);
  const int64_t bytes_per_image = pixels * panels * panel * static_cast<int64_t>(sizeof(T));
  const int64_t block = std::clamp<int64_t>(kPackedBytes / bytes_per_image, 1, s.batch);
  // Small images are processed several at a time, so that a tile has enough work.
  const int64_t together = std::clamp<int64_t>(kSteps / 2 / pixels, 1, block);
  T* const packed_dy = scratch<T, Purpose::panels>(panels * block * pixels * panel);
  T* const sums = scratch<T, Purpose::chains>(panels * rows * panel);
  std::fill(sums, sums + panels * rows * panel, T{0});
  const auto width_of = [&](int64_t q) { return panel_width(chains, s.out - q * panel); };
  const auto panel_of = [&](int64_t q) { return packed_dy + q * block * pixels * panel; };

  on_threads(threads_for(s.batch * pixels * rows * s.out), [&](const Team& team) {
    const int64_t self = team.self;
    const Grid grid = share(rows, panels, chains.kernels.rows, team.size);
    const bool busy = self < grid.row_parts * grid.panel_parts;
    const Part my_rows(rows, grid.row_parts, self % grid.row_parts);
    const Part my_panels(panels, grid.panel_parts, busy ? self / grid.row_parts : 0);
    const int64_t row_tiles = ceil_div(my_rows.size(), chains.kernels.rows);
    // Only the channels of this thread's rows are copied.
    const int64_t first = my_rows.begin / taps, last = ceil_div(my_rows.end, taps);
    const bool plain = layout.is_plain<T>();
    const int64_t part_size = (last - first) * layout.channel_size();
    const int64_t image_stride = plain ? image_size : part_size;
    int64_t* const row_offset = scratch<int64_t, Purpose::offsets>(my_rows.size());
    int64_t* const step_offset = scratch<int64_t, Purpose::tile>(together * pixels);
    for (int64_t r = my_rows.begin; r < my_rows.end; ++r) {
      const int64_t tap = r % taps;
      row_offset[r - my_rows.begin] =
          layout.tap_offset(r / taps - first, tap / s.kernel_w, tap % s.kernel_w);
    }
    for (int64_t i = 0; i < together * pixels; ++i) {
      step_offset[i] = i / pixels * image_stride +
                       layout.pixel_offset(i % pixels / out_width, i % pixels % out_width);
    }
    Tile<T> tile{};
    tile.accumulate = true;
    tile.rounding = &chains.rounding;
    for (int64_t n0 = 0; n0 < s.batch; n0 += block) {
      const int64_t images_here = std::min(block, s.batch - n0);
      team.for_part(images_here * panels, [&](int64_t item) {
        const int64_t n = item / panels, q = item % panels;
        pack_lines(chains.kernels, std::min<int64_t>(panel, s.out - q * panel), pixels,
                   dy + (n0 + n) * s.y_image() + q * panel * pixels, pixels, 1,
                   panel_of(q) + n * pixels * width_of(q), width_of(q));
      });
      team.wait();
      for (int64_t n = 0; busy && n < images_here; n += together) {
        const int64_t count = std::min(together, images_here - n);
        const T* images;
        if (plain) {
          images =
              reinterpret_cast<const T*>(x + (n0 + n) * image_size + first * s.height * s.width);
        } else {
          T* copy = scratch<T, Purpose::image>(together * part_size);
          for (int64_t i = 0; i < count; ++i) {
            layout.fill(x + (n0 + n + i) * image_size, first, last, copy + i * part_size);
          }
          images = copy;
        }
        for (int64_t k0 = 0; k0 < count * pixels; k0 += kSteps) {
          for (int64_t q = my_panels.begin; q < my_panels.end; ++q) {
            const int64_t width = width_of(q);
            const int vectors = vectors_for(chains, s.out - q * panel);
            for (int64_t t = 0; t < row_tiles; ++t) {
              const Part part(my_rows.size(), row_tiles, t);
              int64_t c_row[kMaxRows];
              for (int64_t i = 0; i < part.size(); ++i) c_row[i] = i * width;
              tile.k = std::min(kSteps, count * pixels - k0);
              tile.a = images;
              tile.a_row = row_offset + part.begin;
              tile.a_column = step_offset + k0;
              tile.b = panel_of(q) + (n * pixels + k0) * width;
              tile.b_stride = width;
              tile.c = sums + q * rows * panel + (my_rows.begin + part.begin) * width;
              tile.c_row = c_row;
              tile.columns = vectors * chains.lanes();
              chains.kernels.gather[part.size() - 1][vectors - 1](tile);
            }
          }
        }
      }
      team.wait();
    }
  });
  for (int64_t q = 0; q < panels; ++q) {
    T* const chains_of_panel = sums + q * rows * panel;
    const int64_t width = width_of(q);
    float* results;
    if constexpr (std::is_same_v<T, float>) {
      results = chains_of_panel;
    } else {
      results = scratch<float, Purpose::delivered>(rows * width);
    }
    chains.kernels.deliver(rows * width, chains_of_panel, results, chains.odd);
    active_kernels().fp32.transpose(rows, std::min<int64_t>(panel, s.out - q * panel), results,
                                    width, dw + q * panel * rows, rows, false);
  }
}

}  // namespace
}  // namespace gemm_detail

void conv_grad_weight(const ConvShape& shape, const float* x, const float* dy, float* dw,
                      const SumSpec& spec, Diagnostics* diagnostics) {
  SumDiagnostics* const seen = gemm_detail::prepare(spec, diagnostics);
  const int64_t rows = shape.in * shape.kernel_h * shape.kernel_w;
  if (rows <= 0 || shape.out <= 0) return;
  if (shape.batch <= 0 || gemm_detail::output_pixels(shape) == 0) {
    std::fill(dw, dw + shape.group * shape.weights(), 0.0f);
    return;
  }
  // The tiles of this file collect no diagnostics, so use a matrix product with the same chains.
  if (seen != nullptr || gemm_detail::needs_model(spec))
    return gemm_detail::for_groups(shape, seen, [&](int64_t group, SumDiagnostics* part) {
      gemm_detail::model_conv_grad_weight(shape, group, x, dy, dw, spec, part);
    });
  const gemm_detail::OperandFacts facts =
      gemm_detail::facts_of(spec, gemm_detail::steps_of(shape), shape.batch * shape.x_image(), x,
                            shape.batch * shape.y_image(), dy);
  gemm_detail::with_chains(spec, facts, [&](const auto& chains) {
    gemm_detail::for_groups(shape, nullptr, [&](int64_t group, SumDiagnostics*) {
      gemm_detail::grad_weight(chains, shape, x + group * shape.in * shape.height * shape.width,
                               dy + group * shape.out * gemm_detail::output_pixels(shape),
                               dw + group * shape.weights());
    });
  });
}

}  // namespace halfscope
