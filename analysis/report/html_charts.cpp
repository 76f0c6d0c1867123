// SPDX-License-Identifier: MIT
// The charts over steps: the loss of all lanes, the loss scale with its skipped steps, and the
// learning rate if it changes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "analysis/report/html_parts.h"
#include "analysis/report/html_plot.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

constexpr size_t kCurveLanes = 8;
constexpr size_t kCurvePoints = 400;

/// Four colors and four kinds of dashes, so that eight lanes differ.
std::string lane_class(size_t lane) {
  return fmt::format("c{} d{}", lane % 4, (lane + lane / 4) % 4);
}

struct Steps {
  int64_t first = 0, last = 1;
  double position(int64_t step) const {
    return kPlotWidth * static_cast<double>(step - first) / static_cast<double>(last - first);
  }
};

Steps steps_of(const Report& report) {
  Steps steps{INT64_MAX, INT64_MIN};
  for (const LaneReport& lane : report.lanes) {
    if (lane.rows.empty()) continue;
    steps.first = std::min(steps.first, lane.rows.front().step);
    steps.last = std::max(steps.last, lane.rows.back().step);
  }
  if (steps.first > steps.last) return {};
  if (steps.first == steps.last) ++steps.last;
  return steps;
}

bool loss_gone(const StepRow& row) { return !std::isfinite(row.loss); }
bool was_skipped(const StepRow& row) { return row.skipped; }

size_t stretch_of(const std::vector<StepRow>& rows) {
  return std::max<size_t>(1, (2 * rows.size() + kCurvePoints - 1) / kCurvePoints);
}

/// Returns a thinned curve that keeps the lowest and highest value of each stretch.
std::vector<const StepRow*> thin_curve(const std::vector<StepRow>& rows,
                                       const std::function<double(const StepRow&)>& value) {
  std::vector<const StepRow*> points;
  const size_t stretch = stretch_of(rows);
  for (size_t begin = 0; begin < rows.size(); begin += stretch) {
    const size_t end = std::min(begin + stretch, rows.size());
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(value(rows[i]))) {  // a gap must stay a gap
        low = high = i;
        break;
      }
      if (value(rows[i]) < value(rows[low])) low = i;
      if (value(rows[i]) > value(rows[high])) high = i;
    }
    points.push_back(&rows[std::min(low, high)]);
    if (low != high) points.push_back(&rows[std::max(low, high)]);
  }
  if (!rows.empty() && points.back() != &rows.back()) points.push_back(&rows.back());
  return points;
}

/// Returns a curve with gaps where values are not finite. `stairs` keeps each value until the next
/// one.
std::string curve(const LaneReport& lane, size_t index, const Steps& steps, const PlotAxis& axis,
                  bool stairs, const std::function<double(const StepRow&)>& value) {
  std::string path;
  bool pen_down = false;
  for (const StepRow* row : thin_curve(lane.rows, value)) {
    if (!std::isfinite(value(*row)) || (axis.log && value(*row) <= 0.0)) {
      pen_down = false;
      continue;
    }
    const double x = steps.position(row->step), y = axis.position(value(*row));
    if (!pen_down) {
      // Draw single points too: SVG does not show a line of zero length.
      path += fmt::format("M{:.1f} {:.1f}h.01", x, y);
    } else if (stairs) {
      path += fmt::format("H{:.1f}V{:.1f}", x, y);
    } else {
      path += fmt::format("L{:.1f} {:.1f}", x, y);
    }
    pen_down = true;
  }
  if (path.empty()) return "";
  return fmt::format("<path class=\"curve {}\" d=\"{}\"><title>{}</title></path>",
                     lane_class(index), path, escape(lane.name));
}

/// Returns marks in the strip above the curves; consecutive marked steps become one bar.
std::string strip(const LaneReport& lane, const Steps& steps, const char* what,
                  const std::function<bool(const StepRow&)>& marked) {
  std::string marks;
  const double step_width = kPlotWidth / static_cast<double>(steps.last - steps.first);
  for (size_t i = 0; i < lane.rows.size(); ++i) {
    if (!marked(lane.rows[i])) continue;
    const size_t begin = i;
    // Skipped steps are all kept, so a gap between them is real. Of other steps only every
    // kept_every-th is kept.
    const auto follows = [&](const StepRow& row, const StepRow& next) {
      return next.step - row.step <= (next.skipped ? 1 : lane.kept_every);
    };
    while (i + 1 < lane.rows.size() && marked(lane.rows[i + 1]) &&
           follows(lane.rows[i], lane.rows[i + 1])) {
      ++i;
    }
    const int64_t from = lane.rows[begin].step, to = lane.rows[i].step;
    const double x = steps.position(from);
    // Make marks at least two pixels wide on a wide page, however many steps there are.
    const double width = std::max(steps.position(to) - x + 0.6 * step_width, 2.5);
    const std::string when =
        from == to ? fmt::format("step {}", from) : fmt::format("steps {} to {}", from, to);
    marks += fmt::format(
        "<path class=\"gone\" d=\"M{:.1f} 5h{:.1f}\"><title>{}: {} at {}"
        "</title></path>",
        x, std::min(width, kPlotWidth - x + 1.0), escape(lane.name), what, when);
  }
  return marks;
}

