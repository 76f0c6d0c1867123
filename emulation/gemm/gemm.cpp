// SPDX-License-Identifier: MIT
// Matrix product and plain sums. b is packed once into panels of two vectors, shared by all
// threads; every thread owns some row tiles of c and packs its rows of a, one tile at a time.
// Blocks: columns so that the packed b stays in the second-level cache, k for the first (driver.h).
#include "emulation/gemm/gemm.h"

#include <algorithm>
#include <vector>

#include "emulation/gemm/driver.h"
#include "emulation/gemm/model_products.h"

namespace halfscope {
namespace gemm_detail {
namespace {

struct Product {
  int64_t m, n, k;
  MatrixView a, b;
  const float* row_bias;
  const float* column_bias;
  float* c;
};

/// Copies a bias to the type of the chains, with room to read a whole panel at its end.
template <class T>
const T* widen_bias(const Chains<T>& chains, const float* bias, int64_t n) {
  if (bias == nullptr) return nullptr;
  T* wide = scratch<T, Purpose::bias>(n + chains.panel());
  std::fill(std::copy_n(bias, n, wide), wide + n + chains.panel(), T{0});
  return wide;
}

template <class T>
void product(const Chains<T>& chains, const Product& p) {
  const int panel = chains.panel();
  const int64_t kb = k_block<T>(p.k);
  const int64_t kPackedBytes = 2 << 20;
  const int64_t panels_per_block =
      std::max<int64_t>(kPackedBytes / static_cast<int64_t>(sizeof(T)) / (kb * panel), 1);
  const int64_t nb = std::min(panels_per_block * panel, ceil_div(p.n, panel) * panel);
  const int64_t row_tiles = ceil_div(p.m, chains.kernels.rows);
  // With one row tile a packed panel would be read once: whole panels are read in place.
  const bool in_place = std::is_same_v<T, float> && row_tiles == 1 && p.b.column_stride == 1;
  T* const packed_b = scratch<T, Purpose::panels>(nb * kb);
  const T* const row_bias = widen_bias(chains, p.row_bias, p.m);
  const T* const column_bias =
      p.row_bias != nullptr ? nullptr : widen_bias(chains, p.column_bias, p.n);
  const int threads = threads_for(p.m * p.n * std::max<int64_t>(p.k, 1));

#pragma omp parallel num_threads(threads)
  {
    T* const packed_a = scratch<T, Purpose::rows>(kb * chains.row_pitch());
    const int team = omp_get_num_threads(), self = omp_get_thread_num();
    for (int64_t j0 = 0; j0 < p.n; j0 += nb) {
      const int64_t columns = std::min(nb, p.n - j0), panels = ceil_div(columns, panel);
      // With few row tiles the panels are shared out too.
      const int64_t groups = std::min(panels, ceil_div(4 * team, row_tiles));
      for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += kb) {
        const int64_t kc = std::min(kb, p.k - k0);
#pragma omp for schedule(static)
        for (int64_t q = 0; q < panels; ++q) {
          const int64_t lines = std::min<int64_t>(panel, columns - q * panel);
          if (in_place && lines == panel) continue;
          pack_lines(chains.kernels, lines, kc,
                     p.b.data + k0 * p.b.row_stride + (j0 + q * panel) * p.b.column_stride,
                     p.b.column_stride, p.b.row_stride, packed_b + q * panel * kb,
                     panel_width(chains, lines));
        }
        const Part mine(row_tiles * groups, team, self);
        for (int64_t item = mine.begin; item < mine.end; ++item) {
          const Part rows(p.m, row_tiles, item / groups);
          if (item == mine.begin || item % groups == 0) {
            pack_lines(chains.kernels, rows.size(), kc,
                       p.a.data + rows.begin * p.a.row_stride + k0 * p.a.column_stride,
                       p.a.row_stride, p.a.column_stride, packed_a, chains.row_pitch());
          }
          const Part group(panels, groups, item % groups);
          for (int64_t q = group.begin; q < group.end; ++q) {
            const int64_t j = j0 + q * panel;
            Tile<T> tile{};
            tile.k = kc;
            tile.a = packed_a;
            tile.a_stride = chains.row_pitch();
            tile.columns = static_cast<int>(std::min<int64_t>(panel, p.n - j));
            if (in_place && tile.columns == panel) {
              tile.b = reinterpret_cast<const T*>(p.b.data + k0 * p.b.row_stride + j);
              tile.b_stride = p.b.row_stride;
            } else {
              tile.b = packed_b + q * panel * kb;
              tile.b_stride = panel_width(chains, tile.columns);
            }
            tile.accumulate = k0 > 0;
            tile.finish = k0 + kb >= p.k;
            tile.row_bias = row_bias == nullptr ? nullptr : row_bias + rows.begin;
            tile.column_bias = column_bias == nullptr ? nullptr : column_bias + j;
            run_tile_to(chains, tile, static_cast<int>(rows.size()), false,
                        p.c + rows.begin * p.n + j, p.n);
          }
        }
#pragma omp barrier
      }
    }
  }
}

/// Columns that the vectors cover beyond the n that exist, relative to n.
template <class T>
double waste(const Chains<T>& chains, int64_t n) {
  const double covered = static_cast<double>(ceil_div(n, chains.lanes()) * chains.lanes());
  return covered / static_cast<double>(n);
}

template <class T>
void product_either_way(const Chains<T>& chains, Product p) {
  // A narrow c (10 classes) would leave most lanes idle: compute its transpose. The chains are the
  // same, as a product does not care about the order of its factors.
  constexpr double kWorthIt = 1.2;
  if (waste(chains, p.n) < kWorthIt * waste(chains, p.m)) return product(chains, p);
  float* const c = p.c;
  float* const transposed = scratch<float, Purpose::delivered>(p.m * p.n);
  product(chains, Product{.m = p.n,
                          .n = p.m,
                          .k = p.k,
                          .a = {p.b.data, p.b.column_stride, p.b.row_stride},
                          .b = {p.a.data, p.a.column_stride, p.a.row_stride},
                          .row_bias = p.column_bias,
                          .column_bias = nullptr,
                          .c = transposed});
  active_kernels().fp32.transpose(p.n, p.m, transposed, p.m, c, p.n, false);
}

/// Every chain adds 1 * x, which is exact. Blocks of the steps are packed so that the chains of
/// one panel lie side by side.
template <class T>
void sum_chains(const Chains<T>& chains, int64_t outer, int64_t n, int64_t inner, const float* x,
                float* out) {
  constexpr int64_t kSteps = 256;
  const T one = 1;
  const int threads = threads_for(outer * n * inner);
  // A chain waits for each of its additions: two vectors of them cost no more time than one.
  const int64_t lanes = n > chains.lanes() * threads ? chains.panel() : chains.lanes();
  const int64_t width = panel_width(chains, lanes), panels = ceil_div(n, lanes);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t q = 0; q < panels; ++q) {
    const int64_t j = q * lanes, lines = std::min(lanes, n - j);
    T* const packed = scratch<T, Purpose::panels>(kSteps * width);
    alignas(64) T sums[32] = {};
    const int64_t row_offset = 0;
    const auto add = [&](int64_t steps, const float* from, int64_t line_stride, int64_t k_stride,
                         bool finish) {
      if (steps > 0) {
        pack_lines(chains.kernels, lines, steps, from, line_stride, k_stride, packed, width);
      }
      Tile<T> tile{};
      tile.k = steps;
      tile.a = &one;
      tile.b = packed;
      tile.b_stride = width;
      tile.c = sums;
      tile.c_row = &row_offset;
      tile.columns = static_cast<int>(lines);
      tile.accumulate = true;
      tile.finish = finish;
      tile.rounding = &chains.rounding;
      chains.kernels.strided[0][vectors_for(chains, lines) - 1](tile);
    };
    if (inner == 1) {
      for (int64_t o = 0; o < outer; o += kSteps) {
        add(std::min(kSteps, outer - o), x + o * n + j, 1, n, false);
      }
    } else {
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t i = 0; i < inner; i += kSteps) {
          add(std::min(kSteps, inner - i), x + (o * n + j) * inner + i, inner, 1, false);
        }
      }
    }
    add(0, x, 1, 1, true);
    chains.kernels.deliver(lines, sums, out + j, chains.odd);
  }
}

}  // namespace
}  // namespace gemm_detail

void gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias, float* c,
          const SumSpec& spec) {
  if (m <= 0 || n <= 0) return;
  if (gemm_detail::needs_model(spec)) {
    return gemm_detail::model_gemm(m, n, std::max<int64_t>(k, 0), a, b, bias, c, spec);
  }
  const bool exact = gemm_detail::wants_exact_products(spec) && k > 0 &&
                     gemm_detail::products_are_exact(gemm_detail::range_of(m, k, a),
                                                     gemm_detail::range_of(k, n, b));
  gemm_detail::with_chains(spec, exact, [&](const auto& chains) {
    gemm_detail::product_either_way(chains, {.m = m,
                                             .n = n,
                                             .k = std::max<int64_t>(k, 0),
                                             .a = a,
                                             .b = b,
                                             .row_bias = nullptr,
                                             .column_bias = bias,
                                             .c = c});
  });
}

void sum_except(int64_t outer, int64_t n, int64_t inner, const float* x, float* out,
                const SumSpec& spec) {
  if (n <= 0) return;
  SumSpec plain = spec;
  if (spec.accumulation.kind == Accumulation::tensor_core) {  // which does no plain sums
    plain.accumulation.kind = Accumulation::fp32;
  }
  if (gemm_detail::needs_model(plain)) {
    return gemm_detail::model_sum_except(outer, n, inner, x, out, plain);
  }
  gemm_detail::with_chains(
      plain, false, [&](const auto& chains) { gemm_detail::sum_chains(chains, outer, n, inner, x, out); });
}

}  // namespace halfscope
