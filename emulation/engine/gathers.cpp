// SPDX-License-Identifier: MIT
// Gather, GatherElements and their gradients, which sum what an element was read for under the
// node's accumulation, in ascending order of the positions in `indices`.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"

namespace halfscope {
namespace {

/// Indices with negative ones counted from the end. Throws Error for one beyond the axis: it would
/// name memory that is not ours.
std::vector<int64_t> positions(const Node& node, const int32_t* indices, int64_t count,
                               int64_t length) {
  std::vector<int64_t> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[i] < 0 ? indices[i] + length : indices[i];
    if (index < 0 || index >= length) {
      throw Error(node.path + " (" + node.op + "): index " + std::to_string(indices[i]) + " of " +
                  std::to_string(length));
    }
    result[static_cast<size_t>(i)] = index;
  }
  return result;
}

template <class T>
void gather(KernelCall<T>& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size(), 0));
  const int64_t count = c.in_count(1);
  const std::vector<int64_t> at = positions(*c.node, c.index_in[1], count, s.length);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(s.inner, 1));
  parallel_ranges(s.outer * count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from = row / count * s.length + at[static_cast<size_t>(row % count)];
      std::memcpy(c.out[0] + row * s.inner, c.in[0] + from * s.inner,
                  static_cast<size_t>(s.inner) * sizeof(T));
    }
  });
}

/// Sums of one row of the table: `terms` lines of dy, given by their first elements, each `inner`
/// long, of every one of `outer` parts of dy.
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

/// Under any other accumulation than an fp32 chain.
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
  const std::vector<int64_t> at = positions(*c.node, c.index_in[1], count, s.length);
  // The positions that read each row, ascending: row r has places[first[r]] to places[first[r+1]].
  std::vector<int64_t> first(static_cast<size_t>(s.length) + 1, 0), places(at.size());
  for (const int64_t row : at) ++first[static_cast<size_t>(row) + 1];
  for (size_t row = 1; row < first.size(); ++row) first[row] += first[row - 1];
  std::vector<int64_t> next = first;
  for (size_t i = 0; i < at.size(); ++i) {
    places[static_cast<size_t>(next[static_cast<size_t>(at[i])]++)] =
        static_cast<int64_t>(i) * s.inner;
  }
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

/// The elements of x that GatherElements reads: of the line of x with the same coordinates along
/// all other axes.
struct ElementPlaces {
  AxisSplit line;
  int64_t taken;                      ///< elements of indices along the axis
  std::vector<int64_t> outer, inner;  ///< places in x, given those in indices

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

template <class T>
void gather_labels(KernelCall<T>& c) {
  const int64_t rows = c.in_shape(0)[0], columns = c.in_shape(0)[1];
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t index = c.index_in[1][row];
    if (index >= 0) positions(*c.node, &index, 1, columns);
    c.out[0][row] = index < 0 ? T{0} : c.in[0][row * columns + index];
  }
}

template <class T>
void gather_elements(KernelCall<T>& c) {
  if (takes_labels(*c.node)) return gather_labels(c);
  const Shape& x = c.in_shape(0);
  const ElementPlaces p(x, c.in_shape(1), axis_attribute(*c.node, x.size(), 0));
  const std::vector<int64_t> at = positions(*c.node, c.index_in[1], c.in_count(1), p.line.length);
  size_t i = 0;
  for (const int64_t outer : p.outer) {
    for (int64_t j = 0; j < p.taken; ++j) {
      for (const int64_t inner : p.inner) {
        c.out[0][i] = c.in[0][(outer * p.line.length + at[i]) * p.line.inner + inner];
        ++i;
      }
    }
  }
}

template <class T>
void gather_labels_grad(KernelCall<T>& c) {
  const int64_t rows = c.out_shape(0)[0], columns = c.out_shape(0)[1];
  std::fill_n(c.out[0], rows * columns, T{0});
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t index = c.index_in[1][row];
    if (index >= 0) positions(*c.node, &index, 1, columns);
    if (index >= 0) c.out[0][row * columns + index] = c.in[0][row];
  }
}

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
  const std::vector<int64_t> at = positions(*c.node, c.index_in[1], c.in_count(1), p.line.length);
  const SumSpec spec = c.sum_spec();
  std::fill_n(c.out[0], c.out_count(0), T{0});
  const int64_t inner_count = static_cast<int64_t>(p.inner.size());
  parallel_ranges(
      static_cast<int64_t>(p.outer.size()) * inner_count, 64, [&](int64_t begin, int64_t end) {
        std::vector<std::vector<T>> read(static_cast<size_t>(p.line.length));
        for (int64_t line = begin; line < end; ++line) {
          const int64_t o = line / inner_count, i = line % inner_count;
          for (std::vector<T>& each : read) each.clear();
          for (int64_t j = 0; j < p.taken; ++j) {
            const size_t place = static_cast<size_t>((o * p.taken + j) * inner_count + i);
            read[static_cast<size_t>(at[place])].push_back(c.in[0][place]);
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
