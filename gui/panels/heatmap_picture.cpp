// SPDX-License-Identifier: MIT
#include "gui/panels/heatmap_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kLeastTint = 0.10f;  // makes tiny shares differ from zero
constexpr double kDimmed = 0.66;     // towards the ground: tensors that only pass NaN on

ImU32 tint(const Theme& theme, const HeatRange& range, double level) {
  const double shown = kLeastTint + (1.0 - kLeastTint) * std::clamp(range.place(level), 0.0, 1.0);
  // Reverse the scale on a light background, so that the worst contrasts most.
  return heat_color(theme.dark ? shown : 1.0 - shown);
}

struct Picture {
  std::weak_ptr<const RunView> view{};
  const Textures* textures = nullptr;
  int lane = -1;
  Metric metric = Metric::worst;
  RoleView role = RoleView::all;
  bool dark = true;
  HeatRange range{};
  std::vector<HeatRow> rows{};
  Axis x{};
  RowPixels pixels{};
  ImTextureID texture{};

  bool same(const Picture& other) const {
    return !view.owner_before(other.view) && !other.view.owner_before(view) &&
           textures == other.textures && lane == other.lane && metric == other.metric &&
           role == other.role && dark == other.dark && range == other.range && rows == other.rows &&
           x == other.x && pixels == other.pixels;
  }
};

struct Pixels {
  std::vector<ImU32> list{};  ///< a few megabytes that every picture needs
};
/// Returns whether NaN and infinities are striped.
bool marks_spread(Metric metric) noexcept {
  return metric == Metric::worst || metric == Metric::non_finite;
}

void paint(const Frame& frame, Picture& key) {
  const auto width = static_cast<size_t>(key.x.pixels());
  const auto height = static_cast<size_t>(std::lround(key.pixels.used));
  if (width == 0 || height == 0) return;
  const bool marks = marks_spread(key.metric);
  // Compute only visible rows.
  const auto first = static_cast<size_t>(key.pixels.scroll / key.pixels.height);
  const auto last = std::min(
      key.rows.size(),
      static_cast<size_t>(std::ceil((key.pixels.scroll + key.pixels.used) / key.pixels.height)));
  const HeatPicture heat = make_heat_picture(frame.run, key.lane, key.metric, key.role,
                                             std::span(key.rows).subspan(first, last - first),
                                             key.x.low, key.x.high, width);
  const Theme& theme = frame.theme;
  std::array<ImU32, 256> colors{}, dimmed{};
  for (size_t i = 0; i < colors.size(); ++i) {
    colors[i] = tint(theme, key.range, heat_level(static_cast<Heat>(i)));
    dimmed[i] = mix(colors[i], theme.plot, kDimmed);
  }
  colors[kZeroHeat] = colors[kNotMeasured] = theme.plot;
  dimmed[kZeroHeat] = dimmed[kNotMeasured] = theme.plot;
  const ImU32 start_stripe = theme.bad, pass_stripe = mix(theme.bad, theme.plot, kDimmed);
  std::vector<ImU32>& pixels = frame.caches.get<Pixels>().list;
  pixels.resize(width * height);
  // Work in tiles, since cells are stored by column and pixels by line.
  constexpr size_t kTile = 64;
  for (size_t left = 0; left < width; left += kTile) {
    const size_t right = std::min(width, left + kTile);
    for (size_t y = 0; y < height; ++y) {
      const double place = static_cast<double>(y) + key.pixels.scroll;
      const auto row = std::min(static_cast<size_t>(place / key.pixels.height), last - 1);
      ImU32* line = pixels.data() + y * width;
      const bool hair = key.pixels.height >= kSeparatedRow &&
                        place + 1.0 >= static_cast<double>(row + 1) * key.pixels.height;
      for (size_t x = left; x < right; ++x) {
        const Heat value = heat.heat(row - first, x);
        const Spread spread = heat.spread_at(row - first, x);
        ImU32 color = spread == Spread::passes ? dimmed[value] : colors[value];
        const size_t place_in_stripe = (x + y) % 8;
        if (marks && spread == Spread::starts && place_in_stripe < 4) {
          // A dark edge keeps the stripe visible on a cell of the same red.
          color = place_in_stripe < 3 ? start_stripe : theme.plot;
        }
        if (marks && spread == Spread::passes && place_in_stripe < 1) color = pass_stripe;
        if (value == kNotMeasured && (x + y) % 6 == 0) color = theme.axis;
        line[x] = hair ? theme.plot : color;
      }
    }
  }
  key.texture =
      frame.textures.update("heatmap", static_cast<int>(width), static_cast<int>(height), pixels);
}

