// SPDX-License-Identifier: MIT
// Report: everything the written reports say about a run, worked out once from a RunView. The
// writers only print it. No clock, no machine state: the same run gives the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/diagnosis/diagnosis.h"
#include "analysis/finding.h"
#include "analysis/proof/cost.h"
#include "analysis/proof/proof_record.h"
#include "analysis/rules/harm.h"
#include "analysis/rules/recommend.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {

struct Verdict {
  enum class State : uint8_t {
    healthy,
    cured,  ///< one lane is broken or loses information, a lane with a wider plan is healthy
    attention,
    broken,
    inconclusive,  ///< no harm was found, but the run cannot show that there is none
  };
  State state = State::healthy;
  std::string headline;  ///< one sentence
  std::string more;      ///< what else to know; may be empty
  std::string text;      ///< both
};
const char* verdict_name(Verdict::State state) noexcept;  // "healthy"

struct LaneReport {
  std::string name, backend, plan_json;
  std::string loss_scaling;  ///< as set: "dynamic:65536"; "" if the run file does not say
  bool reference = false;    ///< the full-precision lane the others are compared with
  Verdict::State state = Verdict::State::healthy;  ///< what its own findings say
  std::optional<LostLane> lost;                    ///< where its backend failed
  Harm harm{};                                     ///< of lanes that are judged
  int64_t steps = 0, skipped = 0;
  int64_t last_skipped = -1;  ///< step of the last skipped update; -1 if none
  std::optional<double> first_loss, last_loss, last_loss_scale;  ///< empty without steps
  /// See loss_gap(); empty for the reference and without one.
  std::optional<double> loss_gap;
  /// Empty without evaluation; a lane whose loss is not finite there has no accuracy.
  std::optional<double> test_loss, test_accuracy;
  std::vector<StepRow> rows;  ///< about kReportRows at most, but every skipped step
  int64_t kept_every = 1;     ///< of the steps that were not skipped, each kept_every-th is a row
  bool thinned() const noexcept { return kept_every > 1; }
};

/// What stands for a lane in tables: "lost", "reference", or its state.
const char* lane_verdict(const LaneReport& lane) noexcept;

struct SiteReport {
  std::string name;  ///< "conv2.activation"
  std::string tensor;
  int order = 0;  ///< SiteInfo::order
  Role role = Role::activation;
  FloatFormat format;
  std::string scale;  ///< of codes of a scaled operand, else ""
  int64_t n = 0, zero = 0, pos_inf = 0, neg_inf = 0, nan = 0;
  int64_t overflow = 0, underflow = 0, subnormal = 0, lost = 0;
  int64_t non_finite() const noexcept { return pos_inf + neg_inf + nan; }
  std::optional<double> max_abs, min_abs, rms;
  std::optional<double> headroom_bits;  ///< log2(max_finite / max_abs)
  /// log2 of the magnitude below which 1% of the non-zero values lie (the lower edge of its
  /// histogram bin) over the magnitude up to which the format flushes to zero.
  std::optional<double> headroom_down_bits;
  std::map<int, int64_t> exponents;  ///< non-empty bins
};

struct LayerReport {
  int lane = 0;
  std::string path, op;
  FloatFormat read, write;
  int64_t parameters = 0;
  std::string advice;             ///< "keep in fp32", "change the loss scale" ...; "" if none
  bool listed = true;             ///< has a line in the HTML report
  std::vector<SiteReport> sites;  ///< in execution order
};

/// A site against the same site of another lane, over all sampled steps.
struct SiteErrorReport {
  int site = 0;
  std::string name, layer;
  Role role = Role::activation;
  Phase phase = Phase::forward;
  FloatFormat format;
  bool feeds_relu = false;  ///< an activation that a ReLU reads: its signs decide what passes
  int64_t samples = 0;      ///< steps it was compared in
  int64_t n = 0, differing = 0, sign_flips = 0;
  int64_t not_finite = 0;  ///< elements that are NaN or infinite in one of the lanes only
  double max_ulps = 0.0;
  /// Medians over the sampled steps; empty where nothing finite was measured.
  std::optional<double> total, local_fp32, local_fp64, inherited;
  std::optional<double> worst_total;
  std::array<int64_t, SiteError::kBins> ulps{};
  /// What the operator adds itself, against exact arithmetic if that was measured.
  const std::optional<double>& local() const { return local_fp64 ? local_fp64 : local_fp32; }
};

struct ErrorReport {
  int lane = 0, other = 0;
  std::vector<int64_t> steps{};          ///< the sampled ones
  std::vector<SiteErrorReport> sites{};  ///< in execution order
  int64_t first_step = -1;               ///< earliest sampled step with a difference; -1: all equal
  std::string first_site{};              ///< the first to differ in that step
  std::string text{};                    ///< the same in words, and who adds most
};

