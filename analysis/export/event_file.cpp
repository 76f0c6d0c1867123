// SPDX-License-Identifier: MIT
#include "analysis/export/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>

#include "core/error.h"

namespace halfscope {
namespace {

// Wire types of protocol buffers.
constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

template <class Number>
void append_number(std::string& out, Number value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_tag(std::string& out, uint32_t field, uint32_t type) {
  append_varint(out, field << 3 | type);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_tag(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

void append_integer(std::string& out, uint32_t field, int64_t value) {
  append_tag(out, field, kVarint);
  append_varint(out, static_cast<uint64_t>(value));
}

void append_double(std::string& out, uint32_t field, double value) {
  append_tag(out, field, kFixed64);
  append_number(out, std::bit_cast<uint64_t>(value));
}

/// Returns the masked checksum of TFRecord.
uint32_t masked(uint32_t crc) noexcept { return std::rotr(crc, 15) + 0xa282ead8u; }

}  // namespace

uint32_t crc32c(std::string_view bytes) noexcept {
  static constexpr std::array<uint32_t, 256> kTable = [] {
    constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? kPolynomial : 0);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  append_number(record, uint64_t{bytes.size()});
  append_number(record, masked(crc32c(record)));
  record += bytes;
  append_number(record, masked(crc32c(bytes)));
  return record;
}

EventFile::EventFile(const std::string& file)
    : file_(file), stream_(file, std::ios::binary | std::ios::trunc) {
  if (!stream_) {
    throw Error(fmt::format("cannot write '{}'", file),
                "check the permissions and the free space of its folder");
  }
  std::string first;
  append_double(first, 1, 0.0);
  append_bytes(first, 3, "brain.Event:2");
  stream_ << tf_record(first);
}

void EventFile::event(double seconds, int64_t step, std::string_view value) {
  std::string summary, event;
  append_bytes(summary, 1, value);
  append_double(event, 1, seconds);
  append_integer(event, 2, step);
  append_bytes(event, 5, summary);
  stream_ << tf_record(event);
}

void EventFile::scalar(double seconds, int64_t step, std::string_view tag, double value) {
  std::string point;
  append_bytes(point, 1, tag);
  append_tag(point, 2, kFixed32);
  append_number(point, std::bit_cast<uint32_t>(static_cast<float>(value)));
  event(seconds, step, point);
}

void EventFile::histogram(double seconds, int64_t step, std::string_view tag,
                          const UnitHistogram& values) {
  double count = 0.0, sum = 0.0, squares = 0.0;
  std::string limits, counts, histogram, value;
  for (size_t i = 0; i < values.counts.size(); ++i) {
    const double low = values.first + static_cast<double>(i);
    const auto each = static_cast<double>(values.counts[i]);
    count += each;
    sum += each * low;
    squares += each * low * low;
    append_number(limits, std::bit_cast<uint64_t>(low + 1.0));
    append_number(counts, std::bit_cast<uint64_t>(each));
  }
  append_double(histogram, 1, values.first);
  append_double(histogram, 2, values.first + static_cast<double>(values.counts.size()));
  append_double(histogram, 3, count);
  append_double(histogram, 4, sum);
  append_double(histogram, 5, squares);
  append_bytes(histogram, 6, limits);
  append_bytes(histogram, 7, counts);
  append_bytes(value, 1, tag);
  append_bytes(value, 5, histogram);
  event(seconds, step, value);
}

void EventFile::text(double seconds, int64_t step, std::string_view tag,
                     std::string_view markdown) {
  constexpr int64_t kString = 7;  // DT_STRING
  std::string tensor, plugin, metadata, value;
  append_integer(tensor, 1, kString);
  append_bytes(tensor, 2, "");  // a shape without dimensions
  append_bytes(tensor, 8, markdown);
  append_bytes(plugin, 1, "text");
  append_bytes(metadata, 1, plugin);
  append_bytes(value, 1, tag);
  append_bytes(value, 8, tensor);
  append_bytes(value, 9, metadata);
  event(seconds, step, value);
}

void EventFile::close() {
  stream_.close();
  if (stream_) return;
  throw Error(fmt::format("cannot write all of '{}'", file_), "check the free space of its folder");
}

}  // namespace halfscope
