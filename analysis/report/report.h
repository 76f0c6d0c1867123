// SPDX-License-Identifier: MIT
// Report: everything the written reports say about a run, computed once from a RunView. The writers
// only print it. It reads no clock and no machine state: the same run gives the same bytes.
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
#include "analysis/spectrum/spectrum.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {

/// The conclusion of a report.
struct Verdict {
  enum class State : uint8_t {
    healthy,
    cured,  ///< one lane fails or loses precision, and a lane with wider formats is healthy
    attention,
    broken,
    inconclusive,  ///< no harm was found, but the run cannot show that there is none
  };
  State state = State::healthy;
  std::string headline;  ///< one sentence
  std::string more;      ///< further sentences; may be empty
  std::string text;      ///< both
};
const char* verdict_name(Verdict::State state) noexcept;  // "healthy"

/// One lane of the run.
struct LaneReport {
  std::string name, backend, plan_json;
  std::string loss_scaling;  ///< as set: "dynamic:65536"; "" if the run file does not say
  bool reference = false;    ///< the full-precision lane the others are compared with
  Verdict::State state = Verdict::State::healthy;  ///< from its own findings
  std::optional<FailedLane> lost;                  ///< step and reason if its backend failed
  Harm harm{};                                     ///< only of lanes that are judged
  int64_t steps = 0, skipped = 0;
  int64_t last_skipped = -1;  ///< step of the last skipped update; -1 if none
  std::optional<double> first_loss, last_loss, last_loss_scale;  ///< empty without steps
  std::optional<double> end_loss;  ///< median over the last fifth of the steps, if it is finite
  /// See loss_gap(); empty for the reference and without one.
  std::optional<double> loss_gap;
  /// Inference: the relative error of the output that is furthest from the reference's, over all
  /// batches (for outputs that are indices, the share that differs); infinite if some of its values
  /// are not finite. Empty for the reference and without one.
  std::optional<double> output_error;
  /// Empty without evaluation; a lane whose loss is not finite there has no accuracy.
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;  ///< or what quality_name() says
  std::optional<double> test_auc, test_mean_iou;
  std::vector<StepRow> rows;  ///< at most about kReportRows, but every skipped step
  int64_t kept_every = 1;     ///< every kept_every-th step that was not skipped has a row
  bool thinned() const noexcept { return kept_every > 1; }
};

/// A score of evaluations, as tables show it.
struct Score {
  const char* name;  ///< "accuracy", "AUC"
  std::optional<double> LaneReport::*value;
  std::string (*format)(double);

  /// Returns the lane's score, or `missing`.
  std::string text(const LaneReport& lane, const char* missing = "-") const {
    return lane.*value ? format(*(lane.*value)) : missing;
  }
};

/// Returns the word for a lane in tables: "lost", "reference", or its state.
const char* lane_verdict(const LaneReport& lane) noexcept;

