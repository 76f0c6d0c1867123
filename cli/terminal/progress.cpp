// SPDX-License-Identifier: MIT
#include "cli/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "cli/terminal/output.h"

namespace halfscope {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr const char* kClearLine = "\r\033[K";

/// Parts of the line that fit.
struct Detail {
  bool rate = true, notes = true, left = true;
  size_t lanes = 0;
};

std::string lane_text(const LaneProgress& lane, bool notes, bool inference) {
  if (inference) {
    const bool scored = notes && !std::isnan(lane.accuracy);
    return "  " + lane.name + (scored ? " " + percentage(lane.accuracy) : "");
  }
  std::string text = std::isnan(lane.loss) ? fmt::format("  {} nan", lane.name)
                                           : fmt::format("  {} {:.4f}", lane.name, lane.loss);
  if (!notes) return text;
  const bool moved = lane.scale != lane.first_scale;
  if (moved) text += " scale " + shortest(lane.scale);
  if (lane.skipped > 0) text += fmt::format("{}{} skipped", moved ? ", " : " ", lane.skipped);
  return text;
}

std::string line_of(const Progress& progress, const Detail& detail) {
  const char* unit = progress.inference ? "batch" : "step";
  std::string text = fmt::format("{} {}/{}", unit, progress.done, progress.steps);
  for (size_t i = 0; i < detail.lanes; ++i) {
    text += lane_text(progress.lanes[i], detail.notes, progress.inference);
  }
  if (progress.done >= progress.steps) return text + "  finishing";
  if (progress.rate <= 0.0) return text;
  if (detail.rate)
    text += fmt::format("  {:.3g} {}/s", progress.rate, progress.inference ? "batches" : "steps");
  const double left = static_cast<double>(progress.steps - progress.done) / progress.rate;
  if (detail.left) text += "  " + duration_text(left) + " left";
  return text;
}

}  // namespace

std::string duration_text(double seconds) {
  constexpr double kYears = 1e9;
  if (!(seconds >= 0.0)) return "";
  if (seconds > kYears) return "years";
  const int64_t all = std::llround(std::ceil(seconds));
  const int64_t s = all % 60, m = all / 60 % 60, h = all / 3600 % 24, d = all / 86400;
  if (d > 0) return fmt::format("{}d{:02}h", d, h);
  if (h > 0) return fmt::format("{}h{:02}m", h, m);
  if (m > 0) return fmt::format("{}m{:02}s", m, s);
  return fmt::format("{}s", s);
}

void RateMeter::add(double seconds, int64_t step) {
  constexpr double kWindow = 5.0, kSpacing = 0.1;
  // Thousands of steps a second need no sample each; the newest always counts.
  if (samples_.size() > 1 && seconds - samples_[samples_.size() - 2].first < kSpacing) {
    samples_.back() = {seconds, step};
  } else {
    samples_.emplace_back(seconds, step);
  }
  // Two samples stay, however slow a step is.
  while (samples_.size() > 2 && seconds - samples_[1].first >= kWindow) samples_.pop_front();
}

double RateMeter::rate() const {
  if (samples_.size() < 2) return 0.0;
  const double seconds = samples_.back().first - samples_.front().first;
  if (seconds <= 0.0) return 0.0;
  return static_cast<double>(samples_.back().second - samples_.front().second) / seconds;
}

std::string progress_text(const Progress& progress, size_t width) {
  Detail detail{.lanes = progress.lanes.size()};
  const auto fits = [&] { return line_of(progress, detail).size() <= width; };
  if (!fits()) detail.rate = false;
  if (!fits()) detail.notes = false;
  while (!fits() && detail.lanes > 0) --detail.lanes;
  if (!fits()) detail.left = false;
  return line_of(progress, detail).substr(0, width);
}

ProgressLine::ProgressLine(int64_t steps, const RunInfo& info, bool quiet)
    : active_(!quiet && terminal_width() > 0), start_(Clock::now()), last_(start_ - kRedraw) {
  progress_.steps = steps;
  progress_.inference = info.inference;
  for (const LaneInfo& lane : info.lanes) {
    progress_.lanes.emplace_back();
    progress_.lanes.back().name = lane.name;
  }
}

ProgressLine::~ProgressLine() {
  if (active_) std::cerr << kClearLine << std::flush;
}

void ProgressLine::operator()(const std::vector<StepRow>& rows) {
  if (!active_) return;
  const bool first = progress_.done == 0;
  if (first) meter_.add(0.0, rows[0].step);
  progress_.done = rows[0].step + 1;
  for (size_t i = 0; i < rows.size(); ++i) {
    LaneProgress& lane = progress_.lanes[i];
    if (first) lane.first_scale = rows[i].loss_scale;
    lane.loss = rows[i].loss;
    const double done = static_cast<double>(progress_.done);
    lane.accuracy += (rows[i].accuracy - lane.accuracy) / done;
    lane.scale = rows[i].loss_scale;
    lane.skipped += rows[i].skipped ? 1 : 0;
  }
  const Clock::time_point now = Clock::now();
  meter_.add(std::chrono::duration<double>(now - start_).count(), progress_.done);
  const bool finished = progress_.done >= progress_.steps;
  if (now - last_ < kRedraw && !finished) return;
  last_ = now;
  progress_.rate = meter_.rate();
  // The window may have changed its size. A line that reaches the last column wraps on some
  // terminals.
  const size_t width = std::max<size_t>(terminal_width(), 2) - 1;
  std::cerr << kClearLine << progress_text(progress_, width) << std::flush;
}

size_t terminal_width() {
  if (isatty(STDERR_FILENO) == 0) return 0;
  const char* terminal = std::getenv("TERM");
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return 0;
  return window_width(STDERR_FILENO);
}

}  // namespace halfscope
