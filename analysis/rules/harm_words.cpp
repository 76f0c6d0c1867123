// SPDX-License-Identifier: MIT
#include "analysis/rules/harm_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "analysis/rules/tolerance.h"

namespace halfscope {

int64_t lost_from(std::span<const StepRow> rows, int64_t compared) {
  for (const StepRow& row : rows) {
    if (row.step < compared && !std::isfinite(row.loss)) return row.step;
  }
  return compared;
}

std::string since_text(std::span<const StepRow> rows, int64_t step) {
  bool later = false;
  for (const StepRow& row : rows) {
    if (row.step <= step) continue;
    if (std::isfinite(row.loss)) return fmt::format("at step {}", step);
    later = true;
  }
  return later ? fmt::format("from step {} on", step) : fmt::format("at step {}", step);
}

double loss_at(std::span<const StepRow> rows, int64_t step) {
  for (const StepRow& row : rows) {
    if (row.step == step) return row.loss;
  }
  return 0.0;
}

const char* non_finite_word(double loss) {
  return std::isnan(loss) ? "NaN" : std::isinf(loss) ? "infinite" : "NaN or infinite";
}

std::string movement_text(const std::string& what, double ratio) {
  if (ratio == 0.0) return what + " never moved";
  return fmt::format("{} moved {}{} as far as in float32", what, ratio < 1.0 ? "only " : "",
                     ratio < 2.0 ? percent(ratio) : short_number(ratio) + " times");
}

HarmItem worst_gradient(const std::vector<HarmItem>& gradients) {
  const auto worst =
      std::max_element(gradients.begin(), gradients.end(),
                       [](const HarmItem& a, const HarmItem& b) { return a.error < b.error; });
  HarmItem item = *worst;
  const auto others = std::count_if(gradients.begin(), gradients.end(),
                                    [&](const HarmItem& each) { return !each.name.empty(); }) -
                      1;
  const bool several = !item.name.empty() && others > 0;
  const std::string what = item.name.empty() ? "the gradient of all weights"
                           : several         ? fmt::format("the gradients of {} and {}", item.name,
                                                           counted(others, "other variable"))
                                             : "the gradient of " + item.name;
  const char* const verb = several ? "are" : "is";
  item.text = std::isinf(item.error)
                  ? fmt::format("{} {} NaN or infinite, unlike float32's", what, verb)
              : several ? fmt::format("{} differ from float32's by up to {} ({} is allowed)", what,
                                      difference_by(item.error), percent(item.tolerance))
                        : what + " " + difference_text(item.error, item.tolerance);
  return item;
}

}  // namespace halfscope
