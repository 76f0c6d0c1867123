// SPDX-License-Identifier: MIT
#include "cli/tasks/diff_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"

namespace halfscope {
namespace {

constexpr const char* kLossScale = "loss scale";

/// Two values that are both NaN are equal.
bool is_equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Returns |a - b| / max(|a|, |b|), 0 for equal values; 1 if one of them is not finite.
double relative(double a, double b) {
  if (is_equal(a, b)) return 0.0;
  if (!std::isfinite(a) || !std::isfinite(b)) return 1.0;
  return std::fabs(a - b) / std::fmax(std::fabs(a), std::fabs(b));
}

double relative(const DiffPair& pair) { return relative(*pair.a, *pair.b); }

/// The windows that both lanes have.
struct CommonWindows {
  bool any = false;
  int64_t first_step = -1;  ///< of the first one that differs; -1 if none does
};

CommonWindows common_windows(const WindowRange& a, const WindowRange& b) {
  CommonWindows common;
  for (const PackedWindow& window : a) {
    const std::optional<PackedWindow> other = b.find(window.step);
    if (!other || other->step_count != window.step_count) continue;
    common.any = true;
    if (window.stats() == other->stats()) continue;
    common.first_step = window.step;
    break;
  }
  return common;
}

/// Largest magnitude and norm of a tensor over a run.
struct Magnitudes {
  double max_abs = 0.0, norm = 0.0;
};

/// Gradients are divided by the loss scale of their window's first step: lanes with different
/// scales would differ everywhere.
Magnitudes magnitudes_of(const RunView& run, int lane, const SiteInfo& site) {
  const TensorStats& total = run.total(lane, site.order);
  if (site.phase != Phase::backward) return {total.max_abs, std::sqrt(total.sum_sq)};
  Magnitudes result;
  double squares = 0.0;
  const std::span<const StepRow> rows = run.steps(lane);
  for (const StatsWindow& window : run.windows(lane, site.order)) {
    const auto row =
        std::lower_bound(rows.begin(), rows.end(), window.step,
                         [](const StepRow& each, int64_t step) { return each.step < step; });
    const double scale = row != rows.end() && row->loss_scale > 0.0 ? row->loss_scale : 1.0;
    result.max_abs = std::fmax(result.max_abs, static_cast<double>(window.stats.max_abs) / scale);
    squares += window.stats.sum_sq / scale / scale;
  }
  result.norm = std::sqrt(squares);
  return result;
}

std::optional<SiteDiff> diff_sites(const RunView& a, int lane_a, const SiteInfo& mine,
                                   const RunView& b, int lane_b, const SiteInfo& theirs) {
  const TensorStats& total_a = a.total(lane_a, mine.order);
  const TensorStats& total_b = b.total(lane_b, theirs.order);
  const CommonWindows common =
      common_windows(a.windows(lane_a, mine.order), b.windows(lane_b, theirs.order));
  const bool same_format = mine.format == theirs.format;
  // The totals of a longer run differ although everything in the steps of both is the same.
  const bool same = common.any ? common.first_step < 0 : total_a == total_b;
  if (same && same_format) return std::nullopt;
  SiteDiff diff;
  diff.first_step = common.first_step;
  diff.site = mine.name();
  diff.formats = format_name(mine.format);
  if (!same_format) diff.formats += ", " + format_name(theirs.format);
  const Magnitudes size_a = magnitudes_of(a, lane_a, mine);
  const Magnitudes size_b = magnitudes_of(b, lane_b, theirs);
  diff.max_abs = {size_a.max_abs, size_b.max_abs};
  diff.norm = {size_a.norm, size_b.norm};
  const Rates rates_a = run_rates(a, lane_a, mine.order);
  const Rates rates_b = run_rates(b, lane_b, theirs.order);
  diff.overflow = {rates_a.overflow, rates_b.overflow};
  diff.underflow = {rates_a.underflow, rates_b.underflow};
  diff.size = std::max({relative(diff.max_abs), relative(diff.norm),
                        std::fabs(rates_a.overflow - rates_b.overflow),
                        std::fabs(rates_a.underflow - rates_b.underflow)});
  return diff;
}

StepDiff diff_steps(const char* name, std::span<const StepRow> a, std::span<const StepRow> b,
                    double StepRow::*value) {
  StepDiff diff{.name = name};
  const auto optional_of = [value](const StepRow& row) -> std::optional<double> {
    if (std::isnan(row.*value) && value != &StepRow::loss) return std::nullopt;
    return row.*value;
  };
  double worst = -1.0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].step != b[j].step) {
      a[i].step < b[j].step ? ++i : ++j;
      continue;
    }
    const StepRow &mine = a[i++], &theirs = b[j++];
    diff.last = {optional_of(mine), optional_of(theirs)};
    if (is_equal(mine.*value, theirs.*value)) continue;
    if (diff.first_step < 0) {
      diff.first_step = mine.step;
      diff.first = diff.last;
    }
    const double size = relative(mine.*value, theirs.*value);
    if (size <= worst) continue;
    worst = size;
    diff.worst_step = mine.step;
    diff.worst = diff.last;
  }
  return diff;
}

