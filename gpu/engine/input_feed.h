// SPDX-License-Identifier: MIT
// Sends one input of a program to the device while earlier steps still run there. The data goes to
// one of two buffers and from there, in the order of the launches, to the input's place, which is
// the same in every step, as a recording needs it.
//
//   copies:    batch 1 -> buffer 0 | batch 2 -> buffer 1 | batch 3 -> buffer 0, after its last use
//   launches:    buffer 0 -> place, step 1 ... | buffer 1 -> place, step 2 ... | ...
#pragma once

#include <array>
#include <cstddef>

namespace halfscope::gpu {

template <class X>
class InputFeed {
 public:
  /// Allocates both buffers. The executor must outlive this object.
  InputFeed(X& executor, size_t bytes) : executor_(executor) {
    for (auto& buffer : buffers_) buffer.memory = executor.allocate(bytes);
  }

  /// Sends data, which may be changed when this returns. `use(memory)` launches what reads it on
  /// the device.
  template <class F>
  void send(const void* data, size_t bytes, const F& use) {
    typename X::Buffer& buffer = buffers_[sent_++ % buffers_.size()];
    executor_.feed(buffer, data, bytes);
    use(buffer.memory);
    executor_.was_read(buffer);
  }

 private:
  X& executor_;
  std::array<typename X::Buffer, 2> buffers_{};
  size_t sent_ = 0;
};

}  // namespace halfscope::gpu
