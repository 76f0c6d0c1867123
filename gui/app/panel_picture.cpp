// SPDX-License-Identifier: MIT
// A panel as SVG: it is drawn once more into a PictureTarget, off screen, at its own size and
// without controls. Only the view affects it, not the window.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "analysis/output_file.h"
#include "core/error.h"
#include "gui/app/app.h"
#include "gui/panels/spectrum.h"
#include "gui/study/study_page.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

struct PanelName {
  PanelPicture panel;
  const char* name;   ///< of files and in scripts
  const char* title;  ///< of the dialog
};
constexpr std::array<PanelName, 11> kPanels{
    {{PanelPicture::spectrum, "spectrum", "Save the spectrum as SVG"},
     {PanelPicture::loss, "loss", "Save the loss as SVG"},
     {PanelPicture::heatmap, "heatmap", "Save the heatmap as SVG"},
     {PanelPicture::magnitudes, "magnitudes", "Save the magnitudes as SVG"},
     {PanelPicture::histogram, "histogram", "Save the histogram as SVG"},
     {PanelPicture::distances, "distances", "Save the distances as SVG"},
     {PanelPicture::errors, "errors", "Save the errors by depth as SVG"},
     {PanelPicture::scalers, "scalers", "Save the loss scales as SVG"},
     {PanelPicture::study_map, "study-map", "Save the map of trials as SVG"},
     {PanelPicture::study_cost, "study-cost", "Save cost against loss gap as SVG"},
     {PanelPicture::study_losses, "study-losses", "Save the losses of the group as SVG"}}};

const PanelName& name_of(PanelPicture panel) {
  return *std::find_if(kPanels.begin(), kPanels.end(),
                       [panel](const PanelName& each) { return each.panel == panel; });
}

/// Returns the size in pixels at scale 1; for panels that fit their content, the largest height.
ImVec2 size_of(PanelPicture panel, size_t rows) {
  switch (panel) {
    case PanelPicture::spectrum:
      return {1200, 520};
    case PanelPicture::loss:
      return {900, 270};
    case PanelPicture::heatmap:
      return {900, std::clamp(90.0f + 18.0f * static_cast<float>(rows), 220.0f, 1600.0f)};
    case PanelPicture::magnitudes:
    case PanelPicture::scalers:
      return {900, 300};
    case PanelPicture::histogram:
    case PanelPicture::distances:
      return {560, 600};
    case PanelPicture::errors:
      return {560, 120.0f + 20.0f * static_cast<float>(rows)};
    case PanelPicture::study_map:
    case PanelPicture::study_cost:
    case PanelPicture::study_losses:
      break;
  }
  return {900, 300};
}

ImVec2 size_of_part(PanelPicture panel, const StudyFacts& facts) {
  return panel == PanelPicture::study_map ? study_map_size(facts) : ImVec2{640, 420};
}

/// Draws the panel. Returns false if there is nothing to show.
bool draw_panel(PanelPicture panel, const Frame& frame) {
  switch (panel) {
    case PanelPicture::spectrum:
      draw_spectrum(frame);
      return !frame.run.columns().empty();
    case PanelPicture::loss:
      draw_loss(frame);
      return frame.run.step_count() > 0;
    case PanelPicture::heatmap:
      draw_heatmap(frame);
      return !frame.run.columns().empty() && !frame.visible_layers().empty();
    case PanelPicture::magnitudes:
      draw_magnitudes(frame);
      return frame.site_info() != nullptr && !frame.run.columns().empty();
    case PanelPicture::histogram:
      return picture_histogram(frame);
    case PanelPicture::distances:
      return picture_distances(frame);
    case PanelPicture::errors:
      return picture_errors(frame);
    case PanelPicture::scalers:
      return picture_scalers(frame);
    case PanelPicture::study_map:
    case PanelPicture::study_cost:
    case PanelPicture::study_losses:
      break;
  }
  return false;
}

/// Draws a part of a study's page. Returns false if there is nothing to show.
bool draw_part(PanelPicture panel, const StudyFrame& frame) {
  const std::vector<StudyGroup>& groups = frame.facts().groups;
  if (panel == PanelPicture::study_map) {
    draw_study_map(frame);
    return !groups.empty();
  }
  if (panel == PanelPicture::study_cost) {
    draw_study_cost(frame);
    return std::any_of(groups.begin(), groups.end(),
                       [](const StudyGroup& group) { return group.bits && group.gap; });
  }
  draw_study_fan(frame);
  return frame.selected_group() >= 0 && !frame.group(frame.selected_group()).fan.empty();
}

bool fits_its_content(PanelPicture panel) {
  return panel == PanelPicture::histogram || panel == PanelPicture::distances ||
         panel == PanelPicture::errors;
}

}  // namespace

