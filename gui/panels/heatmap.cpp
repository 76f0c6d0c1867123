// SPDX-License-Identifier: MIT
// Layers (or tensors) over steps: shows where and when precision is lost. The picture is one
// texture, rebuilt only when something in it changes.
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/data/heat_picture.h"
#include "gui/panels/heatmap_picture.h"
#include "gui/panels/plan_paint.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kTallestRow = 32.0f;
constexpr double kLabelHeight = 15.0;  // least distance between named rows

/// Positions of rows, in pixels from the top of the plot.
struct RowLayout {
  size_t count = 0;
  double height = 1.0, scroll = 0.0;  // height of a row; height scrolled above the plot
  double room = 0.0;                  // height of the plot

  double top(size_t row) const { return static_cast<double>(row) * height - scroll; }
  double used() const { return std::min(room, static_cast<double>(count) * height - scroll); }
  bool overflows() const { return static_cast<double>(count) * height > room + 0.5; }
  int row_at(double y) const {
    if (y < 0.0 || y >= used()) return -1;
    return std::min(static_cast<int>((y + scroll) / height), static_cast<int>(count) - 1);
  }
};

RowLayout lay_out(const Frame& frame, size_t count, double room) {
  ViewState& view = frame.view;
  RowLayout rows{.count = count, .room = room};
  if (count == 0) return rows;
  const double tallest = std::round(static_cast<double>(kTallestRow * frame.scale));
  double fit = std::clamp(room / static_cast<double>(count), 1.0, tallest);
  if (fit >= kSeparatedRow) fit = std::floor(fit);  // all rows alike
  view.row_zoom = std::clamp(view.row_zoom, 1.0, tallest / fit);
  rows.height = fit * view.row_zoom;
  const double most = std::max(0.0, static_cast<double>(count) - room / rows.height);
  view.row_scroll = std::clamp(view.row_scroll, 0.0, most);
  rows.scroll = std::round(view.row_scroll * rows.height);
  return rows;
}

std::vector<HeatRow> rows_of(const Frame& frame) {
  std::vector<HeatRow> rows;
  const std::vector<SiteInfo>& sites = frame.lane_info().sites;
  for (const int layer : frame.visible_layers()) {
    if (!frame.view.tensor_rows) {
      rows.push_back({.layer = layer});
      continue;
    }
    for (const int site : frame.lane().layers[static_cast<size_t>(layer)].sites) {
      if (shows(frame.view.role, sites[static_cast<size_t>(site)].role)) {
        rows.push_back({.layer = layer, .site = site});
      }
    }
  }
  return rows;
}

std::string row_name(const Frame& frame, const HeatRow& row) {
  return row.site >= 0 ? frame.lane_info().sites[static_cast<size_t>(row.site)].name()
                       : frame.lane().layers[static_cast<size_t>(row.layer)].path;
}

/// Returns a short name for the margin, where "activation_grad" does not fit.
std::string short_name(const Frame& frame, const HeatRow& row) {
  if (row.site < 0) return row_name(frame, row);
  const SiteInfo& site = frame.lane_info().sites[static_cast<size_t>(row.site)];
  std::string tensor = site.tensor;
  for (const auto& [word, shorter] : {std::pair<std::string_view, const char*>{"activation", "act"},
                                      {"weight", "w"},
                                      {"running", "run"}}) {
    if (tensor.starts_with(word)) tensor.replace(0, word.size(), shorter);
  }
  return site.path + "." + tensor;
}

/// Returns a name of at most `width` pixels: shortens a tensor's long words, then drops folders.
std::string label_of(const Frame& frame, const HeatRow& row, float width) {
  ImFont& font = *frame.fonts.small;
  if (std::string whole = row_name(frame, row); text_size(font, whole).x <= width) return whole;
  std::string name = short_name(frame, row);
  const size_t folder = name.rfind('/');
  if (row.site >= 0 && folder != std::string::npos && elided(font, name, width) != name) {
    name.erase(0, folder + 1);
  }
  return elided(font, name, width);
}

/// The row that was selected in the last frame.
struct ChosenRow {
  HeatRow row{};
};

// --- Around it ----------------------------------------------------------------------------------