/// Finds the tensor of a lane that is the same as one of another lane: by the path of its layer, or
/// by the names that either lane's network file gives to layers.
class Counterparts {
 public:
  Counterparts(const RunView& run, int lane) : run_(run), lane_(lane) {
    for (const LayerInfo& layer : run.lane(lane).layers) {
      aliases_[layer.path] = layer.alias;
      if (!layer.alias.empty()) paths_[layer.alias].insert(layer.path);
    }
  }

  const std::string& alias(const std::string& path) const {
    static const std::string kNone;
    const auto found = aliases_.find(path);
    return found == aliases_.end() ? kNone : found->second;
  }

  /// Returns the tensor of a layer that has one of these two names; nothing if several layers have
  /// the name.
  std::optional<int> find(const std::string& path, const std::string& alias,
                          const std::string& tensor) const {
    for (const std::string& name : {path, alias}) {
      if (name.empty()) continue;
      if (const auto site = run_.find_site(lane_, name + "." + tensor)) return site;
    }
    for (const std::string& name : {path, alias}) {
      const auto found = paths_.find(name);
      if (name.empty() || found == paths_.end() || found->second.size() != 1) continue;
      const std::string& other = *found->second.begin();
      if (const auto site = run_.find_site(lane_, other + "." + tensor)) return site;
    }
    return std::nullopt;
  }

 private:
  const RunView& run_;
  int lane_;
  std::map<std::string, std::string> aliases_;          ///< of a path; "" without one
  std::map<std::string, std::set<std::string>> paths_;  ///< of an alias
};

std::string share_cells(const DiffPair& pair) {
  return is_equal(*pair.a, *pair.b) ? percent(*pair.a)
                                    : percent(*pair.a) + " -> " + percent(*pair.b);
}

/// `text` writes a number. Two numbers that look alike have as many digits as they need.
std::string number_cells(const DiffPair& pair,
                         const std::function<std::string(double)>& text = table_number) {
  const auto cell = [&](const std::optional<double>& value) -> std::string {
    if (!value) return "none";
    return std::isnan(*value) ? "NaN" : text(*value);
  };
  const bool same =
      pair.a.has_value() == pair.b.has_value() && (!pair.a || is_equal(*pair.a, *pair.b));
  if (same) return pair.a ? cell(pair.a) : "-";
  const std::string a = cell(pair.a), b = cell(pair.b);
  return a == b ? shortest(*pair.a) + " -> " + shortest(*pair.b) : a + " -> " + b;
}

Json pair_json(const DiffPair& pair) {
  const auto number = [](const std::optional<double>& value) {
    return value ? json_number(*value) : Json(nullptr);
  };
  return Json::array({number(pair.a), number(pair.b)});
}

std::string steps_text(const LaneDiff& diff) {
  std::string text;
  for (const StepDiff& each : diff.steps) {
    if (each.first_step < 0) {
      if (each.last.a) text += fmt::format("{}: the same in all common steps\n", each.name);
      continue;
    }
    const auto cells = [&](const DiffPair& pair) {
      return number_cells(pair, each.name == kLossScale ? scale_text : table_number);
    };
    text += fmt::format("{}: differs from step {} on: {}; most at step {}: {}; last: {}\n",
                        each.name, each.first_step, cells(each.first), each.worst_step,
                        cells(each.worst), cells(each.last));
  }
  return text;
}

}  // namespace

bool LaneDiff::same() const noexcept {
  return sites.empty() && only_a.empty() && only_b.empty() && steps_a == steps_b &&
         skipped_a == skipped_b &&
         std::all_of(steps.begin(), steps.end(),
                     [](const StepDiff& each) { return each.first_step < 0; });
}

