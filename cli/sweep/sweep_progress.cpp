// SPDX-License-Identifier: MIT
#include "cli/sweep/sweep_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "cli/terminal/progress.h"

namespace halfscope {
namespace {

constexpr std::chrono::milliseconds kRedrawTrials{200};
constexpr const char* kClear = "\r\033[K";

}  // namespace

std::string sweep_progress_text(const SweepCounts& counts, size_t width) {
  std::string text = fmt::format("{}/{} trials", counts.done, counts.trials);
  std::vector<std::string> parts;
  if (counts.failed > 0) parts.push_back(fmt::format("{} failed", counts.failed));
  const size_t ended = counts.done - counts.done_before + counts.failed;
  if (ended > 0 && counts.seconds > 0.0) {
    const double rate = static_cast<double>(ended) / counts.seconds;
    const auto left = static_cast<double>(counts.trials - counts.done - counts.failed);
    parts.push_back(duration_text(left / rate) + " left");
    parts.push_back(rate >= 1.0 ? fmt::format("{:.3g} trials/s", rate)
                                : fmt::format("{} a trial", duration_text(1.0 / rate)));
  }
  for (const std::string& part : parts) {
    if (text.size() + 2 + part.size() <= width) text += "  " + part;
  }
  return text.substr(0, width);
}

SweepProgress::SweepProgress(size_t done, size_t trials, bool quiet)
    : counts_{.done = done, .trials = trials, .done_before = done},
      active_(!quiet && terminal_width() > 0),
      start_(Clock::now()),
      last_(start_ - kRedrawTrials) {}

SweepProgress::~SweepProgress() {
  if (active_) std::cerr << kClear << std::flush;
}

void SweepProgress::show(size_t done, size_t failed) {
  if (!active_) return;
  const Clock::time_point now = Clock::now();
  if (now - last_ < kRedrawTrials) return;
  last_ = now;
  counts_.done = done;
  counts_.failed = failed;
  counts_.seconds = std::chrono::duration<double>(now - start_).count();
  // A line that reaches the last column wraps on some terminals.
  const size_t width = std::max<size_t>(terminal_width(), 2) - 1;
  std::cerr << kClear << sweep_progress_text(counts_, width) << std::flush;
}

}  // namespace halfscope