/// Returns ", minus float32's", or "" if nothing is subtracted.
std::string minus_text(const Frame& frame) {
  const int reference = frame.at.lane < 0 ? -1 : frame.run.reference_of(frame.at.lane);
  return reference < 0 ? "" : ", minus " + frame.run.view().lane(reference).name + "'s";
}

/// Draws the meaning of the colours and, if there is room, the mouse help.
void draw_hint(const Frame& frame) {
  const PlotLook look = look_of(frame);
  const std::string what =
      std::string("share ") + metric_whole(frame.view.metric) + minus_text(frame);
  const std::string full = what + "      wheel: zoom   drag: pan   Shift+drag: range";
  ImGui::PushFont(frame.fonts.small);
  ImGui::SameLine();
  for (const std::string& text : {full, what}) {
    const float left = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(text.c_str()).x;
    if (left <= look.px(16.0f)) continue;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + left);
    ImGui::AlignTextToFramePadding();
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
    ui::text("steps/heatmap/whole", text);
    ImGui::PopStyleColor();
    ImGui::PopFont();
    return;
  }
  ImGui::PopFont();
  ImGui::NewLine();
}

void draw_header(const Frame& frame) {
  ViewState& view = frame.view;
  const PlotLook look = look_of(frame);
  if (frame.picture != nullptr) {
    const std::string lane = frame.at.lane < 0 ? "" : ", " + frame.lane_info().name;
    panel_title(frame, "steps/heatmap/title",
                std::string(metric_name(view.metric)) + " per " +
                    (view.tensor_rows ? "tensor" : "layer") + lane + ", share " +
                    metric_whole(view.metric) + minus_text(frame));
    return;
  }
  panel_title(frame, "steps/heatmap/title", "Heatmap");
  ImGui::SameLine();
  if (ui::begin_combo("steps/metric", metric_name(view.metric), look.px(132.0f))) {
    for (const Metric metric : kMetrics) {
      const std::string path = std::string("steps/metric/") + metric_name(metric);
      if (ui::selectable(path, metric_name(metric), metric == view.metric)) view.metric = metric;
      ui::tip(metric_meaning(metric));
    }
    ImGui::EndCombo();
  } else {
    ui::tip(metric_meaning(view.metric));
  }
  ImGui::SameLine();
  if (ui::segment("steps/layer_rows", "Layers", !view.tensor_rows)) view.tensor_rows = false;
  ui::tip("One row per layer, showing its worst tensor.");
  ImGui::SameLine(0.0f, 1.0f);
  if (ui::segment("steps/tensor_rows", "Tensors", view.tensor_rows)) view.tensor_rows = true;
  ui::tip("One row per recorded tensor.");
  draw_hint(frame);
}

