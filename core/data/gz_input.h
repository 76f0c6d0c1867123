// SPDX-License-Identifier: MIT
// Reads a gzipped or a plain file from front to back on zlib's gz functions, which tell the two
// apart by their content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

struct gzFile_s;

namespace halfscope {

class GzInput {
 public:
  /// What helps against most of what can be wrong with such a file.
  static constexpr const char* kGetAgain =
      "download the file again, or unpack it with gzip -d to check it";

  /// Throws Error that names the file if it cannot be opened.
  explicit GzInput(const std::filesystem::path& file);

  /// Gives fewer bytes than asked for only at the end. Throws Error for a damaged or truncated
  /// stream; reading past the end checks the checksum too.
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
