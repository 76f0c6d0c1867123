// SPDX-License-Identifier: MIT
// Bookmarks: places that a user wants to find again. A key adds or removes one; they are saved with
// the view of the run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/number_text.h"
#include "gui/app/app.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// "conv2.activation, mixed_float16, Overflow, step 12, showing steps 10 to 30".
std::string name_of(const Place& place) {
  std::string name = !place.site.empty() ? place.site : place.layer;
  const auto add = [&name](const std::string& more) {
    if (!more.empty()) name += (name.empty() ? "" : ", ") + more;
  };
  add(place.lane);
  add(metric_name(place.metric));
  add(place.cursor >= 0 ? "step " + grouped(place.cursor) : "last step");
  if (!place.range.all()) {
    add("showing " + steps_text(static_cast<int64_t>(std::lround(place.range.first)),
                                static_cast<int64_t>(std::lround(place.range.last))));
  }
  return name;
}

}  // namespace

Place App::here() const {
  Place place = view_;
  const Selection at = selection();
  if (at.lane < 0) return place;
  // Store names even for defaults: the default may be another lane or tensor later.
  place.lane = run_->view().lane(at.lane).name;
  if (at.site >= 0) {
    const SiteInfo& site = run_->view().lane(at.lane).sites[static_cast<size_t>(at.site)];
    place.layer = site.path;
    place.site = site.name();
  }
  return place;
}

void App::toggle_bookmark() {
  if (!run_) return;
  const Place place = here();
  const auto found = std::find_if(view_.bookmarks.begin(), view_.bookmarks.end(),
                                  [&](const Bookmark& each) { return each.place == place; });
  if (found != view_.bookmarks.end()) {
    notify("Bookmark removed: " + found->name);
    view_.bookmarks.erase(found);
    return;
  }
  view_.bookmarks.push_back({.name = name_of(place), .place = place});
  notify("Bookmark added: " + view_.bookmarks.back().name);
}

void App::go_to_bookmark(size_t index) {
  if (index < view_.bookmarks.size()) static_cast<Place&>(view_) = view_.bookmarks[index].place;
}

void App::next_bookmark(int direction) {
  if (view_.bookmarks.empty()) {
    notify("No bookmarks yet. Press B to add one.");
    return;
  }
  const Place place = here();
  const size_t count = view_.bookmarks.size();
  size_t at = direction > 0 ? count - 1 : 0;  // elsewhere: on to the first, or back to the last
  for (size_t i = 0; i < count; ++i) {
    if (view_.bookmarks[i].place == place) at = i;
  }
  go_to_bookmark(direction > 0 ? (at + 1) % count : (at + count - 1) % count);
}

void App::draw_bookmarks() {
  bool opens = !focus_popup_;
  const float width = std::min(620 * scale(), ImGui::GetIO().DisplaySize.x * 0.92f);
  if (!run_ || !begin_popup("bookmarks", {width, 0}, opens)) return close_popup();
  focus_popup_ = true;
  ImGui::PushFont(fonts_.bold);
  ui::text("bookmarks/title", "Bookmarks");
  ImGui::PopFont();
  if (view_.bookmarks.empty()) {
    ImGui::TextDisabled("No bookmarks yet. Press B to keep the current lane, tensor and steps.");
  }
  const Place place = here();
  bool done = false;
  size_t removed = view_.bookmarks.size();
  for (size_t i = 0; i < view_.bookmarks.size(); ++i) {
    const Bookmark& each = view_.bookmarks[i];
    ImGui::PushID(static_cast<int>(i));
    if (ui::small_button(fmt::format("bookmarks/{}/remove", i), "x")) removed = i;
    ui::tip("Removes this bookmark.");
    ImGui::SameLine();
    const bool chosen =
        ui::selectable(fmt::format("bookmarks/{}", i), each.name.c_str(), each.place == place);
    // The first nine by their digits.
    const bool digit = i < 9 && key_pressed(symbol_key(static_cast<char>('1' + i)));
    if (chosen || digit) {
      go_to_bookmark(i);
      done = true;
    }
    ImGui::PopID();
    if (done) break;
  }
  if (removed < view_.bookmarks.size()) {
    view_.bookmarks.erase(view_.bookmarks.begin() + static_cast<std::ptrdiff_t>(removed));
  }
  if (done) {
    ImGui::CloseCurrentPopup();
    close_popup();
  }
  ImGui::EndPopup();
}

}  // namespace halfscope::gui
