// SPDX-License-Identifier: MIT
// The report of a study as one self-contained page, in the style of a run's report: verdict first,
// then the heat map, the charts, the tables, and how to get the numbers again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "analysis/loss_gap.h"
#include "analysis/report/html_page.h"
#include "analysis/rules/text.h"
#include "analysis/study/study_html_parts.h"

namespace halfscope {
namespace {

using html::escape;
using html::prose;

constexpr std::string_view kStyleOfStudies = R"css(
table.heat tbody th{width:16em;min-width:9.5em;overflow-wrap:anywhere}
table.heat th small{display:block;color:var(--good)}tr.base th{font-weight:400}
.heat td.strip{width:34%;min-width:180px}.heat td.strip svg{width:100%;height:24px;display:block}
table.heat.few tbody th{width:28em}.heat.few td.strip{width:1%;min-width:0}.few td.share{width:11em}
.heat .ends{display:flex;justify-content:space-between}
.heat td.share{width:13em;white-space:nowrap}.heat td.share span{font-size:.84rem;color:var(--soft)}
.heat td.why{font-size:.87rem;min-width:11em;overflow-wrap:anywhere}
.ci{position:relative;height:8px;background:var(--card);border-radius:4px;margin:2px 0 1px}
.ci b{position:absolute;top:2px;height:4px;border-radius:2px;background:var(--bar)}
.ci i{position:absolute;top:0;width:2px;height:8px;margin-left:-1px;background:var(--ink)}
.q0{fill:var(--bar);fill-opacity:.26}.q1{fill:var(--bar);fill-opacity:.52}.q2{fill:var(--bar)}
.f1{fill:var(--lost)}.f2{fill:var(--bad)}.nt{fill:var(--soft);fill-opacity:.45}
.wt{fill:none;stroke:var(--soft);stroke-opacity:.55;stroke-dasharray:2 2}
.strip a:hover path,.strip a:focus-visible path{stroke:var(--ink);stroke-width:2}
.xm,.sm,.wt,.strip path{vector-effect:non-scaling-stroke}.xm,.sm{fill:none;stroke:var(--bg);stroke-width:1.8}
.map-key svg{height:14px;width:14px}
.plot .over{position:relative}.plot.pareto svg{height:260px}
.plot.pareto{grid-template-columns:5em 1fr}.plot.pareto .x{display:block;position:relative;min-height:1.7em}
.plot.pareto .x b{position:absolute;font-weight:400;transform:translateX(-50%);white-space:nowrap}
.over>i{position:absolute;width:12px;height:12px;margin:-6px 0 0 -6px}
.over i.up,.key i.up{width:0;height:0;border:6px solid #0000;border-bottom:11px solid var(--bad);
border-top:0}.over .pl{position:absolute;font-size:.82rem;font-weight:620;transform:translate(9px,-118%);
white-space:nowrap}.over .pl.r{transform:translate(-9px,-118%)}
.plot path.whisker{stroke:var(--soft);stroke-width:1.6;stroke-opacity:.7}
.plot path.front{stroke:var(--good);stroke-width:2}
.plot path.limit,.key path.limit{stroke:var(--lost);stroke-width:1.4;stroke-dasharray:5 4;fill:none}
.key svg[width="28"]{width:28px;height:8px}
.fans{display:grid;grid-template-columns:repeat(auto-fill,minmax(340px,1fr));gap:8px 30px}
.fans figure{margin:.6em 0;min-width:0}.fans h3{font-size:.95rem;overflow-wrap:anywhere}
.key svg[viewBox="0 0 28 12"]{width:28px;height:12px}
.plot g path.range,.plot g path.half,.key g path{stroke:none}
.of-good .range,.of-good .half{fill:var(--bar)}.of-bad .range,.of-bad .half{fill:var(--lost)}
.of-base .range,.of-base .half{fill:var(--soft)}
.range{fill-opacity:.14}.half{fill-opacity:.3}.plot .of-base path.range{fill-opacity:0}
.of-good path.curve{stroke:var(--l1)!important}.of-bad path.curve{stroke:var(--lost)!important}
.of-base path.curve{stroke:var(--l0)!important;stroke-dasharray:5 3}
.key path.gone{fill:none;stroke:var(--lost);stroke-width:5}
table.trials{font-size:.84rem}.trials td:nth-last-child(2){font-family:ui-monospace,"DejaVu Sans Mono",
monospace;font-size:.8rem}.trials td{max-width:24em;overflow-wrap:anywhere}.trials small{display:block}
.trials details[open] pre{width:32em;max-width:70vw}.trials .tag{padding:.05em .6em;font-size:.8rem}
@media screen and (max-width:700px){.fans{grid-template-columns:1fr}.heat td.why{display:none}
table.heat.few tbody th{width:9.5em}}
)css";

/// Returns the answers under the headline: what fails, what to use, how far the study is.
std::string study_answers(const StudyFacts& facts) {
  std::string items;
  for (const StudyGroup& group : facts.groups) {
    if (group.failing == 0 || group.baseline) continue;
    // The first that fails most; the map has the others.
    const bool most =
        std::none_of(facts.groups.begin(), facts.groups.end(), [&](const StudyGroup& other) {
          return !other.baseline && other.failing_share() > group.failing_share();
        });
    if (!most) continue;
    items += html::definition("Fails most",
                              "<b>" + escape(group.name) + "</b> " +
                                  escape(seeds_text(facts, group.failing, group.finished)));
    break;
  }
  if (facts.cheapest >= 0) {
    const StudyGroup& best = facts.groups[static_cast<size_t>(facts.cheapest)];
    items += html::definition(
        "Cheapest that never failed",
        fmt::format("<b>{}</b> {:.3g} bits per number, {} failing", escape(best.name), *best.bits,
                    escape(seeds_text(facts, 0, best.finished))));
  }
  if (facts.waiting() > 0) {
    items += html::definition(
        "Progress", fmt::format("<b>{} of {}</b> trials finished", facts.finished, facts.planned));
  }
  return items.empty() ? "" : "<dl class=\"answer\">" + items + "</dl>\n";
}

std::string study_head(const StudyFacts& facts) {
  const std::string state = verdict_name(facts.verdict.state);
  std::string page = fmt::format(
      "<header class=\"hero {}\"><p class=\"brand\"><b>HalfScope</b> study <span>{}</span></p>\n"
      "<p class=\"state\">{}</p>\n<h1>{}</h1>\n",
      state, escape(facts.title), html::tag(state, state), prose(facts.verdict.headline));
  if (!facts.verdict.more.empty()) {
    page += fmt::format("<p class=\"more\">{}</p>\n", prose(facts.verdict.more));
  }
  return page + study_answers(facts) + "</header>\n";
}

std::string study_card(const StudyView& study, const StudyFacts& facts) {
  std::string card =
      "<section aria-labelledby=\"study\"><h2 id=\"study\">Study</h2>\n<dl class=\"run\">";
  const auto entry = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) card += html::definition(name, escape(value));
  };
  entry("Trials", std::to_string(facts.planned));
  entry("Finished", std::to_string(facts.finished));
  entry("Failing", std::to_string(facts.failing));
  if (facts.not_trained > 0) entry("Could not be trained", std::to_string(facts.not_trained));
  entry("Baseline", study.info().baseline);
  entry("Tolerance", percent(study.info().tolerance));
  for (const StudyAxis& axis : study.axes()) {
    const bool many = axis.values.size() > 6;
    entry("Axis " + axis.name, many ? fmt::format("{} values, {} to {}", axis.values.size(),
                                                  axis.values.front(), axis.values.back())
                                    : name_list(axis.values));
  }
  entry("HalfScope", study.info().version);
  return card + "</dl></section>\n";
}

