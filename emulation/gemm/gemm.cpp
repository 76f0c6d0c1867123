// SPDX-License-Identifier: MIT
// Matrix product and plain sums. b is packed once into panels of two vectors, which all threads
// share. Every thread owns some row tiles of c and packs its rows of a, one tile at a time. Blocks
// of columns keep the packed b in the second-level cache; blocks of k, in the first (driver.h).
#include "emulation/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
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
  Elements elements;
  const SumSpec& spec;
  SumDiagnostics* diagnostics;  ///< null: not requested
};

/// Copies a bias to the type of the chains, with room to read a whole panel at its end.
template <class T>
const T* widen_bias(const Chains<T>& chains, const float* bias, int64_t n) {
  if (bias == nullptr) return nullptr;
  T* wide = scratch<T, Purpose::bias>(n + chains.panel());
  std::fill(std::copy_n(bias, n, wide), wide + n + chains.panel(), T{0});
  return wide;
}

/// Part of k that a tile processes in one call.
struct Piece {
  int64_t begin, length;
  bool starts, ends;  ///< a chain
  bool ends_slice;    ///< a slice of split k
};

/// Consecutive pieces that are packed together.
struct Chunk {
  int64_t begin = 0, length = 0;
  std::vector<Piece> pieces{};
};

/// Cuts k into chains like core/numeric/sums/accumulate.h, each in pieces of at most `block`.
std::vector<Chunk> chunks_of(const Accumulation& how, int64_t k, int64_t block) {
  std::vector<Chunk> chunks(1);
  const int64_t slice = std::max<int64_t>(1, ceil_div(k, std::max<int64_t>(how.split_k, 1)));
  for (int64_t from = 0; from < k; from += slice) {
    const int64_t to = std::min(k, from + slice);
    const int64_t length = how.promote > 0 ? how.promote : to - from;
    for (int64_t first = from; first < to; first += length) {
      const int64_t last = std::min(first + length, to);
      const int64_t cuts = ceil_div(last - first, block);
      for (int64_t cut = 0; cut < cuts; ++cut) {
        const Part part(last - first, cuts, cut);
        if (chunks.back().length > 0 && chunks.back().length + part.size() > block) {
          chunks.push_back({.begin = first + part.begin});
        }
        chunks.back().length += part.size();
        chunks.back().pieces.push_back({.begin = first + part.begin,
                                        .length = part.size(),
                                        .starts = cut == 0,
                                        .ends = cut + 1 == cuts,
                                        .ends_slice = last == to});
      }
    }
  }
  if (k == 0) chunks.back().pieces.push_back({0, 0, true, true, true});
  return chunks;
}

/// Sums of chains in fp32, for promotion and split k: matrices like c, which contains the total.
struct PartialSums {
  float* chain = nullptr;
  float* promoted = nullptr;  ///< a slice's own total; null unless both are used
};

/// Adds from to to; `clear` then sets from to 0, so that it can be used for the next sum.
void add_rows(int64_t rows, int64_t columns, float* from, float* to, int64_t stride, bool clear) {
  for (int64_t i = 0; i < rows; ++i, from += stride, to += stride) {
    for (int64_t j = 0; j < columns; ++j) to[j] += from[j];
    if (clear) std::fill(from, from + columns, 0.0f);
  }
}

/// Returns the largest magnitude in the lines, or infinity if there is a NaN.
double largest_of(int64_t lines, int64_t k, const float* from, int64_t line_stride,
                  int64_t k_stride) {
  const bool by_lines = k_stride == 1;
  const int64_t outer = by_lines ? lines : k, inner = by_lines ? k : lines;
  const int64_t outer_stride = by_lines ? line_stride : k_stride;
  const int64_t stride = by_lines ? k_stride : line_stride;
  int32_t bits = 0;  // magnitudes are ordered like their bits
  for (int64_t i = 0; i < outer; ++i) {
    const float* const x = from + i * outer_stride;
    const auto magnitude = [](float y) { return std::bit_cast<int32_t>(y) & 0x7fffffff; };
    if (stride == 1) {  // the usual case, written so that it vectorizes
      for (int64_t j = 0; j < inner; ++j) bits = std::max(bits, magnitude(x[j]));
    } else {
      for (int64_t j = 0; j < inner; ++j) bits = std::max(bits, magnitude(x[j * stride]));
    }
  }
  const double size = static_cast<double>(std::bit_cast<float>(bits));
  return std::isnan(size) ? INFINITY : size;
}

