// SPDX-License-Identifier: MIT
// Step through: arithmetic as binary numbers below each other, one step at a time. Bits that a step
// throws away are crossed out.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/lab/walk.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/sums/tensor_core.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kSecondsPerStep = 1.2;

/// Reads a list of terms as single numbers.
std::optional<std::vector<double>> read_list(const std::string& text, size_t most,
                                             std::string& problem) {
  const std::optional<std::vector<Terms>> terms = read_terms(text, problem);
  if (!terms) return std::nullopt;
  std::vector<double> values;
  for (const Terms& group : *terms) {
    if (values.size() + static_cast<size_t>(group.count) > most) {
      problem = fmt::format("Enter at most {} numbers.", most);
      return std::nullopt;
    }
    values.insert(values.end(), static_cast<size_t>(group.count), group.value);
  }
  return values;
}

Walk make_walk(const FloatLab& lab) {
  const WalkState& state = lab.walk;
  const FloatFormat& format = lab.shown();
  Walk walk;
  if (state.kind == WalkState::Kind::fma) {
    std::array<float, 3> operands{};
    const std::array<const std::string*, 3> texts{&state.a, &state.b, &state.c};
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::optional<uint32_t> code = read_number(*texts[i], format, walk.problem);
      if (!code) return walk;
      operands[i] = decode(*code, format);
    }
    return fma_walk(format, operands[0], operands[1], operands[2]);
  }
  const auto a = read_list(state.list_a, kMostDotTerms, walk.problem);
  if (!a) return walk;
  const auto b = read_list(state.list_b, kMostDotTerms, walk.problem);
  if (!b) return walk;
  if (state.kind == WalkState::Kind::dot) {
    const std::optional<Accumulation> how = parse_accumulation(state.accumulation);
    if (!how) {
      walk.problem = "'" + state.accumulation + "' is not an accumulation";
      return walk;
    }
    return dot_walk({.accumulation = *how, .write = format, .read = format}, *a, *b);
  }
  const std::optional<double> start = read_double(state.start);
  if (!start) {
    walk.problem = "'" + state.start + "' is not a number";
    return walk;
  }
  const auto floats = [](const std::vector<double>& values) {
    std::vector<float> result;
    for (const double x : values) result.push_back(static_cast<float>(x));
    return result;
  };
  return tensor_core_walk(state.arch, format, floats(*a), floats(*b), static_cast<float>(*start));
}

const Walk& walk_of(FloatLab& lab) {
  WalkState& state = lab.walk;
  const std::string key =
      fmt::format("{}/{}/{}/{}/{}/{}/{}/{}/{}/{}", static_cast<int>(state.kind),
                  format_name(lab.shown()), state.a, state.b, state.c, state.list_a, state.list_b,
                  state.start, state.arch, state.accumulation);
  if (state.walk_of != key || state.first > 0) {
    state.walk = make_walk(lab);
    state.walk_of = key;
    state.step = state.first;
    state.playing = false;
  }
  state.first = 0;
  return state.walk;
}