LaneDiff diff_lanes(const RunView& a, int lane_a, const RunView& b, int lane_b) {
  LaneDiff diff;
  diff.a = a.lane(lane_a).name;
  diff.b = b.lane(lane_b).name;
  int first_order = 0;
  const Counterparts names_a(a, lane_a), names_b(b, lane_b);
  std::set<int> taken;  // sites of b that already have a counterpart
  for (const SiteInfo& site : a.lane(lane_a).sites) {
    const std::optional<int> other = names_b.find(site.path, names_a.alias(site.path), site.tensor);
    if (!other || !taken.insert(*other).second) {
      diff.only_a.push_back(site.name());
      continue;
    }
    ++diff.compared_sites;
    const SiteInfo& theirs = b.lane(lane_b).sites[static_cast<size_t>(*other)];
    std::optional<SiteDiff> found = diff_sites(a, lane_a, site, b, lane_b, theirs);
    if (!found) continue;
    const bool earlier = diff.first_step < 0 || found->first_step < diff.first_step ||
                         (found->first_step == diff.first_step && site.order < first_order);
    if (found->first_step >= 0 && earlier) {
      diff.first_step = found->first_step;
      diff.first_site = found->site;
      first_order = site.order;
    }
    diff.sites.push_back(std::move(*found));
  }
  for (const SiteInfo& site : b.lane(lane_b).sites) {
    if (!taken.contains(site.order)) diff.only_b.push_back(site.name());
  }
  std::stable_sort(diff.sites.begin(), diff.sites.end(),
                   [](const SiteDiff& x, const SiteDiff& y) { return x.size > y.size; });
  const std::span<const StepRow> rows_a = a.steps(lane_a), rows_b = b.steps(lane_b);
  const auto skipped = [](std::span<const StepRow> rows) {
    return std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
  };
  diff.steps_a = static_cast<int64_t>(rows_a.size());
  diff.steps_b = static_cast<int64_t>(rows_b.size());
  diff.skipped_a = skipped(rows_a);
  diff.skipped_b = skipped(rows_b);
  if (!a.info().inference && !b.info().inference) {
    diff.steps.push_back(diff_steps("loss", rows_a, rows_b, &StepRow::loss));
    diff.steps.push_back(diff_steps(kLossScale, rows_a, rows_b, &StepRow::loss_scale));
    diff.steps.push_back(diff_steps("gradient norm", rows_a, rows_b, &StepRow::grad_norm));
  }
  return diff;
}

std::string lane_diff_text(const LaneDiff& diff, size_t limit) {
  const std::string names = diff.a == diff.b ? diff.a : diff.a + " and " + diff.b;
  if (diff.same()) {
    return fmt::format("{}: the same in {} and {}\n", names, counted(diff.compared_sites, "tensor"),
                       counted(diff.steps_a, "step"));
  }
  std::string text = fmt::format("{}: {} of {} differ\n", names, diff.sites.size(),
                                 counted(diff.compared_sites, "tensor"));
  if (diff.first_step >= 0) {
    text += fmt::format("first difference: {} at step {}\n", diff.first_site, diff.first_step);
  }
  if (diff.steps_a != diff.steps_b) {
    text += fmt::format("steps: {} -> {}\n", diff.steps_a, diff.steps_b);
  }
  if (diff.skipped_a != diff.skipped_b) {
    text += fmt::format("skipped steps: {} -> {}\n", diff.skipped_a, diff.skipped_b);
  }
  text += steps_text(diff);
  for (const auto& [which, sites] : {std::pair{"first", diff.only_a}, {"second", diff.only_b}}) {
    if (sites.empty()) continue;
    text += fmt::format("only in the {}: {}\n", which, name_list(sites));
  }
  if (diff.sites.empty()) return text;
  std::vector<std::vector<std::string>> rows{
      {"tensor", "from step", "largest", "norm", "overflow", "underflow", "format"}};
  for (size_t i = 0; i < std::min(limit, diff.sites.size()); ++i) {
    const SiteDiff& site = diff.sites[i];
    rows.push_back({site.site, site.first_step < 0 ? "-" : std::to_string(site.first_step),
                    number_cells(site.max_abs), number_cells(site.norm), share_cells(site.overflow),
                    share_cells(site.underflow), site.formats});
  }
  text += aligned(rows, {false, true, false, false, false, false, false});
  if (diff.sites.size() > limit) {
    text += fmt::format("... {} more\n", diff.sites.size() - limit);
  }
  return text;
}

Json lane_diff_json(const LaneDiff& diff) {
  const auto step = [](int64_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  Json json;
  json["lanes"] = {diff.a, diff.b};
  json["same"] = diff.same();
  json["first_step"] = step(diff.first_step);
  json["first_site"] = diff.first_site.empty() ? Json(nullptr) : Json(diff.first_site);
  json["steps"] = {diff.steps_a, diff.steps_b};
  json["skipped"] = {diff.skipped_a, diff.skipped_b};
  json["series"] = Json::array();
  for (const StepDiff& each : diff.steps) {
    json["series"].push_back({{"name", each.name},
                              {"first_step", step(each.first_step)},
                              {"first", pair_json(each.first)},
                              {"worst_step", step(each.worst_step)},
                              {"worst", pair_json(each.worst)},
                              {"last", pair_json(each.last)}});
  }
  json["only"] = Json::array({diff.only_a, diff.only_b});
  json["compared"] = diff.compared_sites;
  json["sites"] = Json::array();
  for (const SiteDiff& site : diff.sites) {
    json["sites"].push_back({{"site", site.site},
                             {"first_step", step(site.first_step)},
                             {"format", site.formats},
                             {"max_abs", pair_json(site.max_abs)},
                             {"norm", pair_json(site.norm)},
                             {"overflow", pair_json(site.overflow)},
                             {"underflow", pair_json(site.underflow)},
                             {"size", json_number(site.size)}});
  }
  return json;
}

}  // namespace halfscope
