// SPDX-License-Identifier: MIT
// ZIP archives (PKWARE APPNOTE 6.3), as far as .npz files need them: stored and deflated members,
// ZIP64 sizes when reading. The central directory is the truth; every offset and size in it is
// checked against the file, members may not overlap, and contents must match their CRC-32.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/data/npy.h"

namespace halfscope {

struct ZipMember {
  std::string name;
  uint16_t method = 0;  ///< 0 stored, 8 deflated
  uint32_t crc = 0;
  uint64_t packed_size = 0, size = 0;
  uint64_t header_offset = 0;  ///< of the local header
  uint64_t data_offset = 0;
};

class ZipReader {
 public:
  /// Reads the directory of an archive in memory; `name` stands for the file in messages. Throws
  /// Error if anything about it is not as it should be.
  ZipReader(std::vector<uint8_t> bytes, std::string name);

  const std::vector<ZipMember>& members() const noexcept { return members_; }

  /// The member's contents; the checksum is verified with the last byte read. The reader must
  /// outlive the source.
  std::unique_ptr<ByteSource> open(const ZipMember& member) const;

  /// "FILE: member NAME", for messages.
  std::string describe(const ZipMember& member) const;

 private:
  void locate_data(ZipMember& member, uint64_t directory_offset) const;

  std::string name_;
  std::vector<uint8_t> bytes_;
  std::vector<ZipMember> members_;
};

/// Writes stored members with the time stamp 1980-01-01 00:00: the same contents give the same
/// bytes. Call finish() at the end.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& stream) : stream_(stream) {}

  /// Adds a member that consists of two parts. Throws Error beyond what ZIP holds without ZIP64.
  void add(const std::string& name, std::span<const uint8_t> head, std::span<const uint8_t> body);

  void finish();

 private:
  void write(std::span<const uint8_t> bytes);

  std::ostream& stream_;
  uint64_t offset_ = 0;
  uint64_t count_ = 0;
  std::vector<uint8_t> directory_;
};

}  // namespace halfscope
