// SPDX-License-Identifier: MIT
// From a RunView to the Report struct: totals per site, thinned steps, and the verdict.
#include "analysis/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

SiteReport report_site(const RunView& run, int lane, const SiteInfo& site) {
  const TensorStats total = run.total(lane, site.order);
  SiteReport report;
  report.name = site.name();
  report.tensor = site.tensor;
  report.role = site.role;
  report.format = site.format;
  report.n = total.n;
  report.zero = total.zero;
  report.overflow = total.overflow;
  report.underflow = total.underflow;
  report.subnormal = total.subnormal;
  report.non_finite = total.non_finite();
  report.lost = total.lost;
  const int64_t finite = total.n - total.non_finite();
  if (finite > 0) {
    report.max_abs = total.max_abs;
    report.rms = std::sqrt(total.sum_sq / static_cast<double>(finite));
  }
  if (std::isfinite(total.min_abs)) report.min_abs = total.min_abs;
  if (total.max_abs > 0.0f) {
    report.headroom_bits = std::log2(site.format.max_finite() / static_cast<double>(total.max_abs));
  }
  for (int i = 0; i < kExponentBins; ++i) {
    const int64_t count = total.exponents[static_cast<size_t>(i)];
    if (count > 0) report.exponents[i + kMinExponentBin] = count;
  }
  return report;
}

void report_layers(const RunView& run, int lane, std::vector<LayerReport>& layers) {
  const LaneInfo& info = run.lane(lane);
  const size_t first = layers.size();
  std::map<std::string, size_t> place;
  // Sites of no layer, such as the data, get a line of their own; the data come first.
  for (const SiteInfo& site : info.sites) {
    const bool known = std::any_of(info.layers.begin(), info.layers.end(),
                                   [&](const LayerInfo& l) { return l.path == site.path; });
    if (known || !place.try_emplace(site.path, layers.size()).second) continue;
    LayerReport layer;
    layer.lane = lane;
    layer.path = site.path;
    layer.op = site.op;
    layer.read = layer.write = site.format;
    layers.push_back(std::move(layer));
  }
  for (const LayerInfo& info_layer : info.layers) {
    if (!place.try_emplace(info_layer.path, layers.size()).second) continue;
    LayerReport layer;
    layer.lane = lane;
    layer.path = info_layer.path;
    layer.op = info_layer.op;
    layer.read = info_layer.read;
    layer.write = info_layer.write;
    layer.parameters = info_layer.parameters;
    layers.push_back(std::move(layer));
  }
  for (const SiteInfo& site : info.sites) {
    const size_t index = place.at(site.path);
    if (index >= first) layers[index].sites.push_back(report_site(run, lane, site));
  }
}

/// Keeps the first and last step, every skipped one, and an even choice of the others.
void thin(std::span<const StepRow> rows, LaneReport& lane) {
  lane.thinned = rows.size() > kReportRows;
  if (!lane.thinned) {
    lane.rows.assign(rows.begin(), rows.end());
    return;
  }
  const auto must = [&](size_t i) { return i == 0 || i + 1 == rows.size() || rows[i].skipped; };
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) kept += must(i) ? 1 : 0;
  const size_t others = rows.size() - kept;
  const size_t room = kept < kReportRows ? std::min(kReportRows - kept, others) : 0;
  size_t seen = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (must(i)) {
      lane.rows.push_back(rows[i]);
    } else {
      // Of every others/room rows exactly one is taken: floor((k+1) room / others) steps up.
      if ((seen + 1) * room / others > seen * room / others) lane.rows.push_back(rows[i]);
      ++seen;
    }
  }
  lane.thinned = lane.rows.size() < rows.size();
}

LaneReport report_lane(const RunView& run, int lane, bool reference) {
  const LaneInfo& info = run.lane(lane);
  LaneReport report;
  report.name = info.name;
  report.backend = info.backend;
  report.plan_json = info.plan_json;
  report.reference = reference;
  const std::span<const StepRow> rows = run.steps(lane);
  report.steps = static_cast<int64_t>(rows.size());
  report.skipped =
      std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
  if (!rows.empty()) {
    report.first_loss = rows.front().loss;
    report.last_loss = rows.back().loss;
    report.last_loss_scale = rows.back().loss_scale;
  }
  if (!run.evals(lane).empty()) {
    report.test_loss = run.evals(lane).back().loss;
    report.test_accuracy = run.evals(lane).back().accuracy;
  }
  thin(rows, report);
  return report;
}

const Finding* worst_of(const std::vector<Finding>& findings, int lane, Severity at_least) {
  for (const Finding& finding : findings) {  // sorted: the worst of a lane comes first
    if (finding.lane == lane && finding.severity >= at_least) return &finding;
  }
  return nullptr;
}

/// "mixed_float16 ends at loss 0.31, float32 at 0.3" for lanes that ran to the end.
std::string compared(const LaneReport& lane, const LaneReport* reference) {
  if (!lane.last_loss) return "";
  std::string text = fmt::format("its loss ends at {:.4g}", *lane.last_loss);
  if (reference != nullptr && reference->last_loss && reference != &lane) {
    text += fmt::format(", that of {} at {:.4g}", reference->name, *reference->last_loss);
  }
  return text;
}

