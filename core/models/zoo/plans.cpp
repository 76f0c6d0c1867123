// SPDX-License-Identifier: MIT
#include "core/models/zoo/plans.h"

#include <sstream>
#include <stdexcept>

#include "core/policy/policy.h"

namespace halfscope::zoo {
namespace {

Plan naive(const FloatFormat& format) {
  Plan plan;
  plan.defaults.read = plan.defaults.write = plan.storage = format;
  plan.defaults.stagewise = true;
  plan.defaults.accumulation = Accumulation::format;
  for (const char* op : {"MatMul", "Gemm", "Conv"}) {
    PlanRule rule{.path = "", .op = op};
    rule.accumulation = Accumulation::fp32;
    plan.rules.push_back(rule);
  }
  return plan;
}

std::optional<Plan> changed_preset(const std::string& name) {
  if (name == "naive_float16") return naive(kFp16);
  if (name == "naive_bfloat16") return naive(kBf16);
  if (name == "tf32_products") {
    Plan plan;
    for (const char* op : {"MatMul", "Gemm", "Conv"}) {
      plan.rules.push_back({.path = "", .op = op, .read = kTf32, .write = kFp32});
    }
    return plan;
  }
  if (name == "wide_logits_bfloat16") {
    Plan plan = preset_plan("mixed_bfloat16").value();
    PlanRule rule{.path = std::string(kWideLogits), .op = ""};
    rule.write = kFp32;
    plan.rules.push_back(rule);
    return plan;
  }
  if (name == "live_buffers_float16") {
    Plan plan = preset_plan("mixed_float16").value();
    plan.buffers = BufferCommit::always;
    return plan;
  }
  if (name == "scatter_float16") {
    Plan plan;
    plan.defaults.read = plan.defaults.write = kFp16;
    PlanRule rule{.path = "", .op = "Gather"};
    rule.accumulation = Accumulation::format;
    plan.rules.push_back(rule);
    plan.rules.push_back({.path = "", .op = "ReduceSum", .read = kFp32, .write = kFp32});
    return plan;
  }
  if (name == "mxfp8_floor") {
    Plan plan = preset_plan("mxfp8").value();
    for (PlanRule& rule : plan.rules) {
      if (rule.scale) rule.scale = parse_scale("mx").value();
    }
    return plan;
  }
  if (name == "fp8_rows_unguarded") {
    Plan plan = preset_plan("fp8_current").value();
    for (PlanRule& rule : plan.rules) {
      if (rule.scale) rule.scale = parse_scale("block:1024,scales=fp32,unguarded").value();
    }
    return plan;
  }
  if (name == "nvfp4_nearest") {
    Plan plan = preset_plan("nvfp4").value();
    for (PlanRule& rule : plan.rules) rule.grad_rounding.reset();
    return plan;
  }
  return std::nullopt;
}

Plan plan_named(const std::string& name) {
  if (std::optional<Plan> preset = preset_plan(name)) return *preset;
  if (std::optional<Plan> plan = zoo_plan(name)) return *plan;
  throw std::invalid_argument("unknown plan '" + name + "'");
}

FloatFormat format_of(const std::string& text) {
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) throw std::invalid_argument("unknown format '" + text + "'");
  return *format;
}

void set(LaneChoice& lane, const std::string& key, const std::string& value) {
  if (key == "accumulate") {
    accumulate_in(lane.plan, parse_accumulation(value).value());
  } else if (key == "compute") {
    lane.plan.update_compute = format_of(value);
  } else if (key == "average") {
    lane.plan.average = lane.plan.average_compute = format_of(value);
  } else if (key == "schedule") {
    lane.plan.schedule = format_of(value);
  } else if (key == "sum") {
    lane.sum_format = format_of(value);
  } else if (key == "state") {
    lane.state_format = format_of(value);
  } else if (key == "reduce") {
    lane.plan.reduction = parse_reduction(value);
  } else if (key == "scale") {
    lane.scaler = parse_loss_scale(value);
  } else {
    throw std::invalid_argument("unknown plan setting '" + key + "=" + value + "'");
  }
}

}  // namespace

std::vector<std::string> zoo_plan_names() {
  return {"naive_float16",        "naive_bfloat16", "scatter_float16",
          "mxfp8_floor",          "nvfp4_nearest",  "wide_logits_bfloat16",
          "live_buffers_float16", "tf32_products",  "fp8_rows_unguarded"};
}

std::optional<Plan> zoo_plan(std::string_view name) {
  std::optional<Plan> plan = changed_preset(std::string(name));
  if (plan) plan->name = name;
  return plan;
}

LaneChoice lane_choice(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  LaneChoice lane{.plan = plan_named(word), .scaler = {}};
  if (needs_loss_scaling(lane.plan)) lane.scaler = parse_loss_scale("dynamic");
  while (words >> word) {
    const size_t equals = word.find('=');
    if (equals == word.npos) throw std::invalid_argument("unknown plan setting '" + word + "'");
    set(lane, word.substr(0, equals), word.substr(equals + 1));
  }
  return lane;
}

FloatFormat working_format(const LaneChoice& lane) {
  // fp8 and fp4 recipes compute everything except products in bf16.
  const FloatFormat& format = lane.plan.defaults.write;
  return format.mantissa_bits < kFp16.mantissa_bits ? kBf16 : kFp16;
}

std::vector<std::string> six_plans() {
  return {"mixed_float16", "mixed_bfloat16",    "float16",
          "bfloat16",      "float16_stagewise", "bfloat16_stagewise"};
}

}  // namespace halfscope::zoo