/// Returns "12%" or, with two digits that count, "1 in 4,400".
std::string rate_text(double share) {
  if (share >= 0.01) return percent(share);
  const double unit = std::pow(10.0, std::floor(-std::log10(share)) - 1.0);
  return "1 in " + grouped(std::llround(std::round(1.0 / share / unit) * unit));
}

/// Draws the handles of the colour bar, which set the rates that the colours tell apart. Returns
/// whether one of them is in use.
bool draw_handles(const Frame& frame, ImVec2 min, ImVec2 max) {
  const PlotLook look = look_of(frame);
  HeatRange& range = frame.view.heat;
  const float height = max.y - min.y, size = look.px(5.0f);
  constexpr double kLeastSpan = 0.05;
  bool in_use = false;
  for (const bool is_high : {false, true}) {
    double& level = is_high ? range.high : range.low;
    const float y = min.y + height * static_cast<float>(1.0 - level);
    const char* path = is_high ? "steps/colors/high" : "steps/colors/low";
    ImGui::SetCursorScreenPos({min.x - size, y - size});
    ImGui::PushID(path);
    ImGui::InvisibleButton("##handle", {max.x - min.x + size, 2.0f * size});
    ImGui::PopID();
    track_item(path, rate_text(heat_share(level)));
    const bool hot = ImGui::IsItemHovered() || ImGui::IsItemActive();
    if (hot) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeNS);
    if (ImGui::IsItemActive() && ImGui::GetIO().MouseDelta.y != 0.0f) {
      const double wanted = 1.0 - static_cast<double>((ImGui::GetIO().MousePos.y - min.y) / height);
      level = is_high ? std::clamp(wanted, range.low + kLeastSpan, 1.0)
                      : std::clamp(wanted, 0.0, range.high - kLeastSpan);
    }
    if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(0)) range = {};
    ImGui::GetWindowDrawList()->AddTriangleFilled({min.x - size, y - size}, {min.x, y},
                                                  {min.x - size, y + size},
                                                  hot ? frame.theme.accent : frame.theme.soft);
    if (!hot) continue;
    in_use = true;
    ImGui::BeginTooltip();
    ui::text("steps/colors/rate", (is_high ? "Top of the colours: " : "Bottom of the colours: ") +
                                      rate_text(heat_share(level)));
    ImGui::EndTooltip();
  }
  return in_use;
}

}  // namespace

ImTextureID heatmap_texture(const Frame& frame, const std::vector<HeatRow>& rows, const Axis& x,
                            const RowPixels& pixels) {
  Picture& picture = frame.caches.get<Picture>();
  Picture now{.view = frame.run.shared_view(),
              .textures = &frame.textures,
              .lane = frame.at.lane,
              .metric = frame.view.metric,
              .role = frame.view.role,
              .dark = frame.theme.dark,
              .range = frame.view.heat,
              .rows = rows,
              .x = x,
              .pixels = pixels};
  if (!picture.same(now)) {
    paint(frame, now);
    picture = std::move(now);
  }
  return picture.texture;
}

