// SPDX-License-Identifier: MIT
// Presets and the resolution of rules.
#include "core/plan/plan.h"

#include <algorithm>

#include "core/error.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

Plan mixed(std::string name, const FloatFormat& format) {
  Plan plan;
  plan.name = std::move(name);
  plan.defaults.read = plan.defaults.write = format;
  for (const OpDef& def : op_table()) {
    if (def.autocast == Autocast::follow || def.autocast == Autocast::promote)
      plan.rules.push_back({.path = "", .op = def.name, .follow = true});
  }
  for (const OpDef& def : op_table()) {
    if (def.autocast == Autocast::fp32)
      plan.rules.push_back({.path = "", .op = def.name, .read = kFp32, .write = kFp32});
  }
  return plan;
}

Plan pure(std::string name, const FloatFormat& format) {
  Plan plan = mixed(std::move(name), format);
  plan.storage = format;
  return plan;
}

/// bf16 throughout but for the products, whose operands are scaled to fewer bits.
Plan recipe(std::string name, const NodePlan& products) {
  Plan plan = mixed(std::move(name), kBf16);
  for (const OpDef& def : op_table()) {
    if (def.autocast != Autocast::low || !def.sums_products()) continue;
    PlanRule rule{.path = "", .op = def.name, .read = products.read, .scale = products.scale};
    rule.grad_read = products.grad_read;
    rule.grad_rounding = products.grad_rounding;
    if (products.accumulation != Accumulation::fp32) rule.accumulation = products.accumulation;
    plan.rules.push_back(rule);
  }
  return plan;
}

/// As the recipes of NVIDIA's Transformer Engine (common/recipe/__init__.py): DelayedScaling and
/// Float8CurrentScaling (both HYBRID), Float8BlockScaling (that of DeepSeek-V3, arXiv:2412.19437,
/// with scales that are powers of two), MXFP8BlockScaling (scales as in arXiv:2506.08027) and
/// NVFP4BlockScaling without its random Hadamard transform (arXiv:2509.25149).
std::optional<Plan> recipe_plan(std::string_view name) {
  NodePlan products;
  products.read = kE4m3fn;
  if (name == "fp8_delayed" || name == "fp8_current") {
    products.grad_read = kE5m2;
    products.scale = parse_scale(name == "fp8_delayed" ? "delayed" : "current").value();
  } else if (name == "fp8_block") {
    products.scale = parse_scale("block:128,weights=square").value();
    products.accumulation.promote = 128;
  } else if (name == "mxfp8") {
    products.scale = parse_scale("mx:up").value();
  } else if (name == "nvfp4") {
    products.read = kE2m1;
    products.scale = parse_scale("nvfp4:weights=square").value();
    products.grad_rounding = RoundingChoice{.mode = RoundingMode::stochastic};
  } else {
    return std::nullopt;
  }
  return recipe(std::string(name), products);
}

}  // namespace

std::vector<std::string> preset_names() {
  return {"float32",     "float64",     "mixed_float16", "mixed_bfloat16", "float16", "bfloat16",
          "fp8_delayed", "fp8_current", "fp8_block",     "mxfp8",          "nvfp4"};
}

std::optional<Plan> preset_plan(std::string_view name) {
  if (name == "float32") return Plan{};
  if (name == "float64") {
    Plan plan;
    plan.name = "float64";
    plan.double_precision = true;
    return plan;
  }
  if (name == "mixed_float16") return mixed("mixed_float16", kFp16);
  if (name == "mixed_bfloat16") return mixed("mixed_bfloat16", kBf16);
  if (name == "float16") return pure("float16", kFp16);
  if (name == "bfloat16") return pure("bfloat16", kBf16);
  return recipe_plan(name);
}

void keep_fp32(Plan& plan, const std::string& glob) {
  if (glob.empty()) throw usage_error("an empty path selects no layer", "use '*' for all of them");
  plan.rules.push_back({.path = glob, .op = "", .read = kFp32, .write = kFp32});
}

void accumulate_in(Plan& plan, Accumulation accumulation) {
  plan.defaults.accumulation = accumulation;
  for (PlanRule& rule : plan.rules) rule.accumulation.reset();
}

bool is_full_precision(const Plan& plan) {
  const auto full = [](const std::optional<FloatFormat>& format) {
    return !format || *format == kFp32;
  };
  bool all = full(plan.defaults.read) && full(plan.defaults.grad_read) &&
             full(plan.defaults.write) && full(plan.storage) && full(plan.average) &&
             full(plan.average_compute) && full(plan.update_compute) && full(plan.clip) &&
             !plan.defaults.accumulation.sums_in_format();
  for (const PlanRule& rule : plan.rules) {
    all = all && full(rule.read) && full(rule.grad_read) && full(rule.write) &&
          !(rule.accumulation && rule.accumulation->sums_in_format());
  }
  return plan.double_precision || all;
}

NodePlan resolve(const Plan& plan, const std::string& path, const std::string& op) {
  NodePlan result = plan.defaults;
  for (const PlanRule& rule : plan.rules) {
    if (!rule.op.empty() && rule.op != op) continue;
    if (!rule.path.empty() && !glob_match(rule.path, path)) continue;
    if (rule.follow) result.follows = true;
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
    if (rule.scale) result.scale = *rule.scale;
    if (rule.stagewise) result.stagewise = *rule.stagewise;
  }
  return result;
}

bool needs_loss_scaling(const Plan& plan) {
  if (plan.double_precision) return false;
  const auto narrow = [](const FloatFormat& format) { return format.exponent_bits < 8; };
  // What a node of this operator and path would do; one that follows its inputs does as they do.
  const auto unscaled = [&](const std::string& path, const OpDef& def) {
    const NodePlan node = resolve(plan, path, def.name);
    if (node.follows) return false;
    const bool scaled = def.sums_products() && node.scale.any();
    return narrow(node.write) ||
           (!scaled && (narrow(node.read) || narrow(node.grad_read.value_or(node.read))));
  };
  const auto any_op = [&](const std::string& path, const std::string& op) {
    // Of a rule that scales and names no operator the products are meant.
    const bool products = op.empty() && !path.empty() && resolve(plan, path, "Gemm").scale.any();
    return std::any_of(op_table().begin(), op_table().end(), [&](const OpDef& def) {
      const bool meant = op.empty() ? !products || def.sums_products() : op == def.name;
      return meant && def.autocast != Autocast::internal && unscaled(path, def);
    });
  };
  return narrow(plan.storage) || any_op("", "") ||
         std::any_of(plan.rules.begin(), plan.rules.end(), [&](const PlanRule& rule) {
           return !rule.path.empty() && any_op(rule.path, rule.op);
         });
}

bool glob_match(std::string_view glob, std::string_view text) noexcept {
  // Classic two-pointer matching: on a mismatch the last star takes one more character.
  size_t g = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    // A backslash at the very end has nothing to take and stands for itself.
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
