// SPDX-License-Identifier: MIT
#include "analysis/rules/absorbed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/observe/mask.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Tensors agree up to this many roundings, and up to a tenth at most.
constexpr double kRoundings = 8.0;
constexpr double kMostDifference = 0.1;

/// Returns whether finite outputs of the operator do not depend on how far beyond the range an
/// operand is: it chooses among its operands, compares them, or is flat at that end. exp, softmax
/// and the like give no finite output for +infinity, so the operand was -infinity.
bool saturates(const std::string& op) {
  constexpr std::array<std::string_view, 16> kFlat{
      "Clip",        "Elu",  "Equal",       "Erf",     "Exp",  "Greater", "GreaterOrEqual",
      "HardSigmoid", "Less", "LessOrEqual", "Sigmoid", "Sign", "Softmax", "SoftmaxCrossEntropyLoss",
      "Softplus",    "Tanh"};
  const OpDef* def = lookup_op(op);
  return (def != nullptr && def->selects) ||
         std::find(kFlat.begin(), kFlat.end(), op) != kFlat.end();
}

/// A tensor whose other values are this far from the end of the range did not leave it.
constexpr double kFarFromEnd = 1.0 / 256.0;

/// Returns whether a node of a recording may give a mask: it runs code of the user, or reads what
/// is infinite already. Products and sums of finite numbers have none.
bool may_mask(const LaneFacts& lane, int node, int64_t step) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (own.layer < 0 || lane.runs_own_code(node)) return true;
  return std::any_of(own.inputs.begin(), own.inputs.end(), [&](int input) {
    const int site = lane.nodes()[static_cast<size_t>(input)].output_site;
    const std::optional<TensorCounts> counts = site < 0 ? std::nullopt : lane.counts(site, step);
    return counts && counts->neg_inf > 0;
  });
}

/// Returns whether all infinities of a forward tensor are negative, and nothing is NaN.
bool is_negative(const LaneFacts& lane, const SiteInfo& site, int64_t step) {
  const bool forward = site.phase == Phase::forward && site.role != Role::state;
  const std::optional<TensorCounts> counts = forward ? lane.counts(site.order, step) : std::nullopt;
  return counts && counts->neg_inf > 0 && counts->neg_inf == counts->non_finite();
}

/// Returns whether such a tensor of a recording is masked.
bool is_mask(const LaneFacts& lane, const SiteInfo& site, int64_t step) {
  return lane.captured() && looks_masked(lane, site, *lane.stats(site.order, step)) &&
         may_mask(lane, lane.node_of(site.order), step);
}

double absorbed_tolerance(const LaneInfo& lane) {
  int bits = kFp32.mantissa_bits;
  for (const LayerInfo& layer : lane.layers) {
    bits = std::min({bits, layer.read.mantissa_bits, layer.write.mantissa_bits});
  }
  return std::min(kRoundings * std::ldexp(1.0, -bits - 1), kMostDifference);
}

}  // namespace

bool looks_masked(const LaneFacts& lane, const SiteInfo& site, const TensorStats& stats) {
  return lane.captured() && stats.neg_inf > 0 && stats.neg_inf == stats.non_finite() &&
         stats.overflow == 0 &&
         static_cast<double>(stats.max_abs) < kFarFromEnd * site.format.max_finite();
}

bool is_constant(const SiteInfo& site) {
  return site.role == Role::input && site.phase == Phase::forward &&
         site.tensor.starts_with("constant");
}

std::vector<int> zeroing_nodes(const LaneFacts& lane, int site, int64_t step) {
  const auto op_of = [&](int node) {
    const int layer = lane.nodes()[static_cast<size_t>(node)].layer;
    return layer < 0 ? std::string() : lane.info().layers[static_cast<size_t>(layer)].op;
  };
  const int start = lane.node_of(site);
  const std::optional<TensorStats> own = lane.stats(site, step);
  if (!is_constant(lane.site(site)) || !own || own->overflow == 0) return {};
  const bool adds = op_of(start) == "Add" && own->sum < 0.0;
  if (!adds && !(op_of(start) == "Sub" && own->sum > 0.0)) return {};
  const double share = static_cast<double>(own->overflow) / static_cast<double>(own->n);
  std::vector<int> zeroing, open{start};
  std::vector<bool> seen(lane.nodes().size(), false);
  while (!open.empty()) {
    const ForwardNode& at = lane.nodes()[static_cast<size_t>(open.back())];
    open.pop_back();
    if (at.readers.empty()) return {};
    for (const int reader : at.readers) {
      if (seen[static_cast<size_t>(reader)]) continue;
      seen[static_cast<size_t>(reader)] = true;
      const std::string op = op_of(reader);
      if (op == "Add" || op == "Where") {
        open.push_back(reader);
        continue;
      }
      const int output = lane.nodes()[static_cast<size_t>(reader)].output_site;
      if (!saturates(op) || output < 0) return {};
      const std::optional<TensorCounts> theirs = lane.reference_counts(output, step);
      const double zeros = theirs ? static_cast<double>(theirs->zero + theirs->underflow) : 0.0;
      if (!theirs || zeros < share * static_cast<double>(theirs->n)) return {};
      zeroing.push_back(reader);
    }
  }
  return zeroing;
}

