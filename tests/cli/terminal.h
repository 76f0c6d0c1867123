// SPDX-License-Identifier: MIT
// Runs the built `halfscope` with one of its streams on a pseudo-terminal.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>

#include "tests/cli/program.h"

namespace halfscope::test {

enum class Stream { output, error };

/// Returns the program's output to a terminal with that many columns, with "
/// " for "\r
/// ", or "" if there are no pseudo-terminals here. `environment`: see Bench::start.
inline std::string on_terminal(const Bench& bench, const std::vector<std::string>& words,
                               int columns, Stream stream = Stream::error,
                               const std::string& environment = "TERM=xterm", int code = 0) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return "";
  const winsize size{
      .ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  ioctl(master, TIOCSWINSZ, &size);
  const std::string terminal = ptsname(master);
  const pid_t child = stream == Stream::error
                          ? bench.start(words, environment, terminal)
                          : bench.start(words, environment, "stderr.txt", terminal);
  std::string drawn;
  for (bool open = true; open;) {
    char buffer[4096];
    const ssize_t got = read(master, buffer, sizeof buffer);
    open = got > 0;  // EIO once the program has gone
    if (open) drawn.append(buffer, static_cast<size_t>(got));
  }
  close(master);
  EXPECT_EQ(bench.finish(child).code, code);
  for (size_t at = 0; (at = drawn.find("\r\n", at)) != std::string::npos;) drawn.erase(at, 1);
  return drawn;
}

}  // namespace halfscope::test