/// Returns the labels under a chart over steps.
std::vector<std::string> step_labels(const Steps& steps) {
  const bool middle = steps.last - steps.first > 2;
  return {fmt::format("step {}", steps.first),
          middle ? std::to_string((steps.first + steps.last) / 2) : "", std::to_string(steps.last)};
}

/// Returns the lanes in drawing order. The reference comes last, so that its dashes stay visible on
/// top of an identical curve.
std::vector<size_t> drawing_order(const Report& report) {
  std::vector<size_t> order;
  for (bool reference : {false, true}) {
    for (size_t i = 0; i < std::min(report.lanes.size(), kCurveLanes); ++i) {
      if (report.lanes[i].reference == reference) order.push_back(i);
    }
  }
  return order;
}

std::vector<size_t> first_lanes(const Report& report) {
  std::vector<size_t> lanes;
  for (size_t i = 0; i < std::min(report.lanes.size(), kCurveLanes); ++i) lanes.push_back(i);
  return lanes;
}

/// Returns a note about steps that the curves leave out.
std::string left_out(const Report& report) {
  std::string html;
  for (const LaneReport& lane : report.lanes) {
    const size_t stretch = stretch_of(lane.rows);
    if (!lane.thinned() && stretch == 1) continue;
    html += fmt::format("<p class=\"how\">{}: ", escape(lane.name));
    if (lane.thinned()) {
      const int64_t k = lane.kept_every;
      html += fmt::format("every {}{} step is shown ({} of {}), and every skipped one. ", k,
                          k % 10 == 2 && k % 100 != 12   ? "nd"
                          : k % 10 == 3 && k % 100 != 13 ? "rd"
                          : k % 10 == 1 && k % 100 != 11 ? "st"
                                                         : "th",
                          lane.rows.size(), lane.steps);
    }
    if (stretch > 1) {
      html += fmt::format(
          "The curve goes through the lowest and the highest of every {} steps shown.", stretch);
    }
    html += "</p>\n";
  }
  return html;
}

/// Returns "step skipped: mixed_float16"; empty if no lane has such a row.
std::string marked_lanes(const Report& report, const std::string& what,
                         const std::function<bool(const StepRow&)>& marked) {
  std::vector<std::string> names;
  for (const LaneReport& lane : report.lanes) {
    if (std::any_of(lane.rows.begin(), lane.rows.end(), marked)) names.push_back(lane.name);
  }
  return names.empty() ? "" : what + ": " + escape(name_list(names));
}

std::string legend(const Report& report, const std::vector<size_t>& drawn,
                   const std::string& marked) {
  std::string html = "<div class=\"legend\">";
  for (size_t i : drawn) {
    html += fmt::format("<span>{}{}</span>", lane_swatch(i), escape(report.lanes[i].name));
  }
  if (!marked.empty()) {
    html += fmt::format(
        "<span><svg width=\"14\" height=\"8\" aria-hidden=\"true\">"
        "<path class=\"gone\" d=\"M0 4h14\"/></svg>{}</span>",
        marked);
  }
  html += "</div>\n";
  if (report.lanes.size() > kCurveLanes) {
    html += fmt::format("<p class=\"how\">Only the first {} of {} lanes are drawn.</p>\n",
                        kCurveLanes, report.lanes.size());
  }
  return html;
}

}  // namespace

std::string lane_swatch(size_t lane) {
  return fmt::format(
      "<svg width=\"28\" height=\"8\" aria-hidden=\"true\"><path class=\"curve {}\" "
      "d=\"M0 4h28\"/></svg>",
      lane_class(lane));
}

