// SPDX-License-Identifier: MIT
#include "analysis/report/report_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/rules/text.h"

namespace halfscope::report {

Rates rates_of(const SiteReport& site) noexcept { return halfscope::rates_of(site, site.format); }

Rates worst_rates(const LayerReport& layer) noexcept {
  Rates worst;
  for (const SiteReport& site : layer.sites) {
    const Rates rates = rates_of(site);
    worst.overflow = std::max(worst.overflow, rates.overflow);
    if (rates.non_finite() > worst.non_finite()) {
      worst.infinite = rates.infinite;
      worst.nan = rates.nan;
    }
    worst.underflow = std::max(worst.underflow, rates.underflow);
    worst.lost = std::max(worst.lost, rates.lost);
  }
  return worst;
}

double suffering(const LayerReport& layer) noexcept {
  const Rates rates = worst_rates(layer);
  return std::max({rates.underflow, rates.lost, rates.overflow > 0.0 ? 1.0 + rates.overflow : 0.0});
}

std::string gap_text(double gap) { return std::isfinite(gap) ? percent(gap) : "not finite"; }

std::string steps_text(const Report& report) {
  const int64_t planned = report.run.steps_planned;
  return planned > 0 ? fmt::format("{} of {}", report.steps, planned)
                     : std::to_string(report.steps);
}

std::string of_evaluation(const RunInfo& run, const std::string& measure) {
  return run.evaluates_averages ? measure + " (averages)" : measure;
}

std::string score_name(const Report& report, const Score& score) {
  if (report.run.inference) return score.name;
  return of_evaluation(report.run, fmt::format("test {}", score.name));
}

std::string sentence_case(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

FloatFormat format_that_loses(const LayerReport& layer) noexcept {
  FloatFormat format = layer.write;
  double most = 0.0;
  for (const SiteReport& site : layer.sites) {
    const Rates rates = rates_of(site);
    const double lost = std::max({rates.underflow, rates.lost, 10.0 * rates.overflow});
    if (lost > most) {
      most = lost;
      format = site.format;
    }
  }
  return format;
}

std::string compact_plan(const std::string& plan_json) {
  using Json = nlohmann::ordered_json;
  const Json plan = Json::parse(plan_json, nullptr, false);
  if (!plan.is_object()) return plan_json;
  const auto dump = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = "{\n";
  size_t left = plan.size();
  for (const auto& [key, value] : plan.items()) {
    text += "  " + dump(key) + ": ";
    if (value.is_array() && !value.empty()) {
      text += "[\n";
      for (size_t i = 0; i < value.size(); ++i) {
        text += "    " + dump(value[i]) + (i + 1 < value.size() ? ",\n" : "\n");
      }
      text += "  ]";
    } else {
      text += dump(value);
    }
    text += --left > 0 ? ",\n" : "\n";
  }
  return text + "}";
}

}  // namespace halfscope::report