/// Returns the largest number if a sum can saturate there (reaching it may be an overflow),
/// otherwise infinity.
double saturation_of(const SumSpec& spec) {
  const bool saturates = spec.accumulation.sums_in_format() && spec.write.saturates();
  return saturates ? spec.write.max_finite() : INFINITY;
}

/// Bound on a chain's magnitude between two samples of a tile.
class Growth {
 public:
  static constexpr int64_t kLookEvery = 4;
  explicit Growth(const SumSpec& spec) {
    const FloatFormat& format = spec.accumulation.sums_in_format() ? spec.write : kFp32;
    error_ = FloatFormat::power_of_two(-format.mantissa_bits - 1) + 0x1p-20;
    smallest_ = FloatFormat::power_of_two(format.min_exponent() - format.mantissa_bits);
  }
  /// Returns the bound, given the largest magnitude seen and that of a product. It has some slack:
  /// products and sums may be rounded, even to fp32.
  double bound(double seen, double product) const {
    for (int64_t i = 1; i < kLookEvery; ++i) {
      seen = (seen + product * (1 + error_) + 2 * smallest_) * (1 + error_);
    }
    return seen;
  }

 private:
  double error_, smallest_;
};

/// Computes one element with the reference.
SumDiagnostics diagnose_element(const Product& p, int64_t i, int64_t j) {
  std::vector<float> row(static_cast<size_t>(p.k)), column(static_cast<size_t>(p.k));
  for (int64_t k = 0; k < p.k; ++k) {
    row[static_cast<size_t>(k)] = p.a.data[i * p.a.row_stride + k * p.a.column_stride];
    column[static_cast<size_t>(k)] = p.b.data[k * p.b.row_stride + j * p.b.column_stride];
  }
  return diagnose_sum(p.spec, row, column).value_or(SumDiagnostics{});
}

/// One matrix product on all threads.
template <class T>
class TiledProduct {
 public:
  TiledProduct(const Chains<T>& chains, const Product& p)
      : TiledProduct(chains, p, p.spec.accumulation) {}

  TiledProduct(const Chains<T>& chains, const Product& p, const Accumulation& how)
      : chains_(chains),
        p_(p),
        single_(how.is_single_chain()),
        chunks_(chunks_of(how, p.k, k_block(chains, p.k))),
        panel_(chains.panel()),
        row_tiles_(ceil_div(p.m, chains.kernels.rows)),
        in_place_(std::is_same_v<T, float> && row_tiles_ == 1 && p.b.column_stride == 1),
        growth_(p.spec) {
    for (const Chunk& chunk : chunks_) kb_ = std::max(kb_, chunk.length);
    row_bias_ = widen_bias(chains, single_ ? p.row_bias : nullptr, p.m);
    column_bias_ = p.row_bias != nullptr
                       ? nullptr
                       : widen_bias(chains, single_ ? p.column_bias : nullptr, p.n);
    if (p.diagnostics != nullptr) {
      notes_.resize(static_cast<size_t>(row_tiles_ * ceil_div(p.n, panel_)));
      survey();
    }
    if (single_) return;
    const bool both = how.promote > 0 && how.split_k > 1;
    sums_.chain = scratch<float, Purpose::chains>(p.m * p.n * (both ? 2 : 1));
    if (both) sums_.promoted = sums_.chain + p.m * p.n;
    std::fill(p.c, p.c + p.m * p.n, 0.0f);
    if (both) std::fill(sums_.promoted, sums_.promoted + p.m * p.n, 0.0f);
  }

