// SPDX-License-Identifier: MIT
// report.md: the report as a comment under a change, at most 60 lines.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/markdown_text.h"
#include "analysis/report/remarks.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

using markdown::code;
using markdown::plain;

constexpr size_t kLanesShown = 8;
constexpr size_t kFindingsShown = 8;
constexpr size_t kFindingsBesideCause = 5;  ///< where a diagnosis sums them up
constexpr size_t kLayersShown = 8;
constexpr size_t kErrorsShown = 2;
constexpr size_t kSumsShown = 3;

const std::string& lane_of(const Report& report, int lane) {
  return report.lanes[static_cast<size_t>(lane)].name;
}

std::string loss_cell(const std::optional<double>& value) {
  if (!value) return "-";
  return std::isnan(*value) ? "NaN" : fmt::format("{:.4g}", *value);
}

void write_lanes(const Report& report, std::string& md) {
  const std::vector<Score> scores = scores_of(report);
  if (report.run.inference) {
    std::string head = "\n| lane | verdict | batches | output error |";
    std::string line = "\n| --- | --- | ---: | ---: |";
    for (const Score& score : scores) {
      head += fmt::format(" {} |", score.name);
      line += " ---: |";
    }
    md += head + line + "\n";
    for (size_t i = 0; i < std::min(report.lanes.size(), kLanesShown); ++i) {
      const LaneReport& lane = report.lanes[i];
      md += fmt::format("| {} | {} | {} | {} |", code(lane.name), lane_verdict(lane), lane.steps,
                        lane.output_error ? report::gap_text(*lane.output_error) : "-");
      for (const Score& score : scores) md += fmt::format(" {} |", score.text(lane));
      md += "\n";
    }
    return;
  }
  std::string head = "\n| lane | verdict | steps | skipped | final loss | loss gap | loss scale |";
  std::string line = "\n| --- | --- | ---: | ---: | ---: | ---: | ---: |";
  for (const Score& score : scores) {
    head += " " + report::of_evaluation(report.run, fmt::format("test {}", score.name)) + " |";
    line += " ---: |";
  }
  md += head + line + "\n";
  for (size_t i = 0; i < std::min(report.lanes.size(), kLanesShown); ++i) {
    const LaneReport& lane = report.lanes[i];
    md += fmt::format("| {} | {} | {} | {} | {} | {} | {} |", code(lane.name), lane_verdict(lane),
                      lane.steps, lane.skipped, loss_cell(lane.last_loss),
                      lane.loss_gap ? report::gap_text(*lane.loss_gap) : "-",
                      lane.last_loss_scale ? scale_text(*lane.last_loss_scale) : "-");
    for (const Score& score : scores) md += fmt::format(" {} |", score.text(lane));
    md += "\n";
  }
  if (report.lanes.size() > kLanesShown) {
    md += fmt::format("\n{} more.\n",
                      counted(static_cast<int64_t>(report.lanes.size() - kLanesShown), "lane"));
  }
}

std::string cost_text(const ActionReport& action) {
  if (!action.cost) return "";
  std::string text =
      fmt::format(" Cost: {} of the weights in fp32 ({} more)", percent(action.cost->weight_share),
                  bytes_text(action.cost->weight_bytes));
  if (action.cost->activation_bytes > 0) {
    text += ", " + bytes_text(action.cost->activation_bytes) + " more for activations";
  }
  return text + ".";
}

