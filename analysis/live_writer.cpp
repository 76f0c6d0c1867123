// SPDX-License-Identifier: MIT
#include "analysis/live_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "analysis/sqlite.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// Returns the -wal file. SQLite puts it next to the target of a symbolic link.
fs::path wal_of(const fs::path& file) {
  std::error_code error;
  const fs::path target = fs::canonical(file, error);
  return sqlite::side_file(error ? file : target, "-wal");
}

/// The whole file, exclusively.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

bool has_live_writer(const fs::path& file) {
  const int descriptor = ::open(wal_of(file).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return errno != ENOENT && errno != ENOTDIR;
  struct flock lock = whole_file();
  const int code = ::fcntl(descriptor, F_OFD_GETLK, &lock);
  ::close(descriptor);
  return code != 0 || lock.l_type != F_UNLCK;
}

WriterLock::~WriterLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void WriterLock::acquire(const fs::path& file) {
  descriptor_ = ::open(wal_of(file).c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) {
    const std::error_code reason(errno, std::generic_category());
    throw Error(fmt::format("cannot write '{}': {}", file.string(), reason.message()),
                "choose a folder on a local disk");
  }
  struct flock lock = whole_file();
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) == 0) return;
  if (errno == EAGAIN || errno == EACCES) {
    throw usage_error(fmt::format("'{}' is in use by another program", file.string()),
                      "choose another name; the file may belong to a run in progress");
  }
  // On a file system without such locks has_live_writer() cannot check either and returns true.
}

}  // namespace halfscope
