// SPDX-License-Identifier: MIT
// Builds ZIP archives byte by byte, right or deliberately wrong, for the tests of the reader.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "test_files.h"

namespace halfscope::test {

/// Returns raw deflate data, the format of ZIP members.
inline Bytes deflated(const Bytes& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Returns raw deflate data that ends at a byte and refers to nothing before it, so that more can
/// follow.
inline Bytes deflated_part(const Bytes& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, bytes.size()) + 16);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FULL_FLUSH), Z_OK);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// One member; what is left out is what a correct archive would say.
struct BuiltMember {
  std::string name;
  Bytes contents = {};
  bool deflate = false;
  std::optional<Bytes> packed = {};
  std::optional<uint16_t> method = {};
  std::optional<uint32_t> crc = {};
  std::optional<uint64_t> size = {}, packed_size = {}, offset = {};
  std::optional<std::string> local_name = {};
  uint16_t flags = 0;
  bool zip64 = false;  ///< saturate the 32-bit fields and add the extra field
};

/// A member that unpacks to `start` and so many MiB of zeros. It is made without the memory for
/// them.
inline BuiltMember bomb(const std::string& name, const Bytes& start, int mebibytes) {
  const Bytes zeros(1 << 20);
  const uLong each = crc32_z(0, zeros.data(), zeros.size());
  uLong crc = crc32_z(0, start.data(), start.size());
  Bytes packed = deflated_part(start);
  const Bytes part = deflated_part(zeros);
  for (int i = 0; i < mebibytes; ++i) {
    packed.insert(packed.end(), part.begin(), part.end());
    crc = crc32_combine(crc, each, static_cast<z_off_t>(zeros.size()));
  }
  packed.insert(packed.end(), {0x03, 0x00});  // the last block, empty
  return {.name = name,
          .packed = packed,
          .method = uint16_t{8},
          .crc = static_cast<uint32_t>(crc),
          .size = start.size() + static_cast<uint64_t>(mebibytes) * zeros.size()};
}

class ZipBuilder {
 public:
  void add(const BuiltMember& member) {
    const Bytes packed =
        member.packed.value_or(member.deflate ? deflated(member.contents) : member.contents);
    const uint64_t offset = member.offset.value_or(bytes_.size());
    const uint64_t size = member.size.value_or(member.contents.size());
    const uint64_t packed_size = member.packed_size.value_or(packed.size());
    const uint32_t crc = member.crc.value_or(
        static_cast<uint32_t>(crc32_z(0, member.contents.data(), member.contents.size())));
    const std::string local_name = member.local_name.value_or(member.name);

    Bytes common;
    put(common, member.zip64 ? 45 : 20, 2);
    put(common, member.flags, 2);
    put(common, member.method.value_or(member.deflate ? 8 : 0), 2);
    put(common, 0, 4);
    put(common, crc, 4);
    put(common, member.zip64 ? 0xFFFFFFFF : packed_size, 4);
    put(common, member.zip64 ? 0xFFFFFFFF : size, 4);

    put(bytes_, 0x04034B50, 4);
    append(bytes_, common);
    Bytes local_extra;  // 4.5.3: both sizes, no offset
    if (member.zip64) {
      put(local_extra, 1, 2);
      put(local_extra, 16, 2);
      put(local_extra, size, 8);
      put(local_extra, packed_size, 8);
    }
    put(bytes_, local_name.size(), 2);
    put(bytes_, local_extra.size(), 2);
    append(bytes_, local_name);
    append(bytes_, local_extra);
    append(bytes_, packed);

    Bytes extra;
    if (member.zip64) {
      put(extra, 0x5455, 2);  // a field of another kind before it
      put(extra, 1, 2);
      put(extra, 0, 1);
      put(extra, 1, 2);
      put(extra, 24, 2);
      put(extra, size, 8);
      put(extra, packed_size, 8);
      put(extra, offset, 8);
    }
    put(directory_, 0x02014B50, 4);
    put(directory_, 20, 2);
    append(directory_, common);
    put(directory_, member.name.size(), 2);
    put(directory_, extra.size(), 2);
    put(directory_, 0, 2 + 2 + 2 + 4);
    put(directory_, member.zip64 ? 0xFFFFFFFF : offset, 4);
    append(directory_, member.name);
    append(directory_, extra);
    ++count_;
  }

  Bytes finish(const std::string& comment = "", bool zip64 = false) const {
    Bytes file = bytes_;
    append(file, directory_);
    if (zip64) {
      const uint64_t end = file.size();
      put(file, 0x06064B50, 4);
      put(file, 44, 8);
      put(file, 45, 2);
      put(file, 45, 2);
      put(file, 0, 8);
      put(file, count_, 8);
      put(file, count_, 8);
      put(file, directory_.size(), 8);
      put(file, bytes_.size(), 8);
      put(file, 0x07064B50, 4);
      put(file, 0, 4);
      put(file, end, 8);
      put(file, 1, 4);
    }
    put(file, 0x06054B50, 4);
    put(file, 0, 4);
    put(file, zip64 ? 0xFFFF : count_, 2);
    put(file, zip64 ? 0xFFFF : count_, 2);
    put(file, zip64 ? 0xFFFFFFFF : directory_.size(), 4);
    put(file, zip64 ? 0xFFFFFFFF : bytes_.size(), 4);
    put(file, comment.size(), 2);
    append(file, comment);
    return file;
  }

 private:
  static void put(Bytes& target, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      target.push_back(i < 8 ? static_cast<uint8_t>(value >> (8 * i)) : uint8_t{0});
    }
  }
  template <class Range>
  static void append(Bytes& target, const Range& range) {
    target.insert(target.end(), range.begin(), range.end());
  }

  Bytes bytes_, directory_;
  uint64_t count_ = 0;
};

}  // namespace halfscope::test
