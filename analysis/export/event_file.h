// SPDX-License-Identifier: MIT
// TensorBoard's event files: records of TFRecord (tensorflow/core/lib/io/record_writer.h), each a
// message Event (tensorflow/core/util/event.proto). Six of its fields are enough here, so they are
// encoded by hand. Numbers are little-endian.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace halfscope {

/// Returns the CRC-32C of the bytes (RFC 3720, B.4).
uint32_t crc32c(std::string_view bytes) noexcept;

/// Returns the bytes as one record: length, checksum of the length, bytes, checksum of the bytes.
std::string tf_record(std::string_view bytes);

/// Counts of a histogram with bins of width 1: `counts[i]` values from `first` + i to `first` + i +
/// 1.
struct UnitHistogram {
  int first = 0;
  std::span<const int64_t> counts;
};

/// Writes one event file. Names and texts must be UTF-8.
class EventFile {
 public:
  /// Begins a file. Throws Error if it cannot be written.
  explicit EventFile(const std::string& file);

  /// Writes a point. TensorBoard has fp32 numbers: the value is rounded to the nearest one.
  /// `seconds` is the time on TensorBoard's clock.
  void scalar(double seconds, int64_t step, std::string_view tag, double value);
  /// Writes a histogram with at least one count.
  void histogram(double seconds, int64_t step, std::string_view tag, const UnitHistogram& values);
  /// Writes a text in Markdown.
  void text(double seconds, int64_t step, std::string_view tag, std::string_view markdown);

  /// Ends the file. Throws Error if not everything was written.
  void close();

 private:
  void event(double seconds, int64_t step, std::string_view value);

  std::string file_;
  std::ofstream stream_;
};

}  // namespace halfscope
