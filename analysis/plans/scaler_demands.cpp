// SPDX-License-Identifier: MIT
// Trajectories of gradients for scaler_traces.h: made up, read from a table, or recorded.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "analysis/format_limits.h"
#include "analysis/plans/scaler_traces.h"
#include "analysis/rules/lane_facts.h"
#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kRowHint = "write largest[,smallest] per step, for example 0.5,1e-6";

std::optional<double> number_of(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, last - first + 1);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Returns whether a first line names one or two columns: "largest,smallest".
bool is_header(std::string_view line) {
  if (std::count(line.begin(), line.end(), ',') > 1) return false;
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  bool starts = true;  // a name starts here
  for (const char c : line) {
    if (starts ? !is_letter(c) : c != ',' && c != '_' && c != '\r' && !is_letter(c)) return false;
    starts = c == ',';
  }
  return !starts;
}

/// Returns whether the site is a gradient that overflows or underflows at some loss scale. No loss
/// scale reaches codes with a scale of their own.
bool limits_scale(const SiteInfo& site) {
  return site.phase == Phase::backward && site.scale.empty() && narrow_exponent(site.format);
}

/// Collects the demands of the sites of one recorded window.
class WindowDemands {
 public:
  WindowDemands(const LaneFacts& lane, const RecordedStep& record)
      : lane_(lane), record_(record), scale_(record.loss_scale) {}

  void add(int which, const SiteInfo& site) {
    const std::optional<TensorStats> own = lane_.stats(site.order, record_.step);
    if (!own || own->n == 0) return;
    const bool scaled = scale_ > 0.0 && std::isfinite(scale_);
    if (scaled && own->non_finite() == 0) {
      add_stats(which, site, *own, scale_);
      return;
    }
    // NaN and infinity hide the magnitudes.
    if (const std::optional<int> theirs = reference_site(site)) {
      const std::optional<PackedWindow> window =
          lane_.run().windows(lane_.reference(), *theirs).find(record_.step);
      const TensorStats stats = window ? window->stats() : TensorStats{};
      if (stats.non_finite() == 0 && stats.max_abs > 0.0f) {
        add_stats(which, site, stats, 1.0);  // references are trained without a loss scale
        return;
      }
    }
    if (!scaled) return;
    lower_ceiling(which, scale_);
    hidden_.insert(which);
  }

  /// `name` returns the place of a site of the lane among the sites of the demands.
  ScaleDemand finish(ScaleDemands& all, const std::function<int(int)>& name) {
    demand_.hidden = hidden_.contains(demand_.ceiling_site);
    const std::optional<int> nan = nan_gradient();
    if (record_.forward_bad || nan) {
      demand_.ceiling = 0.0;
      demand_.ceiling_site = -1;
      demand_.hidden = false;
    }
    if (nan) demand_.nan_site = name(*nan);
    if (const std::vector<int> roots = lane_.forward_roots(record_); !roots.empty()) {
      demand_.forward_site = name(roots.front());
      demand_.forward_nan = !overflows(roots.front());
    }
    if (total_ > 0) {
      demand_.curve = static_cast<int>(all.curves.size());
      all.curves.push_back(curve());
    }
    return demand_;
  }

 private:
  /// Returns whether values of a bad site overflowed, here or before they were measured.
  bool overflows(int order) const {
    const SiteInfo& site = lane_.site(order);
    const TensorStats stats = lane_.stats(order, record_.step).value_or(TensorStats{});
    const bool nan_is_overflow = !site.format.has_infinity() && stats.nan > 0;
    return stats.overflow + stats.pos_inf + stats.neg_inf > 0 || nan_is_overflow;
  }

  /// Returns the first gradient that is NaN in a step without an overflow, which no other loss
  /// scale changes.
  std::optional<int> nan_gradient() const {
    if (record_.forward_bad || !record_.backward_bad) return std::nullopt;
    std::optional<int> first;
    for (const int order : record_.bad) {
      if (lane_.site(order).phase != Phase::backward && !is_loss_scale(lane_.site(order))) continue;
      if (overflows(order)) return std::nullopt;
      if (!first) first = order;
    }
    return first;
  }

  /// A copy that the lane makes to read a gradient does not exist in the reference; it is a copy of
  /// the gradient of the node's output.
  std::optional<int> reference_site(const SiteInfo& site) const {
    if (lane_.reference() < 0) return std::nullopt;
    const RunView& run = lane_.run();
    std::optional<int> theirs = run.find_site(lane_.reference(), site.name());
    if (!theirs) theirs = run.find_site(lane_.reference(), site.path + ".activation_grad");
    return theirs;
  }

