// SPDX-License-Identifier: MIT
// Presets of apex.amp (O0 to O3), of models in one dtype, and TF32.
//   source: NVIDIA/apex before May 2025 (apex/amp/frontend.py, _initialize.py, lists/*.py;
//   apex/fp16_utils/fp16util.py: convert_network, convert_module, BN_convert_float)
// A level that casts the model keeps every parameter as fp16, except those of batch normalizations
// with affine parameters if keep_batchnorm_fp32 is on. Inputs are cast to fp16 and outputs to fp32,
// so a loss outside the model computes in fp32.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/plan/own_path.h"
#include "core/policy/frameworks.h"
#include "core/policy/torch.h"

namespace halfscope {
namespace {

constexpr const char* kNorm = "BatchNormalization";

/// Operators that O1 patches, by its lists (apex/amp/lists). Others run in the dtype of
/// their inputs.
constexpr const char* kO1Fp16[] = {"Conv", "ConvGradInput", "Gemm", "MatMul", "PRelu"};
constexpr const char* kO1Fp32[] = {
    "CumSum",    "Exp",        "Gelu",     "GroupNormalization",     "LayerNormalization",
    "Log",       "LogSoftmax", "Pow",      "MeanSquaredError",       "Reciprocal",
    "ReduceSum", "Softmax",    "Softplus", "SoftmaxCrossEntropyLoss"};
constexpr const char* kO1Widest[] = {
    "Add",  "Concat",      "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Mul", "Sub"};

template <size_t N>
bool is_one_of(const char* const (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Plan o1_plan() {
  Plan plan;
  plan.defaults.read = plan.defaults.write = kFp16;
  plan.buffers = BufferCommit::always;
  for (const OpDef& def : op_table()) {
    const TorchFunction* function = torch_function(def.name);
    if (function == nullptr || def.autocast == Autocast::internal) continue;
    PlanRule rule{.path = "", .op = def.name};
    const std::string name = function->name;
    if (is_one_of(kO1Fp16, def.name)) {
      rule.read = rule.write = kFp16;
      rule.why = name + " is on O1's fp16 list, so it casts its inputs to fp16.";
      rule.change =
          "amp.register_float_function(MODULE, \"" + name + "\") before amp.initialize().";
    } else if (is_one_of(kO1Fp32, def.name)) {
      rule.read = rule.write = kFp32;
      rule.why = name + " is on O1's fp32 list, so it casts its inputs to fp32.";
      rule.change = "amp.register_half_function(MODULE, \"" + name + "\") before amp.initialize().";
    } else {
      rule.follow = true;
      rule.why = is_one_of(kO1Widest, def.name)
                     ? name + " is on O1's list of casts to the widest type of its inputs."
                     : name + " is on none of O1's lists, so it runs in the type of its inputs.";
      rule.change =
          "amp.register_float_function(MODULE, \"" + name + "\") before amp.initialize().";
    }
    plan.rules.push_back(std::move(rule));
  }
  return plan;
}

/// Returns the plan of a model whose operators all compute in `format`.
Plan cast_model(const FloatFormat& format, const char* call) {
  Plan plan;
  plan.defaults.read = plan.defaults.write = format;
  plan.storage = format;
  plan.buffers = BufferCommit::always;
  plan.why =
      std::string(call) + " casts the parameters and buffers, and the inputs are cast to match.";
  plan.change = "Call .float() on the module and cast its inputs.";
  return plan;
}

/// Keeps parameters and statistics of batch normalizations in fp32. cuDNN's kernel reads and writes
/// fp16 activations with fp32 parameters.
void keep_batch_norm(Plan& plan, const char* why, const char* change) {
  PlanRule rule{.path = "", .op = kNorm, .read = kFp32, .write = kFp16};
  rule.rounds_weights = false;
  rule.why = why;
  rule.change = change;
  plan.rules.push_back(std::move(rule));
}

/// Returns whether a batch normalization has affine=False: exporters write its scale and shift as
/// constant ones and zeros. A layer whose own parameters are frozen at their first values looks the
/// same.
bool is_plain_norm(const Node& node, const std::map<ValueId, const Tensor*>& constants) {
  const auto all = [&](size_t input, float value) {
    const auto found =
        input < node.inputs.size() ? constants.find(node.inputs[input]) : constants.end();
    return found != constants.end() &&
           std::all_of(found->second->data.begin(), found->second->data.end(),
                       [&](float each) { return each == value; });
  };
  constexpr size_t kScale = 1, kShift = 2;
  return node.op == kNorm && all(kScale, 1.0f) && all(kShift, 0.0f);
}

/// Returns the plan for one network: apex keeps batch normalizations in fp32 only if they have
/// affine parameters (BN_convert_float and convert_network test module.affine).
Plan with_plain_norms(Plan plan, const Model& network) {
  std::map<ValueId, const Tensor*> constants;
  for (const Constant& each : network.graph.constants()) constants[each.value] = &each.tensor;
  for (const Node& node : network.graph.nodes()) {
    if (!is_plain_norm(node, constants)) continue;
    PlanRule rule{.path = own_path_glob(node.path), .op = kNorm, .read = kFp16, .write = kFp16};
    rule.rounds_weights = true;
    rule.why =
        "It has no affine parameters (affine=False), and apex keeps only batch normalizations that "
        "have some in fp32. Its statistics are buffers, which are cast to fp16.";
    rule.change = "Give it affine parameters (affine=True).";
    plan.rules.push_back(std::move(rule));
  }
  return plan;
}

/// fp16 weights as copies of fp32 master weights, which begin with the fp16 values.
Plan o2_plan() {
  Plan plan = cast_model(kFp16, "O2 (cast_model_type=torch.float16)");
  plan.storage = kFp32;
  plan.initial = kFp16;
  plan.why =
      "O2 (cast_model_type=torch.float16) computes in fp16, with fp16 copies of fp32 master "
      "weights.";
  for (const OpDef& def : op_table()) {
    if (def.stored_inputs_from == OpDef::kAllInputs || def.autocast == Autocast::internal) continue;
    PlanRule rule{.path = "", .op = def.name, .read = kFp16, .write = kFp16};
    rule.rounds_weights = true;
    rule.why = plan.why;
    rule.change = "Call .float() on the module and cast its inputs.";
    if (def.name != std::string_view(kNorm)) plan.rules.push_back(std::move(rule));
  }
  keep_batch_norm(plan,
                  "O2 keeps parameters and statistics of batch normalizations in fp32 "
                  "(keep_batchnorm_fp32=True). Their kernel reads fp16 activations as they are, "
                  "computes in fp32 and writes fp16.",
                  "amp.initialize(..., keep_batchnorm_fp32=False).");
  return plan;
}

Plan o3_plan(bool keep_norms) {
  Plan plan = cast_model(kFp16, "O3 (cast_model_type=torch.float16)");
  if (keep_norms)
    keep_batch_norm(plan,
                    "keep_batchnorm_fp32=True keeps parameters and statistics of batch "
                    "normalizations in fp32. Their kernel reads fp16 activations as they are, "
                    "computes in fp32 and writes fp16.",
                    "amp.initialize(..., keep_batchnorm_fp32=False).");
  return plan;
}

/// apex.fp16_utils.network_to_half: model.half(), then batch normalizations back to fp32, whose
/// values were rounded on the way.
Plan network_to_half() {
  Plan plan = cast_model(kFp16, "network_to_half()");
  plan.initial = kFp16;
  keep_batch_norm(
      plan,
      "network_to_half() casts batch normalizations back to fp32 after model.half(), so "
      "their values were rounded to fp16 once. Their kernel reads fp16 activations as they are, "
      "computes in fp32 and writes fp16.",
      "Give it no affine parameters (affine=False).");
  return plan;
}

/// Products read TF32. The instruction that converts operands, cvt.rna.tf32.f32, rounds ties away
/// from zero (PTX ISA, "cvt").
Plan tf32_plan() {
  Plan plan;
  plan.why = "TF32 is only for products; everything else is fp32.";
  plan.change = "Nothing: TF32 exists only inside tensor cores.";
  for (const OpDef& def : op_table()) {
    if (!def.sums_products() || def.autocast == Autocast::internal) continue;
    PlanRule rule{.path = "", .op = def.name, .read = kTf32, .write = kFp32};
    rule.rounding = RoundingChoice{.mode = RoundingMode::nearest_away};
    const bool conv = def.product != ProductKind::matrix;
    const std::string flag =
        conv ? "torch.backends.cudnn.allow_tf32" : "torch.backends.cuda.matmul.allow_tf32";
    rule.why = flag + " is True, so the tensor cores read 10 bits of each operand's significand.";
    rule.change = flag + " = False.";
    plan.rules.push_back(std::move(rule));
  }
  return plan;
}

}  // namespace

void check_apex_options(std::string_view name) {
  struct Refusal {
    std::string_view name;
    const char *what, *hint;
  };
  constexpr const char* kNorms =
      "apex refuses keep_batchnorm_fp32 with O1, whose batch normalizations keep fp32 parameters";
  static constexpr Refusal kRefusals[] = {
      {"apex-O1-bn-fp32", kNorms, "use apex-O1, or apex-O2, which has it on"},
      {"apex-O1-bn-fp16", kNorms, "use apex-O1, or apex-O3, which has it off"},
      {"apex-O1-master-weights", "apex refuses master_weights with O1, whose weights are fp32",
       "use apex-O1, or apex-O2, which has master weights"}};
  for (const Refusal& each : kRefusals) {
    if (name == each.name) throw usage_error(each.what, each.hint);
  }
}

std::vector<Preset> apex_presets() {
  const auto row = [](const char* name, const char* group, const char* summary,
                      std::function<Plan()> make) {
    return Preset{.info = {name, group, summary}, .make = std::move(make)};
  };
  const auto keeps_norms = [&](const char* name, const char* summary, Plan (*make)()) {
    Preset preset = row(name, "apex", summary, make);
    preset.make_for = [make](const Model& network) { return with_plain_norms(make(), network); };
    return preset;
  };
  const auto fp32 = [] {
    Plan plan;
    plan.why = "O0 leaves the model in fp32.";
    plan.change = "amp.initialize(..., opt_level=\"O1\").";
    return plan;
  };
  return {
      row("apex-O0", "apex", "fp32 everywhere", fp32),
      row("apex-O1", "apex", "functions patched by lists; weights in fp32", o1_plan),
      keeps_norms("apex-O2", "model in fp16 with fp32 master weights; batch norm in fp32", o2_plan),
      row("apex-O3", "apex", "model in fp16, without master weights",
          [] { return o3_plan(false); }),
      keeps_norms("apex-O3-bn-fp32", "as apex-O3, with keep_batchnorm_fp32=True",
                  [] { return o3_plan(true); }),
      keeps_norms("network-to-half", "apex.fp16_utils.network_to_half()", network_to_half),
      row("torch-half", "PyTorch", "model.half()",
          [] { return cast_model(kFp16, "model.half()"); }),
      row("torch-bfloat16", "PyTorch", "model.bfloat16()",
          [] { return cast_model(kBf16, "model.bfloat16()"); }),
      row("tf32", "PyTorch", "products read TF32; everything else in fp32", tf32_plan),
  };
}

}  // namespace halfscope
