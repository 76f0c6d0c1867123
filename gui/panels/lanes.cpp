// SPDX-License-Identifier: MIT
// Distance of the selected tensor to the same tensor of another lane: relative differences, and the
// layers where that error comes from.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "analysis/distances.h"
#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/data/lane_errors.h"
#include "gui/panels/panel.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

const char* const kTotal =
    "Total error: how far this lane's tensor is from the other lane's, relative to the other "
    "(2-norms over elements that are finite in both).";
const char* const kLocal =
    "Local error: the error that this operator adds. Measured by running it again on the same "
    "inputs in double precision (in fp32 where only that was recorded).";
const char* const kInherited =
    "Inherited error: the error that came in with the inputs. Measured by running the operator "
    "in double precision on this lane's inputs and comparing with the other lane's output.";

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Returns "2.0e-4", "0", or "-" if not measured.
std::string error_text(double error) {
  if (std::isnan(error)) return "-";
  if (std::isinf(error)) return "non-finite";
  if (error == 0.0) return "0";
  if (error >= 0.01 && error < 100.0) return fmt::format("{:.2g}", error);
  const int exponent = static_cast<int>(std::floor(std::log10(error)));
  return fmt::format("{:.1f}e{}", error / std::pow(10.0, exponent), exponent);
}

/// Returns the total error, which is NaN if no element is finite in both lanes.
std::string total_text(double total) { return std::isfinite(total) ? error_text(total) : "NaN"; }

/// Draws a note with a lane that can be compared, or how to get one.
void draw_nothing(const Frame& frame) {
  const RunView& run = frame.run.view();
  if (run.lane_count() < 2) {
    empty_note("lanes/empty",
               "This run has only one lane. Train two lanes to compare them: --lanes "
               "float32,mixed_float16 --errors-every N.",
               frame.theme);
    return;
  }
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const std::vector<int> others = LaneErrors::others(run, lane);
    if (others.empty()) continue;
    const bool is_reference =
        std::find(others.begin(), others.end(), frame.at.lane) != others.end();
    const std::string& name = run.lane(lane).name;
    empty_note("lanes/empty",
               fmt::format("Lane {} {}", run.lane(frame.at.lane).name,
                           is_reference ? "is the baseline that others were compared with."
                                        : "was not compared with another lane."),
               frame.theme);
    if (ui::button("lanes/look", ("Show lane " + name).c_str())) frame.view.lane = name;
    return;
  }
  empty_note("lanes/empty",
             run.status() == RunStatus::running
                 ? "No distances between lanes recorded yet. They are sampled at the first, the "
                   "middle and the last step, or every N steps with --errors-every N."
                 : "No distances between lanes were recorded. Train with --errors-every N to "
                   "sample them every N steps.",
             frame.theme);
}

void draw_head(const Frame& frame, const std::vector<int>& others, int other, int64_t step) {
  const RunView& run = frame.run.view();
  ImGui::AlignTextToFramePadding();
  label("lanes/title", "Distance to", frame.fonts.bold, frame.theme.ink);
  ImGui::SameLine();
  const std::string& shown = run.lane(other).name;
  const std::string when = "at step " + grouped(step);
  const float room =
      ImGui::GetContentRegionAvail().x - text_width(frame.fonts.text, when) - 12.0f * frame.scale;
  const float width = std::clamp(room, 60.0f * frame.scale, 180.0f * frame.scale);
  if (ui::begin_combo("lanes/other", shown.c_str(), width)) {
    for (const int lane : others) {
      const std::string& name = run.lane(lane).name;
      if (ui::selectable("lanes/other/" + name, name.c_str(), lane == other)) {
        frame.view.other_lane = name;
      }
    }
    ImGui::EndCombo();
  }
  ImGui::SameLine();
  label("lanes/step", when, frame.fonts.text, frame.theme.soft);
  ui::tip("The sampled step nearest to the cursor.");
}

ImU32 bar_color(const Theme& theme, DistanceBar::Kind kind) {
  switch (kind) {
    case DistanceBar::Kind::equal:
      return theme.good;
    case DistanceBar::Kind::small:
      return theme.in_range;
    case DistanceBar::Kind::large:
      return theme.lost;
    case DistanceBar::Kind::not_finite:
      return theme.bad;
  }
  return theme.ink;
}