  void run() {
    const int64_t kPackedBytes = 2 << 20;
    const int64_t panels_per_block =
        std::max<int64_t>(kPackedBytes / static_cast<int64_t>(sizeof(T)) / (kb_ * panel_), 1);
    const int64_t nb = std::min(panels_per_block * panel_, ceil_div(p_.n, panel_) * panel_);
    T* const packed_b = scratch<T, Purpose::panels>(nb * kb_);
    on_threads(threads_for(p_.m * p_.n * std::max<int64_t>(p_.k, 1)), [&](const Team& team) {
      T* const packed_a = scratch<T, Purpose::rows>(kb_ * chains_.row_pitch());
      Tile<T> tile = empty_tile();
      Watch watch;
      for (int64_t j0 = 0; j0 < p_.n; j0 += nb) {
        const int64_t columns = std::min(nb, p_.n - j0), panels = ceil_div(columns, panel_);
        // With few row tiles, threads share the panels as well.
        const int64_t groups = std::min(panels, ceil_div(4 * team.size, row_tiles_));
        for (const Chunk& chunk : chunks_) {
          team.for_part(panels, [&](int64_t q) {
            const int64_t lines = std::min<int64_t>(panel_, columns - q * panel_);
            if (in_place_ && lines == panel_) return;
            T* const to = packed_b + q * panel_ * kb_;
            const int64_t width = panel_width(chains_, lines);
            pack_lines(
                chains_.kernels, lines, chunk.length,
                p_.b.data + chunk.begin * p_.b.row_stride + (j0 + q * panel_) * p_.b.column_stride,
                p_.b.column_stride, p_.b.row_stride, to, width);
            if (notes_.empty() || lines == width) return;
            for (int64_t k = 0; k < chunk.length; ++k) {
              std::fill(to + k * width + lines, to + (k + 1) * width, T{0});
            }
          });
          team.wait();
          const Part mine(row_tiles_ * groups, team.size, team.self);
          for (int64_t item = mine.begin; item < mine.end; ++item) {
            const Part rows(p_.m, row_tiles_, item / groups);
            if (item == mine.begin || item % groups == 0) {
              pack_lines(
                  chains_.kernels, rows.size(), chunk.length,
                  p_.a.data + rows.begin * p_.a.row_stride + chunk.begin * p_.a.column_stride,
                  p_.a.row_stride, p_.a.column_stride, packed_a, chains_.row_pitch());
            }
            const Part group(panels, groups, item % groups);
            for (int64_t q = group.begin; q < group.end; ++q) {
              run_tile(chunk, item / groups, rows, j0 / panel_ + q, packed_a,
                       packed_b + q * panel_ * kb_, tile, watch);
            }
          }
          team.wait();
        }
      }
    });
    if (!single_) add_bias();
    if (p_.diagnostics != nullptr) *p_.diagnostics = evaluate();
  }

 private:
  /// Magnitudes of chains that a thread has seen.
  struct Watch {
    double largest = 0;  ///< only magnitudes that count in the final result
    int64_t tiles = 0, again = 0;
    /// If many tiles would run twice, it is cheaper to sample them closely at once.
    bool closely() const { return largest == 0 || 4 * again > tiles + 64; }
  };

  /// Returns how many steps the generator of random bits takes for these elements.
  uint64_t draws(int64_t elements) const {
    return static_cast<uint64_t>(elements) * chains_.sums.element_draws;
  }

  /// Returns a tile with all that tiles have in common. One object serves all of a thread's tiles:
  /// clearing it takes as long as short chains.
  Tile<T> empty_tile() const {
    Tile<T> tile{};
    tile.a_stride = chains_.row_pitch();
    tile.row_draws = draws(p_.elements.row);
    tile.column_draws = draws(p_.elements.column);
    return tile;
  }

