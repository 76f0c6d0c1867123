// SPDX-License-Identifier: MIT
// Gradient of a convolution with respect to its input. The kernel taps, one after another, add
//   dx[pixel moved by the tap, in] += sum over out of dy[out, pixel] * w[out, in, tap]
// Rows of a tile are consecutive pixels of dy, read in place; vectors run along input channels.
// Between taps, a pixel-major scratch stores the chains of one image. Pixels that a tap moves off
// the image are computed into a spare row: only existing taps are part of a chain. With few input
// channels, as in depthwise convolutions, vectors run along pixels instead.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulation/gemm/conv_image.h"
#include "emulation/gemm/driver.h"
#include "emulation/gemm/model_products.h"

namespace halfscope {
namespace gemm_detail {
namespace {

/// Sets targets[pixel of dy] to the row of the chain scratch that tap (kh, kw) adds to, or `spare`.
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
  on_threads(threads_for(s.batch * pixels * s.out * s.in * taps), [&](const Team& team) {
    team.for_part(panels * taps, [&](int64_t item) {
      const int64_t first = item / taps * panel, tap = item % taps;
      const int64_t lines = std::min<int64_t>(panel, s.in - first);
      pack_lines(chains.kernels, lines, s.out, w + first * taps + tap, taps, s.in * taps,
                 packed_w + item * s.out * panel, panel_width(chains, lines));
    });
    team.wait();
    int64_t* const all_targets = scratch<int64_t, Purpose::offsets>(taps * pixels);
    const int64_t capacity = in_pixels + 1;  // plus the spare row
    T* const rows = scratch<T, Purpose::chains>(capacity * panel);
    Tile<T> tile{};
    tile.k = s.out;
    tile.a_stride = pixels;
    tile.c = rows;
    tile.accumulate = true;
    tile.rounding = &chains.rounding;
    float* delivered = nullptr;
    const T* image = nullptr;
    int64_t image_index = -1, targets_width = -1;
    const Part mine(s.batch * panels, team.size, team.self);
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      const int64_t n = item / panels, q = item % panels;
      if (n != image_index) {
        image_index = n;
        const float* from = dy + n * s.y_image();
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
          tile.a = image + part.begin;
          tile.b = packed_w + (q * taps + tap) * s.out * panel;
          tile.b_stride = width;
          tile.c_row = targets;
          tile.columns = vectors * chains.lanes();
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
                                      dx + n * s.x_image() + q * panel * in_pixels, in_pixels,
                                      false);
    }
  });
}

/// Pixels of dx in one row, `stride_w` apart, that are reached by the same taps of the kernel's
/// width, each from consecutive pixels of dy.
struct NarrowRun {
  int64_t first, count;
  std::vector<std::pair<int64_t, int64_t>> taps;  ///< (kw, column of dy for the first pixel)
};

std::vector<NarrowRun> narrow_runs(const ConvShape& s, int64_t longest) {
  std::vector<NarrowRun> runs;
  for (int64_t phase = 0; phase < std::min(s.stride_w, s.width); ++phase) {
    const int64_t count = (s.width - phase + s.stride_w - 1) / s.stride_w;
    // Tap kw reaches pixel phase + u * stride_w from column u + shift of dy.
    std::vector<std::pair<int64_t, int64_t>> shifts;
    std::vector<int64_t> cuts{0, count};
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const int64_t moved = phase + s.pad_left - kw * s.dilation_w;
      if (moved % s.stride_w != 0) continue;
      const int64_t shift = moved / s.stride_w;
      shifts.emplace_back(kw, shift);
      cuts.push_back(std::clamp<int64_t>(-shift, 0, count));
      cuts.push_back(std::clamp<int64_t>(s.out_width() - shift, 0, count));
    }
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      for (int64_t u = cuts[i]; u < cuts[i + 1]; u += longest) {
        NarrowRun run{phase + u * s.stride_w, std::min(longest, cuts[i + 1] - u), {}};
        for (const auto& [kw, shift] : shifts) {
          if (u + shift >= 0 && u + shift < s.out_width()) run.taps.emplace_back(kw, u + shift);
        }
        runs.push_back(std::move(run));
      }
    }
  }
  return runs;
}

