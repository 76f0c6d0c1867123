// SPDX-License-Identifier: MIT
// The bodies of the register tiles, written once for any vector type. Included only by
// tile_<isa>.cpp, which defines the vector types FloatVector and DoubleVector. Everything has
// internal linkage and calls no library templates: the linker must never pick code with wide
// instructions for a processor that lacks them.
#pragma once

#include <cstdint>

#include "emulation/gemm/tile.h"

namespace halfscope::gemm_detail {
namespace {

/// State that most steps keep of a chain: its sum.
template <class V>
struct SumOnly {
  using Acc = typename V::Reg;
  static Acc resume(typename V::Reg sum) { return sum; }
  static typename V::Reg sum(Acc acc) { return acc; }
};

/// acc = a * b + acc, rounded once to the type of the chain.
template <class V>
struct FmaStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  static constexpr bool kEveryHeight = true;  ///< the usual chains: every height has its function
  explicit FmaStep(const FormatRounding*) {}
  Reg step(Reg a, Reg b, Reg acc) const { return V::fma(a, b, acc); }
  Reg add(Reg acc, Reg bias) const { return V::add(acc, bias); }
};

/// Rounds doubles to a format, to nearest even, with the format's overflow rule.
template <class V>
struct Rounder {
  using Reg = typename V::Reg;
  Reg min_normal, above_max, magic, max_finite, overflow;
  explicit Rounder(const FormatRounding& r)
      : min_normal(V::broadcast(&r.min_normal)),
        above_max(V::broadcast(&r.above_max)),
        magic(V::broadcast(&r.magic)),
        max_finite(V::broadcast(&r.max_finite)),
        overflow(V::broadcast(&r.overflow)) {}
  Reg operator()(Reg x) const {
    const Reg binade = V::min(V::max(V::exponent(x), min_normal), above_max);
    const Reg shifter = V::mul(binade, magic);
    const Reg rounded = V::or_sign(V::sub(V::add(x, shifter), shifter), x);
    return V::select_above(rounded, max_finite, V::or_sign(overflow, x));
  }
};

/// Returns p + acc rounded to odd, using the error term of TwoSum (Knuth). Rounding it once more to
/// at most 51 significant bits is correct (Boldo and Melquiond, 2008).
template <class V>
typename V::Reg odd_sum(typename V::Reg p, typename V::Reg acc) {
  using Reg = typename V::Reg;
  const Reg s = V::add(p, acc);
  const Reg virtual_acc = V::sub(s, p);
  const Reg error = V::add(V::sub(p, V::sub(s, virtual_acc)), V::sub(acc, virtual_acc));
  return V::to_odd(s, error);
}

/// acc = round(a * b + acc) to a format. The product of two floats is exact in double.
template <class V>
struct FormatStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  Rounder<V> round;
  explicit FormatStep(const FormatRounding* r) : round(*r) {}
  Reg step(Reg a, Reg b, Reg acc) const { return add(acc, V::mul(a, b)); }
  Reg add(Reg acc, Reg p) const { return round(odd_sum<V>(p, acc)); }
};

/// acc = round(round(a * b) + acc).
template <class V>
struct MulAddStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  Rounder<V> round;
  explicit MulAddStep(const FormatRounding* r) : round(*r) {}
  Reg step(Reg a, Reg b, Reg acc) const { return add(acc, V::mul(a, b)); }
  Reg add(Reg acc, Reg p) const { return round(odd_sum<V>(round(p), acc)); }
};

/// acc = round(fma of fp32), two roundings, as in an fp32 processor with 16-bit storage.
template <class V>
struct ShortcutStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  Rounder<V> to_fp32, round;
  explicit ShortcutStep(const FormatRounding* r) : to_fp32(kFp32Rounding), round(*r) {}
  Reg step(Reg a, Reg b, Reg acc) const { return add(acc, V::mul(a, b)); }
  Reg add(Reg acc, Reg p) const { return round(to_fp32(odd_sum<V>(p, acc))); }
};

