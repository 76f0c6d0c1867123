// SPDX-License-Identifier: MIT
// Loss of all lanes over steps, and the loss scale of the selected one as stairs on a second axis.
// Marks show skipped steps and growth of the scale, so that an overflow is next to its cause.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/data/smoothing.h"
#include "gui/panels/spectrum.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// A loss as recorded, and smoothed if the user wants that.
struct LossTrace {
  Trace raw{}, smooth{};
};

/// Drawing data of the visible steps. It is rebuilt only when its sources change, since a run may
/// have a hundred thousand steps.
struct LossTraces {
  std::weak_ptr<const RunView> view{};
  Axis x{};
  int lane = -1;
  std::weak_ptr<const RunView> other_view{};
  int other_lane = -1;
  double smoothing = 0.0;
  std::vector<std::weak_ptr<const RunModel>> added_runs{};
  std::vector<LossTrace> losses{};  // by lane
  LossTrace other{};                // of the run that is compared with
  std::vector<LossTrace> added{};   // of further runs
  Trace scale{};
  std::vector<double> skips{}, growths{};  // x, one per pixel column at most
  bool all_positive = true;

  bool is_of(const Frame& frame, const Axis& axis, const FixedLane& fixed) const {
    const std::shared_ptr<const RunView> now = frame.run.shared_view(),
                                         with = other_run(frame, fixed);
    return !view.owner_before(now) && !now.owner_before(view) && x == axis &&
           lane == frame.at.lane && !other_view.owner_before(with) &&
           !with.owner_before(other_view) && other_lane == fixed.lane &&
           smoothing == frame.view.smoothing && added_of(frame);
  }
  bool added_of(const Frame& frame) const {
    return std::equal(added_runs.begin(), added_runs.end(), frame.added.begin(), frame.added.end(),
                      [](const auto& own, const auto& run) {
                        return !own.owner_before(run) && !run.owner_before(own);
                      });
  }
  /// Returns the other run if the fixed lane is not in this one.
  static std::shared_ptr<const RunView> other_run(const Frame& frame, const FixedLane& fixed) {
    return fixed.run == nullptr || fixed.run == &frame.run ? nullptr : fixed.run->shared_view();
  }
};

double middle(const StepRow& row) { return static_cast<double>(row.step) + 0.5; }

void add_marks(LossTraces& traces, std::span<const StepRow> rows) {
  const double apart = (traces.x.high - traces.x.low) / traces.x.pixels();
  const auto add = [apart](std::vector<double>& places, double x) {
    if (places.empty() || x >= places.back() + apart) places.push_back(x);
  };
  const auto begin = std::lower_bound(rows.begin(), rows.end(), traces.x.low - 1.0,
                                      [](const StepRow& row, double x) { return middle(row) < x; });
  for (auto row = begin; row != rows.end() && middle(*row) <= traces.x.high; ++row) {
    if (row->skipped) add(traces.skips, middle(*row));
    if (row != rows.begin() && row->loss_scale > (row - 1)->loss_scale) {
      add(traces.growths, middle(*row));
    }
  }
}

LossTrace loss_trace(const Axis& x, std::span<const StepRow> rows, double smoothing) {
  LossTrace trace;
  trace.raw = reduce(x, rows.size(), [rows](size_t i) {
    return PlotPoint{middle(rows[i]), rows[i].loss};
  });
  if (smoothing > 0.0) {
    std::vector<double> losses;
    losses.reserve(rows.size());
    for (const StepRow& row : rows) losses.push_back(row.loss);
    const std::vector<double> smooth = smoothed(losses, smoothing);
    trace.smooth = reduce(x, rows.size(), [&](size_t i) {
      return PlotPoint{middle(rows[i]), smooth[i]};
    });
  }
  return trace;
}

/// Returns the lane of an added run to draw: the one named like the selected lane, else the first.
int added_lane(const Frame& frame, const RunModel& run) {
  const std::string& wanted = frame.lane_info().name;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    if (run.view().lane(lane).name == wanted) return lane;
  }
  return run.first_lane();
}

