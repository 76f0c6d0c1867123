// SPDX-License-Identifier: MIT
// Advice for torchao's float8 training: which nn.Linear modules are not converted.
#include <fmt/format.h>

#include "analysis/fixes/places.h"
#include "analysis/fixes/targets.h"

namespace halfscope::fixes {

std::string torchao_text(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  const std::vector<std::string> modules = modules_of(kept);
  std::string text;
  if (!modules.empty()) {
    text +=
        "from torchao.float8 import convert_to_float8_training\n\n" +
        python_list("NOT_FLOAT8", modules, "as in model.named_modules()") +
        "\ndef module_filter_fn(module, fqn):\n"
        "    return fqn not in NOT_FLOAT8\n\n"
        "convert_to_float8_training(model, module_filter_fn=module_filter_fn)\n" +
        comment(
            "These modules stay in the model's dtype, which is not fp32 in a bfloat16 model. Use "
            "--fix-as pytorch to keep them in fp32. torchao only converts nn.Linear; other "
            "modules were never in float8.");
  }
  for (const ModulePlace& place : kept) {
    if (place.is_module()) continue;
    text += comment(fmt::format("{}: torchao never converts {}.", place.path, where_text(place)));
  }
  text += not_expressed("torchao", edit,
                        {FixKind::nothing, FixKind::operator_fp32, FixKind::store_fp32});
  return text.empty() ? "# Nothing to change.\n" : text;
}

}  // namespace halfscope::fixes
