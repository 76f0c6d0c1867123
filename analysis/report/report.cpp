// SPDX-License-Identifier: MIT
// From a RunView to the Report struct: totals per site, thinned steps, and the order in which
// the other parts are worked out.
#include "analysis/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "analysis/format_limits.h"
#include "analysis/loss_gap.h"
#include "analysis/proof/cost.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Returns how far the small values are from becoming 0. A quantile, because a single tiny value
/// says nothing: the one that rules allow to be lost without harm.
std::optional<double> headroom_down(const TensorStats& total, const FloatFormat& format) {
  int64_t values = 0, seen = 0;
  for (int64_t count : total.exponents) values += count;
  const double allowed = kFlushedShare * static_cast<double>(values);
  for (int i = 0; i < kExponentBins; ++i) {
    seen += total.exponents[static_cast<size_t>(i)];
    if (static_cast<double>(seen) <= allowed) continue;
    return static_cast<double>(i + kMinExponentBin) - std::log2(flush_threshold(format));
  }
  return std::nullopt;
}

SiteReport report_site(const RunView& run, int lane, const SiteInfo& site) {
  const TensorStats total = run.total(lane, site.order);
  SiteReport report;
  report.name = site.name();
  report.tensor = site.tensor;
  report.order = site.order;
  report.role = site.role;
  report.format = site.format;
  report.scale = site.scale;
  report.n = total.n;
  report.zero = total.zero;
  report.overflow = total.overflow;
  report.underflow = total.underflow;
  report.subnormal = total.subnormal;
  report.pos_inf = total.pos_inf;
  report.neg_inf = total.neg_inf;
  report.nan = total.nan;
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
  report.headroom_down_bits = headroom_down(total, site.format);
  for (int i = 0; i < kExponentBins; ++i) {
    const int64_t count = total.exponents[static_cast<size_t>(i)];
    if (count > 0) report.exponents[i + kMinExponentBin] = count;
  }
  return report;
}

void report_layers(const RunView& run, int lane, std::vector<LayerReport>& layers) {
  const LaneInfo& info = run.lane(lane);
  const size_t first = layers.size();
  std::unordered_map<std::string, size_t> place;
  for (const LayerInfo& layer : info.layers) place.try_emplace(layer.path, 0);
  // Sites of no layer, such as the data, get a line of their own; the data come first.
  for (const SiteInfo& site : info.sites) {
    if (!place.try_emplace(site.path, layers.size()).second) continue;
    LayerReport layer;
    layer.lane = lane;
    layer.path = site.path;
    layer.op = site.op;
    layer.read = layer.write = site.format;
    layers.push_back(std::move(layer));
  }
  std::unordered_map<std::string, bool> done;
  for (const LayerInfo& info_layer : info.layers) {
    if (!done.try_emplace(info_layer.path, true).second) continue;
    place[info_layer.path] = layers.size();
    LayerReport layer;
    layer.lane = lane;
    layer.path = info_layer.path;
    layer.op = info_layer.op;
    layer.read = info_layer.read;
    layer.write = info_layer.write;
    layer.parameters = info_layer.parameters;
    layers.push_back(std::move(layer));
  }
  std::vector<int64_t> weights(layers.size(), 0);
  for (const SiteInfo& site : info.sites) {
    const size_t index = place.at(site.path);
    if (index < first) continue;
    layers[index].sites.push_back(report_site(run, lane, site));
    weights[index] += weights_in(site);
  }
  for (size_t i = first; i < layers.size(); ++i) {
    layers[i].parameters = parameters_of(weights[i], layers[i].parameters);
  }
}

