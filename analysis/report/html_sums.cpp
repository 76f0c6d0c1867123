// SPDX-License-Identifier: MIT
// The table of sums whose accumulators lose most.
#include <fmt/format.h>

#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {

std::string sums_section(const Report& report) {
  constexpr size_t kShown = 10;
  const std::vector<const SumReport*> worst = report::worst_sums(report, kShown);
  if (worst.empty()) return "";
  std::string html =
      "<h3 id=\"sums\">Accumulation</h3>\n" + scroll_begin("Sums that lose most") +
      "<table class=\"sort\"><caption>Sums that lose most while they accumulate, in the compared "
      "steps"
      "</caption><thead><tr><th scope=\"col\">Lane</th><th scope=\"col\">Tensor</th>"
      "<th scope=\"col\">Accumulation</th><th scope=\"col\">Swamped (of non-zero products)</th>"
      "<th scope=\"col\">Largest sum</th><th scope=\"col\">Overflowed (of all "
      "sums)</th></tr></thead><tbody>\n";
  for (const SumReport* sums : worst) {
    const std::string overflowed =
        sums->counts.overflowed > 0
            ? fmt::format("{}, first at term {}",
                          percent(report::share(sums->counts.overflowed, sums->counts.sums)),
                          sums->counts.first_overflow)
            : "";
    html += fmt::format(
        "<tr><td>{}</td><th scope=\"row\">{}</th><td>{} to {}</td><td>{}</td><td>{}</td>"
        "<td>{}</td></tr>\n",
        escape(report.lanes[static_cast<size_t>(sums->lane)].name),
        layer_link(report, sums->lane, sums->layer, sums->name), escape(sums->accumulation),
        escape(format_name(sums->format)), percent(sums->share()),
        short_number(sums->counts.largest), overflowed);
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace halfscope::html
