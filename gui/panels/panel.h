// SPDX-License-Identifier: MIT
// A panel is a function that draws into the space it finds and edits the ViewState; one file each.
// What changes the world outside the view (files, processes, the clipboard) it asks for through
// Requests, which the application answers after the frame.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gui/data/run_model.h"
#include "gui/panels/panel_caches.h"
#include "gui/state/view_state.h"
#include "gui/widgets/canvas.h"
#include "gui/widgets/textures.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

struct FloatLab;

/// Panels that can be had as a picture of lines and words.
enum class PanelPicture : uint8_t { loss, heatmap, magnitudes, histogram, distances, errors };

struct Request {
  enum class Kind : uint8_t {
    open_file,     ///< text: the run file
    make_demo,     ///< trains the demo run and opens it
    copy,          ///< text to the clipboard
    save_plan,     ///< the lane's plan with the edits, to the file `text`
    copy_command,  ///< the command that trains the edited plan, to the clipboard
    try_plan,      ///< trains with the edits beside this run
    stop_trial,
    choose_baseline,  ///< asks for a run to compare with
    swap_runs,
    close_baseline,
    export_report,  ///< HTML, to the file `text`
    export_csv,     ///< `content` to the file `text`
    export_svg,     ///< a picture of the panel that `panel` names
    show_help,
    quit,
  };
  Kind kind;
  std::string text{};
  std::string content{};
  PanelPicture panel = PanelPicture::loss;
};

/// What the names in the ViewState stand for in this run, worked out once a frame.
struct Selection {
  int lane = -1, other_lane = -1;
  int layer = -1;     ///< index into LaneModel::layers
  int site = -1;      ///< SiteInfo::order
  int64_t step = -1;  ///< the cursor, or the last step
  int column = -1;    ///< of `step`
};
Selection resolve_selection(const RunModel& run, const ViewState& view);

/// What the viewer has said, and what a training that it started prints.
struct LogView {
  std::span<const std::string> lines{};
  const std::string* training = nullptr;  ///< its output; null if none was started
  bool is_training = false;
};

struct Frame {
  ViewState& view;
  const RunModel& run;
  const RunModel* baseline;  ///< the run that is compared with; may be null
  Selection at;
  const Theme& theme;
  const Fonts& fonts;
  float scale;  ///< of the display times the user's
  Textures& textures;
  std::vector<Request>& requests;
  PanelCaches& caches;
  /// Where a picture of the panel goes; null on the screen. With it controls, cursor and selection
  /// are left out.
  PictureTarget* picture = nullptr;
  bool focus_filter = false;  ///< the layer filter takes the keyboard in this frame
  FloatLab* lab = nullptr;    ///< of its tab; null in pictures
  LogView log{};

  const LaneModel& lane() const { return run.lane(at.lane); }
  const LaneInfo& lane_info() const { return run.view().lane(at.lane); }
  /// The selected tensor; null if none is.
  const SiteInfo* site_info() const;
  const LayerModel* layer() const;
  /// Rows in the order of the layer list, filtered: indices into LaneModel::layers.
  std::vector<int> visible_layers() const;
  void select_layer(int layer) const;  ///< and its worst tensor
  void select_site(int site) const;
  void ask(Request::Kind kind, std::string text = {}) const;
};

/// The weightiest warning or error of the lane that suffers most; null without one.
const Finding* worst_finding(const Report& report) noexcept;
/// Lane, layer, tensor and step that it speaks of.
void go_to_finding(ViewState& view, const RunModel& run, const Finding& finding);

/// Returns how many rows the list of recommendations has.
size_t recommendation_count(const Frame& frame);

/// In a picture of a panel: its words at the cursor, which goes on below.
void picture_text(const Frame& frame, std::string_view text, bool bold = false);

void draw_verdict(const Frame& frame);
void draw_layers(const Frame& frame);
void draw_loss(const Frame& frame);        ///< loss scale and loss over steps
void draw_heatmap(const Frame& frame);     ///< layers over steps
void draw_magnitudes(const Frame& frame);  ///< max, rms, min of the selected tensor over steps
void draw_histogram(const Frame& frame);   ///< exponents of the selected tensor, formats, scale
void draw_lanes(const Frame& frame);       ///< distance to another lane in ulps
/// Pictures alone, below each other in the rest of the window; false where there is nothing to
/// draw.
bool picture_histogram(const Frame& frame);
bool picture_distances(const Frame& frame);  ///< the histogram of ulps
bool picture_errors(const Frame& frame);     ///< error by depth
// Those of the tabs.
#define HALFSCOPE_TAB(panel, name, title, shorter) void draw_##panel(const Frame& frame);
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB

}  // namespace halfscope::gui
