// SPDX-License-Identifier: MIT
// The "What to do" part of the page: the advised changes with effect, cost and confidence, text to
// paste, and the proof.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

std::string cost_text(const ActionReport& action) {
  if (!action.cost) return action.edit.loss_scale() ? "None." : "";
  const Cost& cost = *action.cost;
  std::vector<std::string> parts;
  if (action.edit.has(FixKind::weights_fp32)) {
    parts.push_back(
        fmt::format("{} more for weights and optimizer state", bytes_text(cost.weight_bytes)));
    parts.push_back(percent(cost.weight_share) + " of the weights move to fp32");
  } else {
    parts.push_back(percent(cost.weight_share) + " of the weights in fp32 (" +
                    bytes_text(cost.weight_bytes) + " more to read)");
    parts.push_back(bytes_text(cost.activation_bytes) + " more for the activations of a batch");
    if (cost.multiply_share) {
      parts.push_back(percent(*cost.multiply_share) + " of the multiply-adds run in fp32");
    }
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  text += ".";
  if (!cost.followers.empty()) {
    text += fmt::format(" {} also {} in fp32, as {} what {}.", name_list(cost.followers, 4),
                        cost.followers.size() == 1 ? "runs" : "run",
                        cost.followers.size() == 1 ? "it follows" : "they follow",
                        cost.followers.size() == 1 ? "it reads" : "they read");
  }
  return text;
}

std::string action_card(const Report& report, const ActionReport& action) {
  std::string html = fmt::format(
      "<li class=\"action\"><p class=\"advice\">{}</p><dl>"
      "<div><dt>{}</dt><dd>{}</dd></div>",
      prose(action.text),
      action.effect.find("Tested") == std::string::npos ? "Expected effect" : "Effect",
      prose(action.effect));
  const std::string cost = cost_text(action);
  if (!cost.empty()) html += fmt::format("<div><dt>Cost</dt><dd>{}</dd></div>", escape(cost));
  if (report.actions.size() > 1) {  // that of the only one is under the verdict
    html += fmt::format("<div><dt>How sure</dt><dd>{} <span>{}</span></dd></div>",
                        tag(action.confidence, action.confidence), prose(action.basis));
  }
  html += fmt::format("<div><dt>This advice would change if</dt><dd>{}.</dd></div></dl>",
                      prose(action.change_my_mind));
  const std::vector<std::string> layers = action.edit.fp32_layers();
  if (!layers.empty()) {
    html += "<p class=\"soft\">Layers: ";
    for (size_t i = 0; i < layers.size(); ++i) {
      html += (i > 0 ? ", " : "") + layer_link(report, action.lane, layers[i], layers[i]);
    }
    html += "</p>";
  }
  return html + "</li>\n";
}

/// The logarithmic axis that all trials share. The tolerance is always in view.
struct GapAxis {
  double low = 1e-4, high = 1.0;
  double position(double gap) const {
    if (!std::isfinite(gap)) return 1.0;
    if (!(gap > low)) return 0.0;
    return std::clamp(std::log(gap / low) / std::log(high / low), 0.0, 1.0);
  }
};

GapAxis fit(const Proof& proof) {
  double least = proof.tolerance, most = proof.tolerance;
  for (const Trial& trial : proof.trials) {
    if (!std::isfinite(trial.gap)) continue;
    if (trial.gap > 0.0) least = std::min(least, trial.gap);
    most = std::max(most, trial.gap);
  }
  // Whole decades; room on the right for what is not finite.
  const double low = std::pow(10.0, std::floor(std::log10(std::max(least / 2.0, 1e-6))));
  const double high = std::pow(10.0, std::ceil(std::log10(std::max(most * 2.0, low * 100.0))));
  return {low, high};
}

/// Returns "0.001%" for a power of ten, which percent() would cut off.
std::string decade_text(double share) { return fmt::format("{:.6g}%", 100.0 * share); }

std::string trial_words(const Trial& trial) {
  switch (trial.kind) {
    case Trial::Kind::original:
      return "plan without the change";
    case Trial::Kind::advised:
      return "plan with the change";
    case Trial::Kind::leave_one_out:
      return "change without " + part_text(trial.without);
  }
  return trial.name;
}

std::string trial_row(const Proof& proof, const Trial& trial, const GapAxis& axis) {
  const bool gone = !std::isfinite(trial.gap);
  // A trial that is expected to fail shows that the advice is necessary, so words say which is
  // which.
  const char* meaning = trial.passes ? "within" : "too large";
  std::string skipped;
  if (trial.skipped > 0) skipped = fmt::format("<small>{} skipped</small>", trial.skipped);
  // A lane that fails skips without ever finding one.
  if (trial.calibration_skips > 0 && trial.passes) {
    skipped +=
        fmt::format("<small>{} of them to find the loss scale</small>", trial.calibration_skips);
  }
  return fmt::format(
      "<tr{}><th scope=\"row\">{}{}</th><td><div class=\"dots gap\" aria-hidden=\"true\">"
      "<b style=\"width:{:.1f}%\"></b><i class=\"{}\" style=\"left:{:.1f}%\"></i></div></td>"
      "<td class=\"n\">{}</td><td>{}</td></tr>\n",
      trial.kind == Trial::Kind::advised ? " class=\"mine\"" : "", escape(trial_words(trial)),
      skipped, 100.0 * axis.position(proof.tolerance),
      gone           ? "gone"
      : trial.passes ? "pass"
                     : "fail",
      100.0 * axis.position(trial.gap), escape(report::gap_text(trial.gap)),
      tag(trial.passes ? "healthy" : "broken", meaning));
}

/// Other changes that were tested and work as well.
std::string alternatives(const Report& report) {
  const std::optional<Diagnosis>& diagnosis = report.diagnosis;
  const bool about_it =
      report.recommendation && diagnosis && diagnosis->lane == report.recommendation->lane;
  if (!about_it || diagnosis->alternatives.empty()) return "";
  std::string html = "<p class=\"soft\">Also tested, and it works as well:</p>\n<ul>";
  for (const PlanEdit& edit : diagnosis->alternatives) {
    html += fmt::format("<li>{}</li>", prose(edit_sentence(edit)));
  }
  return html + "</ul>\n";
}

}  // namespace