void Absorption::Fate::merge(const Fate& other) noexcept {
  reaches_end = reaches_end || other.reaches_end;
  unlike = unlike || other.unlike;
  unsaturated = unsaturated || other.unsaturated;
}

Absorption::Absorption(const LaneFacts& lane)
    : lane_(&lane), tolerance_(absorbed_tolerance(lane.info())) {
  if (lane.reference() < 0) return;
  for (const SiteError& error : lane.run().errors(lane.lane())) {
    if (error.other_lane == lane.reference()) differences_[error.site][error.step] = error.total;
  }
}

/// At the first comparison from that step on; of batches, which do not drift, else at the last one.
std::optional<double> Absorption::difference(int site, int64_t step) const {
  const auto found = differences_.find(site);
  if (found == differences_.end()) return std::nullopt;
  const std::map<int64_t, double>& steps = found->second;
  const auto next = steps.lower_bound(step);
  if (next != steps.end()) return next->second;
  return lane_->inference() ? std::optional(steps.rbegin()->second) : std::nullopt;
}

bool Absorption::agrees(int site, int64_t step) const {
  const std::optional<double> found = difference(site, step);
  return found && *found <= tolerance_;
}

/// Returns whether all outputs of inference agree.
bool Absorption::outputs_agree(int64_t step) const {
  bool any = false;
  for (const ForwardNode& node : lane_->nodes()) {
    if (node.layer < 0 || !node.readers.empty()) continue;
    if (node.output_site < 0 || !agrees(node.output_site, step)) return false;
    any = true;
  }
  return any;
}

/// Returns the fate at a node that reads infinities and whose own output is finite.
Absorption::Fate Absorption::fate_at(int node, int64_t step) {
  const ForwardNode& reader = lane_->nodes()[static_cast<size_t>(node)];
  if (reader.layer < 0) return {.unlike = true, .unsaturated = true};
  if (!lane_->inference()) step = begins_.try_emplace(node, step).first->second;
  std::optional<double> found;
  if (reader.output_site >= 0) found = difference(reader.output_site, step);
  const bool same = found && *found <= tolerance_;
  const bool far = found && !(*found <= kMostDifference);
  const bool flat = saturates(lane_->info().layers[static_cast<size_t>(reader.layer)].op) && !far;
  return {.unlike = !same && !flat, .unsaturated = !same};
}

namespace {

/// Returns whether a constant is infinite in the network itself, as a mask of -inf: the reference
/// reads the same.
bool is_infinite_in_reference(const LaneFacts& lane, const SiteInfo& site) {
  const std::optional<int> theirs =
      is_constant(site) ? lane.reference_site(site.order) : std::nullopt;
  return theirs && lane.run().total(lane.lane(), site.order).overflow == 0 &&
         lane.run().total(lane.reference(), *theirs).non_finite() > 0;
}

}  // namespace

/// The nodes that contain a step's infinities, and the consequences.
struct Absorption::Pass {
  std::vector<bool> made;    ///< the node's output is not finite
  std::vector<bool> reads;   ///< an operand is not finite
  std::vector<int> sources;  ///< number of such operands
  std::vector<Fate> fates;   ///< of the nodes in `made`
};

void Absorption::learn_masks(const RecordedStep& step) {
  const bool fine = step.loss_finite && (!step.backward_bad || step.gradients_overflow);
  if (!fine || !lane_->has_loss()) return;
  for (const int order : step.bad) {
    const SiteInfo& site = lane_->site(order);
    if (is_negative(*lane_, site, step.step) && is_mask(*lane_, site, step.step)) {
      masks_.insert(order);
    }
  }
}

