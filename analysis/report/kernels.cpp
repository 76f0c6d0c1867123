// SPDX-License-Identifier: MIT
// Compares the kernels of a lane with the emulator, over all sampled steps.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::report {
namespace {

/// Returns "[3, 0, 5]" for the element at that place of a row-major tensor.
std::string index_text(const Shape& shape, int64_t at) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0;) {
    text = std::to_string(at % shape[d]) + (text.empty() ? "" : ", ") + text;
    at /= shape[d];
  }
  return "[" + text + "]";
}

void add(const SiteInfo& site, const KernelCheck& check, KernelSiteReport& to) {
  ++to.samples;
  to.n += check.n;
  to.differing += check.differing;
  if (check.worst >= 0 && (to.worst.empty() || check.max_ulps > to.max_ulps)) {
    to.worst = fmt::format("{} at step {}", index_text(site.shape, check.worst), check.step);
  }
  to.max_ulps = std::max(to.max_ulps, check.max_ulps);
  if (check.beyond >= 0) to.beyond = to.beyond.value_or(0) + check.beyond;
  if (!check.kernel.empty()) to.kernel = check.kernel;
  const double explained = share(check.explained, check.sampled);
  if (!check.order.empty() && explained < to.least_explained) {
    to.least_explained = explained;
    to.order = check.order;
    to.unexplained = check.unexplained;
  }
  to.sampled += check.sampled;
  to.explained += check.explained;
}

/// Returns "3 of 12 tensors"; "All 12 tensors".
std::string part_of(int64_t part, int64_t whole) {
  if (part < whole) return fmt::format("{} of {}", part, counted(whole, "tensor"));
  return whole == 1 ? "The only tensor" : fmt::format("All {} tensors", whole);
}

/// Returns the orders, separated by semicolons because they contain commas.
std::string list_orders(const std::set<std::string>& orders) {
  constexpr size_t kShown = 2;
  std::string text;
  size_t count = 0;
  for (const std::string& order : orders) {
    if (count == kShown) return text + fmt::format("; and {} more", orders.size() - kShown);
    text += (count++ == 0 ? "" : "; ") + order;
  }
  return text;
}

std::string summary(const KernelReport& kernels) {
  using Site = KernelSiteReport;
  const auto count = [&](const auto& wanted) -> int64_t {
    return std::count_if(kernels.sites.begin(), kernels.sites.end(), wanted);
  };
  const int64_t all = static_cast<int64_t>(kernels.sites.size());
  const int64_t equal = count([](const Site& site) { return site.differing == 0; });
  std::string text = fmt::format("{} {} the same bits as the emulator's for the same operands.",
                                 part_of(equal, all), equal == 1 ? "has" : "have");
  const int64_t own = count([](const Site& site) {
    return site.differing > 0 && site.kernel.empty() && site.beyond.value_or(0) == 0;
  });
  if (own > 0) {
    text += fmt::format(" {} by HalfScope's own kernels {} from them.",
                        own == 1 ? "One computed" : fmt::format("{} computed", own),
                        own == 1 ? "differs" : "differ");
  }
  const int64_t beyond = count([](const Site& site) { return site.beyond.value_or(0) > 0; });
  if (beyond > 0) {
    text += fmt::format(" {} values that no order of summation explains.",
                        beyond == 1 ? "One has" : fmt::format("{} have", beyond));
  }
  int64_t sampled = 0, explained = 0, sums = 0;
  std::set<std::string> orders;
  for (const Site& site : kernels.sites) {
    if (site.differing == 0 || site.sampled == 0 || site.beyond.value_or(0) > 0) continue;
    ++sums;
    sampled += site.sampled;
    explained += site.explained;
    orders.insert(site.order);
  }
  if (sums > 0) {
    text += fmt::format(
        " The library's order of summation explains {} of the sampled elements of {} exactly: {}.",
        explained == sampled ? "100%" : percent(share(explained, sampled)),
        sums == 1 ? "the other one" : fmt::format("{} others", sums), list_orders(orders));
  }
  return text;
}

}  // namespace

void add_kernels(const RunView& run, Report& report) {
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    KernelReport kernels{.lane = lane};
    for (const KernelCheck& check : run.kernels(lane)) {
      if (kernels.steps.empty() || kernels.steps.back() != check.step) {
        kernels.steps.push_back(check.step);
      }
      const auto place =
          std::lower_bound(kernels.sites.begin(), kernels.sites.end(), check.site,
                           [](const KernelSiteReport& each, int site) { return each.site < site; });
      const SiteInfo& site = run.lane(lane).sites.at(static_cast<size_t>(check.site));
      const bool is_new = place == kernels.sites.end() || place->site != check.site;
      const auto at = is_new ? kernels.sites.insert(place, {.site = check.site,
                                                            .name = site.name(),
                                                            .layer = site.path,
                                                            .op = site.op,
                                                            .format = site.format})
                             : place;
      add(site, check, *at);
    }
    if (kernels.sites.empty()) continue;
    kernels.text = summary(kernels);
    report.kernels.push_back(std::move(kernels));
  }
}

}  // namespace halfscope::report
