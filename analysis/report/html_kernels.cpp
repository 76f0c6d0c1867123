// SPDX-License-Identifier: MIT
// Tensors whose bits differ from the emulator's for the same operands, and why.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

constexpr size_t kShown = 40;

/// Orders tensors by what a reader should look at first.
bool worse(const KernelSiteReport* a, const KernelSiteReport* b) {
  const auto weight = [](const KernelSiteReport& site) {
    return site.beyond.value_or(0) > 0 ? 2 : site.kernel.empty() ? 1 : 0;
  };
  if (weight(*a) != weight(*b)) return weight(*a) > weight(*b);
  return report::share(a->explained, a->sampled) < report::share(b->explained, b->sampled);
}

std::string reason(const KernelSiteReport& site) {
  std::string text;
  if (site.beyond.value_or(0) > 0) {
    text = fmt::format("{} of the elements differ more than any order of summation explains",
                       percent(report::share(*site.beyond, site.n)));
  } else if (site.sampled == 0) {
    return site.kernel.empty() ? "no (HalfScope kernel)" : "no summation order was searched for";
  }
  if (site.sampled > 0) {
    if (!text.empty()) text += "; ";
    text += site.explained == site.sampled
                ? "100% by " + site.order
                : fmt::format("{} at the worst step, by {}",
                              percent(report::share(site.explained, site.sampled)), site.order);
  }
  if (!site.unexplained.empty()) {
    text += " (the kernel's own summation order was not found: " + site.unexplained + ")";
  }
  return text;
}

std::string table(const Report& report, const KernelReport& kernels) {
  std::vector<const KernelSiteReport*> differing;
  for (const KernelSiteReport& site : kernels.sites) {
    if (site.differing > 0) differing.push_back(&site);
  }
  if (differing.empty()) return "";
  std::stable_sort(differing.begin(), differing.end(), worse);
  const std::string& lane = report.lanes[static_cast<size_t>(kernels.lane)].name;
  const std::string caption =
      differing.size() > kShown
          ? fmt::format("The {} of {} differing tensors of {} that are least explained", kShown,
                        differing.size(), lane)
          : fmt::format("Tensors of {} that differ from the emulator's", lane);
  differing.resize(std::min(differing.size(), kShown));
  std::string html =
      scroll_begin(caption) + "<table class=\"sort\"><caption>" + escape(caption) +
      "</caption><thead><tr><th scope=\"col\">Tensor</th><th scope=\"col\" class=\"n\">Equal</th>"
      "<th scope=\"col\" class=\"n\">Largest distance, ulps</th><th scope=\"col\">Where</th>"
      "<th scope=\"col\">Explained</th><th scope=\"col\">Computed by</th></tr></thead><tbody>\n";
  for (const KernelSiteReport* site : differing) {
    html += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>"
        "<td>{}</td><td class=\"soft\">{}</td></tr>\n",
        layer_link(report, kernels.lane, site->layer, site->name),
        percent(report::share(site->n - site->differing, site->n)), short_number(site->max_ulps),
        escape(site->worst), escape(reason(*site)),
        escape(site->kernel.empty() ? "HalfScope kernel" : site->kernel));
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string kernels_section(const Report& report) {
  if (report.kernels.empty()) return "";
  std::string html = "<h3 id=\"kernels\">Kernels compared with the emulator</h3>\n";
  for (const KernelReport& kernels : report.kernels) {
    html += fmt::format("<h4>{}</h4>\n<p>{}</p>\n",
                        escape(report.lanes[static_cast<size_t>(kernels.lane)].name),
                        prose(kernels.text));
    html += table(report, kernels);
  }
  return html +
         "<p class=\"how\">At sampled steps the emulator runs every operator on the kernel's own "
         "operands, so no error is inherited. Where a library sums in a different order, sampled "
         "elements are summed again in the orders known for the hardware, in the plan's order, and "
         "in the one found in the kernel (FPRev). An element is explained if one of them gives the "
         "same bits.</p>\n";
}

}  // namespace halfscope::html
