// SPDX-License-Identifier: MIT
// Advice as code for PyTorch 2: modules whose forward runs with autocast off, on float32.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/finding.h"
#include "analysis/fixes/places.h"
#include "analysis/fixes/targets.h"
#include "core/policy/policy.h"

namespace halfscope::fixes {
namespace {

using Kinds = std::vector<FixKind>;

/// Casts the floating-point tensors among arguments and results.
constexpr const char* kCast = R"(def cast(x, dtype):
    if torch.is_tensor(x):
        return x.to(dtype) if x.is_floating_point() else x
    if isinstance(x, dict):
        return {key: cast(value, dtype) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        values = [cast(value, dtype) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else type(x)(values)
    return x

)";

constexpr const char* kKeep = R"(def keep_in_fp32(module):
    forward = module.forward

    @functools.wraps(forward)
    def in_fp32(*args, **kwargs):
        tensors = [x for x in (*args, *kwargs.values()) if torch.is_tensor(x)]
        device = tensors[0].device.type if tensors else "cuda"
        with torch.autocast(device, enabled=False):
            return forward(*cast(args, torch.float32), **cast(kwargs, torch.float32))

    module.forward = in_fp32

for name in KEEP_FP32:
    keep_in_fp32(model.get_submodule(name))
)";

/// Returns code for a model that is in one dtype as a whole: its modules round what they read.
std::string half_model(const std::string& dtype) {
  return "    model.get_submodule(name).float()  # its weights, too\n\n"
         "# The model is in " +
         dtype +
         ": its other modules round what they read to it.\n"
         "def read_narrow(module, args, kwargs):\n"
         "    return cast(args, " +
         dtype + "), cast(kwargs, " + dtype +
         ")\n\n"
         "for name, module in model.named_modules():\n"
         "    kept = any(f\"{name}.\".startswith(f\"{each}.\") for each in KEEP_FP32)\n"
         "    if not kept and not list(module.children()):\n"
         "        module.register_forward_pre_hook(read_narrow, with_kwargs=True)\n";
}

std::string dtype_of(const FloatFormat& format) {
  if (format == *parse_format("fp16")) return "torch.float16";
  if (format == *parse_format("bf16")) return "torch.bfloat16";
  return "";
}

/// `narrow`: the dtype of a model that is in it as a whole, so that no autocast casts results back;
/// else "".
std::string function_comments(const std::vector<ModulePlace>& places, const std::string& narrow) {
  std::string text;
  for (const ModulePlace& place : places) {
    if (place.is_module()) continue;
    text += comment(fmt::format("{}: compute {} in fp32:", place.path, where_text(place)));
    if (!place.part.empty()) {
      text += comment(
          fmt::format("(HalfScope means its part {}; in PyTorch it is one call.)", place.part));
    }
    text += narrow.empty() ? "#     with torch.autocast(\"cuda\", enabled=False):\n#         y = " +
                                 expression_in_fp32(place) + "\n"
                           : "#     y = (" + expression_in_fp32(place) + ").to(" + narrow + ")\n";
    if (place.may_be_module) {
      text += comment(
          fmt::format("If {} is a module of your model, add it to KEEP_FP32 instead.", place.path));
    }
  }
  return text;
}

std::string part_comments(const std::vector<ModulePlace>& places) {
  std::string text;
  for (const ModulePlace& place : places) {
    if (!place.is_module() || place.module == place.path) continue;
    const bool scopes = place.part.empty() && place.path.find(':') == std::string::npos;
    if (scopes) continue;
    text +=
        comment(fmt::format("{}: HalfScope means this node alone; in PyTorch the module {} "
                            "computes in fp32 as a whole.",
                            place.path, place.module));
  }
  return text;
}

std::string store_comments(const PlanEdit& edit, const LaneInfo& lane) {
  const std::vector<ModulePlace> stored = places_of(edit, lane, {FixKind::store_fp32});
  if (stored.empty()) return "";
  std::string names;
  for (const ModulePlace& place : stored) names += (names.empty() ? "" : ", ") + place.path;
  return comment(
      "Only the outputs of " + names +
      " need fp32. PyTorch's operators write the dtype that they read, so they also read "
      "fp32 here. This is at least as precise, but slower.");
}

bool is_product(const std::string& op) {
  return op == "Gemm" || op == "MatMul" || op == "Conv" || op == "ConvGradInput";
}

std::string sum_comments(const PlanEdit& edit, const LaneInfo& lane) {
  std::string text;
  bool products = false;
  for (const ModulePlace& place : places_of(edit, lane, {FixKind::accumulate_fp32})) {
    if (is_product(place.op)) {
      products = true;
      continue;
    }
    text +=
        comment(fmt::format("{} ({}): sum in fp32 with x.sum(dim, dtype=torch.float32), "
                            "or use x.float() before it and .to(x.dtype) after it.",
                            place.path, place.op.empty() ? "a sum" : place.op));
  }
  if (!products) return text;
  return text +
         "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False\n"
         "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False\n" +
         comment(
             "This makes all matrix products accumulate in fp32. PyTorch has no such setting for "
             "single layers.");
}

std::string range_comments(const PlanEdit& edit, const LaneInfo& lane) {
  std::string text;
  for (const ModulePlace& place : places_of(edit, lane, {FixKind::clamp})) {
    text +=
        comment(fmt::format("{}: clamp its output: x = x.clamp(min=torch.finfo(x.dtype).min, "
                            "max=torch.finfo(x.dtype).max).",
                            place.path));
  }
  for (const Change& change : edit.changes) {
    if (change.kind != FixKind::prescale) continue;
    text +=
        comment(fmt::format("{}: scale its operands so that its output is multiplied by {:g}. "
                            "Where the output is used, multiply it by {:g} after .float(), or "
                            "fold that into another factor.",
                            change.path, change.value, 1.0 / change.value));
  }
  for (const Change& change : edit.changes) {
    if (change.kind != FixKind::keep_integer) continue;
    text +=
        comment(fmt::format("{}: compute this in torch.int64, with its operands, or keep all of "
                            "it in float32, outside autocast.",
                            change.path));
  }
  return text;
}

std::string constant_comments(const PlanEdit& edit, const LaneInfo& lane) {
  std::string text;
  for (const Change& change : edit.changes) {
    if (change.kind != FixKind::constant) continue;
    const ModulePlace place = place_of(change.path, lane);
    const std::string where = place.is_module() ? "the module " + place.module : where_text(place);
    if (change.value != 0.0) {
      text += comment(
          fmt::format("{}: in {}, use the constant {:.9g}.", change.path, where, change.value));
      continue;
    }
    const auto layer =
        std::find_if(lane.layers.begin(), lane.layers.end(),
                     [&](const LayerInfo& each) { return each.path == change.path; });
    text +=
        comment(fmt::format("{}: in {}, replace constants that the dtype cannot represent. Use "
                            "torch.finfo(x.dtype).min instead of a mask value such as -1e9, and "
                            "torch.finfo(x.dtype).tiny instead of a smaller epsilon.",
                            change.path, where));
    if (layer == lane.layers.end() || layer->read == kFp32) continue;
    text += comment(fmt::format("In {}, these are {:.9g} and {:.9g}.", format_name(layer->read),
                                -layer->read.max_finite(), layer->read.min_normal()));
  }
  return text;
}

/// Returns code for changes of the whole lane.
std::string lane_changes(const PlanEdit& edit, const FloatFormat& storage) {
  std::string text;
  const auto say = [&](FixKind kind, const std::string& lines) {
    if (edit.has(kind)) text += lines;
  };
  if (storage != kFp32) {
    say(FixKind::weights_fp32,
        "model.float()  # fp32 master weights; call it before you create the optimizer, and use "
        "autocast\n");
  }
  say(FixKind::state_fp32,
      comment("The optimizer's state has the dtype of the parameters. Keep the parameters in "
              "float32 (model.float()), and use autocast for the forward pass."));
  say(FixKind::update_fp32,
      comment("torch.optim computes the update in the dtype of the parameters. Keep them in "
              "float32 (model.float())."));
  say(FixKind::average_fp32,
      "averaged = torch.optim.swa_utils.AveragedModel(model)\naveraged.module.float()\n" +
          comment("Average float32 copies of the parameters, too."));
  say(FixKind::gradient_sum_fp32,
      comment("param.grad has the dtype of the parameter. Keep the parameters in float32 "
              "(model.float()), so that micro-batches are summed in float32."));
  say(FixKind::clip_fp32,
      comment("clip_grad_norm_ computes in the dtype of the gradients. Keep the parameters in "
              "float32 (model.float()), and call scaler.unscale_(optimizer) before it."));
  say(FixKind::schedule_fp32,
      comment("Compute the learning rate in Python floats, as torch.optim.lr_scheduler does, or "
              "in float32 where it is a tensor."));
  say(FixKind::buffers_on_step,
      comment("The forward pass updates running statistics. Copy model.buffers() before it, and "
              "restore them if scaler.step() skipped the step: scaler.get_scale() is lower after "
              "scaler.update()."));
  say(FixKind::stochastic_rounding,
      comment("PyTorch's optimizers round to nearest. For weights in bfloat16 torchao has "
              "stochastic rounding: torchao.optim.AdamW8bit(model.parameters(), "
              "bf16_stochastic_round=True)."));
  for (const Change& change : edit.changes) {
    if (change.kind != FixKind::format) continue;
    const std::optional<FloatFormat> format = parse_format(change.text);
    const std::string dtype = format ? dtype_of(*format) : "";
    text += dtype.empty() ? comment("autocast cannot compute in " + change.text + ".")
                          : fmt::format(
                                "autocast = torch.autocast(\"cuda\", dtype={})  # replaces "
                                "yours\n",
                                dtype);
  }
  if (const std::optional<double> scale = edit.loss_scale()) {
    text += fmt::format(
        "scaler = torch.amp.GradScaler(\"cuda\", init_scale={:.17g})  # dynamic from there on\n",
        *scale);
  }
  return text;
}

}  // namespace

std::string not_expressed(const std::string& framework, const PlanEdit& edit,
                          const std::vector<FixKind>& done) {
  std::string text;
  for (const Change& change : edit.changes) {
    if (std::find(done.begin(), done.end(), change.kind) != done.end()) continue;
    text += comment(framework + " has no setting for this change: " +
                    edit_sentence(PlanEdit{.changes = {change}}));
  }
  return text;
}

std::string pytorch_text(const LaneInfo& lane, const FloatFormat& storage, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  const std::vector<std::string> modules = modules_of(kept);
  const std::string narrow =
      edit.has(FixKind::weights_fp32) ? "" : dtype_of(storage);  // model.half()
  std::string body = lane_changes(edit, storage);
  if (!modules.empty()) {
    body += (body.empty() ? "" : "\n") +
            python_list("KEEP_FP32", modules, "as in model.named_modules()") + "\n" + kCast + kKeep;
    if (!narrow.empty()) body += half_model(narrow);
  }
  std::string notes = comment(cast_note(lane, edit)) + part_comments(kept) +
                      store_comments(edit, lane) + function_comments(kept, narrow) +
                      sum_comments(edit, lane) + range_comments(edit, lane) +
                      constant_comments(edit, lane);
  notes += not_expressed(
      "PyTorch", edit,
      {FixKind::nothing, FixKind::operator_fp32, FixKind::store_fp32, FixKind::accumulate_fp32,
       FixKind::constant, FixKind::weights_fp32, FixKind::state_fp32, FixKind::update_fp32,
       FixKind::average_fp32, FixKind::gradient_sum_fp32, FixKind::clip_fp32,
       FixKind::buffers_on_step, FixKind::stochastic_rounding, FixKind::format, FixKind::loss_scale,
       FixKind::schedule_fp32, FixKind::clamp, FixKind::prescale, FixKind::keep_integer});
  if (body.empty() && notes.empty()) return "# Nothing to change.\n";
  const std::string imports =
      modules.empty() ? "import torch\n\n" : "import functools\n\nimport torch\n\n";
  return imports + body + (body.empty() || notes.empty() ? "" : "\n") + notes;
}

}  // namespace halfscope::fixes
