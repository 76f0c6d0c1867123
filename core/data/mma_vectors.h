// SPDX-License-Identifier: MIT
// Files of matrix-multiply-accumulate results read from GPUs: text, gzipped or not. A header line
//   # gpu=A100 input=bf16 output=fp32 k=8; ...
// (only k is required), then one dot product per line: a[0..k-1] b[0..k-1] c d, each the bit
// pattern of a float32 in 8 hex digits, d what the GPU returned. Other lines that start with #
// and blank lines are skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/data/gz_input.h"

namespace halfscope {

struct MmaVector {
  int64_t line = 0;
  std::vector<float> a, b;
  float c = 0.0f, d = 0.0f;
};

class MmaVectorReader {
 public:
  /// Opens the file and reads the header. Throws Error that names file and line.
  explicit MmaVectorReader(const std::filesystem::path& file);

  /// Return entries of the header, "" for missing ones.
  const std::string& gpu() const noexcept { return gpu_; }
  const std::string& input() const noexcept { return input_; }
  const std::string& output() const noexcept { return output_; }
  int k() const noexcept { return k_; }

  /// Reads the next dot product; returns false at the end. Throws Error that names file and line
  /// for a word that is not a number, too few or too many words, a line that is too long, or a
  /// damaged gzip stream.
  bool next(MmaVector& vector);

  static constexpr int kMaxK = 4096;

 private:
  bool read_line(std::string& line);
  void parse_header(const std::string& line);
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  GzInput input_file_;
  std::vector<uint8_t> buffer_;
  size_t used_ = 0, filled_ = 0;
  int64_t line_ = 0;
  std::string gpu_, input_, output_;
  int k_ = 0;
};

}  // namespace halfscope