/// Draws names left of the rows. If rows are too low for all names, every second, third ... has
/// one, and the selected row always does.
void draw_names(const Frame& frame, const StepArea& area, const std::vector<HeatRow>& rows,
                const RowLayout& layout, int lit, int chosen) {
  const PlotLook look = look_of(frame);
  ImFont& font = *frame.fonts.small;
  Canvas canvas(frame.picture);
  const float dot = look.px(3.0f), left = area.outer_min.x + look.px(14.0f);
  const float width = area.min.x - look.px(11.0f) - left;
  const auto stride = static_cast<size_t>(
      std::max(1.0, std::ceil(kLabelHeight * static_cast<double>(frame.scale) / layout.height)));
  // Do not move names at the ends inwards, or they would be closer than others.
  const float beyond = look.px(4.0f);
  canvas.push_clip({area.outer_min.x, area.min.y - beyond}, {area.min.x, area.max.y + beyond});
  const auto draw = [&](size_t row, ImU32 color, bool ground) {
    const float middle = area.min.y + static_cast<float>(layout.top(row) + layout.height / 2.0);
    const float top = std::round(std::clamp(middle - font_size(font) / 2.0f, area.min.y - beyond,
                                            area.max.y + beyond - font_size(font)));
    const std::string name = label_of(frame, rows[row], width);
    const float text_width = text_size(font, name).x;
    if (ground) {
      canvas.fill({area.outer_min.x, top - 1.0f}, {area.min.x - 1.0f, top + font_size(font) + 2.0f},
                  frame.theme.selection, look.px(2.0f));
    }
    canvas.text(font, {std::floor(left + width - text_width), top}, color, name);
    const auto& severity = frame.lane().layers[static_cast<size_t>(rows[row].layer)].severity;
    if (severity) {
      const float x = std::floor(left + width - text_width) - look.px(8.0f);
      draw_severity(*ImGui::GetWindowDrawList(), {x, top + std::round(font_size(font) / 2.0f)}, dot,
                    *severity, frame.theme.severity(*severity));
    }
    if (tracker() != nullptr) {
      track_rect("steps/heatmap/row/" + row_name(frame, rows[row]),
                 {area.outer_min.x, area.min.y + static_cast<float>(layout.top(row))},
                 {area.min.x, area.min.y + static_cast<float>(layout.top(row + 1))}, name);
    }
  };
  // Names make room for the highlighted ones.
  const double apart = kLabelHeight * static_cast<double>(frame.scale);
  const auto is_covered = [&](size_t row, int by) {
    return by >= 0 &&
           std::fabs(layout.top(row) - layout.top(static_cast<size_t>(by))) < apart - 0.5;
  };
  const size_t first = chosen < 0 ? 0 : static_cast<size_t>(chosen) % stride;
  for (size_t row = first; row < rows.size(); row += stride) {
    if (layout.top(row + 1) <= 0.0 || layout.top(row) >= layout.room) continue;
    if (!is_covered(row, lit) && !is_covered(row, chosen)) draw(row, frame.theme.soft, false);
  }
  const auto draw_lit = [&](int row) {
    if (row < 0) return;
    const double top = layout.top(static_cast<size_t>(row));
    if (top + layout.height > 0.0 && top < layout.room) {
      draw(static_cast<size_t>(row), frame.theme.ink, true);
    }
  };
  draw_lit(chosen);
  if (lit != chosen) draw_lit(lit);
  canvas.pop_clip();
}

/// Paints the formats beside the rows: those of the plan beside a layer, its own beside a tensor.
void paint_rows(const Frame& frame, const StepArea& area, const std::vector<HeatRow>& rows,
                const RowLayout& layout) {
  const float right = area.min.x - 2.0f, left = right - look_of(frame).px(5.0f);
  for (size_t row = 0; row < rows.size(); ++row) {
    const double top = std::max(0.0, layout.top(row)),
                 low = std::min(layout.room, layout.top(row + 1));
    if (low <= top) continue;
    const double gap = layout.height >= kSeparatedRow ? 1.0 : 0.0;
    const ImVec2 min{left, area.min.y + static_cast<float>(top)};
    const ImVec2 max{right, area.min.y + static_cast<float>(std::max(top + 1.0, low - gap))};
    if (rows[row].site >= 0) {
      const FloatFormat& format =
          frame.lane_info().sites[static_cast<size_t>(rows[row].site)].format;
      draw_format_bar(frame, format, format, min, max);
    } else if (const NodeDecision* decision =
                   decision_of(frame, frame.lane().layers[static_cast<size_t>(rows[row].layer)])) {
      draw_format_bar(frame, decision->read, decision->write, min, max);
    }
  }
}