  /// Runs row tile number `row_tile`, which contains `rows`, on a panel.
  void run_tile(const Chunk& chunk, int64_t row_tile, const Part& rows, int64_t panel, const T* a,
                const T* b, Tile<T>& tile, Watch& watch) {
    const int64_t j = panel * panel_;
    if (!notes_.empty()) {
      tile.notes = &notes_[static_cast<size_t>(row_tile * ceil_div(p_.n, panel_) + panel)];
    }
    tile.columns = static_cast<int>(std::min<int64_t>(panel_, p_.n - j));
    // With one row tile, a packed panel would be read only once: whole panels are read in place.
    const bool in_place = in_place_ && tile.columns == panel_;
    if (in_place) b = reinterpret_cast<const T*>(p_.b.data + chunk.begin * p_.b.row_stride + j);
    tile.b_stride = in_place ? p_.b.row_stride : panel_width(chains_, tile.columns);
    tile.row_bias = row_bias_ == nullptr ? nullptr : row_bias_ + rows.begin;
    tile.column_bias = column_bias_ == nullptr ? nullptr : column_bias_ + j;
    const int64_t at = rows.begin * p_.n + j;
    const Elements& e = p_.elements;
    tile.draws = chains_.sums.first_draw + draws(e.first + rows.begin * e.row + j * e.column);
    for (const Piece& piece : chunk.pieces) {
      const int64_t skipped = piece.begin - chunk.begin;
      tile.k = piece.length;
      tile.first_term = piece.begin;
      tile.a = a + skipped * tile.a_stride;
      tile.b = b + skipped * tile.b_stride;
      tile.accumulate = !piece.starts;
      tile.finish = piece.ends;
      float* const to = single_ ? p_.c : sums_.chain;
      if (tile.notes == nullptr) {
        run_tile_to(chains_, tile, static_cast<int>(rows.size()), false, to + at, p_.n);
      } else {
        run_noting(tile, rows.size(), to + at, left_largest_[row_tile] * right_largest_[panel],
                   watch);
      }
      if (single_ || !piece.ends) continue;
      float* const sum = sums_.promoted != nullptr ? sums_.promoted : p_.c;
      add_rows(rows.size(), tile.columns, sums_.chain + at, sum + at, p_.n, false);
      if (sum == p_.c || !piece.ends_slice) continue;
      add_rows(rows.size(), tile.columns, sum + at, p_.c + at, p_.n, true);
    }
  }

  /// Runs a tile and collects diagnostics. Only the largest chain overall matters, so a tile is
  /// sampled occasionally. It runs again with close sampling if it may have exceeded the previous
  /// maximum between samples.
  void run_noting(Tile<T>& tile, int64_t rows, float* c, double product, Watch& watch) {
    float before[kMaxRows][kMaxPanel];
    const bool closely = watch.closely();
    const auto copy = [&](auto move) {  // chains that start here start from zero
      for (int64_t i = 0; tile.accumulate && i < rows; ++i) {
        for (int j = 0; j < tile.columns; ++j) move(c[i * p_.n + j], before[i][j]);
      }
    };
    if (!closely) copy([](float& x, float& y) { y = x; });
    tile.look_every = closely ? 1 : Growth::kLookEvery;
    run_tile_to(chains_, tile, static_cast<int>(rows), false, c, p_.n);
    TileNotes& notes = *tile.notes;
    const auto counts = [&] { return notes.finite && notes.largest < limit_; };
    ++watch.tiles;
    if (!closely && counts() && !(growth_.bound(notes.largest, product) <= watch.largest)) {
      ++watch.again;
      copy([](float& x, float& y) { x = y; });
      const int64_t unchanged = notes.unchanged;
      tile.look_every = 1;
      run_tile_to(chains_, tile, static_cast<int>(rows), false, c, p_.n);
      notes.unchanged = unchanged;
    }
    if (counts()) watch.largest = std::max(watch.largest, notes.largest);
  }

  /// Counts the nonzero operands at each k and finds the largest.
  void survey() {
    const int64_t panels = ceil_div(p_.n, panel_);
    left_.resize(static_cast<size_t>(row_tiles_ * p_.k));
    right_.resize(static_cast<size_t>(panels * p_.k));
    left_largest_.resize(static_cast<size_t>(row_tiles_));
    right_largest_.resize(static_cast<size_t>(panels));
    for_each_on(threads_for(p_.m * p_.n * p_.k), row_tiles_ + panels, [&](int64_t i) {
      if (i < row_tiles_) {
        const Part rows(p_.m, row_tiles_, i);
        const float* const from = p_.a.data + rows.begin * p_.a.row_stride;
        count_nonzeros(rows.size(), p_.k, from, p_.a.row_stride, p_.a.column_stride,
                       left_.data() + i * p_.k);
        left_largest_[i] = largest_of(rows.size(), p_.k, from, p_.a.row_stride, p_.a.column_stride);
      } else {
        const int64_t q = i - row_tiles_, lines = std::min<int64_t>(panel_, p_.n - q * panel_);
        const float* const from = p_.b.data + q * panel_ * p_.b.column_stride;
        count_nonzeros(lines, p_.k, from, p_.b.column_stride, p_.b.row_stride,
                       right_.data() + q * p_.k);
        right_largest_[q] = largest_of(lines, p_.k, from, p_.b.column_stride, p_.b.row_stride);
      }
    });
  }