void draw_distances(const Frame& frame, const SiteError& error, int64_t not_finite) {
  const auto bars = distance_bars(error.ulps, frame.site_info()->format, not_finite);
  int64_t total = 0, most = 1;
  for (const DistanceBar& bar : bars) {
    total += bar.count;
    most = std::max(most, bar.count);
  }
  const float s = frame.scale;
  ImFont* font = frame.fonts.small;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, 160.0f * s);
  const float height = std::round(76.0f * s), below = font_size(*font) + 6.0f * s;
  Canvas canvas(frame.picture);
  const ImVec2 max{at.x + width, at.y + height};
  canvas.fill(at, max, frame.theme.plot);
  const float each = width / static_cast<float>(bars.size());
  const float top = at.y + font_size(*font) + 6.0f * s;
  for (size_t i = 0; i < bars.size(); ++i) {
    const DistanceBar& bar = bars[i];
    const float left = std::round(at.x + each * static_cast<float>(i) + 3.0f * s);
    const float right = std::round(at.x + each * static_cast<float>(i + 1) - 3.0f * s);
    const float part = static_cast<float>(bar.count) / static_cast<float>(most);
    float bar_height = std::round((max.y - top) * part);
    if (bar.count > 0) bar_height = std::max(bar_height, 2.0f * s);
    const ImU32 color = bar_color(frame.theme, bar.kind);
    if (bar.count > 0) {
      canvas.fill({left, max.y - bar_height}, {right, max.y}, color, 2.0f * s,
                  ImDrawFlags_RoundCornersTop);
    }
    const auto centred = [&](const std::string& text, float y, ImU32 ink) {
      const float wide = text_width(font, text);
      if (wide > each) return;
      canvas.text(*font, {(left + right - wide) / 2, y}, ink, text);
    };
    std::string amount = percent(share(bar.count, total));
    if (text_width(font, amount) > each && amount.ends_with("%")) amount.pop_back();
    if (bar.count > 0) {
      centred(amount, max.y - bar_height - font_size(*font) - 2.0f * s, frame.theme.ink);
    }
    centred(bar.label, max.y + 3.0f * s, bar.count > 0 ? frame.theme.soft : frame.theme.faint);
    track_rect(fmt::format("lanes/distances/{}", bar.label), {left, at.y}, {right, max.y + below},
               std::to_string(bar.count));
    if (ImGui::IsMouseHoveringRect({left, at.y}, {right, max.y + below})) {
      ImGui::SetTooltip("%s\n%s of %s elements", bar.meaning, grouped(bar.count).c_str(),
                        grouped(total).c_str());
    }
  }
  canvas.line({at.x, max.y}, {max.x, max.y}, frame.theme.axis, s);
  ImGui::Dummy({width, height + below});
}

void draw_facts(const Frame& frame, const SiteError& error, const SiteInfo& site,
                int64_t not_finite) {
  int64_t total = 0;
  for (const int64_t count : error.ulps) total += count;
  const int64_t close = error.ulps[0] + error.ulps[1];
  label("lanes/within",
        fmt::format("{} within 1 ulp of {} \u00b7 at most {} ulps", percent(share(close, total)),
                    format_name(site.format), short_number(error.max_ulps)),
        frame.fonts.text, frame.theme.ink);
  ui::tip(
      "An ulp is the distance between neighbouring values of the tensor's format. The other "
      "lane's values are rounded to that format first. The bars show relative differences "
      "instead, which can be compared across formats.");
  if (not_finite > 0) {
    label("lanes/not_finite",
          fmt::format("{} of all values are NaN or Inf in one lane only",
                      percent(share(not_finite, error.n))),
          frame.fonts.bold, frame.theme.bad);
    ui::tip("The errors below leave them out: they are norms over finite values.");
  }
  const float left = ImGui::GetCursorPosX();
  const float each = ImGui::GetContentRegionAvail().x / 3.0f;
  struct Tile {
    const char* name;
    double error;
    const char* meaning;
  };
  const std::array<Tile, 3> tiles{Tile{"total", total_error(error), kTotal},
                                  Tile{"local", local_error(error), kLocal},
                                  Tile{"inherited", error.inherited, kInherited}};
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (i > 0) ImGui::SameLine(left + each * static_cast<float>(i));
    ImGui::BeginGroup();
    const Tile& tile = tiles[i];
    label(fmt::format("lanes/{}/label", tile.name), std::string(tile.name) + " error",
          frame.fonts.small, frame.theme.soft, each - 6.0f * frame.scale);
    label(fmt::format("lanes/{}", tile.name),
          i == 0 ? total_text(tile.error) : error_text(tile.error), frame.fonts.bold,
          frame.theme.ink, each - 6.0f * frame.scale);
    ImGui::EndGroup();
    ui::tip(tile.meaning);
  }
  if (site.role == Role::activation && error.sign_flips > 0) {
    label("lanes/flips",
          fmt::format("{} sign flips, {} of the elements", grouped(error.sign_flips),
                      percent(share(error.sign_flips, error.n))),
          frame.fonts.small, frame.theme.warn);
    ui::tip(
        "Elements that are positive in one lane but not in the other. After a ReLU, only one of "
        "the two passes its gradient.");
  }
}