/// Roundings of floats that take a few integer operations or one processor instruction: `round` in
/// the steps of a chain, `round_any` where a bias is added.
template <class V>
struct ToFp16 {
  static typename V::Reg round(typename V::Reg x) { return V::through_fp16(x); }
  static typename V::Reg round_any(typename V::Reg x) { return V::through_fp16(x); }
};
template <class V>
struct ToBf16 {
  static typename V::Reg round(typename V::Reg x) { return V::through_bf16(x); }
  static typename V::Reg round_any(typename V::Reg x) { return V::through_bf16(x); }
};
/// For operands in bf16. Processors make NaNs from an operand's bits or from constants. Both have
/// zeros in the low half, so they survive the rounding of numbers unchanged.
template <class V>
struct ToBf16OfBf16 {
  static typename V::Reg round(typename V::Reg x) { return V::bf16_of_number(x); }
  static typename V::Reg round_any(typename V::Reg x) { return V::through_bf16(x); }
};

/// FormatStep in floats: odd_fma is the exact a * b + acc rounded to odd. Its 24 bits are at least
/// two more than the format has, so the second rounding is correct (Boldo and Melquiond).
template <class V, template <class> class To>
struct NarrowFormatStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  static constexpr bool kDirected = true;  ///< run in the rounding mode in which V::odd_fma works
  explicit NarrowFormatStep(const FormatRounding*) {}
  Reg step(Reg a, Reg b, Reg acc) const { return To<V>::round(V::odd_fma(a, b, acc)); }
  Reg add(Reg acc, Reg bias) const { return To<V>::round_any(V::odd_fma(bias, V::one(), acc)); }
};

/// MulAddStep in floats, for products that are exact in fp32. Sums of two fp16 or bf16 values may
/// be rounded to fp32 first: 24 >= 2 * 11 + 2.
template <class V, template <class> class To>
struct NarrowMulAddStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  explicit NarrowMulAddStep(const FormatRounding*) {}
  Reg step(Reg a, Reg b, Reg acc) const {
    return To<V>::round(V::add(acc, To<V>::round(V::mul(a, b))));
  }
  Reg add(Reg acc, Reg bias) const { return To<V>::round_any(V::add(acc, To<V>::round_any(bias))); }
};

template <class V, template <class> class To>
struct NarrowShortcutStep : SumOnly<V> {
  using Vector = V;
  using Reg = typename V::Reg;
  explicit NarrowShortcutStep(const FormatRounding*) {}
  Reg step(Reg a, Reg b, Reg acc) const { return To<V>::round(V::fma(a, b, acc)); }
  Reg add(Reg acc, Reg bias) const { return To<V>::round_any(V::add(acc, bias)); }
};

/// fp32 with compensation. Such a chain cannot be continued, because the lost part is not stored.
template <class V>
struct KahanStep {
  using Vector = V;
  using Reg = typename V::Reg;
  struct Acc {
    Reg sum, lost;
  };
  explicit KahanStep(const FormatRounding*) {}
  static Acc resume(Reg sum) { return {sum, V::zero()}; }
  static Reg sum(const Acc& acc) { return acc.sum; }
  Acc step(Reg a, Reg b, const Acc& acc) const {
    const Reg y = V::fms(a, b, acc.lost);
    const Reg t = V::add(acc.sum, y);
    // Not finite if and only if t is not.
    return {t, V::finite_or_zero(V::sub(V::sub(t, acc.sum), y))};
  }
  Acc add(const Acc& acc, Reg bias) const { return {V::add(acc.sum, bias), acc.lost}; }
};

/// Notes of one tile (TileNotes). Lanes without a column count too. They stay +0 unless a row of a
/// makes them NaN; in that case `finite` is false anyway.
template <class V>
struct LaneNotes {
  typename V::Count same = V::count_none();
  typename V::Reg largest = V::zero(), rest = V::zero();  ///< rest: 0, or NaN once x - x is

  void step(typename V::Reg before, typename V::Reg after) {
    same = V::count_same(same, before, after);
  }
  void look(typename V::Reg x) { largest = V::larger(largest, x); }
  void end(typename V::Reg x) { rest = V::add(rest, V::sub(x, x)); }
  void add_to(TileNotes& notes, int64_t steps_beside) const {
    using T = typename V::Scalar;
    notes.unchanged += V::total(same) - steps_beside;
    T largest_of[V::kLanes], rest_of[V::kLanes];
    V::store(largest_of, largest);
    V::store(rest_of, rest);
    for (int lane = 0; lane < V::kLanes; ++lane) {
      notes.finite = notes.finite && rest_of[lane] == rest_of[lane];
      const double size = static_cast<double>(largest_of[lane]);
      notes.largest = notes.largest > size ? notes.largest : size;
    }
  }
};

