// SPDX-License-Identifier: MIT
// Where a program's values are on the device, and copies between them and the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/lower/lower.h"
#include "gpu/bodies/channels_last.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/step.h"
#include "gpu/bodies/tap.h"
#include "gpu/engine/input_feed.h"
#include "gpu/engine/layout.h"

namespace halfscope::gpu {

template <class X>
class ProgramMemory {
 public:
  ProgramMemory(X& executor, const Executable& executable)
      : executor_(executor), graph_(executable.graph), layout_(executable) {
    arena_ = allocate<std::byte>(layout_.bytes());
    exact_ = reinterpret_cast<float*>(allocate<std::byte>(layout_.exact_bytes()));
    for (const NamedValue& input : executable.inputs) {
      if (!has_place(input.value)) continue;
      const int64_t count = element_count(description(input.value).shape);
      feeds_.try_emplace(input.value, executor_, static_cast<size_t>(count) * kBytes);
    }
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
  /// Returns memory for the unrounded outputs of the current node; also staging for copies. It has
  /// room for any value.
  float* exact() const { return exact_; }

  /// Stores data from the host as the value. Inputs are sent while earlier launches run.
  void put(ValueId value, std::span<const float> data) {
    const auto feed = feeds_.find(value);
    if (feed != feeds_.end()) {
      feed->second.send(data.data(), data.size_bytes(),
                        [&](const void* sent) { store(value, static_cast<const float*>(sent)); });
      return;
    }
    const Destination to = destination(value);
    float* const at = bytes_of(to.storage) < 4 ? exact_ : static_cast<float*>(to.memory);
    executor_.upload(at, data.data(), data.size_bytes());
    store(value, at);
  }
  void put(ValueId value, std::span<const int32_t> data) {
    const auto feed = feeds_.find(value);
    if (feed == feeds_.end()) {
      executor_.upload(index(value), data.data(), data.size_bytes());
      return;
    }
    feed->second.send(data.data(), data.size_bytes(), [&](const void* sent) {
      executor_.copy(index(value), sent, data.size_bytes());
    });
  }
  /// Stores a scalar, without a copy.
  void put(ValueId value, float number) {
    executor_.items(1, StoreScalar{destination(value), static_cast<double>(number)});
  }
  /// Returns the value as floats on the device, valid until the next node runs.
  const float* plain(ValueId value) const {
    if (!is_there(value) || !is_real(value)) throw not_computed(value);
    const In<float> stored = real(value);
    const bool as_it_is = bytes_of(stored.storage()) == 4 && !turned_.contains(value);
    if (as_it_is) return static_cast<const float*>(stored.memory());
    copy_to(value, exact_);
    return exact_;
  }
  /// Copies the value, as U, to memory on the device.
  template <class U>
  void copy_to(ValueId value, U* to) const {
    if (!is_there(value)) throw not_computed(value);
    const Shape& shape = description(value).shape;
    const int64_t n = element_count(shape);
    if (turned_.contains(value)) {
      executor_.items(n, FromChannelsLast<U>{real(value), to, shape[1], shape[2] * shape[3]});
    } else {
      executor_.items(n, Convert<float, U>{real(value), to});
    }
  }
  /// Notes how an entry runs from now on: with these values in channels last and without those, or
  /// with all values in the order of ONNX.
  void note(Entry entry, bool plain, const std::vector<ValueId>& turned,
            const std::vector<ValueId>& left_out) {
    if (entry == Entry::grad || entry == Entry::eval) last_ = entry;
    const std::pair<Entry, bool> now{entry, plain};
    if ((turned.empty() && left_out.empty()) || noted_ == now) return;
    noted_ = now;
    for (ValueId value : turned) change(value, plain, turned_);
    for (ValueId value : left_out) change(value, plain, left_out_);
  }
  /// Returns whether the value was stored, and is still there.
  bool is_there(ValueId value) const {
    if (!has_place(value) || left_out_.contains(value)) return false;
    const std::optional<Entry> only = layout_.only_in(value);
    return !only || only == last_;
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
  static void change(ValueId value, bool contained, std::set<ValueId>& in) {
    if (contained) {
      in.insert(value);
    } else {
      in.erase(value);
    }
  }

  static constexpr size_t kBytes = 4;  ///< of an element on its way from the host

  /// Stores floats that are on the device as the value.
  void store(ValueId value, const float* from) {
    const Destination to = destination(value);
    const int64_t count = element_count(description(value).shape);
    if (to.format != kFp32) {
      const Round round{from, to, count};
      executor_.items(round.items(), round);
    } else if (from != to.memory) {
      executor_.copy(to.memory, from, static_cast<size_t>(count) * kBytes);
    }
  }

  X& executor_;
  const Graph& graph_;
  const Layout layout_;
  std::byte* arena_ = nullptr;
  float* exact_ = nullptr;
  std::set<ValueId> turned_, left_out_;
  std::optional<std::pair<Entry, bool>> noted_;  ///< by note() last
  std::optional<Entry> last_;                    ///< the last of those that share memory (layout.h)
  std::map<ValueId, InputFeed<X>> feeds_;        ///< of the inputs
};

}  // namespace halfscope::gpu
