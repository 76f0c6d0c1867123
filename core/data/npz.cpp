// SPDX-License-Identifier: MIT
// .npz: a ZIP archive (zip.h) of .npy arrays (npy.h). This file combines the two.
#include "core/data/npz.h"

#include <array>
#include <bit>
#include <chrono>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/data/npy.h"
#include "core/data/zip.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".npy";

static_assert(std::endian::native == std::endian::little,
              "write_npz writes floats as they are in memory, and .npz members are '<f4'");

/// A temporary file next to the target, which it replaces at the end; until then it is deleted on
/// failure. Readers never see a partial file, and a full disk does not destroy the old one.
class PendingFile {
 public:
  explicit PendingFile(const fs::path& target) : target_(target), temporary_(target) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    temporary_ += '.' + std::to_string(now) + ".tmp";
    stream_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!stream_) {
      throw Error("cannot write '" + target.string() + "'",
                  "check that its folder exists and is writable");
    }
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    std::error_code ignored;
    if (!done_) fs::remove(temporary_, ignored);
  }

  std::ostream& stream() noexcept { return stream_; }

  void commit() {
    stream_.close();
    if (!stream_) {
      throw Error("cannot write all of '" + target_.string() + "'",
                  "check the free space on the disk");
    }
    std::error_code code;
    fs::rename(temporary_, target_, code);
    if (code) {
      throw Error("cannot write '" + target_.string() + "': " + code.message(),
                  "check that it is not a folder and that you may replace it");
    }
    done_ = true;
  }

 private:
  fs::path target_, temporary_;
  std::ofstream stream_;
  bool done_ = false;
};

/// Throws Error (usage) if the arrays would take far more memory than the file. Deflate makes up to
/// 1000 bytes of one, so a small file could fill all memory.
void check_expansion(const ZipReader& archive, const std::string& name) {
  constexpr double kAlways = 0x1p28, kMostTimes = 100.0;
  double size = 0.0, packed = 0.0;  // declared sizes may be anything up to 2^64
  for (const ZipMember& member : archive.members()) {
    size += static_cast<double>(member.size);
    packed += static_cast<double>(member.packed);
  }
  if (size <= kAlways || size <= kMostTimes * packed) return;
  const auto whole = [](double count) { return std::to_string(static_cast<uint64_t>(count)); };
  throw usage_error(name + ": " + whole(packed) + " compressed bytes expand to " + whole(size) +
                        ", more than " + whole(kMostTimes) + " times as many",
                    "if you trust the file, save it with numpy.savez, which does not compress; "
                    "halfscope inspect reads it in parts");
}

template <class Tensors, class ReadArray>
Tensors parse_members(std::vector<uint8_t> bytes, const std::string& name_of_file,
                      ReadArray read_array) {
  const ZipReader archive(std::move(bytes), name_of_file);
  check_expansion(archive, name_of_file);
  Tensors tensors;
  for (const ZipMember& member : archive.members()) {
    const std::string name = archive.describe(member);
    if (!member.name.ends_with(kSuffix)) {
      throw usage_error(name + " is not a .npy array", "use a .npz file that numpy.savez wrote");
    }
    const std::string key = member.name.substr(0, member.name.size() - kSuffix.size());
    if (tensors.contains(key)) {
      throw Error(name + " occurs twice", "save the file again with one array per name");
    }
    tensors.emplace(key, read_array(*archive.open(member), name));
  }
  return tensors;
}

template <class Tensors>
void write_members(const fs::path& file, const Tensors& tensors, const char* type) {
  std::vector<ZipContents> members;
  for (const auto& [key, tensor] : tensors) {
    if (element_count(tensor.shape) != static_cast<int64_t>(tensor.data.size())) {
      throw Error("tensor '" + key + "' has " + std::to_string(tensor.data.size()) +
                  " values, which do not fit its shape " + to_string(tensor.shape));
    }
    const std::span values(tensor.data);
    members.push_back({key + std::string(kSuffix),
                       npy_header(tensor.shape, type),
                       {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()}});
  }
  if (!members.empty()) return write_zip(file, members);
  constexpr std::array<char, 22> kNoMembers{'P', 'K', 5, 6};  // PKWARE APPNOTE 4.3.16
  PendingFile pending(file);
  pending.stream().write(kNoMembers.data(), kNoMembers.size());
  pending.commit();
}

}  // namespace

NamedTensors read_npz(const fs::path& file) { return parse_npz(read_file(file), file.string()); }

NamedTensors parse_npz(std::vector<uint8_t> bytes, const std::string& name_of_file) {
  return parse_members<NamedTensors>(std::move(bytes), name_of_file, read_npy_array);
}

void write_npz(const fs::path& file, const NamedTensors& tensors) {
  write_members(file, tensors, "<f4");
}

void write_npy(const fs::path& file, const Tensor& tensor) {
  PendingFile pending(file);
  const std::vector<uint8_t> header = npy_header(tensor.shape, "<f4");
  pending.stream().write(reinterpret_cast<const char*>(header.data()),
                         static_cast<std::streamsize>(header.size()));
  pending.stream().write(reinterpret_cast<const char*>(tensor.data.data()),
                         static_cast<std::streamsize>(tensor.data.size() * sizeof(float)));
  pending.commit();
}

NamedDoubleTensors read_npz_double(const fs::path& file) {
  return parse_members<NamedDoubleTensors>(read_file(file), file.string(), read_npy_double_array);
}

void write_npz_double(const fs::path& file, const NamedDoubleTensors& tensors) {
  write_members(file, tensors, "<f8");
}

}  // namespace halfscope
