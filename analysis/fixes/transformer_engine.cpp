// SPDX-License-Identifier: MIT
// Advice for NVIDIA's Transformer Engine: layers that stay out of fp8 (or fp4), by its debug
// features or by its autocast.
//   source: TransformerEngine, docs/debug and transformer_engine/debug/features; nvdlfw-inspect
//   0.2.2, config_manager.py (patterns are searched) and api.py (names begin with "model.")
#include <fmt/format.h>

#include "analysis/fixes/places.h"
#include "analysis/fixes/targets.h"

namespace halfscope::fixes {
namespace {

/// Writes the configuration from KEEP_OUT_OF_FP8. In YAML a single-quoted scalar has one escape: a
/// quote is doubled.
constexpr const char* kDebug = R"(
# 1. With the debug features (pip install nvdlfw-inspect), before the first step:
pattern = "^model[.](" + "|".join(map(re.escape, KEEP_OUT_OF_FP8)) + ")([.]|$)" CONFIG =
    f
    ""
    "
    keep_out_of_fp8 : enabled : True layers : layer_name_regex_pattern
    : '{pattern.replace("' ", "''")}'
      transformer_engine : DisableFP8Layer : enabled
    : True
      ""
      "

      def
      use_debug_features(model, path = "keep_out_of_fp8.yaml")
    : import nvdlfw_inspect
          .api as debug_api import transformer_engine with
          open(path, "w") as file : file.write(CONFIG) features =
        os.path.join(os.path.dirname(transformer_engine.__file__), "debug", "features")
            debug_api.initialize(config_file = path, feature_dirs = [features]) debug_api
                .infer_and_assign_layer_names(model)
#Call debug_api.step() after every optimizer step.

# 2. Without them, around the forward of each module; the backward pass follows:
                    def
                    keep_out_of_fp8(module)
    : import transformer_engine.pytorch as te autocast =
            getattr(te, "autocast", None) or te.fp8_autocast forward =
                module
                    .forward

                @functools
                    .wraps(forward) def in_high_precision(*args, **kwargs)
    : with autocast(enabled = False)
    : return forward(*args, **kwargs)

          module.forward = in_high_precision

    for name in KEEP_OUT_OF_FP8 : keep_out_of_fp8(model.get_submodule(name))) ";

}  // namespace

std::string transformer_engine_text(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  const std::vector<std::string> modules = modules_of(kept);
  std::string text;
  if (!modules.empty()) {
    text += "import functools\nimport os\nimport re\n\n" +
            python_list("KEEP_OUT_OF_FP8", modules, "as in model.named_modules()") + kDebug +
            comment(
                "Use one of the two; as it is, the second one runs. These modules then compute in "
                "the dtype of their weights, or of torch.autocast, which may be bf16. Use --fix-as "
                "pytorch to keep them in fp32.") +
            comment(
                "Newer versions also call the feature DisableQuantizationLayer. "
                "DisableFP8GEMM with gemms: [fprop, dgrad, wgrad] leaves out single products.");
  }
  for (const ModulePlace& place : kept) {
    if (place.is_module()) continue;
    text += comment(
        fmt::format("{}: Transformer Engine never quantizes {}.", place.path, where_text(place)));
  }
  text += not_expressed("Transformer Engine", edit,
                        {FixKind::nothing, FixKind::operator_fp32, FixKind::store_fp32});
  return text.empty() ? "# Nothing to change.\n" : text;
}

}  // namespace halfscope::fixes