template <class Step, int kRows, int kVectors, bool kGather, bool kNotes>
void run_tile(const Tile<typename Step::Vector::Scalar>& t) {
  using V = typename Step::Vector;
  using T = typename V::Scalar;
  using Reg = typename V::Reg;
  constexpr int kLanes = V::kLanes;
  const Step step(t.rounding);
  const int last = t.columns - (kVectors - 1) * kLanes;  // columns of the last vector, 1..kLanes
  typename Step::Acc acc[kRows][kVectors];
  if (t.accumulate) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const T* c = t.c + t.c_row[i];
#pragma GCC unroll 2
      for (int v = 0; v + 1 < kVectors; ++v) acc[i][v] = Step::resume(V::load(c + v * kLanes));
      acc[i][kVectors - 1] = Step::resume(V::load_some(c + (kVectors - 1) * kLanes, last));
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] = Step::resume(V::zero());
    }
  }
  const T* b = t.b;
  const int64_t b_stride = t.b_stride;
  if constexpr (kGather) {
    const T* row[kRows];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) row[i] = t.a + t.a_row[i];
    const int64_t* column = t.a_column;
    for (int64_t k = 0; k < t.k; ++k, b += b_stride) {
      const int64_t offset = column[k];
      Reg bk[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) bk[v] = V::load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Reg a = V::broadcast(row[i] + offset);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = step.step(a, bk[v], acc[i][v]);
      }
    }
  } else if constexpr (kNotes) {
    LaneNotes<V> notes;
    const T* a = t.a;
    const int64_t a_stride = t.a_stride;
    for (int64_t left = t.k; left > 0; left -= t.look_every) {
      const T* const end = a + (left < t.look_every ? left : t.look_every) * a_stride;
      for (; a != end; a += a_stride, b += b_stride) {
        Reg bk[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) bk[v] = V::load(b + v * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const Reg ak = V::broadcast(a + i);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            const Reg next = step.step(ak, bk[v], acc[i][v]);
            notes.step(acc[i][v], next);
            acc[i][v] = next;
          }
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) notes.look(acc[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) notes.end(acc[i][v]);
    }
    notes.add_to(*t.notes, t.k * kRows * (kVectors * kLanes - t.columns));
  } else {
    const T* a = t.a;
    const int64_t a_stride = t.a_stride;
    for (int64_t k = 0; k < t.k; ++k, a += a_stride, b += b_stride) {
      Reg bk[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) bk[v] = V::load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Reg ak = V::broadcast(a + i);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = step.step(ak, bk[v], acc[i][v]);
      }
    }
  }
  if (t.finish) {
    if (t.row_bias != nullptr) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Reg bias = V::broadcast(t.row_bias + i);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = step.add(acc[i][v], bias);
      }
    }
    if (t.column_bias != nullptr) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const Reg bias = V::load(t.column_bias + v * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) acc[i][v] = step.add(acc[i][v], bias);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] = Step::resume(V::quiet(Step::sum(acc[i][v])));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    T* c = t.c + t.c_row[i];
#pragma GCC unroll 2
    for (int v = 0; v + 1 < kVectors; ++v) V::store(c + v * kLanes, Step::sum(acc[i][v]));
    V::store_some(c + (kVectors - 1) * kLanes, last, Step::sum(acc[i][kVectors - 1]));
  }
}

/// Sums of 1, 2, 4, 8, ... consecutive products, at most one of each size, like the digits of a
/// binary counter: adding one more carries over all consecutive ones. This is the balanced tree.
template <class V, int kVectors>
class PairwiseCounter {
 public:
  using Reg = typename V::Reg;
  void push(int level, Reg (&x)[kVectors]) {
    for (; (count_ >> level & 1) != 0; ++level) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) x[v] = V::add(digit_[level][v], x[v]);
      count_ -= int64_t{1} << level;
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) digit_[level][v] = x[v];
    count_ += int64_t{1} << level;
  }
  /// Adds up the digits; smaller sums are the right branches.
  void total(Reg (&x)[kVectors]) const {
    bool any = false;
    for (int level = 0; count_ >> level != 0; ++level) {
      if ((count_ >> level & 1) == 0) continue;
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        x[v] = any ? V::add(digit_[level][v], x[v]) : digit_[level][v];
      }
      any = true;
    }
  }

 private:
  static constexpr int kLevels = 48;
  int64_t count_ = 0;
  Reg digit_[kLevels][kVectors];
};