/// Where the cause is, how it spreads, and what else works or was ruled out, in a few lines.
void write_diagnosis(const Report& report, std::string& md) {
  if (!report.diagnosis) return;
  const Diagnosis& diagnosis = *report.diagnosis;
  md += fmt::format("\n**Cause** in {}:", code(lane_of(report, diagnosis.lane)));
  if (diagnosis.root.empty()) {
    md += " unknown.";
  } else {
    md += fmt::format(" {}.", plain(places_text(diagnosis.root)));
  }
  if (diagnosis.mechanism != Mechanism::unknown) {
    md += fmt::format(" Mechanism: {}.", code(mechanism_name(diagnosis.mechanism)));
  }
  if (diagnosis.chain.size() > 1) {
    md += " It spreads: ";
    for (const Hop& hop : diagnosis.chain) {
      md += fmt::format("{}{}{}", &hop == &diagnosis.chain.front() ? "" : " &rarr; ",
                        code(hop.layer), hop.text.empty() ? "" : " (" + plain(hop.text) + ")");
    }
  }
  md += "\n";
  std::string rest;
  if (!diagnosis.alternatives.empty()) {
    rest += "- Also tested, and it works as well:";
    for (const PlanEdit& edit : diagnosis.alternatives) rest += " " + plain(edit_sentence(edit));
    rest += "\n";
  }
  for (const auto& [why, names] : decoys_by_reason(diagnosis)) {
    rest += fmt::format("- Not the cause: {}. {}\n", plain(name_list(names)), plain(why));
  }
  if (!rest.empty()) md += "\n" + rest;
}

void write_actions(const Report& report, std::string& md) {
  if (report.actions.empty()) return;
  md += "\n";
  for (const ActionReport& action : report.actions) {
    const std::string lane = code(lane_of(report, action.lane));
    // The first lines have the rest, unless they are about another change.
    if (report.actions.size() == 1 && !report::answered_otherwise(report)) {
      md += fmt::format("**Effect** in {}: {}{}\n", lane, plain(action.effect), cost_text(action));
      continue;
    }
    md += fmt::format("- **{}** in {}: {}{} Confidence {}: {}.\n", plain(action.text), lane,
                      plain(action.effect), cost_text(action), action.confidence,
                      plain(action.basis));
  }
}

/// Returns where the tolerance comes from.
std::string spread_text(const Report& report, const Proof& proof) {
  const std::string spread = percent(proof.twin_spread);
  return report.run.inference
             ? fmt::format("fp32's own outputs move by {} with inputs and weights one ulp off",
                           spread)
             : fmt::format("two fp32 runs one ulp apart differ by {}", spread);
}

std::string dropped_text(const Proof& proof) {
  if (proof.dropped.empty()) return "";
  std::vector<std::string> words;
  for (const std::string& name : proof.dropped) words.push_back(part_text(name));
  return fmt::format(" Not needed, so dropped: {}.", plain(name_list(words)));
}

/// The numbers of the proof. Its sentence is among the first lines.
void write_proof(const Report& report, std::string& md) {
  if (!report.proof) return;
  const Proof& proof = *report.proof;
  md += fmt::format("\n**Proof{}:**", proof.holds ? "" : " failed");
  for (const Trial& trial : proof.trials) {
    if (trial.kind == Trial::Kind::leave_one_out) continue;
    md += fmt::format(" {} {} the change: {}.", report.run.inference ? "Output error" : "Loss gap",
                      trial.kind == Trial::Kind::original ? "without" : "with",
                      report::gap_text(trial.gap));
  }
  md += fmt::format(" Tolerance: {}", percent(proof.tolerance));
  if (std::isfinite(proof.twin_spread)) {
    md += fmt::format(" ({})", spread_text(report, proof));
  }
  md += fmt::format(".{}\n", dropped_text(proof));
}

/// Writes a line for each remark about lanes, with `what` before their names.
void write_remarks(const report::Remarks& remarks, const char* what, std::string& md) {
  const std::vector<report::Remarks::Remark>& all = remarks.all();
  for (size_t i = 0; i < std::min(all.size(), kErrorsShown); ++i) {
    md += fmt::format("{}- {}{}: {}\n", i == 0 ? "\n" : "", what, name_list(all[i].lanes),
                      plain(all[i].text));
  }
}

void write_errors(const Report& report, std::string& md) {
  report::Remarks remarks;
  for (const ErrorReport& each : report.errors)
    remarks.add(code(lane_of(report, each.lane)), each.text);
  write_remarks(remarks, "", md);
}