/// Draws one line on the lane's kernel if it was compared with the emulator.
void draw_kernel(const Frame& frame, int64_t step) {
  const KernelCheck* check = kernel_check(frame.run.view(), frame.at.lane, frame.at.site, step);
  if (check == nullptr) return;
  label("lanes/kernel", "Kernel: " + kernel_text(*check), frame.fonts.small,
        is_kernel_fault(*check) ? frame.theme.bad : frame.theme.soft);
  std::string tip =
      "The emulator ran this operator on the inputs that the kernel read, so any difference "
      "comes from the kernel.";
  if (!check->kernel.empty()) tip += "\n" + check->kernel;
  if (check->sampled > 0) {
    tip += fmt::format("\nOf {} sampled elements, {} are bit-identical when summed as {}.",
                       grouped(check->sampled), grouped(check->explained), check->order);
  }
  if (!check->unexplained.empty()) tip += "\nNo summation order was found: " + check->unexplained;
  ui::tip(tip.c_str());
}

void draw_first(const Frame& frame, const LaneErrors& errors) {
  const SiteError* first = errors.first_differing();
  if (first == nullptr) {
    label("lanes/first/none", "All compared tensors are equal at this step.", frame.fonts.small,
          frame.theme.good);
    return;
  }
  const SiteInfo& site = frame.lane_info().sites[static_cast<size_t>(first->site)];
  ImGui::AlignTextToFramePadding();
  label("lanes/first/label", "First difference", frame.fonts.small, frame.theme.soft);
  ImGui::SameLine();
  const std::string name =
      fitted(site.name(), frame.fonts.text, ImGui::GetContentRegionAvail().x - 20.0f * frame.scale);
  if (ui::button("lanes/first", name.c_str())) frame.select_site(first->site);
  ui::tip(
      "The first tensor in execution order that differs between the lanes. Click to select it.");
}

/// The logarithmic axis of errors, the same for all lanes and layers so that they can be compared.
/// Values outside are drawn at its ends.
struct Decades {
  static constexpr double low = -8.0, high = 1.0;
  static float part(double value) {
    if (!(value > 0.0)) return 0.0f;
    if (!std::isfinite(value)) return 1.0f;
    return static_cast<float>(std::clamp((std::log10(value) - low) / (high - low), 0.02, 1.0));
  }
};

/// Returns "2.0e-4", or the share of NaN and infinities: "20% NaN/Inf".
std::string depth_text(const DepthError& layer) {
  if (layer.not_finite == 0) return total_text(layer.total);
  return percent(share(layer.not_finite, layer.n)) + " NaN/Inf";
}

