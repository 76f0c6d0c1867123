// SPDX-License-Identifier: MIT
#include "analysis/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_write(const fs::path& file, const std::error_code& reason) {
  throw Error(fmt::format("cannot write '{}': {}", file.string(), reason.message()),
              "check the permissions and the free space of its folder");
}

std::error_code last_error() { return {errno, std::generic_category()}; }

/// Returns whether this is a device or a pipe, which writing does not replace.
bool is_stream(const fs::file_status& status) {
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

/// Returns the file that a symbolic link points to at the end, which need not exist.
fs::path behind_links(fs::path file) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(file, error)); ++i) {
    file = file.parent_path() / fs::read_symlink(file, error);
  }
  return file;
}

/// `mode` as in fopen.
std::error_code write_all(const fs::path& file, std::string_view text, const char* mode) {
  errno = 0;
  std::FILE* stream = std::fopen(file.c_str(), mode);
  if (stream == nullptr) return last_error();
  std::error_code error;
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size()) error = last_error();
  // Buffered bytes are written here, so a full disk may be noticed only now.
  if (std::fclose(stream) != 0 && !error) error = last_error();
  return error;
}

}  // namespace

void check_output_file(const fs::path& file, bool force) {
  if (file.empty()) throw usage_error("the name of the output file is empty");
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::is_directory(status)) {
    throw usage_error(fmt::format("'{}' is a folder, not a file", file.string()),
                      "add a file name");
  }
  if (is_stream(status)) return;
  if (fs::exists(status) && !force) {
    throw usage_error(fmt::format("'{}' already exists", file.string()),
                      "choose another name, or use --force to replace it");
  }
  if (fs::is_symlink(fs::symlink_status(file, ignored)) && !fs::exists(status)) {
    const fs::path target = fs::absolute(behind_links(file), ignored);
    if (!fs::is_directory(target.parent_path(), ignored)) {
      throw usage_error(
          fmt::format("cannot write '{}': it links to '{}', whose folder does not exist",
                      file.string(), target.string()),
          "remove the link, or create the folder");
    }
  }
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    throw usage_error(
        fmt::format("cannot write '{}': folder '{}' not found", file.string(), folder.string()),
        "create the folder first");
  }
}

void write_output_file(const fs::path& file, std::string_view text, bool force) {
  check_output_file(file, force);
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (is_stream(status)) {
    error = write_all(file, text, "w");
    // A reader that stops early (| head) is not an error.
    if (error && error != std::errc::broken_pipe) fail_write(file, error);
    return;
  }
  // Replacing a symbolic link means replacing the file it points to.
  const fs::path target = behind_links(file);
  fs::path temporary = target;
  temporary += fmt::format(".tmp-{}", ::getpid());

  error = write_all(temporary, text, "wx");
  if (error == std::errc::file_exists) {  // left by a process of the same number that died
    fs::remove(temporary, error);
    error = write_all(temporary, text, "wx");
  }
  if (!error && fs::exists(status)) fs::permissions(temporary, status.permissions(), error);
  if (!error) fs::rename(temporary, target, error);
  if (error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    fail_write(file, error);
  }
}

}  // namespace halfscope