void draw_color_bar(const Frame& frame, const StepArea& area) {
  const PlotLook look = look_of(frame);
  ImFont& font = *frame.fonts.small;
  Canvas canvas(frame.picture);
  const float x = area.max.x + look.px(8.0f), width = look.px(8.0f), box = look.px(10.0f);
  // Below the colours: zero and, for metrics that mark them, both kinds of stripes. Low or narrow
  // plots get shorter texts; the tooltip has the rest.
  const bool marks = marks_spread(frame.view.metric);
  const float line = std::max(font_size(font), box) + look.px(3.0f);
  const float most = std::min(area.max.y - area.min.y, look.px(240.0f));
  const bool low = most - 4.0f * line < look.px(60.0f);
  const bool narrow =
      text_size(font, "starts here").x > area.outer_max.x - x - width - look.px(4.0f);
  const bool brief = low || narrow;  // one line each
  const float legend = (marks ? (brief ? 3.0f : 4.0f) : 1.0f) * line + look.px(4.0f);
  const float bottom = area.min.y + most - legend;
  if (bottom - area.min.y < look.px(48.0f)) return;
  constexpr int kParts = 24;
  const float height = bottom - area.min.y;
  for (int part = 0; part < kParts; ++part) {
    const double high = 1.0 - static_cast<double>(part) / kParts;
    const ImU32 above = tint(frame.theme, frame.view.heat, high);
    const ImU32 below = tint(frame.theme, frame.view.heat, high - 1.0 / kParts);
    canvas.gradient({x, area.min.y + height * static_cast<float>(part) / kParts},
                    {x + width, area.min.y + height * static_cast<float>(part + 1) / kParts}, above,
                    below);
  }
  const auto label = [&](float y, const char* text) {
    canvas.text(font, {x + width + look.px(4.0f), y - font_size(font) / 2.0f}, frame.theme.soft,
                text);
  };
  const bool handled =
      frame.picture == nullptr && draw_handles(frame, {x, area.min.y}, {x + width, bottom});
  const bool unicode = frame.fonts.unicode;
  label(area.min.y + font_size(font) / 2.0f - 1.0f, "100%");
  label(area.min.y + height / 3.0f, "1%");
  label(area.min.y + height * 2.0f / 3.0f, unicode ? "10\u207b\u2074" : "1e-4");
  label(bottom - look.px(4.0f), unicode ? "10\u207b\u2076" : "1e-6");
  const float zero = std::round(bottom + look.px(4.0f));
  canvas.fill({x, zero}, {x + width, zero + box}, frame.theme.plot);
  canvas.outline({x, zero}, {x + width, zero + box}, frame.theme.axis);
  label(zero + box / 2.0f, "0");
  float end = zero + box;
  if (marks) {
    float top = zero + line;
    const auto striped = [&](const char* path, const std::vector<const char*>& words, ImU32 color,
                             float line_width) {
      const float first = top;
      std::string all;
      end = top + box;
      canvas.push_clip({x, top}, {x + width, end});
      canvas.fill({x, top}, {x + width, end}, frame.theme.plot);
      for (float stripe = x - box; stripe < x + width; stripe += look.px(5.0f)) {
        canvas.line({stripe, end}, {stripe + box, top}, color, line_width);
      }
      canvas.pop_clip();
      float widest = 0.0f;
      for (const char* each : words) {
        label(top + box / 2.0f, each);
        widest = std::max(widest, text_size(font, each).x);
        all += (all.empty() ? "" : " ") + std::string(each);
        end = top + box;
        top += line;
      }
      track_rect(path, {x, first}, {x + width + look.px(4.0f) + widest, end}, all);
    };
    const char* const start = narrow ? "starts" : "starts here";
    striped("steps/colors/starts",
            brief ? std::vector<const char*>{start} : std::vector<const char*>{"NaN/Inf", start},
            frame.theme.bad, look.px(2.2f));
    striped("steps/colors/passed", {narrow ? "passed" : "passed on"},
            mix(frame.theme.bad, frame.theme.plot, kDimmed), look.px(1.2f));
  }
  track_rect("steps/colors", {x, area.min.y}, {area.outer_max.x, end});
  if (frame.picture == nullptr && !handled &&
      ImGui::IsMouseHoveringRect({x, area.min.y}, {area.outer_max.x, end})) {
    std::string tip = metric_meaning(frame.view.metric);
    const int reference = frame.run.reference_of(frame.at.lane);
    if (reference >= 0) {
      tip += "\n\nThe share of the same tensor in lane " + frame.run.view().lane(reference).name +
             " at the same step is subtracted.";
    }
    tip += "\n\nDrag the handles to tell other rates apart; double-click resets them.";
    tip +=
        "\n\nStripes: NaN or Inf starts here, computed from finite values.\nDimmed stripes: NaN "
        "or Inf is passed on from an input.";
    ImGui::BeginTooltip();
    ImGui::PushTextWrapPos(ImGui::GetFontSize() * 26.0f);
    ui::text("steps/colors/tip", tip);
    ImGui::PopTextWrapPos();
    ImGui::EndTooltip();
  }
}

}  // namespace halfscope::gui
