// SPDX-License-Identifier: MIT
// Where a program's values are on the device, and copies between them and the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "core/lower/lower.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/tap.h"
#include "gpu/engine/layout.h"

namespace halfscope::gpu {

template <class X>
class ProgramMemory {
 public:
  ProgramMemory(X& executor, const Executable& executable)
      : executor_(executor), graph_(executable.graph), layout_(executable) {
    arena_ = allocate<std::byte>(layout_.bytes());
    exact_ = reinterpret_cast<float*>(allocate<std::byte>(layout_.exact_bytes()));
  }

  const Layout& layout() const { return layout_; }
  const Value& description(ValueId value) const { return graph_.value(value); }
  bool is_real(ValueId value) const { return description(value).type == ElementType::real; }
  bool has_place(ValueId value) const { return layout_.place(value) >= 0; }

  In<float> real(ValueId value) const {
    return {arena_ + layout_.place(value), layout_.storage(value)};
  }
  Destination destination(ValueId value) const {
    return {arena_ + layout_.place(value), layout_.storage(value), description(value).format};
  }
  int32_t* index(ValueId value) const {
    return reinterpret_cast<int32_t*>(arena_ + layout_.place(value));
  }
  /// Returns memory for the unrounded outputs of the current node; also staging for copies.
  float* exact() const { return exact_; }

  /// Stores data from the host as the value.
  void put(ValueId value, std::span<const float> data) const {
    const Destination to = destination(value);
    float* const at = bytes_of(to.storage) < 4 ? exact_ : static_cast<float*>(to.memory);
    executor_.upload(at, data.data(), data.size_bytes());
    if (to.format != kFp32) {
      const Round round{at, to, static_cast<int64_t>(data.size())};
      executor_.items(round.items(), round);
    }
  }
  /// Returns the value as floats on the device, valid until the next node runs.
  const float* plain(ValueId value) const {
    if (!has_place(value) || !is_real(value)) throw not_computed(value);
    const In<float> stored = real(value);
    if (bytes_of(stored.storage()) == 4) return static_cast<const float*>(stored.memory());
    executor_.items(element_count(description(value).shape), Convert<float, float>{stored, exact_});
    return exact_;
  }
  /// Copies the value, as U, to memory on the device.
  template <class U>
  void copy_to(ValueId value, U* to) const {
    executor_.items(element_count(description(value).shape), Convert<float, U>{real(value), to});
  }
  static Error not_computed(ValueId value) {
    return Error("value " + std::to_string(value) + " is not computed");
  }

  template <class U>
  U* allocate(int64_t count) const {
    return static_cast<U*>(
        executor_.allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }

 private:
  X& executor_;
  const Graph& graph_;
  const Layout layout_;
  std::byte* arena_ = nullptr;
  float* exact_ = nullptr;
};

}  // namespace halfscope::gpu
