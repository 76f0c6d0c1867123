// SPDX-License-Identifier: MIT
// Loops around the tensor-core tiles. K is cut into segments, one per chain of the plan (split k,
// promotion), each padded with zeros to whole blocks. Outputs are processed in squares and K in
// pieces, so that packed operands stay in the caches. Between pieces, `chain` stores the chains.
#include "emulation/gemm/block_product.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/tensor_core.h"
#include "emulation/gemm/block.h"
#include "emulation/gemm/driver.h"
#include "emulation/measure/measure.h"

namespace halfscope::gemm_detail {
namespace {

constexpr int kVectorsPerPanel = 4;
constexpr int64_t kSquare = 1024;  // rows and columns of c at a time
constexpr int64_t kPiece = 1024;   // elements of k at a time, after padding

const BlockKernels* active_block_kernels() {
  switch (active_isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return &avx2_block_kernels();
    case Isa::avx512:
      return &avx512_block_kernels();
#endif
    default:
      return nullptr;
  }
}

/// Constants of one profile that the tiles need.
struct BlockPlan {
  BlockKind kind;
  int size_index;         ///< log2(products) - 2
  BlockCoding coding[2];  ///< of a and of b
  TensorCoreProfile profile;
  /// fp8 products computed as fp16 ones (TensorCorePath::fp16_split): k is processed in another
  /// order, and every chain of two blocks is added to a total in the accumulator's format.
  bool split;
  bool wide() const { return kind == BlockKind::fp32_wide; }
};

int size_index(int products) {
  switch (products) {
    case 4:
      return 0;
    case 8:
      return 1;
    case 16:
      return 2;
    case 32:
      return 3;
    default:
      return -1;
  }
}

BlockCoding coding_of(const FloatFormat& format) {
  return {.keep = format == kTf32 ? ~0x1fffu : ~0u,
          .stray = (1u << (23 - format.mantissa_bits)) - 1,
          .min_normal = static_cast<float>(format.min_normal()),
          .min_exponent = format.min_exponent() + 127,
          .max_exponent = format.max_exponent() + 127,
          .base = 0,
          .zero_code = 0};
}

std::optional<BlockPlan> plan_of(const SumSpec& spec) {
  const std::optional<TensorCoreProfile> profile = tensor_core_of(spec);
  if (!profile) return std::nullopt;
  const FusedDot& dot = profile->dot;
  const bool split = profile->path == TensorCorePath::fp16_split;
  const FloatFormat &a = split ? kFp16 : profile->a_format, &b = split ? kFp16 : profile->b_format;
  const bool usual =
      (!split || spec.accumulation.is_single_chain()) && profile->scale == BlockScale::none &&
      dot.zero_rule == ZeroRule::zero_terms && dot.fraction_bits >= 13 && dot.fraction_bits <= 25 &&
      std::max(a.mantissa_bits, b.mantissa_bits) <= 11 && size_index(dot.products) >= 0;
  if (!usual) return std::nullopt;

  // Byte codes: values of b have codes up to 127; zeros are below the smallest sum of two values
  // (block.h). With two formats, both codings cover the exponents of either.
  constexpr int kByteRange = 30;
  const int lowest = std::min(a.min_exponent(), b.min_exponent());
  const int range = std::max(a.max_exponent(), b.max_exponent()) - lowest;
  const bool wide = range > kByteRange;
  BlockPlan plan{.kind = BlockKind::fp32,
                 .size_index = size_index(dot.products),
                 .coding = {coding_of(a), coding_of(b)},
                 .profile = *profile,
                 .split = split};
  BlockCoding &of_a = plan.coding[0], &of_b = plan.coding[1];
  if (wide) {
    of_a.base = -127;
    of_a.zero_code = -300 - 127;
    of_b.zero_code = -300;
  } else {
    const int smallest = 127 - range, zero = 2 * smallest - 128;  // as codes of b
    const int smallest_sum = 2 * lowest + 127;
    const int shift = smallest_sum - 2 * smallest;  // from the codes of b to those of a
    of_b.base = smallest - (lowest + 127);
    of_b.zero_code = zero;
    of_a.base = of_b.base + shift;
    of_a.zero_code = zero + shift;
  }
  if (dot.output == BlockOutput::rne_fp16) {
    // An all-zero block is aligned lower than the smallest product; c must keep all its bits then.
    if (wide || 2 * lowest - 1 - dot.fraction_bits > -24) return std::nullopt;
    plan.kind = BlockKind::fp16;
  } else if (dot.output == BlockOutput::rz_e8m13) {
    if (wide) return std::nullopt;
    plan.kind = BlockKind::e8m13;
  } else {
    plan.kind = wide ? BlockKind::fp32_wide : BlockKind::fp32;
  }
  return plan;
}

/// For split products, k is taken in groups of 32 elements. Within a group, elements at position 0
/// or 1 of each quarter of four come first (TensorCorePath). The operand is stored as contiguous
/// lines in that order, padded with zeros.
constexpr int64_t kSplitGroup = 32;

int64_t split_source(int64_t packed) {
  const int64_t at = packed % kSplitGroup, half = at / 16, pair = at % 16;
  return packed - at + pair / 2 * 4 + pair % 2 + 2 * half;
}

struct SplitLines {
  std::vector<float> data;
  int64_t k;
};

SplitLines split_lines(int64_t lines, int64_t k, const float* from, int64_t line_stride,
                       int64_t k_stride) {
  SplitLines result{.data = {}, .k = ceil_div(k, kSplitGroup) * kSplitGroup};
  result.data.resize(static_cast<size_t>(lines * result.k));
  for_each_on(threads_for(lines * result.k), lines, [&](int64_t line) {
    float* const to = result.data.data() + line * result.k;
    for (int64_t p = 0; p < result.k; ++p) {
      const int64_t source = split_source(p);
      to[p] = source < k ? from[line * line_stride + source * k_stride] : 0.0f;
    }
  });
  return result;
}

/// One chain: elements [begin, end) of k, at `packed` in the padded order.
struct Segment {
  int64_t begin, end, packed, packed_end;
  bool ends_slice;
};

/// Cuts k as tensor_core_dot() does.
std::vector<Segment> segments_of(const Accumulation& how, int64_t promote, int64_t k,
                                 int64_t step) {
  std::vector<Segment> segments;
  const int64_t steps = ceil_div(k, step);
  const int64_t slices = std::clamp<int64_t>(how.split_k, 1, std::max<int64_t>(k, 1));
  const int64_t slice = std::max<int64_t>(ceil_div(steps, slices), 1) * step;
  int64_t packed = 0;
  for (int64_t begin = 0; begin < k; begin += slice) {
    const int64_t end = std::min(begin + slice, k);
    const int64_t length = promote > 0 ? promote : end - begin;
    for (int64_t first = begin; first < end; first += length) {
      const int64_t last = std::min(first + length, end);
      const int64_t blocks = ceil_div(last - first, step);
      segments.push_back({first, last, packed, packed + blocks * step, last == end});
      packed += blocks * step;
    }
  }
  return segments;
}

/// Part of a segment: `given` elements of k from `begin`, padded to `length` in whole blocks.
struct BlockPiece {
  int64_t begin, given, packed, length;  ///< packed: relative to the group of pieces
  bool starts, ends, ends_slice;         ///< of its chain
};

/// Pieces that are packed together.
struct Group {
  std::vector<BlockPiece> pieces{};
  int64_t length = 0;
};

std::vector<Group> groups_of(const std::vector<Segment>& segments) {
  std::vector<Group> groups(1);
  for (const Segment& s : segments) {
    for (int64_t at = s.packed; at < s.packed_end;) {
      if (groups.back().length >= kPiece) groups.emplace_back();
      Group& group = groups.back();
      const int64_t length = std::min(s.packed_end - at, kPiece - group.length);
      const int64_t begin = s.begin + at - s.packed;
      group.pieces.push_back({.begin = begin,
                              .given = std::clamp<int64_t>(s.end - begin, 0, length),
                              .packed = group.length,
                              .length = length,
                              .starts = at == s.packed,
                              .ends = at + length == s.packed_end,
                              .ends_slice = s.ends_slice});
      group.length += length;
      at += length;
    }
  }
  return groups;
}

/// Facts about lines, with room for whole vectors.
struct LineNotes {
  std::vector<int32_t> bad, lowest, highest;
  explicit LineNotes(int64_t lines)
      : bad(static_cast<size_t>(lines)),
        lowest(static_cast<size_t>(lines), 1 << 20),
        highest(static_cast<size_t>(lines)) {}
  BlockLines at(int64_t line) { return {&bad[line], &lowest[line], &highest[line]}; }
};

/// Packs pieces of lines as [k][width], with width in whole vectors, padded with zeros. Calls
/// encode(piece, packed lines).
template <class F>
void pack_pieces(const Group& group, int64_t lines, const float* from, int64_t line_stride,
                 int64_t k_stride, int64_t width, const F& encode) {
  const Kernels<float>& kernels = active_kernels().fp32;
  float* const packed = scratch<float, Purpose::image>(kPiece * width);
  for (const BlockPiece& piece : group.pieces) {
    if (piece.given > 0) {
      pack_lines(kernels, lines, piece.given, from + piece.begin * k_stride, line_stride, k_stride,
                 packed, width);
    }
    std::fill(packed + piece.given * width, packed + piece.length * width, 0.0f);
    encode(piece, packed);
  }
}

/// One product, processed in squares of c.
class BlockProduct {
 public:
  BlockProduct(const BlockPlan& plan, const BlockKernels& kernels, int64_t k, MatrixView a,
               MatrixView b, const ResultView& c, const SumSpec& spec, SumDiagnostics* diagnostics)
      : diagnostics_(diagnostics),
        plan_(plan),
        kernels_(kernels),
        k_(k),
        a_(a),
        b_(b),
        c_(c),
        spec_(spec),
        promote_(plan.split ? kSplitGroup : spec.accumulation.promote),
        segments_(segments_of(spec.accumulation, promote_, k, plan.profile.dot.products)),
        groups_(groups_of(segments_)),
        single_(segments_.size() == 1 && promote_ == 0),
        panel_(kVectorsPerPanel * kernels.lanes),
        code_lines_(plan.wide() ? 2 * kernels.lanes : kernels.lanes) {
    for (const Group& group : groups_) longest_ = std::max(longest_, group.length);
  }

