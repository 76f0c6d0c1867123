// SPDX-License-Identifier: MIT
// The parts of a report that do not come from statistics: errors relative to another lane, the
// proof of an advised plan, and how the first non-finite tensor reached the loss.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/distances.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

namespace report {
namespace {

std::optional<double> median(std::vector<double> values) {
  std::erase_if(values, [](double x) { return std::isnan(x); });
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Samples of one site, from which medians are taken.
struct Samples {
  std::vector<double> total, local_fp32, local_fp64, inherited;
};

std::string who_adds(const ErrorReport& errors) {
  const SiteErrorReport* most = nullptr;
  for (const SiteErrorReport& site : errors.sites) {
    if (!site.local() || !std::isfinite(*site.local()) || *site.local() <= 0.0) continue;
    if (most == nullptr || *site.local() > *most->local()) most = &site;
  }
  if (most == nullptr) return "";
  std::string text =
      fmt::format(" {} adds the most error: {}", most->name, percent(*most->local()));
  if (most->inherited && *most->inherited > 0.0) {
    text += fmt::format(", on top of the {} it inherits", percent(*most->inherited));
  }
  const SiteErrorReport* flips = nullptr;
  for (const SiteErrorReport& site : errors.sites) {
    if (!site.feeds_relu || site.sign_flips == 0) continue;
    if (flips == nullptr || share(site.sign_flips, site.n) > share(flips->sign_flips, flips->n)) {
      flips = &site;
    }
  }
  text += ".";
  if (flips != nullptr) {
    text += fmt::format(" {} has the most sign flips in front of a ReLU: {} of its elements.",
                        flips->name, percent(share(flips->sign_flips, flips->n)));
  }
  return text;
}

/// The first error in order of steps and execution.
struct FirstError {
  int64_t n = 0, differing = 0;
  double ulps = 0.0;
};

/// Returns ", by at most 3 ulp of fp16". Numbers near 0 may be as many ulps apart as the format has
/// numbers, however near they are: beyond a factor of two the count says nothing. It is 0 if all
/// that differ are NaN or infinite in one lane.
std::string ulps_text(double ulps, const FloatFormat& format) {
  if (ulps == 0.0 || !(ulps <= std::ldexp(1.0, format.mantissa_bits))) return "";
  return fmt::format(", by at most {} ulp of {}", short_number(ulps), format_name(format));
}

void describe(const RunView& run, const SiteErrorReport* first, const FirstError& error,
              ErrorReport& errors) {
  const std::string& other = run.lane(errors.other).name;
  if (first == nullptr) {
    errors.text = fmt::format("No tensor differs from {} in {}.", other,
                              counted(static_cast<int64_t>(errors.steps.size()), "sampled step"));
    return;
  }
  errors.first_site = first->name;
  errors.text = fmt::format(
      "{} is the first tensor to differ from {}, at step {}: {} of its elements differ{}.",
      first->name, other, errors.first_step, percent(share(error.differing, error.n)),
      ulps_text(error.ulps, first->format));
  const auto gone = std::find_if(errors.sites.begin(), errors.sites.end(),
                                 [](const SiteErrorReport& site) { return site.not_finite > 0; });
  if (gone != errors.sites.end()) {
    errors.text +=
        fmt::format(" {} is the first with NaN or Inf in one lane only: {} of its elements.",
                    gone->name, percent(share(gone->not_finite, gone->n)));
  }
  errors.text += who_adds(errors);
}

/// Returns the steps that one of the lanes skipped or whose loss is not finite. Tensors compared
/// there say little about operators, because the weights have diverged.
std::set<int64_t> lost_steps(const RunView& run, int lane, int other) {
  std::set<int64_t> lost;
  for (int each : {lane, other}) {
    for (const StepRow& row : run.steps(each)) {
      const bool finite = run.info().inference || std::isfinite(row.loss);
      if (row.skipped || !finite) lost.insert(row.step);
    }
  }
  return lost;
}

ErrorReport compare(const RunView& run, int lane, int other) {
  ErrorReport report{.lane = lane, .other = other};
  const std::set<int64_t> lost = lost_steps(run, lane, other);
  std::map<int, SiteErrorReport> sites;  // by order
  std::map<int, Samples> samples;
  const std::vector<SiteInfo>& infos = run.lane(lane).sites;
  int first = -1;
  FirstError first_error;
  for (const SiteError& error : run.errors(lane)) {  // by step, then site
    const size_t place = static_cast<size_t>(error.site);
    if (error.other_lane != other || error.site < 0 || place >= infos.size()) continue;
    // In the first sample the weights are still the same, or it is the only sample.
    const bool is_first = report.steps.empty() || report.steps.front() == error.step;
    if (!is_first && lost.contains(error.step)) continue;
    if (report.steps.empty() || report.steps.back() != error.step) {
      report.steps.push_back(error.step);
    }
    SiteErrorReport& site = sites[error.site];
    Samples& sample = samples[error.site];
    ++site.samples;
    site.n += error.n;
    site.differing += error.differing;
    site.sign_flips += error.sign_flips;
    site.not_finite += not_finite_in_one(run, lane, error);
    site.max_ulps = std::max(site.max_ulps, error.max_ulps);
    for (size_t i = 0; i < site.ulps.size(); ++i) site.ulps[i] += error.ulps[i];
    // Norms are over elements finite in both lanes. Without any, a norm of 0 would look like
    // agreement.
    if (error.n == 0 || error.ulps.back() < error.n) {
      sample.total.push_back(error.total);
      sample.local_fp32.push_back(error.local_fp32);
      sample.local_fp64.push_back(error.local_fp64);
      sample.inherited.push_back(error.inherited);
    }
    if (first < 0 && error.differing > 0) {
      first = error.site;
      report.first_step = error.step;
      first_error = {error.n, error.differing, error.max_ulps};
    }
  }
  static const std::set<std::string> kRelus{"LeakyRelu", "PRelu", "Relu"};
  std::set<std::string> before_relu;  // paths of layers that a ReLU reads
  for (const LayerInfo& layer : run.lane(lane).layers) {
    if (kRelus.contains(layer.op)) before_relu.insert(layer.inputs.begin(), layer.inputs.end());
  }
  const SiteErrorReport* first_site = nullptr;
  report.sites.reserve(sites.size());
  for (auto& [order, site] : sites) {
    const SiteInfo& info = infos[static_cast<size_t>(order)];
    site.site = order;
    site.name = info.name();
    site.layer = info.path;
    site.role = info.role;
    site.phase = info.phase;
    site.format = info.format;
    site.feeds_relu = info.role == Role::activation && before_relu.contains(info.path);
    const Samples& sample = samples[order];
    site.total = median(sample.total);
    site.local_fp32 = median(sample.local_fp32);
    site.local_fp64 = median(sample.local_fp64);
    site.inherited = median(sample.inherited);
    for (double total : sample.total) {
      if (!std::isnan(total)) site.worst_total = std::max(site.worst_total.value_or(0.0), total);
    }
    report.sites.push_back(site);
    if (order == first) first_site = &report.sites.back();
  }
  describe(run, first_site, first_error, report);
  return report;
}

/// Returns what happened to a site in the window that contains `step`, for the chain.
std::string link_note(const RunView& run, int lane, int site, int64_t step) {
  const SiteInfo& info = run.lane(lane).sites[static_cast<size_t>(site)];
  for (const PackedWindow& window : run.windows(lane, site)) {
    if (step < window.step || step >= window.step + window.step_count) continue;
    const Rates rates = halfscope::rates_of(window.counts(), info.format);
    if (rates.overflow > 0.0) {
      return fmt::format("{} {} overflow {}", percent(rates.overflow), kOfAllValues,
                         format_name(info.format));
    }
    if (rates.non_finite() > 0.0) {
      return fmt::format("{} {} NaN or Inf", percent(rates.non_finite()), kOfAllValues);
    }
  }
  return "";
}

EventReport event_of(const RunView& run, const Finding& finding) {
  EventReport event{.lane = finding.lane, .step = finding.step};
  for (const StepRow& row : run.steps(finding.lane)) {
    if (row.step == finding.step) event.loss_scale = row.loss_scale;
  }
  const auto place = finding.evidence.find("chain");
  const std::string* chain =
      place == finding.evidence.end() ? nullptr : std::get_if<std::string>(&place->second);
  if (chain == nullptr) return event;
  constexpr std::string_view kArrow = " -> ";
  for (size_t begin = 0; begin <= chain->size();) {
    const size_t end = std::min(chain->find(kArrow, begin), chain->size());
    EventLink link{.name = chain->substr(begin, end - begin), .layer = {}, .note = {}};
    if (const std::optional<int> site = run.find_site(finding.lane, link.name)) {
      link.layer = run.lane(finding.lane).sites[static_cast<size_t>(*site)].path;
      link.note = link_note(run, finding.lane, *site, finding.step);
    }
    event.links.push_back(std::move(link));
    begin = end + kArrow.size();
  }
  return event;
}

}  // namespace

void add_errors(const RunView& run, Report& report) {
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    std::vector<int> others;
    for (const SiteError& error : run.errors(lane)) {
      if (error.other_lane < 0 || error.other_lane >= run.lane_count()) continue;
      if (std::find(others.begin(), others.end(), error.other_lane) == others.end()) {
        others.push_back(error.other_lane);
      }
    }
    std::sort(others.begin(), others.end());
    for (int other : others) report.errors.push_back(compare(run, lane, other));
  }
}

void add_proofs(const RunView& run, Report& report) {
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    report.lane_proofs.push_back(run.proof(lane));
    const bool wanted = report.recommendation && report.recommendation->lane == lane;
    if (report.proof && !wanted) continue;
    if (std::optional<Proof> proof = read_proof(run.proof(lane))) {
      report.proof = std::move(proof);
      report.proof_lane = lane;
    }
  }
}

