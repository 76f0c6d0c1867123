// SPDX-License-Identifier: MIT
// Whether a program records into a run file right now. The recorder holds an open file
// description lock on the -wal file as long as it lives; the kernel drops it however the program
// ends. SQLite locks the other two files but never this one, and such locks, unlike POSIX's, stay
// when another descriptor of the same file is closed, so neither disturbs the other.
#pragma once

#include <filesystem>

namespace halfscope {

/// True if a recorder, of this process or another, has the run file open; also if that cannot be
/// found out (no permission, a file system without such locks). Changes nothing.
bool has_live_writer(const std::filesystem::path& file);

/// What has_live_writer asks for.
class WriterLock {
 public:
  WriterLock() = default;
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

  /// The run file must be in WAL mode. Throws Error if another recorder holds it.
  void acquire(const std::filesystem::path& file);

 private:
  int descriptor_ = -1;
};

}  // namespace halfscope