  int64_t run(int64_t m, int64_t n) {
    int64_t redone = 0;
    for (int64_t i = 0; i < m; i += kSquare) {
      for (int64_t j = 0; j < n; j += kSquare) {
        redone += square(i, std::min(kSquare, m - i), j, std::min(kSquare, n - j));
      }
    }
    if (diagnostics_ != nullptr) {
      // For elements that the tiles computed: zeros, including padding, are not swamped products.
      const int64_t products = nonzero_products(m, n) - seen_.redone_products;
      const int64_t terms = segments_.empty() ? 0 : segments_.back().packed_end;
      seen_.all.swamped += products - (m * n - seen_.redone) * terms;
      seen_.all.products += products;
      seen_.all.sums = m * n;
      *diagnostics_ = seen_.all;
    }
    return redone;
  }

 private:
  /// State of all tiles of a square: [tile][row][column of the panel].
  struct State {
    float *chain, *promoted, *total;
    int32_t* bad;
    int32_t* swamped;
    float* largest;
  };

  /// Unfinished diagnostics: `all` lacks the counts that run() adds.
  struct Seen {
    SumDiagnostics all{};
    int64_t redone = 0, redone_products = 0;  ///< elements that the reference computed
    void merge(const Seen& other) {
      all.merge(other.all);
      redone += other.redone;
      redone_products += other.redone_products;
    }
  };

