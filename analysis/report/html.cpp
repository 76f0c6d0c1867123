// SPDX-License-Identifier: MIT
// report.html: one self-contained page. Verdict first, then what to do, then the evidence, then
// how every number is defined and how to get them again. It forbids itself the network, and works
// without its one script, which sorts tables and copies text.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

using html::escape;
using html::prose;

std::string head(const Report& report) {
  const RunInfo& run = report.run;
  const std::string state = verdict_name(report.verdict.state);
  std::string page = fmt::format(
      "<header class=\"hero {0}\"><p class=\"brand\"><b>HalfScope</b> precision report "
      "<span>{1} on {2}</span></p>\n<p class=\"state\">{3}</p>\n<h1>{4}</h1>\n",
      state, escape(run.model), escape(run.data), html::tag(state, state),
      prose(report.verdict.headline));
  if (!report.verdict.more.empty()) {
    page += fmt::format("<p class=\"more\">{}</p>\n", prose(report.verdict.more));
  }
  return page + html::lane_cards(report) + "</header>\n";
}

std::string run_card(const Report& report) {
  const RunInfo& run = report.run;
  std::string card =
      "<section aria-labelledby=\"run\"><h2 id=\"run\">The run</h2>\n<dl class=\"run\">";
  const auto entry = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      card += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape(value));
    }
  };
  std::vector<std::string> lanes, backends;
  for (const LaneReport& lane : report.lanes) {
    lanes.push_back(lane.name);
    if (std::find(backends.begin(), backends.end(), lane.backend) == backends.end()) {
      backends.push_back(lane.backend);
    }
  }
  std::vector<std::string> formats;
  for (const LayerReport& layer : report.layers) {
    for (const FloatFormat& format : {layer.read, layer.write}) {
      const std::string name = format_name(format);
      if (std::find(formats.begin(), formats.end(), name) == formats.end()) formats.push_back(name);
    }
  }
  entry("Model", run.model);
  entry("Data", run.train_samples > 0 ? fmt::format("{}, {} samples and {} to test", run.data,
                                                    run.train_samples, run.test_samples)
                                      : run.data);
  entry("Plans", name_list(lanes, 8));
  entry("Formats", name_list(formats, 8));
  entry("Backend", name_list(backends));
  entry("Optimizer", run.optimizer);
  entry("Batch", std::to_string(run.batch));
  entry("Steps", fmt::format("{} of {}", report.steps, run.steps_planned));
  entry("Status", status_name(report.status));
  entry("Statistics",
        run.every == 1 ? "of every step" : fmt::format("of every {} steps", run.every));
  entry("Seed", std::to_string(run.seed));
  entry("Kernels", run.isa);
  entry("Threads", std::to_string(run.threads));
  entry("HalfScope", run.version);
  return card + "</dl></section>\n";
}

std::string curves(const Report& report) {
  std::string page = "<section aria-labelledby=\"curves\"><h2 id=\"curves\">Curves</h2>\n";
  if (report.steps == 0) return page + "<p class=\"soft\">No step was recorded.</p></section>\n";
  const std::string charts =
      html::loss_chart(report) + html::scale_chart(report) + html::learning_rate_chart(report);
  return charts.empty() ? "" : page + charts + "</section>\n";
}

/// What only trainings have.
template <class Entry>
void training_definitions(const Entry& entry) {
  entry(
      "Loss gap",
      "Median of loss &minus; reference's loss over the last fifth of the steps, without its sign, "
      "over the median of the reference's loss there. Both see the same batches.");
  entry(
      "Loss-scale window",
      fmt::format(
          "Scales at which no recorded gradient would overflow, and at most {} of the non-zero "
          "values of each and at most {} of its energy (sum of squares) would be flushed. If no "
          "scale meets both, one of the two limits is enough. Worked out from the histograms: a "
          "bin "
          "counts as lost as soon as any of it might be. An estimate, since upstream rounding has "
          "acted.",
          percent(kFlushedShare), percent(kFlushedEnergy)));
}