/// Adds fp32 products as a balanced tree: eight in registers, then by the counter. Goes row by row,
/// because there is no chain to wait for.
template <class V, int kVectors>
void run_pairwise(const Tile<float>& t, int rows) {
  using Reg = typename V::Reg;
  constexpr int kLanes = V::kLanes, kLeaf = 8;
  for (int i = 0; i < rows; ++i) {
    PairwiseCounter<V, kVectors> counter;
    const auto product = [&](int64_t k, int v) {
      return V::mul(V::broadcast(t.a + k * t.a_stride + i),
                    V::load(t.b + k * t.b_stride + v * kLanes));
    };
    int64_t k = 0;
    Reg x[kVectors];
    for (; k + kLeaf <= t.k; k += kLeaf) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const Reg p01 = V::add(product(k, v), product(k + 1, v));
        const Reg p23 = V::add(product(k + 2, v), product(k + 3, v));
        const Reg p45 = V::add(product(k + 4, v), product(k + 5, v));
        const Reg p67 = V::add(product(k + 6, v), product(k + 7, v));
        x[v] = V::add(V::add(p01, p23), V::add(p45, p67));
      }
      counter.push(3, x);
    }
    for (; k < t.k; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) x[v] = product(k, v);
      counter.push(0, x);
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) x[v] = V::zero();
    counter.total(x);
    float* const c = t.c + t.c_row[i];
    for (int v = 0; v < kVectors; ++v) {
      if (t.finish && t.row_bias != nullptr) x[v] = V::add(x[v], V::broadcast(t.row_bias + i));
      if (t.finish && t.column_bias != nullptr) {
        x[v] = V::add(x[v], V::load(t.column_bias + v * kLanes));
      }
      const int last = t.columns - v * kLanes;
      V::store_some(c + v * kLanes, last < kLanes ? last : kLanes, V::quiet(x[v]));
    }
  }
}

template <class V, int kRows, int kVectors>
void pairwise_tile(const Tile<float>& t) {
  run_pairwise<V, kVectors>(t, kRows);
}

/// Returns the tile function, in the rounding mode that its step needs.
template <class Step, int kRows, int kVectors, bool kGather, bool kNotes>
constexpr auto tile_function() {
  if constexpr (requires { Step::kDirected; }) {
    return Step::Vector::template directed<run_tile<Step, kRows, kVectors, kGather, kNotes>>;
  } else {
    return run_tile<Step, kRows, kVectors, kGather, kNotes>;
  }
}

/// Returns how many of a tile's rows are done first: all of them, or fewer, where a function for
/// every height would take too long to compile. `most` is the largest height.
template <class Step>
constexpr int first_height(int rows, int most) {
  if (rows == most || requires { Step::kEveryHeight; }) return rows;
  int height = 1;
  while (2 * height <= rows) height *= 2;
  return height;
}

template <class Step, int kRows, int kVectors, bool kGather, bool kNotes, int kMost>
constexpr typename Kernels<typename Step::Vector::Scalar>::TileFunction tile_of();

/// Runs the first kFirst rows of a tile of kRows, then the others: no chain depends on another.
template <class Step, int kFirst, int kRows, int kVectors, bool kGather, bool kNotes, int kMost>
void run_tiles(const Tile<typename Step::Vector::Scalar>& t) {
  constexpr int kRest = kRows - kFirst;
  tile_of<Step, kFirst, kVectors, kGather, kNotes, kMost>()(t);
  auto rest = t;
  if constexpr (kGather) {
    rest.a_row += kFirst;
  } else {
    rest.a += kFirst;
  }
  rest.c_row += kFirst;
  if (rest.row_bias != nullptr) rest.row_bias += kFirst;
  tile_of<Step, kRest, kVectors, kGather, kNotes, kMost>()(rest);
}

