// SPDX-License-Identifier: MIT
// Advice for Keras 3: layers with their own dtype policy.
#include <fmt/format.h>

#include "analysis/fixes/places.h"
#include "analysis/fixes/targets.h"

namespace halfscope::fixes {
namespace {

/// In the path of an exported node ("model/conv2d_1/BiasAdd"), the layer is one of the scopes.
constexpr const char* kLoop = R"(def leaves(layer):
    inner = getattr(layer, "layers", [])
    return [leaf for each in inner for leaf in leaves(each)] if inner else [layer]

for path in KEEP_FP32:
    names = path.replace(".", "/").split("/")
    found = [layer for layer in leaves(model) if layer.name in names]
    if not found:
        raise ValueError(f"the model has no layer for {path}")
    for layer in found:  # several if nested models reuse a layer name
        layer.dtype_policy = keras.DTypePolicy("float32")
)";

}  // namespace

std::string keras_text(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  std::vector<std::string> paths = modules_of(kept);
  std::string text;
  if (!paths.empty()) {
    text +=
        "import keras\n\n" +
        python_list("KEEP_FP32", paths, "names of layers, or paths that contain one") + "\n" +
        kLoop +
        comment(
            "Run this before the first call of the model, or compile() it again. For layers that "
            "you create yourself, dtype=\"float32\" does the same: keras.layers.Dense(10, "
            "dtype=\"float32\").");
  }
  if (!places_of(edit, lane, {FixKind::store_fp32}).empty()) {
    text += comment(
        "A layer has one dtype for its inputs and outputs, so layers that only need fp32 "
        "outputs also compute in fp32.");
  }
  for (const ModulePlace& place : kept) {
    if (place.is_module()) continue;
    text += comment(
        fmt::format("{}: in {}, cast with keras.ops.cast(x, \"float32\") before {}.", place.path,
                    place.module.empty() ? "the model's call" : place.module, place.call));
  }
  if (edit.has(FixKind::weights_fp32)) {
    text += comment(
        "Master weights: before you create the model, call "
        "keras.config.set_dtype_policy(\"mixed_float16\") or \"mixed_bfloat16\" instead of "
        "\"float16\".");
  }
  if (const std::optional<double> scale = edit.loss_scale()) {
    text += fmt::format(
        "optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale={:.17g})\n",
        *scale);
  }
  for (const Change& change : edit.changes) {
    if (change.kind == FixKind::format && change.text == "bf16")
      text += comment(
          "Call keras.config.set_dtype_policy(\"mixed_bfloat16\") before you create the model.");
    if (change.kind == FixKind::constant)
      text +=
          comment(change.path +
                  ": replace constants that the layer's compute_dtype cannot represent, such as "
                  "-1e9 in float16 (whose lowest number is -65504).");
  }
  const bool to_bf16 = edit.has(FixKind::format) && text.find("mixed_bfloat16") != text.npos;
  std::vector<FixKind> done{FixKind::nothing,      FixKind::operator_fp32, FixKind::store_fp32,
                            FixKind::weights_fp32, FixKind::loss_scale,    FixKind::constant};
  if (to_bf16) done.push_back(FixKind::format);
  text += not_expressed("Keras", edit, done);
  return text.empty() ? "# Nothing to change.\n" : text;
}

}  // namespace halfscope::fixes