std::string study_definitions(const StudyView& study, const StudyFacts& facts) {
  std::string text =
      "<section aria-labelledby=\"definitions\"><h2 id=\"definitions\">Definitions</h2>\n<dl "
      "class=\"defs\">";
  text += html::definition("Loss",
                           "Mean loss of the batches over the last fifth of the steps, without "
                           "the loss scale.");
  text += html::definition(
      "Gap",
      fmt::format("(loss &minus; baseline's loss) / baseline's loss, where the baseline has the "
                  "same {} and differs in precision alone. If the baseline's loss is below {} of "
                  "its first one, the divisor is that share of the first one.",
                  facts.common(), percent(kLearnedShare)));
  text += html::definition(
      "Fails", fmt::format("The loss is not finite, the training stopped, or the gap is above {}.",
                           percent(study.info().tolerance)));
  text += html::definition(
      "Noise",
      "Losses of short trainings differ by chance, in both directions. If the failing trials of a "
      "group have finite losses, and at least half as many end as far below the baseline, their "
      "gaps may be noise.");
  text += html::definition(
      "95% interval",
      "Wilson's score interval of the share of failing trials (E. B. Wilson, JASA 22, 1927), "
      "without continuity correction. It also holds for few trials and for none or all failing.");
  text += html::definition(
      "Bits",
      "Mean width of the numbers that a training step reads and writes, in bits. It counts data "
      "moved and depends on no machine. fp32 alone gives 32.");
  text += html::definition("Pareto front",
                           "Groups of which no trial fails, and for which no other such group has "
                           "fewer bits and a smaller median gap.");
  text += html::definition("First overflow",
                           "The first tensor, in execution order, that overflowed or contained NaN "
                           "or infinity.");
  text += html::definition("Quartiles",
                           "Between two values by linear interpolation. A loss that is not finite "
                           "counts as infinitely large.");
  return text + "</dl></section>\n";
}