void draw_inputs(const LabFrame& frame) {
  WalkState& state = frame.lab.walk;
  using Kind = WalkState::Kind;
  for (const auto& [kind, path, name] : {std::tuple{Kind::fma, "lab/walk/fma", "fma or mul + add"},
                                         {Kind::tensor_core, "lab/walk/tensor_core", "tensor core"},
                                         {Kind::dot, "lab/walk/dot", "dot product"}}) {
    if (kind != Kind::fma) {
      flow(text_width(frame.fonts.text, name) + 2 * ImGui::GetStyle().FramePadding.x, frame.px(2));
    }
    if (ui::segment(path, name, state.kind == kind)) state.kind = kind;
  }
  flow(frame.px(130), frame.px(16));
  lab_format(frame);
  if (state.kind == Kind::fma) {
    lab_field(frame, "lab/walk/a", "a", &state.a, frame.px(110), frame.px(12));
    lab_field(frame, "lab/walk/b", "b", &state.b, frame.px(110), frame.px(12));
    lab_field(frame, "lab/walk/c", "c", &state.c, frame.px(110), frame.px(12));
    return;
  }
  lab_field(frame, "lab/walk/list_a", "a", &state.list_a, frame.px(170), frame.px(12));
  ui::tip("Numbers with commas between them. 3x0.5 is three times 0.5.");
  lab_field(frame, "lab/walk/list_b", "b", &state.list_b, frame.px(170), frame.px(12));
  if (state.kind == Kind::tensor_core) {
    lab_field(frame, "lab/walk/start", "c", &state.start, frame.px(70), frame.px(12));
    flow(frame.px(140), frame.px(12));
    if (ui::begin_combo("lab/walk/arch", state.arch.c_str(), frame.px(140))) {
      for (const TensorCoreArch& arch : tensor_core_archs()) {
        const std::string name(arch.name);
        if (ui::selectable("lab/walk/arch/" + name, name.c_str(), state.arch == name)) {
          state.arch = name;
        }
        ui::tip(std::string(arch.about).c_str());
      }
      ImGui::EndCombo();
    }
    return;
  }
  flow(frame.px(170), frame.px(12));
  if (ui::begin_combo("lab/walk/accumulation", state.accumulation.c_str(), frame.px(170))) {
    for (const std::string& name : accumulation_names()) {
      if (ui::selectable("lab/walk/accumulation/" + name, name.c_str(),
                         state.accumulation == name)) {
        state.accumulation = name;
      }
    }
    ImGui::EndCombo();
  }
}

/// Draws Back, Next and Play, and the place among the steps. Moves on while playing.
void draw_buttons(const LabFrame& frame, const Walk& walk) {
  WalkState& state = frame.lab.walk;
  const int last = static_cast<int>(walk.steps.size()) - 1;
  if (ui::button("lab/walk/back", "Back")) {
    state.step = std::max(state.step - 1, 0);
    state.playing = false;
  }
  ImGui::SameLine(0, frame.px(4));
  if (ui::button("lab/walk/next", "Next")) {
    state.step = std::min(state.step + 1, last);
    state.playing = false;
  }
  ImGui::SameLine(0, frame.px(4));
  if (ui::button("lab/walk/play", state.playing ? "Stop" : "Play")) {
    state.playing = !state.playing;
    state.clock = 0.0;
    if (state.playing && state.step == last) state.step = 0;
  }
  if (state.playing) {
    state.clock += static_cast<double>(ImGui::GetIO().DeltaTime);
    if (state.clock > kSecondsPerStep) {
      state.clock = 0.0;
      state.step = std::min(state.step + 1, last);
      state.playing = state.step < last;
    }
    frame.lab.moving = state.playing;
  }
  state.step = std::clamp(state.step, 0, last);
  // One dot per step, to jump.
  const float each = frame.px(walk.steps.size() > 24 ? 10 : 18);
  for (int i = 0; i <= last; ++i) {
    if (i == 0) {
      ImGui::SameLine(0, frame.px(14));
    } else {
      flow(each, 0);
    }
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::PushID(i);
    if (ImGui::InvisibleButton("##step", {each, ImGui::GetFrameHeight()})) {
      state.step = i;
      state.playing = false;
    }
    ImGui::PopID();
    track_item(fmt::format("lab/walk/step/{}", i), i == state.step ? "on" : "off");
    ui::tip(walk.steps[static_cast<size_t>(i)].title.c_str());
    const ImVec2 center{at.x + each / 2, at.y + ImGui::GetFrameHeight() / 2};
    ImDrawList& list = *ImGui::GetWindowDrawList();
    if (i == state.step) {
      list.AddCircleFilled(center, each * 0.32f, frame.theme.accent);
    } else {
      list.AddCircleFilled(center, each * 0.2f,
                           i < state.step ? frame.theme.soft : frame.theme.axis);
    }
  }
}

/// Bits of all steps share one window of exponents, so that nothing jumps.
struct BitWindow {
  int high = 0, low = 0;
};

