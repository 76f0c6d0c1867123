// SPDX-License-Identifier: MIT
// The charts of a study: cost against loss gap, and fans of losses over the seeds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "analysis/report/html_page.h"
#include "analysis/report/html_plot.h"
#include "analysis/rules/text.h"
#include "analysis/study/gap_axis.h"
#include "analysis/study/study_html_parts.h"

namespace halfscope::study_html_parts {
namespace {

using html::escape;
using html::PlotAxis;
using html::PlotTick;

constexpr size_t kFansDrawn = 24;
constexpr double kStripHeight = 5.0;  ///< at the top, with marks for losses that are not finite
/// Labels nearer than this, in percent of the chart, become one.
constexpr double kNearX = 3.0, kNearY = 6.0;

struct ParetoPoint {
  size_t group = 0;
  double x = 0.0, y = 0.0;  ///< in percent
};

/// Numbers in the text of points that are close. The table below has all of them.
constexpr size_t kNumbers = 4;

/// Returns numbers beside the points; points that are close share one text.
std::string point_labels(std::vector<ParetoPoint> points) {
  std::string html;
  while (!points.empty()) {
    const ParetoPoint first = points.front();
    std::vector<std::string> numbers;
    std::erase_if(points, [&](const ParetoPoint& each) {
      if (std::fabs(each.x - first.x) > kNearX || std::fabs(each.y - first.y) > kNearY)
        return false;
      numbers.push_back(std::to_string(each.group + 1));
      return true;
    });
    const std::string text = name_list(numbers, kNumbers);
    const bool right = first.x > 80.0;
    html += fmt::format("<span class=\"{}\" style=\"{}:{:.1f}%;top:{:.1f}%\">{}</span>",
                        right ? "pl r" : "pl", right ? "right" : "left",
                        right ? 100.0 - first.x : first.x, first.y, text);
  }
  return html;
}

/// Returns labels below the chart at numbers of bits that formats may have.
std::vector<std::string> bit_labels(double low, double high,
                                    const std::function<double(double)>& x_of) {
  double distance = 1.0;
  while ((high - low) / distance > 6.0) distance *= 2.0;
  std::vector<std::string> labels;
  for (double bits = std::ceil(low / distance) * distance; bits <= high; bits += distance) {
    labels.push_back(fmt::format("<b style=\"left:{:.1f}%\">{:g}{}</b>", 100.0 * x_of(bits), bits,
                                 labels.empty() ? " bits" : ""));
  }
  return labels;
}

std::string pareto_mark(const StudyGroup& group, const ParetoPoint& point) {
  const char* kind = !std::isfinite(*group.gap) ? "up"
                     : group.failing > 0        ? "fail"
                     : group.on_front           ? "pass"
                                                : "in";
  return fmt::format("<i class=\"{}\" style=\"left:{:.1f}%;top:{:.1f}%\"></i>", kind, point.x,
                     point.y);
}

std::string pareto_rows(const StudyFacts& facts, const std::vector<ParetoPoint>& points) {
  std::string rows;
  for (const ParetoPoint& point : points) {
    const StudyGroup& group = facts.groups[point.group];
    rows += fmt::format(
        "<tr><td class=\"n\">{}</td><th scope=\"row\">{}</th><td class=\"n\">{:.4g}</td>"
        "<td class=\"n\">{}</td><td class=\"n\">{} to {}</td><td>{}</td></tr>\n",
        point.group + 1, escape(group.name), *group.bits, escape(study_gap_text(group.gap)),
        escape(study_gap_text(group.least_gap)), escape(study_gap_text(group.worst_gap)),
        group.failing > 0   ? html::tag("error", seeds_text(facts, group.failing, group.finished))
        : !group.comparable ? "baseline did not learn"
        : group.on_front    ? html::tag("healthy", "Pareto front")
                            : "never failed");
  }
  return rows;
}

// --- Fans ------------------------------------------------------------------------------------

/// The common axes of all fans.
struct FanAxes {
  PlotAxis losses;
  double first = 0.0, last = 1.0;
  double x(double step) const { return html::kPlotWidth * (step - first) / (last - first); }
  double y(double loss) const { return losses.position(std::isfinite(loss) ? loss : losses.high); }
};

/// Returns the outline of the band between two of a fan's lines.
std::string band_path(const std::vector<LossBand>& fan, const FanAxes& axes,
                      double LossBand::*lower, double LossBand::*upper) {
  std::string path;
  for (size_t i = 0; i < fan.size(); ++i) {
    path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', axes.x(fan[i].step),
                        axes.y(fan[i].*upper));
  }
  for (size_t i = fan.size(); i-- > 0;) {
    path += fmt::format("L{:.1f} {:.1f}", axes.x(fan[i].step), axes.y(fan[i].*lower));
  }
  return path + "z";
}

std::string median_path(const std::vector<LossBand>& fan, const FanAxes& axes) {
  std::string path;
  bool pen_down = false;
  for (const LossBand& band : fan) {
    if (!std::isfinite(band.median)) {
      pen_down = false;
      continue;
    }
    const double x = axes.x(band.step), y = axes.y(band.median);
    path +=
        pen_down ? fmt::format("L{:.1f} {:.1f}", x, y) : fmt::format("M{:.1f} {:.1f}h.01", x, y);
    pen_down = true;
  }
  return path;
}

/// Returns a bar above the steps in which some losses are not finite.
std::string gone_strip(const std::vector<LossBand>& fan, const FanAxes& axes) {
  std::string marks;
  for (size_t i = 0; i < fan.size(); ++i) {
    if (std::isfinite(fan[i].high)) continue;
    const size_t begin = i;
    while (i + 1 < fan.size() && !std::isfinite(fan[i + 1].high)) ++i;
    const double x = axes.x(fan[begin].step);
    marks += fmt::format(
        "<path class=\"gone\" d=\"M{:.1f} {}h{:.1f}\"><title>some losses NaN or infinite, steps {} "
        "to {}</title></path>",
        x, kStripHeight, std::max(axes.x(fan[i].step) - x, 2.5), fan[begin].step, fan[i].step);
  }
  return marks;
}

std::string fan_drawing(const std::vector<LossBand>& fan, const FanAxes& axes, const char* kind) {
  if (fan.empty()) return "";
  return fmt::format(
      "<g class=\"{}\"><path class=\"range\" d=\"{}\"/><path class=\"half\" d=\"{}\"/>"
      "<path class=\"curve\" d=\"{}\"/></g>",
      kind, band_path(fan, axes, &LossBand::low, &LossBand::high),
      band_path(fan, axes, &LossBand::lower_quartile, &LossBand::upper_quartile),
      median_path(fan, axes));
}

FanAxes fan_axes(const StudyFacts& facts) {
  const FanRange range = fan_range(facts);
  FanAxes axes;
  axes.losses = html::value_axis(range.low, range.high);
  axes.first = range.first;
  axes.last = range.last > range.first ? range.last : range.first + 1.0;
  return axes;
}

}  // namespace

