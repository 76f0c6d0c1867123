// SPDX-License-Identifier: MIT
// kernel_fault: a kernel that is not the emulator's returned what is not finite, although the
// operator on the same operands gives a number of the format. No format and no scale mends that.
#include <fmt/format.h>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// By step, then in execution order.
bool before(const SiteError& a, const SiteError& b) {
  return a.step != b.step ? a.step < b.step : a.site < b.site;
}

}  // namespace

void find_kernel_fault(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (!has_own_kernels(lane.info().backend)) return;
  const SiteError* first = nullptr;
  std::vector<bool> faulty(lane.info().sites.size(), false);
  int64_t sites = 0;
  for (const SiteError& error : lane.run().errors(lane.lane())) {
    if (!error.operator_fails()) continue;
    const size_t site = static_cast<size_t>(error.site);
    sites += faulty[site] ? 0 : 1;
    faulty[site] = true;
    if (first == nullptr || before(error, *first)) first = &error;
  }
  if (first == nullptr) return;
  const SiteInfo& site = lane.site(first->site);
  Finding finding{.rule = "kernel_fault",
                  .lane = lane.lane(),
                  .severity = Severity::error,
                  .site = site.name(),
                  .layer = site.path,
                  .step = first->step};
  finding.mechanism =
      fmt::format("{} is not finite at step {}, computed again from its operands it is",
                  site.name(), first->step);
  finding.evidence = {{"tensors", static_cast<double>(sites)}, {"backend", lane.info().backend}};
  finding.text = fmt::format(
      "{} holds values that are not finite at step {}, although its operator, once more on the "
      "same "
      "operands, gives numbers within {}. It is the kernel of {} that fails here, not the format.",
      site.name(), first->step, format_name(site.format), lane.info().backend);
  if (sites > 1) finding.text += fmt::format(" So do {} in all.", counted(sites, "tensor"));
  // Libraries first; where it is one of our own kernels there is the emulator.
  const bool library = lane.info().backend != "cuda-own";
  finding.action.text =
      fmt::format("Train the lane as {}:{}, and report the kernel that --kernels names for {}.",
                  library ? "cuda-own" : "emulated",
                  lane.info().name.substr(lane.info().name.find(':') + 1), site.path);
  findings.push_back(std::move(finding));
}

}  // namespace halfscope