  /// Computes the diagnostics from the collected data. Products with a zero also leave their chain
  /// unchanged. Tiles in which an accumulator overflowed are checked again term by term.
  SumDiagnostics evaluate() const {
    const int64_t panels = ceil_div(p_.n, panel_), tiles = row_tiles_ * panels;
    std::vector<SumDiagnostics> found(static_cast<size_t>(tiles));
    for_each_in_turn(threads_for(p_.m * p_.n * p_.k), tiles, 16, [&](int64_t i) {
      const Part rows(p_.m, row_tiles_, i / panels);
      const int64_t j = i % panels * panel_, j_end = std::min(j + panel_, p_.n);
      const TileNotes& notes = notes_[static_cast<size_t>(i)];
      SumDiagnostics& tile = found[static_cast<size_t>(i)];
      if (notes.finite && notes.largest < limit_) {
        tile.sums = rows.size() * (j_end - j);
        tile.swamped = notes.unchanged - tile.sums * p_.k;
        tile.largest = notes.largest;
      } else {
        for (int64_t row = rows.begin; row < rows.end; ++row) {
          for (int64_t column = j; column < j_end; ++column) {
            tile.merge(diagnose_element(p_, row, column));
          }
        }
        // Added again with the products of all tiles.
        const int64_t products = nonzero_products(i / panels, 1, i % panels, 1);
        tile.products -= products;
        tile.swamped -= products;
      }
    });
    SumDiagnostics all;
    all.products = all.swamped = nonzero_products(0, row_tiles_, 0, panels);
    for (const SumDiagnostics& each : found) all.merge(each);
    return all;
  }

