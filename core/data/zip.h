// SPDX-License-Identifier: MIT
// ZIP archives in memory and as files with libzip, as far as .npz files need them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/data/npy.h"

struct zip;
struct zip_source;

namespace halfscope {

struct ZipMember {
  std::string name;
  uint64_t size = 0;    ///< as declared in the directory; checked when the last byte is read
  uint64_t packed = 0;  ///< bytes in the archive, as declared there
};

class ZipReader {
 public:
  /// Reads the directory of an archive in memory; `name` stands for the file in messages. Throws
  /// Error if it is damaged, or of kind `usage` if it is not an archive.
  ZipReader(std::vector<uint8_t> bytes, std::string name);
  /// The same for a file, which is read only where someone looks.
  explicit ZipReader(const std::filesystem::path& file);

  const std::vector<ZipMember>& members() const noexcept { return members_; }

  /// Opens a member's contents; size and checksum are verified when the last byte is read. The
  /// reader must outlive the source.
  std::unique_ptr<ByteSource> open(const ZipMember& member) const;

  /// Returns "FILE: member 'NAME'", for messages.
  std::string describe(const ZipMember& member) const;

 private:
  struct Discard {
    void operator()(zip* archive) const noexcept;
  };

  /// Reads the directory from the source, which it takes over.
  void read_directory(zip_source* source);

  std::string name_;
  std::vector<uint8_t> bytes_;  ///< empty if a file contains them
  std::unique_ptr<zip, Discard> archive_;
  std::vector<ZipMember> members_;
};

/// A member in two parts; the caller owns the second one.
struct ZipContents {
  std::string name;
  std::vector<uint8_t> head;
  std::span<const uint8_t> body;
};

/// Writes an archive of stored members with the time stamp 1980-01-01 00:00: the same contents give
/// the same bytes. The file appears, or is replaced, when everything is written. Throws Error.
/// There must be at least one member: libzip writes no file for an empty archive.
void write_zip(const std::filesystem::path& file, std::span<const ZipContents> members);

}  // namespace halfscope