  int64_t nonzero_products(int64_t m, int64_t n) const {
    std::vector<int32_t> left(static_cast<size_t>(k_)), right(left.size());
    count_nonzeros(m, k_, a_.data, a_.row_stride, a_.column_stride, left.data());
    count_nonzeros(n, k_, b_.data, b_.column_stride, b_.row_stride, right.data());
    int64_t products = 0;
    for (size_t k = 0; k < left.size(); ++k) products += int64_t{left[k]} * right[k];
    return products;
  }

  int64_t square(int64_t i0, int64_t m, int64_t j0, int64_t n) {
    const int threads = threads_for(m * n * k_);
    const int64_t row_tiles =
        std::max(ceil_div(m, static_cast<int64_t>(kBlockRows)), std::min<int64_t>(threads, m));
    const int64_t panels = ceil_div(n, panel_), items = row_tiles * panels;
    const int64_t tile_size = ceil_div(m, row_tiles) * panel_, size = items * tile_size;
    float* const floats = scratch<float, Purpose::chains>(size * (single_ ? 1 : 3));
    const bool noting = diagnostics_ != nullptr;
    std::vector<int32_t> swamped(static_cast<size_t>(noting ? size : 0));
    std::vector<float> largest(swamped.size());
    const State state{floats,
                      floats + size,
                      floats + 2 * size,
                      scratch<int32_t, Purpose::chains>(size),
                      noting ? swamped.data() : nullptr,
                      noting ? largest.data() : nullptr};
    std::vector<Seen> seen(static_cast<size_t>(noting ? items : 0));
    float* const packed_b = scratch<float, Purpose::panels>(panels * panel_ * longest_);
    uint32_t* const b_codes = scratch<uint32_t, Purpose::panels>(panels * code_lines_ * longest_);
    LineNotes rows(row_tiles * kBlockRows), columns(panels * panel_);
    std::atomic<int64_t> redone = 0;
    on_threads(threads, [&](const Team& team) {
      float* const packed_a = scratch<float, Purpose::rows>(kBlockRows * longest_);
      uint32_t* const a_codes = scratch<uint32_t, Purpose::rows>(kBlockRows * longest_);
      // Every thread keeps its tiles. Threads that share a row tile keep separate notes.
      LineNotes own_rows(row_tiles * kBlockRows);
      const Part mine(items, team.size, team.self);
      std::fill(state.chain + mine.begin * tile_size, state.chain + mine.end * tile_size, 0.0f);
      std::fill(state.bad + mine.begin * tile_size, state.bad + mine.end * tile_size, 0);
      if (!single_) {
        std::fill(state.promoted + mine.begin * tile_size, state.promoted + mine.end * tile_size,
                  0.0f);
        std::fill(state.total + mine.begin * tile_size, state.total + mine.end * tile_size, 0.0f);
      }
      for (const Group& group : groups_) {
        team.for_part(panels, [&](int64_t q) {
          pack_panel(group, j0 + q * panel_, std::min<int64_t>(panel_, n - q * panel_),
                     packed_b + q * panel_ * longest_, b_codes + q * code_lines_ * longest_,
                     columns.at(q * panel_));
        });
        team.wait();
        for (int64_t item = mine.begin; item < mine.end; ++item) {
          const int64_t row_tile = item / panels, q = item % panels;
          const Part part(m, row_tiles, row_tile);
          if (item == mine.begin || q == 0) {
            pack_rows(group, i0 + part.begin, part.size(), packed_a, a_codes,
                      own_rows.at(row_tile * kBlockRows));
          }
          BlockTile tile{};
          tile.rows = static_cast<int>(part.size());
          tile.fraction_bits = plan_.profile.dot.fraction_bits;
          tile.zero_exponent = plan_.profile.dot.zero_exponent + 127;
          const bool narrow = n - q * panel_ <= kernels_.lanes;
          for (const BlockPiece& piece : group.pieces) {
            tile.a = packed_a + piece.packed * kBlockRows;
            tile.a_codes = a_codes + piece.packed * kBlockRows;
            tile.b = packed_b + q * panel_ * longest_ + piece.packed * panel_;
            tile.b_codes = b_codes + q * code_lines_ * longest_ + piece.packed * code_lines_;
            run_piece(piece, tile, narrow, state, item * tile_size);
          }
        }
        team.wait();
      }
      for (int64_t item = mine.begin; item < mine.end; ++item) {
        const int64_t row_tile = item / panels, q = item % panels;
        const Part part(m, row_tiles, row_tile);
        redone += deliver_tile(i0 + part.begin, part.size(), j0 + q * panel_,
                               std::min<int64_t>(panel_, n - q * panel_), state, item * tile_size,
                               own_rows.at(row_tile * kBlockRows), columns.at(q * panel_),
                               noting ? &seen[static_cast<size_t>(item)] : nullptr);
      }
    });
    for (const Seen& each : seen) seen_.merge(each);
    return redone;
  }

