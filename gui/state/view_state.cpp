// SPDX-License-Identifier: MIT
// Functions on plain values; nothing here draws.
#include "gui/state/view_state.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/plan/plan.h"

namespace halfscope::gui {
namespace {

constexpr size_t kHistory = 200;

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

const char* tab_name(Tab tab) noexcept {
  constexpr const char* kNames[] = {
#define HALFSCOPE_TAB(panel, name, title, shorter) name,
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB
  };
  return kNames[static_cast<size_t>(tab)];
}

const char* screen_name(Screen screen) noexcept {
  return screen == Screen::spectrum ? "spectrum" : "details";
}

const char* layer_order_name(LayerOrder order) noexcept {
  switch (order) {
    case LayerOrder::execution:
      return "execution";
    case LayerOrder::severity:
      return "severity";
    case LayerOrder::name:
      return "name";
  }
  return "";
}

void ViewState::begin_frame() {
  lit_layer = std::move(hovered_layer);
  lit_site = std::move(hovered_site);
  lit_step = hovered_step;
  hovered_layer.clear();
  hovered_site.clear();
  hovered_step = -1;
}

const std::string& note_on(const ViewState& view, int64_t step) {
  static const std::string kNone;
  const auto found = std::find_if(view.notes.begin(), view.notes.end(),
                                  [step](const Note& note) { return note.step == step; });
  return found == view.notes.end() ? kNone : found->text;
}

void set_note(ViewState& view, int64_t step, const std::string& text) {
  std::erase_if(view.notes, [step](const Note& note) { return note.step == step; });
  if (text.empty()) return;
  const auto after = std::find_if(view.notes.begin(), view.notes.end(),
                                  [step](const Note& note) { return note.step > step; });
  view.notes.insert(after, {step, text});
}

void History::note(const Place& place) {
  if (!places_.empty() && places_[at_] == place) return;
  if (!places_.empty()) places_.resize(at_ + 1);
  places_.push_back(place);
  if (places_.size() > kHistory) places_.erase(places_.begin());
  at_ = places_.size() - 1;
}

void History::back(Place& place) {
  if (can_go_back()) place = places_[--at_];
}

void History::forward(Place& place) {
  if (can_go_forward()) place = places_[++at_];
}

bool passes_filter(const std::string& name, const std::string& filter) {
  if (filter.empty()) return true;
  const std::string text = lower_case(name), wanted = lower_case(filter);
  if (wanted.find_first_of("*?") != std::string::npos) return glob_match(wanted, text);
  return text.find(wanted) != std::string::npos;
}

}  // namespace halfscope::gui
