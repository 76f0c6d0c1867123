// SPDX-License-Identifier: MIT
// Values of any type that can be copied byte by byte, such as bodies of kernels: code that only
// keeps them needs no template.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

namespace halfscope::gpu {

/// A value that someone else owns.
struct ByteView {
  const void* data;
  size_t size;

  template <class T>
  ByteView(const T& value) : data(&value), size(sizeof value) {  // NOLINT: converts
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, "Bytes allocates for less");
  }
};

/// A copy of a value.
class Bytes {
 public:
  explicit Bytes(ByteView value)
      : bytes_(static_cast<const std::byte*>(value.data),
               static_cast<const std::byte*>(value.data) + value.size) {}

  const void* data() const { return bytes_.data(); }
  /// Returns the value, which was of this type.
  template <class T>
  const T& as() const {
    return *static_cast<const T*>(data());
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace halfscope::gpu
