// SPDX-License-Identifier: MIT
#include "analysis/diagnosis/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

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

/// Values of a tensor that are not finite, over some steps.
struct NonFinite {
  int64_t n = 0, nan = 0, infinite = 0;
  int64_t overflow = 0;
  int64_t known = 0;  ///< not finite in the reference

  template <class Counts>
  void add(const Counts& counts) {
    n += counts.n;
    nan += counts.nan;
    infinite += counts.pos_inf + counts.neg_inf;
    overflow += counts.overflow;
  }
  bool is_new() const { return nan + infinite + overflow > known; }
};

/// Counts them over the whole run.
NonFinite all_non_finite(const LaneFacts& lane, int site) {
  NonFinite all;
  all.add(lane.run().total(lane.lane(), site));
  const std::optional<int> theirs = lane.reference_site(site);
  if (theirs && lane.reference() >= 0) {
    all.known = lane.run().total(lane.reference(), *theirs).non_finite();
  }
  return all;
}

NonFinite non_finite_in(const LaneFacts& lane, int site, const std::vector<int64_t>& steps) {
  NonFinite some;
  for (const int64_t step : steps) {
    if (const std::optional<TensorCounts> own = lane.counts(site, step)) some.add(*own);
    const std::optional<TensorCounts> theirs = lane.reference_counts(site, step);
    if (theirs) some.known += theirs->non_finite();
  }
  return some;
}

/// Returns how bad a tensor is, to follow the worst path.
double badness(const LaneFacts& lane, int site) {
  if (site < 0) return 0.0;
  if (all_non_finite(lane, site).is_new()) return 2.0;
  const double error = worst_total(lane, site);
  return std::isnan(error) ? 0.0 : std::min(error, 1.0);
}

/// Returns the first output that is not finite and fits, in the first step with one.
int first_bad_output(const LaneFacts& lane, const std::function<bool(int site, int64_t)>& fits) {
  for (const RecordedStep& step : lane.recorded()) {
    if (step.bad.empty()) continue;
    // Sites before the first got their values in a later call.
    const auto first = std::lower_bound(step.bad.begin(), step.bad.end(), lane.first_bad(step));
    const auto found = std::find_if(first, step.bad.end(), [&](int order) {
      const SiteInfo& site = lane.site(order);
      return site.role == Role::activation && site.phase == Phase::forward &&
             fits(order, step.step);
    });
    if (found != step.bad.end()) return *found;
  }
  return -1;
}

}  // namespace

std::vector<int64_t> steps_of_cause(const LaneFacts& lane, const std::vector<int>& nodes) {
  std::vector<int64_t> steps;
  for (const RecordedStep& step : lane.recorded()) {
    if (!step.forward_bad) continue;
    const std::vector<int> causes = lane.forward_causes(step);
    const bool here = std::any_of(causes.begin(), causes.end(), [&](int site) {
      return lane.run().total(lane.lane(), site).overflow == 0 &&
             std::find(nodes.begin(), nodes.end(), lane.node_of(site)) != nodes.end();
    });
    if (here) steps.push_back(step.step);
  }
  return steps;
}

Hop hop_at(const LaneFacts& lane, int site, const std::vector<int64_t>& steps) {
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
  const auto share = [](int64_t part, int64_t n) {
    return percent(static_cast<double>(part) / static_cast<double>(std::max<int64_t>(n, 1)));
  };
  const NonFinite bad =
      steps.empty() ? all_non_finite(lane, site) : non_finite_in(lane, site, steps);
  if (own.overflow > 0) {
    hop.text = fmt::format("{} larger than {}", share(own.overflow, own.n),
                           short_number(info.format.max_finite()));
  } else if (bad.nan > 0) {
    hop.text = fmt::format("{} {}", share(bad.nan + bad.infinite, bad.n),
                           bad.infinite > 0 ? "NaN or infinite" : "NaN");
  } else if (bad.is_new()) {
    hop.text = fmt::format("{} infinite", share(bad.infinite, bad.n));
  } else if (own.underflow > 0 && own.underflow * 100 >= own.n) {
    hop.text = fmt::format("{} become 0", share(own.underflow, own.n));
  } else if (hop.error && *hop.error > 0.0) {
    hop.text = "error " + difference_by(*hop.error);
  }
  return hop;
}

std::vector<Hop> chain_from(const LaneFacts& lane, int node, const std::vector<int64_t>& steps) {
  std::vector<Hop> chain;
  std::vector<bool> seen(lane.nodes().size(), false);
  while (node >= 0 && chain.size() < kLongest && !seen[static_cast<size_t>(node)]) {
    seen[static_cast<size_t>(node)] = true;
    const ForwardNode& at = lane.nodes()[static_cast<size_t>(node)];
    if (at.output_site >= 0) chain.push_back(hop_at(lane, at.output_site, steps));
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
  const auto is_below = [&](int site) { return below[static_cast<size_t>(lane.node_of(site))]; };
  const int bad = first_bad_output(lane, [&](int site, int64_t) { return is_below(site); });
  if (bad >= 0) return bad;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::activation || site.phase != Phase::forward) continue;
    if (is_below(site.order) && worst_total(lane, site.order) >= kVisible) return site.order;
  }
  return -1;
}

int first_nan_site(const LaneFacts& lane) {
  return first_bad_output(lane, [&](int site, int64_t step) {
    const std::optional<TensorCounts> theirs = lane.reference_counts(site, step);
    return lane.counts(site, step)->nan > 0 && !(theirs && theirs->nan > 0);
  });
}

}  // namespace halfscope
