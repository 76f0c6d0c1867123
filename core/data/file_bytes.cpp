// SPDX-License-Identifier: MIT
#include "core/data/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/data/read_failure.h"
#include "core/error.h"

namespace halfscope {
namespace {

Error cannot_read(const std::string& file, int code) {
  return Error(
      "cannot read '" + file + "': " + read_failure(std::error_code(code, std::generic_category())),
      "check the path and its permissions");
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& file) : name_(file.string()) {
  descriptor_ = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw cannot_read(name_, errno);
  struct stat status {};
  int code = fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (code == 0 && S_ISDIR(status.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(status.st_mode)) code = EINVAL;
  if (code != 0) {
    close(descriptor_);
    throw cannot_read(name_, code);
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

FileBytes::~FileBytes() { close(descriptor_); }

void FileBytes::read(uint64_t offset, std::span<uint8_t> target) const {
  while (!target.empty()) {
    const ssize_t count =
        pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw cannot_read(name_, errno);
    if (count == 0) {
      throw Error("cannot read '" + name_ + "': it became shorter while it was read",
                  "wait until the program that writes it is done");
    }
    target = target.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

}  // namespace halfscope
