// SPDX-License-Identifier: MIT
#include "analysis/rules/site_words.h"

#include <fmt/format.h>

#include "analysis/format_limits.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"

namespace halfscope {

Subject subject_of(const SiteInfo& site) {
  if (site.role == Role::activation) return {site.path, "outputs"};
  if (site.role != Role::input) return {site.name(), "values"};
  if (site.path == "input") {
    return {site.tensor == "input" ? "the input" : "the input " + site.tensor, "values"};
  }
  const bool constant = site.tensor.starts_with("constant");
  return {(constant ? "a constant of " : "an operand of ") + site.path, "values"};
}

std::string overflow_text(const LaneFacts& lane, const SiteInfo& site) {
  const Subject subject = subject_of(site);
  return fmt::format("{} overflows {}: {} of its {} are larger than {}", subject.name,
                     format_name(site.format),
                     percent(run_rates(lane.run(), lane.lane(), site.order).overflow),
                     subject.values, short_number(site.format.max_finite()));
}

}  // namespace halfscope
