// SPDX-License-Identifier: MIT
// Statistics of accumulators in sums of products, over all sampled steps.
#include <algorithm>

#include "analysis/report/report_parts.h"

namespace halfscope::report {

void add_sums(const RunView& run, Report& report) {
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const size_t first = report.sums.size();
    for (const SiteSums& row : run.sums(lane)) {
      const auto known =
          std::find_if(report.sums.begin() + static_cast<ptrdiff_t>(first), report.sums.end(),
                       [&](const SumReport& each) { return each.site == row.site; });
      if (known != report.sums.end()) {
        ++known->samples;
        known->counts.merge(row.counts);
        continue;
      }
      const SiteInfo& site = run.lane(lane).sites.at(static_cast<size_t>(row.site));
      report.sums.push_back({.lane = lane,
                             .site = row.site,
                             .name = site.name(),
                             .layer = row.layer,
                             .format = site.format,
                             .accumulation = accumulation_name(row.accumulation),
                             .samples = 1,
                             .counts = row.counts});
    }
    std::sort(report.sums.begin() + static_cast<ptrdiff_t>(first), report.sums.end(),
              [](const SumReport& a, const SumReport& b) { return a.site < b.site; });
  }
}

std::vector<const SumReport*> worst_sums(const Report& report, size_t limit) {
  std::vector<const SumReport*> worst;
  for (const SumReport& sums : report.sums) {
    if (sums.share() > kWorthShowing || sums.counts.overflowed > 0) worst.push_back(&sums);
  }
  std::stable_sort(worst.begin(), worst.end(), [](const SumReport* a, const SumReport* b) {
    const bool one = a->counts.overflowed > 0, other = b->counts.overflowed > 0;
    return one != other ? one : a->share() > b->share();
  });
  worst.resize(std::min(worst.size(), limit));
  return worst;
}

}  // namespace halfscope::report
