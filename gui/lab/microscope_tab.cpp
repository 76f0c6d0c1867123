// SPDX-License-Identifier: MIT
// Training step: one weight of a small network, followed through one step. Settings, the way
// through the stations, the selected station, and the loss of the whole run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/lab/number_text.h"
#include "gui/lab/microscope_parts.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// Begins a setting: its name, and `width` for the widget behind it.
void setting(const LabFrame& frame, const char* name, float width) {
  flow(text_width(frame.fonts.text, name) + frame.px(5) + width, frame.px(14));
  ImGui::AlignTextToFramePadding();
  label(std::string("lab/step/label/") + name, name, frame.fonts.text, frame.theme.soft);
  ImGui::SameLine(0, frame.px(5));
}

/// Draws a list of texts; returns the chosen one's place, or -1.
template <class Texts>
int choose_text(const char* path, const std::string& preview, float width, const Texts& texts) {
  int chosen = -1, index = 0;
  if (!ui::begin_combo(path, preview.c_str(), width)) return -1;
  for (const auto& text : texts) {
    const std::string shown(text);
    if (ui::selectable(std::string(path) + "/" + shown, shown.c_str(), shown == preview))
      chosen = index;
    ++index;
  }
  ImGui::EndCombo();
  return chosen;
}

/// Draws a power of two and a slider for its exponent.
bool power_slider(const LabFrame& frame, const char* path, double* log2, double low, double high) {
  label(std::string(path) + "/text", fmt::format("2^{:g}", std::round(*log2)), frame.fonts.text,
        frame.theme.ink, frame.px(40));
  ImGui::SameLine(0, frame.px(4));
  return ui::slider(path, log2, low, high, "", frame.px(100));
}

constexpr std::array<const char*, 6> kBlockNames{"none",       "mxfp8_e4m3", "mxfp8_e5m2",
                                                 "mxfp6_e2m3", "mxfp4",      "nvfp4"};

void draw_block_choice(const LabFrame& frame) {
  SmallTraining& training = frame.lab.desk.training;
  setting(frame, "blocks", frame.px(112));
  std::string name = "none";
  if (training.blocks) {
    BlockFormat usual = *training.blocks;
    if (usual.scale == ScaleKind::ue8m0) usual.block_size = 32;
    name = block_format_name(usual);
  }
  const int chosen = choose_text("lab/step/blocks", name, frame.px(112), kBlockNames);
  ui::tip("Products read their operands in this format, with one scale per block.");
  if (chosen >= 0) training.blocks = parse_block_format(kBlockNames[static_cast<size_t>(chosen)]);
  if (!training.blocks || training.blocks->scale != ScaleKind::ue8m0) return;
  setting(frame, "of", frame.px(56));
  constexpr std::array<const char*, 4> kSizes{"8", "16", "32", "64"};
  const std::string size = std::to_string(training.blocks->block_size);
  const int picked = choose_text("lab/step/block_size", size, frame.px(56), kSizes);
  ui::tip("Numbers that share a scale. The standard says 32.");
  if (picked >= 0) training.blocks->block_size = 8 << picked;
}

void draw_ranks(const LabFrame& frame) {
  SmallTraining& training = frame.lab.desk.training;
  setting(frame, "ranks", frame.px(52));
  constexpr std::array<const char*, 5> kRanks{"1", "2", "4", "8", "16"};
  const int ranks =
      choose_text("lab/step/ranks", std::to_string(training.ranks), frame.px(52), kRanks);
  ui::tip("Data-parallel ranks. Each has a part of the batch; their gradients are added.");
  if (ranks >= 0) training.ranks = int64_t{1} << ranks;
  if (training.ranks == 1) return;
  setting(frame, "reduce", frame.px(150));
  constexpr std::array<const char*, 6> kReductions{
      "ring", "ring:format=bf16", "ring:format=fp32", "tree:format=bf16", "halving", "all-to-all"};
  const int chosen = choose_text("lab/step/reduce", reduction_text(training.reduction),
                                 frame.px(150), kReductions);
  ui::tip("Order of the additions, and the format of what is sent; by default the gradient's.");
  if (chosen >= 0) training.reduction = parse_reduction(kReductions[static_cast<size_t>(chosen)]);
}

