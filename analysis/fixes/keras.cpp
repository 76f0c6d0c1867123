// SPDX-License-Identifier: MIT
// Advice for Keras 3 and tf.keras: layers with their own dtype policy. The text works for
// functional and subclassed models, before and after their first call.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/fixes/places.h"
#include "analysis/fixes/targets.h"

namespace halfscope::fixes {
namespace {

/// In the path of an exported node ("model/conv2d_1/BiasAdd"), the layer is one of the scopes. If
/// TensorFlow traced the model a second time, all scopes have a suffix ("model_1/conv2d_1_1").
constexpr const char* kLoop = R"(def leaves(model):
    layers = list(model._flatten_layers(include_self=False))
    return [each for each in layers if not list(each._flatten_layers(include_self=False))]

def scopes(path):
    names = path.replace(".", "/").split("/")
    suffix = names[0][len(model.name):] if names[0].startswith(model.name + "_") else ""
    return [name.removesuffix(suffix) for name in names]

for path in KEEP_FP32:
    found = [layer for layer in leaves(model) if layer.name in scopes(path)]
    if not found:
        raise ValueError(f"the model has no layer for {path}")
    for layer in found:  # several if nested models reuse a layer name
        if hasattr(keras, "DTypePolicy"):
            layer.dtype_policy = keras.DTypePolicy("float32")
        else:  # tf.keras
            layer._set_dtype_policy("float32")
)";

/// A cast of functional models' outputs.
constexpr const char* kOutputs = R"(if getattr(model, "outputs", None):
    last = [keras.layers.Activation("linear", dtype="float32")(y) for y in model.outputs]
    model = keras.Model(model.inputs, last[0] if len(last) == 1 else last)
)";

bool is_half(const FloatFormat& format) { return !format.contains(kFp32); }

/// Returns whether the results that leave the network are in half precision: the loss, or in
/// inference the outputs.
bool leaves_in_half(const LaneInfo& lane, const PlanEdit& edit) {
  std::set<std::string> read, kept;
  for (const LayerInfo& layer : lane.layers) read.insert(layer.inputs.begin(), layer.inputs.end());
  for (const Change& change : edit.changes) {
    if (change.kind == FixKind::operator_fp32 || change.kind == FixKind::store_fp32)
      kept.insert(change.path);
  }
  const LayerInfo* last = nullptr;
  for (const LayerInfo& layer : lane.layers) {
    if (!read.contains(layer.path)) last = &layer;
  }
  if (last == nullptr || !is_half(last->write) || kept.contains(last->path)) return false;
  // A loss takes the dtype of what it reads.
  return last->inputs.empty() || !kept.contains(last->inputs.front());
}

std::string output_rule(const LaneInfo& lane, const PlanEdit& edit) {
  if (!leaves_in_half(lane, edit)) return "";
  return comment(
             "The model's output is in half precision, and in tf.keras so is its loss. Keras asks "
             "for float32 outputs:") +
         kOutputs +
         comment(
             "If the last layer is Dense(N, activation=\"softmax\"), use Dense(N) and then "
             "Activation(\"softmax\", dtype=\"float32\") instead: a softmax in float16 makes small "
             "probabilities 0. A subclassed model casts in call().");
}

}  // namespace

std::string keras_text(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  std::vector<std::string> paths = modules_of(kept);
  std::string text;
  if (!paths.empty()) {
    text +=
        python_list("KEEP_FP32", paths, "names of layers, or paths that contain one") + "\n" +
        kLoop +
        comment(
            "Run this before the first call of the model, or compile() it again. For layers that "
            "you create yourself, dtype=\"float32\" does the same: keras.layers.Dense(10, "
            "dtype=\"float32\"). Layers inside a layer do not inherit its dtype.");
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
  // Without other advice, there is nothing to change.
  if (!edit.changes.empty()) text += output_rule(lane, edit);
  if (text.find("keras.Model") != text.npos || text.find("keras.DTypePolicy") != text.npos)
    text = "import keras  # or: import tf_keras as keras\n\n" + text;
  if (edit.has(FixKind::weights_fp32)) {
    text += comment(
        "Master weights: before you create the model, call "
        "keras.config.set_dtype_policy(\"mixed_float16\") or \"mixed_bfloat16\" instead of "
        "\"float16\". In tf.keras, it is keras.mixed_precision.set_global_policy().");
  }
  if (const std::optional<double> scale = edit.loss_scale()) {
    text += fmt::format(
        "optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale={:.17g})"
        "  # tf.keras: keras.mixed_precision\n",
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
