// SPDX-License-Identifier: MIT
#include "cli/terminal/stop.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace halfscope {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take a lock");

/// To the terminal, from a signal handler.
void say(std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return;
  const ssize_t unused = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(unused);
}

void on_signal(int) {
  if (!g_stop.exchange(true)) {
    say("\r\033[Kfinishing this step; Ctrl-C again ends at once");
    return;
  }
  // The second Ctrl-C ends the program the hard way; what was committed stays.
  say("\r\033[K");
  std::_Exit(130);
}

}  // namespace

const std::atomic<bool>& catch_stop_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  // nohup ignores it, and means it.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  return g_stop;
}

}  // namespace halfscope