int baseline_of(const StudyView& study, const StudyFacts& facts, const StudyGroup& group) {
  for (const int trial : group.trials) {
    if (trial < 0) continue;
    const std::optional<int> base = study.trials()[static_cast<size_t>(trial)].base;
    if (base) return facts.group_of(*base);
  }
  return -1;
}

std::string pareto_chart(const StudyView& study, const StudyFacts& facts) {
  const GapAxis gaps(facts, study.info().tolerance);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const StudyGroup& group : facts.groups) {
    if (!group.bits || !group.gap) continue;
    low = std::min(low, *group.bits);
    high = std::max(high, *group.bits);
  }
  if (!(low <= high)) return "";
  const double room = std::max(0.08 * (high - low), 0.02 * high);
  const double left = std::max(0.0, low - room), right = high + room;
  const auto x_of = [&](double bits) { return (bits - left) / (right - left); };
  const auto y_of = [&](double gap) {
    if (!std::isfinite(gap)) return kStripHeight;
    return html::kPlotHeight - gaps.place(gap) * (html::kPlotHeight - html::kPlotTop);
  };
  std::vector<ParetoPoint> points;
  std::string drawing, front;
  std::array<std::string, 3> marks;  // from back to front, so that none hides what never failed
  std::vector<ParetoPoint> on_front;
  for (size_t i = 0; i < facts.groups.size(); ++i) {
    const StudyGroup& group = facts.groups[i];
    if (!group.bits || !group.gap) continue;
    const ParetoPoint point{i, 100.0 * x_of(*group.bits), y_of(*group.gap)};
    drawing += fmt::format("<path class=\"whisker\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", 10.0 * point.x,
                           y_of(*group.least_gap), y_of(*group.worst_gap));
    marks[group.on_front ? 2 : group.failing > 0 ? 0 : 1] += pareto_mark(group, point);
    points.push_back(point);
    if (group.on_front) on_front.push_back(point);
  }
  std::sort(on_front.begin(), on_front.end(),
            [](const ParetoPoint& a, const ParetoPoint& b) { return a.x < b.x; });
  for (const ParetoPoint& point : on_front) {
    front += fmt::format("{}{:.1f} {:.1f}", front.empty() ? 'M' : 'L', 10.0 * point.x, point.y);
  }
  if (on_front.size() > 1) drawing += fmt::format("<path class=\"front\" d=\"{}\"/>", front);
  const bool compares = !study.info().baseline.empty();
  if (compares && gaps.shows(study.info().tolerance)) {
    drawing +=
        fmt::format("<path class=\"limit\" d=\"M0 {:.1f}h1000\"/>", y_of(study.info().tolerance));
  }
  std::vector<PlotTick> ticks;
  for (const double gap : gaps.ticks()) {
    ticks.emplace_back(y_of(gap), escape(study_gap_text(std::optional(gap))));
  }
  const bool infinite = std::any_of(points.begin(), points.end(), [&](const ParetoPoint& point) {
    return !std::isfinite(*facts.groups[point.group].worst_gap);
  });
  if (infinite) ticks.emplace_back(kStripHeight, "not finite");
  return "<section aria-labelledby=\"cost\"><h2 id=\"cost\">Cost against loss</h2>\n<figure>"
         "<h3>Gap to the baseline's loss, over the mean width of numbers</h3>\n" +
         html::plot_frame(" pareto", "Loss gap of each group over its cost in bits", drawing, ticks,
                          bit_labels(left, right, x_of),
                          marks[0] + marks[1] + marks[2] + point_labels(points)) +
         "<div class=\"key\"><span><i class=\"pass\"></i>Pareto front</span><span><i class=\"in\">"
         "</i>never failed</span><span><i class=\"fail\"></i>fails in some " +
         std::string(facts.unit()) + "s</span>" +
         (infinite ? "<span><i class=\"up\"></i>median not finite</span>" : "") +
         (compares ? fmt::format("<span><svg width=\"28\" height=\"8\" aria-hidden=\"true\"><path "
                                 "class=\"limit\" d=\"M0 4h28\"/></svg>tolerance {}</span>",
                                 percent(study.info().tolerance))
                   : "") +
         "</div>\n<figcaption>How to read it: to the left is cheaper, below is better. A point is "
         "the median over the " +
         std::string(facts.unit()) +
         "s, its line goes from the smallest to the largest gap. The front joins what never failed "
         "and what nothing else beats in both.</figcaption></figure>\n" +
         html::scroll_begin("Cost and loss gap") +
         "<table class=\"costs\"><caption class=\"sr\">Cost and loss gap of each group</caption>"
         "<thead><tr><th scope=\"col\" class=\"n\">#</th><th scope=\"col\">" +
         std::string(facts.noun == "plan" ? "Plan" : "Combination") +
         "</th><th scope=\"col\" class=\"n\">Bits</th><th scope=\"col\" class=\"n\">Median gap</th>"
         "<th scope=\"col\" class=\"n\">Smallest to largest</th><th scope=\"col\">Result</th></tr>"
         "</thead><tbody>\n" +
         pareto_rows(facts, points) + "</tbody></table></div></section>\n";
}

