// SPDX-License-Identifier: MIT
#include "cli/tasks/plan_scalers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "analysis/plans/scaler_traces.h"
#include "analysis/plans/scaler_verdicts.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/rules/text.h"
#include "cli/args/arguments.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr int64_t kUsualSteps = 10000;
constexpr size_t kMostRows = 30, kMostSites = 3;

/// "2^16", "1000", "1", "0", "inf"
std::string short_scale(double scale) {
  if (!(scale > 0.0) || scale == 1.0 || std::isinf(scale)) return shortest(scale);
  const double log2 = std::log2(scale);
  return log2 == std::floor(log2) ? fmt::format("2^{}", static_cast<int>(log2))
                                  : fmt::format("{:.4g}", scale);
}

std::string name_of(const std::string& scaler) { return scaler.substr(0, scaler.find(':')); }

struct Trajectory {
  std::string about;
  ScaleDemands demands;
};

int lane_of(const RunView& run, const std::string& name) {
  if (!name.empty()) {
    if (const std::optional<int> found = run.find_lane(name)) return *found;
    std::vector<std::string> names;
    for (const LaneInfo& each : run.info().lanes) names.push_back(each.name);
    throw usage_error("the run has no lane '" + name + "'",
                      did_you_mean(name, names, "use " + comma_list(names)));
  }
  std::optional<int> needy, scaled;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    if (!needy && needs_loss_scale(run.lane(lane))) needy = lane;
    if (!scaled && LaneFacts(run, lane).scales_loss()) scaled = lane;
    if (needy && scaled == lane && needs_loss_scale(run.lane(lane))) return lane;
  }
  if (needy) return *needy;
  return scaled.value_or(run.lane_count() - 1);
}

void check_choice(const ScalerTraceOptions& options) {
  const int given = (options.run.empty() ? 0 : 1) + (options.pattern.empty() ? 0 : 1) +
                    (options.trajectory.empty() ? 0 : 1) + (options.shape.empty() ? 0 : 1);
  if (given > 1) {
    throw usage_error("plan scalers takes one trajectory",
                      "use a run file, --pattern, --trajectory or --shape");
  }
}

Trajectory trajectory_of(const ScalerTraceOptions& options) {
  check_choice(options);
  if (!options.run.empty()) {
    const RunView run = RunView::open(options.run);
    if (run.info().inference) {
      throw usage_error("'" + options.run + "' is a run of inference, which has no gradients",
                        "record a training with halfscope train --out");
    }
    const int lane = lane_of(run, options.lane);
    return {fmt::format("lane {} of {}", run.lane(lane).name, options.run),
            recorded_demands(run, lane)};
  }
  const std::optional<FloatFormat> format = parse_format(options.format);
  if (!format) {
    throw usage_error("unknown format '" + options.format + "'", format_hint(options.format));
  }
  if (!options.pattern.empty()) {
    return {"pattern " + options.pattern.substr(0, 40) + " (O: overflows at any scale)",
            demands_of_pattern(options.pattern, options.steps)};
  }
  if (!options.trajectory.empty()) {
    return {"gradients of " + options.trajectory + " in " + options.format,
            demands_of(read_gradient_ranges(options.trajectory), *format)};
  }
  const std::string shape = options.shape.empty() ? "spikes" : options.shape;
  const int64_t steps = options.steps > 0 ? options.steps : kUsualSteps;
  return {"built-in trajectory " + shape + " in " + options.format,
          demands_of(gradient_shape(shape, steps), *format)};
}

std::vector<LossScalerConfig> scalers_of(const ScalerTraceOptions& options) {
  if (options.scalers.empty()) return usual_scalers(options.interval);
  std::vector<LossScalerConfig> scalers;
  bool grows = options.interval == 0;  // or one of them has an interval to replace
  for (const std::string& text : options.scalers) {
    scalers.push_back(about({"scaler"}, [&] { return parse_loss_scale(text); }));
    if (options.interval > 0 && !is_static(scalers.back())) {
      scalers.back().growth_interval = options.interval;
      grows = true;
    }
  }
  if (!grows) {
    throw usage_error("plan scalers: --interval has no effect on static scales", "leave it out");
  }
  return scalers;
}

/// Returns the scale of a step, given the position of the change before it.
double scale_at(const ScalerTrace& trace, int64_t step) {
  const auto after =
      std::upper_bound(trace.changes.begin(), trace.changes.end(), step,
                       [](int64_t value, const ScaleChange& each) { return value < each.step; });
  return std::prev(after)->scale;
}

std::string table(const std::vector<std::vector<std::string>>& rows, bool right) {
  std::vector<bool> sides(rows.front().size(), right);
  sides[0] = false;
  return aligned(rows, sides);
}

/// Returns the heading of each trace: the name, or the whole text if names are not unique.
std::vector<std::string> headings(const std::vector<ScalerTrace>& traces) {
  std::set<std::string> names;
  for (const ScalerTrace& each : traces) names.insert(name_of(each.scaler));
  std::vector<std::string> result;
  for (const ScalerTrace& each : traces) {
    result.push_back(names.size() == traces.size() ? name_of(each.scaler) : each.scaler);
  }
  return result;
}