void draw_loss_scale(const LabFrame& frame) {
  MicroscopeDesk& desk = frame.lab.desk;
  setting(frame, "loss scale", frame.px(86));
  constexpr std::array<const char*, 3> kKinds{"none", "static", "dynamic"};
  const std::string kind = !desk.scales ? "none" : desk.dynamic ? "dynamic" : "static";
  const int chosen = choose_text("lab/step/scale", kind, frame.px(86), kKinds);
  ui::tip("Factor on the loss. A dynamic one halves when a gradient overflows.");
  if (chosen >= 0) {
    desk.scales = chosen > 0;
    desk.dynamic = chosen == 2;
  }
  if (!desk.scales) return;
  flow(frame.px(146), frame.px(8));
  power_slider(frame, "lab/step/scale_value", &desk.scale_log2, 0.0, 40.0);
}

void draw_settings(const LabFrame& frame) {
  MicroscopeDesk& desk = frame.lab.desk;
  SmallTraining& training = desk.training;
  ImGui::AlignTextToFramePadding();
  label("lab/step/label/values", "values", frame.fonts.text, frame.theme.soft);
  ImGui::SameLine(0, frame.px(5));
  format_combo("lab/step/format", &desk.format, nullptr, frame.px(92), frame.theme);
  ui::tip("Format of everything that an operator reads or writes.");
  setting(frame, "rounding", frame.px(100));
  const bool draws = training.rounding == RoundingMode::stochastic;
  constexpr std::array<const char*, 2> kRoundings{"nearest", "stochastic"};
  const int rounding =
      choose_text("lab/step/rounding", kRoundings[draws ? 1 : 0], frame.px(100), kRoundings);
  ui::tip("How results are rounded to the format.");
  if (rounding >= 0)
    training.rounding = rounding == 1 ? RoundingMode::stochastic : RoundingMode::nearest_even;
  setting(frame, "sums", frame.px(128));
  constexpr std::array<const char*, 6> kSums{"fp32",  "format",   "format-mul-add",
                                             "kahan", "pairwise", "tensor-core:h100"};
  Accumulation shown = training.accumulation;
  const int sums = choose_text("lab/step/sums", accumulation_name(shown), frame.px(128), kSums);
  ui::tip("Accumulator of the products: fp32, or the format itself.");
  if (sums >= 0)
    training.accumulation = parse_accumulation(kSums[static_cast<size_t>(sums)]).value();
  draw_loss_scale(frame);
  draw_block_choice(frame);
  draw_ranks(frame);
  flow(frame.px(150), frame.px(14));
  ui::checkbox("lab/step/master", "master weights", &training.master_weights);
  ui::tip("Weights and Adam's state in fp32. Otherwise they are stored in the format.");
  setting(frame, "optimizer", frame.px(72));
  constexpr std::array<const char*, 2> kOptimizers{"Adam", "SGD"};
  const int optimizer = choose_text("lab/step/optimizer", kOptimizers[training.adam ? 0 : 1],
                                    frame.px(72), kOptimizers);
  if (optimizer >= 0) training.adam = optimizer == 0;
  lab_field(frame, "lab/step/rate", "rate", &desk.learning_rate, frame.px(60), frame.px(14));
  setting(frame, "loss weight", frame.px(150));
  double weight = training.loss_weight;
  if (power_slider(frame, "lab/step/weight", &weight, -24.0, 0.0))
    training.loss_weight = static_cast<int>(std::lround(weight));
  ui::tip("Factor of the loss, as auxiliary losses have. A small one makes small gradients.");
  desk.edited();
}

