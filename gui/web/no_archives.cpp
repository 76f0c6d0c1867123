// SPDX-License-Identifier: MIT
// Replaces core/data/zip.cpp and gz_input.cpp in WebAssembly, where zlib and libzip are missing:
// reading or writing an archive is an error. Nothing that a page shows needs one; checkpoints and
// .npz files do.
#include <string>

#include "core/data/gz_input.h"
#include "core/data/zip.h"
#include "core/error.h"

struct zip {};
struct gzFile_s {};

namespace halfscope {
namespace {

[[noreturn]] void refuse(const std::string& file) {
  throw Error("cannot open '" + file + "': this build has no zlib and no libzip",
              "use the program halfscope for files");
}

}  // namespace

void ZipReader::Discard::operator()(zip* archive) const noexcept { delete archive; }
ZipReader::ZipReader(std::vector<uint8_t>, std::string name) { refuse(name); }
ZipReader::ZipReader(const std::filesystem::path& file) { refuse(file.string()); }
std::unique_ptr<ByteSource> ZipReader::open(const ZipMember&) const { refuse(name_); }
std::string ZipReader::describe(const ZipMember& member) const {
  return name_ + ": member '" + member.name + "'";
}
void write_zip(const std::filesystem::path& file, std::span<const ZipContents>) {
  refuse(file.string());
}

void GzInput::Close::operator()(gzFile_s* handle) const noexcept { delete handle; }
GzInput::GzInput(const std::filesystem::path& file) { refuse(file.string()); }
size_t GzInput::read(uint8_t*, size_t) { refuse(file_.string()); }
void GzInput::throw_damaged(int, const char*) const { refuse(file_.string()); }

}  // namespace halfscope
