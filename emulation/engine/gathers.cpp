// SPDX-License-Identifier: MIT
// Gather, GatherElements and their gradients. A gradient sums the elements of dy that belong to one
// element of x, under the node's accumulation, in ascending order of the positions in `indices`.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "core/bodies/indices.h"
#include "core/error.h"
#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

/// Throws Error for an index beyond the axis, which would address memory outside the tensor.
void check_indices(const Node& node, const int32_t* indices, int64_t count, int64_t length) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] >= -length && indices[i] < length) continue;
    throw Error(node.path + " (" + node.op + "): index " + std::to_string(indices[i]) +
                " is out of range: there are " + std::to_string(length) + " elements");
  }
}

/// Does the same for labels. Negative labels are ignored.
void check_labels(const Node& node, const int32_t* labels, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    if (labels[row] >= 0) check_indices(node, labels + row, 1, columns);
  }
}

template <class T>
void gather(KernelCall<T>& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit split = split_at(x, axis_attribute(*c.node, x.size(), 0));
  const GatherShape<int64_t> s{split.length, split.inner, c.in_count(1)};
  check_indices(*c.node, c.index_in[1], s.count, s.length);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(s.inner, 1));
  parallel_ranges(split.outer * s.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(c.out[0] + row * s.inner, c.in[0] + s.line(c.index_in[1], row) * s.inner,
                  static_cast<size_t>(s.inner) * sizeof(T));
    }
  });
}

/// Sums one row of the table over the lines of dy that start at `terms`; each line has `inner`
/// elements. dy has `outer` parts, `part` elements apart.
template <class T>
void sum_lines(const SumSpec&, const AxisSplit& s, const std::vector<int64_t>& terms, int64_t part,
               const T* dy, int64_t row, T* dx) {
  for (int64_t o = 0; o < s.outer; ++o) {
    T* const sums = dx + (o * s.length + row) * s.inner;
    for (const int64_t term : terms) {
      const T* const line = dy + o * part + term;
      for (int64_t i = 0; i < s.inner; ++i) sums[i] += line[i];
    }
  }
}

/// Same for any accumulation other than an fp32 chain.
void sum_lines_otherwise(const SumSpec& spec, const AxisSplit& s, const std::vector<int64_t>& terms,
                         int64_t part, const float* dy, int64_t row, float* dx) {
  const int64_t width = s.outer * s.inner;
  std::vector<float> lines, sums(static_cast<size_t>(width));
  for (const int64_t term : terms) {
    for (int64_t o = 0; o < s.outer; ++o) {
      const float* const line = dy + o * part + term;
      lines.insert(lines.end(), line, line + s.inner);
    }
  }
  sum_except(static_cast<int64_t>(terms.size()), width, 1, lines.data(), sums.data(),
             sums_of_row(spec, row));
  for (int64_t o = 0; o < s.outer; ++o) {
    std::copy_n(sums.data() + o * s.inner, s.inner, dx + (o * s.length + row) * s.inner);
  }
}

template <class T>
void gather_grad(KernelCall<T>& c) {  // (dy, indices) -> dx
  const Shape& x = c.out_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size(), 0));
  const int64_t count = c.in_count(1);
  check_indices(*c.node, c.index_in[1], count, s.length);
  const auto row_of = [&](int64_t i) {
    return static_cast<size_t>(from_end(c.index_in[1][i], s.length));
  };
  // Positions that read each row, ascending: row r has places[first[r]] to places[first[r+1]].
  std::vector<int64_t> first(static_cast<size_t>(s.length) + 1, 0);
  std::vector<int64_t> places(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ++first[row_of(i) + 1];
  for (size_t row = 1; row < first.size(); ++row) first[row] += first[row - 1];
  std::vector<int64_t> next = first;
  for (int64_t i = 0; i < count; ++i) places[static_cast<size_t>(next[row_of(i)]++)] = i * s.inner;
  const SumSpec spec = c.sum_spec();
  std::fill_n(c.out[0], c.out_count(0), T{0});
  parallel_ranges(s.length, 64, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> terms;
    for (int64_t row = begin; row < end; ++row) {
      const auto place = [&](int64_t i) { return places.begin() + first[static_cast<size_t>(i)]; };
      terms.assign(place(row), place(row + 1));
      if (terms.empty()) continue;
      if constexpr (std::is_same_v<T, float>) {
        if (spec.accumulation != Accumulation::fp32) {
          sum_lines_otherwise(spec, s, terms, count * s.inner, c.in[0], row, c.out[0]);
          continue;
        }
      }
      sum_lines(spec, s, terms, count * s.inner, c.in[0], row, c.out[0]);
    }
  });
}

template <class T>
void gather_labels(KernelCall<T>& c) {
  const int64_t rows = c.in_shape(0)[0], columns = c.in_shape(0)[1];
  check_labels(*c.node, c.index_in[1], rows, columns);
  for_items(rows, kGrain, GatherLabels<const T*, T*>{c.in[0], c.index_in[1], c.out[0], columns});
}

