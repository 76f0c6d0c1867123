// SPDX-License-Identifier: MIT
// Assigns every value of an executable graph a place in one block of device memory, in the smallest
// storage that can represent its format (gpu/bodies/stored.h); indices are int32. Values that no
// entry uses have no place. Aliases (core/lower/execution.h) share the place of their value. What
// only `grad` makes and reads shares memory with what only `eval` does: neither is read after the
// other has run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <vector>

#include "core/lower/lower.h"
#include "gpu/bodies/stored.h"

namespace halfscope::gpu {

class Layout {
 public:
  explicit Layout(const Executable& executable);

  /// Returns the offset in bytes from the beginning, or -1.
  int64_t place(ValueId value) const { return places_[static_cast<size_t>(value)]; }
  int64_t bytes() const noexcept { return bytes_; }
  /// Returns the only entry that makes and reads the value, if it shares memory with those of
  /// another entry.
  std::optional<Entry> only_in(ValueId value) const { return only_[static_cast<size_t>(value)]; }
  /// Returns the storage of a real value that has a place.
  Storage storage(ValueId value) const { return storages_[static_cast<size_t>(value)]; }
  /// Returns the fp32 memory needed for the unrounded outputs of any one node that are stored in
  /// another format, or for any real value.
  int64_t exact_bytes() const noexcept { return exact_bytes_; }
  /// Returns the offset in that memory of the unrounded output `i` of the node.
  int64_t exact_place(const Graph& graph, const Node& node, size_t i) const;

 private:
  void add(const Graph& graph, ValueId value);
  /// Adds all values of these entries' nodes that `chosen` accepts.
  template <class Chosen>
  void add_nodes(const Executable& executable, std::initializer_list<Entry> entries,
                 const Chosen& chosen);

  std::map<ValueId, ValueId> alias_;
  std::vector<std::optional<Entry>> only_;
  std::vector<int64_t> places_;
  std::vector<Storage> storages_;
  int64_t bytes_ = 0, exact_bytes_ = 0;
};

/// An operator that picks elements by index, and the number of elements. Positions must be checked
/// before they are used on the device. Negative positions count from the end; negative labels mark
/// ignored rows.
struct IndexUse {
  NodeId node = kNone;
  int64_t classes = 0;
  int64_t ignored = -1;
  bool labels = false;
};

/// Returns the uses of all indices: inputs, constants, outputs.
std::map<ValueId, std::vector<IndexUse>> index_uses(const Graph& graph);

/// Throws Error, with the node and the index, if an index is out of range.
void check_indices(const Graph& graph, const IndexUse& use, const std::vector<int32_t>& indices);

}  // namespace halfscope::gpu