BitWindow window_of(const Walk& walk, int most) {
  BitWindow window{-100000, 100000};
  for (const WalkStep& step : walk.steps) {
    for (const BitRow& row : step.rows) {
      if (row.bits.zero()) continue;
      window.high = std::max(window.high, row.bits.high());
      window.low = std::min(window.low, row.bits.low());
    }
  }
  if (window.high < window.low) return {0, -7};
  window.low = std::max(window.low, window.high - most + 1);
  window.low = std::min(window.low, window.high - 7);
  return window;
}

void draw_row(const LabFrame& frame, const BitRow& row, const BitWindow& window, ImVec2 at,
              float names, float cell, float values, float height) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  ImFont* font = frame.fonts.text;
  ImFont* small = frame.fonts.small;
  const float text_y = std::round(at.y + (height - font_size(*font)) / 2);
  const ImU32 ink = row.result ? theme.ink : theme.soft;
  list.AddText(font, font_size(*font), {at.x, text_y}, ink,
               fitted(row.name, font, names - frame.px(24)).c_str());
  if (row.bits.negative()) {
    list.AddText(font, font_size(*font), {at.x + names - frame.px(16), text_y}, frame.sign_color(),
                 "-");
  }
  const float size = std::min(height - frame.px(4), frame.px(36));
  const float top = std::round(at.y + (height - size) / 2);
  const ImU32 color = row.result ? theme.good : frame.fraction_color();
  for (int bit = window.high; bit >= window.low; --bit) {
    const bool on = row.bits.bit(bit);
    const bool within = !row.bits.zero() && bit <= row.bits.high() && bit >= row.bits.low();
    const bool cut = row.cut != BitRow::kNoCut && bit < row.cut;
    if (!within) continue;
    const ImVec2 min{std::round(at.x + names + cell * static_cast<float>(window.high - bit)), top};
    const ImVec2 max{min.x + cell - std::max(1.0f, std::floor(cell * 0.1f)), top + size};
    const ImU32 shade = cut ? theme.lost : color;
    list.AddRectFilled(min, max,
                       on ? with_alpha(shade, cut ? 0.35f : 1.0f) : with_alpha(shade, 0.14f),
                       frame.px(2));
    if (cell > text_width(small, "0") + 2.0f && size > font_size(*small)) {
      lab_centered(small, (min.x + max.x) / 2, min.y + (size - font_size(*small)) / 2,
                   on && !cut ? theme.card : theme.ink, on ? "1" : "0");
    }
    if (cut) list.AddLine({min.x, max.y}, {max.x, min.y}, theme.lost, frame.px(1.5f));
  }
  if (!row.bits.zero() && row.bits.low() < window.low) {
    const float x = at.x + names + cell * static_cast<float>(window.high - window.low + 1);
    list.AddText(small, font_size(*small), {x + frame.px(2), top + frame.px(3)}, theme.soft, "...");
  }
  list.AddText(frame.fonts.mono, font_size(*frame.fonts.mono), {at.x + values, text_y}, ink,
               row.value.c_str());
}

/// Sizes that all steps share.
struct BitLayout {
  BitWindow window{};
  float width = 0, names = 0, cell = 0, values = 0;  ///< in pixels from the left
};

/// Draws the rows of a step and the line of the binary point. Returns the end.
float draw_rows(const LabFrame& frame, const WalkStep& step, const BitLayout& layout, ImVec2 at,
                float height) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const BitWindow& window = layout.window;
  const float rows = height * static_cast<float>(step.rows.size());
  if (window.high >= 0 && window.low < 0) {
    const float columns = static_cast<float>(window.high + 1);
    const float x = std::round(at.x + layout.names + layout.cell * columns) - 1.0f;
    list.AddLine({x, at.y}, {x, at.y + rows}, frame.theme.axis, frame.px(1.5f));
  }
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const ImVec2 place{at.x, at.y + height * static_cast<float>(i)};
    if (step.rows[i].result) {
      list.AddRectFilled(place, {at.x + layout.width, place.y + height},
                         with_alpha(frame.theme.selection, 0.4f), frame.px(3));
    }
    draw_row(frame, step.rows[i], window, place, layout.names, layout.cell, layout.values, height);
  }
  return at.y + rows;
}

