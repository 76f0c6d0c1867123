// SPDX-License-Identifier: MIT
// The selected tensor over time: a picture of exponents over steps, with the limits of the format.
#include "gui/data/tensor_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/panels/spectrum.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr int kRoom = 2;          ///< exponents above and below the values
constexpr int kFarEdge = 10;      ///< a limit further away is not shown
constexpr size_t kWidest = 1024;  ///< pixels of the picture

/// The picture of a tensor and its source.
struct HistoryPicture {
  TensorHistory history{};
  int generation = -1;
  std::string format{};
  bool dark = true;
  int64_t steps = 0;
  int low = 0, high = 0;  ///< exponents of the lowest and highest row
  ImTextureID texture{};
};

ImU32 color_of(const Theme& theme, const ExponentWindow& window, int exponent) {
  const double middle = exponent + 0.5;
  if (middle < window.flush || middle > window.overflow) return theme.lost;
  return middle < window.normal ? theme.subnormal : theme.in_range;
}

void paint(const Frame& frame, HistoryPicture& picture, const ExponentWindow& window) {
  const TensorHistory& history = picture.history;
  picture.low = history.low() - kRoom;
  picture.high = history.high() + kRoom;
  const int flush = static_cast<int>(std::floor(window.flush)) - 1;
  const int overflow = static_cast<int>(std::ceil(window.overflow)) + 1;
  if (flush < picture.low && picture.low - flush < kFarEdge) picture.low = flush;
  if (overflow > picture.high && overflow - picture.high < kFarEdge) picture.high = overflow;
  const auto height = static_cast<size_t>(picture.high - picture.low + 1);
  const auto steps = static_cast<size_t>(std::max<int64_t>(picture.steps, 1));
  const size_t width = std::min(steps, kWidest);
  // The worst of the steps in a pixel column is shown, so that no single step vanishes.
  std::vector<float> shares(width * height, -1.0f);
  for (const TensorHistory::Moment& moment : history.moments()) {
    const auto column_of = [&](int64_t step) {
      return std::min(width - 1, static_cast<size_t>(step) * width / steps);
    };
    for (size_t x = column_of(moment.step); x <= column_of(moment.step + moment.step_count - 1);
         ++x) {
      for (size_t y = 0; y < height; ++y)
        shares[y * width + x] = std::max(shares[y * width + x], 0.0f);
      for (size_t i = 0; i < moment.shares.size(); ++i) {
        const auto y = static_cast<size_t>(picture.high - (moment.low + static_cast<int>(i)));
        shares[y * width + x] = std::max(shares[y * width + x], moment.shares[i]);
      }
    }
  }
  std::vector<ImU32> pixels(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    const int exponent = picture.high - static_cast<int>(i / width);
    const ImU32 color = color_of(frame.theme, window, exponent);
    const ImU32 ground = mix(frame.theme.plot, color, 0.10);
    pixels[i] = shares[i] < 0.0f ? frame.theme.plot
                                 : mix(ground, color, std::sqrt(static_cast<double>(shares[i])));
  }
  picture.texture = frame.textures.update("tensor history", static_cast<int>(width),
                                          static_cast<int>(height), pixels);
}

/// The share of every exponent, of the step at the cursor or of all visible steps.
std::vector<double> shares_of(const Frame& frame, const HistoryPicture& picture) {
  std::vector<double> shares(static_cast<size_t>(picture.high - picture.low + 1), 0.0);
  double steps = 0.0;
  const StepRange& range = frame.view.range;
  for (const TensorHistory::Moment& moment : picture.history.moments()) {
    const double first = static_cast<double>(moment.step);
    const double last = static_cast<double>(moment.step + moment.step_count - 1);
    const double here = static_cast<double>(frame.at.step);
    const bool counts = frame.view.merge_steps ? range.all() || (last >= std::floor(range.first) &&
                                                                 first <= std::ceil(range.last))
                                               : here >= first && here <= last;
    if (!counts) continue;
    const auto weight = static_cast<double>(moment.step_count);
    steps += weight;
    for (size_t i = 0; i < moment.shares.size(); ++i) {
      shares[static_cast<size_t>(moment.low - picture.low) + i] +=
          weight * static_cast<double>(moment.shares[i]);
    }
  }
  for (double& share : shares) share /= std::max(steps, 1.0);
  return shares;
}

/// Draws the histogram beside the picture, on the same axis: bars from `left` to `right`.
void draw_shares(const Frame& frame, Canvas& canvas, const HistoryPicture& picture,
                 const ExponentWindow& window, const Axis& axis, float left, float right) {
  const std::vector<double> shares = shares_of(frame, picture);
  const double most = *std::max_element(shares.begin(), shares.end());
  if (!(most > 0.0)) return;
  std::string text;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (!(shares[i] > 0.0)) continue;
    const int exponent = picture.low + static_cast<int>(i);
    const float top = axis.pixel(exponent + 1), bottom = axis.pixel(exponent);
    const float length = static_cast<float>(shares[i] / most) * (right - left);
    canvas.fill({left, top + 0.5f},
                {left + std::max(length, 1.0f), std::max(bottom - 0.5f, top + 1.0f)},
                color_of(frame.theme, window, exponent));
    if (tracker() != nullptr) text += fmt::format("{}:{:.4f} ", exponent, shares[i]);
  }
  track_rect("history/shares", {left, axis.to}, {right, axis.from}, text);
}

constexpr float kSharesWidth = 56.0f;  ///< of the histogram beside the picture

}  // namespace