void write_kernels(const Report& report, std::string& md) {
  report::Remarks remarks;
  for (const KernelReport& each : report.kernels)
    remarks.add(code(lane_of(report, each.lane)), each.text);
  write_remarks(remarks, "Kernels of ", md);
}

void write_sums(const Report& report, std::string& md) {
  const std::vector<const SumReport*> worst = report::worst_sums(report, kSumsShown);
  if (worst.empty()) return;
  md +=
      "\n| lane | tensor | accumulation | swamped (of non-zero products) | overflowed (of all "
      "sums) |\n"
      "| --- | --- | --- | ---: | ---: |\n";
  for (const SumReport* sums : worst) {
    md += fmt::format("| {} | {} | {} to {} | {} | {} |\n", code(lane_of(report, sums->lane)),
                      code(sums->name), sums->accumulation, format_name(sums->format),
                      percent(sums->share()),
                      percent(report::share(sums->counts.overflowed, sums->counts.sums)));
  }
}

/// Returns a sentence with the other tensors of which a finding says the same.
std::string alike_text(const Report& report, const report::FindingGroup& group) {
  const std::vector<size_t>& findings = group.lanes.front();
  if (findings.size() < 2) return "";
  std::vector<std::string> names;
  for (size_t i = 1; i < findings.size(); ++i) names.push_back(report.findings[findings[i]].site);
  return fmt::format(" The same for {}.", plain(name_list(names, 4)));
}

void write_findings(const Report& report, std::string& md) {
  if (report.findings.empty()) return;
  md += "\n### Findings\n\n";
  // Errors of any lane before the notes of the first one.
  const std::vector<report::FindingGroup> sorted = report::finding_groups(report);
  const size_t shown = report.diagnosis ? kFindingsBesideCause : kFindingsShown;
  for (size_t i = 0; i < std::min(sorted.size(), shown); ++i) {
    const Finding& finding = report.findings[sorted[i].lanes.front().front()];
    std::vector<std::string> lanes;
    for (const std::string& lane : report::lanes_of(report, sorted[i])) lanes.push_back(code(lane));
    md += fmt::format("- **{}** {} in {}: {}{}\n", severity_name(finding.severity),
                      code(finding.rule), name_list(lanes),
                      plain(report::text_of(report, sorted[i])), alike_text(report, sorted[i]));
  }
  if (sorted.size() > shown) {
    md += fmt::format("- and {} more in the JSON and HTML reports\n", sorted.size() - shown);
  }
}

void write_layers(const Report& report, std::string& md) {
  std::vector<const LayerReport*> worst;
  size_t all = 0;
  for (const LayerReport& layer : report.layers) {
    if (report.lanes[static_cast<size_t>(layer.lane)].reference) continue;
    ++all;
    if (report::suffering(layer) > report::kWorthShowing) worst.push_back(&layer);
  }
  if (worst.empty()) return;
  std::stable_sort(worst.begin(), worst.end(), [](const LayerReport* a, const LayerReport* b) {
    return report::suffering(*a) > report::suffering(*b);
  });
  const size_t shown = std::min(worst.size(), kLayersShown);
  md += fmt::format("\n### Layers that lose most ({} of {})\n\n", shown, all);
  const bool updates = !report.run.inference;  // a forward pass has none
  md += fmt::format(
      "| lane | layer | format | overflow | NaN/Inf | underflow |{}\n"
      "| --- | --- | --- | ---: | ---: | ---: |{}\n",
      updates ? " lost updates |" : "", updates ? " ---: |" : "");
  for (size_t i = 0; i < shown; ++i) {
    const LayerReport& layer = *worst[i];
    const report::Rates rates = report::worst_rates(layer);
    md += fmt::format("| {} | {} | {} | {} | {} | {} |",
                      code(report.lanes[static_cast<size_t>(layer.lane)].name), code(layer.path),
                      format_name(report::format_that_loses(layer)), percent(rates.overflow),
                      percent(rates.non_finite()), percent(rates.underflow));
    if (updates) md += fmt::format(" {} |", percent(rates.lost));
    md += "\n";
  }
  md += fmt::format(
      "\nRates of each layer's worst tensor over all recorded steps: overflow and NaN/Inf (after "
      "rounding) of all values, underflow{} of the non-zero ones.\n",
      updates ? " and lost updates" : "");
}