/// Draws the steps before this one below it, the latest first, while there is room.
void draw_earlier(const LabFrame& frame, const Walk& walk, int which, const BitLayout& layout) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* font = frame.fonts.text;
  const float height = frame.px(26), line = font_size(*font) + frame.px(8);
  const float bottom = ImGui::GetCursorScreenPos().y + lab_room(frame, 0);
  ImVec2 at = ImGui::GetCursorScreenPos();
  for (int earlier = which - 1; earlier >= 0; --earlier) {
    const WalkStep& step = walk.steps[static_cast<size_t>(earlier)];
    const float rows = height * static_cast<float>(step.rows.size());
    if (at.y + line + rows > bottom) break;
    const std::string title =
        fmt::format("{} of {}: {}", earlier + 1, walk.steps.size(), step.title);
    list.AddText(font, font_size(*font), {at.x, at.y + frame.px(4)}, frame.theme.soft,
                 title.c_str());
    const float end = draw_rows(frame, step, layout, {at.x, at.y + line}, height);
    list.AddRectFilled({at.x, at.y + line}, {at.x + layout.width, end},
                       with_alpha(frame.theme.card, 0.5f));
    at.y = end + frame.px(8);
  }
  ImGui::Dummy({layout.width, std::max(0.0f, at.y - ImGui::GetCursorScreenPos().y)});
}

void draw_step(const LabFrame& frame, const Walk& walk, int which) {
  const WalkStep& step = walk.steps[static_cast<size_t>(which)];
  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(420));
  ImGui::PushFont(frame.fonts.bold);
  ui::text("lab/walk/title", fmt::format("{} of {}: {}", which + 1, walk.steps.size(), step.title));
  ImGui::PopFont();
  lab_sentence("lab/walk/text", step.text, frame.theme.ink);
  const float names = frame.px(150), numbers = frame.px(150);
  const float room = width - names - numbers - frame.px(24);
  const BitWindow window =
      window_of(walk, std::max(8, static_cast<int>(room / std::max(frame.px(7), 1.0f))));
  const float columns = static_cast<float>(window.high - window.low + 1);
  const float cell = std::floor(std::clamp(room / columns, frame.px(6), frame.px(36)));
  const BitLayout layout{window, width, names, cell, names + cell * columns + frame.px(18)};
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float head = font_size(*frame.fonts.small) + frame.px(6);
  size_t most = 1;
  for (const WalkStep& each : walk.steps) most = std::max(most, each.rows.size());
  const float height =
      std::floor(std::clamp((lab_room(frame, 0) - head - frame.px(30)) / static_cast<float>(most),
                            frame.px(20), frame.px(44)));
  const int every = std::max(1, static_cast<int>(std::ceil(frame.px(44) / cell)));
  for (int bit = window.high; bit >= window.low; --bit) {
    if (bit % every != 0) continue;
    const float x = at.x + names + cell * (static_cast<float>(window.high - bit) + 0.5f);
    lab_centered(frame.fonts.small, x, at.y, frame.theme.soft, fmt::format("2^{}", bit));
  }
  const float end = draw_rows(frame, step, layout, {at.x, at.y + head}, height);
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const float top = at.y + head + height * static_cast<float>(i);
    track_rect(fmt::format("lab/walk/row/{}", i), {at.x, top}, {at.x + width, top + height},
               step.rows[i].value);
  }
  ImGui::SetCursorScreenPos({at.x, end + frame.px(6)});
  ImGui::Dummy({width, 0});
  label("lab/walk/key",
        "Columns are powers of two. Crossed out: lost. The line is the binary point.",
        frame.fonts.small, frame.theme.soft);
  ImGui::Dummy({0, frame.px(4)});
  draw_earlier(frame, walk, which, layout);
}

}  // namespace

void draw_walk_tab(const LabFrame& frame) {
  draw_inputs(frame);
  const Walk& walk = walk_of(frame.lab);
  if (walk.steps.empty()) {
    label("lab/walk/problem", walk.problem, frame.fonts.text, frame.theme.bad);
    return;
  }
  draw_buttons(frame, walk);
  ImGui::Dummy({0, frame.px(2)});
  draw_step(frame, walk, frame.lab.walk.step);
}

}  // namespace halfscope::gui