std::string healthy_text(const Report& report, int lane, const LaneReport* reference) {
  const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
  std::string text = fmt::format("{} is healthy: {}", info.name, compared(info, reference));
  for (const Finding& finding : report.findings) {
    if (finding.lane == lane && finding.rule == "first_non_finite" && info.skipped > 0) {
      text += fmt::format("; {} in the run {} the normal start of dynamic scaling",
                          counted(info.skipped, "skipped step"), info.skipped == 1 ? "is" : "are");
    }
  }
  return text + ".";
}

/// " mixed_float16+fp32 beside it is healthy: ..." for the lanes without trouble, so that a cure
/// that was tried next to the fault is told with it.
std::string healthy_neighbours(const Report& report, int reference_index) {
  std::string text;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const LaneReport& lane = report.lanes[i];
    const int index = static_cast<int>(i);
    if (index == reference_index || lane.reference || lane.skipped == lane.steps) continue;
    if (worst_of(report.findings, index, Severity::warning) != nullptr) continue;
    const LaneReport* reference =
        reference_index >= 0 ? &report.lanes[static_cast<size_t>(reference_index)] : nullptr;
    text += fmt::format(" {} beside it is healthy: {}.", lane.name, compared(lane, reference));
  }
  return text;
}

Verdict judge(const Report& report, int reference_index) {
  using State = Verdict::State;
  const LaneReport* reference =
      reference_index >= 0 ? &report.lanes[static_cast<size_t>(reference_index)] : nullptr;
  if (report.lanes.empty()) return {State::attention, "The run holds no lanes."};
  if (std::all_of(report.lanes.begin(), report.lanes.end(),
                  [](const LaneReport& lane) { return lane.steps == 0; })) {
    return {State::attention, "Nothing to judge yet: the run holds no steps."};
  }
  if (reference != nullptr && worst_of(report.findings, reference_index, Severity::error)) {
    return {
        State::broken,
        fmt::format("Not a matter of precision: {} itself does not train ({}).", reference->name,
                    worst_of(report.findings, reference_index, Severity::error)->mechanism)};
  }
  std::vector<std::string> others;
  for (Severity severity : {Severity::error, Severity::warning}) {
    for (size_t i = 0; i < report.lanes.size(); ++i) {
      const Finding* finding = worst_of(report.findings, static_cast<int>(i), severity);
      if (finding == nullptr) continue;
      const bool error = severity == Severity::error;
      std::string text =
          fmt::format("{} {}: {}.", report.lanes[i].name,
                      error ? "does not train like this" : "loses information", finding->mechanism);
      return {error ? State::broken : State::attention,
              text + healthy_neighbours(report, reference_index)};
    }
  }
  for (const LaneReport& lane : report.lanes) {
    if (lane.steps > 0 && lane.skipped == lane.steps) {
      return {State::attention,
              fmt::format("{} has made no update yet: all of its {} skipped. Train for longer.",
                          lane.name,
                          counted(lane.steps, "step") + (lane.steps == 1 ? " was" : " were"))};
    }
  }
  const bool measured = std::any_of(report.layers.begin(), report.layers.end(), [](const LayerReport& layer) {
    return std::any_of(layer.sites.begin(), layer.sites.end(), [](const SiteReport& site) { return site.n > 0; });
  });
  if (!measured) {
    return {State::attention, "Nothing was measured: only the losses can be compared, not what the format did."};
  }
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    if (static_cast<int>(i) != reference_index) {
      others.push_back(healthy_text(report, static_cast<int>(i), reference));
    }
  }
  if (others.empty()) others.push_back(healthy_text(report, 0, nullptr));
  if (others.size() == 1) return {State::healthy, others.front()};
  return {State::healthy,
          fmt::format("All {} lanes are healthy: nothing overflows, and nothing that matters is "
                      "flushed or lost.",
                      report.lanes.size())};
}

}  // namespace

const char* verdict_name(Verdict::State state) noexcept {
  switch (state) {
    case Verdict::State::healthy:
      return "healthy";
    case Verdict::State::attention:
      return "attention";
    case Verdict::State::broken:
      return "broken";
  }
  return "unknown";
}

std::optional<Severity> worst_severity(const std::vector<Finding>& findings) {
  std::optional<Severity> worst;
  for (const Finding& finding : findings) {
    if (!worst || finding.severity > *worst) worst = finding.severity;
  }
  return worst;
}

Report make_report(const RunView& run) {
  Report report;
  report.run = run.info();
  report.run.lanes.clear();
  report.status = run.status();
  const int reference = reference_lane(run);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    report.lanes.push_back(report_lane(run, lane, lane == reference));
    report_layers(run, lane, report.layers);
  }
  report.findings = run_rules(run);
  for (const Finding& finding : report.findings) report.finding_ids.push_back(finding.id(run));
  for (int lane = 0; lane < run.lane_count() && !report.recommendation; ++lane) {
    report.recommendation = recommend(run, report.findings, lane);
  }
  report.verdict = judge(report, reference);
  return report;
}

}  // namespace halfscope
