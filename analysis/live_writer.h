// SPDX-License-Identifier: MIT
// Detects whether a program is recording into a run file. The recorder holds an open file
// description lock on the -wal file while it is alive; the kernel drops it however the program
// ends. SQLite locks the other two files but never this one, and unlike POSIX locks these stay when
// another descriptor of the same file is closed, so the two do not disturb each other.
#pragma once

#include <filesystem>

namespace halfscope {

/// Returns whether a recorder of this or another process has the run file open; true also if that
/// cannot be determined (no permission, a file system without such locks). Changes nothing.
bool has_live_writer(const std::filesystem::path& file);

/// Holds the lock that has_live_writer() looks for.
class WriterLock {
 public:
  WriterLock() = default;
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

  /// Takes the lock. The run file must be in WAL mode. Throws Error if another recorder has it.
  void acquire(const std::filesystem::path& file);

 private:
  int descriptor_ = -1;
};

}  // namespace halfscope
