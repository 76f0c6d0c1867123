// SPDX-License-Identifier: MIT
#include "analysis/rules/shown_rate.h"

#include <fmt/format.h>

namespace halfscope {

ShownRate shown_rate(const LaneFacts& lane, int site, double Rates::*rate, int64_t before) {
  ShownRate shown{.run = run_rates(lane.run(), lane.lane(), site).*rate};
  for (const PackedWindow& window : lane.run().windows(lane.lane(), site)) {
    if (window.step >= before) break;
    const double here = rates_of(window.counts(), lane.site(site).format).*rate;
    if (here <= shown.worst) continue;
    shown.worst = here;
    shown.first = window.step;
    shown.last = window.step + window.step_count - 1;
  }
  return shown;
}

std::string worst_steps(const LaneFacts& lane, const ShownRate& rate) {
  const char* step = lane.inference() ? "batch" : "step";
  if (rate.first == rate.last) return fmt::format("{} {}", step, rate.first);
  return fmt::format("{}{} {} to {}", step, lane.inference() ? "es" : "s", rate.first, rate.last);
}

bool far_apart(double run, double some) noexcept { return some > 2.0 * run || run > 2.0 * some; }

}  // namespace halfscope
