// SPDX-License-Identifier: MIT
#include "analysis/report/further_causes.h"

#include <set>

namespace halfscope {

bool says(const std::string& text, std::string claim) {
  if (claim.ends_with('.')) claim.pop_back();
  return text.find(claim.substr(0, claim.find(": "))) != std::string::npos;
}

std::vector<const Finding*> further_causes(const Report& report) {
  std::vector<const Finding*> causes;
  const bool healthy = report.verdict.state == Verdict::State::healthy;
  if (report.sick < 0 || healthy || reference_fails(report)) return causes;
  std::set<std::string> rules{"harm"}, layers;
  for (const Finding& finding : report.findings) {
    if (finding.severity < Severity::warning || finding.mechanism.empty()) continue;
    if (finding.lane != report.sick || !rules.insert(finding.rule).second) continue;
    if (!finding.layer.empty() && !layers.insert(finding.layer).second) continue;
    // A finding counts one run, and a proof another, so their figures may differ.
    if (!says(report.verdict.text, finding.mechanism)) causes.push_back(&finding);
  }
  return causes;
}

}  // namespace halfscope
