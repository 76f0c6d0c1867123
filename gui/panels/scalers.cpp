// SPDX-License-Identifier: MIT
// Loss scales of the run's lanes over steps, and on demand those that the scalers of other
// frameworks would have had with the selected lane's gradients: why each of them works or fails.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <span>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/data/scaler_study.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr size_t kShownSites = 2;  // that set ceiling or floor

std::string scaler_name(const ScalerTrace& trace) {
  return trace.scaler.substr(0, trace.scaler.find(':'));
}

/// Returns the text with a capital letter and a full stop.
std::string sentence(std::string text) {
  if (text.empty()) return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text.ends_with('.') ? text : text + '.';
}

/// Returns the scale in a step counted from the trajectory's first one; NaN after its end.
double scale_in(const ScalerTrace& trace, int64_t step) {
  if (step < 0 || trace.changes.empty() || step >= std::max<int64_t>(trace.steps, 1))
    return std::nan("");
  const auto after =
      std::upper_bound(trace.changes.begin(), trace.changes.end(), step,
                       [](int64_t value, const ScaleChange& each) { return value < each.step; });
  return std::prev(after)->scale;
}

bool is_scaled(std::span<const StepRow> rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const StepRow& row) { return row.loss_scale != 1.0; });
}

/// A line of the plot and a row of the table.
struct ScalerLine {
  std::string path, name, label;
  ImU32 color = 0;
  int lane = -1, trace = -1;  ///< the recorded lane, or the index of the trace
};

class ScalerPanel {
 public:
  ScalerPanel(const Frame& frame, const ScalerStudy* study) : frame_(frame), study_(study) {
    const RunView& run = frame.run.view();
    for (int lane = 0; lane < run.lane_count(); ++lane) {
      if (!is_scaled(run.steps(lane))) continue;
      const std::string& name = run.lane(lane).name;
      lines_.push_back({.path = "scalers/lane/" + name,
                        .name = name,
                        .label = name + " (recorded)",
                        .color = lane == frame.at.lane ? frame.theme.ink : frame.theme.soft,
                        .lane = lane});
    }
    if (study == nullptr) return;
    for (size_t i = 0; i < study->traces.size(); ++i) {
      const std::string name = scaler_name(study->traces[i]);
      // Scalers with the same scales share a line.
      const size_t color =
          1 + static_cast<size_t>(study->same_as[i]) % (frame.theme.lines.size() - 1);
      lines_.push_back({.path = "scalers/trace/" + name,
                        .name = name,
                        .label = name,
                        .color = frame.theme.lines[color],
                        .trace = static_cast<int>(i)});
    }
  }

  bool empty() const { return lines_.empty(); }  ///< nothing to draw
  void draw_plot();
  void draw_table();
  void draw_limits(bool ceilings) const;
  void draw_lines_legend() const;

 private:
  bool is_chosen(const ScalerLine& each) const { return frame_.view.scaler == each.name; }
  bool any_chosen() const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const ScalerLine& each) { return is_chosen(each); });
  }
  Trace trace_of(const ScalerLine& each, const Axis& x, double* end) const;
  Trace limit(const Axis& x, bool ceilings) const;
  void show_tip(int64_t step) const;
  PlotTable table_of(const Axis& x) const;
  void draw_row(const ScalerLine& each);

  const Frame& frame_;
  const ScalerStudy* study_;
  std::vector<ScalerLine> lines_;
};

/// Returns the scales of a series, and sets where the last one ends.
Trace ScalerPanel::trace_of(const ScalerLine& each, const Axis& x, double* end) const {
  const auto point = [](int64_t step, double scale) {
    const bool has_place = scale > 0.0 && std::isfinite(scale);
    return PlotPoint{static_cast<double>(step), has_place ? scale : std::nan("")};
  };
  if (each.lane >= 0) {
    const std::span<const StepRow> rows = frame_.run.view().steps(each.lane);
    *end = rows.empty() ? 0.0 : static_cast<double>(rows.back().step + 1);
    return reduce(x, rows.size(),
                  [&](size_t i) { return point(rows[i].step, rows[i].loss_scale); });
  }
  const ScalerTrace& trace = study_->traces[static_cast<size_t>(each.trace)];
  *end = static_cast<double>(study_->first_step + trace.steps);
  return reduce(x, trace.changes.size(), [&](size_t i) {
    return point(study_->first_step + trace.changes[i].step, trace.changes[i].scale);
  });
}