/// Returns "lr-0.1" for "runs/lr-0.1.hscope"; with the folder, "a/run", if another run has the same
/// name.
std::string added_name(const Frame& frame, size_t index) {
  const auto name_of = [](const RunModel& run) {
    return std::filesystem::path(run.file()).stem().string();
  };
  const std::string name = name_of(*frame.added[index]);
  const bool alone = std::count_if(frame.added.begin(), frame.added.end(),
                                   [&](const auto& run) { return name_of(*run) == name; }) == 1;
  const std::string folder =
      std::filesystem::path(frame.added[index]->file()).parent_path().filename();
  return alone || folder.empty() ? name : folder + "/" + name;
}

LossTraces make_traces(const Frame& frame, const Axis& x, const FixedLane& fixed) {
  LossTraces traces{.view = frame.run.shared_view(), .x = x, .lane = frame.at.lane};
  traces.smoothing = frame.view.smoothing;
  traces.other_view = LossTraces::other_run(frame, fixed);
  traces.other_lane = fixed.lane;
  if (LossTraces::other_run(frame, fixed)) {
    traces.other = loss_trace(x, fixed.run->view().steps(fixed.lane), traces.smoothing);
  }
  for (const std::shared_ptr<const RunModel>& run : frame.added) {
    traces.added_runs.emplace_back(run);
    const int lane = added_lane(frame, *run);
    traces.added.push_back(lane < 0 ? LossTrace{}
                                    : loss_trace(x, run->view().steps(lane), traces.smoothing));
  }
  for (int lane = 0; lane < frame.run.lane_count(); ++lane) {
    traces.losses.push_back(loss_trace(x, frame.run.view().steps(lane), traces.smoothing));
  }
  const auto positive = [](const LossTrace& trace) {
    return trace.raw.empty() || trace.raw.low > 0.0;
  };
  traces.all_positive = positive(traces.other) &&
                        std::all_of(traces.losses.begin(), traces.losses.end(), positive) &&
                        std::all_of(traces.added.begin(), traces.added.end(), positive);
  const std::span<const StepRow> rows = frame.run.view().steps(frame.at.lane);
  const bool scaled = std::any_of(rows.begin(), rows.end(),
                                  [](const StepRow& row) { return row.loss_scale != 1.0; });
  if (scaled) {
    traces.scale = reduce(x, rows.size(), [rows](size_t i) {
      const double scale = rows[i].loss_scale;
      return PlotPoint{static_cast<double>(rows[i].step), scale > 0.0 ? scale : std::nan("")};
    });
  }
  add_marks(traces, rows);
  return traces;
}

std::string lane_path(const LaneInfo& lane) { return "steps/loss/" + lane.name; }
constexpr const char* kScalePath = "steps/loss/loss scale";
constexpr const char* kComparedPath = "steps/loss/compared";
std::string added_path(size_t index) { return fmt::format("steps/loss/added/{}", index); }
constexpr const char* kSkipPath = "steps/loss/skipped";
constexpr const char* kGrowthPath = "steps/loss/growth";

ImU32 lane_color(const Frame& frame, int lane) {
  return frame.theme.lines[static_cast<size_t>(lane) % frame.theme.lines.size()];
}
/// Returns the colour of a further run; the lanes and the compared run come first.
ImU32 added_color(const Frame& frame, size_t run) {
  return lane_color(frame, frame.run.lane_count() + 1 + static_cast<int>(run));
}
ImU32 scale_color(const Frame& frame) { return frame.theme.good; }