void draw_tensor_history(const Frame& frame) {
  const float unit = frame.scale;
  int shown = frame.at.site;
  if (shown < 0) shown = spectrum_rows(frame).worst_site();
  if (shown < 0) {
    return empty_note("history/empty", "Click a row of the spectrum to see its tensor over time.",
                      frame.theme);
  }
  const SiteInfo* site = &frame.lane_info().sites[static_cast<size_t>(shown)];
  HistoryPicture& picture = frame.caches.get<HistoryPicture>();
  picture.history.update(frame.run.shared_view(), frame.at.lane, shown);
  const Lens lens = lens_of(frame.view);
  const FloatFormat& format = lens.format ? *lens.format : site->format;
  const ExponentWindow window = exponent_window(format);
  label("history/title", site->name(), frame.fonts.bold, frame.theme.ink);
  label("history/note", "exponents over steps, " + format_name(format), frame.fonts.small,
        frame.theme.soft);
  if (picture.history.empty()) {
    return empty_note("history/nothing", "No finite value other than zero was recorded.",
                      frame.theme);
  }
  const std::string name = format_name(format);
  if (picture.generation != picture.history.generation() || picture.format != name ||
      picture.dark != frame.theme.dark || picture.steps != frame.run.step_count()) {
    picture.generation = picture.history.generation();
    picture.format = name;
    picture.dark = frame.theme.dark;
    picture.steps = frame.run.step_count();
    paint(frame, picture, window);
  }
  ImFont& small = *frame.fonts.small;
  const float line = text_size(small, "0").y,
              left_room = text_size(small, "2^-140").x + 6.0f * unit;
  const ImVec2 at = ImGui::GetCursorScreenPos(), room = ImGui::GetContentRegionAvail();
  const ImVec2 min{at.x + left_room, at.y + 2.0f * unit};
  const float margin = room.x > 240.0f * unit ? (kSharesWidth + 8.0f) * unit : 0.0f;
  const ImVec2 max{at.x + room.x - margin,
                   at.y + std::max(room.y - line - 6.0f * unit, 40.0f * unit)};
  ImGui::SetCursorScreenPos(min);
  ImGui::PushID("history/picture");
  ImGui::InvisibleButton("##picture", {std::max(max.x - min.x, 8.0f), max.y - min.y});
  ImGui::PopID();
  track_item("history/picture", site->name());
  const double steps = static_cast<double>(std::max<int64_t>(picture.steps, 1));
  const double pointed =
      static_cast<double>((ImGui::GetIO().MousePos.x - min.x) / (max.x - min.x)) * steps;
  const auto under = std::clamp<int64_t>(static_cast<int64_t>(std::floor(pointed)), 0,
                                         std::max<int64_t>(picture.steps, 1) - 1);
  if (ImGui::IsItemActive()) {
    frame.view.cursor = under;
    frame.view.playing = false;
  }
  const Axis axis{.scale = AxisScale::exponent,
                  .low = static_cast<double>(picture.low),
                  .high = static_cast<double>(picture.high + 1),
                  .from = max.y,
                  .to = min.y};
  if (ImGui::IsItemHovered() && !ImGui::IsItemActive()) {
    frame.view.hovered_step = under;
    const int exponent = static_cast<int>(std::floor(axis.value(ImGui::GetIO().MousePos.y)));
    float share = 0.0f;
    for (const TensorHistory::Moment& moment : picture.history.moments()) {
      if (under < moment.step || under >= moment.step + moment.step_count) continue;
      const int bin = exponent - moment.low;
      if (bin >= 0 && bin < static_cast<int>(moment.shares.size()))
        share = moment.shares[static_cast<size_t>(bin)];
    }
    PlotTip tip("Step " + grouped(under));
    tip.row(fmt::format("2^{} to 2^{}", exponent, exponent + 1),
            percent(static_cast<double>(share)) + " of non-zero values");
    tip.show(look_of(frame), "history/tip");
  }
  Canvas canvas(frame.picture);
  canvas.image("tensor history", picture.texture, min, max);
  for (const Tick& tick : ticks_of(axis, 20.0 * static_cast<double>(unit), frame.fonts.unicode)) {
    const float y = axis.pixel(tick.value);
    const float width = text_size(small, tick.text).x;
    canvas.text(small, {min.x - width - 5.0f * unit, y - line / 2}, frame.theme.soft, tick.text);
  }
  for (const double edge : {window.flush, window.normal, window.overflow}) {
    if (edge <= axis.low || edge >= axis.high) continue;
    canvas.line({min.x, axis.pixel(edge)}, {max.x, axis.pixel(edge)},
                with_alpha(edge == window.normal ? frame.theme.subnormal : frame.theme.lost, 0.8f),
                unit);
  }
  if (margin > 0.0f) {
    const float left = max.x + 8.0f * unit;
    draw_shares(frame, canvas, picture, window, axis, left, left + kSharesWidth * unit);
    const std::string whose =
        frame.view.merge_steps ? std::string("visible steps") : "step " + grouped(frame.at.step);
    canvas.text(small, {at.x + room.x - text_size(small, whose).x, max.y + 3.0f * unit},
                frame.theme.soft, whose);
  }
  const float here =
      min.x +
      static_cast<float>((static_cast<double>(frame.at.step) + 0.5) / steps) * (max.x - min.x);
  canvas.line({here, min.y}, {here, max.y}, with_alpha(frame.theme.cursor, 0.85f), unit);
  canvas.text(small, {min.x, max.y + 3.0f * unit}, frame.theme.soft, "step 0");
  const std::string last = grouped(std::max<int64_t>(picture.steps, 1) - 1);
  const float last_right = margin > 0.0f ? max.x - 24.0f * unit : max.x;
  canvas.text(small, {last_right - text_size(small, last).x, max.y + 3.0f * unit}, frame.theme.soft,
              last);
}

}  // namespace halfscope::gui
