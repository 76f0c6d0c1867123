// SPDX-License-Identifier: MIT
// Decides which values have their channels last in plain steps. Libraries compute convolutions on
// tensors with channels last, and ONNX has them second. So activations around convolutions keep
// channels last between the nodes, as far as every node that touches them can read and write them
// like that. Recorded steps always have the order of ONNX, in which statistics are taken.
#pragma once

#include <array>
#include <set>
#include <vector>

#include "core/lower/lower.h"

namespace halfscope::gpu {

class ChannelOrder {
 public:
  /// No value has its channels last.
  ChannelOrder() = default;
  /// `convolutions`: nodes that a library computes on tensors with channels last.
  ChannelOrder(const Executable& executable, const std::set<NodeId>& convolutions);

  bool last(ValueId value) const {
    const size_t at = static_cast<size_t>(value);
    return at < last_.size() && last_[at];
  }
  /// Returns the values with channels last that an entry computes.
  const std::vector<ValueId>& made_by(Entry entry) const {
    return made_by_[static_cast<size_t>(entry)];
  }

 private:
  std::vector<bool> last_;
  std::array<std::vector<ValueId>, kEntryCount> made_by_;
};

}  // namespace halfscope::gpu
