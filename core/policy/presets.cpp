// SPDX-License-Identifier: MIT
// Presets (mixed ones are made from the operators' autocast classes), and the check whether a plan
// needs a loss scale.
#include <algorithm>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/policy/frameworks.h"
#include "core/policy/policy.h"
#include "core/policy/torch.h"

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
    if (def.autocast == Autocast::fp32) {
      plan.rules.push_back({.path = "", .op = def.name, .read = kFp32, .write = kFp32});
    } else if (def.autocast == Autocast::low && def.stored_inputs_from != OpDef::kAllInputs) {
      plan.rules.push_back({.path = "", .op = def.name, .rounds_weights = true});
    }
  }
  return plan;
}

/// Returns the plan with the reasons of another preset's rules for the same operators.
Plan with_reasons(Plan plan, std::string_view preset) {
  for (const Preset& row : torch_presets()) {
    if (row.info.name != preset) continue;
    const Plan other = row.make();
    plan.why = "Its operator is on autocast's list of operators that cast their inputs to " +
               std::string(plan.defaults.read == kFp16 ? "float16" : "bfloat16") + " (CUDA).";
    plan.change = "torch.autocast(\"cuda\", enabled=False) around it, with inputs in float32.";
    for (PlanRule& rule : plan.rules) {
      for (const PlanRule& each : other.rules) {
        if (!each.path.empty() || each.op != rule.op) continue;
        rule.why = each.why;
        rule.change = each.change;
      }
    }
  }
  return plan;
}

/// Returns the plan of model.half() or model.bfloat16(): one format for every operator, weight and
/// state.
Plan pure(std::string name, const FloatFormat& format, bool stagewise) {
  Plan plan;
  plan.name = std::move(name);
  plan.defaults.read = plan.defaults.write = plan.storage = format;
  plan.defaults.stagewise = stagewise;
  return plan;
}

/// Returns bf16 for everything except the products, whose operands are scaled to fewer bits.
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

/// Returns the recipes of NVIDIA's Transformer Engine (common/recipe/__init__.py): DelayedScaling
/// and Float8CurrentScaling (both HYBRID), Float8BlockScaling (DeepSeek-V3's, arXiv:2412.19437,
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

/// Returns the rows of all frameworks. A new framework gets a line here.
std::vector<Preset> all_presets() {
  std::vector<Preset> rows;
  for (std::vector<Preset> (*each)() :
       {our_presets, torch_presets, apex_presets, keras_presets, tensorflow_presets}) {
    for (Preset& row : each()) rows.push_back(std::move(row));
  }
  return rows;
}

Plan named(Plan plan, const Preset& row) {
  plan.name = row.info.name;
  return plan;
}

const std::vector<Preset>& preset_table() {
  static const std::vector<Preset> table = all_presets();
  return table;
}

}  // namespace

bool extends(const Plan& plan, const Plan& preset) {
  const auto same = [](const PlanRule& a, const PlanRule& b) {
    return a.path == b.path && a.op == b.op && a.follow == b.follow && a.read == b.read &&
           a.write == b.write && a.rounds_weights == b.rounds_weights;
  };
  return plan.double_precision == preset.double_precision &&
         plan.defaults.read == preset.defaults.read &&
         plan.defaults.write == preset.defaults.write && plan.rules.size() >= preset.rules.size() &&
         std::equal(preset.rules.begin(), preset.rules.end(), plan.rules.begin(), same);
}

/// Lets the preset decide by PyTorch's functions where a network's file names them: the bias of a
/// linear layer is added in its product's format, though other sums follow their inputs.
Preset with_functions(Preset preset, const FloatFormat& low) {
  preset.make_for = [make = preset.make, low](const Model& network) {
    Plan plan = make();
    for (PlanRule& rule : torch_node_rules({.cuda = true, .low = low}, network)) {
      plan.rules.push_back(std::move(rule));
    }
    return plan;
  };
  preset.reads_file = true;
  return preset;
}

std::vector<Preset> our_presets() {
  const auto plan = [](const char* name, const char* group, const char* summary,
                       std::function<Plan()> make) {
    return Preset{.info = {name, group, summary}, .make = std::move(make)};
  };
  const auto fp8 = [&](const char* name, const char* summary) {
    return with_functions(
        plan(name, "fp8 and fp4 recipes", summary, [name] { return recipe_plan(name).value(); }),
        kBf16);
  };
  return {
      plan("float32", "References", "everything in fp32", [] { return Plan{}; }),
      plan("float64", "References", "everything in double, without rounding",
           [] {
             Plan reference;
             reference.double_precision = true;
             return reference;
           }),
      with_functions(plan("mixed_float16", "Mixed precision", "PyTorch's autocast to fp16 on CUDA",
                          [] { return with_reasons(mixed("", kFp16), "torch-autocast-fp16"); }),
                     kFp16),
      with_functions(plan("mixed_bfloat16", "Mixed precision", "PyTorch's autocast to bf16 on CUDA",
                          [] { return with_reasons(mixed("", kBf16), "torch-autocast-bf16"); }),
                     kBf16),
      plan("float16", "One format everywhere", "model.half(): weights and all values in fp16",
           [] { return pure("", kFp16, false); }),
      plan("bfloat16", "One format everywhere", "model.bfloat16(): weights and all values in bf16",
           [] { return pure("", kBf16, false); }),
      plan("float16_stagewise", "One format everywhere",
           "as float16, and every primitive operation rounds",
           [] { return pure("", kFp16, true); }),
      plan("bfloat16_stagewise", "One format everywhere",
           "as bfloat16, and every primitive operation rounds",
           [] { return pure("", kBf16, true); }),
      fp8("fp8_delayed", "Transformer Engine's DelayedScaling"),
      fp8("fp8_current", "Transformer Engine's Float8CurrentScaling"),
      fp8("fp8_block", "Transformer Engine's Float8BlockScaling (DeepSeek-V3)"),
      fp8("mxfp8", "Transformer Engine's MXFP8BlockScaling"),
      fp8("nvfp4", "Transformer Engine's NVFP4BlockScaling"),
  };
}