namespace {

/// Proofs of older versions come without their plan.
std::string plan_of_proof(const RunView& run, int lane, const Proof& proof) {
  if (!proof.plan_json.empty()) return proof.plan_json;
  Plan plan = proof.edit.apply(plan_from_json(run.lane(lane).plan_json));
  if (!proof.advised.empty()) plan.name = proof.advised;
  return plan_to_json(plan);
}

/// Replaces in findings that no cause was found, if a search has found it or one is likely.
void forget_unknown_cause(const Diagnosis& diagnosis, Report& report) {
  const bool known = diagnosis.verified || (diagnosis.likely && !report.proof);
  if (!known || diagnosis.mechanism == Mechanism::unknown) return;
  for (Finding& finding : report.findings) {
    const auto unknown = finding.evidence.find("unknown_cause");
    if (finding.lane != diagnosis.lane || unknown == finding.evidence.end()) continue;
    const std::string sentence = " " + std::get<std::string>(unknown->second);
    const size_t at = finding.text.find(sentence);
    if (at != std::string::npos)
      finding.text.replace(at, sentence.size(), " " + cause_sentence(diagnosis));
    if (diagnosis.likely) {
      unknown->second = cause_sentence(diagnosis);
    } else {
      finding.evidence.erase(unknown);
    }
  }
}

}  // namespace