void Absorption::sort_out(RecordedStep& step) {
  const std::vector<ForwardNode>& nodes = lane_->nodes();
  Pass pass{.made = std::vector<bool>(nodes.size(), false),
            .reads = std::vector<bool>(nodes.size(), false),
            .sources = std::vector<int>(nodes.size(), 0),
            .fates = std::vector<Fate>(nodes.size())};
  const auto forward = [&](const SiteInfo& site) {
    return site.phase == Phase::forward && site.role != Role::state && !is_loss_scale(site);
  };
  const auto is_result = [&](const SiteInfo& site) {  // data have a node, but no layer
    const int node = lane_->node_of(site.order);
    return site.role == Role::activation ||
           (site.role == Role::input && nodes[static_cast<size_t>(node)].layer < 0);
  };
  for (const int order : step.bad) {
    const SiteInfo& site = lane_->site(order);
    if (!forward(site)) continue;
    const size_t node = static_cast<size_t>(lane_->node_of(order));
    if (!is_result(site)) {
      pass.reads[node] = true;
      ++pass.sources[node];
      continue;
    }
    pass.made[node] = true;
    for (const int reader : nodes[node].readers) {
      pass.reads[static_cast<size_t>(reader)] = true;
      ++pass.sources[static_cast<size_t>(reader)];
    }
  }
  const auto follow = [&](size_t node) {
    if (!pass.made[node]) return;
    Fate& fate = pass.fates[node];
    fate.reaches_end = nodes[node].readers.empty();
    for (const int reader : nodes[node].readers) {
      fate.merge(pass.made[static_cast<size_t>(reader)] ? pass.fates[static_cast<size_t>(reader)]
                                                        : fate_at(reader, step.step));
    }
  };
  // Layers are in execution order: backwards, readers come first. Data come last.
  const size_t layers = lane_->info().layers.size();
  for (size_t node = layers; node-- > 0;) follow(node);
  for (size_t node = layers; node < nodes.size(); ++node) follow(node);

  const auto fate_of = [&](const SiteInfo& site) {
    const int node = lane_->node_of(site.order);
    const size_t at = static_cast<size_t>(node);
    if (is_result(site) || pass.made[at]) return pass.fates[at];
    Fate fate = fate_at(node, step.step);
    fate.reaches_end = nodes[at].layer < 0;  // nobody knows who reads it
    return fate;
  };
  // A module of a recording may have several outputs, of which the recorded readers read one.
  const auto ends_outside = [&](size_t node) {
    for (size_t outer = node + 1; lane_->captured() && outer < layers; ++outer) {
      const bool ends = pass.made[outer] && pass.fates[outer].reaches_end;
      if (ends && lane_->contains(static_cast<int>(outer), static_cast<int>(node))) return true;
    }
    return false;
  };
  // Gradients that are not finite although none overflowed come from them, too.
  const bool spread = step.backward_bad && !step.gradients_overflow;
  const bool right = lane_->inference() && outputs_agree(step.step);
  std::vector<int> bad;
  bool any_ends = false;
  for (const int order : step.bad) {
    const SiteInfo& site = lane_->site(order);
    const size_t at = static_cast<size_t>(lane_->node_of(order));
    const Fate fate = fate_of(site);
    if (pass.sources[at] > 1 && !zeroing_nodes(*lane_, order, step.step).empty()) {
      step.absorbed.push_back(order);
      continue;
    }
    if (is_infinite_in_reference(*lane_, site)) {
      step.absorbed.push_back(order);
      continue;
    }
    // The loss function may read a mask, too. Where its result is finite once, the mask is no
    // reason why it is not finite in another step.
    const bool negative = forward(site) && is_negative(*lane_, site, step.step);
    const bool looks_so = negative && is_mask(*lane_, site, step.step);
    const bool masked =
        looks_so || (negative && contains_mask(site, *lane_->stats(order, step.step)));
    if (looks_so && masks_.contains(order)) {
      step.absorbed.push_back(order);
      any_ends = any_ends || fate.reaches_end;
      continue;
    }
    if (!forward(site) || fate.reaches_end || (!masked && (spread || ends_outside(at)))) {
      bad.push_back(order);
      any_ends = any_ends || forward(site);
      continue;
    }
    // Infinities that are neither given nor of values beyond the range, as of 1 / 0 or log(0), may
    // stand for any number.
    const bool given = masked || site.role == Role::input;
    const bool of_range = lane_->counts(order, step.step)->overflow > 0 || given || pass.reads[at];
    if (right || !(of_range ? fate.unlike : fate.unsaturated)) {
      step.absorbed.push_back(order);
      continue;
    }
    bad.push_back(order);
    step.silent.push_back(order);
  }
  if (!step.loss_finite && !any_ends) {  // the path to the loss was not recorded
    bad.insert(bad.end(), step.absorbed.begin(), step.absorbed.end());
    std::sort(bad.begin(), bad.end());
    step.absorbed.clear();
    step.silent.clear();
  }
  step.bad = std::move(bad);
}

}  // namespace halfscope
