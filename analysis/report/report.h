// SPDX-License-Identifier: MIT
// Report: everything the written reports say about a run, worked out once from a RunView. The
// four writers only print it. No clock, no machine state: the same run gives the same bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/finding.h"
#include "analysis/rules/recommend.h"

namespace halfscope {

struct Verdict {
  enum class State : uint8_t { healthy, attention, broken };
  State state = State::healthy;
  std::string text;  ///< one sentence
};
const char* verdict_name(Verdict::State state) noexcept;  // "healthy"

struct LaneReport {
  std::string name, backend, plan_json;
  bool reference = false;  ///< the full-precision lane the others are compared with
  int64_t steps = 0, skipped = 0;
  std::optional<double> first_loss, last_loss, last_loss_scale;  ///< empty without steps
  std::optional<double> test_loss, test_accuracy;                ///< empty without evaluation
  std::vector<StepRow> rows;  ///< at most kReportRows; skipped steps are never thinned away
  bool thinned = false;
};

struct SiteReport {
  std::string name;  ///< "conv2.activation"
  std::string tensor;
  Role role = Role::activation;
  FloatFormat format;
  int64_t n = 0, zero = 0, overflow = 0, underflow = 0, subnormal = 0, non_finite = 0, lost = 0;
  std::optional<double> max_abs, min_abs, rms;
  std::optional<double> headroom_bits;  ///< log2(max_finite / max_abs)
  std::map<int, int64_t> exponents;     ///< non-empty bins
};

struct LayerReport {
  int lane = 0;
  std::string path, op;
  FloatFormat read, write;
  int64_t parameters = 0;
  std::vector<SiteReport> sites;  ///< in execution order
};

struct Report {
  RunInfo run;  ///< `lanes` is empty here; see below
  RunStatus status = RunStatus::complete;
  Verdict verdict;
  std::vector<LaneReport> lanes;
  std::vector<Finding> findings;
  std::vector<std::string> finding_ids;  ///< parallel to `findings`
  std::optional<Recommendation> recommendation;
  std::vector<LayerReport> layers;  ///< by lane, then execution order
};

inline constexpr size_t kReportRows = 1000;

Report make_report(const RunView& run);

/// The worst severity among the findings; empty without findings.
std::optional<Severity> worst_severity(const std::vector<Finding>& findings);

std::string report_json(const Report& report);      ///< schema halfscope.report/1
std::string report_csv(const Report& report);       ///< the layers table
std::string report_markdown(const Report& report);  ///< at most 60 lines
std::string report_html(const Report& report);      ///< one self-contained file

}  // namespace halfscope