void show_tip(const Frame& frame, const HeatRow& row, double from, double to) {
  const ColumnSpan columns = columns_between(frame.run.columns(), from, to);
  const HeatCell cell =
      worst_cell(frame.run, frame.at.lane, frame.view.metric, frame.view.role, row, columns);
  const auto show = [&](const PlotTip& tip) { tip.show(look_of(frame), "steps/heatmap/tip"); };
  if (cell.site < 0) {
    PlotTip tip(row_name(frame, row));
    tip.note(steps_text(
        static_cast<int64_t>(std::floor(from)),
        std::max(static_cast<int64_t>(std::floor(from)), static_cast<int64_t>(std::ceil(to)) - 1)));
    tip.note("Not measured.");
    return show(tip);
  }
  const SiteInfo& site = frame.lane_info().sites[static_cast<size_t>(cell.site)];
  const Column& column = frame.run.columns()[static_cast<size_t>(cell.column)];
  PlotTip tip(site.name());
  const int shown = columns.last - columns.first;
  std::string when = steps_text(column.step, column.last());
  if (shown > 1) {
    const Column& end = frame.run.columns()[static_cast<size_t>(columns.last - 1)];
    const int64_t steps =
        end.last() + 1 - frame.run.columns()[static_cast<size_t>(columns.first)].step;
    when += ", the worst of the " + grouped(steps) + " steps in this column";
  }
  const StepRow* step = frame.run.step_row(frame.at.lane, column.step);
  const bool scaled = step != nullptr && step->loss_scale != 1.0;
  tip.note(site.op + ", " + format_name(site.format) +
           (scaled ? ", loss scale " + scale_text(step->loss_scale) : ""));
  tip.note(when);
  const std::optional<TensorStats> stats = frame.run.stats(frame.at.lane, cell.site, cell.column);
  if (!stats) return show(tip);
  const Rates rates = rates_of(*stats, site.format);
  const int reference = frame.run.reference_of(frame.at.lane);
  const std::optional<int> twin =
      reference < 0 ? std::nullopt : frame.run.view().find_site(reference, site.name());
  const std::optional<Rates> theirs =
      twin ? frame.run.rates(reference, *twin, cell.column) : std::nullopt;
  const auto row_of = [&](const char* name, double own, double other) {
    std::string text = percent(own);
    if (theirs && other > 0.0) text += " (reference: " + percent(other) + ")";
    tip.row(name, text);
  };
  const Rates other = theirs.value_or(Rates{});
  if (cell.spread == Spread::starts) tip.note("NaN or Inf starts here: its inputs are finite.");
  if (cell.spread == Spread::passes) tip.note("Passes NaN or Inf on from an input.");
  tip.heading(kOfAllValues);
  row_of("overflow", rates.overflow, other.overflow);
  row_of("NaN / Inf", rates.non_finite(), other.non_finite());
  row_of("zero", rates.zero, other.zero);
  tip.heading(kOfNonZeroValues);
  row_of("underflow", rates.underflow, other.underflow);
  row_of("subnormal", rates.subnormal, other.subnormal);
  if (site.role == Role::update) row_of("lost updates", rates.lost, other.lost);
  const int64_t finite = stats->n - stats->non_finite();
  if (finite == 0) {
    tip.heading("No value is finite.");
  } else if (!(stats->max_abs > 0.0f)) {
    tip.heading("All finite values are zero.");
  } else {
    tip.heading("magnitudes");
    tip.row("max", magnitude_text(frame, static_cast<double>(stats->max_abs)));
    tip.row("rms", magnitude_text(frame, std::sqrt(stats->sum_sq / static_cast<double>(finite))));
    tip.row("min (non-zero)", magnitude_text(frame, static_cast<double>(stats->min_abs)));
  }
  show(tip);
}

PlotTable table_of(const Frame& frame, const std::vector<HeatRow>& rows, const Axis& x) {
  PlotTable table("step");
  const ColumnSpan columns = columns_between(frame.run.columns(), x.low, x.high);
  for (const HeatRow& row : rows) {
    table.add(
        row_name(frame, row), static_cast<size_t>(columns.last - columns.first), [&](size_t i) {
          const int column = columns.first + static_cast<int>(i);
          const auto step =
              static_cast<double>(frame.run.columns()[static_cast<size_t>(column)].step);
          const HeatCell cell = worst_cell(frame.run, frame.at.lane, frame.view.metric,
                                           frame.view.role, row, {column, column + 1});
          if (cell.site < 0) return PlotPoint{step, std::nan("")};
          const auto rates = frame.run.rates(frame.at.lane, cell.site, column);
          return PlotPoint{step, rates ? metric_share(*rates, frame.view.metric) : std::nan("")};
        });
  }
  return table;
}

void choose(const Frame& frame, const HeatRow& row) {
  if (row.site >= 0) {
    frame.select_site(row.site);
  } else {
    frame.select_layer(row.layer);
  }
}

void hover(const Frame& frame, const HeatRow& row) {
  frame.view.hovered_layer = frame.lane().layers[static_cast<size_t>(row.layer)].path;
  frame.view.hovered_site = row.site >= 0 ? row_name(frame, row) : "";
}

/// Returns the row of the layer or tensor under the pointer in any panel; -1 without one.
int lit_row(const Frame& frame, const std::vector<HeatRow>& rows) {
  const ViewState& view = frame.view;
  const bool now = !view.hovered_layer.empty();
  const std::string& layer = now ? view.hovered_layer : view.lit_layer;
  const std::string& site = now ? view.hovered_site : view.lit_site;
  const int wanted = frame.run.find_layer(frame.at.lane, layer);
  if (wanted < 0) return -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].layer != wanted) continue;
    if (rows[i].site < 0 || site.empty() || row_name(frame, rows[i]) == site) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

