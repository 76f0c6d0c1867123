// SPDX-License-Identifier: MIT
// ViewState: everything a user has chosen, in one value. Panels read and edit it and know nothing
// of each other, so linked views come free, going back is keeping old values, and a test asserts
// on it. Layers and tensors go by name, which stays when a live run is read again.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/spectrum/spectrum.h"
#include "core/plan/plan_edit.h"
#include "gui/data/metric.h"

namespace halfscope::gui {

/// Steps `first` to `last`, both included. An empty range (last < first) means all steps.
struct StepRange {
  double first = 0.0, last = -1.0;
  bool all() const noexcept { return last < first; }
  friend bool operator==(const StepRange&, const StepRange&) = default;
};

enum class Tab : uint8_t {
#define HALFSCOPE_TAB(panel, name, title, shorter) panel,
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB
};
inline constexpr std::array kTabs{
#define HALFSCOPE_TAB(panel, name, title, shorter) Tab::panel,
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB
};
/// Returns the name in scripts and saved views: "recommendations", "details" ...
const char* tab_name(Tab tab) noexcept;

/// The two screens: the whole network as one picture, and panels for every detail.
enum class Screen : uint8_t { spectrum, details };
inline constexpr std::array<Screen, 2> kScreens{Screen::spectrum, Screen::details};
/// Returns the name in scripts and saved views: "spectrum" or "details".
const char* screen_name(Screen screen) noexcept;

enum class Region : uint8_t { none, layers, steps, values, tabs };

enum class LayerOrder : uint8_t { execution, severity, name };
inline constexpr std::array<LayerOrder, 3> kLayerOrders{LayerOrder::execution, LayerOrder::severity,
                                                        LayerOrder::name};
/// Returns the name in saved views: "execution", "severity" or "name".
const char* layer_order_name(LayerOrder order) noexcept;

/// The user's place in the run. Back and Forward move through these.
struct Place {
  std::string lane{}, other_lane{}, layer{}, site{};
  RoleView role = RoleView::all;
  Metric metric = Metric::worst;
  int64_t cursor = -1;  ///< a step; -1: the last one, also while it grows
  StepRange range{};
  Tab tab = Tab::recommendations;
  Screen screen = Screen::spectrum;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Bookmark {
  std::string name{};
  Place place{};
};

/// A remark of the user on a step.
struct Note {
  int64_t step = 0;
  std::string text{};
  friend bool operator==(const Note&, const Note&) = default;
};

/// Rates that the heatmap's colours tell apart, as levels from 0 (one in a million) to 1 (all).
struct HeatRange {
  double low = 0.0, high = 1.0;
  /// Returns where a level is between the lowest and the highest colour.
  double place(double level) const noexcept { return (level - low) / (high - low); }
  friend bool operator==(const HeatRange&, const HeatRange&) = default;
};

struct ViewState : Place {
  HeatRange heat{};
  bool tensor_rows = false;  ///< rows of the heatmap: tensors instead of layers
  LayerOrder order = LayerOrder::execution;
  std::string filter{};  ///< of layers: text they contain, or a glob
  std::string lens{};    ///< format the histogram is judged by; "": the tensor's own
  /// log2 of the factor between the loss scale that is tried out and the recorded one.
  double scale_shift = 0.0;
  bool whole_run = false;   ///< the histogram: all steps merged instead of those at the cursor
  bool log_counts = false;  ///< its counts on a logarithmic axis
  /// Planned changes to the selected lane. They have no effect until the plan is saved or tried.
  PlanEdit edits{};
  Region maximized = Region::none;
  std::vector<std::string> hidden_series{};  ///< paths of legend entries that are switched off
  bool unscaled = false;                     ///< magnitudes of gradients, without the loss scale
  bool try_scalers = false;                  ///< also the loss scalers of other frameworks
  std::string scaler{};  ///< the emphasised lane or scaler; "": the selected lane
  std::vector<Bookmark> bookmarks{};
  std::vector<Note> notes{};  ///< in the order of their steps, one per step
  double smoothing = 0.0;     ///< of the loss: weight of the steps before, see smoothed()
  /// Heatmap: height of a row as a multiple of the one that fits all, and rows above the first.
  double row_zoom = 1.0, row_scroll = 0.0;

  // Spectrum.
  std::vector<SpectrumChart> charts{SpectrumChart::activations, SpectrumChart::gradients};
  std::string window{};      ///< its lens: see parse_lens(); "": as recorded
  bool merge_steps = false;  ///< all visible steps instead of the one at the cursor
  std::vector<std::string> opened{}, closed{};  ///< groups that the user opened and closed
  double spectrum_scroll = 0.0;                 ///< rows above the first one drawn
  double wipe = 1.0;     ///< share of its charts that shows this run, left of the one with the fix
  bool answers = false;  ///< a narrow window shows the answers instead of the charts
  bool playing = false;  ///< the cursor moves on by itself

  // Item under the pointer, reset in every frame.
  std::string hovered_layer{}, hovered_site{};
  int64_t hovered_step = -1;
  // The hovered items of the last frame, which panels highlight in any drawing order.
  std::string lit_layer{}, lit_site{};
  int64_t lit_step = -1;

  /// Highlights the items hovered in the last frame and resets the hovered ones.
  void begin_frame();
};

/// Returns the note on a step, or "".
const std::string& note_on(const ViewState& view, int64_t step);
/// Replaces the note on a step; an empty text removes it.
void set_note(ViewState& view, int64_t step, const std::string& text);

/// History of places for Back and Forward.
class History {
 public:
  /// Adds the place if it is new. Call once a frame while nothing is being dragged.
  void note(const Place& place);
  bool can_go_back() const noexcept { return at_ > 0; }
  bool can_go_forward() const noexcept { return at_ + 1 < places_.size(); }
  void back(Place& place);
  void forward(Place& place);

 private:
  std::vector<Place> places_;
  size_t at_ = 0;
};

/// Returns true if `name` contains `filter`, or matches it if it is a glob (with * or ?). Ignores
/// case; an empty filter matches everything.
bool passes_filter(const std::string& name, const std::string& filter);

}  // namespace halfscope::gui