template <class T>
void gather_elements(KernelCall<T>& c) {
  if (takes_labels(*c.node)) return gather_labels(c);
  const Shape &x = c.in_shape(0), &indices = c.in_shape(1);
  const size_t axis = static_cast<size_t>(axis_attribute(*c.node, x.size(), 0));
  Strides from = row_major(x);
  const int64_t length = x[axis], distance = std::exchange(from[axis], 0);
  check_indices(*c.node, c.index_in[1], c.in_count(1), length);
  const Walk<2> walk(indices, {from, row_major(indices)});
  const int64_t step_x = walk.step()[0], step = walk.step()[1];
  walk.rows([&](const std::array<int64_t, 2>& at, int64_t n) {
    const T* const line = c.in[0] + at[0];
    const int32_t* const index = c.index_in[1] + at[1];
    T* const y = c.out[0] + at[1];
    for (int64_t i = 0; i < n; ++i) {
      y[i * step] = line[i * step_x + from_end(index[i * step], length) * distance];
    }
  });
}

template <class T>
void gather_labels_grad(KernelCall<T>& c) {
  const int64_t rows = c.out_shape(0)[0], columns = c.out_shape(0)[1];
  check_labels(*c.node, c.index_in[1], rows, columns);
  std::fill_n(c.out[0], rows * columns, T{0});
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t index = c.index_in[1][row];
    if (index >= 0) c.out[0][row * columns + index] = c.in[0][row];
  }
}

/// Positions of x that a GatherElements reads. An index selects along the axis; the coordinates
/// along all other axes are those of the index.
struct ElementPlaces {
  AxisSplit line;
  int64_t taken;                      ///< elements of `indices` along the axis
  std::vector<int64_t> outer, inner;  ///< positions in x, by position in `indices`

  ElementPlaces(const Shape& x, const Shape& indices, int64_t axis) : line(split_at(x, axis)) {
    const size_t split = static_cast<size_t>(axis);
    taken = indices[split];
    outer = places(x, indices, 0, split);
    inner = places(x, indices, split + 1, x.size());
  }

 private:
  static std::vector<int64_t> places(const Shape& x, const Shape& indices, size_t from, size_t to) {
    std::vector<int64_t> list{0};
    for (size_t i = from; i < to; ++i) {
      std::vector<int64_t> grown;
      for (const int64_t place : list) {
        for (int64_t j = 0; j < indices[i]; ++j) grown.push_back(place * x[i] + j);
      }
      list = std::move(grown);
    }
    return list;
  }
};

float sum_of(const SumSpec& spec, const std::vector<float>& values, int64_t element) {
  const double sum = sum_of_values(sums_of_row(spec, element), values);
  return spec.accumulation == Accumulation::fp64 ? deliver(sum, spec.write)
                                                 : static_cast<float>(sum);
}
double sum_of(const SumSpec&, const std::vector<double>& values, int64_t) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}

template <class T>
void gather_elements_grad(KernelCall<T>& c) {  // (dy, indices) -> dx
  if (takes_labels(*c.node)) return gather_labels_grad(c);
  const Shape& x = c.out_shape(0);
  const ElementPlaces p(x, c.in_shape(1), axis_attribute(*c.node, x.size(), 0));
  check_indices(*c.node, c.index_in[1], c.in_count(1), p.line.length);
  const SumSpec spec = c.sum_spec();
  std::fill_n(c.out[0], c.out_count(0), T{0});
  const int64_t inner_count = static_cast<int64_t>(p.inner.size());
  parallel_ranges(static_cast<int64_t>(p.outer.size()) * inner_count, 64,
                  [&](int64_t begin, int64_t end) {
                    std::vector<std::vector<T>> read(static_cast<size_t>(p.line.length));
                    for (int64_t line = begin; line < end; ++line) {
                      const int64_t o = line / inner_count, i = line % inner_count;
                      for (std::vector<T>& each : read) each.clear();
                      for (int64_t j = 0; j < p.taken; ++j) {
                        const int64_t place = (o * p.taken + j) * inner_count + i;
                        const int64_t row = from_end(c.index_in[1][place], p.line.length);
                        read[static_cast<size_t>(row)].push_back(c.in[0][place]);
                      }
                      for (int64_t row = 0; row < p.line.length; ++row) {
                        const std::vector<T>& values = read[static_cast<size_t>(row)];
                        if (values.empty()) continue;
                        const int64_t to =
                            (p.outer[static_cast<size_t>(o)] * p.line.length + row) * p.line.inner +
                            p.inner[static_cast<size_t>(i)];
                        c.out[0][to] = sum_of(spec, values, to);
                      }
                    }
                  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> gather_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Gather", gather<T>},
      {"GatherGrad", gather_grad<T>},
      {"GatherElements", gather_elements<T>},
      {"GatherElementsGrad", gather_elements_grad<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> gather_kernels();
template std::span<const KernelEntry<double>> gather_kernels();

template <>
std::span<const KernelEntry<int32_t>> gather_kernels() {
  static constexpr KernelEntry<int32_t> kernels[] = {
      {"Gather", gather<int32_t>},
      {"GatherElements", gather_elements<int32_t>},
  };
  return kernels;
}

}  // namespace halfscope
