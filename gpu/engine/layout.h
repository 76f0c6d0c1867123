// SPDX-License-Identifier: MIT
// Where every value of an executable graph lies in one stretch of device memory, in the storage of
// the fewest bytes that holds its format (gpu/bodies/stored.h), indices as int32: values that no
// entry uses have no place, aliases (core/lower/execution.h) have that of the value they stand for.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/lower/lower.h"
#include "gpu/bodies/stored.h"

namespace halfscope::gpu {

class Layout {
 public:
  explicit Layout(const Executable& executable);

  /// Bytes from the beginning, or -1.
  int64_t place(ValueId value) const { return places_[static_cast<size_t>(value)]; }
  int64_t bytes() const noexcept { return bytes_; }
  /// Of a real value that has a place.
  Storage storage(ValueId value) const { return storages_[static_cast<size_t>(value)]; }
  /// Of fp32 memory for the results of any one node that are stored otherwise, or for any such
  /// value.
  int64_t exact_bytes() const noexcept { return exact_bytes_; }
  /// Where in that memory output `i` of the node has its exact results.
  int64_t exact_place(const Graph& graph, const Node& node, size_t i) const;

 private:
  void add(const Graph& graph, ValueId value);

  std::map<ValueId, ValueId> alias_;
  std::vector<int64_t> places_;
  std::vector<Storage> storages_;
  int64_t bytes_ = 0, exact_bytes_ = 0;
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