std::string summary(const std::vector<ScalerTrace>& traces, bool shares) {
  std::vector<std::vector<std::string>> rows{
      {"scaler", "first", "lowest", "highest", "last", "skipped", "flushed"}};
  if (shares) rows[0].emplace_back("lost");
  const std::vector<std::string> names = headings(traces);
  for (size_t i = 0; i < traces.size(); ++i) {
    const ScalerTrace& each = traces[i];
    rows.push_back({names[i], short_scale(each.changes.front().scale), short_scale(each.lowest),
                    short_scale(each.highest), short_scale(each.changes.back().scale),
                    std::to_string(each.skipped), std::to_string(each.flushed)});
    if (shares) rows.back().push_back(std::isnan(each.lost) ? "-" : percent(each.lost));
  }
  return table(rows, true);
}

std::string changes(const std::vector<ScalerTrace>& traces, const std::string& csv) {
  std::set<int64_t> steps;
  for (const ScalerTrace& each : traces) {
    for (const ScaleChange& change : each.changes) steps.insert(change.step);
  }
  std::vector<std::vector<std::string>> rows{{"step"}};
  for (const std::string& name : headings(traces)) rows[0].push_back(name);
  std::vector<std::string> before;
  for (const int64_t step : steps) {
    if (rows.size() > kMostRows) break;
    std::vector<std::string> row{std::to_string(step)}, scales;
    for (const ScalerTrace& each : traces) {
      const bool ended = each.stop != ScalerStop::none && step > each.steps;
      scales.push_back(ended ? "-" : short_scale(scale_at(each, step)));
    }
    row.insert(row.end(), scales.begin(), scales.end());
    rows.push_back(std::move(row));
  }
  std::string text = table(rows, true);
  if (steps.size() > kMostRows) {
    text += fmt::format("{} more changes{}\n", steps.size() - kMostRows,
                        csv.empty() ? " (--csv FILE writes all of them)" : " in " + csv);
  }
  return text;
}

std::string limits(const ScaleDemands& demands, bool ceilings) {
  const std::vector<LimitSite> sites = limiting_sites(demands, ceilings);
  if (sites.empty()) return "";
  std::string text = ceilings ? "Largest scale, set by: " : "Smallest scale, set by: ";
  for (size_t i = 0; i < std::min(sites.size(), kMostSites); ++i) {
    text += fmt::format("{}{} in {} ({} 2^{:.1f})", i == 0 ? "" : ", ", sites[i].site,
                        counted(sites[i].steps, "step"), ceilings ? "below" : "above",
                        std::log2(sites[i].tightest));
  }
  if (sites.size() > kMostSites) text += fmt::format(" and {} more", sites.size() - kMostSites);
  return text + ".\n";
}

Json site_json(const ScaleDemands& demands, bool ceilings) {
  Json list = Json::array();
  for (const LimitSite& each : limiting_sites(demands, ceilings)) {
    list.push_back(
        {{"site", each.site}, {"steps", each.steps}, {"scale", json_number(each.tightest)}});
  }
  return list;
}