void add_diagnosis(const RunView& run, Report& report) {
  const int lane = report.recommendation ? report.recommendation->lane
                   : report.proof        ? report.proof_lane
                                         : report.focus;
  if (lane < 0 || report.lanes[static_cast<size_t>(lane)].reference) return;
  const std::optional<Proof> proof = read_proof(run.proof(lane));
  if (proof && proof->holds && !proof->edit.empty()) {
    // Members of the rules' own advice that are not needed are reported with it.
    const bool is_advised =
        report.recommendation &&
        std::all_of(proof->edit.changes.begin(), proof->edit.changes.end(),
                    [&](const Change& each) {
                      const std::vector<Change>& advised = report.recommendation->edit.changes;
                      return std::find(advised.begin(), advised.end(), each) != advised.end();
                    });
    if (!proof->tried.empty() || !is_advised) {
      report.recommendation = {.lane = lane,
                               .edit = proof->edit,
                               .plan_json = plan_of_proof(run, lane, *proof),
                               .text = edit_sentence(proof->edit)};
    }
  }
  const PlanEdit advice = report.recommendation ? report.recommendation->edit : PlanEdit{};
  Diagnosis found = diagnose(run, report.findings, lane, advice, proof);
  if (!found.harmed) return;
  forget_unknown_cause(found, report);
  report.diagnosis = std::move(found);
}

void add_events(const RunView& run, Report& report) {
  for (const Finding& finding : report.findings) {
    if (finding.rule != "first_non_finite" || finding.step < 0) continue;
    EventReport event = event_of(run, finding);
    if (!event.links.empty()) report.events.push_back(std::move(event));
  }
}

}  // namespace report
}  // namespace halfscope
