// SPDX-License-Identifier: MIT
// harm: a result of the lane is too far from its reference's. Where no other rule knows the cause
// it says where the error grows.
#include "analysis/rules/harm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/error_source.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

Finding finding_of(const LaneFacts& lane, const Harm& harm) {
  const HarmItem& worst = harm.items.front();
  Finding finding;
  finding.rule = "harm";
  finding.lane = lane.lane();
  finding.severity = worst.severe ? Severity::error : Severity::warning;
  finding.step = worst.step;
  finding.mechanism = worst.text;
  finding.evidence = {{"result", std::string(harm_name(worst.of))},
                      {"name", worst.name},
                      {"error", worst.error},
                      {"tolerance", worst.tolerance}};
  finding.text = lane.info().name + ": " + worst.text + ".";
  for (size_t i = 1; i < harm.items.size(); ++i) {
    std::string text = harm.items[i].text;
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    finding.text += " " + text + ".";
  }
  return finding;
}

/// Where the error grows, as far as comparisons show it; "" if they do not.
std::string where_it_grows(const LaneFacts& lane, const Harm& harm) {
  const std::optional<ErrorSource> source = grows_error(lane, harm);
  if (!source) return "";
  const auto size = [](double error) {
    return error > 1.0 ? std::string("more than 100%") : percent(error);
  };
  return fmt::format(": the error grows at {}, from {} to {}", lane.site(source->site).name(),
                     size(source->before), size(source->after));
}

void find_harm(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Harm harm = harm_of(lane);
  if (harm.items.empty()) return;
  Finding finding = finding_of(lane, harm);
  if (!cause_is_known(findings)) {
    const std::string unknown = "The cause was not found" + where_it_grows(lane, harm) + ".";
    finding.evidence["unknown_cause"] = unknown;
    finding.text += " " + unknown;
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::harm{.id = "harm", .run = find_harm};

}  // namespace halfscope