std::string fans(const StudyView& study, const StudyFacts& facts) {
  std::vector<size_t> drawn;
  for (size_t i = 0; i < facts.groups.size(); ++i) {
    if (!facts.groups[i].fan.empty() && !facts.groups[i].baseline) drawn.push_back(i);
  }
  if (drawn.empty()) return "";
  const size_t all = drawn.size();
  std::stable_sort(drawn.begin(), drawn.end(), [&](size_t a, size_t b) {
    return facts.groups[a].failing_share() > facts.groups[b].failing_share();
  });
  drawn.resize(std::min(all, kFansDrawn));
  const FanAxes axes = fan_axes(facts);
  const std::vector<PlotTick> ticks = html::value_ticks(axes.losses);
  const std::vector<std::string> below{fmt::format("step {}", axes.first), "",
                                       fmt::format("{}", axes.last)};
  std::string figures;
  for (const size_t index : drawn) {
    const StudyGroup& group = facts.groups[index];
    const int base = baseline_of(study, facts, group);
    std::string drawing;
    if (base >= 0) {
      drawing += fan_drawing(facts.groups[static_cast<size_t>(base)].fan, axes, "of-base");
    }
    drawing += fan_drawing(group.fan, axes, group.failing > 0 ? "of-bad" : "of-good");
    drawing += gone_strip(group.fan, axes);
    figures +=
        fmt::format("<figure><h3>{} <small>{} failing</small></h3>\n{}</figure>\n",
                    escape(group.name), escape(seeds_text(facts, group.failing, group.finished)),
                    html::plot_frame(" low", "Loss of " + group.name + " over the steps", drawing,
                                     ticks, below));
  }
  std::string note;
  if (drawn.size() < all) {
    note = fmt::format("<p class=\"how\">{} of {} are drawn, those that fail most first.</p>\n",
                       drawn.size(), all);
  }
  return fmt::format(
      "<section aria-labelledby=\"losses\"><h2 id=\"losses\">Losses{}</h2>\n"
      "<div class=\"fans\">{}</div>\n<div class=\"key\"><span><svg viewBox=\"0 0 28 12\" "
      "aria-hidden=\"true\"><g class=\"of-good\"><path class=\"range\" d=\"M0 0h28v12h-28z\"/>"
      "<path class=\"half\" d=\"M0 3h28v6h-28z\"/><path class=\"curve\" d=\"M0 6h28\"/></g></svg>"
      "median, quartiles, smallest to largest</span><span><svg viewBox=\"0 0 28 12\" "
      "aria-hidden=\"true\"><g class=\"of-base\"><path class=\"half\" d=\"M0 3h28v6h-28z\"/><path "
      "class=\"curve\" d=\"M0 6h28\"/></g></svg>baseline</span><span><svg viewBox=\"0 0 28 12\" "
      "aria-hidden=\"true\"><path class=\"gone\" d=\"M0 6h28\"/></svg>some losses NaN or infinite"
      "</span></div>\n{}<p class=\"how\">How to read it: the loss of each batch over the {}s. All "
      "charts have the same axes. A loss that is not finite counts as infinitely large, and losses "
      "beyond the axis are drawn at its end.</p></section>\n",
      axes.losses.log ? ", logarithmic" : "", figures, note, facts.unit());
}

}  // namespace halfscope::study_html_parts