const std::vector<PresetInfo>& presets() {
  static const std::vector<PresetInfo> infos = [] {
    std::vector<PresetInfo> all;
    for (const Preset& row : preset_table()) all.push_back(row.info);
    // Groups stay together, in the order of their first preset.
    std::vector<std::string> groups;
    for (const PresetInfo& info : all) {
      if (std::find(groups.begin(), groups.end(), info.group) == groups.end())
        groups.push_back(info.group);
    }
    const auto place = [&](const PresetInfo& info) {
      return std::find(groups.begin(), groups.end(), info.group) - groups.begin();
    };
    std::stable_sort(all.begin(), all.end(),
                     [&](const PresetInfo& a, const PresetInfo& b) { return place(a) < place(b); });
    return all;
  }();
  return infos;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PresetInfo& info : presets()) {
    if (!info.needs_network) names.push_back(info.name);
  }
  return names;
}

std::optional<Plan> preset_plan(std::string_view name) {
  for (const Preset& row : preset_table()) {
    if (row.info.name == name && !row.info.needs_network) return named(row.make(), row);
  }
  return std::nullopt;
}

bool needs_network(std::string_view name) {
  return std::any_of(presets().begin(), presets().end(), [&](const PresetInfo& info) {
    return info.needs_network && info.name == name;
  });
}

std::string usual_scaler(std::string_view name) {
  for (const PresetInfo& info : presets()) {
    if (info.name == name) return info.scaler;
  }
  return "dynamic";
}

bool depends_on_file(std::string_view name) {
  return std::any_of(preset_table().begin(), preset_table().end(),
                     [&](const Preset& row) { return row.reads_file && row.info.name == name; });
}

bool depends_on_network(std::string_view name) {
  return std::any_of(preset_table().begin(), preset_table().end(), [&](const Preset& row) {
    return row.make_for != nullptr && row.info.name == name;
  });
}

std::optional<Plan> preset_plan(std::string_view name, const Model& network) {
  for (const Preset& row : preset_table()) {
    if (row.info.name == name && row.make_for) return named(row.make_for(network), row);
  }
  return preset_plan(name);
}

std::vector<std::string> split_lanes(std::string_view list) {
  std::vector<std::string> items(1);
  int depth = 0;
  bool in_text = false, escaped = false;  // braces in JSON strings do not count
  for (const char c : list) {
    if (c == ',' && depth == 0) {
      items.emplace_back();
      continue;
    }
    items.back() += c;
    const bool is_quote = c == '"' && depth > 0 && !escaped;
    escaped = in_text && c == '\\' && !escaped;
    if (is_quote) in_text = !in_text;
    if (!in_text) depth += (c == '{' ? 1 : 0) - (c == '}' && depth > 0 ? 1 : 0);
  }
  return items;
}

namespace {

/// Returns a path that the glob matches: its text without the escapes, because wildcards match
/// themselves.
std::string matched_path(std::string_view glob) {
  std::string path;
  for (size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] == '\\' && i + 1 < glob.size()) ++i;
    path += glob[i];
  }
  return path;
}

}  // namespace

bool needs_loss_scaling(const Plan& plan) {
  if (plan.double_precision) return false;
  const auto narrow = [](const FloatFormat& format) { return format.exponent_bits < 8; };
  // Returns whether such a node has an unscaled format with few exponent bits. A node that follows
  // its inputs adds no format.
  const auto unscaled = [&](const std::string& path, const OpDef& def) {
    const NodePlan node = resolve(plan, path, def.name);
    if (node.follows) return false;
    const bool scaled = def.sums_products() && node.scale.any();
    return narrow(node.write) ||
           (!scaled && (narrow(node.read) || narrow(node.grad_read.value_or(node.read))));
  };
  const auto any_op = [&](const std::string& path, const std::string& op) {
    // A rule that scales and names no operator applies to the products.
    const bool products = op.empty() && !path.empty() && resolve(plan, path, "Gemm").scale.any();
    return std::any_of(op_table().begin(), op_table().end(), [&](const OpDef& def) {
      const bool meant = op.empty() ? !products || def.sums_products() : op == def.name;
      return meant && def.autocast != Autocast::internal && unscaled(path, def);
    });
  };
  return narrow(plan.storage) || any_op("", "") ||
         std::any_of(plan.rules.begin(), plan.rules.end(), [&](const PlanRule& rule) {
           return !rule.path.empty() && any_op(matched_path(rule.path), rule.op);
         });
}

}  // namespace halfscope