/// Statistics of one tensor over the whole run.
struct SiteReport {
  std::string name;  ///< "conv2.activation"
  std::string tensor;
  int order = 0;  ///< SiteInfo::order
  Role role = Role::activation;
  FloatFormat format;
  std::string scale;  ///< for codes of a scaled operand, else ""
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

/// One layer of one lane.
struct LayerReport {
  int lane = 0;
  std::string path, op;
  FloatFormat read, write;
  int64_t parameters = 0;
  std::string advice;             ///< "keep in fp32", "change the loss scale" ...; "" if none
  bool listed = true;             ///< has a row in the HTML report
  std::vector<SiteReport> sites;  ///< in execution order
};

/// A site compared with the same site of another lane, over all sampled steps.
struct SiteErrorReport {
  int site = 0;
  std::string name, layer;
  Role role = Role::activation;
  Phase phase = Phase::forward;
  FloatFormat format;
  bool feeds_relu = false;  ///< an activation that a ReLU reads, so its signs decide what passes
  int64_t samples = 0;      ///< number of compared steps
  int64_t n = 0, differing = 0, sign_flips = 0;
  int64_t not_finite = 0;  ///< elements that are NaN or infinite in one of the lanes only
  double max_ulps = 0.0;
  /// Medians over the sampled steps; empty where nothing finite was measured.
  std::optional<double> total, local_fp32, local_fp64, inherited;
  std::optional<double> worst_total;
  std::array<int64_t, SiteError::kBins> ulps{};
  /// Returns the error that the operator adds, relative to fp64 arithmetic if that was measured.
  const std::optional<double>& local() const { return local_fp64 ? local_fp64 : local_fp32; }
};

/// One lane compared with another one, tensor by tensor.
struct ErrorReport {
  int lane = 0, other = 0;
  std::vector<int64_t> steps{};          ///< the sampled ones
  std::vector<SiteErrorReport> sites{};  ///< in execution order
  int64_t first_step = -1;               ///< earliest sampled step with a difference; -1: all equal
  std::string first_site{};              ///< the first to differ in that step
  std::string text{};                    ///< the same in words, and which tensor adds most
};

/// The sums of products that compute a tensor, over all sampled steps.
struct SumReport {
  int lane = 0, site = 0;
  std::string name{}, layer{};
  FloatFormat format{};  ///< the format the sums are written in
  std::string accumulation{};
  int64_t samples = 0;  ///< number of steps
  SumDiagnostics counts{};
  /// Returns the share of non-zero products whose addition changed nothing.
  double share() const noexcept { return share_of(counts.swamped, counts.products); }
};

/// A tensor computed by one of the lane's own kernels, compared with the emulator's operator on the
/// same operands, over all sampled steps.
struct KernelSiteReport {
  int site = 0;
  std::string name{}, layer{}, op{};
  FloatFormat format{};
  int64_t samples = 0;  ///< number of checked steps
  int64_t n = 0, differing = 0;
  double max_ulps = 0.0;  ///< infinite if some element is finite in one of the two only
  std::string worst{};  ///< the element furthest away: "[3, 0, 5] at step 40"; "" if all are equal
  std::optional<int64_t> beyond{};  ///< elements further from the exact sum than any order explains
  std::string kernel{};             ///< name of the library's kernel
  std::string order{};              ///< summation order that explains `explained` of `sampled`
  int64_t sampled = 0, explained = 0;
  std::string unexplained{};
  double least_explained = 2.0;  ///< share at the step that `order` and `unexplained` describe
};

/// The kernels of one lane compared with the emulator.
struct KernelReport {
  int lane = 0;
  std::vector<int64_t> steps{};           ///< the sampled ones
  std::vector<KernelSiteReport> sites{};  ///< in execution order
  std::string text{};                     ///< a summary, in words
};

/// One part of the advice.
struct ActionReport {
  PlanEdit edit{};  ///< one member; empty if only the text says what to do
  int lane = 0;
  std::string text{}, effect{};
  std::optional<Cost> cost{};    ///< empty if it costs nothing or the cost is unknown
  std::string confidence{};      ///< "high", "medium", "low"
  std::string basis{};           ///< what the confidence rests on
  std::string change_my_mind{};  ///< what would change this advice; completes "if ..."
  bool of_cure = false;          ///< to take the plan of a healthy lane of this run
};

/// One tensor on the way of NaN or infinity to the loss.
struct EventLink {
  std::string name, layer;  ///< layer is "" for "loss" and the like
  std::string note;         ///< "22% overflow", "all not finite"
};

/// How the first non-finite tensor of a lane reached the loss.
struct EventReport {
  int lane = 0;
  int64_t step = 0;
  double loss_scale = 0.0;  ///< at that step; 0 if not recorded
  std::vector<EventLink> links{};
};

/// Everything the written reports say about a run.
struct Report {
  RunInfo run;  ///< `lanes` is empty here; see below
  RunStatus status = RunStatus::complete;
  int64_t steps = 0;   ///< of the lane with the most steps
  int reference = -1;  ///< index into `lanes`; -1 if there is none
  /// The lane whose layers are shown first: the advised one, else the one with the worst finding,
  /// else the first that is not a reference. -1 without lanes.
  int focus = -1;
  Verdict verdict;
  std::vector<LaneReport> lanes;
  std::vector<Finding> findings;
  std::vector<std::string> finding_ids;  ///< parallel to `findings`
  std::optional<Recommendation> recommendation;
  int sick = -1;            ///< the lane in most trouble; -1 if none is
  std::optional<int> cure;  ///< a healthy lane with the formats of `sick` or wider ones
  std::vector<ActionReport> actions;
  std::optional<Proof> proof;          ///< of the recommended lane, else of the first that has one
  int proof_lane = -1;                 ///< the lane it was stored with
  std::optional<Diagnosis> diagnosis;  ///< of the lane in trouble; empty if none is
  std::vector<std::string> lane_proofs;  ///< by lane: the stored JSON; "" if none
  std::vector<LayerReport> layers;       ///< by lane, then execution order
  std::vector<ErrorReport> errors;       ///< by lane, then other lane
  std::vector<SumReport> sums;           ///< by lane, then execution order
  std::vector<KernelReport> kernels;     ///< by lane; only of lanes with their own kernels
  std::vector<EventReport> events;       ///< the first non-finite event of every lane that has one
  std::string plan_text;                 ///< the advised plan, one rule per line; "" without advice
  std::vector<std::string> reproduce;    ///< commands
  /// Activations and gradients of the lane in focus over the whole run, and of the reference if it
  /// is another lane.
  Spectrum spectrum, reference_spectrum;
};

/// Returns the accuracy, or what quality_name() says, and the other scores that a lane has.
std::vector<Score> scores_of(const Report& report);

inline constexpr size_t kReportRows = 1000;
/// The HTML report lists all layers of the lane in focus. For another lane with more than
/// kManyLayers it lists the kListedLayers that lose most.
inline constexpr size_t kManyLayers = 200, kListedLayers = 40;

/// Answers to the first questions after the verdict, one or two sentences each.
struct Answer {
  std::string why{};         ///< the cause; "" where the verdict names it or nothing is known
  std::string todo{};        ///< the most important change; "" if none follows from the run
  int lane = -1;             ///< the lane to change; -1 without `todo`
  std::string confidence{};  ///< "high", "medium", "low"; "" without `todo`
  std::string basis{};       ///< what the confidence rests on
  std::string cost{};        ///< "3.67 MB more memory"; "" if it is not known
};

/// Works out the report on a run.
Report make_report(const RunView& run);

/// Returns the answer of a report; it is empty if the run is healthy.
Answer answer_of(const Report& report);

/// Returns the advice for `lane` if the run itself has tested it in another lane, and how sure that
/// is; else "".
std::string tested_advice(const Report& report, int lane);

/// Returns the lanes that are healthy where `lane` is not, except references.
std::vector<int> healthy_siblings(const Report& report, int lane);

/// Returns whether full precision fails as well: then formats are not to blame, and what the
/// findings of other lanes ask for does not help.
bool reference_fails(const Report& report);

/// Returns the worst severity among the findings; empty without findings.
std::optional<Severity> worst_severity(const std::vector<Finding>& findings);

std::string report_json(const Report& report);              ///< schema halfscope.report/1
std::string report_csv(const Report& report);               ///< the layers table
std::string report_markdown(const Report& report);          ///< at most 60 lines
std::string report_markdown_summary(const Report& report);  ///< about 10 lines
/// Returns the verdict, and all findings about a lane as a list.
std::string report_markdown_findings(const Report& report, int lane);
std::string report_html(const Report& report);  ///< one self-contained file

}  // namespace halfscope
