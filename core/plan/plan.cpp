// SPDX-License-Identifier: MIT
// Resolves the rules of a plan for a node.
#include "core/plan/plan.h"

#include "core/error.h"

namespace halfscope {

void keep_fp32(Plan& plan, const std::string& glob) {
  if (glob.empty()) throw usage_error("an empty path selects no layer", "use '*' for all of them");
  plan.rules.push_back({.path = glob, .op = "", .read = kFp32, .write = kFp32});
}

void accumulate_in(Plan& plan, Accumulation accumulation) {
  plan.defaults.accumulation = accumulation;
  for (PlanRule& rule : plan.rules) rule.accumulation.reset();
}

std::optional<FloatFormat> moved_range(const FloatFormat& format, int by) noexcept {
  FloatFormat moved = format;
  moved.bias += by;
  return is_valid(moved) ? std::optional(moved) : std::nullopt;
}

bool is_full_precision(const Plan& plan) {
  const auto full = [](const std::optional<FloatFormat>& format) {
    return !format || *format == kFp32;
  };
  bool all = full(plan.defaults.read) && full(plan.defaults.grad_read) &&
             full(plan.defaults.write) && full(plan.storage) && full(plan.average) &&
             full(plan.average_compute) && full(plan.update_compute) && full(plan.clip) &&
             full(plan.schedule) && (!plan.reduction || full(plan.reduction->format)) &&
             full(plan.state) && full(plan.gradient_sum) && full(plan.initial) &&
             !plan.defaults.accumulation.sums_in_format();
  for (const PlanRule& rule : plan.rules) {
    all = all && full(rule.read) && full(rule.grad_read) && full(rule.write) &&
          !(rule.accumulation && rule.accumulation->sums_in_format());
  }
  return plan.double_precision || all;
}

Plan reference_of(const Plan& plan) {
  Plan reference;
  reference.defaults.stagewise = plan.defaults.stagewise;
  for (const PlanRule& rule : plan.rules) {
    if (!rule.stagewise) continue;
    // Rules that change nothing would make equal references look different.
    if (reference.rules.empty() && *rule.stagewise == plan.defaults.stagewise) continue;
    reference.rules.push_back({.path = rule.path, .op = rule.op, .stagewise = rule.stagewise});
  }
  return reference;
}

NodePlan resolve(const Plan& plan, const std::string& path, const std::string& op) {
  NodePlan result = plan.defaults;
  for (const PlanRule& rule : plan.rules) {
    if (!rule.op.empty() && rule.op != op) continue;
    if (!rule.path.empty() && !glob_match(rule.path, path)) continue;
    if (rule.follow) {
      result.follows = true;
      result.same_formats = rule.same_formats;
    }
    if (rule.read || rule.write) result.follows = false;
    if (rule.read) {
      result.read = *rule.read;
      result.grad_read.reset();
    }
    if (rule.grad_read) result.grad_read = rule.grad_read;
    if (rule.write) result.write = *rule.write;
    if (rule.accumulation) result.accumulation = *rule.accumulation;
    if (rule.rounding) {
      result.rounding = *rule.rounding;
      result.grad_rounding.reset();
    }
    if (rule.grad_rounding) result.grad_rounding = rule.grad_rounding;
    if (rule.scale) {
      result.scale = *rule.scale;
      result.second_scale.reset();
    }
    if (rule.second_scale) result.second_scale = rule.second_scale;
    if (rule.stagewise) result.stagewise = *rule.stagewise;
    if (rule.rounds_weights) result.rounds_weights = *rule.rounds_weights;
    if (rule.constants_in_range) result.constants_in_range = *rule.constants_in_range;
    if (rule.clamps) result.clamps = *rule.clamps;
    if (rule.prescale) result.prescale = *rule.prescale;
  }
  return result;
}

bool glob_match(std::string_view glob, std::string_view text) noexcept {
  // Classic two-pointer matching: on a mismatch the last star takes one more character.
  size_t g = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    // A backslash at the very end escapes nothing and matches itself.
    const bool escaped = g + 1 < glob.size() && glob[g] == '\\';
    const char wanted = g < glob.size() ? glob[escaped ? g + 1 : g] : '\0';
    if (!escaped && g < glob.size() && wanted == '*') {
      star = g++;
      resume = t;
    } else if (g < glob.size() && ((!escaped && wanted == '?') || wanted == text[t])) {
      g += escaped ? 2 : 1;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

std::string exact_glob(std::string_view path) {
  std::string glob;
  for (const char c : path) {
    if (c == '*' || c == '?' || c == '\\') glob += '\\';
    glob += c;
  }
  return glob;
}

}  // namespace halfscope