/// The sums of products behind a tensor, over all sampled steps.
struct SumReport {
  int lane = 0, site = 0;
  std::string name{}, layer{};
  FloatFormat format{};  ///< that the sums are written in
  std::string accumulation{};
  int64_t samples = 0;  ///< steps
  SumDiagnostics counts{};
  /// Of the additions of products that are not zero, those that changed nothing.
  double share() const noexcept { return share_of(counts.swamped, counts.products); }
};

/// A tensor that a kernel of the lane's own made, beside the emulator's operator on the same
/// operands, over all sampled steps.
struct KernelSiteReport {
  int site = 0;
  std::string name{}, layer{}, op{};
  FloatFormat format{};
  int64_t samples = 0;  ///< steps it was checked in
  int64_t n = 0, differing = 0;
  double max_ulps = 0.0;  ///< infinite if some element is finite in one of the two only
  std::string worst{};  ///< the element furthest away: "[3, 0, 5] at step 40"; "" if all are equal
  std::optional<int64_t> beyond{};  ///< further from the exact sum than any order explains
  std::string kernel{};             ///< of the library that computed it
  std::string order{};              ///< of sums, explaining `explained` of `sampled` elements
  int64_t sampled = 0, explained = 0;
  std::string unexplained{};
  double least_explained = 2.0;  ///< share, at the step that `order` and `unexplained` are of
};

struct KernelReport {
  int lane = 0;
  std::vector<int64_t> steps{};           ///< the sampled ones
  std::vector<KernelSiteReport> sites{};  ///< in execution order
  std::string text{};                     ///< what it comes to, in words
};

struct ActionReport {
  PlanEdit edit{};  ///< of one member; none where only the text says what to do
  int lane = 0;
  std::string text{}, effect{};
  std::optional<Cost> cost{};    ///< empty: costs nothing, or nothing that can be said
  std::string confidence{};      ///< "high", "medium", "low"
  std::string basis{};           ///< what the confidence rests on
  std::string change_my_mind{};  ///< what would speak against it
};

struct EventLink {
  std::string name, layer;  ///< layer is "" for "loss" and the like
  std::string note;         ///< "22% overflow", "all not finite"
};

/// How the first bad tensor of a lane reached the loss.
struct EventReport {
  int lane = 0;
  int64_t step = 0;
  double loss_scale = 0.0;  ///< of that step; 0 if not recorded
  std::vector<EventLink> links{};
};

struct Report {
  RunInfo run;  ///< `lanes` is empty here; see below
  RunStatus status = RunStatus::complete;
  int64_t steps = 0;   ///< of the lane that has most
  int reference = -1;  ///< index into `lanes`; -1 if there is none
  /// The lane whose layers come first: the advised one, else the one with the worst finding, else
  /// the first that is no reference. -1 without lanes.
  int focus = -1;
  Verdict verdict;
  std::vector<LaneReport> lanes;
  std::vector<Finding> findings;
  std::vector<std::string> finding_ids;  ///< parallel to `findings`
  std::optional<Recommendation> recommendation;
  int sick = -1;            ///< the lane that suffers most; -1 if none does
  std::optional<int> cure;  ///< a healthy lane that computes as `sick` does, or wider
  std::vector<ActionReport> actions;
  std::optional<Proof> proof;          ///< of the recommended lane, else of the first that has one
  int proof_lane = -1;                 ///< the lane it was stored with
  std::optional<Diagnosis> diagnosis;  ///< of the lane that suffers; nothing if none does
  std::vector<std::string> lane_proofs;  ///< by lane: the JSON as stored; "" if none
  std::vector<LayerReport> layers;       ///< by lane, then execution order
  std::vector<ErrorReport> errors;       ///< by lane, then other lane
  std::vector<SumReport> sums;           ///< by lane, then execution order
  std::vector<KernelReport> kernels;     ///< of lanes with kernels of their own, by lane
  std::vector<EventReport> events;       ///< the first bad event of every lane that has one
  std::string plan_text;                 ///< the advised plan, one rule a line; "" without advice
  std::vector<std::string> reproduce;    ///< commands
};

inline constexpr size_t kReportRows = 1000;
/// The HTML report lists all layers of the lane in focus. Of another lane with more than
/// kManyLayers it lists the kListedLayers that lose most.
inline constexpr size_t kManyLayers = 200, kListedLayers = 40;

Report make_report(const RunView& run);

/// The worst severity among the findings; empty without findings.
std::optional<Severity> worst_severity(const std::vector<Finding>& findings);

std::string report_json(const Report& report);              ///< schema halfscope.report/1
std::string report_csv(const Report& report);               ///< the layers table
std::string report_markdown(const Report& report);          ///< at most 60 lines
std::string report_markdown_summary(const Report& report);  ///< about 10 lines
std::string report_html(const Report& report);              ///< one self-contained file

}  // namespace halfscope
