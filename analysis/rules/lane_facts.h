// SPDX-License-Identifier: MIT
// LaneFacts: what several rules ask about one lane, gathered in one pass over its statistics:
// which sites left the finite numbers in which recorded step, at which loss scale, and who reads
// whom in the forward graph. What the full-precision lane does at the same place and step as well
// is the network's doing and not the format's, so it does not count.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
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
  /// Sites with more values that overflowed or were not finite than the reference has there, in
  /// execution order.
  std::vector<int> bad;
  /// Of these, forward sites whose infinities end in later operators, so that neither the loss nor
  /// an output shows them. Whether the results are right is not known, or they are wrong.
  std::vector<int> silent;
  /// Sites whose infinities later operators absorb without harm (absorbed.h); not in `bad`.
  std::vector<int> absorbed;
  bool forward_bad = false;
  bool backward_bad = false;
  /// The first bad gradient had finite values that overflowed: a lower loss scale keeps them.
  bool gradients_overflow = false;

  bool is_bad(int site) const;
  bool is_silent(int site) const;
  /// Gradients of this step can be trusted: nothing before them or among them left the finite.
  bool finite() const noexcept { return !forward_bad && !backward_bad && !skipped; }
};

/// One node of the forward graph: a layer, or the path of sites that belong to no layer ("input").
struct ForwardNode {
  std::string path{};
  int layer = -1;                   ///< index into LaneInfo::layers; -1 for a path without one
  std::vector<int> inputs{};        ///< nodes it reads
  std::vector<int> readers{};       ///< nodes that read it
  std::vector<int> weight_sites{};  ///< what it reads besides: its variables, in the compute format
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
  /// Every layer computes in fp32 or wider: no finding about precision is its own.
  bool full_precision() const noexcept { return full_precision_; }
  /// The full-precision lane that this one is compared with; -1 if there is none or this is one.
  int reference() const noexcept { return reference_; }
  /// The site of that name in the reference.
  std::optional<int> reference_site(int site) const;
  /// Its statistics in the window that starts at `step`.
  std::optional<TensorCounts> reference_counts(int site, int64_t step) const;
  /// Whether the loss of any step is scaled.
  bool scales_loss() const;
  /// The loss scale is set while training; where the run does not say so, its steps do.
  bool scales_dynamically() const;

  /// Recorded windows, ascending.
  const std::vector<RecordedStep>& recorded() const noexcept { return recorded_; }
  /// Statistics of a site in the window that starts at `step`, if there are any.
  std::optional<TensorStats> stats(int site, int64_t step) const;

  const std::vector<ForwardNode>& nodes() const noexcept { return nodes_; }
  /// Node that owns a site.
  int node_of(int site) const { return node_of_site_[static_cast<size_t>(site)]; }
  /// The layers whose formats decide over a site: its own, or of data, for which a plan has no
  /// rule, those that read it.
  std::vector<int> layers_behind(int site) const;
  /// Forward sites of a recorded step that left the finite numbers although nothing they read,
  /// directly or further up, had: the places where it starts.
  std::vector<int> forward_roots(const RecordedStep& step) const;
  /// Nodes that depend on `node` in the forward pass, itself included.
  std::vector<bool> downstream(int node) const;

  /// Whether a state is a moving average: unlike an optimizer's it has updates of its own.
  bool is_average(const SiteInfo& state) const;

  /// Sorts paths into execution order and drops duplicates.
  std::vector<std::string> in_order(std::vector<std::string> paths) const;

 private:
  void pair_sites();
  void gather_windows();
  void gather_bad(std::map<int64_t, RecordedStep>& by_step) const;
  void add_rows(RecordedStep& record) const;
  bool as_in_reference(const SiteInfo& site, int64_t step, const TensorCounts& counts) const;
  bool outputs_finite(const RecordedStep& record) const;
  void build_graph();

  const RunView* run_;
  int lane_;
  int reference_ = -1;
  std::vector<int> reference_sites_;  // by site; -1: it has no counterpart
  bool full_precision_ = false;
  std::vector<RecordedStep> recorded_;
  std::vector<ForwardNode> nodes_;
  std::map<std::string, int> node_by_path_;
  std::vector<int> node_of_site_;
};

/// The loss scale as a node reads it in a narrow format: part of the forward graph, but what
/// overflows there is gradients.
bool is_loss_scale(const SiteInfo& site);

/// A text inside a plan as the run stored it, by JSON pointer: "/variables/storage". "" if there is
/// none; a damaged plan has none.
std::string plan_text(const std::string& plan_json, const std::string& pointer);

/// True if every layer of the lane computes in full precision (or the whole lane in double).
bool full_precision_lane(const LaneInfo& lane);
/// True if its plan rounds nothing below fp32, whatever is in the network; of a plan that cannot be
/// read the layers decide.
bool full_precision_plan(const LaneInfo& lane);

/// The first lane with a full-precision plan; -1 if there is none.
int reference_lane(const RunView& run);
/// The lane that this one is judged by (core/train/probe.h, reference_for()); -1 for references
/// themselves, and without any.
int reference_lane(const RunView& run, int lane);
/// Whether the lane is a reference: in full precision, and judged by no other.
bool is_reference(const RunView& run, int lane);

}  // namespace halfscope