std::vector<LegendEntry> legend_of(const Frame& frame, const LossTraces& traces) {
  std::vector<LegendEntry> entries;
  for (int lane = 0; lane < frame.run.lane_count(); ++lane) {
    const LaneInfo& info = frame.run.view().lane(lane);
    entries.push_back({.path = lane_path(info),
                       .label = info.name,
                       .color = lane_color(frame, lane),
                       .meaning = "Mean loss of the batch. Click to hide the line, double-click "
                                  "to show it alone."});
  }
  if (!traces.other.raw.points.empty()) {
    entries.push_back({.path = kComparedPath,
                       .label = "other run",
                       .color = lane_color(frame, frame.run.lane_count()),
                       .meaning = "Loss of the run that is compared with."});
  }
  for (size_t i = 0; i < frame.added.size(); ++i) {
    entries.push_back({.path = added_path(i),
                       .label = added_name(frame, i),
                       .color = added_color(frame, i),
                       .meaning = "Loss of an added run: its lane with the same name, else its "
                                  "first lane."});
  }
  if (!traces.scale.points.empty()) {
    entries.push_back({.path = kScalePath,
                       .label = "loss scale",
                       .color = scale_color(frame),
                       .meaning = "Factor on the selected lane's loss that keeps small gradients "
                                  "from underflowing. Right axis."});
  }
  if (!traces.skips.empty()) {
    entries.push_back(
        {.path = kSkipPath,
         .label = "skipped",
         .color = frame.theme.bad,
         .mark = PlotMark::triangle_down,
         .meaning = "Steps without an update because a gradient is NaN or infinite."});
  }
  if (!traces.growths.empty()) {
    entries.push_back({.path = kGrowthPath,
                       .label = "scale grew",
                       .color = scale_color(frame),
                       .mark = PlotMark::diamond,
                       .meaning = "Steps that raised the loss scale."});
  }
  return entries;
}

/// Marks a non-finite loss: a stripe along the top, with a cross and a label where it begins.
void draw_gaps(const Frame& frame, Plot& plot, const Trace& trace) {
  const float scale = frame.scale;
  const double wide = 1.0 + 1.5 * (plot.x().high - plot.x().low) / plot.x().pixels();
  float free_from = -1e9f;
  for (size_t i = 0; i < trace.gaps.size();) {
    size_t last = i;
    while (last + 1 < trace.gaps.size() && trace.gaps[last + 1] - trace.gaps[last] <= wide) ++last;
    const float from = std::max(plot.min().x, plot.x().pixel(trace.gaps[i] - 0.5));
    const float to = std::max(from + 2.0f, plot.x().pixel(trace.gaps[last] + 0.5));
    plot.canvas().fill({from, plot.min().y}, {to, plot.min().y + std::round(3.0f * scale)},
                       frame.theme.bad);
    if (from >= free_from) {
      const float y = plot.min().y + std::round(15.0f * scale);
      plot.tag({from + std::round(2.0f * scale), y}, frame.theme.bad, "NaN / Inf");
      free_from = from + 80.0f * scale;
    }
    i = last + 1;
  }
}

std::string loss_text(const StepRow& row) {
  return std::isfinite(row.loss) ? fmt::format("{:.4g}", row.loss) : "NaN / Inf";
}

void show_tip(const Frame& frame, int64_t step) {
  PlotTip tip("Step " + grouped(step));
  const StepRow* own = frame.run.step_row(frame.at.lane, step);
  const bool trains = !frame.run.view().info().inference;
  for (int lane = 0; lane < frame.run.lane_count() && trains; ++lane) {
    const StepRow* row = frame.run.step_row(lane, step);
    tip.row("loss, " + frame.run.view().lane(lane).name,
            row == nullptr ? "not recorded" : loss_text(*row), lane_color(frame, lane));
  }
  for (size_t i = 0; i < frame.added.size() && trains; ++i) {
    const int lane = added_lane(frame, *frame.added[i]);
    const StepRow* row = lane < 0 ? nullptr : frame.added[i]->step_row(lane, step);
    if (row == nullptr) continue;
    tip.row("loss, " + added_name(frame, i), loss_text(*row), added_color(frame, i));
  }
  if (own != nullptr) {
    if (own->loss_scale != 1.0) {
      tip.row("loss scale", scale_text(own->loss_scale), scale_color(frame));
    }
    if (std::isfinite(own->learning_rate)) {
      tip.row("learning rate", short_number(own->learning_rate));
    }
    if (trains) {
      tip.row("gradient norm",
              std::isfinite(own->grad_norm) ? short_number(own->grad_norm) : "non-finite");
    }
    if (std::isfinite(own->accuracy)) tip.row("batch accuracy", percent(own->accuracy));
    if (own->skipped) tip.note("Update skipped: a gradient is NaN or infinite.");
  }
  const EvalRow* eval = nullptr;
  for (const EvalRow& row : frame.run.view().evals(frame.at.lane)) {
    if (row.step <= step + 1) eval = &row;
  }
  const auto score = [&](const char* name, double EvalRow::*value, const auto& text) {
    if (eval == nullptr || std::isnan(eval->*value)) return;
    tip.row(fmt::format("test {} after {}", name, counted(eval->step, "step")), text(eval->*value));
  };
  score(quality_name(frame.run.view().info()), &EvalRow::accuracy, percent);
  score("AUC", &EvalRow::auc, area_text);
  score("mIoU", &EvalRow::mean_iou, percent);
  if (const std::string& note = note_on(frame.view, step); !note.empty()) {
    tip.note("Note: " + note);
  }
  tip.show(look_of(frame), "steps/loss/tip");
}