void draw_depth_row(const Frame& frame, const DepthError& layer, float name_width,
                    float number_width, float height) {
  const float s = frame.scale;
  ImFont* font = frame.fonts.small;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  ImGui::PushID(layer.site);
  const bool clicked = ImGui::InvisibleButton("##row", {width, height});
  ImGui::PopID();
  track_item("lanes/depth/" + layer.layer, depth_text(layer));
  if (clicked) frame.select_site(layer.site);
  const bool hovered = ImGui::IsItemHovered();
  if (hovered) frame.view.hovered_layer = layer.layer;
  Canvas canvas(frame.picture);
  const ImVec2 max{at.x + width, at.y + height};
  const bool selected =
      frame.picture == nullptr && frame.layer() != nullptr && frame.layer()->path == layer.layer;
  if (selected || hovered || frame.view.lit_layer == layer.layer) {
    canvas.fill(at, max, selected ? frame.theme.selection : with_alpha(frame.theme.ink, 0.06f),
                3.0f * s);
  }
  const float text_y = std::round(at.y + (height - font_size(*font)) / 2);
  canvas.text(*font, {at.x + 4.0f * s, text_y}, selected ? frame.theme.ink : frame.theme.soft,
              fitted(layer.layer, font, name_width - 8.0f * s));
  const std::string number = depth_text(layer);
  const bool finite = std::isfinite(layer.total) && layer.not_finite == 0;
  canvas.text(*font, {max.x - text_width(font, number) - 4.0f * s, text_y},
              finite ? frame.theme.ink : frame.theme.bad, number);

  const float left = at.x + name_width, right = max.x - number_width - 4.0f * s;
  if (right <= left) return;
  const float middle = std::round((at.y + max.y) / 2);
  const Axis values{.scale = AxisScale::log10,
                    .low = std::pow(10.0, Decades::low),
                    .high = std::pow(10.0, Decades::high),
                    .from = left,
                    .to = right};
  canvas.begin_group("lanes/depth/" + layer.layer, &values);
  // The total as a pale bar, and in it the layer's local error.
  const float full = finite ? Decades::part(layer.total) : 1.0f;
  const ImU32 pale =
      finite ? with_alpha(frame.theme.outline, 0.35f) : with_alpha(frame.theme.bad, 0.45f);
  if (full > 0.0f) {
    canvas.fill({left, middle - 5.0f * s}, {left + (right - left) * full, middle + 5.0f * s}, pale,
                2.0f * s);
  }
  if (layer.local > 0.0) {
    canvas.fill({left, middle - 2.0f * s},
                {left + (right - left) * Decades::part(layer.local), middle + 2.0f * s},
                frame.theme.lost, s);
  }
  canvas.end_group();
  if (hovered) {
    ui::tip(fmt::format("{}\ntotal error {}\nlocal error {}\ninherited error {}\n{} of {} values "
                        "are NaN or Inf in one lane only\n\nClick to select.",
                        layer.layer, total_text(layer.total), error_text(layer.local),
                        error_text(layer.inherited), grouped(layer.not_finite), grouped(layer.n))
                .c_str());
  }
}

std::string key_text() {
  return fmt::format("grey: total, orange: local, red: NaN/Inf; 1e{:.0f} to {:.0f}", Decades::low,
                     std::pow(10.0, Decades::high));
}

float numbers_width(const Frame& frame, const std::vector<DepthError>& layers) {
  float width = 48.0f * frame.scale;
  for (const DepthError& layer : layers) {
    width = std::max(width, text_width(frame.fonts.small, depth_text(layer)));
  }
  return width + 4.0f * frame.scale;
}

float names_width(const Frame& frame, const std::vector<DepthError>& layers) {
  float name_width = 40.0f * frame.scale;
  for (const DepthError& layer : layers) {
    name_width =
        std::max(name_width, text_width(frame.fonts.small, layer.layer) + 12.0f * frame.scale);
  }
  return std::min(name_width, ImGui::GetContentRegionAvail().x * 0.36f);
}

void draw_depth(const Frame& frame, const LaneErrors& errors, Role role) {
  const std::vector<DepthError> layers = errors.by_depth(frame.run.view(), frame.lane(), role);
  if (layers.empty()) return;
  const float s = frame.scale;
  ImGui::Dummy({0, 2.0f * s});
  label("lanes/depth/title", "Error by depth", frame.fonts.bold, frame.theme.ink);
  ImGui::SameLine();
  label("lanes/depth/key", key_text(), frame.fonts.small, frame.theme.soft);
  ui::tip(
      "Layers in forward order, on a logarithmic axis that is the same for all lanes. If grey is "
      "much longer than orange, the error came in with the inputs. If both are about equal, the "
      "layer itself causes it.");
  const float name_width = names_width(frame, layers);
  const float number_width = numbers_width(frame, layers);
  const float height = std::round(font_size(*frame.fonts.small) + 6.0f * s);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(layers.size()), height);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      draw_depth_row(frame, layers[static_cast<size_t>(i)], name_width, number_width, height);
    }
  }
  ImGui::PopStyleVar();
}

/// Returns the lane to compare with: the selected one, else the first that was compared.
int other_lane_of(const Frame& frame, const std::vector<int>& others) {
  const bool compared =
      std::find(others.begin(), others.end(), frame.at.other_lane) != others.end();
  return compared ? frame.at.other_lane : others.front();
}

