// SPDX-License-Identifier: MIT
// Reads a gzipped or a plain file from front to back with zlib's gz functions, which recognize gzip
// by the content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

struct gzFile_s;

namespace halfscope {

class GzInput {
 public:
  /// Hint that helps in most cases.
  static constexpr const char* kGetAgain =
      "download the file again, or unpack it with gzip -d to check it";

  /// Opens a file. Throws Error that names the file if it cannot be opened.
  explicit GzInput(const std::filesystem::path& file);

  /// Reads bytes and returns their number, which is only at the end smaller than `size`. Throws
  /// Error for a damaged or truncated stream; reading past the end also checks the checksum.
  size_t read(uint8_t* target, size_t size);

 private:
  [[noreturn]] void throw_damaged(int code, const char* message) const;

  struct Close {
    void operator()(gzFile_s* handle) const noexcept;
  };
  std::filesystem::path file_;
  std::unique_ptr<gzFile_s, Close> handle_;
};

}  // namespace halfscope
