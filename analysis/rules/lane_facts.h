// SPDX-License-Identifier: MIT
// LaneFacts: facts about one lane that several rules need, gathered in one pass over its
// statistics: which sites became NaN or infinite in which recorded step, at which loss scale, and
// which nodes read which in the forward graph. Where the full-precision lane does the same at the
// same place and step, the network is the cause and not the format, so it does not count.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/run_view.h"

namespace halfscope {

/// One recorded window of a lane (one step, unless the run file merged several).
struct RecordedStep {
  int64_t step = 0;
  int64_t step_count = 1;
  double loss_scale = 0.0;  ///< NaN if its steps ran with different scales or were not recorded
  bool skipped = false;     ///< an update was skipped
  bool loss_finite = true;
  /// Sites with more overflows, NaN or infinities than the reference has there, in execution order.
  std::vector<int> bad;
  /// The forward sites among them whose infinities end in later operators, so that neither the loss
  /// nor an output shows them. The results are wrong, or nobody knows.
  std::vector<int> silent;
  /// Sites whose infinities later operators absorb without harm (absorbed.h); not in `bad`.
  std::vector<int> absorbed;
  bool forward_bad = false;
  bool backward_bad = false;
  /// The first bad gradient had finite values that overflowed: a lower loss scale would keep them.
  bool gradients_overflow = false;

  bool is_bad(int site) const;
  bool is_silent(int site) const;
  /// Returns whether gradients of this step can be trusted: everything up to them was finite.
  bool finite() const noexcept { return !forward_bad && !backward_bad && !skipped; }
};

/// A node of the forward graph: a layer, or the path of sites that belong to no layer ("input").
struct ForwardNode {
  std::string path{};
  int layer = -1;                   ///< index into LaneInfo::layers; -1 for a path without one
  std::vector<int> inputs{};        ///< nodes it reads
  std::vector<int> readers{};       ///< nodes that read it
  std::vector<int> weight_sites{};  ///< its variables, as it reads them in the compute format
  int output_site = -1;             ///< its activation, or the input itself
};

class LaneFacts {
 public:
  LaneFacts(const RunView& run, int lane);

  const RunView& run() const noexcept { return *run_; }
  int lane() const noexcept { return lane_; }
  const LaneInfo& info() const { return run_->lane(lane_); }
  const SiteInfo& site(int order) const { return info().sites[static_cast<size_t>(order)]; }
  std::span<const StepRow> steps() const { return run_->steps(lane_); }
  bool inference() const { return run_->info().inference; }
  /// Returns whether the recorder of a training script saw a fact (namespace observed).
  bool observed(std::string_view fact) const;
  /// Returns whether steps have a loss. Inference has none, and a capture whose program never gave
  /// one has only NaN. The outputs stand for it then.
  bool has_loss() const { return !inference() && knows_loss_; }
  /// Returns whether the loss of a step is finite, or there is none.
  bool loss_is_fine(const StepRow& row) const { return !has_loss() || std::isfinite(row.loss); }
  /// Returns whether every layer computes in fp32 or wider, so that no precision finding applies.
  bool full_precision() const noexcept { return full_precision_; }
  /// Returns whether another framework recorded the lane, after its tensors were rounded.
  bool captured() const { return is_capture(info().backend); }
  /// Returns whether infinities of this site are its overflows: a captured lane has no others,
  /// except in fp32.
  bool infinity_is_overflow(const SiteInfo& site) const;
  /// Returns whether a node of a captured lane is a module, or code between modules, that is none
  /// of the known operators. Its code may compute in another format than its result has.
  bool runs_own_code(int node) const;
  /// Returns whether a node of a captured lane is the model itself, which is named by its class.
  bool is_whole_model(int node) const;
  /// Returns whether a module of a captured lane contains another one.
  bool contains(int outer, int inner) const;
  /// Returns whether a gradient of a captured lane is a sum in a wider format than its operators
  /// write, as over micro-batches in fp32: its recorded values exceed that format. Its terms are
  /// unknown.
  bool sums_wider(const SiteInfo& site) const;
  /// Returns the full-precision lane that this one is compared with; -1 if there is none or this is
  /// one.
  int reference() const noexcept { return reference_; }
  /// Returns the site with the same name in the reference.
  std::optional<int> reference_site(int site) const;
  /// Returns that site's statistics in the window that starts at `step`.
  std::optional<TensorCounts> reference_counts(int site, int64_t step) const;
  /// Returns whether the loss of any step is scaled.
  bool scales_loss() const;
  /// Returns whether the loss scale is dynamic. If the run does not say so, its steps show it.
  bool scales_dynamically() const;

  /// Returns the first step that changed the weights: up to its forward and backward pass they were
  /// the initial ones.
  int64_t first_update() const;
  /// Returns whether this step of the lane and its reference began with the same weights. After
  /// that, each trains on its own, so tensors also differ because the weights do.
  bool has_equal_weights(int64_t step) const { return step <= last_equal_; }

