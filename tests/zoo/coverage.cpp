// SPDX-License-Identifier: MIT
#include "tests/zoo/coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/models/zoo/zoo.h"
#include "tests/zoo/kernel_trial.h"

namespace halfscope::zoo {
namespace {

/// "F8, F20": the numbers as they are called.
std::string numbers(const std::vector<int>& all) {
  std::string text;
  for (const int number : all) text += fmt::format("{}F{}", text.empty() ? "" : ", ", number);
  return text;
}

bool has(const std::vector<int>& all, int number) {
  return std::find(all.begin(), all.end(), number) != all.end();
}

}  // namespace

Coverage coverage() {
  std::set<int> failing, healthy, kernels, stand_ins;
  Coverage result;
  for (const Case& each : all_cases()) {
    const int number = failure_number(each.id);
    if (number == 0) continue;
    if (!each.fails) {
      healthy.insert(number);
    } else if (!failing.insert(number).second) {
      result.variants.push_back(each.id);
    }
  }
  for (const KernelTrial& trial : kernel_trials()) kernels.insert(failure_number(trial.id));
  for (const StandIn& each : zoo::stand_ins()) stand_ins.insert(failure_number(each.id));
  for (int number = 1; number <= kFailures; ++number) {
    std::vector<int>& kind = failing.contains(number)   ? result.cases
                             : healthy.contains(number) ? result.controls
                             : kernels.contains(number) ? result.kernels
                                                        : result.absent;
    kind.push_back(number);
  }
  result.stand_ins.assign(stand_ins.begin(), stand_ins.end());
  return result;
}

std::string coverage_text(const Coverage& coverage) {
  std::string text = fmt::format(
      "documented failures:      F1 to F{}\n"
      "as cases that fail:       {}, and {} variants: {}\n"
      "as healthy controls:      {}: {}\n"
      "with a faulty kernel:     {}: {}\n"
      "not at all:               {}: {}\n"
      "by a stand-in, of these:  {}\n",
      kFailures, coverage.cases.size(), coverage.variants.size(),
      fmt::join(coverage.variants, ", "), coverage.controls.size(), numbers(coverage.controls),
      coverage.kernels.size(), numbers(coverage.kernels), coverage.absent.size(),
      numbers(coverage.absent), coverage.stand_ins.size());
  for (const StandIn& each : stand_ins()) text += fmt::format("  {:<4} {}\n", each.id, each.how);
  text += "not at all, because\n";
  for (const Absence& each : absences()) {
    if (!has(coverage.absent, failure_number(each.id))) continue;
    text += fmt::format("  {:<4} {}\n", each.id, each.why);
  }
  return text;
}

}  // namespace halfscope::zoo