Trace ScalerPanel::limit(const Axis& x, bool ceilings) const {
  const std::vector<ScaleDemand>& steps = study_->demands.steps;
  return reduce(x, steps.size(), [&](size_t i) {
    const double scale = ceilings ? steps[i].ceiling : steps[i].floor;
    const bool has_place = scale > 0.0 && std::isfinite(scale);
    return PlotPoint{static_cast<double>(study_->first_step) + static_cast<double>(i),
                     has_place ? scale : std::nan("")};
  });
}

void ScalerPanel::show_tip(int64_t step) const {
  PlotTip tip("Step " + grouped(step));
  for (const ScalerLine& each : lines_) {
    if (each.lane >= 0) {
      const StepRow* row = frame_.run.step_row(each.lane, step);
      if (row == nullptr) continue;
      tip.row(each.label, short_scale(row->loss_scale) + (row->skipped ? ", skipped" : ""),
              each.color);
    } else {
      const ScalerTrace& trace = study_->traces[static_cast<size_t>(each.trace)];
      const double scale = scale_in(trace, step - study_->first_step);
      tip.row(each.label, std::isnan(scale) ? "has ended" : short_scale(scale), each.color);
    }
  }
  const int64_t place = study_ == nullptr ? -1 : step - study_->first_step;
  if (place >= 0 && place < static_cast<int64_t>(study_->demands.steps.size())) {
    const ScaleDemand& demand = study_->demands.steps[static_cast<size_t>(place)];
    const auto site = [&](int which) {
      return which < 0 ? "" : study_->demands.sites[static_cast<size_t>(which)];
    };
    tip.heading("This step allows");
    if (demand.ceiling <= 0.0) {
      tip.note("no scale: it is not finite at any.");
    } else {
      if (std::isfinite(demand.ceiling)) {
        tip.row("less than " + power_text(std::log2(demand.ceiling)), site(demand.ceiling_site),
                frame_.theme.bad);
      }
      if (demand.floor > 0.0) {
        tip.row("more than " + power_text(std::log2(demand.floor)), site(demand.floor_site),
                frame_.theme.lost);
      }
    }
  }
  tip.show(look_of(frame_), "scalers/plot/tip");
}

PlotTable ScalerPanel::table_of(const Axis& x) const {
  PlotTable table("step");
  const auto first = static_cast<int64_t>(std::max(0.0, std::ceil(x.low)));
  const auto last = std::min(static_cast<int64_t>(std::floor(x.high)), frame_.run.step_count() - 1);
  const size_t count = last < first ? 0 : static_cast<size_t>(last - first + 1);
  for (const ScalerLine& each : lines_) {
    table.add(each.label, count, [&](size_t i) {
      const int64_t step = first + static_cast<int64_t>(i);
      double scale = std::nan("");
      if (each.lane >= 0) {
        const StepRow* row = frame_.run.step_row(each.lane, step);
        if (row != nullptr) scale = row->loss_scale;
      } else {
        scale =
            scale_in(study_->traces[static_cast<size_t>(each.trace)], step - study_->first_step);
      }
      return PlotPoint{static_cast<double>(step), scale};
    });
  }
  return table;
}