/// Pans and zooms the rows.
void steer_rows(const Frame& frame, const Plot& plot, const RowLayout& layout) {
  ViewState& view = frame.view;
  if (layout.count == 0) return;
  const ImGuiIO& io = ImGui::GetIO();
  if (plot.wheel() != 0.0f && io.KeyCtrl) {
    const double y = static_cast<double>(io.MousePos.y - plot.min().y);
    const double row = (y + layout.scroll) / layout.height;
    const double before = view.row_zoom;
    view.row_zoom =
        std::max(1.0, view.row_zoom * std::pow(1.25, static_cast<double>(plot.wheel())));
    // Keep the row under the pointer there.
    view.row_scroll = row - y / (layout.height * view.row_zoom / before);
  }
  if (plot.pan().y != 0.0f && layout.overflows()) {
    view.row_scroll -= static_cast<double>(plot.pan().y) / layout.height;
  }
  if (plot.double_clicked() || plot.action() == PlotAction::fit) {
    view.row_zoom = 1.0;
    view.row_scroll = 0.0;
  }
}

/// Scrolls to a row that was just selected in any panel.
void follow(const Frame& frame, const std::vector<HeatRow>& rows, const RowLayout& layout,
            int chosen) {
  HeatRow& before = frame.caches.get<ChosenRow>().row;
  const HeatRow now = chosen < 0 ? HeatRow{} : rows[static_cast<size_t>(chosen)];
  if (now == before) return;
  before = now;
  if (chosen < 0 || !layout.overflows()) return;
  const double top = layout.top(static_cast<size_t>(chosen));
  if (top >= 0.0 && top + layout.height <= layout.room) return;
  frame.view.row_scroll = static_cast<double>(chosen) - 0.5 * layout.room / layout.height;
}

void draw_scroll_bar(const Frame& frame, Plot& plot, const RowLayout& layout) {
  if (!layout.overflows()) return;
  const float height = plot.max().y - plot.min().y;
  const double all = static_cast<double>(layout.count) * layout.height;
  const float top = plot.min().y + height * static_cast<float>(layout.scroll / all);
  const float length = std::max(8.0f, height * static_cast<float>(layout.room / all));
  const float x = plot.max().x - std::round(4.0f * frame.scale);
  plot.canvas().fill({x, top}, {plot.max().x - 1.0f, top + length},
                     with_alpha(frame.theme.ink, 0.45f), 2.0f);
}

/// Lets a click on a name select its row.
int pointed_name(const Frame& frame, const StepArea& area, const std::vector<HeatRow>& rows,
                 const RowLayout& layout) {
  ImGui::SetCursorScreenPos({area.outer_min.x, area.min.y});
  const bool clicked = ImGui::InvisibleButton(
      "##rows", {area.min.x - area.outer_min.x - 1.0f, area.max.y - area.min.y});
  track_item("steps/heatmap/rows");
  if (!ImGui::IsItemHovered()) return -1;
  const int row = layout.row_at(static_cast<double>(ImGui::GetIO().MousePos.y - area.min.y));
  if (row < 0) return -1;
  hover(frame, rows[static_cast<size_t>(row)]);
  if (clicked) choose(frame, rows[static_cast<size_t>(row)]);
  PlotTip tip(row_name(frame, rows[static_cast<size_t>(row)]));
  const LayerModel& layer =
      frame.lane().layers[static_cast<size_t>(rows[static_cast<size_t>(row)].layer)];
  tip.note(layer.op.empty() ? "no operator" : layer.op);
  if (const NodeDecision* decision = decision_of(frame, layer)) tip.note(decision_text(*decision));
  if (const NodeDecision* other = differing_decision(frame, layer))
    tip.note(difference_text(frame, *other));
  if (!layer.findings.empty()) {
    tip.note(counted(static_cast<int64_t>(layer.findings.size()), "finding"));
  }
  tip.show(look_of(frame), "steps/heatmap/rows/tip");
  return row;
}

