// SPDX-License-Identifier: MIT
// Tables of a study: which layer fails first, and every trial with its run file and its command.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/html_page.h"
#include "analysis/rules/text.h"
#include "analysis/study/study_html_parts.h"

namespace halfscope::study_html_parts {
namespace {

using html::escape;

/// Returns the address of a file below the study's folder. It always begins with a folder, so that
/// no name can be taken for another kind of address.
std::string address_of(const std::string& folder, const std::string& run) {
  std::string address = folder.empty() ? "./" : "";
  for (const char c : folder + run) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '/' || c == '_' || c == '~';
    address += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return address;
}

std::string result_tag(const TrialRow& trial) {
  const char* kind = trial.status == TrialStatus::waiting  ? "info"
                     : trial.status == TrialStatus::failed ? "warning"
                     : trial.fails                         ? "error"
                                                           : "healthy";
  return html::tag(kind, trial_word(trial));
}

std::string score_text(double value) {
  return std::isnan(value) ? "&ndash;" : escape(percent(value));
}

std::string first_bad_text(const TrialRow& trial) {
  if (!trial.first_bad) return "&ndash;";
  return fmt::format("{} <small>{}, step {}</small>", escape(trial.first_bad->layer),
                     escape(trial.first_bad->role), trial.first_bad->step);
}

std::string trial_row(const StudyView& study, const TrialRow& trial, const std::string& folder) {
  std::string row =
      fmt::format("<tr id=\"trial-{0}\"><th scope=\"row\" class=\"n\">{0}</th>", trial.trial);
  for (size_t axis = 0; axis < study.axes().size(); ++axis) {
    const std::string value = study.value(trial, axis);
    const bool is_plan = study.axes()[axis].name == "plan";
    row += "<td>" +
           (value.empty() && is_plan ? escape(study.plan(trial)) + " <small>baseline</small>"
            : value.empty()          ? "&ndash;"
                                     : escape(value)) +
           "</td>";
  }
  const std::string why = trial.fails ? fail_reason(trial) : trial.error;
  const bool has_loss = trial.done();
  return row +
         fmt::format(
             "<td>{}{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
             "<td>{}</td><td class=\"n\">{}{}</td><td>{}</td><td><details><summary>command"
             "</summary><pre class=\"copy\">{}</pre></details></td></tr>\n",
             result_tag(trial), why.empty() ? "" : " <small>" + escape(why) + "</small>",
             has_loss ? html::value_text(trial.loss) : "&ndash;",
             trial.baseline ? "&ndash;" : escape(study_gap_text(trial_gap(trial))),
             score_text(trial.accuracy), first_bad_text(trial),
             has_loss ? std::to_string(trial.steps) : "&ndash;",
             trial.skipped > 0 ? fmt::format(" <small>{} skipped</small>", trial.skipped) : "",
             has_loss ? fmt::format("<a href=\"{}\">{}</a>", escape(address_of(folder, trial.run)),
                                    escape(trial.hash))
                      : escape(trial.hash),
             escape(trial.command));
}

}  // namespace

std::string first_layers(const StudyFacts& facts) {
  std::string rows;
  for (const StudyGroup& group : facts.groups) {
    for (const FirstLayer& layer : group.first_layers) {
      rows += fmt::format(
          "<tr><td>{}</td><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{} of {}</td>"
          "<td class=\"n{}\">{}</td><td class=\"n\">{:.4g}</td></tr>\n",
          escape(group.name), escape(layer.layer), escape(layer.role), layer.trials, group.finished,
          layer.failing > 0 ? " bad" : "", layer.failing, layer.median_step);
    }
  }
  std::string html =
      "<section aria-labelledby=\"first\"><h2 id=\"first\">Layers that overflow first</h2>\n";
  if (rows.empty()) {
    return html +
           "<p class=\"soft\">Nothing overflowed, and nothing became infinite or NaN, in "
           "any finished trial.</p></section>\n";
  }
  return html + html::scroll_begin("Layers that overflow first") +
         fmt::format(
             "<table class=\"sort\"><caption class=\"sr\">The first tensor that overflows or is "
             "not finite</caption><thead><tr><th scope=\"col\">{}</th><th scope=\"col\">Layer</th>"
             "<th scope=\"col\">Tensor</th><th scope=\"col\" class=\"n\">First in</th>"
             "<th scope=\"col\" class=\"n\">Of these, failing</th><th scope=\"col\" class=\"n\">"
             "Median step</th></tr></thead><tbody>\n",
             facts.noun == "plan" ? "Plan" : "Combination") +
         rows +
         fmt::format(
             "</tbody></table></div>\n<p class=\"how\">How to read it: in how many {}s the "
             "tensor was the first to overflow or to contain NaN or infinity, and at which "
             "step (median). A few overflows at the start are normal with a dynamic loss "
             "scale, so look at the failing ones.</p></section>\n",
             facts.unit());
}

std::string trial_table(const StudyView& study, const StudyFacts& facts,
                        const std::string& folder) {
  std::string rows, axes;
  const std::span<const TrialRow> trials = study.trials();
  const size_t shown = std::min(trials.size(), kTrialRows);
  for (size_t i = 0; i < shown; ++i) rows += trial_row(study, trials[i], folder);
  for (const StudyAxis& axis : study.axes()) {
    axes += "<th scope=\"col\">" + escape(axis.name) + "</th>";
  }
  const std::string note =
      shown == trials.size()
          ? ""
          : fmt::format(
                "<p class=\"how\">The first {} of {} trials. The CSV and JSON reports list "
                "all.</p>\n",
                shown, trials.size());
  return fmt::format(
             "<section aria-labelledby=\"trials\"><h2 id=\"trials\">Trials</h2>\n"
             "<p class=\"how\">{} with their run files. Commands repeat a trial in the "
             "study's folder; <code>halfscope report</code> and <code>halfscope view</code> "
             "explain a run file.</p>\n",
             counted(facts.planned, "trial")) +
         note + html::scroll_begin("Trials") +
         "<table class=\"sort trials\"><caption class=\"sr\">Every trial</caption><thead><tr>"
         "<th scope=\"col\" class=\"n\">#</th>" +
         axes +
         "<th scope=\"col\">Result</th><th scope=\"col\" class=\"n\">Loss</th><th scope=\"col\" "
         "class=\"n\">Gap</th><th scope=\"col\" class=\"n\">Accuracy</th><th scope=\"col\">First "
         "overflow</th><th scope=\"col\" class=\"n\">Steps</th><th scope=\"col\">Run file</th>"
         "<th scope=\"col\">Repeat</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div></section>\n";
}

}  // namespace halfscope::study_html_parts