/// For few input channels: rows of a tile are input channels; vectors run along pixels of dx.
template <class T>
void narrow_grad_input(const Chains<T>& chains, const ConvShape& s, const float* dy, const float* w,
                       float* dx) {
  const int64_t pixels = output_pixels(s), in_pixels = s.height * s.width;
  const int64_t taps = s.kernel_h * s.kernel_w, longest = taps * s.out;
  const std::vector<NarrowRun> runs = narrow_runs(s, chains.panel());
  const T* weights;
  if constexpr (std::is_same_v<T, float>) {
    weights = w;
  } else {
    T* wide = scratch<T, Purpose::rows>(s.weights());
    std::copy_n(w, s.weights(), wide);
    weights = wide;
  }
  on_threads(threads_for(s.batch * in_pixels * s.in * longest), [&](const Team& team) {
    T* const panel = scratch<T, Purpose::panels>(longest * kMaxPanel);
    std::fill(panel, panel + longest * kMaxPanel, T{0});
    int64_t* const places = scratch<int64_t, Purpose::offsets>(2 * longest + s.in);
    int64_t *const from = places, *const column = places + longest, *const row = column + longest;
    for (int64_t i = 0; i < s.in; ++i) row[i] = i * taps;
    alignas(64) float results[kMaxRows * kMaxPanel];
    team.for_part(s.batch, [&](int64_t n) {
      const T* image;
      if constexpr (std::is_same_v<T, float>) {
        image = dy + n * s.y_image();
      } else {
        T* wide = scratch<T, Purpose::image>(s.out * pixels);
        std::copy_n(dy + n * s.y_image(), s.out * pixels, wide);
        image = wide;
      }
      for (int64_t h = 0; h < s.height; ++h) {
        for (const NarrowRun& run : runs) {
          int64_t k = 0;
          for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
            const int64_t moved = h + s.pad_top - kh * s.dilation_h;
            if (moved < 0 || moved % s.stride_h != 0 || moved / s.stride_h >= s.out_height()) {
              continue;
            }
            for (const auto& [kw, first] : run.taps) {
              for (int64_t o = 0; o < s.out; ++o, ++k) {
                from[k] = o * pixels + moved / s.stride_h * s.out_width() + first;
                column[k] = o * s.in * taps + kh * s.kernel_w + kw;
              }
            }
          }
          std::fill(results, results + s.in * kMaxPanel, 0.0f);
          if (k > 0) {
            const Run whole{0, 0, static_cast<int>(run.count)};
            const int64_t width = panel_width(chains, run.count);
            chains.kernels.copy_runs(k, image, from, &whole, 1, panel, width);
            Tile<T> tile{};
            tile.k = k;
            tile.a = weights;
            tile.a_row = row;
            tile.a_column = column;
            tile.b = panel;
            tile.b_stride = width;
            tile.columns = static_cast<int>(run.count);
            tile.finish = true;
            run_tile_to(chains, tile, static_cast<int>(s.in), true, results, kMaxPanel);
          }
          for (int64_t i = 0; i < s.in; ++i) {
            float* const to = dx + n * s.x_image() + i * in_pixels + h * s.width + run.first;
            for (int64_t j = 0; j < run.count; ++j) {
              to[j * s.stride_w] = results[i * kMaxPanel + j];
            }
          }
        }
      }
    });
  });
}

/// Returns whether vectors along input channels would be mostly empty.
template <class T>
bool is_narrow(const Chains<T>& chains, const ConvShape& s) {
  return s.in <= std::min(4, chains.kernels.rows);
}

}  // namespace
}  // namespace gemm_detail

void conv_grad_input(const ConvShape& shape, const float* dy, const float* w, float* dx,
                     const SumSpec& spec, Diagnostics* diagnostics) {
  SumDiagnostics* const seen = gemm_detail::prepare(spec, diagnostics);
  if (shape.batch <= 0 || shape.in <= 0 || shape.height <= 0 || shape.width <= 0) return;
  if (gemm_detail::output_pixels(shape) == 0) {
    std::fill(dx, dx + shape.batch * shape.x_image(), 0.0f);
    return;
  }
  if (gemm_detail::needs_model(spec))
    return gemm_detail::for_groups(shape, seen, [&](int64_t group, SumDiagnostics* part) {
      gemm_detail::model_conv_grad_input(shape, group, dy, w, dx, spec, part);
    });
  const gemm_detail::OperandFacts facts =
      gemm_detail::facts_of(spec, gemm_detail::steps_of(shape), shape.batch * shape.y_image(), dy,
                            shape.group * shape.weights(), w);
  gemm_detail::with_chains(spec, facts, [&](const auto& chains) {
    gemm_detail::for_groups(shape, nullptr, [&](int64_t group, SumDiagnostics*) {
      const float* const from = dy + group * shape.out * gemm_detail::output_pixels(shape);
      const float* const weights = w + group * shape.weights();
      float* const to = dx + group * shape.in * shape.height * shape.width;
      if (gemm_detail::is_narrow(chains, shape)) {
        gemm_detail::narrow_grad_input(chains, shape, from, weights, to);
      } else {
        gemm_detail::grad_input(chains, shape, from, weights, to);
      }
    });
  });
  if (seen != nullptr) *diagnostics = diagnose_conv_grad_input(shape, dy, w, spec);
}

Diagnostics diagnose_conv_grad_input(const ConvShape& shape, const float* dy, const float* w,
                                     const SumSpec& spec) {
  Diagnostics diagnostics;
  SumDiagnostics* const seen = gemm_detail::prepare(spec, &diagnostics);
  if (seen == nullptr || shape.batch <= 0 || shape.in <= 0 || shape.height <= 0 ||
      shape.width <= 0 || gemm_detail::output_pixels(shape) == 0) {
    return diagnostics;
  }
  // The tiles of this file collect no diagnostics, so use a matrix product.
  std::vector<float> result(static_cast<size_t>(shape.batch * shape.x_image()));
  gemm_detail::for_groups(shape, seen, [&](int64_t group, SumDiagnostics* part) {
    gemm_detail::model_conv_grad_input(shape, group, dy, w, result.data(), spec, part);
  });
  return diagnostics;
}

}  // namespace halfscope