/// Returns the role that "error by depth" shows: a gradient's own role, else activations.
Role depth_role(const SiteInfo* site, const SiteError* error) {
  const bool gradient = error != nullptr && site->phase == Phase::backward;
  return gradient ? site->role : Role::activation;
}

std::optional<LaneErrors> errors_of(const Frame& frame) {
  if (frame.at.lane < 0) return std::nullopt;
  const std::vector<int> others = LaneErrors::others(frame.run.view(), frame.at.lane);
  if (others.empty()) return std::nullopt;
  return LaneErrors::nearest(frame.run.view(), frame.at.lane, other_lane_of(frame, others),
                             frame.at.step);
}

std::string lanes_text(const Frame& frame, const LaneErrors& errors) {
  const std::vector<int> others = LaneErrors::others(frame.run.view(), frame.at.lane);
  return fmt::format("{} and {} at step {}", frame.lane_info().name,
                     frame.run.view().lane(other_lane_of(frame, others)).name, errors.step());
}

}  // namespace

bool picture_distances(const Frame& frame) {
  const std::optional<LaneErrors> errors = errors_of(frame);
  const SiteError* error = errors && frame.at.site >= 0 ? errors->find(frame.at.site) : nullptr;
  if (error == nullptr) return false;
  picture_text(frame, "Relative differences of " + frame.site_info()->name(), true);
  draw_distances(frame, *error, not_finite_in_one(frame.run.view(), frame.at.lane, *error));
  picture_text(frame, lanes_text(frame, *errors));
  return true;
}

bool picture_errors(const Frame& frame) {
  const std::optional<LaneErrors> errors = errors_of(frame);
  if (!errors) return false;
  const SiteInfo* site = frame.site_info();
  const SiteError* error = site == nullptr ? nullptr : errors->find(frame.at.site);
  const std::vector<DepthError> layers =
      errors->by_depth(frame.run.view(), frame.lane(), depth_role(site, error));
  if (layers.empty()) return false;
  picture_text(frame, "Error by depth, " + lanes_text(frame, *errors), true);
  picture_text(frame, key_text());
  const float height = std::round(font_size(*frame.fonts.small) + 6.0f * frame.scale);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
  const float name_width = names_width(frame, layers);
  const float number_width = numbers_width(frame, layers);
  for (const DepthError& layer : layers) {
    draw_depth_row(frame, layer, name_width, number_width, height);
  }
  ImGui::PopStyleVar();
  return true;
}

void draw_lanes(const Frame& frame) {
  ValuesRoom& room = frame.caches.get<ValuesRoom>();
  room.others = 0.0f;
  if (frame.at.lane < 0) {
    empty_note("lanes/empty", "This run has no lanes.", frame.theme);
    return;
  }
  const RunView& run = frame.run.view();
  const std::vector<int> others = LaneErrors::others(run, frame.at.lane);
  if (others.empty()) {
    draw_nothing(frame);
    return;
  }
  const int other = other_lane_of(frame, others);
  const std::optional<LaneErrors> errors =
      LaneErrors::nearest(run, frame.at.lane, other, frame.at.step);
  if (!errors) {
    empty_note("lanes/empty", "These lanes were not compared near this step.", frame.theme);
    return;
  }
  draw_head(frame, others, other, errors->step());
  const SiteInfo* site = frame.site_info();
  const SiteError* error = site == nullptr ? nullptr : errors->find(frame.at.site);
  if (error != nullptr) {
    const int64_t not_finite = not_finite_in_one(run, frame.at.lane, *error);
    draw_distances(frame, *error, not_finite);
    room.others = ImGui::GetCursorPosY() - ImGui::GetStyle().ItemSpacing.y - room.bars;
    draw_facts(frame, *error, *site, not_finite);
    draw_kernel(frame, errors->step());
  } else {
    empty_note("lanes/empty",
               site == nullptr
                   ? "Select a tensor to compare it with the other lane."
                   : fmt::format("{} was not compared: only tensors that both lanes have before "
                                 "the update are.",
                                 site->name()),
               frame.theme);
  }
  draw_first(frame, *errors);
  draw_depth(frame, *errors, depth_role(site, error));
}

}  // namespace halfscope::gui
