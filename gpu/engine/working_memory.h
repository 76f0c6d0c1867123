// SPDX-License-Identifier: MIT
// Memory that the steps of one node use while they run. A node's recorded and plain steps never run
// at the same time, so they get the same memory.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace halfscope::gpu {

class WorkingMemory {
 public:
  /// `allocate` returns that many bytes of memory, which outlive the steps.
  explicit WorkingMemory(std::function<void*(size_t bytes)> allocate)
      : allocate_(std::move(allocate)) {}

  /// Returns memory that no other call has got since rewind().
  void* get(size_t bytes) {
    for (Block& block : blocks_) {
      if (block.taken || block.bytes < bytes) continue;
      block.taken = true;
      return block.memory;
    }
    blocks_.push_back({allocate_(bytes), bytes, true});
    return blocks_.back().memory;
  }
  /// Hands out the same memory again.
  void rewind() {
    for (Block& block : blocks_) block.taken = false;
  }

 private:
  struct Block {
    void* memory;
    size_t bytes;
    bool taken;
  };
  std::function<void*(size_t)> allocate_;
  std::vector<Block> blocks_;
};

}  // namespace halfscope::gpu