/// Draws numbers as a grid of squares; a click chooses the column of the weight.
void draw_grid(const LabFrame& frame, const char* path, const char* name,
               const std::vector<float>& values, bool is_signed, float size) {
  MicroscopePlace& place = frame.lab.desk.place;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* const small = frame.fonts.small;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const int64_t rows = static_cast<int64_t>(values.size()) / kDigitSide;
  const float cell = std::floor(size / static_cast<float>(kDigitSide));
  const ImVec2 min{at.x, at.y + font_size(*small) + frame.px(3)};
  list.AddText(small, font_size(*small), at, frame.theme.soft, name);
  float largest = 1e-30f;
  for (const float value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  const auto corner = [&](int64_t index) {
    return ImVec2(min.x + cell * static_cast<float>(index % kDigitSide),
                  min.y + cell * static_cast<float>(index / kDigitSide));
  };
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    const float value = values[static_cast<size_t>(i)];
    const double part = std::isfinite(value)
                            ? static_cast<double>(std::min(1.0f, std::fabs(value) / largest))
                            : 1.0;
    const ImU32 color = !std::isfinite(value)       ? frame.theme.bad
                        : is_signed && value < 0.0f ? frame.theme.lost
                        : is_signed                 ? frame.theme.in_range
                                                    : frame.theme.ink;
    const ImVec2 from = corner(i);
    list.AddRectFilled(from, {from.x + cell - 1, from.y + cell - 1},
                       mix(frame.theme.plot, color, part));
  }
  if (place.column < static_cast<int64_t>(values.size())) {
    const ImVec2 from = corner(place.column);
    list.AddRect({from.x - 1, from.y - 1}, {from.x + cell, from.y + cell}, frame.theme.accent, 0, 0,
                 2 * frame.scale);
  }
  ImGui::SetCursorScreenPos(min);
  ImGui::PushID(path);
  ImGui::InvisibleButton("grid", {cell * static_cast<float>(kDigitSide),
                                  cell * static_cast<float>(std::max<int64_t>(rows, 1))});
  track_item(path, name);
  ImGui::PopID();
  if (!ImGui::IsMousePosValid()) return;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const int64_t column = static_cast<int64_t>((mouse.x - min.x) / cell);
  const int64_t row = static_cast<int64_t>((mouse.y - min.y) / cell);
  const int64_t index = row * kDigitSide + std::clamp<int64_t>(column, 0, kDigitSide - 1);
  const bool inside = index >= 0 && index < static_cast<int64_t>(values.size());
  if (ImGui::IsItemActive() && inside) place.column = index;
  if (ImGui::IsItemHovered() && inside) {
    ImGui::SetTooltip("%d: %.6g", static_cast<int>(index),
                      static_cast<double>(values[static_cast<size_t>(index)]));
  }
}

/// The weight that is followed: its layer, unit and input.
void draw_picker(const LabFrame& frame, const Microscope& microscope) {
  MicroscopePlace& place = frame.lab.desk.place;
  for (const int layer : {1, 2}) {
    if (layer == 2) ImGui::SameLine(0, frame.px(2));
    const std::string name = fmt::format("Layer {}", layer);
    if (ui::segment(fmt::format("lab/step/layer/{}", layer), name.c_str(), place.layer == layer))
      place.layer = layer;
    ui::tip(layer == 1 ? "64 pixels to 32 hidden units." : "32 hidden units to 10 classes.");
  }
  ImGui::SameLine(0, frame.px(10));
  ImGui::AlignTextToFramePadding();
  const int64_t units = place.layer == 1 ? kSmallHidden : kSmallClasses;
  double unit = static_cast<double>(place.row);
  const std::string shown = fmt::format("{} {}", place.layer == 1 ? "unit" : "class", place.row);
  label("lab/step/unit/text", shown, frame.fonts.text, frame.theme.ink, frame.px(52));
  ImGui::SameLine(0, frame.px(4));
  if (ui::slider("lab/step/unit", &unit, 0.0, static_cast<double>(units - 1), "", frame.px(60))) {
    place.row = std::lround(unit);
  }
  ui::tip("The output unit that the weight belongs to.");
  const float size = frame.px(104);
  ImGui::BeginGroup();
  draw_grid(
      frame, "lab/step/inputs",
      place.layer == 1 ? fmt::format("a {}: pixels", microscope.label).c_str() : "hidden units",
      microscope.inputs, false, size);
  ImGui::EndGroup();
  ImGui::SameLine(0, frame.px(16));
  ImGui::BeginGroup();
  draw_grid(frame, "lab/step/weights", "weights of the unit", microscope.weights, true, size);
  ImGui::EndGroup();
  label("lab/step/sample",
        fmt::format("Sample {} of the batch, a {}, on rank {}.", microscope.sample,
                    microscope.label, microscope.rank),
        frame.fonts.small, frame.theme.soft, frame.px(240));
}

void draw_station_facts(const LabFrame& frame, const Station& station) {
  if (!ImGui::BeginTable("lab/step/facts", 2, ImGuiTableFlags_SizingFixedFit)) return;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  const auto number = [](double value) { return fmt::format("{:.10g}", value + 0.0); };
  lab_fact(frame, "lab/step/exact", "exact", number(station.exact),
           "Before rounding. Sums and products of many bits are shown in double.");
  lab_fact(frame, "lab/step/stored", "stored", number(station.stored),
           station.by_engine ? "Read from the training engine."
                             : "Computed with the engine's own arithmetic: it is not stored.");
  const double error = std::fabs(station.stored - station.exact) / std::fabs(station.exact);
  lab_fact(frame, "lab/step/error", "error",
           station.stored == station.exact ? "none"
           : std::isfinite(error)          ? fmt::format("{:.3g}%", 100.0 * error)
                                           : "-",
           "Of the exact value.");
  if (!std::isnan(station.twin)) {
    const bool scaled = station.twin_factor != 1.0;
    lab_fact(frame, "lab/step/twin", scaled ? "fp32, scaled" : "fp32", number(station.twin),
             "The same number in the fp32 training, times the loss scale where gradients carry it. "
             "Its weights have taken their own way since step 0.");
  }
  ImGui::EndTable();
}

