// SPDX-License-Identifier: MIT
#include "core/data/zip.h"

#include <zip.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/data/file_bytes.h"
#include "core/error.h"

namespace halfscope {
namespace {

/// Owns a libzip error.
class ZipError {
 public:
  ZipError() { zip_error_init(&error_); }
  ~ZipError() { zip_error_fini(&error_); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;

  zip_error_t* get() noexcept { return &error_; }
  std::string text() { return zip_error_strerror(&error_); }

 private:
  zip_error_t error_;
};

class MemberSource : public ByteSource {
 public:
  MemberSource(zip_t* archive, uint64_t index, uint64_t size, std::string name)
      : name_(std::move(name)), file_(zip_fopen_index(archive, index, 0)), size_(size) {
    if (file_ == nullptr) throw damaged(zip_error_strerror(zip_get_error(archive)));
    left_ = size;
    if (left_ == 0) check_end();
  }

  uint64_t size() const noexcept override { return size_; }

  void read(std::span<uint8_t> target) override {
    while (!target.empty()) {
      const zip_int64_t count = zip_fread(file_.get(), target.data(), target.size());
      if (count < 0) throw damaged(zip_error_strerror(zip_file_get_error(file_.get())));
      if (count == 0) throw damaged("its data ends too early");
      target = target.subspan(static_cast<size_t>(count));
      left_ -= static_cast<uint64_t>(count);
    }
    if (left_ == 0) check_end();
  }

 private:
  Error damaged(const std::string& why) const {
    return Error(name_ + ": " + why, kDamagedFileHint);
  }

  /// Checks size and checksum: libzip compares them when a read goes past the last byte.
  void check_end() {
    uint8_t more = 0;
    const zip_int64_t count = zip_fread(file_.get(), &more, 1);
    if (count < 0) throw damaged(zip_error_strerror(zip_file_get_error(file_.get())));
    if (count > 0) throw damaged("it has more data than its declared size");
  }

  struct Close {
    void operator()(zip_file_t* file) const noexcept { zip_fclose(file); }
  };

  std::string name_;
  std::unique_ptr<zip_file_t, Close> file_;
  uint64_t size_, left_ = 0;
};

/// An archive being written, which is discarded unless close() succeeds.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& file) : file_(file) {
    int code = 0;
    archive_ = zip_open(file.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (archive_ != nullptr) return;
    ZipError error;
    zip_error_init_with_code(error.get(), code);
    throw problem(error.text());
  }
  ~Writer() {
    if (archive_ != nullptr) zip_discard(archive_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void add(const ZipContents& member) {
    std::array<zip_buffer_fragment_t, 2> parts;
    size_t count = 0;
    for (const std::span<const uint8_t> part :
         {std::span<const uint8_t>(member.head), member.body}) {
      // The const_cast is safe: libzip only reads these buffers.
      if (!part.empty()) parts[count++] = {const_cast<uint8_t*>(part.data()), part.size()};
    }
    ZipError error;
    zip_source_t* const source =
        zip_source_buffer_fragment_create(parts.data(), count, 0, error.get());
    if (source == nullptr) throw problem(error.text());
    const zip_int64_t index = zip_file_add(archive_, member.name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      throw problem(zip_strerror(archive_));
    }
    constexpr zip_uint16_t kMidnight = 0, kFirstOf1980 = 1 << 5 | 1;
    const auto at = static_cast<zip_uint64_t>(index);
    if (zip_set_file_compression(archive_, at, ZIP_CM_STORE, 0) < 0 ||
        zip_file_set_dostime(archive_, at, kMidnight, kFirstOf1980, 0) < 0) {
      throw problem(zip_strerror(archive_));
    }
  }

  void close() {
    if (zip_close(archive_) < 0) throw problem(zip_strerror(archive_));
    archive_ = nullptr;
  }

 private:
  Error problem(const std::string& why) const {
    return Error("cannot write '" + file_.string() + "': " + why,
                 "check its folder and the free space on the disk");
  }

  const std::filesystem::path& file_;
  zip_t* archive_ = nullptr;
};

/// Checks a member before memory is allocated for its contents. Throws Error.
void check_member(const zip_stat_t& stat, const std::string& name) {
  constexpr uint64_t kMaxDeflateRatio = 1032;  // 258 bytes out of two bits
  const char* const how = "use a .npz file that numpy.savez wrote";
  if (stat.encryption_method != ZIP_EM_NONE) throw usage_error(name + " is encrypted", how);
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    throw usage_error(
        name + " is compressed with method " + std::to_string(stat.comp_method) + ", not deflate",
        how);
  }
  const bool possible = stat.comp_method == ZIP_CM_STORE
                            ? stat.size == stat.comp_size
                            : stat.size / kMaxDeflateRatio <= stat.comp_size;
  if (!possible) {
    throw Error(name + ": " + std::to_string(stat.comp_size) + " compressed bytes cannot contain " +
                    std::to_string(stat.size) + " bytes",
                kDamagedFileHint);
  }
}

void check_beginning(std::span<const uint8_t> bytes, uint64_t size, const std::string& name) {
  constexpr std::array<uint8_t, 2> kBeginning{'P', 'K'};
  if (bytes.size() >= 2 && std::equal(kBeginning.begin(), kBeginning.end(), bytes.begin())) return;
  throw usage_error(name + ": not a ZIP archive (" + std::to_string(size) + " bytes)",
                    "use a .npz file that numpy.savez wrote");
}

}  // namespace

void ZipReader::Discard::operator()(zip* archive) const noexcept { zip_discard(archive); }

ZipReader::ZipReader(std::vector<uint8_t> bytes, std::string name)
    : name_(std::move(name)), bytes_(std::move(bytes)) {
  check_beginning(bytes_, bytes_.size(), name_);
  ZipError error;
  read_directory(zip_source_buffer_create(bytes_.data(), bytes_.size(), 0, error.get()));
}

ZipReader::ZipReader(const std::filesystem::path& file) : name_(file.string()) {
  const FileBytes bytes(file);
  std::vector<uint8_t> start(std::min<uint64_t>(bytes.size(), 2));
  bytes.read(0, start);
  check_beginning(start, bytes.size(), name_);
  ZipError error;
  read_directory(zip_source_file_create(file.c_str(), 0, 0, error.get()));
}

void ZipReader::read_directory(zip_source* source) {
  ZipError error;
  if (source != nullptr) {
    archive_.reset(zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, error.get()));
  }
  if (archive_ == nullptr) {
    if (source != nullptr) zip_source_free(source);
    // libzip has no message for most inconsistencies.
    throw Error(name_ + ": truncated or damaged ZIP archive", kDamagedFileHint);
  }
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    if (zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(i), 0, &stat) < 0) {
      throw Error(name_ + ": " + zip_strerror(archive_.get()), kDamagedFileHint);
    }
    check_member(stat, describe({.name = stat.name}));
    members_.push_back({stat.name, stat.size, stat.comp_size});
  }
}

std::unique_ptr<ByteSource> ZipReader::open(const ZipMember& member) const {
  return std::make_unique<MemberSource>(archive_.get(),
                                        static_cast<uint64_t>(&member - members_.data()),
                                        member.size, describe(member));
}

std::string ZipReader::describe(const ZipMember& member) const {
  return name_ + ": member '" + visible_name(member.name) + "'";
}

void write_zip(const std::filesystem::path& file, std::span<const ZipContents> members) {
  Writer writer(file);
  for (const ZipContents& member : members) writer.add(member);
  writer.close();
}

}  // namespace halfscope
