// SPDX-License-Identifier: MIT
#include "cli/tasks/advised_fix.h"

#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

constexpr size_t kCommentWidth = 78;

}  // namespace

std::vector<std::string> fix_target_names() {
  std::vector<std::string> names;
  for (FixTarget target : all_fix_targets()) names.push_back(fix_target_name(target));
  return names;
}

FixTarget parse_fix_as(const std::string& text) {
  if (const std::optional<FixTarget> target = parse_fix_target(text)) return *target;
  const std::vector<std::string> names = fix_target_names();
  throw usage_error("--fix-as: unknown framework '" + text + "'",
                    did_you_mean(text, names, "use " + comma_list(names)));
}

std::string advised_fix(FixTarget target, const LaneInfo& lane,
                        const std::optional<Recommendation>& advice,
                        const std::optional<Proof>& proof, const std::string& other) {
  if (target == FixTarget::plan && (proof || advice))
    return (proof ? proof->plan_json : advice->plan_json) + "\n";
  if (!proof && !advice && !other.empty() && target != FixTarget::plan) {
    std::string text;
    for (const std::string& line : wrapped(other, kCommentWidth)) text += "# " + line + "\n";
    return text;
  }
  const PlanEdit edit = proof ? proof->edit : advice ? advice->edit : PlanEdit{};
  return fix_as(target, lane, edit);
}

}  // namespace halfscope