  void pack_panel(const Group& group, int64_t j, int64_t lines, float* to, uint32_t* codes,
                  const BlockLines& notes) const {
    pack_pieces(group, lines, b_.data + j * b_.column_stride, b_.column_stride, b_.row_stride,
                panel_, [&](const BlockPiece& piece, const float* packed) {
                  kernels_.encode_panel(plan_.coding[1], plan_.wide(), piece.length, packed,
                                        to + piece.packed * panel_,
                                        codes + piece.packed * code_lines_, notes);
                });
  }

  void pack_rows(const Group& group, int64_t i, int64_t lines, float* to, uint32_t* codes,
                 const BlockLines& notes) const {
    pack_pieces(group, lines, a_.data + i * a_.row_stride, a_.row_stride, a_.column_stride,
                kBlockRows, [&](const BlockPiece& piece, const float* packed) {
                  kernels_.encode_rows(plan_.coding[0], plan_.wide(), piece.length, kBlockRows,
                                       packed, to + piece.packed * kBlockRows,
                                       codes + piece.packed * kBlockRows, notes);
                });
  }

  void run_piece(const BlockPiece& piece, BlockTile& tile, bool narrow, const State& state,
                 int64_t offset) const {
    const int64_t size = tile.rows * panel_;
    tile.c = state.chain + offset;
    tile.bad = state.bad + offset;
    const bool noting = state.swamped != nullptr;
    if (noting) {
      tile.swamped = state.swamped + offset;
      tile.largest = state.largest + offset;
    }
    tile.blocks = piece.length / plan_.profile.dot.products;
    if (!single_ && piece.starts) std::fill(tile.c, tile.c + size, 0.0f);
    const auto& functions = noting ? kernels_.noting : kernels_.run;
    functions[static_cast<int>(plan_.kind)][plan_.size_index][narrow ? 0 : 1](tile);
    if (single_ || !piece.ends) return;
    float* const promoted = promote_ > 0 ? state.promoted + offset : tile.c;
    if (promote_ > 0) kernels_.add(size, tile.c, promoted);
    if (plan_.split && plan_.kind == BlockKind::fp16) round_tensor(promoted, promoted, size, kFp16);
    if (!piece.ends_slice) return;
    kernels_.add(size, promoted, state.total + offset);
    if (promote_ > 0) std::fill(promoted, promoted + size, 0.0f);
  }