std::string study_reproduction(const StudyView& study) {
  if (study.info().json.empty()) return "";
  return fmt::format(
      "<section aria-labelledby=\"reproduce\"><h2 id=\"reproduce\">Reproduce</h2>\n"
      "<pre class=\"copy\">halfscope sweep study.json\n</pre>\n{}<p class=\"how\">It gives the "
      "same numbers with any number of workers. Finished trials are not repeated.</p></section>\n",
      html::copy_block("study.json", study.info().json, false));
}

constexpr std::pair<const char*, const char*> kStudySections[] = {
    {"seeds", "Heat map"},          {"cost", "Cost"},
    {"losses", "Losses"},           {"first", "Layers"},
    {"trials", "Trials"},           {"study", "Study"},
    {"definitions", "Definitions"}, {"reproduce", "Reproduce"}};

}  // namespace

std::string study_links_from(const std::filesystem::path& page,
                             const std::filesystem::path& study_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path from = fs::weakly_canonical(fs::absolute(page, ignored).parent_path(), ignored);
  const fs::path folder =
      fs::weakly_canonical(fs::absolute(study_file, ignored).parent_path(), ignored);
  const fs::path way = folder.lexically_relative(from);
  return way.empty() || way == "." ? "" : way.string() + "/";
}

std::string study_html(const StudyView& study, const StudyFacts& facts, const std::string& folder) {
  namespace parts = study_html_parts;
  std::string body;
  if (facts.planned > 0) {
    body = parts::heat_map(study, facts) + parts::pareto_chart(study, facts) +
           parts::fans(study, facts) + parts::first_layers(facts) +
           parts::trial_table(study, facts, folder);
  }
  body += study_card(study, facts) + study_definitions(study, facts) + study_reproduction(study);
  return html::page_begin(
             fmt::format("HalfScope study: {}, {}", facts.title, verdict_name(facts.verdict.state)),
             kStyleOfStudies) +
         study_head(facts) + html::contents(kStudySections, body) + body + html::page_end();
}

}  // namespace halfscope
