// SPDX-License-Identifier: MIT
// A file in memory that is read only where someone looks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace halfscope {

class MappedFile {
 public:
  /// Maps the whole file, read-only. Throws Error if it cannot be read. The file must not become
  /// shorter while it is mapped.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const noexcept { return {data_, size_}; }

  /// Tells the system that `part` of bytes() is not needed again soon, so that it takes no memory.
  void release(std::span<const uint8_t> part) const noexcept;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace halfscope