void ScalerPanel::draw_plot() {
  const PlotLook look = look_of(frame_);
  // The numbers need no room for names of layers beside them.
  ImGui::Dummy({0, look.px(2.0f)});
  StepArea area = step_area(frame_, kStepLabels);
  area.min.x = area.x.from = area.outer_min.x + look.px(46.0f);
  area.max.x = area.x.to = area.outer_max.x - look.px(10.0f);
  std::vector<Trace> traces;
  std::vector<double> ends;
  ValueRange range{HUGE_VAL, -HUGE_VAL};
  for (const ScalerLine& each : lines_) {
    double end = 0.0;
    traces.push_back(trace_of(each, area.x, &end));
    ends.push_back(end);
    if (traces.back().empty()) continue;
    range.low = std::min(range.low, traces.back().low);
    range.high = std::max(range.high, traces.back().high);
  }
  const bool any = range.low <= range.high;
  Trace ceiling, floor;
  if (study_ != nullptr) {
    ceiling = limit(area.x, true);
    floor = limit(area.x, false);
    if (!ceiling.empty() && any) range.high = std::clamp(ceiling.low, range.high, range.high * 64);
    if (!floor.empty() && any) range.low = std::clamp(floor.high, range.low / 64, range.low);
  }
  // At least six whole octaves, so that one halving does not look like a cliff.
  double low = any ? std::floor(std::log2(range.low)) - 1.0 : 0.0;
  const double high = any ? std::ceil(std::log2(range.high)) + 1.0 : 16.0;
  low = std::min(low, high - 6.0);
  PlotSpec spec{.path = "scalers/plot",
                .min = area.min,
                .max = area.max,
                .x = area.x,
                .y = {.scale = AxisScale::log2, .low = std::exp2(low), .high = std::exp2(high)}};
  if (!any) spec = empty_plot("scalers/plot", area);
  {
    Plot plot(look, spec);
    if (!any) plot.message("No finite loss scale to draw.");
    const double last = plot.x().high + 1.0;
    plot.stairs(ceiling, last, with_alpha(frame_.theme.bad, 0.7f), 1.0f);
    plot.stairs(floor, last, with_alpha(frame_.theme.lost, 0.7f), 1.0f);
    const bool chosen = any_chosen();
    const auto draw = [&](size_t i, bool front) {
      const ScalerLine& each = lines_[i];
      const bool emphasised = chosen ? is_chosen(each) : each.lane == frame_.at.lane;
      if (emphasised != front) return;
      const bool repeats =
          each.trace >= 0 && study_->same_as[static_cast<size_t>(each.trace)] != each.trace;
      if (repeats && !emphasised) return;
      plot.stairs(traces[i], std::min(ends[i], last),
                  with_alpha(each.color, chosen && !front ? 0.35f : 1.0f), front ? 2.5f : 1.5f);
    };
    for (size_t i = 0; i < lines_.size(); ++i) draw(i, false);
    for (size_t i = 0; i < lines_.size(); ++i) draw(i, true);
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].trace < 0) continue;
      const ScalerTrace& trace = study_->traces[static_cast<size_t>(lines_[i].trace)];
      const double scale = scale_in(trace, trace.steps - 1);
      if (trace.stop == ScalerStop::none || !(scale > 0.0)) continue;
      plot.mark(PlotMark::cross, ends[i], scale, lines_[i].color, 5.0f);
    }
    steer_steps(frame_, plot);
    draw_step_lines(frame_, plot);
    if (plot.hovered() && !plot.panning() && frame_.run.step_count() > 0)
      show_tip(pointed_step(frame_, plot));
    if (plot.action() != PlotAction::none) {
      hand_out(frame_, plot.action(), table_of(area.x), "loss-scales", PanelPicture::scalers);
    }
  }
  take_area(area);
}

void ScalerPanel::draw_row(const ScalerLine& each) {
  const Theme& theme = frame_.theme;
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float middle = at.y + ImGui::GetTextLineHeight() / 2.0f, s = frame_.scale;
  const std::string label = "      " + each.label;
  if (ui::selectable(each.path, label.c_str(), is_chosen(each), {0, 0},
                     ImGuiSelectableFlags_SpanAllColumns)) {
    frame_.view.scaler = is_chosen(each) ? "" : each.name;
  }
  ImGui::GetWindowDrawList()->AddRectFilled({at.x + 2 * s, middle - 2 * s},
                                            {at.x + 16 * s, middle + 2 * s}, each.color);
  const auto cell = [&](const char* name, const std::string& text, ImU32 color) {
    ImGui::TableNextColumn();
    ImGui::PushStyleColor(ImGuiCol_Text, color);
    ui::text_wrapped(each.path + "/" + name, text);
    ImGui::PopStyleColor();
  };
  if (each.lane >= 0) {
    const std::span<const StepRow> rows = frame_.run.view().steps(each.lane);
    const auto skipped =
        std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
    cell("end", "recorded", theme.soft);
    cell("skipped", std::to_string(skipped), theme.ink);
    cell("last", short_scale(rows.back().loss_scale), theme.ink);
    cell("lost", "", theme.ink);
    cell("about",
         fmt::format("This run: --loss-scale {}.", frame_.run.view().lane(each.lane).loss_scale),
         theme.soft);
    return;
  }
  const ScalerTrace& trace = study_->traces[static_cast<size_t>(each.trace)];
  std::string end = scaler_end_name(trace.end);
  std::replace(end.begin(), end.end(), '_', ' ');
  cell("end", end,
       is_good(trace.end)                                                    ? theme.good
       : trace.end == ScalerEnd::runaway || trace.end == ScalerEnd::searches ? theme.warn
                                                                             : theme.bad);
  cell("skipped", std::to_string(trace.skipped), theme.ink);
  cell("last", short_scale(scale_in(trace, std::max<int64_t>(trace.steps, 1) - 1)), theme.ink);
  cell("lost", std::isnan(trace.lost) ? "-" : percent(trace.lost), theme.ink);
  std::string about = sentence(trace.about);
  const int twin = study_->same_as[static_cast<size_t>(each.trace)];
  if (twin != each.trace) {
    about +=
        fmt::format(" Same scales as {}.", scaler_name(study_->traces[static_cast<size_t>(twin)]));
  }
  cell("about", about, theme.soft);
}

