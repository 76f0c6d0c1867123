// SPDX-License-Identifier: MIT
// Walks over N tensors in parallel, each with its own strides (0 where it is broadcast, negative
// where it is read backwards). The walk is cut into rows of adjacent elements, which threads share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/ops/movement.h"
#include "core/tensor.h"
#include "emulation/engine/kernel.h"

namespace halfscope {

template <size_t N>
class Walk {
 public:
  using Offsets = std::array<int64_t, N>;

  /// Drops dimensions of size 1 and merges neighbouring dimensions that are contiguous in all
  /// tensors.
  Walk(const Shape& sizes, const std::array<Strides, N>& strides) {
    size_.reserve(sizes.size());
    stride_.reserve(sizes.size());
    for (size_t d = 0; d < sizes.size(); ++d) {
      empty_ = empty_ || sizes[d] == 0;
      if (sizes[d] == 1) continue;
      Offsets stride;
      bool merges = !size_.empty();
      for (size_t i = 0; i < N; ++i) {
        stride[i] = strides[i][d];
        merges = merges && stride_.back()[i] == stride[i] * sizes[d];
      }
      if (merges) {
        size_.back() *= sizes[d];
        stride_.back() = stride;
      } else {
        size_.push_back(sizes[d]);
        stride_.push_back(stride);
      }
    }
    if (size_.empty()) {
      size_.push_back(1);
      stride_.push_back({});
    }
  }

  /// Returns the strides within a row.
  const Offsets& step() const { return stride_.back(); }

  /// Calls f(offsets of the row, number of elements) for every row.
  template <class F>
  void rows(const F& f) const {
    if (empty_) return;
    const size_t outer = size_.size() - 1;
    int64_t count = 1;
    for (size_t d = 0; d < outer; ++d) count *= size_[d];
    const int64_t length = size_.back(), grain = std::max<int64_t>(1, kGrain / length);
    const auto range = [&](int64_t begin, int64_t end) {
      std::vector<int64_t> at(outer, 0);
      Offsets offsets{};
      int64_t rest = begin;
      for (size_t d = outer; d-- > 0;) {
        at[d] = rest % size_[d];
        rest /= size_[d];
        for (size_t i = 0; i < N; ++i) offsets[i] += at[d] * stride_[d][i];
      }
      for (int64_t row = begin; row < end; ++row) {
        f(offsets, length);
        for (size_t d = outer; d-- > 0;) {
          const bool stays = ++at[d] < size_[d];
          for (size_t i = 0; i < N; ++i) {
            offsets[i] += stays ? stride_[d][i] : -(size_[d] - 1) * stride_[d][i];
          }
          if (stays) break;
          at[d] = 0;
        }
      }
    };
    if (count <= grain) return range(0, count);  // waking the threads would take longer
    parallel_ranges(count, grain, range);
  }

 private:
  std::vector<int64_t> size_;
  std::vector<Offsets> stride_;
  bool empty_ = false;
};

}  // namespace halfscope