/// Keeps the last step, every skipped one, and of the others each k-th: what is left out can then
/// be said in one word.
void thin(std::span<const StepRow> rows, LaneReport& lane) {
  const size_t must = static_cast<size_t>(lane.skipped) + 1;
  const size_t room = must + 2 < kReportRows ? kReportRows - must : 2;
  const size_t others = rows.size() - std::min(rows.size(), static_cast<size_t>(lane.skipped));
  if (rows.size() > kReportRows) {
    lane.kept_every = static_cast<int64_t>((others + room - 1) / room);
  }
  const size_t every = static_cast<size_t>(std::max<int64_t>(lane.kept_every, 1));
  size_t seen = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool kept = rows[i].skipped || i + 1 == rows.size() || seen % every == 0;
    if (!rows[i].skipped) ++seen;
    if (kept) lane.rows.push_back(rows[i]);
  }
  lane.kept_every = std::max<int64_t>(lane.kept_every, 1);
}

LaneReport report_lane(const RunView& run, int lane) {
  const int reference = reference_lane(run, lane);
  const LaneInfo& info = run.lane(lane);
  LaneReport report;
  report.name = info.name;
  report.backend = info.backend;
  report.plan_json = info.plan_json;
  report.loss_scaling = info.loss_scale;
  report.reference = is_reference(run, lane);
  const LaneFacts facts(run, lane);
  report.harm = harm_of(facts);
  report.lost = run.lost(lane);
  const std::span<const StepRow> rows = run.steps(lane);
  report.steps = static_cast<int64_t>(rows.size());
  for (const StepRow& row : rows) {
    if (!row.skipped) continue;
    ++report.skipped;
    report.last_skipped = row.step;
  }
  if (!rows.empty()) {
    if (facts.has_loss()) {
      report.first_loss = rows.front().loss;
      report.last_loss = rows.back().loss;
      const double end = end_loss(rows);
      if (std::isfinite(end)) report.end_loss = end;
    }
    report.last_loss_scale = rows.back().loss_scale;
  }
  if (reference >= 0 && !run.info().inference) {
    // In a run that is still training, compare the steps that both lanes have done.
    const std::span<const StepRow> theirs = run.steps(reference);
    const size_t steps = std::min(rows.size(), theirs.size());
    if (steps > 0) report.loss_gap = loss_gap(rows.first(steps), theirs.first(steps));
  }
  for (const Deviation& each : run.deviations(lane)) {
    if (!run.info().inference || each.of != Deviation::Of::output) continue;
    const bool decisions = std::isnan(each.ratio) && !std::isnan(each.error);
    const double error = each.broken > 0 ? INFINITY
                         : decisions     ? each.error * each.error
                                         : each.error;
    if (!std::isnan(error))
      report.output_error = std::max(report.output_error.value_or(0.0), error);
  }
  if (!run.evals(lane).empty()) {
    const EvalRow& eval = run.evals(lane).back();
    if (!run.info().inference) report.test_loss = eval.loss;
    const auto take = [&](double score, std::optional<double>& into) {
      if (std::isfinite(score)) into = score;
    };
    take(eval.accuracy, report.test_accuracy);
    take(eval.auc, report.test_auc);
    take(eval.mean_iou, report.test_mean_iou);
  }
  thin(rows, report);
  return report;
}

/// Adds what the findings advise for each layer, in the words of the table's last column.
void add_layer_advice(Report& report) {
  std::map<std::pair<int, std::string>, std::string> words;
  for (const Finding& finding : report.findings) {
    if (finding.severity < Severity::warning || finding.layer.empty()) continue;
    const auto key = std::make_pair(finding.lane, finding.layer);
    if (std::string_view(action_name(finding.action.edit)) == "loss_scale")
      words.emplace(key, "change the loss scale");
    if (finding.action.edit.has(FixKind::weights_fp32)) words.emplace(key, "fp32 master weights");
  }
  if (report.recommendation) {
    for (const std::string& layer : report.recommendation->edit.fp32_layers()) {
      words[{report.recommendation->lane, layer}] = "keep in fp32";
    }
  }
  for (LayerReport& layer : report.layers) {
    const auto place = words.find({layer.lane, layer.path});
    if (place != words.end()) layer.advice = place->second;
  }
}

