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

/// The answer under the verdict: a reader who sees nothing else can act on it.
std::string answer_strip(const Report& report) {
  const Answer answer = answer_of(report);
  std::string items;
  const auto entry = [&](const char* name, const std::string& value) {
    items += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
  };
  if (!answer.why.empty()) entry("Why", prose(answer.why));
  if (!answer.todo.empty()) {
    entry("What to do", "<b>" + prose(answer.todo) + "</b>");
    const std::string sure =
        html::tag(answer.confidence, answer.confidence) + " <span>" + prose(answer.basis);
    entry("How sure", sure + "</span>");
  } else if (report.steps > 0) {
    const Verdict::State state = report.verdict.state;
    entry("What to do", state == Verdict::State::healthy ? "<b>Nothing to change.</b>"
                        : state == Verdict::State::inconclusive
                            ? "Keep the plan until a run gives a verdict."
                            : "No change of the plan follows from this run.");
  }
  return items.empty() ? "" : "<dl class=\"answer\">" + items + "</dl>\n";
}

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
  return page + answer_strip(report) + "</header>\n";
}

std::string run_card(const Report& report) {
  const RunInfo& run = report.run;
  std::string card = "<section aria-labelledby=\"run\"><h2 id=\"run\">Run</h2>\n<dl class=\"run\">";
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
  entry("Data", run.train_samples > 0 ? fmt::format("{}, {} training and {} test samples", run.data,
                                                    run.train_samples, run.test_samples)
                                      : run.data);
  entry("Plans", name_list(lanes, 8));
  entry("Formats", name_list(formats, 8));
  entry("Backend", name_list(backends));
  entry("Optimizer", run.optimizer);
  entry("Batch", std::to_string(run.batch));
  const bool inference = run.inference;
  entry(inference ? "Batches" : "Steps", report::steps_text(report));
  entry("Status", status_name(report.status));
  const char* each = inference ? "batch" : "step";
  entry("Statistics", run.every == 0 ? "none"
                      : run.every == 1
                          ? fmt::format("every {}", each)
                          : fmt::format("every {} {}", run.every, inference ? "batches" : "steps"));
  entry("Seed", std::to_string(run.seed));
  entry("Instruction set", run.isa);
  entry("Threads", std::to_string(run.threads));
  entry("HalfScope", run.version);
  return card + "</dl></section>\n";
}

/// `with_loss`: the page has no Spectrum, which has the loss beside it.
std::string curves(const Report& report, bool with_loss) {
  std::string page = "<section aria-labelledby=\"curves\"><h2 id=\"curves\">Curves</h2>\n";
  if (report.steps == 0) return page + "<p class=\"soft\">No steps recorded.</p></section>\n";
  const std::string charts = (with_loss ? html::loss_chart(report) : "") +
                             html::scale_chart(report) + html::learning_rate_chart(report);
  return charts.empty() ? "" : page + charts + "</section>\n";
}

/// Adds the definitions that only apply to training.
template <class Entry>
void training_definitions(const Entry& entry) {
  entry(
      "Loss gap",
      "How far the lane's loss is from the reference's at the end: |median of (loss &minus; "
      "reference's loss)| / median of the reference's loss, over the last fifth of the steps. Both "
      "lanes see the same batches.");
  entry(
      "Loss-scale window",
      fmt::format(
          "Loss scales at which no recorded gradient overflows, and each gradient loses at most {} "
          "of its non-zero values and at most {} of its energy (sum of squares) to underflow. If "
          "no scale meets both limits, one of them is enough. It is estimated from the histograms "
          "(a bin counts as lost if any of it may be lost), and upstream rounding has already "
          "acted.",
          percent(kFlushedShare), percent(kFlushedEnergy)));
}

