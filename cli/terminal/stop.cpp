// SPDX-License-Identifier: MIT
#include "cli/terminal/stop.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace halfscope {
namespace {

std::atomic<bool> g_stop{false};
std::atomic<const char*> g_work{"this step"};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take a lock");

/// To the terminal, from a signal handler.
void say(std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return;
  const ssize_t unused = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(unused);
}

/// Files that a second Ctrl-C removes: the run file with SQLite's files beside it, then their
/// folder. A signal handler may neither allocate nor list folders.
constexpr size_t kLongestName = 4096;
std::array<std::array<char, kLongestName>, 5> g_names{};
std::atomic<bool> g_removes{false};

void remove_names() {
  if (!g_removes.load()) return;
  for (size_t i = 0; i + 1 < g_names.size(); ++i) unlink(g_names[i].data());
  rmdir(g_names.back().data());
}

void on_signal(int) {
  if (!g_stop.exchange(true)) {
    say("\r\033[Kfinishing ");
    say(g_work.load());
    say("; Ctrl-C again ends at once");
    return;
  }
  // The second Ctrl-C ends the program the hard way; what was committed stays.
  say("\r\033[K");
  remove_names();
  std::_Exit(130);
}

}  // namespace

const std::atomic<bool>& catch_stop_signals(const char* work) {
  g_work = work;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  // nohup ignores it, and means it.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  return g_stop;
}

TemporaryFolder::TemporaryFolder() {
  catch_stop_signals();  // from now on a first Ctrl-C does not end the program
  std::error_code ignored;
  std::filesystem::path base = std::filesystem::temp_directory_path(ignored);
  if (base.empty()) base = "/tmp";
  folder_ = (base / "halfscope-XXXXXX").string();
  const bool fits = folder_.size() + std::strlen("/run.hscope-journal") < kLongestName;
  if (!fits || mkdtemp(folder_.data()) == nullptr) {
    throw Error("cannot make a temporary folder in " + base.string() + ": " +
                    std::strerror(fits ? errno : ENAMETOOLONG),
                "name a run file with --record FILE, or set TMPDIR to another folder");
  }
  const std::string file = run_file();
  const std::array<std::string, 5> names{file, file + "-wal", file + "-shm", file + "-journal",
                                         folder_};
  for (size_t i = 0; i < names.size(); ++i) {
    std::memcpy(g_names[i].data(), names[i].c_str(), names[i].size() + 1);
  }
  g_removes = true;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  g_removes = false;
}

}  // namespace halfscope