std::string loss_chart(const Report& report) {
  if (report.run.inference) return "";
  const Steps steps = steps_of(report);
  double low = INFINITY, high = -INFINITY;
  for (const LaneReport& lane : report.lanes) {
    for (const StepRow& row : lane.rows) {
      if (!std::isfinite(row.loss)) continue;
      low = std::min(low, row.loss);
      high = std::max(high, row.loss);
    }
  }
  const PlotAxis axis = value_axis(low, high);
  const std::vector<PlotTick> ticks = low <= high ? value_ticks(axis) : std::vector<PlotTick>{};
  std::string drawing;
  std::vector<int> strong;
  if (report.focus >= 0) strong = healthy_siblings(report, report.focus);
  if (!strong.empty()) strong.push_back(report.focus);
  for (size_t i : drawing_order(report)) {
    const LaneReport& lane = report.lanes[i];
    const std::string line =
        curve(lane, i, steps, axis, false, [](const StepRow& row) { return row.loss; });
    const bool told = std::find(strong.begin(), strong.end(), static_cast<int>(i)) != strong.end();
    drawing += told && !line.empty() ? "<g class=\"strong\">" + line + "</g>" : line;
    drawing += strip(lane, steps, "loss NaN or infinite", loss_gone);
  }
  return fmt::format("<figure><h3>Loss{}</h3>\n", axis.log ? ", logarithmic" : "") +
         plot_frame("", "Loss of every lane over the steps", drawing, ticks, step_labels(steps)) +
         legend(report, first_lanes(report),
                marked_lanes(report, "loss NaN or infinite", loss_gone)) +
         "<figcaption>How to read it: the mean loss of each batch, without the loss scale. All "
         "lanes see the same batches, so where the curves separate, precision makes the "
         "difference.</figcaption>" +
         left_out(report) + "</figure>\n";
}

std::string scale_chart(const Report& report) {
  const Steps steps = steps_of(report);
  // Leave out lanes without loss scaling, whose scale is always 1.
  std::vector<size_t> scaled;
  double low = INFINITY, high = -INFINITY;
  for (size_t i : drawing_order(report)) {
    const std::vector<StepRow>& rows = report.lanes[i].rows;
    if (std::all_of(rows.begin(), rows.end(),
                    [](const StepRow& row) { return row.loss_scale == 1.0 && !row.skipped; })) {
      continue;
    }
    scaled.push_back(i);
    for (const StepRow& row : rows) {
      if (!(row.loss_scale > 0.0) || !std::isfinite(row.loss_scale)) continue;
      low = std::min(low, row.loss_scale);
      high = std::max(high, row.loss_scale);
    }
  }
  if (scaled.empty()) return "";
  PlotAxis axis{0.5, 2.0, true};
  if (low <= high) axis = {low / 2.0, high * 2.0, true};
  std::vector<PlotTick> ticks;
  const int first = static_cast<int>(std::ceil(std::log2(axis.low)));
  const int last = static_cast<int>(std::floor(std::log2(axis.high)));
  const int every = std::max(1, (last - first + 3) / 4);
  for (int e = first; e <= last; e += every) {
    ticks.emplace_back(axis.position(std::exp2(e)), prose(fmt::format("2^{}", e)));
  }
  std::string drawing;
  for (size_t i : scaled) {
    const LaneReport& lane = report.lanes[i];
    drawing += curve(lane, i, steps, axis, true, [](const StepRow& row) { return row.loss_scale; });
    drawing += strip(lane, steps, "step skipped", was_skipped);
  }
  std::sort(scaled.begin(), scaled.end());
  return "<figure><h3>Loss scale</h3>\n" +
         plot_frame(" low", "Loss scale of the lanes that use one, over the steps", drawing, ticks,
                    step_labels(steps)) +
         legend(report, scaled, marked_lanes(report, "step skipped", was_skipped)) +
         "<figcaption>How to read it: a dynamic loss scale halves when a gradient overflows, and "
         "that step is skipped. A few halvings at the start are normal. If it keeps falling, the "
         "scale is not the problem.</figcaption></figure>\n";
}

std::string learning_rate_chart(const Report& report) {
  const Steps steps = steps_of(report);
  double low = INFINITY, high = -INFINITY;
  size_t lane = report.lanes.size();
  for (size_t i : first_lanes(report)) {
    for (const StepRow& row : report.lanes[i].rows) {
      if (!std::isfinite(row.learning_rate)) continue;
      if (lane == report.lanes.size()) lane = i;  // all lanes have the same schedule
      low = std::min(low, row.learning_rate);
      high = std::max(high, row.learning_rate);
    }
  }
  if (!(low < high)) return "";
  const PlotAxis axis{0.0, high, false};
  std::vector<PlotTick> ticks;
  const double distance = tick_distance(high, 3.0);
  for (double v = 0.0; v <= high; v += distance) {
    ticks.emplace_back(axis.position(v), fmt::format("{:.3g}", v));
  }
  return "<figure><h3>Learning rate</h3>\n" +
         plot_frame(" low", "Learning rate over the steps",
                    curve(report.lanes[lane], lane, steps, axis, true,
                          [](const StepRow& row) { return row.learning_rate; }),
                    ticks, step_labels(steps)) +
         "<figcaption>It is the same for all lanes.</figcaption></figure>\n";
}

}  // namespace halfscope::html