/// Returns the function for tiles of kRows rows, of at most kMost.
template <class Step, int kRows, int kVectors, bool kGather, bool kNotes, int kMost>
constexpr typename Kernels<typename Step::Vector::Scalar>::TileFunction tile_of() {
  constexpr int kFirst = first_height<Step>(kRows, kMost);
  if constexpr (kFirst == kRows) {
    return tile_function<Step, kRows, kVectors, kGather, kNotes>();
  } else {
    return run_tiles<Step, kFirst, kRows, kVectors, kGather, kNotes, kMost>;
  }
}

/// Fills rows kRows, kRows - 1, ... 1 of the two function tables.
template <class Step, bool kNotes, int kMost, int kRows, class T>
void fill_tiles(Kernels<T>& kernels) {
  kernels.strided[kRows - 1][0] = tile_of<Step, kRows, 1, false, kNotes, kMost>();
  kernels.strided[kRows - 1][1] = tile_of<Step, kRows, 2, false, kNotes, kMost>();
  if constexpr (!kNotes) {
    kernels.gather[kRows - 1][0] = tile_of<Step, kRows, 1, true, false, kMost>();
    kernels.gather[kRows - 1][1] = tile_of<Step, kRows, 2, true, false, kMost>();
  }
  if constexpr (kRows > 1) fill_tiles<Step, kNotes, kMost, kRows - 1>(kernels);
}

template <class V>
void copy_runs(int64_t k, const typename V::Scalar* from, const int64_t* offset, const Run* runs,
               int run_count, typename V::Scalar* to, int64_t to_stride) {
  for (int64_t i = 0; i < k; ++i) {
    const typename V::Scalar* line = from + offset[i];
    for (int r = 0; r < run_count; ++r) {
      V::copy(line + runs[r].from, to + runs[r].to, runs[r].length);
    }
    to += to_stride;
  }
}

template <class V>
void deliver(int64_t n, const typename V::Scalar* from, float* to, bool odd) {
  for (; n > 0; n -= V::kLanes, from += V::kLanes, to += V::kLanes) {
    const int some = n < V::kLanes ? static_cast<int>(n) : V::kLanes;
    V::deliver(to, some, V::load_some(from, some), odd);
  }
}

template <class T>
void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, T* to,
               int64_t to_stride, bool pad);

template <class Step, int kRows, bool kNotes = false>
Kernels<typename Step::Vector::Scalar> make_kernels() {
  using V = typename Step::Vector;
  using T = typename V::Scalar;
  static_assert(kRows <= kMaxRows);
  Kernels<T> kernels{};
  kernels.rows = kRows;
  kernels.lanes = V::kLanes;
  fill_tiles<Step, kNotes, kRows, kRows>(kernels);
  kernels.transpose = transpose<T>;
  kernels.copy_runs = copy_runs<V>;
  kernels.deliver = deliver<V>;
  return kernels;
}

template <class V, int kRows>
void fill_pairwise(Kernels<float>& kernels) {
  kernels.strided[kRows - 1][0] = pairwise_tile<V, kRows, 1>;
  kernels.strided[kRows - 1][1] = pairwise_tile<V, kRows, 2>;
  if constexpr (kRows > 1) fill_pairwise<V, kRows - 1>(kernels);
}

/// Pairwise kernels have strided tiles only, which must see all products in one call.
template <class V, int kRows>
Kernels<float> make_pairwise_kernels() {
  Kernels<float> kernels{};
  kernels.rows = kRows;
  kernels.lanes = V::kLanes;
  fill_pairwise<V, kRows>(kernels);
  kernels.transpose = transpose<float>;
  kernels.copy_runs = copy_runs<V>;
  kernels.deliver = deliver<V>;
  return kernels;
}

template <class V, template <class> class To, int kRows, bool kNotes = false>
NarrowKernels make_narrow_kernels() {
  return {make_kernels<NarrowFormatStep<V, To>, kRows, kNotes>(),
          make_kernels<NarrowMulAddStep<V, To>, kRows, kNotes>(),
          make_kernels<NarrowShortcutStep<V, To>, kRows, kNotes>()};
}

}  // namespace
}  // namespace halfscope::gemm_detail