void ScalerPanel::draw_table() {
  const ImGuiTableFlags flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY;
  if (!ImGui::BeginTable("scalers", 6, flags)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  const float s = frame_.scale;
  struct Column {
    const char *name, *meaning;
    float width;
  };
  static constexpr Column kColumns[] = {
      {"Scaler", "The scaler, with its framework's defaults. Click to emphasise its line.", 184},
      {"Result", "What becomes of the scale with this lane's gradients.", 84},
      {"Skipped", "Steps without an update because a gradient overflows.", 58},
      {"Last scale", "The loss scale in the last step.", 72},
      {"Lost",
       "Mean share of the non-zero gradients that become 0 in the steps taken, from the "
       "histograms.",
       64},
      {"Diagnosis", "Why.", 0}};
  for (const Column& column : kColumns) {
    ImGui::TableSetupColumn(
        column.name,
        column.width > 0 ? ImGuiTableColumnFlags_WidthFixed : ImGuiTableColumnFlags_WidthStretch,
        column.width * s);
  }
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (const Column& column : kColumns) {
    ImGui::TableNextColumn();
    ImGui::TableHeader(column.name);
    ui::tip(column.meaning);
  }
  for (const ScalerLine& each : lines_) draw_row(each);
  ImGui::EndTable();
}

/// Draws which sites set the ceiling or the floor; a click selects one.
void ScalerPanel::draw_limits(bool ceilings) const {
  const std::vector<LimitSite>& sites = ceilings ? study_->ceilings : study_->floors;
  const std::string path = ceilings ? "scalers/ceiling" : "scalers/floor";
  const char* title = ceilings ? "Overflows first:" : "Underflows first:";
  flow(ImGui::CalcTextSize(title).x, 20 * frame_.scale);
  ImGui::PushStyleColor(ImGuiCol_Text, ceilings ? frame_.theme.bad : frame_.theme.lost);
  ui::text(path, title);
  ImGui::PopStyleColor();
  ui::tip(ceilings ? "Gradients that limit the loss scale from above. The upper thin line of the "
                     "plot is the scale at which the first one overflows."
                   : "Gradients that need the largest loss scale. Below the lower thin line of the "
                     "plot, the smallest one becomes 0.");
  const auto hopeless = std::count_if(study_->demands.steps.begin(), study_->demands.steps.end(),
                                      [](const ScaleDemand& step) { return step.ceiling <= 0.0; });
  if (ceilings && hopeless > 0) {
    const std::string text =
        fmt::format("{} at any scale", counted(static_cast<int64_t>(hopeless), "step"));
    flow(ImGui::CalcTextSize(text.c_str()).x, 8 * frame_.scale);
    ui::text(path + "/any", text);
    ui::tip(
        "In these steps the forward pass is not finite, or gradients are not finite in the "
        "baseline either. No loss scale helps.");
  } else if (sites.empty()) {
    ImGui::SameLine();
    ui::text(path + "/none", "none");
  }
  for (size_t i = 0; i < std::min(sites.size(), kShownSites); ++i) {
    const LimitSite& site = sites[i];
    const std::string text = fmt::format("{} {}", site.site, power_text(std::log2(site.tightest)));
    const float width = ImGui::CalcTextSize(text.c_str()).x + 2 * ImGui::GetStyle().FramePadding.x;
    flow(width, 8 * frame_.scale);
    if (ui::button(path + "/" + site.site, text.c_str())) {
      if (const auto found = frame_.run.view().find_site(frame_.at.lane, site.site))
        frame_.select_site(*found);
    }
    ui::tip(fmt::format("{} {} in {}, at loss scales {} {}. Click to select it.", site.site,
                        ceilings ? "overflows first" : "underflows first",
                        counted(site.steps, "step"), ceilings ? "from" : "below",
                        power_text(std::log2(site.tightest)))
                .c_str());
  }
}

/// Draws the names of the lines in a picture, each line once.
void ScalerPanel::draw_lines_legend() const {
  std::vector<LegendEntry> entries;
  for (const ScalerLine& each : lines_) {
    if (each.trace >= 0 && study_->same_as[static_cast<size_t>(each.trace)] != each.trace) continue;
    std::string label = each.label;
    for (size_t i = 0; each.trace >= 0 && i < study_->traces.size(); ++i) {
      const bool same = study_->same_as[i] == each.trace && static_cast<int>(i) != each.trace;
      if (same) label += ", " + scaler_name(study_->traces[i]);
    }
    entries.push_back({.path = each.path, .label = label, .color = each.color});
  }
  if (study_ != nullptr) {
    entries.push_back(
        {.path = "scalers/overflow", .label = "overflows", .color = frame_.theme.bad});
    entries.push_back(
        {.path = "scalers/underflow", .label = "underflows", .color = frame_.theme.lost});
  }
  std::vector<std::string> hidden;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  draw_legend(look_of(frame_), entries, at.x + ImGui::GetContentRegionAvail().x, hidden);
}

/// Returns why there are no traces, and what to do; "" if there are.
std::string problem_text(const Frame& frame, const ScalerStudy& study) {
  if (study.problem.empty()) return "";
  std::string text = sentence(study.problem);
  for (int lane = 0; lane < frame.run.lane_count(); ++lane) {
    if (lane == frame.at.lane || !is_scaled(frame.run.view().steps(lane))) continue;
    return text + " Select lane " + frame.run.view().lane(lane).name + ".";
  }
  return text + " " + sentence(study.hint);
}

}  // namespace

