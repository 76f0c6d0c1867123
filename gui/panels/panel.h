// SPDX-License-Identifier: MIT
// A panel is a function that draws into the space it finds and edits the ViewState; one file each.
// To change something outside the view (files, processes, the clipboard), it adds a Request, which
// the application answers after the frame.
#pragma once

#include <memory>
#include <optional>
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
struct PlotLook;

/// Panels that can be exported as SVG.
enum class PanelPicture : uint8_t {
  spectrum,
  loss,
  heatmap,
  magnitudes,
  histogram,
  distances,
  errors,
  scalers,
  study_map,
  study_cost,
  study_losses
};
inline bool is_of_study(PanelPicture panel) noexcept { return panel >= PanelPicture::study_map; }

struct Request {
  enum class Kind : uint8_t {
    open_file,     ///< text: the run file
    make_demo,     ///< trains the demo run and opens it
    copy,          ///< text to the clipboard
    save_plan,     ///< the lane's plan with the edits, to the file `text`
    copy_command,  ///< the command that trains the edited plan, to the clipboard
    try_plan,      ///< trains with the edits, to compare with this run
    stop_trial,
    choose_baseline,  ///< opens a dialog for a run to compare with
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

/// Indices of the names in the ViewState in this run, looked up once a frame.
struct Selection {
  int lane = -1, other_lane = -1;
  int layer = -1;     ///< index into LaneModel::layers
  int site = -1;      ///< SiteInfo::order
  int64_t step = -1;  ///< the cursor, or the last step
  int column = -1;    ///< of `step`
};
Selection resolve_selection(const RunModel& run, const ViewState& view);

/// Messages of the viewer, and output of a training that it started.
struct LogView {
  std::span<const std::string> lines{};
  const std::string* training = nullptr;  ///< its output; null if none was started
  bool is_training = false;
};

struct Frame {
  ViewState& view;
  const RunModel& run;
  const RunModel* baseline;  ///< the run to compare with; may be null
  Selection at;
  const Theme& theme;
  const Fonts& fonts;
  float scale;  ///< of the display times the user's
  Textures& textures;
  std::vector<Request>& requests;
  PanelCaches& caches;
  /// Target of a picture of the panel; null on the screen. A picture omits controls, cursor and
  /// selection.
  PictureTarget* picture = nullptr;
  bool focus_filter = false;  ///< the layer filter takes the keyboard in this frame
  FloatLab* lab = nullptr;    ///< of its tab; null in pictures
  LogView log{};
  /// More runs; only their losses are drawn.
  std::span<const std::shared_ptr<const RunModel>> added{};

  const LaneModel& lane() const { return run.lane(at.lane); }
  const LaneInfo& lane_info() const { return run.view().lane(at.lane); }
  /// Returns the selected tensor, or null.
  const SiteInfo* site_info() const;
  const LayerModel* layer() const;
  /// Returns the rows of the layer list, ordered and filtered: indices into LaneModel::layers.
  std::vector<int> visible_layers() const;
  void select_layer(int layer) const;  ///< and its worst tensor
  void select_site(int site) const;
  void ask(Request::Kind kind, std::string text = {}) const;
};

/// Returns the most severe warning or error of the most affected lane; null without one.
const Finding* worst_finding(const Report& report) noexcept;
/// Selects the lane, layer, tensor and step of the finding.
void go_to_finding(ViewState& view, const RunModel& run, const Finding& finding);

/// Returns the state as words and a shape, so that it does not depend on colour alone. `early`: a
/// healthy run has few steps.
const char* verdict_badge(Verdict::State state, bool early, bool unicode);

/// Returns the number of rows in the list of recommendations.
size_t recommendation_count(const Frame& frame);

/// Draws text at the cursor in a picture of a panel; the cursor moves below it.
void picture_text(const PlotLook& look, std::string_view text, bool bold = false);
void picture_text(const Frame& frame, std::string_view text, bool bold = false);

/// Returns the fix of the selected lane's diagnosis if a training can try it.
std::optional<PlanEdit> fix_to_try(const Frame& frame);

void draw_verdict(const Frame& frame);
void draw_layers(const Frame& frame);
void draw_loss(const Frame& frame);        ///< loss scale and loss over steps
void draw_heatmap(const Frame& frame);     ///< layers over steps
void draw_magnitudes(const Frame& frame);  ///< max, rms, min of the selected tensor over steps
void draw_histogram(const Frame& frame);   ///< exponents of the selected tensor, formats, scale
void draw_lanes(const Frame& frame);       ///< distance to another lane in ulps
/// Draw pictures without controls in the rest of the window. Return false if there is nothing to
/// draw.
bool picture_histogram(const Frame& frame);
bool picture_distances(const Frame& frame);  ///< the histogram of ulps
bool picture_errors(const Frame& frame);     ///< error by depth
bool picture_scalers(const Frame& frame);    ///< loss scales over steps
// Panels of the tabs.
#define HALFSCOPE_TAB(panel, name, title, shorter) void draw_##panel(const Frame& frame);
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB

}  // namespace halfscope::gui