/// One paragraph per scaler: "deepspeed: DeepSpeed raises at step 17: ... conv2.activation
/// overflows ... Run halfscope ...". Advice that several share comes once, at the end.
std::string verdicts_text(const std::vector<ScalerTrace>& traces,
                          const std::vector<ScalerVerdict>& verdicts, const TextStyle& style) {
  std::map<std::string, int> uses;
  for (const ScalerVerdict& each : verdicts) ++uses[each.advice];
  const std::vector<std::string> names = headings(traces);
  std::string text, shared;
  for (size_t i = 0; i < traces.size(); ++i) {
    const ScalerVerdict& verdict = verdicts[i];
    std::string line = names[i] + ": " + traces[i].about + ".";
    if (!verdict.why.empty()) line += " " + verdict.why;
    if (!verdict.advice.empty()) {
      int& count = uses[verdict.advice];
      if (count == 1) line += " " + verdict.advice;
      if (count > 1) shared += paragraph(verdict.advice, style, 0, 0);
      if (count > 1) count = 0;  // it is told
    }
    text += paragraph(line, style, 0, 2);
  }
  return text + (shared.empty() ? "" : "\n" + shared);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json trace_json(const ScalerTrace& trace, const ScalerVerdict& verdict) {
  Json steps = Json::array(), scales = Json::array();
  for (const ScaleChange& each : trace.changes) {
    steps.push_back(each.step);
    scales.push_back(json_number(each.scale));
  }
  const auto step = [](int64_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  return {{"scaler", trace.scaler},
          {"end", scaler_end_name(trace.end)},
          {"good", trace.end == ScalerEnd::searches ? Json(nullptr) : Json(is_good(trace.end))},
          {"at", step(trace.at)},
          {"text", trace.about},
          {"site", text_or_null(verdict.site)},
          {"why", text_or_null(verdict.why)},
          {"advice", text_or_null(verdict.advice)},
          {"steps", trace.steps},
          {"skipped", trace.skipped},
          {"optimizer_steps", trace.updates},
          {"flushed_steps", trace.flushed},
          {"lost", std::isnan(trace.lost) ? Json(nullptr) : Json(trace.lost)},
          {"first_taken", step(trace.first_taken)},
          {"last_skipped", step(trace.last_skipped)},
          {"lowest", json_number(trace.lowest)},
          {"highest", json_number(trace.highest)},
          {"changes", {{"step", steps}, {"scale", scales}}}};
}

std::string csv_of(const std::vector<ScalerTrace>& traces) {
  std::string csv = "scaler,step,loss_scale\n";
  for (const ScalerTrace& trace : traces) {
    const bool quoted = trace.scaler.find(',') != std::string::npos;
    const std::string name = quoted ? '"' + trace.scaler + '"' : trace.scaler;
    for (const ScaleChange& each : trace.changes) {
      csv += fmt::format("{},{},{}\n", name, each.step, shortest(each.scale));
    }
  }
  return csv;
}

}  // namespace

void add_scaler_flags(CLI::App& app, ScalerTraceOptions& options) {
  constexpr const char* kGroup = "Scalers";
  constexpr uint64_t kMostSteps = 100'000'000, kMostInterval = 1'000'000'000;
  app.add_option("--pattern", options.pattern,
                 "Steps to run: F for finite gradients, O for overflow, for example FFFOF")
      ->type_name("FO...")
      ->group(kGroup);
  offer(app.add_option("--trajectory", options.trajectory,
                       "CSV file with the largest and smallest gradient of each step")
            ->type_name("FILE")
            ->group(kGroup),
        {.files = "*.csv"});
  const std::span<const std::string> shapes = gradient_shapes();
  offer(app.add_option("--shape", options.shape, "Built-in trajectory of gradients [spikes]")
            ->type_name("NAME")
            ->group(kGroup),
        {.words = {shapes.begin(), shapes.end()}});
  std::vector<std::string> names(framework_scalers().begin(), framework_scalers().end());
  names.insert(names.end(), {"dynamic", "static:"});
  offer(
      app.add_option("--scaler", options.scalers,
                     "Loss scaler to run, once for each (see `help loss-scale`) [all frameworks']")
          ->type_name("S")
          ->group(kGroup)
          ->expected(1)
          ->take_all(),
      {.words = names});
  add_integer(app, "--interval", options.interval, 1, kMostInterval,
              "Good steps until a scale grows [each framework's]")
      ->group(kGroup);
  add_integer(app, "--steps", options.steps, 1, kMostSteps,
              "Steps of a pattern or a built-in trajectory [the pattern once, or 10000]")
      ->group(kGroup);
  app.add_option("--format", options.format,
                 "Format of the gradients of --trajectory and --shape [fp16]")
      ->type_name("FORMAT")
      ->group(kGroup);
  app.add_option("--lane", options.lane,
                 "Lane of the run file [the first that needs a loss scale and has one]")
      ->type_name("NAME")
      ->group(kGroup);
  add_output(app, "--csv", options.csv, "*.csv", "Write all changes of the scales as CSV");
  add_force(app, options.force);
}

int plan_scalers(const ScalerTraceOptions& options) {
  check_files({.read = {options.run, options.trajectory}, .written = {options.csv}}, options.force);
  if (options.json && options.csv == kStandardOutput) {
    throw usage_error("--json and --csv - both write to standard output", "use a file for --csv");
  }
  const Trajectory trajectory = trajectory_of(options);
  std::vector<ScalerTrace> traces;
  std::vector<ScalerVerdict> verdicts;
  for (const LossScalerConfig& each : scalers_of(options)) {
    traces.push_back(trace_scaler(each, trajectory.demands));
    verdicts.push_back(verdict_of(traces.back(), each, trajectory.demands, options.run));
  }
  if (!options.csv.empty()) write_result(options.csv, csv_of(traces), options.force);
  const int64_t steps = static_cast<int64_t>(trajectory.demands.steps.size());
  if (options.json) {
    Json list = Json::array();
    for (size_t i = 0; i < traces.size(); ++i) list.push_back(trace_json(traces[i], verdicts[i]));
    write_json(Json{{"schema", "halfscope.scalers/1"},
                    {"version", HALFSCOPE_VERSION},
                    {"trajectory", trajectory.about},
                    {"steps", steps},
                    {"ceiling_sites", site_json(trajectory.demands, true)},
                    {"floor_sites", site_json(trajectory.demands, false)},
                    {"scalers", list}});
    return 0;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  std::string text = fmt::format("{}, {}\n\n", trajectory.about, counted(steps, "step"));
  text += summary(traces, !trajectory.demands.curves.empty()) + "\n";
  text += verdicts_text(traces, verdicts, style);
  text += "\nLoss scale from each step on that changes one:\n" + changes(traces, options.csv);
  const std::string sites = limits(trajectory.demands, true) + limits(trajectory.demands, false);
  if (!sites.empty()) text += "\n" + sites;
  write_message(text, options.csv == kStandardOutput);
  return 0;
}

}  // namespace halfscope