  /// Returns whether the lines' exponents keep every step in the range of the tiles.
  bool in_range(const BlockLines& rows, int64_t i, const BlockLines& columns, int64_t j) const {
    if (rows.bad[i] != 0 || columns.bad[j] != 0) return false;
    if (!plan_.wide()) return true;
    const int lowest = rows.lowest[i] + columns.lowest[j] - 127;
    const int highest = rows.highest[i] + columns.highest[j] - 127;
    const int growth = 3 + std::bit_width(static_cast<uint64_t>(k_));
    return lowest >= plan_.profile.dot.fraction_bits + 1 && highest + growth <= 127 + 126;
  }

  int64_t deliver_tile(int64_t i0, int64_t rows, int64_t j0, int64_t columns, const State& state,
                       int64_t offset, const BlockLines& row_notes, const BlockLines& column_notes,
                       Seen* seen) const {
    int64_t redone = 0;
    const float* const sums = single_ ? state.chain + offset : state.total + offset;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        float* const to = c_.data + (i0 + i) * c_.row_stride + (j0 + j) * c_.column_stride;
        const int64_t at = i * panel_ + j;
        const bool bad = state.bad[offset + at] < 0 || !in_range(row_notes, i, column_notes, j);
        if (seen != nullptr) {
          if (bad || !std::isfinite(sums[at]) || !std::isfinite(state.largest[offset + at])) {
            diagnose_by_reference(i0 + i, j0 + j, *seen);
          } else {
            seen->all.swamped += state.swamped[offset + at];
            seen->all.largest =
                std::max(seen->all.largest, static_cast<double>(state.largest[offset + at]));
          }
        }
        if (bad) {
          *to = by_reference(i0 + i, j0 + j);
          ++redone;
          continue;
        }
        float sum = sums[i * panel_ + j];
        if (!single_ && spec_.accumulation.half_accumulator) {
          sum = round_to_format(sum, kFp16).value;
        }
        const float* const bias = bias_of(i0 + i, j0 + j);
        if (bias != nullptr) sum += *bias;
        *to = sum == sum ? sum : std::numeric_limits<float>::quiet_NaN();
      }
    }
    return redone;
  }