void draw_station(const LabFrame& frame, const Station& station, float width) {
  const Theme& theme = frame.theme;
  ImGui::PushFont(frame.fonts.bold);
  ui::text("lab/step/name", station.name);
  ImGui::PopFont();
  ImGui::SameLine(0, frame.px(10));
  std::string format = format_name(station.format);
  if (station.unit != 1.0) format += fmt::format(" \u00d7 {:.4g}", station.unit);
  ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
  ui::text("lab/step/station_format", format);
  ImGui::PopStyleColor();
  ImGui::SameLine(0, frame.px(10));
  ImGui::PushStyleColor(ImGuiCol_Text, loss_color(theme, station.loss));
  ui::text("lab/step/loss", station_loss_name(station.loss));
  ImGui::PopStyleColor();
  ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width);
  ui::text("lab/step/text", station.text);
  ImGui::PopTextWrapPos();
  draw_station_line(frame, station, width);
  ImGui::Dummy({0, frame.px(1)});
  draw_station_bits(frame, station, width);
}

void draw_presets_of_step(const LabFrame& frame) {
  int index = 0;
  for (const MicroscopePreset& preset : microscope_presets()) {
    const float width =
        text_width(frame.fonts.text, preset.name) + 2 * ImGui::GetStyle().FramePadding.x;
    if (index > 0) flow(width, frame.px(4));
    if (ui::button("lab/step/preset/" + std::to_string(index++), preset.name))
      preset.apply(frame.lab.desk);
    ui::tip(preset.tip);
  }
  if (frame.lab.desk.note.empty()) return;
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.accent);
  ui::text_wrapped("lab/step/note", frame.lab.desk.note);
  ImGui::PopStyleColor();
}

/// Returns the selected station. Where it is missing ("hop 7" of fewer ranks, the update of a
/// skipped step) it stays selected, and the last one is shown.
const Station& selected_station(const MicroscopeDesk& desk, const Microscope& microscope) {
  const Station* const found = station(microscope, desk.selected);
  return found != nullptr ? *found : microscope.stations.back();
}

}  // namespace

void draw_microscope_tab(const LabFrame& frame) {
  MicroscopeDesk& desk = frame.lab.desk;
  draw_presets_of_step(frame);
  const SmallTraining before = desk.training;
  draw_settings(frame);
  if (!(desk.training == before)) desk.note.clear();
  desk.clamp_place();
  const Microscope* const microscope = desk.study.of(desk.training, desk.place);
  // A result from the background is drawn as soon as it is there.
  if (desk.study.busy()) frame.lab.moving = true;
  if (microscope == nullptr) {
    label("lab/step/wait", "Training ...", frame.fonts.text, frame.theme.soft);
    return;
  }
  if (!microscope->problem.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.bad);
    ui::text_wrapped("lab/step/problem", microscope->problem);
    ImGui::PopStyleColor();
    return;
  }
  ImGui::Dummy({0, frame.px(2)});
  draw_station_path(frame, *microscope);
  ImGui::Dummy({0, frame.px(2)});
  const Station& shown = selected_station(desk, *microscope);
  const float room = ImGui::GetContentRegionAvail().x, picker = frame.px(240),
              facts = frame.px(230), gap = frame.px(20);
  const bool wide = room > picker + facts + 2 * gap + frame.px(360);
  const float width = wide ? room - picker - facts - 2 * gap : room;
  ImGui::BeginGroup();
  draw_station(frame, shown, width);
  ImGui::EndGroup();
  if (wide) ImGui::SameLine(width + gap + ImGui::GetStyle().WindowPadding.x);
  ImGui::BeginGroup();
  ImGui::PushItemWidth(facts);
  draw_station_facts(frame, shown);
  ImGui::PopItemWidth();
  ImGui::EndGroup();
  if (wide || room > picker + facts + gap)
    ImGui::SameLine((wide ? width + gap : 0.0f) + facts + gap + ImGui::GetStyle().WindowPadding.x);
  ImGui::BeginGroup();
  draw_picker(frame, *microscope);
  ImGui::EndGroup();
  const float height =
      std::clamp(ImGui::GetContentRegionAvail().y - frame.px(6), frame.px(130), frame.px(320));
  draw_losses(frame, *microscope, height);
}

}  // namespace halfscope::gui