/// Takes the advice for the first lane with advice, among those that fail if there are any.
void add_recommendation(const RunView& run, Report& report) {
  const std::optional<Severity> worst = worst_severity(report.findings);
  for (int lane = 0; lane < run.lane_count() && !report.recommendation; ++lane) {
    const bool is_worst = std::any_of(
        report.findings.begin(), report.findings.end(),
        [&](const Finding& finding) { return finding.lane == lane && finding.severity == *worst; });
    if (is_worst) report.recommendation = recommend(run, report.findings, lane);
  }
}

int focus_of(const Report& report) {
  if (report.lanes.empty()) return -1;
  if (report.recommendation) return report.recommendation->lane;
  int worst = -1;
  Severity severity = Severity::info;
  for (const Finding& finding : report.findings) {
    if (worst >= 0 && finding.severity <= severity) continue;
    worst = finding.lane;
    severity = finding.severity;
  }
  if (worst >= 0) return worst;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    if (!report.lanes[i].reference) return static_cast<int>(i);
  }
  return 0;
}

void choose_listed(Report& report) {
  for (size_t lane = 0; lane < report.lanes.size(); ++lane) {
    std::vector<LayerReport*> layers;
    for (LayerReport& layer : report.layers) {
      if (layer.lane == static_cast<int>(lane)) layers.push_back(&layer);
    }
    if (static_cast<int>(lane) == report.focus || layers.size() <= kManyLayers) continue;
    std::stable_sort(layers.begin(), layers.end(), [](const LayerReport* a, const LayerReport* b) {
      return report::suffering(*a) > report::suffering(*b);
    });
    for (size_t i = kListedLayers; i < layers.size(); ++i) layers[i]->listed = false;
  }
}

void add_spectrum(const RunView& run, Report& report) {
  if (report.focus < 0) return;
  std::vector<std::string> paths;
  for (const LayerReport& layer : report.layers) {
    if (layer.lane == report.focus) paths.push_back(layer.path);
  }
  constexpr SpectrumChart kCharts[] = {SpectrumChart::activations, SpectrumChart::gradients};
  report.spectrum = make_spectrum(run, report.focus, paths, kCharts, 0, -1);
  if (report.reference < 0 || report.reference == report.focus) return;
  report.reference_spectrum = make_spectrum(run, report.reference, paths, kCharts, 0, -1);
}

}  // namespace

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
  report.reference = reference_lane(run);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    report.lanes.push_back(report_lane(run, lane));
    report.steps = std::max(report.steps, report.lanes.back().steps);
    report_layers(run, lane, report.layers);
  }
  report.findings = run_rules(run);
  for (const Finding& finding : report.findings) report.finding_ids.push_back(finding.id(run));
  add_recommendation(run, report);
  report.focus = focus_of(report);
  choose_listed(report);
  add_layer_advice(report);
  report::add_lane_states(report);
  report::find_cure(run, report);
  report::add_proofs(run, report);
  report::add_diagnosis(run, report);
  report::add_errors(run, report);
  report::add_sums(run, report);
  report::add_kernels(run, report);
  report::add_events(run, report);
  report::add_actions(run, report);
  report::add_reproduction(run, report);
  report.verdict = report::judge(report);
  add_spectrum(run, report);
  return report;
}

std::vector<Score> scores_of(const Report& report) {
  std::vector<Score> scores{{quality_name(report.run), &LaneReport::test_accuracy, &percent}};
  const auto add = [&](const Score& score) {
    const bool measured = std::any_of(report.lanes.begin(), report.lanes.end(),
                                      [&](const LaneReport& lane) { return lane.*score.value; });
    if (measured) scores.push_back(score);
  };
  add({"AUC", &LaneReport::test_auc, &area_text});
  add({"mIoU", &LaneReport::test_mean_iou, &percent});
  return scores;
}

}  // namespace halfscope
