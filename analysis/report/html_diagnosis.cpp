// SPDX-License-Identifier: MIT
// The cause of a lane's wrong results, how it spreads to the end of the network, and what was ruled
// out.
#include <fmt/format.h>

#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

constexpr size_t kShownTrials = 40;

std::string place_links(const Report& report, const Diagnosis& diagnosis) {
  std::string html;
  for (const Place& place : diagnosis.root) {
    html += html.empty() ? "" : ", ";
    html += layer_link(report, diagnosis.lane, place.layer, place.layer);
    if (!place.node.empty() && place.node != place.layer) {
      html += fmt::format(" <small>({} in the network's file)</small>", escape(place.node));
    }
  }
  return html;
}

std::string fact_list(const Report& report, const Diagnosis& diagnosis) {
  std::string html = "<dl class=\"facts\">";
  const auto entry = [&](const char* name, const std::string& value) {
    if (!value.empty()) html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
  };
  entry("Where", place_links(report, diagnosis));
  if (diagnosis.mechanism != Mechanism::unknown) {
    const std::string meaning = mechanism_meaning(diagnosis);
    entry("Mechanism", fmt::format("<code>{}</code>{}", mechanism_name(diagnosis.mechanism),
                                   meaning.empty() ? "" : ": " + prose(meaning)));
  }
  if (diagnosis.first_symptom) {
    const Place& symptom = *diagnosis.first_symptom;
    entry("First seen in", layer_link(report, diagnosis.lane, symptom.layer, symptom.site) +
                               (diagnosis.symptom.empty() ? "" : ", " + prose(diagnosis.symptom)));
  } else {
    entry("Effect", prose(diagnosis.symptom));
  }
  return html + "</dl>\n";
}

std::string hop_item(const Report& report, const Diagnosis& diagnosis, const Hop& hop) {
  const bool first = &hop == &diagnosis.chain.front();
  std::string html = fmt::format("<li{}>{}", first ? " class=\"root\"" : "",
                                 layer_link(report, diagnosis.lane, hop.layer, hop.layer));
  html += fmt::format("<small>{}</small>", hop.text.empty() ? "&ndash;" : prose(hop.text));
  const bool is_empty = !hop.error && hop.largest == 0.0;  // nothing in it is finite
  if (hop.largest && !is_empty) {
    html += fmt::format("<small class=\"peak\">largest {}", escape(short_number(*hop.largest)));
    if (hop.reference) html += fmt::format(", fp32 {}", escape(short_number(*hop.reference)));
    html += "</small>";
  }
  return html + "</li>";
}

std::string hop_chain(const Report& report, const Diagnosis& diagnosis) {
  if (diagnosis.chain.size() < 2) return "";
  std::string html = "<h3>How it spreads</h3>\n<ol class=\"chain\">";
  for (const Hop& hop : diagnosis.chain) html += hop_item(report, diagnosis, hop);
  return html + "</ol>\n";
}

/// Returns the fix, unless it is the advice, which has its own section.
std::string fix_card(const Report& report, const Diagnosis& diagnosis) {
  if (diagnosis.fix.empty()) return "";
  const bool is_advised = report.recommendation && report.recommendation->lane == diagnosis.lane;
  if (is_advised && !report.actions.empty()) return "";
  const char* kind = diagnosis.verified ? "healthy" : diagnosis.trials > 0 ? "broken" : "attention";
  std::string html =
      fmt::format("<div class=\"action fix\"><p class=\"soft\">{}</p><p class=\"advice\">{} {}</p>",
                  diagnosis.verified ? "Smallest fix" : "What to change", prose(diagnosis.fix_text),
                  tag(kind, proof_words(diagnosis)));
  const std::string cost = cost_words(diagnosis.fix_cost);
  if (!cost.empty()) html += fmt::format("<p class=\"soft\">Cost: {}.</p>", escape(cost));
  if (!diagnosis.alternatives.empty()) {
    html += "<p class=\"soft\">Also tested, and it works as well:</p><ul>";
    for (const PlanEdit& edit : diagnosis.alternatives) {
      html += fmt::format("<li>{}</li>", prose(edit_sentence(edit)));
    }
    html += "</ul>";
  }
  return html + "</div>\n";
}

std::string decoy_list(const Report& report, const Diagnosis& diagnosis) {
  if (diagnosis.decoys.empty()) return "";
  std::string html = "<h4>Not the cause</h4>\n<ul>";
  for (const auto& [why, names] : decoys_by_reason(diagnosis)) {
    html += "<li>";
    for (const std::string& name : names) {
      html += fmt::format("{}<b>{}</b>", &name == &names.front() ? "" : ", ",
                          layer_link(report, diagnosis.lane, name, name));
    }
    html += fmt::format(": {}</li>", prose(why));
  }
  return html + "</ul>\n";
}

std::string vain_table(const Report& report, const Diagnosis& diagnosis) {
  const std::vector<TriedEdit>& tried = diagnosis.does_not_help;
  if (tried.empty()) return "";
  std::string html =
      scroll_begin("Changes that were tested and do not help") +
      fmt::format(
          "<table class=\"tried\"><caption>Changes that do not help on their own</caption>"
          "<thead><tr><th scope=\"col\">Change</th><th scope=\"col\" class=\"n\">{}</th>"
          "</tr></thead><tbody>\n",
          report.run.inference ? "Output error" : "Loss gap");
  for (size_t i = 0; i < std::min(tried.size(), kShownTrials); ++i) {
    html +=
        fmt::format("<tr><td>{}</td><td class=\"n\">{}</td></tr>\n",
                    prose(edit_sentence(tried[i].edit)), escape(report::gap_text(tried[i].gap)));
  }
  html += "</tbody></table></div>\n";
  if (tried.size() > kShownTrials) {
    html += fmt::format("<p class=\"how\">{} more are in the JSON report.</p>\n",
                        tried.size() - kShownTrials);
  }
  return html;
}

std::string folded_part(const Report& report, const Diagnosis& diagnosis) {
  std::string reasons;
  for (const std::string& reason : diagnosis.reasons) {
    reasons += fmt::format("<li>{}</li>", prose(reason));
  }
  const std::string confidence = confidence_name(diagnosis.confidence);
  const std::string rest = decoy_list(report, diagnosis) + vain_table(report, diagnosis);
  const char* title = rest.empty() ? "Why" : "Why, and what was ruled out";
  return fmt::format(
      "<details class=\"ruled-out\"><summary>Confidence: {}. {}</summary>\n<ul>{}</ul>\n{}"
      "</details>\n",
      confidence, title, reasons, rest);
}

}  // namespace

std::string diagnosis_section(const Report& report) {
  if (!report.diagnosis) return "";
  const Diagnosis& diagnosis = *report.diagnosis;
  const std::string cause =
      diagnosis.cause.empty() ? "<p class=\"because\">No tensor of the run shows it.</p>\n"
      : answer_of(report).why.empty()  // the verdict says it
          ? ""
          : fmt::format("<p class=\"because\">{}</p>\n", prose(cause_sentence(diagnosis)));
  return fmt::format(
             "<section aria-labelledby=\"cause\"><h2 id=\"cause\">Cause <small>in "
             "{}</small></h2>\n",
             escape(report.lanes[static_cast<size_t>(diagnosis.lane)].name)) +
         cause + fact_list(report, diagnosis) + hop_chain(report, diagnosis) +
         fix_card(report, diagnosis) + folded_part(report, diagnosis) + "</section>\n";
}

}  // namespace halfscope::html