std::string definitions(const Report& report) {
  const bool trains = !report.run.inference;
  std::string text =
      "<section aria-labelledby=\"definitions\"><h2 id=\"definitions\">Definitions</h2>\n<dl "
      "class=\"defs\">";
  const auto entry = [&](const char* name, const std::string& meaning) {
    text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, meaning);
  };
  if (!trains) {
    entry(
        "Output error",
        "||x &minus; reference|| / ||reference|| of an output over all batches, with 2-norms over "
        "the elements finite in both: the largest of the network's outputs. For outputs that "
        "count or select, the share of elements that differ.");
  }
  entry("Counting",
        "Counters are exact integers over all recorded steps. They look at an operator's output "
        "before it is rounded to the tensor's format. Upstream rounding has already acted: " +
            std::string(trains ? "a gradient that became 0 earlier in the backward pass counts as "
                                 "zero here."
                               : "a value that became 0 earlier counts as zero here."));
  entry("Overflow",
        "Share of all values of a tensor that are finite before rounding and infinite, NaN or "
        "saturated after it. The damage starts here.");
  entry("Inf, NaN",
        "Share of all values of a tensor that are infinite or NaN after rounding. If it is more "
        "than the overflow, the rest came in with the operands.");
  entry("Underflow (flushed to zero)",
        "Share of the non-zero values that rounding turns into 0. Non-zero values are those that "
        "are finite and not 0 before rounding. Only they can underflow.");
  entry("Subnormal",
        "Share of the non-zero values that are below the smallest normal number after rounding. "
        "They survive, but with fewer bits.");
  if (trains) {
    entry("Lost updates",
          "Share of the non-zero updates that do not change the variable, because they are smaller "
          "than half an ulp of it.");
  }
  entry("Headroom up",
        "How many bits the values can grow before they overflow: log2 of the format's largest "
        "finite number over the largest magnitude seen. It is negative once values overflow. The "
        "layer tables show the least of activations and weights" +
            std::string(trains ? ", where a loss scale cannot help." : "."));
  entry("Headroom down",
        fmt::format("How many bits the values can shrink before {0} of the non-zero ones become 0: "
                    "log2 of the magnitude below which {0} of them are, over the largest "
                    "magnitude that the format rounds to 0. The layer tables show the least of all "
                    "tensors{1}.",
                    percent(kFlushedShare), trains ? " except updates and optimizer state" : ""));
  if (trains) training_definitions(entry);
  if (!report.sums.empty()) {
    entry("Swamped",
          "Share of the non-zero products that did not change the accumulator when they were "
          "added. On tensor cores: products of which nothing is left after they are aligned to the "
          "largest term of their block.");
  }
  if (!report.errors.empty()) {
    entry("Error, total",
          "||x &minus; other|| / ||other||, 2-norms over the elements finite in both, where "
          "<i>other</i> is the same tensor of the other lane at the same step.");
    entry("Error, local",
          "||x &minus; f(operands)|| / ||f(operands)||, where the operator <i>f</i> runs again in "
          "double (in fp32 where that was not measured) on this lane's operands. It is the error "
          "that this one operator adds.");
    entry("Error, inherited",
          "||f(operands) &minus; other|| / ||other|| with <i>f</i> in double. It is the error "
          "that came in with the operands.");
    entry("Ulps",
          "Distance between an element and the other lane's, in steps of the tensor's format. The "
          "other lane's value is rounded to that format first. 0 means equal.");
    entry("Sign flips",
          "Elements of an activation that are positive in only one of the two lanes. They are "
          "shown where a ReLU reads them, because it then passes on different values" +
              std::string(trains ? " and gradients." : "."));
  }
  if (!report.actions.empty()) {
    entry("Cost",
          "Computed from the shapes of one batch: the extra bytes of weights and of outputs kept "
          "for the backward pass in fp32, and the share of the forward pass's multiply-adds in "
          "fp32. Layers that follow their input's format are included.");
    entry("Confidence",
          "high: the change was tested, by a proof or by a lane of this run, and works. medium: "
          "the recorded statistics show the cause, or the change was tested only briefly. low: "
          "too few steps, an unknown cause, or a test that the change did not pass.");
  }
  entry("Severity",
        "error: the lane cannot work like this. warning: it loses information that may matter. "
        "info: worth knowing, nothing to do.");
  return text + "</dl></section>\n";
}

std::string reproduce(const Report& report) {
  if (report.reproduce.empty()) return "";
  std::string commands;
  for (const std::string& command : report.reproduce)
    commands += fmt::format("<pre class=\"copy\">{}\n</pre>\n", escape(command));
  return fmt::format(
      "<section aria-labelledby=\"reproduce\"><h2 id=\"reproduce\">Reproduce</h2>\n"
      "{}<p class=\"how\">These commands give the same numbers with "
      "any "
      "number of threads and any instruction set. If a lane's name ends in .json, save its plan "
      "from <a href=\"#lanes\">Lanes</a> under that name first.</p></section>\n",
      commands);
}

constexpr std::pair<const char*, const char*> kSections[] = {{"cause", "Cause"},
                                                             {"actions", "What to do"},
                                                             {"proof", "Proof"},
                                                             {"run", "Run"},
                                                             {"layers", "Layers"},
                                                             {"curves", "Curves"},
                                                             {"events", "Findings"},
                                                             {"lanes", "Lanes"},
                                                             {"errors", "Errors"},
                                                             {"kernels", "Kernels"},
                                                             {"definitions", "Definitions"},
                                                             {"reproduce", "Reproduce"}};

}  // namespace

std::string report_html(const Report& report) {
  const std::string top =
      html::page_begin(fmt::format("HalfScope: {} on {}, {}", report.run.model, report.run.data,
                                   verdict_name(report.verdict.state)));
  const std::string hero = html::spectrum_section(report);
  const std::string before = html::diagnosis_section(report) + html::actions_section(report) +
                             html::proof_section(report) + run_card(report);
  const std::string after = curves(report, hero.empty()) + html::events_section(report) +
                            html::lanes_section(report) + definitions(report) + reproduce(report);
  const std::string body =
      before +
      html::layer_section(report, top.size() + hero.size() + before.size() + after.size()) + after;
  return top + head(report) + hero + html::lane_cards(report) + html::contents(kSections, body) +
         body + html::page_end();
}

}  // namespace halfscope