  const float* bias_of(int64_t i, int64_t j) const {
    if (c_.row_bias != nullptr) return c_.row_bias + i;
    return c_.column_bias != nullptr ? c_.column_bias + j : nullptr;
  }

  void diagnose_by_reference(int64_t i, int64_t j, Seen& seen) const {
    std::vector<float> row(static_cast<size_t>(k_)), column(row.size());
    ++seen.redone;
    for (int64_t k = 0; k < k_; ++k) {
      const float x = a_.data[i * a_.row_stride + k * a_.column_stride];
      const float y = b_.data[k * b_.row_stride + j * b_.column_stride];
      row[static_cast<size_t>(k)] = x;
      column[static_cast<size_t>(k)] = y;
      seen.redone_products += x != 0.0f && y != 0.0f ? 1 : 0;
    }
    seen.all.merge(diagnose_sum(spec_, row, column).value_or(SumDiagnostics{}));
  }

  float by_reference(int64_t i, int64_t j) const {
    float* const lines = scratch<float, Purpose::delivered>(2 * k_);
    for (int64_t k = 0; k < k_; ++k) {
      const int64_t to = plan_.split ? split_source(k) : k;
      lines[to] = a_.data[i * a_.row_stride + k * a_.column_stride];
      lines[k_ + to] = b_.data[k * b_.row_stride + j * b_.column_stride];
    }
    const size_t k = static_cast<size_t>(k_);
    return sum_of_products(spec_, std::span<const float>(lines, k),
                           std::span<const float>(lines + k_, k), bias_of(i, j));
  }

  SumDiagnostics* const diagnostics_;
  Seen seen_{};
  const BlockPlan& plan_;
  const BlockKernels& kernels_;
  const int64_t k_;
  const MatrixView a_, b_;
  const ResultView c_;
  const SumSpec& spec_;
  const int64_t promote_;  ///< a chain is added to a total after this many elements of k; 0: never
  const std::vector<Segment> segments_;
  const std::vector<Group> groups_;
  const bool single_;
  const int64_t panel_, code_lines_;
  int64_t longest_ = 0;
};

}  // namespace

bool has_block_tiles(const SumSpec& spec, bool diagnosed) {
  if (active_block_kernels() == nullptr) return false;
  const std::optional<BlockPlan> plan = plan_of(spec);
  return plan && !(plan->split && diagnosed);
}

int64_t block_product(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                      const ResultView& c, const SumSpec& spec, SumDiagnostics* diagnostics) {
  const BlockPlan plan = plan_of(spec).value();
  const BlockKernels& kernels = *active_block_kernels();
  SplitLines rows, columns;
  if (plan.split) {
    rows = split_lines(m, k, a.data, a.row_stride, a.column_stride);
    columns = split_lines(n, k, b.data, b.column_stride, b.row_stride);
    k = rows.k;
    a = {rows.data.data(), k, 1};
    b = {columns.data.data(), 1, k};
  }
  // With few columns, most lanes of c would be idle: compute its transpose, which has the same
  // sums.
  const auto covered = [&](int64_t columns) {
    const int64_t width = columns <= kernels.lanes ? kernels.lanes : 4 * kernels.lanes;
    return static_cast<double>(ceil_div(columns, width) * width) / static_cast<double>(columns);
  };
  if (covered(n) > 1.2 * covered(m)) {
    const ResultView transposed{c.data, c.column_stride, c.row_stride, c.column_bias, c.row_bias};
    const SumSpec swapped = spec.swapped();
    const BlockPlan swapped_plan = plan_of(swapped).value();
    return BlockProduct(swapped_plan, kernels, k, {b.data, b.column_stride, b.row_stride},
                        {a.data, a.column_stride, a.row_stride}, transposed, swapped, diagnostics)
        .run(n, m);
  }
  return BlockProduct(plan, kernels, k, a, b, c, spec, diagnostics).run(m, n);
}

}  // namespace halfscope::gemm_detail
