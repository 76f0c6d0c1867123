// SPDX-License-Identifier: MIT
// The page of a study: a heat map of trials, and for the selected one its group's cost, losses,
// first failing layers and details. Parts are functions of a StudyFrame, as panels are of a Frame.
#pragma once

#include <string>
#include <vector>

#include "gui/data/study_model.h"
#include "gui/panels/panel.h"
#include "gui/widgets/plot.h"

namespace halfscope::gui {

/// The choices of a user on the page.
struct StudyState {
  std::string trial{};        ///< hash of the selected trial; "": the default
  std::string scrolled_to{};  ///< the trial that the map has scrolled to
  int page = 0;               ///< of a narrow window
};

struct StudyFrame {
  StudyState& state;
  const StudyModel& study;
  const Theme& theme;
  const Fonts& fonts;
  float scale;
  std::vector<Request>& requests;
  bool takes_keys = true;  ///< false while a popup is open
  /// Target of a picture of a part; null on the screen. A picture omits the selection.
  PictureTarget* picture = nullptr;

  const StudyFacts& facts() const { return study.facts(); }
  const TrialRow& trial(int index) const {
    return study.view().trials()[static_cast<size_t>(index)];
  }
  const StudyGroup& group(int index) const { return facts().groups[static_cast<size_t>(index)]; }
  /// Returns the selected trial, else the first that fails, has finished, or is planned; -1 without
  /// trials.
  int selected() const;
  int selected_group() const { return facts().group_of(selected()); }
  void select(int trial) const { state.trial = this->trial(trial).hash; }
  /// Selects the trial of a group to look at first: one that fails, else one that has finished.
  void select_group(int group) const;
  /// Opens the run of the trial if it has one.
  void open(int trial) const;
  PlotLook look() const { return {theme, fonts, scale, picture}; }
};

/// Returns the color of a trial's cell.
ImU32 trial_color(const StudyFrame& frame, const TrialRow& trial);

/// Draws the whole page into the rest of the window.
void draw_study(const StudyFrame& frame);

/// Draws the title of a part, on the screen or in its picture.
void draw_part_title(const StudyFrame& frame, const char* path, const std::string& title);

/// Returns the size of the map's picture at scale 1.
ImVec2 study_map_size(const StudyFacts& facts);

// Its parts.
void draw_study_head(const StudyFrame& frame);
void draw_study_map(const StudyFrame& frame);
void draw_study_cost(const StudyFrame& frame);
void draw_study_fan(const StudyFrame& frame);
void draw_study_layers(const StudyFrame& frame);
void draw_study_trial(const StudyFrame& frame);

}  // namespace halfscope::gui
