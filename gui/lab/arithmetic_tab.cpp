// SPDX-License-Identifier: MIT
// Arithmetic: one operation, exact and rounded to the format.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/numeric/formats/codes.h"
#include "core/numeric/statistics/ulp.h"
#include "gui/lab/number_line.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr std::array<Operation, 5> kOperations{Operation::add, Operation::sub, Operation::mul,
                                               Operation::div, Operation::fma};
constexpr std::array<const char*, 5> kOperationPaths{"add", "sub", "mul", "div", "fma"};

void operand(const LabFrame& frame, const char* name, std::string* text, float value, float gap) {
  const std::string path = std::string("lab/") + name;
  lab_field(frame, path, name, text, frame.px(120), gap);
  std::string problem;
  if (!read_number(*text, frame.lab.shown(), problem)) {
    ui::tip(problem.c_str());
    return;
  }
  ui::tip((*text + " is stored as " + exact_text(value)).c_str());
}

}  // namespace

void draw_arithmetic_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  lab_format(frame);
  for (size_t i = 0; i < kOperations.size(); ++i) {
    const Operation operation = kOperations[i];
    flow(text_width(frame.fonts.text, operation_name(operation)) +
             2 * ImGui::GetStyle().FramePadding.x,
         frame.px(i > 0 ? 2 : 16));
    if (ui::segment(fmt::format("lab/operation/{}", kOperationPaths[i]), operation_name(operation),
                    lab.operation == operation)) {
      lab.operation = operation;
    }
  }
  const LabResult result = calculate(lab);
  operand(frame, "a", &lab.a, result.a, 0);
  operand(frame, "b", &lab.b, result.b, frame.px(12));
  if (lab.operation == Operation::fma) {
    operand(frame, "c", &lab.c, result.c, frame.px(12));
  }
  flow(frame.px(140), frame.px(12));
  const std::string mode(rounding_mode_name(lab.mode));
  if (ui::begin_combo("lab/mode", mode.c_str(), frame.px(140))) {
    for (const RoundingMode each : kAllRoundingModes) {
      const std::string name(rounding_mode_name(each));
      if (ui::selectable("lab/mode/choose/" + name, name.c_str(), each == lab.mode)) {
        lab.mode = each;
      }
    }
    ImGui::EndCombo();
  }
  std::string problem;
  for (const std::string* text : {&lab.a, &lab.b, &lab.c}) {
    if (text == &lab.c && lab.operation != Operation::fma) continue;
    if (!read_number(*text, lab.shown(), problem)) {
      label("lab/operand/problem", problem, frame.fonts.text, frame.theme.bad);
      return;
    }
  }
  ImGui::Dummy({0, frame.px(4)});
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/result", 2, kFlags)) return;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  const auto held = [&](float value) {
    return exact_text(value) + "   " +
           code_text(detail::code_of_value(value, lab.shown()), lab.shown());
  };
  lab_fact(frame, "lab/held/a", "a", held(result.a), "Rounded to the format.");
  lab_fact(frame, "lab/held/b", "b", held(result.b), "Rounded to the format.");
  if (lab.operation == Operation::fma) {
    lab_fact(frame, "lab/held/c", "c", held(result.c), "Rounded to the format.");
  }
  lab_fact(frame, "lab/result/exact", "exact result",
           result.result.exact.empty() ? "none" : result.result.exact,
           "All digits, before rounding.");
  lab_fact(frame, "lab/result/value", "rounded", held(result.result.value),
           "The exact result, rounded once to the format.");
  lab_fact(frame, "lab/result/error", "error",
           std::isnan(result.result.error_ulps) ? "-"
           : result.result.error_ulps == 0.0    ? "0"
                                             : fmt::format("{:+.4g} ulp", result.result.error_ulps),
           "Rounded minus exact, in ulps (units in the last place).");
  lab_fact(frame, "lab/result/flags", "flags", flags_text(result.result.flags),
           "IEEE 754 exceptions, and what happened to the result.");
  ImGui::EndTable();
  if (result.result.exact.empty() || std::isnan(result.result.error_ulps)) return;
  // The exact result next to its rounded one; as a double it is exact or indistinguishable here.
  const double exact =
      static_cast<double>(result.result.value) -
      result.result.error_ulps * ulp_size(static_cast<double>(result.result.value), lab.shown());
  const std::optional<double> typed = read_double(result.result.exact);
  ImGui::Dummy({0, frame.px(8)});
  draw_bins(frame, "lab/result/bins",
            {.chosen = result.result.value,
             .exact = typed.value_or(exact),
             .label = "exact: " + brief_text(typed.value_or(exact), 9)},
            ImGui::GetContentRegionAvail().x,
            std::min(lab_room(frame, 110, frame.px(4)), frame.px(600)));
}

}  // namespace halfscope::gui