std::string actions_section(const Report& report) {
  if (report.actions.empty()) return "";  // the page's first lines say so
  std::string html = "<section aria-labelledby=\"actions\"><h2 id=\"actions\">What to do</h2>\n";
  if (report.recommendation) {
    const std::string& lane = report.lanes[static_cast<size_t>(report.recommendation->lane)].name;
    const bool done = report::cure_with(report, report.recommendation->lane,
                                        report.recommendation->edit.fp32_layers()) != nullptr;
    const bool refuted =
        report.proof && !report.proof->holds && report.proof_lane == report.recommendation->lane;
    const char* before = done || refuted ? "Tested for" : "For";
    const char* after = done      ? " in this run, and it works:"
                        : refuted ? ", but it is not enough, as the proof below shows:"
                        : report.actions.size() > 1 ? ", most important first:"
                                                    : ":";
    if (report::answered_otherwise(report)) {
      html += fmt::format(
          "<p class=\"soft\">{} This run has tested that. To keep the plan of {} instead, make "
          "this "
          "change, which it has not tested:</p>\n",
          prose(answer_of(report).todo), escape(lane));
    } else {
      html += fmt::format("<p class=\"soft\">{} {}{}</p>\n", before, escape(lane), after);
    }
  }
  html += "<ol class=\"actions\">\n";
  for (const ActionReport& action : report.actions) html += action_card(report, action);
  html += "</ol>\n" + alternatives(report);
  if (report.recommendation) {
    html += "<div class=\"pair\">\n";
    html += copy_block("PyTorch",
                       report::fix_of(report, *report.recommendation, FixTarget::pytorch), false);
    html += copy_block("HalfScope plan (plan.json)", report.plan_text + "\n", false);
    html += "</div>\n";
  }
  return html + "</section>\n";
}

