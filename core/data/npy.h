// SPDX-License-Identifier: MIT
// One .npy array (numpy.lib.format): magic, version, header length, a Python dict literal with
// descr, fortran_order and shape, padding, then the raw values. Shared by .npy files and the
// members of .npz archives. Declared sizes are checked against the bytes of the file before memory
// is allocated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/data/stored_array.h"
#include "core/tensor.h"

namespace halfscope {

/// Hint of errors about damaged .npy and .npz files.
inline constexpr const char* kDamagedFileHint =
    "the file is damaged or incomplete; copy or create it again";

/// A known number of bytes that are read in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Returns the number of all bytes, read or not.
  virtual uint64_t size() const noexcept = 0;

  /// Fills `target` with the next bytes or throws Error. Callers never ask for more than is left.
  virtual void read(std::span<uint8_t> target) = 0;
};

/// Bytes in memory, which must outlive the source.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::span<const uint8_t> bytes) noexcept
      : rest_(bytes), size_(bytes.size()) {}

  uint64_t size() const noexcept override { return size_; }
  void read(std::span<uint8_t> target) override;

 private:
  std::span<const uint8_t> rest_;
  uint64_t size_;
};

/// Reads a whole file. Throws Error if it cannot be read.
std::vector<uint8_t> read_file(const std::filesystem::path& file);

/// Reads the header of an array that fills the rest of the source exactly; the values come next.
/// `name` is for messages and becomes the array's.
StoredArray read_npy_header(ByteSource& source, const std::string& name);

/// Reads one array that fills the source exactly; `name` is for messages.
Tensor read_npy_array(ByteSource& source, const std::string& name);

/// Reads an array as double.
DoubleTensor read_npy_double_array(ByteSource& source, const std::string& name);

/// Returns the version 1.0 header of a C-order array, padded to a multiple of 64 bytes as numpy
/// does; `type` is "<f4" or "<f8".
std::vector<uint8_t> npy_header(const Shape& shape, const char* type);

}  // namespace halfscope