  /// Returns the recorded windows, ascending.
  const std::vector<RecordedStep>& recorded() const noexcept { return recorded_; }
  /// Returns the statistics of a site in the window that starts at `step`, if there are any.
  std::optional<TensorStats> stats(int site, int64_t step) const;
  /// Returns its counts alone, which takes less time.
  std::optional<TensorCounts> counts(int site, int64_t step) const;

  const std::vector<ForwardNode>& nodes() const noexcept { return nodes_; }
  /// Returns the node that owns a site.
  int node_of(int site) const { return node_of_site_[static_cast<size_t>(site)]; }
  /// Returns whether the node is no layer of the model but the code in front of one: functions
  /// whose result a layer reads. Only captures have such nodes.
  bool is_function(int node) const;
  /// Returns the first site of a recorded step that is not finite, without those that got their
  /// values in a later call of their layer.
  int first_bad(const RecordedStep& step) const;
  /// Returns the layers whose formats determine a site: its own layer, or for data, for which a
  /// plan has no rule, the layers that read it.
  std::vector<int> layers_behind(int site) const;
  /// Returns the forward sites of a recorded step where NaN or infinity starts: everything that
  /// they read, directly or indirectly, was finite.
  std::vector<int> forward_roots(const RecordedStep& step) const;
  /// Returns the roots that count as causes: once a gradient that is not finite has moved the
  /// weights, only overflows do.
  std::vector<int> forward_causes(const RecordedStep& step) const;
  /// Returns, by node, whether it depends on `node` in the forward pass (`node` itself does).
  std::vector<bool> downstream(int node) const;
  /// Returns, by node, whether `node` depends on it in the forward pass (`node` itself does). All
  /// nodes if the lane does not record which node reads which.
  std::vector<bool> upstream(int node) const;

  /// Returns whether a state is a moving average, which unlike an optimizer's has its own updates.
  bool is_average(const SiteInfo& state) const;

  /// Returns the paths in execution order without duplicates.
  std::vector<std::string> in_order(std::vector<std::string> paths) const;

 private:
  void pair_sites();
  void gather_windows();
  void gather_bad(std::map<int64_t, RecordedStep>& by_step) const;
  void add_rows(RecordedStep& record) const;
  bool as_in_reference(const SiteInfo& site, int64_t step, const TensorCounts& counts) const;
  bool outputs_finite(const RecordedStep& record) const;
  void build_graph();
  void find_last_finite();
  std::vector<bool> bad_nodes(const RecordedStep& step) const;
  std::vector<bool> called_again(const RecordedStep& step) const;
  std::vector<bool> reached_from(int node, std::vector<int> ForwardNode::*next) const;

  const RunView* run_;
  int lane_;
  int reference_ = -1;
  std::vector<int> reference_sites_;  // by site; -1: it has no counterpart
  int64_t last_equal_ = 0;            // the last step with equal weights
  int64_t last_finite_ = 0;           // the last step that began with finite weights
  bool knows_loss_ = true;
  bool full_precision_ = false;
  std::vector<RecordedStep> recorded_;
  std::vector<ForwardNode> nodes_;
  std::map<std::string, int> node_by_path_;
  std::vector<int> node_of_site_;
};

/// The operator of nodes that are functions, as captures call it.
inline constexpr const char* kFunctionOp = "Function";

/// Returns whether a layer of a captured lane is none of the known operators, so that code of its
/// own runs.
bool runs_own_code(const LaneInfo& lane, const LayerInfo& layer);

/// Returns whether the site is the loss scale as a node reads it in a narrow format. It is part of
/// the forward graph, but an overflow there is an overflow of gradients.
bool is_loss_scale(const SiteInfo& site);

/// Returns whether the site is a running statistic, which only inference and evaluations read.
bool is_running_statistic(const SiteInfo& site);

/// Returns a string from a stored plan by JSON pointer ("/variables/storage"); "" if there is none
/// or the plan is damaged.
std::string plan_text(const std::string& plan_json, const std::string& pointer);
/// Returns the format that a lane's layers read unless a rule of its plan says otherwise; nothing
/// if its plan does not say.
std::optional<FloatFormat> default_format(const LaneInfo& lane);
/// Returns the format in which a lane keeps its variables; nothing if its plan does not say.
std::optional<FloatFormat> storage_format(const LaneInfo& lane);

/// Returns whether every layer of the lane computes in full precision (or the whole lane in
/// double).
bool full_precision_lane(const LaneInfo& lane);
/// Returns whether the lane's plan rounds nothing below fp32, whatever the network. If the plan
/// cannot be read, the layers decide.
bool full_precision_plan(const LaneInfo& lane);

/// Returns the first lane with a full-precision plan; -1 if there is none.
int reference_lane(const RunView& run);
/// Returns the lane that this one is judged against (core/train/probe.h, reference_for()); -1 for
/// references themselves, and without any.
int reference_lane(const RunView& run, int lane);
/// Returns whether the lane is a reference: in full precision, and judged against no other.
bool is_reference(const RunView& run, int lane);

}  // namespace halfscope