  void lower_ceiling(int which, double ceiling) {
    if (ceiling >= demand_.ceiling) return;
    demand_.ceiling = ceiling;
    demand_.ceiling_site = which;
  }

  void add_stats(int which, const SiteInfo& site, const TensorStats& stats, double scale) {
    const double flush = flush_threshold(site.format);
    if (stats.max_abs > 0.0f) {
      lower_ceiling(which,
                    overflow_threshold(site.format) * scale / static_cast<double>(stats.max_abs));
    }
    if (std::isfinite(stats.min_abs)) {
      const double floor = flush * scale / static_cast<double>(stats.min_abs);
      if (floor > demand_.floor) {
        demand_.floor = floor;
        demand_.floor_site = which;
      }
    }
    for (int i = 0; i < kExponentBins; ++i) {
      const int64_t count = stats.exponents[static_cast<size_t>(i)];
      if (count == 0) continue;
      // At scales above this one the whole bin survives.
      const double low = std::ldexp(1.0, i + kMinExponentBin);
      lost_up_to_[static_cast<int>(std::ceil(std::log2(flush * scale / low)))] += count;
      total_ += count;
    }
  }

  FlushCurve curve() const {
    FlushCurve curve;
    curve.lowest = lost_up_to_.begin()->first;
    const int highest = lost_up_to_.rbegin()->first;
    int64_t survive = 0;
    for (int exponent = curve.lowest; exponent <= highest; ++exponent) {
      curve.shares.push_back(1.0 - static_cast<double>(survive) / static_cast<double>(total_));
      if (const auto found = lost_up_to_.find(exponent); found != lost_up_to_.end()) {
        survive += found->second;
      }
    }
    return curve;
  }

  const LaneFacts& lane_;
  const RecordedStep& record_;
  const double scale_;
  ScaleDemand demand_{};
  std::map<int, int64_t> lost_up_to_;  ///< by exponent of the scale: values that it flushes
  int64_t total_ = 0;
  std::set<int> hidden_;  ///< sites of which only the scale at which they overflow is known
};

}  // namespace

ScaleDemands demands_of(std::span<const GradientRange> gradients, const FloatFormat& format) {
  ScaleDemands demands;
  demands.steps.reserve(gradients.size());
  const double overflow = overflow_threshold(format), flush = flush_threshold(format);
  for (const GradientRange& each : gradients) {
    ScaleDemand& step = demands.steps.emplace_back();
    if (!std::isfinite(each.largest)) {
      step.ceiling = 0.0;
    } else {
      if (each.largest > 0.0) step.ceiling = overflow / each.largest;
      if (each.smallest > 0.0) step.floor = flush / each.smallest;
    }
  }
  return demands;
}

ScaleDemands demands_of_pattern(std::string_view pattern, int64_t steps) {
  const size_t bad = pattern.find_first_not_of("FO");
  if (pattern.empty() || bad != std::string_view::npos) {
    throw usage_error("pattern '" + std::string(pattern) + "' is not a row of F and O",
                      "use F for steps with finite gradients and O for overflow: FFFOF");
  }
  ScaleDemands demands;
  demands.steps.resize(steps > 0 ? static_cast<size_t>(steps) : pattern.size());
  for (size_t i = 0; i < demands.steps.size(); ++i) {
    if (pattern[i % pattern.size()] == 'O') demands.steps[i].ceiling = 0.0;
  }
  return demands;
}

std::span<const std::string> gradient_shapes() {
  static const std::vector<std::string> names{"steady", "falling", "rising", "spikes", "broken"};
  return names;
}

std::vector<GradientRange> gradient_shape(std::string_view name, int64_t steps) {
  constexpr double kRange = 0x1p-20;  // the smallest gradient, of the largest
  const auto known = gradient_shapes();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw usage_error("unknown trajectory '" + std::string(name) + "'",
                      did_you_mean(name, known, "use " + comma_list(known)));
  }
  std::vector<GradientRange> gradients(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(steps);
    double largest = 0.25;
    if (name == "falling") largest = std::exp2(-20.0 * share);
    if (name == "rising") largest = std::exp2(-12.0 + 20.0 * share);
    if (name == "spikes" && i % 500 == 499) largest = 64.0;
    if (name == "broken" && share >= 0.1) largest = kInfinity;
    gradients[static_cast<size_t>(i)] = {largest, std::isfinite(largest) ? largest * kRange : 0.0};
  }
  return gradients;
}