void write_run(const Report& report, std::string& md) {
  const RunInfo& run = report.run;
  const std::string optimizer = run.optimizer.empty() ? "" : code(run.optimizer) + ", ";
  md += fmt::format("\n{} on {}, {}batch size {}, seed {}, {} {} ({}), HalfScope {}.\n",
                    code(run.model), code(run.data), optimizer, run.batch, run.seed,
                    report::steps_text(report), run.inference ? "batches" : "steps",
                    status_name(report.status), plain(run.version));
  if (!report.reproduce.empty()) {
    md += fmt::format("\nReproduce: {}\n", code(report.reproduce.front()));
  }
}

/// Heading, verdict, why, what to do and how sure: the first lines are enough to act on.
std::string heading(const Report& report) {
  std::string md = fmt::format("## HalfScope: {}\n**{}**", verdict_name(report.verdict.state),
                               plain(report.verdict.headline));
  if (!report.verdict.more.empty()) md += " " + plain(report.verdict.more);
  md += "\n";
  const Answer answer = answer_of(report);
  if (!answer.why.empty()) md += fmt::format("- **Why:** {}\n", plain(answer.why));
  if (answer.todo.empty()) {
    const bool healthy = report.verdict.state == Verdict::State::healthy;
    return md + (healthy ? "- **What to do:** Nothing to change.\n" : "");
  }
  md += fmt::format("- **What to do:** {}", plain(answer.todo));
  if (!answer.cost.empty()) md += fmt::format(" Cost: {}.", answer.cost);
  return md + fmt::format("\n- **How sure:** {}. {}\n", answer.confidence, plain(answer.basis));
}

}  // namespace

std::string report_markdown(const Report& report) {
  std::string md = heading(report);
  write_lanes(report, md);
  write_diagnosis(report, md);
  write_actions(report, md);
  write_proof(report, md);
  write_findings(report, md);
  write_layers(report, md);
  write_sums(report, md);
  write_errors(report, md);
  write_kernels(report, md);
  write_run(report, md);
  return md;
}

std::string report_markdown_summary(const Report& report) {
  std::string md = heading(report) + "\n";
  constexpr size_t kShown = 3;
  size_t others = 0;
  for (const LaneReport& lane : report.lanes) {
    if (lane.reference && report.lanes.size() > 1) continue;
    if (++others > kShown) continue;
    if (report.run.inference) {
      md += fmt::format(
          "- {}: {}, {} {}{}\n", code(lane.name), lane_verdict(lane), lane.steps,
          lane.steps == 1 ? "batch" : "batches",
          lane.output_error ? ", output error " + report::gap_text(*lane.output_error) : "");
      continue;
    }
    md += fmt::format("- {}: {}, final loss {}, {} of {} skipped\n", code(lane.name),
                      lane_verdict(lane), loss_cell(lane.last_loss), lane.skipped,
                      counted(lane.steps, "step"));
  }
  if (others > kShown) {
    md += fmt::format("- {} more\n", counted(static_cast<int64_t>(others - kShown), "lane"));
  }
  return md;
}

std::string report_markdown_findings(const Report& report, int lane) {
  std::string md = fmt::format("**{}**\n\n", plain(report.verdict.headline));
  for (const Finding& finding : report.findings) {
    if (finding.lane != lane) continue;
    md += fmt::format("- **{}** {}: {}\n", severity_name(finding.severity), code(finding.rule),
                      plain(finding.text));
  }
  return md;
}

}  // namespace halfscope
