// SPDX-License-Identifier: MIT
#include "analysis/diagnosis/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"

namespace halfscope {
namespace {

constexpr double kVisible = 0.1;
constexpr size_t kLongest = 12;

/// Returns the largest error while the weights were equal; NaN if none was measured.
double worst_total(const LaneFacts& lane, int site) {
  const int reference = reference_lane(lane.run(), lane.lane());
  double worst = std::nan("");
  for (const SiteError& each : lane.run().errors(lane.lane())) {
    if (each.site != site || each.other_lane != reference || !std::isfinite(each.total)) continue;
    if (!lane.has_equal_weights(each.step)) continue;
    if (!(each.total <= worst)) worst = each.total;
  }
  return worst;
}

/// Counts values that are not finite here, but are in the reference.
int64_t new_non_finite(const LaneFacts& lane, int site) {
  const TensorStats& own = lane.run().total(lane.lane(), site);
  const std::optional<int> theirs = lane.reference_site(site);
  const int64_t known = theirs && lane.reference() >= 0
                            ? lane.run().total(lane.reference(), *theirs).non_finite()
                            : 0;
  return std::max<int64_t>(own.non_finite() + own.overflow - known, 0);
}

/// Returns how bad a tensor is, to follow the worst path.
double badness(const LaneFacts& lane, int site) {
  if (site < 0) return 0.0;
  if (new_non_finite(lane, site) > 0) return 2.0;
  const double error = worst_total(lane, site);
  return std::isnan(error) ? 0.0 : std::min(error, 1.0);
}

}  // namespace

Hop hop_at(const LaneFacts& lane, int site) {
  const SiteInfo& info = lane.site(site);
  const TensorStats& own = lane.run().total(lane.lane(), site);
  Hop hop{.site = info.name(), .layer = info.path};
  if (own.n > 0) hop.largest = static_cast<double>(own.max_abs);
  const std::optional<int> theirs = lane.reference_site(site);
  if (theirs && lane.reference() >= 0) {
    const TensorStats& reference = lane.run().total(lane.reference(), *theirs);
    if (reference.n > 0) hop.reference = static_cast<double>(reference.max_abs);
  }
  const double error = worst_total(lane, site);
  if (!std::isnan(error)) hop.error = error;
  const auto share = [&](int64_t part) {
    return percent(static_cast<double>(part) / static_cast<double>(std::max<int64_t>(own.n, 1)));
  };
  if (own.overflow > 0) {
    hop.text = fmt::format("{} larger than {}", share(own.overflow),
                           short_number(info.format.max_finite()));
  } else if (own.nan > 0) {
    hop.text = fmt::format("{} NaN", share(own.nan));
  } else if (new_non_finite(lane, site) > 0) {
    hop.text = fmt::format("{} infinite", share(own.pos_inf + own.neg_inf));
  } else if (own.underflow > 0 && own.underflow * 100 >= own.n) {
    hop.text = fmt::format("{} become 0", share(own.underflow));
  } else if (hop.error && *hop.error > 0.0) {
    hop.text = "error " + difference_by(*hop.error);
  }
  return hop;
}

std::vector<Hop> chain_from(const LaneFacts& lane, int node) {
  std::vector<Hop> chain;
  std::vector<bool> seen(lane.nodes().size(), false);
  while (node >= 0 && chain.size() < kLongest && !seen[static_cast<size_t>(node)]) {
    seen[static_cast<size_t>(node)] = true;
    const ForwardNode& at = lane.nodes()[static_cast<size_t>(node)];
    if (at.output_site >= 0) chain.push_back(hop_at(lane, at.output_site));
    int next = -1;
    double worst = -1.0;
    for (const int reader : at.readers) {
      const double bad = badness(lane, lane.nodes()[static_cast<size_t>(reader)].output_site);
      if (bad > worst) {
        worst = bad;
        next = reader;
      }
    }
    node = next;
  }
  return chain;
}

int first_symptom_site(const LaneFacts& lane, const std::vector<int>& roots) {
  std::vector<bool> below(lane.nodes().size(), roots.empty());
  for (const int root : roots) {
    const std::vector<bool> reached = lane.downstream(root);
    for (size_t i = 0; i < below.size(); ++i) below[i] = below[i] || reached[i];
  }
  int wrong = -1;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::activation || site.phase != Phase::forward) continue;
    if (!below[static_cast<size_t>(lane.node_of(site.order))]) continue;
    if (new_non_finite(lane, site.order) > 0) return site.order;
    if (wrong < 0 && worst_total(lane, site.order) >= kVisible) wrong = site.order;
  }
  return wrong;
}

int first_nan_site(const LaneFacts& lane) {
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::activation || site.phase != Phase::forward) continue;
    const std::optional<int> theirs = lane.reference_site(site.order);
    const bool nan_there =
        theirs && lane.reference() >= 0 && lane.run().total(lane.reference(), *theirs).nan > 0;
    if (!nan_there && lane.run().total(lane.lane(), site.order).nan > 0) return site.order;
  }
  return -1;
}

}  // namespace halfscope
