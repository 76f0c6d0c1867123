// SPDX-License-Identifier: MIT
// kernel_fault: a kernel other than the emulator's returned wrong values for its operands: NaN or
// infinity, sums that no summation order explains, or, for an operator that sums nothing, different
// bits. No format and no scale fixes that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

/// Worst first.
enum class Fault : uint8_t { not_finite, beyond, other_bits };

struct FaultySite {
  Fault fault;
  int64_t step;
  int site;
  int64_t elements, n;  ///< for beyond and other_bits
  double max_ulps;
  std::string kernel{};  ///< the library's kernel

  bool is_error() const { return fault != Fault::other_bits || std::isinf(max_ulps); }
  /// Errors first; then by step, then in execution order.
  bool operator<(const FaultySite& other) const {
    if (is_error() != other.is_error()) return is_error();
    return step != other.step ? step < other.step : site < other.site;
  }
};

std::vector<FaultySite> faults_of(const LaneFacts& lane) {
  std::vector<FaultySite> faults;
  for (const SiteError& error : lane.run().errors(lane.lane())) {
    if (error.operator_fails()) {
      faults.push_back({Fault::not_finite, error.step, error.site, 0, error.n, 0.0});
    }
  }
  for (const KernelCheck& check : lane.run().kernels(lane.lane())) {
    if (check.beyond > 0) {
      faults.push_back({Fault::beyond, check.step, check.site, check.beyond, check.n,
                        check.max_ulps, check.kernel});
    } else if (check.differing > 0 && check.kernel.empty()) {
      faults.push_back(
          {Fault::other_bits, check.step, check.site, check.differing, check.n, check.max_ulps});
    }
  }
  std::stable_sort(faults.begin(), faults.end());
  return faults;
}

/// Returns "by at most 3 ulps".
std::string distance_text(double ulps) {
  if (std::isinf(ulps)) return "some of them finite in only one of the two";
  if (ulps == 0.0) return "in the sign of zeros";
  return fmt::format("by at most {} {}", short_number(ulps), ulps == 1.0 ? "ulp" : "ulps");
}

void describe_fault(const FaultySite& first, const SiteInfo& site, const LaneFacts& lane,
                    Finding& finding) {
  const std::string& backend = lane.info().backend;
  const std::string when = fmt::format("{} {}", lane.inference() ? "batch" : "step", first.step);
  const double part = share_of(first.elements, first.n);
  const std::string name = site.name();
  const std::string format = format_name(site.format);
  switch (first.fault) {
    case Fault::not_finite:
      finding.mechanism = fmt::format(
          "{}'s kernel is wrong: {} contains NaN or infinity at {}, but the emulator computes "
          "finite values from the same operands",
          site.path, name, when);
      finding.text = fmt::format(
          "{} contains NaN or infinity at {}. From the same operands, the emulator computes finite "
          "values within {}. The {} kernel is wrong here, not the format.",
          name, when, format, backend);
      return;
    case Fault::beyond:
      finding.mechanism = fmt::format(
          "{}'s kernel is wrong: at {}, {} of the values of {} are further from the exact sums "
          "than any summation order explains",
          site.path, when, percent(part), name);
      finding.text = fmt::format(
          "At {}, {} of the values of {} are too far from the exact sums for any summation order. "
          "The {} kernel is wrong here, not the format.",
          when, percent(part), name, backend);
      return;
    case Fault::other_bits:
      finding.mechanism =
          fmt::format("{} of the values of {} differ from the emulator's bits at {}", percent(part),
                      name, when);
      finding.text = fmt::format(
          "At {}, {} of the values of {} differ from what the emulator computes from the same "
          "operands, {}. This is one of HalfScope's own kernels, which should match bit for bit. "
          "The lanes differ by more than the format.",
          when, percent(part), name, distance_text(first.max_ulps));
      return;
  }
}

void find_kernel_fault(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (!has_own_kernels(lane.info().backend)) return;
  const std::vector<FaultySite> faults = faults_of(lane);
  if (faults.empty()) return;
  const FaultySite& first = faults.front();
  std::vector<bool> faulty(lane.info().sites.size(), false);
  for (const FaultySite& each : faults) faulty[static_cast<size_t>(each.site)] = true;
  const int64_t sites = std::count(faulty.begin(), faulty.end(), true);
  const SiteInfo& site = lane.site(first.site);
  const std::string& backend = lane.info().backend;
  Finding finding{.rule = "kernel_fault",
                  .lane = lane.lane(),
                  .severity = first.is_error() ? Severity::error : Severity::warning,
                  .site = site.name(),
                  .layer = site.path,
                  .step = first.step};
  describe_fault(first, site, lane, finding);
  finding.evidence = {{"tensors", static_cast<double>(sites)}, {"backend", backend}};
  if (first.fault != Fault::not_finite) {
    finding.evidence["elements"] = static_cast<double>(first.elements);
    finding.evidence["max_ulps"] = first.max_ulps;
  }
  if (sites > 1) finding.text += fmt::format(" {} tensors in total are wrong in this way.", sites);
  // A library's kernel is replaced by our own, and our own by the emulator.
  const bool library =
      backend != "cuda-own" && (first.fault == Fault::not_finite || !first.kernel.empty());
  const std::string kernel = first.kernel.empty()
                                 ? fmt::format("the kernel that --kernels names for {}", site.path)
                                 : "this kernel: " + first.kernel;
  finding.action.text =
      fmt::format("{} the lane as {}:{}, and report {}.", lane.inference() ? "Run" : "Train",
                  library ? "cuda-own" : "emulated",
                  lane.info().name.substr(lane.info().name.find(':') + 1), kernel);
  findings.push_back(std::move(finding));
}

}  // namespace

// A faulty kernel corrupts everything computed from it, so that advice on what other rules find
// would not help.
const Rule rule::kernel_fault{.id = "kernel_fault",
                              .run = find_kernel_fault,
                              .mechanism = Mechanism::kernel_fault,
                              .explains = "Caused by the kernel fault above. Fix that first.",
                              .stands_alone = true,
                              .matters_without_harm = true};

}  // namespace halfscope