std::string proof_section(const Report& report) {
  if (!report.proof) return "";
  const Proof& proof = *report.proof;
  const GapAxis axis = fit(proof);
  std::string html = fmt::format(
      "<section aria-labelledby=\"proof\"><h2 id=\"proof\">Proof</h2>\n<p class=\"lead\">{} "
      "{}</p>\n",
      tag(proof.holds ? "healthy" : "broken", proof.holds ? "the change works" : "not proved"),
      prose(proof.text));
  std::string ticks = "<div class=\"ticks\" aria-hidden=\"true\">";
  const int decades = static_cast<int>(std::lround(std::log10(axis.high / axis.low)));
  for (int i = 0; i <= decades; i += decades > 5 ? 2 : 1) {
    ticks += fmt::format("<span style=\"left:{:.1f}%\">{}</span>", 100.0 * i / decades,
                         decade_text(axis.low * std::pow(10.0, i)));
  }
  ticks += "</div>";
  html +=
      scroll_begin("Trials of the proof") +
      fmt::format(
          "<table class=\"proof\" style=\"--d:{}\"><caption>Every plan compared with "
          "fp32. The shaded band is the tolerance, {}.</caption><thead><tr><th scope=\"col\">Plan "
          "tested</th>"
          "<th scope=\"col\" class=\"plotted\"><span class=\"sr\">Gap on a logarithmic axis</span>"
          "{}</th><th scope=\"col\" class=\"n\">{}</th>"
          "<th scope=\"col\">Tolerance</th></tr></thead><tbody>\n",
          decades, escape(percent(proof.tolerance)), ticks,
          report.run.inference ? "Output error" : "Loss gap");
  constexpr size_t kShown = 60;
  for (size_t i = 0; i < std::min(proof.trials.size(), kShown); ++i) {
    html += trial_row(proof, proof.trials[i], axis);
  }
  html += "</tbody></table></div>\n";
  if (proof.trials.size() > kShown) {
    html += fmt::format("<p class=\"how\">{} more are in the JSON report.</p>\n",
                        proof.trials.size() - kShown);
  }
  if (!proof.dropped.empty()) {
    std::vector<std::string> words;
    for (const std::string& name : proof.dropped) words.push_back(part_text(name));
    html += fmt::format("<p>Not needed, so dropped from the advice: {}.</p>\n",
                        escape(name_list(words)));
  }
  if (report.run.inference) {
    return html +
           fmt::format(
               "<p class=\"how\">How to read it: each plan ran on the same samples ({}). The error "
               "belongs to the output that differs most from fp32's. The tolerance is twice the "
               "change that fp32's own outputs show when inputs and weights move by one ulp ({}), "
               "between a floor and a cap. A part of the change is needed if the plan without it "
               "exceeds the tolerance.</p></section>\n",
               proof.steps == 1 ? "1 batch" : fmt::format("{} batches", proof.steps),
               escape(percent(proof.twin_spread)));
  }
  return html +
         fmt::format(
             "<p class=\"how\">How to read it: each plan was trained for {} with seed {}. The "
             "loss gap compares the lane's loss with fp32's over the last fifth of the steps (see "
             "<a href=\"#definitions\">Definitions</a>). The losses of two fp32 runs that start "
             "one "
             "ulp apart differ by {}. The tolerance is twice that, but at least 1%. A part of the "
             "change is needed if the plan without it exceeds the tolerance. Skipped steps that "
             "only look for the loss scale are normal at the start.</p></section>\n",
             counted(proof.steps, "step"), proof.seed, escape(percent(proof.twin_spread)));
}

}  // namespace halfscope::html