  /// Returns the nonzero products of some row tiles and panels.
  int64_t nonzero_products(int64_t row_tile, int64_t row_tiles, int64_t panel,
                           int64_t panels) const {
    std::vector<int64_t> left(static_cast<size_t>(p_.k)), right(left.size());
    const auto add_up = [&](const std::vector<int32_t>& from, int64_t first, int64_t count,
                            std::vector<int64_t>& to) {
      const int32_t* x = from.data() + first * p_.k;
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t& sum : to) sum += *x++;
      }
    };
    add_up(left_, row_tile, row_tiles, left);
    add_up(right_, panel, panels, right);
    int64_t products = 0;
    for (size_t k = 0; k < left.size(); ++k) products += left[k] * right[k];
    return products;
  }

  void add_bias() {
    for (int64_t i = 0; i < p_.m; ++i) {
      float* const c = p_.c + i * p_.n;
      for (int64_t j = 0; j < p_.n; ++j) {
        if (p_.row_bias != nullptr) c[j] += p_.row_bias[i];
        if (p_.row_bias == nullptr && p_.column_bias != nullptr) c[j] += p_.column_bias[j];
        if (c[j] != c[j]) c[j] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  const Chains<T>& chains_;
  const Product& p_;
  const bool single_;
  const std::vector<Chunk> chunks_;
  const int64_t panel_, row_tiles_;
  const bool in_place_;
  int64_t kb_ = 1;
  const T* row_bias_ = nullptr;
  const T* column_bias_ = nullptr;
  PartialSums sums_;
  // If diagnostics are requested:
  std::vector<TileNotes> notes_;                      ///< [row tile][panel]
  std::vector<int32_t> left_, right_;                 ///< nonzero operands, [row tile or panel][k]
  std::vector<double> left_largest_, right_largest_;  ///< [row tile or panel]
  const Growth growth_;
  const double limit_ = saturation_of(p_.spec);  ///< chains below it have not overflowed
};

/// Returns the columns that the vectors cover, relative to the n that exist.
template <class T>
double waste(const Chains<T>& chains, int64_t n) {
  const double covered = static_cast<double>(ceil_div(n, chains.lanes()) * chains.lanes());
  return covered / static_cast<double>(n);
}

template <class T>
void product_either_way(const Chains<T>& chains, const Product& p) {
  // With few columns (10 classes), most lanes of c would be idle: compute its transpose. The chains
  // are the same, because the order of a product's factors does not matter.
  constexpr double kWorthIt = 1.2;
  if (waste(chains, p.n) < kWorthIt * waste(chains, p.m)) {
    return TiledProduct<T>(chains, p).run();
  }
  float* const c = p.c;
  float* const transposed = scratch<float, Purpose::delivered>(p.m * p.n);
  const Product other{.m = p.n,
                      .n = p.m,
                      .k = p.k,
                      .a = {p.b.data, p.b.column_stride, p.b.row_stride},
                      .b = {p.a.data, p.a.column_stride, p.a.row_stride},
                      .row_bias = p.column_bias,
                      .column_bias = p.row_bias,
                      .c = transposed,
                      .elements = {p.elements.first, p.elements.column, p.elements.row},
                      .spec = p.spec,
                      .diagnostics = p.diagnostics};
  TiledProduct<T>(chains, other).run();
  active_kernels().fp32.transpose(p.n, p.m, transposed, p.m, c, p.n, false);
}

/// Sums plain values: every chain adds 1 * x, which is exact. Blocks of steps are packed so that
/// the chains of one panel are adjacent.
template <class T>
void sum_chains(const Chains<T>& chains, int64_t outer, int64_t n, int64_t inner, const float* x,
                float* out) {
  constexpr int64_t kSteps = 256;
  const T one = 1;
  const int threads = threads_for(outer * n * inner);
  // A chain waits for each of its additions, so two vectors of chains take no longer than one.
  const int64_t lanes = n > chains.lanes() * threads ? chains.panel() : chains.lanes();
  const int64_t width = panel_width(chains, lanes), panels = ceil_div(n, lanes);
  for_each_on(threads, panels, [&](int64_t q) {
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
  });
}

}  // namespace
}  // namespace gemm_detail

void gemm_detail::tiled_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                             const float* row_bias, const float* column_bias, float* c,
                             const SumSpec& spec, const Elements& elements,
                             SumDiagnostics* diagnostics) {
  OperandFacts facts;
  if (k > 0 && wants_facts(spec, (m + n) * k, m * n * k)) {
    facts = facts_of(range_of(m, k, a), range_of(k, n, b));
  }
  const auto run = [&](auto chains) {
    // Chains that are summed in fp32 are rounded to it, whatever happens to the sum later.
    if (!spec.accumulation.is_single_chain()) chains.odd = false;
    const Product p{m, n, k, a, b, row_bias, column_bias, c, elements, spec, diagnostics};
    product_either_way(chains, p);
  };
  with_chains(spec, facts, run, k, diagnostics != nullptr);
}

void gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias, float* c,
          const SumSpec& spec, Diagnostics* diagnostics, int64_t first) {
  SumDiagnostics* const seen = gemm_detail::prepare(spec, diagnostics);
  if (m <= 0 || n <= 0) return;
  k = std::max<int64_t>(k, 0);
  if (gemm_detail::has_tiles(spec)) {
    return gemm_detail::tiled_gemm(m, n, k, a, b, nullptr, bias, c, spec, {first, n, 1}, seen);
  }
  gemm_detail::model_gemm(m, n, k, a, b, bias, c, spec, seen, first);
}

void sum_except(int64_t outer, int64_t n, int64_t inner, const float* x, float* out,
                const SumSpec& spec) {
  if (n <= 0) return;
  SumSpec plain = spec;
  if (spec.accumulation.kind == Accumulation::tensor_core) {  // which has no plain sums
    plain.accumulation.kind = Accumulation::fp32;
  }
  if (gemm_detail::needs_model(plain)) {
    return gemm_detail::model_sum_except(outer, n, inner, x, out, plain);
  }
  gemm_detail::with_chains(plain, {}, [&](const auto& chains) {
    gemm_detail::sum_chains(chains, outer, n, inner, x, out);
  });
}

}  // namespace halfscope
