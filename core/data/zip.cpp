// SPDX-License-Identifier: MIT
// ZIP reading and writing; section numbers in the comments are those of PKWARE's APPNOTE.TXT.
#include "core/data/zip.h"

#include <zlib.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "core/error.h"

namespace halfscope {
namespace {

constexpr const char* kNotNpz = "expected a .npz file as numpy.savez writes it";

constexpr uint32_t kLocalHeader = 0x04034B50;     // 4.3.7
constexpr uint32_t kCentralHeader = 0x02014B50;   // 4.3.12
constexpr uint32_t kEndOfDirectory = 0x06054B50;  // 4.3.16
constexpr uint32_t kEnd64 = 0x06064B50;           // 4.3.14
constexpr uint32_t kEnd64Locator = 0x07064B50;    // 4.3.15
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56,
                 kLocatorSize = 20;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kEncryptedFlag = 1, kUtf8Flag = 1 << 11;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kMax32 = 0xFFFFFFFF;
constexpr uint64_t kMaxDeflateRatio = 1032;  // 258 bytes out of two bits

/// Little-endian fields of a range of bytes; a read beyond its end is an Error.
class Fields {
 public:
  Fields(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::span<const uint8_t> take(uint64_t count) {
    if (count > bytes_.size()) throw Error(name_ + ": truncated ZIP structure", kDamagedFileHint);
    const std::span<const uint8_t> part = bytes_.first(static_cast<size_t>(count));
    bytes_ = bytes_.subspan(static_cast<size_t>(count));
    return part;
  }

  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  bool empty() const noexcept { return bytes_.empty(); }

 private:
  uint64_t number(size_t size) {
    const std::span<const uint8_t> part = take(size);
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | part[i];
    return value;
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
};

void put(std::vector<uint8_t>& target, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) target.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

uint32_t crc_of(uint32_t crc, std::span<const uint8_t> bytes) noexcept {
  if (bytes.empty()) return crc;  // crc32_z starts anew when given a null pointer
  return static_cast<uint32_t>(crc32_z(crc, bytes.data(), bytes.size()));
}

/// Contents of a member, unpacked as they are read.
class MemberSource : public ByteSource {
 public:
  MemberSource(const ZipMember& member, std::span<const uint8_t> packed, std::string name)
      : name_(std::move(name)),
        packed_(packed),
        size_(member.size),
        left_(member.size),
        expected_crc_(member.crc),
        deflated_(member.method == kDeflated) {
    // Raw deflate, without zlib's own header.
    if (deflated_ && inflateInit2(&stream_, -MAX_WBITS) != Z_OK) {
      throw Error(name_ + ": not enough memory to unpack it");
    }
  }
  MemberSource(const MemberSource&) = delete;
  MemberSource& operator=(const MemberSource&) = delete;
  ~MemberSource() override {
    if (deflated_) inflateEnd(&stream_);
  }

  uint64_t size() const noexcept override { return size_; }

  void read(std::span<uint8_t> target) override {
    if (deflated_) {
      inflate_into(target);
    } else {
      std::copy_n(packed_.begin(), target.size(), target.begin());
      packed_ = packed_.subspan(target.size());
    }
    crc_ = crc_of(crc_, target);
    left_ -= target.size();
    if (left_ == 0) check_end();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(name_ + ": " + what, kDamagedFileHint);
  }

  void inflate_into(std::span<uint8_t> target) {
    while (!target.empty()) {
      if (ended_) fail("the deflate stream is shorter than the declared size");
      target = target.subspan(inflate_some(target));
    }
  }

  /// One call of inflate; returns the number of bytes it made.
  size_t inflate_some(std::span<uint8_t> target) {
    constexpr size_t kMaxCall = size_t{1} << 30;  // zlib counts in 32 bits
    const uInt in = static_cast<uInt>(std::min(packed_.size(), kMaxCall));
    const uInt out = static_cast<uInt>(std::min(target.size(), kMaxCall));
    stream_.next_in = const_cast<Bytef*>(packed_.data());  // zlib does not write to it
    stream_.avail_in = in;
    stream_.next_out = target.data();
    stream_.avail_out = out;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    packed_ = packed_.subspan(in - stream_.avail_in);
    if (code == Z_STREAM_END) {
      ended_ = true;
    } else if (code == Z_BUF_ERROR) {  // no progress: the input ran out
      fail("the deflate stream is cut short");
    } else if (code != Z_OK) {
      fail("damaged deflate stream");
    }
    return out - stream_.avail_out;
  }

  void check_end() {
    uint8_t extra = 0;
    while (deflated_ && !ended_) {  // the end mark may still be unread
      if (inflate_some({&extra, 1}) != 0) fail("more data than the declared size");
    }
    if (!packed_.empty()) fail("unused bytes after the packed data");
    if (crc_ != expected_crc_) fail("wrong CRC-32: the contents are not what was saved");
  }

  std::string name_;
  std::span<const uint8_t> packed_;
  uint64_t size_, left_;
  uint32_t crc_ = 0, expected_crc_;
  bool deflated_, ended_ = false;
  z_stream stream_{};
};

struct Directory {
  uint64_t count, size, offset;
};

/// Position of the end-of-central-directory record: the last one whose comment ends the file.
uint64_t find_end_record(std::span<const uint8_t> bytes, const std::string& name) {
  constexpr uint64_t kMaxComment = 0xFFFF;
  for (uint64_t comment = 0; comment <= kMaxComment; ++comment) {
    if (bytes.size() < kEndSize + comment) break;
    const uint64_t at = bytes.size() - kEndSize - comment;
    Fields record(bytes.subspan(at, kEndSize), name);
    if (record.u32() != kEndOfDirectory) continue;
    record.take(16);
    if (record.u16() == comment) return at;
  }
  const bool zip = bytes.size() >= 4 && Fields(bytes, name).u32() == kLocalHeader;
  if (zip) throw Error(name + ": truncated: its ZIP directory is missing", kDamagedFileHint);
  throw usage_error(name + ": not a ZIP archive (" + std::to_string(bytes.size()) + " bytes)",
                    kNotNpz);
}

/// Where the central directory is; it must end where the end records begin.
Directory read_end_records(std::span<const uint8_t> bytes, const std::string& name) {
  uint64_t end = find_end_record(bytes, name);
  Fields record(bytes.subspan(end, kEndSize), name);
  record.take(4);
  const uint16_t disk = record.u16(), directory_disk = record.u16();
  const uint16_t count_here = record.u16();
  Directory directory{.count = record.u16(), .size = record.u32(), .offset = record.u32()};
  const bool saturated =
      directory.count == 0xFFFF || directory.size == kMax32 || directory.offset == kMax32;
  if (end >= kLocatorSize) {  // 4.3.15: the locator, if any, is right before
    Fields locator(bytes.subspan(end - kLocatorSize, kLocatorSize), name);
    if (locator.u32() == kEnd64Locator && saturated) {
      locator.take(4);
      const uint64_t at = locator.u64();
      if (at > bytes.size() || bytes.size() - at < kEnd64Size) {
        throw Error(name + ": the ZIP64 end record is outside of the file", kDamagedFileHint);
      }
      Fields end64(bytes.subspan(at, kEnd64Size), name);
      if (end64.u32() != kEnd64) throw Error(name + ": no ZIP64 end record", kDamagedFileHint);
      end64.take(8 + 2 + 2 + 4 + 4 + 8);
      directory.count = end64.u64();
      directory.size = end64.u64();
      directory.offset = end64.u64();
      end = at;
    }
  }
  if (disk != directory_disk || (disk != 0 && disk != 0xFFFF)) {
    throw usage_error(name + ": a ZIP archive in several parts", kNotNpz);
  }
  if (count_here != 0xFFFF && count_here != directory.count) {
    throw Error(name + ": the ZIP end record contradicts itself", kDamagedFileHint);
  }
  if (directory.offset > end || directory.size != end - directory.offset) {
    throw Error(name + ": the ZIP directory is not where the end record says", kDamagedFileHint);
  }
  return directory;
}

/// 4.5.3: 64-bit values for the header fields that are saturated, in this order.
void apply_zip64(ZipMember& member, std::span<const uint8_t> extra, const std::string& name) {
  Fields fields(extra, name);
  while (!fields.empty()) {
    const uint16_t id = fields.u16(), size = fields.u16();
    Fields body(fields.take(size), name);
    if (id != kZip64Extra) continue;
    for (uint64_t* value : {&member.size, &member.packed_size, &member.header_offset}) {
      if (*value == kMax32) *value = body.u64();
    }
    return;
  }
}

ZipMember read_entry(Fields& directory, const std::string& archive) {
  Fields fields(directory.take(kCentralSize), archive);
  if (fields.u32() != kCentralHeader)
    throw Error(archive + ": damaged ZIP directory", kDamagedFileHint);
  ZipMember member;
  fields.take(2 + 2);
  const uint16_t flags = fields.u16();
  member.method = fields.u16();
  fields.take(2 + 2);
  member.crc = fields.u32();
  member.packed_size = fields.u32();
  member.size = fields.u32();
  const uint16_t name_size = fields.u16(), extra_size = fields.u16(), comment_size = fields.u16();
  fields.take(2 + 2 + 4);
  member.header_offset = fields.u32();
  const std::span<const uint8_t> name = directory.take(name_size);
  member.name.assign(name.begin(), name.end());
  apply_zip64(member, directory.take(extra_size), archive);
  directory.take(comment_size);

  const std::string subject = archive + ": member \"" + member.name + "\"";
  if ((flags & kEncryptedFlag) != 0) throw usage_error(subject + " is encrypted", kNotNpz);
  if (member.method != kStored && member.method != kDeflated) {
    throw usage_error(subject + " is packed with method " + std::to_string(member.method) +
                          ", expected 0 (stored) or 8 (deflated)",
                      kNotNpz);
  }
  const bool possible = member.method == kStored
                            ? member.packed_size == member.size
                            : member.size / kMaxDeflateRatio <= member.packed_size;
  if (!possible) {
    throw Error(subject + ": " + std::to_string(member.packed_size) + " bytes cannot hold " +
                    std::to_string(member.size),
                kDamagedFileHint);
  }
  return member;
}

}  // namespace

ZipReader::ZipReader(std::vector<uint8_t> bytes, std::string name)
    : name_(std::move(name)), bytes_(std::move(bytes)) {
  const Directory directory = read_end_records(bytes_, name_);
  const std::span<const uint8_t> all = bytes_;
  Fields entries(all.subspan(directory.offset, directory.size), name_);
  for (uint64_t i = 0; i < directory.count; ++i) members_.push_back(read_entry(entries, name_));
  if (!entries.empty()) throw Error(name_ + ": more ZIP entries than declared", kDamagedFileHint);

  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (ZipMember& member : members_) {
    locate_data(member, directory.offset);
    ranges.emplace_back(member.header_offset, member.data_offset + member.packed_size);
  }
  // Overlaps would let a small file unpack to any size.
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      throw Error(name_ + ": ZIP members overlap", kDamagedFileHint);
    }
  }
}

void ZipReader::locate_data(ZipMember& member, uint64_t directory_offset) const {
  const std::string subject = describe(member);
  const std::string kOutside = subject + " reaches beyond the archive's data";
  if (member.header_offset > directory_offset) throw Error(kOutside, kDamagedFileHint);
  const std::span<const uint8_t> data = std::span(bytes_).first(directory_offset);
  Fields local(data.subspan(member.header_offset), subject);
  const bool signed_right = local.u32() == kLocalHeader;
  local.take(2 + 2);
  const uint16_t method = local.u16();
  local.take(2 + 2 + 4 + 4 + 4);  // sizes may be zero here (4.4.4, bit 3); the directory has them
  const uint16_t name_size = local.u16(), extra_size = local.u16();
  const std::span<const uint8_t> local_name = local.take(name_size);
  if (!signed_right || method != member.method ||
      std::string(local_name.begin(), local_name.end()) != member.name) {
    throw Error(subject + ": its local header contradicts the ZIP directory", kDamagedFileHint);
  }
  local.take(extra_size);
  member.data_offset = member.header_offset + kLocalSize + name_size + extra_size;
  if (member.packed_size > directory_offset - member.data_offset)
    throw Error(kOutside, kDamagedFileHint);
}

std::unique_ptr<ByteSource> ZipReader::open(const ZipMember& member) const {
  return std::make_unique<MemberSource>(
      member, std::span(bytes_).subspan(member.data_offset, member.packed_size), describe(member));
}

std::string ZipReader::describe(const ZipMember& member) const {
  return name_ + ": member \"" + member.name + "\"";
}

void ZipWriter::write(std::span<const uint8_t> bytes) {
  stream_.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
  offset_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const uint8_t> head,
                    std::span<const uint8_t> body) {
  const uint64_t size = head.size() + body.size();
  if (name.size() > 0xFFFF || size >= kMax32 || offset_ >= kMax32 || count_ >= 0xFFFE) {
    throw Error("the archive gets too large: more than 4 GiB or 65534 members, at \"" + name + "\"",
                "save fewer or smaller tensors");
  }
  const bool ascii = std::all_of(name.begin(), name.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  // The part that local and central header share (4.3.7, from "version needed" to "extra length").
  std::vector<uint8_t> common;
  put(common, 20, 2);
  put(common, ascii ? 0 : kUtf8Flag, 2);
  put(common, kStored, 2);
  put(common, 0, 2);           // 00:00:00
  put(common, 1 << 5 | 1, 2);  // 1980-01-01
  put(common, crc_of(crc_of(0, head), body), 4);
  put(common, size, 4);
  put(common, size, 4);
  put(common, name.size(), 2);
  put(common, 0, 2);

  put(directory_, kCentralHeader, 4);
  put(directory_, 20, 2);
  directory_.insert(directory_.end(), common.begin(), common.end());
  put(directory_, 0, 2 + 2 + 2);  // comment, disk, internal attributes
  put(directory_, 0, 4);          // external attributes
  put(directory_, offset_, 4);
  directory_.insert(directory_.end(), name.begin(), name.end());

  std::vector<uint8_t> local;
  put(local, kLocalHeader, 4);
  local.insert(local.end(), common.begin(), common.end());
  local.insert(local.end(), name.begin(), name.end());
  write(local);
  write(head);
  write(body);
  ++count_;
}

void ZipWriter::finish() {
  if (offset_ >= kMax32) throw Error("the archive gets too large: more than 4 GiB");
  std::vector<uint8_t> end;
  put(end, kEndOfDirectory, 4);
  put(end, 0, 2 + 2);
  put(end, count_, 2);
  put(end, count_, 2);
  put(end, directory_.size(), 4);
  put(end, offset_, 4);
  put(end, 0, 2);
  write(directory_);
  write(end);
}

}  // namespace halfscope
