// SPDX-License-Identifier: MIT
// Where every value of an executable graph lies in one stretch of device memory, in fp32 (or int32)
// containers: values that no entry uses have no place, aliases (core/graph/execution.h) have that
// of the value they stand for.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/graph/lower.h"

namespace halfscope::gpu {

class Layout {
 public:
  explicit Layout(const Executable& executable);

  /// Bytes from the beginning, or -1.
  int64_t place(ValueId value) const { return places_[static_cast<size_t>(value)]; }
  int64_t bytes() const noexcept { return bytes_; }

 private:
  void add(const Graph& graph, ValueId value);

  std::map<ValueId, ValueId> alias_;
  std::vector<int64_t> places_;
  int64_t bytes_ = 0;
};

/// An operator that picks elements by index, and how many there are: positions must be checked
/// before they are used on the device. Negative ones count from the end, or, of labels, stand for
/// rows that are ignored.
struct IndexUse {
  NodeId node = kNone;
  int64_t classes = 0;
  int64_t ignored = -1;
  bool labels = false;
};

/// Of all indices: inputs, constants, results.
std::map<ValueId, std::vector<IndexUse>> index_uses(const Graph& graph);

/// Throws Error naming node and index if one is beyond the classes.
void check_indices(const Graph& graph, const IndexUse& use, const std::vector<int32_t>& indices);

}  // namespace halfscope::gpu
