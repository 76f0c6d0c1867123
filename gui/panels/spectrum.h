// SPDX-License-Identifier: MIT
// Parts of the Spectrum screen, from top to bottom, and the values that they share.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gui/data/spectrum_rows.h"
#include "gui/panels/panel.h"

namespace halfscope::gui {

/// The lane on the other side of the wipe: the run that is compared with, which may be better or
/// worse, else the first healthy sibling.
struct FixedLane {
  const RunModel* run = nullptr;  ///< null: there is none
  int lane = -1;
  std::string name{};
  bool compared = false;  ///< it is in the other run
};
FixedLane fixed_lane(const Frame& frame);

/// Returns log2 of the lane's loss scale at the cursor over the reference's: how far apart their
/// gradients are although they are the same.
double reference_shift(const Frame& frame);

/// Returns the rows of the selected lane at the cursor, up to date.
SpectrumRows& spectrum_rows(const Frame& frame);

/// Returns the charts that the lane has tensors for.
std::vector<SpectrumChart> recorded_charts(const Frame& frame);
/// Returns the charts that the view shows and the lane has tensors for; never none if there are
/// any.
std::vector<SpectrumChart> shown_charts(const Frame& frame);

/// Returns the lens that the view names; the default one if it names none that exists.
Lens lens_of(const ViewState& view);

/// Returns whether a loss scale moves any of the lane's gradients.
bool has_loss_scale(const Frame& frame);

/// Open and fold a group, here and in the list of layers.
void open_group(ViewState& view, const std::string& group);
void fold_group(ViewState& view, const std::string& group);
/// Folds the innermost group around a row.
void fold_around(ViewState& view, const LayerRow& row);
/// Opens the row of the selected layer if it is folded, else folds its group.
void fold_selected(const Frame& frame);

/// A format to look through: the text of its lens, and its name on the screen.
struct SpectrumWindow {
  const char* lens;
  const char* name;
};
std::span<const SpectrumWindow> spectrum_windows() noexcept;

/// Gives each tensor a scale in the format to look through, or takes it away, where that is a
/// choice.
void toggle_per_tensor(ViewState& view);
/// Shows or hides a chart; the last one stays.
void toggle_chart(ViewState& view, SpectrumChart chart);

/// Returns the loss scale at the cursor times the one that is tried out.
double wanted_loss_scale(const Frame& frame);

/// Returns the shift of the loss scale within what can be tried.
double within_slide(double shift) noexcept;

/// Draws the formats to look through, each with what the run would lose, the choice of charts and
/// the loss scale; with `offers_answers` also the switch to the answers.
void draw_windows(const Frame& frame, bool offers_answers);
/// Draws the charts in the rest of the window.
void draw_spectrum(const Frame& frame);
/// Draws why, what to do and whether it helps, for the selected lane.
void draw_answers(const Frame& frame);
/// Draws the exponents of the selected tensor over steps, in the rest of the window; without one,
/// of the tensor that loses most.
void draw_tensor_history(const Frame& frame);
/// Draws the play button and the steps with their events.
void draw_timeline(const Frame& frame);
/// Starts or stops playing; from the start if the cursor is at the end.
void toggle_playing(ViewState& view, const RunModel& run);
/// Moves the cursor on while the view is playing. `clock` keeps the part of a step from call to
/// call.
void play(ViewState& view, const RunModel& run, double seconds, double& clock);

}  // namespace halfscope::gui