std::optional<PanelPicture> find_panel(std::string_view name) {
  for (const PanelName& each : kPanels) {
    if (each.name == name) return each.panel;
  }
  return std::nullopt;
}

std::string panel_names() {
  std::string names;
  for (const PanelName& each : kPanels)
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

std::string App::panel_svg(PanelPicture panel) {
  if (is_of_study(panel)) {
    if (!study_) throw Error("no study is open");
    const ImVec2 size = size_of_part(panel, study_->facts());
    return picture_svg(panel, size, study_->facts().title, [&](PictureTarget& target) {
      StudyState state = study_state_;
      std::vector<Request> requests;
      return draw_part(panel, {.state = state,
                               .study = *study_,
                               .theme = *theme_,
                               .fonts = fonts_,
                               .scale = scale(),
                               .requests = requests,
                               .takes_keys = false,
                               .picture = &target});
    });
  }
  if (!run_ || selection().lane < 0) throw Error("no run is open");
  const Frame frame = make_frame();
  const size_t rows = view_.tensor_rows && panel == PanelPicture::heatmap
                          ? frame.lane_info().sites.size()
                          : frame.lane().layers.size();
  const std::string name = std::filesystem::path(run_->file()).filename().string();
  return picture_svg(panel, size_of(panel, rows), name, [&](PictureTarget& target) {
    ViewState view = view_;
    PanelCaches caches;
    std::vector<Request> requests;
    return draw_panel(panel, {.view = view,
                              .run = *run_,
                              .baseline = frame.baseline,
                              .at = frame.at,
                              .theme = *theme_,
                              .fonts = fonts_,
                              .scale = scale(),
                              .textures = target.textures,
                              .requests = requests,
                              .caches = caches,
                              .picture = &target});
  });
}

std::string App::picture_svg(PanelPicture panel, ImVec2 size, const std::string& subject,
                             const std::function<bool(PictureTarget&)>& draw) {
  size = {size.x * scale(), size.y * scale()};
  PictureTarget target{.svg = SvgPicture({}, scale()), .textures = {}};
  // Off screen: invisible, and never under the pointer.
  const ImVec2 place{-2.0f * size.x - 1000.0f, 0.0f};
  ImGui::SetNextWindowPos(place);
  ImGui::SetNextWindowSize(size);
  const ImGuiWindowFlags flags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoSavedSettings |
                                 ImGuiWindowFlags_NoInputs | ImGuiWindowFlags_NoNav |
                                 ImGuiWindowFlags_NoFocusOnAppearing |
                                 ImGuiWindowFlags_NoBringToFrontOnFocus;
  Tracker* const watching = tracker();
  set_tracker(nullptr);  // the same widgets are on the screen
  ImGui::Begin(fmt::format("##picture/{}", name_of(panel).name).c_str(), nullptr, flags);
  target.svg.set_origin(ImGui::GetWindowPos());
  const bool drawn = draw(target);
  if (fits_its_content(panel)) {
    size.y = ImGui::GetCursorPosY() - ImGui::GetStyle().ItemSpacing.y +
             ImGui::GetStyle().WindowPadding.y;
  }
  ImGui::End();
  set_tracker(watching);
  if (!drawn) {
    throw Error(fmt::format("nothing to draw in the {} panel", name_of(panel).name),
                is_of_study(panel) ? "wait until a trial of the group has finished"
                                   : "select a recorded tensor and step");
  }
  return target.svg.document(size, subject + ": " + name_of(panel).name, theme_->card);
}

void App::choose_svg(PanelPicture panel) {
  if (is_of_study(panel) ? !study_ : !run_) return;
  try {
    text_ = panel_svg(panel);
  } catch (const Error& error) {
    notify(std::string(error.what()) + (error.hint().empty() ? "" : ". Hint: " + error.hint()),
           true);
    return;
  }
  purpose_ = Purpose::save_text;
  const std::string start =
      is_of_study(panel) ? "" : std::filesystem::path(run_->file()).stem().string() + "-";
  dialog_.open(name_of(panel).title, ".svg", true, start + name_of(panel).name + ".svg");
}

void App::save_svg(PanelPicture panel, const std::string& file) {
  svg_panel_ = panel;
  svg_file_ = file;
  svg_problem_.clear();
}

void App::write_requested_svg() {
  if (svg_file_.empty()) return;
  const std::string file = std::exchange(svg_file_, {});
  try {
    write_output_file(file, panel_svg(svg_panel_), true);
  } catch (const Error& error) {
    svg_problem_ = error.what();
    notify(svg_problem_, true);
  }
}

}  // namespace halfscope::gui
