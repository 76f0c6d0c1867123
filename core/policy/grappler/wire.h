// SPDX-License-Identifier: MIT
// Protocol buffers' wire format (protobuf.dev/programming-guides/encoding), as much as it takes to
// read types out of a graph without its tensors. For the sources of this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace halfscope::grappler {

/// Walks over the fields of one message. Stops at the first error.
class WireReader {
 public:
  explicit WireReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  /// Moves to the next field. Returns false at the end and after an error.
  bool next();
  bool failed() const noexcept { return failed_; }

  uint64_t field() const noexcept { return field_; }
  /// Whether the field has a number (wire type 0) or bytes (wire type 2).
  bool is_number() const noexcept { return wire_ == 0; }
  bool is_bytes() const noexcept { return wire_ == 2; }
  uint64_t number() const noexcept { return number_; }
  std::span<const uint8_t> bytes() const noexcept { return bytes_; }
  std::string text() const { return {bytes_.begin(), bytes_.end()}; }

  /// Calls visit(number) for each number of a packed field. Returns false if they are damaged.
  template <class Visit>
  static bool packed(std::span<const uint8_t> numbers, const Visit& visit) {
    WireReader reader(numbers);
    for (uint64_t number = 0; !reader.rest_.empty();) {
      if (!reader.varint(number)) return false;
      visit(number);
    }
    return true;
  }

 private:
  bool varint(uint64_t& value);
  bool skip(size_t count);

  std::span<const uint8_t> rest_, bytes_;
  uint64_t field_ = 0, number_ = 0;
  unsigned wire_ = 0;
  bool failed_ = false;
};

}  // namespace halfscope::grappler