std::vector<GradientRange> read_gradient_ranges(const std::string& file) {
  std::error_code failed;
  if (std::filesystem::is_directory(file, failed)) {
    throw usage_error("'" + file + "' is a folder, not a CSV file", kRowHint);
  }
  std::ifstream in(file);
  if (!in) {
    const bool there = std::filesystem::exists(file, failed);
    throw Error("cannot open '" + file + (there ? "'" : "': file not found"),
                there ? "check its permissions" : "check the path");
  }
  std::vector<GradientRange> gradients;
  std::string line;
  for (int64_t row = 1; std::getline(in, line); ++row) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const size_t comma = std::min(line.find(','), line.size());
    const std::optional<double> largest = number_of(std::string_view(line).substr(0, comma));
    std::optional<double> smallest = 0.0;
    if (comma < line.size()) smallest = number_of(std::string_view(line).substr(comma + 1));
    const bool good = largest && smallest && !(*largest < 0.0) && *smallest >= 0.0 &&
                      (!std::isfinite(*largest) || *smallest <= *largest);
    if (!good && gradients.empty() && row == 1 && is_header(line)) continue;
    if (!good) {
      const bool swapped = largest && smallest && *largest >= 0.0 && *smallest > *largest;
      throw usage_error(fmt::format("'{}' line {}: {}", file, row,
                                    swapped ? "the second number is larger than the first"
                                            : "not a row of gradient magnitudes"),
                        kRowHint);
    }
    gradients.push_back({*largest, *smallest});
  }
  if (gradients.empty()) {
    throw usage_error("'" + file + "' contains no steps", kRowHint);
  }
  return gradients;
}

namespace {

/// Returns the error for a lane whose gradients all have the exponents of fp32, or are scaled on
/// their own.
Error no_narrow_gradients(const LaneFacts& lane) {
  bool any = false;
  std::set<std::string> formats;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::backward || !site.scale.empty()) continue;
    any = true;
    if (!full_precision(site.format)) formats.insert(format_name(site.format));
  }
  const std::string& name = lane.info().name;
  if (!any) {
    return usage_error("lane " + name + " has no recorded gradients",
                       "record the training without --no-record");
  }
  const std::vector<std::string> narrow(formats.begin(), formats.end());
  return usage_error(
      fmt::format("lane {} needs no loss scale: its gradients are {}", name,
                  narrow.empty() ? "fp32" : name_list(narrow) + ", with the exponents of fp32"),
      lane.scales_loss() ? "train it without a loss scale: --loss-scale none"
                         : "name a lane with gradients in fp16 or fp8: --lane NAME");
}

}  // namespace

bool needs_loss_scale(const LaneInfo& lane) {
  return std::any_of(lane.sites.begin(), lane.sites.end(), limits_scale);
}

ScaleDemands recorded_demands(const RunView& run, int lane) {
  const LaneFacts facts(run, lane);
  ScaleDemands demands;
  std::vector<SiteInfo> sites;
  for (const SiteInfo& site : facts.info().sites) {
    if (!limits_scale(site)) continue;
    sites.push_back(site);
    demands.sites.push_back(site.name());
    demands.layers.push_back(site.path);
  }
  std::map<int, int> places;  // index in the lane -> index in the demands
  for (size_t i = 0; i < sites.size(); ++i) places[sites[i].order] = static_cast<int>(i);
  const auto place_of = [&](int order) {
    const auto [known, is_new] = places.try_emplace(order, static_cast<int>(demands.sites.size()));
    if (is_new) {
      demands.sites.push_back(facts.site(order).name());
      demands.layers.push_back(facts.site(order).path);
    }
    return known->second;
  };
  std::vector<std::pair<int64_t, ScaleDemand>> recorded;
  for (const RecordedStep& record : facts.recorded()) {
    WindowDemands window(facts, record);
    for (size_t i = 0; i < sites.size(); ++i) window.add(static_cast<int>(i), sites[i]);
    recorded.emplace_back(record.step, window.finish(demands, place_of));
    if (demands.loss_lost < 0 && !record.loss_finite && !record.skipped)
      demands.loss_lost = record.step;
  }
  if (sites.empty()) throw no_narrow_gradients(facts);
  if (recorded.empty()) {
    throw usage_error("lane " + facts.info().name + " has no recorded gradients",
                      "record the training without --no-record");
  }
  const std::span<const StepRow> rows = facts.steps();
  size_t place = 0;
  for (const StepRow& row : rows) {
    while (place + 1 < recorded.size() && recorded[place + 1].first <= row.step) ++place;
    demands.steps.push_back(recorded[place].second);
  }
  return demands;
}

}  // namespace halfscope