std::string definitions(const Report& report) {
  const bool trains = !report.run.inference;
  std::string text =
      "<section aria-labelledby=\"definitions\"><h2 id=\"definitions\">How the numbers are "
      "defined</h2>\n<dl class=\"defs\">";
  const auto entry = [&](const char* name, const std::string& meaning) {
    text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, meaning);
  };
  entry(
      "Counting",
      "All counters look at the exact result of an operator before it is rounded to "
      "the tensor's format, in every recorded step, and are exact integers. Upstream rounding has "
      "acted by then: " +
          std::string(trains ? "a gradient that was flushed earlier on the way back is counted as "
                               "zero here."
                             : "what was flushed earlier is counted as zero here."));
  entry("Overflow",
        "Share of all values of a tensor that are finite before rounding and infinite, NaN or "
        "saturated after it: the damage starts here.");
  entry("Inf, NaN",
        "Share of all values of a tensor that are infinite or NaN after rounding. What exceeds "
        "the overflow came from further up.");
  entry("Underflow (flushed to zero)",
        "Share of the non-zero values that rounding turns into zero. Non-zero values are finite "
        "and not zero before rounding: only they can underflow.");
  entry("Subnormal",
        "Share of the non-zero values that are below the smallest normal number after rounding: "
        "kept, but with fewer bits.");
  if (trains) {
    entry("Lost updates",
          "Share of the non-zero updates that leave the variable as it was, because "
          "they are below half the spacing of its format there.");
  }
  entry("Head-room up",
        "log2 of the format's largest finite number over the largest magnitude seen; negative once "
        "values overflow. In layer lines: the least of activations and weights" +
            std::string(trains ? ", which no loss scale can help." : "."));
  entry("Head-room down",
        fmt::format("log2 of the magnitude below which {} of the non-zero values lie over the "
                    "magnitude up to which the format flushes to zero: so many bits may the values "
                    "shrink before that share is lost. In layer lines: the least of all tensors{}.",
                    percent(kFlushedShare), trains ? " but updates and optimizer state" : ""));
  if (trains) training_definitions(entry);
  if (!report.sums.empty()) {
    entry("Swamped",
          "Of the products that are not zero, those whose addition left the accumulator as it was; "
          "of tensor cores those of which nothing is left once they are aligned to the largest "
          "term of their block.");
  }
  if (!report.errors.empty()) {
    entry("Error, total",
          "||x &minus; other|| / ||other||, 2-norms over the elements finite in both, where "
          "<i>other</i> is the same tensor of the other lane at the same step.");
    entry("Error, local",
          "||x &minus; f(operands)|| / ||f(operands)||: the operator <i>f</i> done once more in "
          "double (in fp32 where that was not measured) on the operands this lane had. What this "
          "one operator adds.");
    entry("Error, inherited",
          "||f(operands) &minus; other|| / ||other|| with <i>f</i> in double: what came in with "
          "the operands.");
    entry("Ulps",
          "The number of values of the tensor's format between an element and the other lane's, "
          "plus one; the other lane's value is rounded to that format first. 0 means equal.");
    entry("Sign flips",
          "Elements of an activation that are positive in one lane and not in the other, shown "
          "where a ReLU reads them: it lets another set of values " +
              std::string(trains ? "and gradients through." : "through."));
  }
  if (!report.actions.empty()) {
    entry("Cost",
          "From the shapes of one batch: weights that are read in 4 bytes instead of the format's, "
          "outputs kept in 4 bytes for the backward pass (layers that follow their input's format "
          "included), and the share of the forward pass's multiply-adds.");
    entry("Confidence",
          "high: the advice was tried, by a proof or by a lane of this run. medium: worked out "
          "from the statistics of at least 20 steps. low: fewer steps, or it was tried and did not "
          "hold.");
  }
  entry("Severity",
        "error: training cannot work like this. warning: information is being lost. "
        "info: worth knowing.");
  return text + "</dl></section>\n";
}

std::string reproduce(const Report& report) {
  if (report.reproduce.empty()) return "";
  std::string commands;
  for (const std::string& command : report.reproduce) commands += command + "\n";
  return fmt::format(
      "<section aria-labelledby=\"reproduce\"><h2 id=\"reproduce\">How to get this again</h2>\n"
      "<pre class=\"copy\">{}</pre>\n<p class=\"how\">The same commands give the same numbers, "
      "whatever the number of threads and the instruction set. A lane that ends in .json needs its "
      "plan, which stands under <a href=\"#lanes\">Lanes compared</a>, saved under that "
      "name.</p></section>\n",
      escape(commands));
}

std::string contents(const std::string& body) {
  // Only what the page really has.
  std::string links;
  const std::pair<const char*, const char*> entries[] = {{"cause", "Cause"},
                                                         {"actions", "What to do"},
                                                         {"proof", "Proof"},
                                                         {"run", "The run"},
                                                         {"layers", "Layers"},
                                                         {"curves", "Curves"},
                                                         {"events", "What happened"},
                                                         {"lanes", "Lanes"},
                                                         {"errors", "Errors"},
                                                         {"kernels", "Kernels"},
                                                         {"definitions", "Definitions"},
                                                         {"reproduce", "Reproduce"}};
  for (const auto& [id, text] : entries) {
    if (body.find(fmt::format(" id=\"{}\"", id)) == std::string::npos) continue;
    links += fmt::format("<a href=\"#{}\">{}</a>\n", id, text);
  }
  return "<nav aria-label=\"Contents\">\n" + links + "</nav>\n";
}

}  // namespace

std::string report_html(const Report& report) {
  const std::string top = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>HalfScope: {} on {}, {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      escape(report.run.model), escape(report.run.data), verdict_name(report.verdict.state),
      html::kStyle);
  const std::string before = html::diagnosis_section(report) + html::actions_section(report) +
                             html::proof_section(report) + run_card(report);
  const std::string after = curves(report) + html::events_section(report) +
                            html::lanes_section(report) + definitions(report) + reproduce(report);
  const std::string body =
      before + html::layer_section(report, top.size() + before.size() + after.size()) + after;
  return top + head(report) + contents(body) + body +
         fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", html::kScript);
}

}  // namespace halfscope