PlotTable table_of(const Frame& frame, const Axis& x) {
  PlotTable table("step");
  for (int lane = 0; lane < frame.run.lane_count(); ++lane) {
    const std::string& name = frame.run.view().lane(lane).name;
    std::vector<const StepRow*> rows;
    for (const StepRow& row : frame.run.view().steps(lane)) {
      if (middle(row) >= x.low && middle(row) <= x.high) rows.push_back(&row);
    }
    const auto add = [&](const std::string& what, auto value) {
      table.add(what + " " + name, rows.size(), [&](size_t i) {
        return PlotPoint{static_cast<double>(rows[i]->step), value(*rows[i])};
      });
    };
    add("loss", [](const StepRow& row) { return row.loss; });
    add("loss_scale", [](const StepRow& row) { return row.loss_scale; });
    add("skipped", [](const StepRow& row) { return row.skipped ? 1.0 : 0.0; });
    add("grad_norm", [](const StepRow& row) { return row.grad_norm; });
  }
  return table;
}

/// Returns one sentence on the course of the lane's loss scale, and shorter ones for less room;
/// none in inference.
std::vector<std::string> loss_scale_sentences(const Frame& frame) {
  const std::span<const StepRow> rows = frame.run.view().steps(frame.at.lane);
  if (rows.empty() || frame.run.view().info().inference) return {};
  int64_t skipped = 0, lowered = 0, raised = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    skipped += rows[i].skipped;
    if (i == 0) continue;
    lowered += rows[i].loss_scale < rows[i - 1].loss_scale;
    raised += rows[i].loss_scale > rows[i - 1].loss_scale;
  }
  const std::string first = short_scale(rows.front().loss_scale);
  const std::string last = short_scale(rows.back().loss_scale);
  if (lowered == 0 && raised == 0) {
    if (rows.front().loss_scale == 1.0)
      return {"No loss scale: gradients keep the size they have.", "No loss scale."};
    const std::string what =
        skipped == 0 ? std::string("no step was skipped") : counted(skipped, "step") + " skipped";
    return {fmt::format("The loss scale stays at {}; {}.", first, what),
            fmt::format("Loss scale {}; {}.", first, what), fmt::format("Loss scale {}.", first)};
  }
  const auto times = [](int64_t count) {
    return count == 1 ? std::string("once") : grouped(count) + " times";
  };
  const std::string brief = fmt::format("Loss scale {} to {}", first, last);
  std::string course;
  if (lowered > 0) course += ", lowered " + times(lowered);
  if (raised > 0) course += ", raised " + times(raised);
  const std::string skips = skipped == 0
                                ? std::string("; no step was skipped.")
                                : fmt::format("; {} of {} steps skipped.", grouped(skipped),
                                              grouped(static_cast<int64_t>(rows.size())));
  return {brief + course + skips, brief + skips, brief + "."};
}

/// Returns the y axis that fits all losses that are not hidden.
Axis loss_axis(const Frame& frame, const LossTraces& traces) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  const auto add = [&](const std::string& path, const LossTrace& trace) {
    if (is_hidden(frame.view.hidden_series, path)) return;
    low = std::min(low, trace.raw.low);
    high = std::max(high, trace.raw.high);
  };
  for (int lane = 0; lane < frame.run.lane_count(); ++lane) {
    add(lane_path(frame.run.view().lane(lane)), traces.losses[static_cast<size_t>(lane)]);
  }
  add(kComparedPath, traces.other);
  for (size_t i = 0; i < traces.added.size(); ++i) add(added_path(i), traces.added[i]);
  const bool log = traces.all_positive && high > 10.0 * low;
  const AxisScale scale = log ? AxisScale::log10 : AxisScale::linear;
  const ValueRange range = padded(scale, low, high, 0.08);
  return {.scale = scale, .low = range.low, .high = range.high};
}

