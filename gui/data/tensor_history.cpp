// SPDX-License-Identifier: MIT
#include "gui/data/tensor_history.h"

#include <algorithm>

#include "core/numeric/statistics/rates.h"

namespace halfscope::gui {

void TensorHistory::update(const std::shared_ptr<const RunView>& run, int lane, int site) {
  const bool same_run = !run_.owner_before(run) && !run.owner_before(run_);
  if (same_run && lane == lane_ && site == site_) return;
  run_ = run;
  lane_ = lane;
  site_ = site;
  ++generation_;
  moments_.clear();
  low_ = kMaxExponentBin + 1;
  high_ = kMinExponentBin - 1;
  for (const PackedWindow& window : run->windows(lane, site)) {
    const TensorStats stats = window.stats();
    Moment moment{.step = window.step, .step_count = window.step_count};
    const auto values = static_cast<float>(non_zero_values(stats));
    const auto begin = std::find_if(stats.exponents.begin(), stats.exponents.end(),
                                    [](int64_t count) { return count > 0; });
    if (begin != stats.exponents.end() && values > 0.0f) {
      const auto end =
          std::find_if(stats.exponents.rbegin(), stats.exponents.rend(), [](int64_t count) {
            return count > 0;
          }).base();
      moment.low = static_cast<int>(begin - stats.exponents.begin()) + kMinExponentBin;
      for (auto bin = begin; bin != end; ++bin) {
        moment.shares.push_back(static_cast<float>(*bin) / values);
      }
      low_ = std::min(low_, moment.low);
      high_ = std::max(high_, moment.low + static_cast<int>(moment.shares.size()) - 1);
    }
    moments_.push_back(std::move(moment));
  }
}

}  // namespace halfscope::gui