void draw_rows(const Frame& frame, const StepArea& area) {
  const PlotLook look = look_of(frame);
  ViewState& view = frame.view;
  const std::vector<HeatRow> rows = rows_of(frame);
  const RowLayout layout =
      lay_out(frame, rows.size(), static_cast<double>(area.max.y - area.min.y));
  const bool has_picture = !rows.empty() && !frame.run.columns().empty();
  const ImTextureID texture =
      has_picture ? heatmap_texture(
                        frame, rows, area.x,
                        {.height = layout.height, .scroll = layout.scroll, .used = layout.used()})
                  : ImTextureID{};
  const int named = rows.empty() ? -1 : pointed_name(frame, area, rows, layout);
  int pointed = -1, lit = -1, chosen = -1;
  {
    PlotSpec spec = empty_plot("steps/heatmap", area);
    spec.x_labels = frame.run.step_count() > 0;
    Plot plot(look, spec);
    if (has_picture) {
      plot.image("heatmap", texture, area.min,
                 {area.max.x, area.min.y + static_cast<float>(std::lround(layout.used()))});
    } else {
      plot.message(rows.empty() && !frame.lane().layers.empty() ? "No layer matches the filter."
                   : frame.run.step_count() == 0                ? "No steps recorded yet."
                                                                : "No statistics were recorded.");
    }
    steer_steps(frame, plot, true);
    steer_rows(frame, plot, layout);
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (plot.hovered()) pointed = layout.row_at(static_cast<double>(mouse.y - area.min.y));
    if (pointed >= 0) hover(frame, rows[static_cast<size_t>(pointed)]);
    if (pointed >= 0 && plot.clicked()) choose(frame, rows[static_cast<size_t>(pointed)]);
    lit = std::max(named, lit_row(frame, rows));
    for (size_t i = 0; i < rows.size() && chosen < 0; ++i) {
      const bool own =
          view.tensor_rows ? rows[i].site == frame.at.site : rows[i].layer == frame.at.layer;
      if (own && frame.at.layer >= 0) chosen = static_cast<int>(i);
    }
    follow(frame, rows, layout, chosen);
    const auto frame_row = [&](int row, ImU32 color, float width) {
      if (row < 0) return;
      const float top = area.min.y + static_cast<float>(layout.top(static_cast<size_t>(row)));
      const float low = std::max(static_cast<float>(layout.height), 3.0f);
      const ImVec2 min{area.min.x, std::round(top) - 1.0f}, max{area.max.x, std::round(top + low)};
      // Give it a dark edge, since the worst cells are as pale as the frame.
      plot.canvas().outline(min, max, frame.theme.plot, width + 2.0f);
      plot.canvas().outline(min, max, color, width);
    };
    if (frame.picture == nullptr && lit != chosen)
      frame_row(lit, with_alpha(frame.theme.cursor, 0.45f), 1.0f);
    if (frame.picture == nullptr)
      frame_row(chosen, frame.theme.cursor, std::max(1.0f, std::round(1.0f * frame.scale)));
    draw_step_lines(frame, plot);
    draw_scroll_bar(frame, plot, layout);
    if (pointed >= 0 && !plot.panning() && has_picture) {
      const double x = std::floor(static_cast<double>(mouse.x - area.min.x));
      const double per_pixel = (area.x.high - area.x.low) / area.x.pixels();
      const double from = area.x.low + x * per_pixel;
      show_tip(frame, rows[static_cast<size_t>(pointed)], from, from + per_pixel);
    }
    if (plot.action() != PlotAction::none) {
      hand_out(frame, plot.action(), table_of(frame, rows, area.x), "heatmap",
               PanelPicture::heatmap);
    }
  }
  if (frame.picture != nullptr) lit = chosen = -1;
  if (frame.picture == nullptr) paint_rows(frame, area, rows, layout);
  if (!rows.empty()) draw_names(frame, area, rows, layout, lit, chosen);
}

}  // namespace

void draw_heatmap(const Frame& frame) {
  draw_header(frame);
  const StepArea area = step_area(frame, kStepLabels);
  if (frame.at.lane >= 0) {
    draw_rows(frame, area);
    draw_color_bar(frame, area);
  } else {
    Plot plot(look_of(frame), empty_plot("steps/heatmap", area));
    plot.message("This run has no lanes.");
  }
  take_area(area);
}

}  // namespace halfscope::gui