/// Draws the sentence after the title, as far as the legend leaves room, and stays on the line.
void draw_sentence(const Frame& frame, const std::vector<LegendEntry>& legend) {
  float width = ImGui::GetContentRegionAvail().x - 20.0f * frame.scale;
  for (const LegendEntry& entry : legend)
    width -= text_width(frame.fonts.text, entry.label) + 40.0f * frame.scale;
  if (width < 120.0f * frame.scale || frame.picture != nullptr) return;
  const std::vector<std::string> sentences = loss_scale_sentences(frame);
  if (sentences.empty()) return;
  const auto fits = std::find_if(sentences.begin(), sentences.end(), [&](const std::string& text) {
    return text_width(frame.fonts.text, text) <= width;
  });
  ImGui::AlignTextToFramePadding();
  label("steps/loss/scale", fits == sentences.end() ? sentences.back() : *fits, frame.fonts.text,
        frame.theme.soft, width);
  ImGui::SameLine();
}

}  // namespace

void draw_loss(const Frame& frame) {
  LossTraces& traces = frame.caches.get<LossTraces>();
  const PlotLook look = look_of(frame);
  ViewState& view = frame.view;
  panel_title(frame, "steps/loss/title",
              view.smoothing > 0.0 ? fmt::format("Loss, smoothed {:.2g}", view.smoothing) : "Loss");
  if (frame.at.lane < 0) {
    const StepArea area = step_area(frame, 0.0f);
    Plot plot(look, empty_plot("steps/loss", area));
    plot.message("This run has no lanes.");
    take_area(area);
    return;
  }
  ImGui::SameLine();
  draw_sentence(frame, legend_of(frame, frame.caches.get<LossTraces>()));
  const ImVec2 legend_at = ImGui::GetCursorScreenPos();
  const float legend_right = legend_at.x + ImGui::GetContentRegionAvail().x - look.px(2.0f);
  ImGui::NewLine();
  const bool tall = ImGui::GetContentRegionAvail().y > look.px(150.0f);
  const StepArea area = step_area(frame, tall ? kStepLabels : 2.0f);
  const FixedLane fixed = fixed_lane(frame);
  if (!traces.is_of(frame, area.x, fixed)) traces = make_traces(frame, area.x, fixed);
  const bool wiped = fixed.run != nullptr && view.wipe < 1.0;
  const float split = area.min.x + static_cast<float>(view.wipe) * (area.max.x - area.min.x);

  const bool has_scale = !traces.scale.points.empty() && !is_hidden(view.hidden_series, kScalePath);
  PlotSpec spec{.path = "steps/loss",
                .min = area.min,
                .max = area.max,
                .x = area.x,
                .y = loss_axis(frame, traces),
                .x_labels = tall};
  if (has_scale) {
    // Show at least six whole octaves, so that one halving does not look like a cliff.
    const ValueRange range = padded(AxisScale::log2, traces.scale.low, traces.scale.high, 0.0);
    double low = std::floor(std::log2(range.low)) - 1.0, high = std::ceil(std::log2(range.high));
    low = std::min(low, high - 6.0);
    spec.right =
        Axis{.scale = AxisScale::log2, .low = std::exp2(low), .high = std::exp2(high + 1.0)};
  }
  const bool any_loss = std::any_of(traces.losses.begin(), traces.losses.end(),
                                    [](const LossTrace& trace) { return !trace.raw.empty(); });
  spec.y_labels = spec.y_grid = any_loss;
  if (frame.run.step_count() == 0) spec = empty_plot("steps/loss", area);
  {
    Plot plot(look, spec);
    const bool inference = frame.run.view().info().inference;
    if (frame.run.step_count() == 0) {
      plot.message("No steps recorded yet.");
    } else if (inference) {
      plot.message("Inference has no loss.");
    }
    if (has_scale) {
      plot.name(kScalePath, PlotSide::right);
      plot.stairs(traces.scale, plot.x().high + 1.0, with_alpha(scale_color(frame), 0.8f), 1.0f,
                  PlotSide::right);
    }
    // Left of the wipe is this lane, right of it the one with the fix; others are on both sides.
    const auto draw_line = [&](const std::string& path, const LossTrace& trace, ImU32 color,
                               bool left, bool right, bool strong) {
      const ImVec2 from{wiped && !left ? split : area.min.x, area.min.y};
      const ImVec2 to{wiped && !right ? split : area.max.x, area.max.y};
      plot.name(path);
      plot.canvas().push_clip(from, to);
      const float alpha = strong ? 1.0f : 0.75f;
      if (trace.smooth.points.empty()) {
        plot.line(trace.raw, with_alpha(color, alpha), line_width(area.x, trace.raw, strong));
      } else {
        plot.line(trace.raw, with_alpha(color, 0.22f));
        plot.line(trace.smooth, with_alpha(color, alpha), strong ? 2.0f : 1.25f);
      }
      plot.canvas().pop_clip();
    };
    for (size_t i = 0; i < traces.added.size(); ++i) {
      const std::string path = added_path(i);
      if (is_hidden(view.hidden_series, path)) continue;
      draw_line(path, traces.added[i], added_color(frame, i), true, true, false);
    }
    if (!traces.other.raw.points.empty() && !is_hidden(view.hidden_series, kComparedPath)) {
      draw_line(kComparedPath, traces.other, lane_color(frame, frame.run.lane_count()), false, true,
                wiped);
    }
    for (int lane = 0; lane < frame.run.lane_count(); ++lane) {
      // Draw the selected lane above all others.
      const int each = (frame.at.lane + 1 + lane) % frame.run.lane_count();
      const LaneInfo& info = frame.run.view().lane(each);
      if (is_hidden(view.hidden_series, lane_path(info))) continue;
      const bool chosen = each == frame.at.lane;
      const bool cures = fixed.run == &frame.run && each == fixed.lane;
      const LossTrace& trace = traces.losses[static_cast<size_t>(each)];
      draw_line(lane_path(info), trace, lane_color(frame, each), !cures, !chosen,
                chosen || (wiped && cures));
      if (chosen && !inference) draw_gaps(frame, plot, trace.raw);
    }
    if (wiped) {
      plot.canvas().line({split, area.min.y}, {split, area.max.y}, frame.theme.cursor,
                         2.0f * frame.scale);
      plot.tag({split + look.px(6.0f), area.max.y - look.px(18.0f)}, frame.theme.good,
               (fixed.compared ? "other run: " : "with ") + fixed.name);
    }
    plot.name("steps/loss/marks");
    if (!is_hidden(view.hidden_series, kGrowthPath)) {
      for (const double x : traces.growths) {
        plot.mark_at_top(PlotMark::diamond, x, look.px(8.0f), scale_color(frame), 3.5f);
      }
    }
    if (!is_hidden(view.hidden_series, kSkipPath)) {
      for (const double x : traces.skips) {
        plot.mark_at_top(PlotMark::triangle_down, x, look.px(8.0f), frame.theme.bad);
      }
    }
    for (const Note& note : view.notes) {
      plot.mark_at_top(PlotMark::flag, static_cast<double>(note.step) + 0.5, look.px(8.0f),
                       frame.theme.accent);
    }
    steer_steps(frame, plot);
    draw_step_lines(frame, plot);
    if (plot.hovered() && !plot.panning() && frame.run.step_count() > 0) {
      show_tip(frame, pointed_step(frame, plot));
    }
    if (plot.action() != PlotAction::none) {
      hand_out(frame, plot.action(), table_of(frame, area.x), "loss", PanelPicture::loss);
    }
  }
  ImGui::SetCursorScreenPos({legend_at.x, legend_at.y + ImGui::GetStyle().FramePadding.y});
  draw_legend(look, legend_of(frame, traces), legend_right, view.hidden_series);
  take_area(area);
}

}  // namespace halfscope::gui
