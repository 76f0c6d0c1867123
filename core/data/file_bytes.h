// SPDX-License-Identifier: MIT
// A file that is read in parts, wherever someone looks. It is not mapped: if a mapped file became
// shorter while it is read, the system would end the program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/data/npy.h"

namespace halfscope {

class FileBytes {
 public:
  /// Opens a file. Throws Error if it cannot be read.
  explicit FileBytes(const std::filesystem::path& file);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// Returns the size of the file when it was opened.
  uint64_t size() const noexcept { return size_; }

  /// Fills `target` with the bytes from `offset` on, which must be within size(). Several threads
  /// may read at the same time. Throws Error if the file cannot be read, or became shorter.
  void read(uint64_t offset, std::span<uint8_t> target) const;

 private:
  std::string name_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// The bytes of a file from the first to the last. The file must outlive the source.
class FileSource : public ByteSource {
 public:
  explicit FileSource(const FileBytes& file) noexcept : file_(file) {}

  uint64_t size() const noexcept override { return file_.size(); }
  void read(std::span<uint8_t> target) override {
    file_.read(offset_, target);
    offset_ += target.size();
  }

 private:
  const FileBytes& file_;
  uint64_t offset_ = 0;
};

}  // namespace halfscope