bool picture_scalers(const Frame& frame) {
  if (frame.at.lane < 0 || frame.run.view().info().inference) return false;
  ScalerStudy study;
  if (frame.view.try_scalers) study = study_scalers(frame.run.view(), frame.at.lane);
  const bool has_study = frame.view.try_scalers && study.problem.empty();
  ScalerPanel panel(frame, has_study ? &study : nullptr);
  if (panel.empty()) return false;
  picture_text(frame, "Loss scales, gradients of " + frame.lane_info().name, true);
  panel.draw_lines_legend();
  ImGui::NewLine();
  panel.draw_plot();
  return true;
}

void draw_scalers(const Frame& frame) {
  if (frame.at.lane < 0 || frame.run.view().info().inference) {
    empty_note("scalers/empty",
               frame.at.lane < 0 ? "This run has no lanes." : "Inference has no loss scale.",
               frame.theme);
    return;
  }
  ViewState& view = frame.view;
  ui::checkbox("scalers/try", "Other frameworks' scalers", &view.try_scalers);
  ui::tip(
      "Shows what the loss scalers of PyTorch, Keras, apex and DeepSpeed would have done with the "
      "selected lane's recorded gradients. This is an estimate: with other scales, training would "
      "have other gradients.");
  const ScalerStudy* study = nullptr;
  if (view.try_scalers) {
    study = frame.caches.get<ScalerStudies>().of(frame.run.shared_view(), frame.at.lane);
    const std::string state =
        study == nullptr ? "Reading the gradients ..." : problem_text(frame, *study);
    if (!state.empty()) {
      ImGui::SameLine(0, 16 * frame.scale);
      ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
      ui::text_wrapped("scalers/state", state);
      ImGui::PopStyleColor();
      study = nullptr;
    }
  }
  ScalerPanel panel(frame, study);
  if (study != nullptr) {
    panel.draw_limits(true);
    panel.draw_limits(false);
  }
  if (panel.empty()) {
    empty_note("scalers/empty", "No lane of this run uses a loss scale.", frame.theme);
    return;
  }
  // Beside each other if they fit: the lower one would be out of sight.
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool beside = room.x > 900 * frame.scale;
  const ImVec2 size = beside ? ImVec2{std::round(room.x * 0.44f), 0}
                             : ImVec2{0, std::max(room.y * 0.5f, 120 * frame.scale)};
  ImGui::BeginChild("plot", size, false,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  panel.draw_plot();
  ImGui::EndChild();
  if (beside) ImGui::SameLine(0, 12 * frame.scale);
  ImGui::BeginChild("table", {0, beside ? 0.0f : 140 * frame.scale}, false);
  panel.draw_table();
  ImGui::EndChild();
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
