// SPDX-License-Identifier: MIT
#include "analysis/diagnosis/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/diagnosis/chain.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

Place place_of(const LaneFacts& lane, const std::string& path, const std::string& site) {
  Place place{.layer = path, .site = site};
  for (const LayerInfo& layer : lane.info().layers) {
    if (layer.path == path) place.node = layer.alias;
  }
  return place;
}

int node_of_path(const LaneFacts& lane, const std::string& path) {
  for (size_t i = 0; i < lane.nodes().size(); ++i) {
    if (lane.nodes()[i].path == path) return static_cast<int>(i);
  }
  return -1;
}

/// Returns the mechanism that a change of the whole lane fixes, if nothing else shows it.
Mechanism mechanism_of(FixKind kind) {
  switch (kind) {
    case FixKind::config:  // how ranks agree on a step; no other setting is a change
      return Mechanism::rank_disagreement;
    case FixKind::loss_scale:
      return Mechanism::loss_scale;
    case FixKind::buffers_on_step:
      return Mechanism::spoiled_statistics;
    case FixKind::constant:
    case FixKind::schedule_fp32:
      return Mechanism::constant;
    case FixKind::amax_floor:
      return Mechanism::zero_block;
    case FixKind::clamp:
    case FixKind::prescale:
      return Mechanism::forward_overflow;
    case FixKind::keep_integer:
      return Mechanism::integer_in_float;
    case FixKind::scale_round_up:
      return Mechanism::clipped_blocks;
    case FixKind::stochastic_rounding:
      return Mechanism::outlier_scale;
    case FixKind::accumulate_fp32:
      return Mechanism::stalled_sum;
    case FixKind::gradient_sum_fp32:
    case FixKind::reduce_fp32:
    case FixKind::reduce_order:
      return Mechanism::gradient_sum;
    case FixKind::update_fp32:
    case FixKind::weights_fp32:
      return Mechanism::lost_update;
    case FixKind::average_fp32:
    case FixKind::state_fp32:
      return Mechanism::stuck_state;
    case FixKind::store_fp32:
      return Mechanism::early_rounding;
    case FixKind::operator_fp32:
      return Mechanism::rounding;
    default:
      return Mechanism::unknown;
  }
}

Mechanism mechanism_of(const Finding& finding) {
  if (finding.cause != Mechanism::unknown) return finding.cause;
  const Rule* rule = rule_of(finding);
  return rule == nullptr ? Mechanism::unknown : rule->mechanism;
}

/// Returns the layers whose variables are furthest from the reference's.
std::vector<std::string> worst_variables(const LaneFacts& lane) {
  double worst = 0.0;
  std::string path;
  for (const Deviation& each : lane.run().deviations(lane.lane())) {
    const bool moves = each.of == Deviation::Of::weight || each.of == Deviation::Of::average;
    if (!moves || each.name.empty() || !(each.error > worst)) continue;
    worst = each.error;
    path = each.name;
  }
  if (path.empty()) return {};
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::weight) continue;
    if (site.name() == path || path.starts_with(site.path + ".")) return {site.path};
  }
  return {path};
}

class Diagnoser {
 public:
  Diagnoser(const RunView& run, std::span<const Finding> findings, int lane, const PlanEdit& advice,
            const std::optional<Proof>& proof)
      : lane_(run, lane), findings_(findings), advice_(advice), proof_(proof) {
    result_.lane = lane;
  }

  Diagnosis run() {
    harm_ = harm_of(lane_);
    result_.harmed = !harm_.items.empty() || worst_finding() != nullptr;
    if (!result_.harmed) return std::move(result_);
    const bool cured = proof_ && proof_->holds && !proof_->edit.empty();
    result_.fix = cured ? proof_->edit : advice_;
    result_.verified = cured;
    find_root();
    const std::vector<int> roots = root_nodes();
    const std::vector<int64_t> steps = steps_of_cause(lane_, roots);
    find_symptom(roots, steps);
    if (!result_.root.empty() && !is_unread(result_.root.front())) {
      const int node = node_of_path(lane_, result_.root.front().layer);
      if (node >= 0) result_.chain = chain_from(lane_, node, steps);
    }
    // A gradient does nothing to the outputs of its step.
    const auto is_wrong = [](const Hop& hop) { return !hop.text.empty() || hop.error; };
    if (std::none_of(result_.chain.begin(), result_.chain.end(), is_wrong)) result_.chain.clear();
    read_trials();
    reject_decoys();
    judge();
    if (!result_.fix.empty()) {
      result_.fix_text = edit_sentence(result_.fix) + cast_note(lane_.info(), result_.fix);
      result_.fix_cost = cost_of(lane_.info(), result_.fix);
    }
    return std::move(result_);
  }

 private:
  /// Adds a full stop. The text may begin with a name, so its first letter stays.
  static std::string with_stop(const std::string& text) { return text.empty() ? "" : text + "."; }

  static std::string sentence_of(Mechanism mechanism) {
    return with_stop(mechanism_text(mechanism));
  }

  const Finding* worst_finding() const {
    for (const Finding& finding : findings_) {  // sorted, the worst of a lane first
      const bool counts = finding.lane == result_.lane && finding.severity >= Severity::warning;
      if (counts && finding.rule != "harm") return &finding;
    }
    return nullptr;
  }

  void add_root(const std::string& path, const std::string& site) {
    const bool known = std::any_of(result_.root.begin(), result_.root.end(),
                                   [&](const Place& place) { return place.layer == path; });
    if (!known) result_.root.push_back(place_of(lane_, path, site));
  }

  void find_root() {
    if (from_kernel()) return;
    if (from_causes()) return;
    if (from_finding()) return;
    from_evidence();
  }

  /// A wrong kernel is the cause even if the change that fixes the lane only makes another kernel
  /// take its place.
  bool from_kernel() {
    const Finding* const fault = finding_of(Mechanism::kernel_fault);
    if (fault == nullptr || fault->severity < Severity::error) return false;
    result_.mechanism = Mechanism::kernel_fault;
    add_root(fault->layer, fault->site);
    result_.cause = with_stop(fault->mechanism);
    return true;
  }

  /// Uses what the proof saw of each member of the fix while all others were in place.
  bool from_causes() {
    if (!result_.verified || proof_->causes.empty()) return false;
    // Nodes that lose values themselves come before nodes that only read them.
    const auto heavier = [](const Cause& a, const Cause& b) { return a.weight < b.weight; };
    const auto heaviest =
        std::max_element(proof_->causes.begin(), proof_->causes.end(), heavier)->weight;
    // If values overflow in the forward pass, neither rounding nor gradients explain a loss that is
    // NaN or infinite.
    const bool explained =
        std::any_of(proof_->causes.begin(), proof_->causes.end(), [](const Cause& cause) {
          return cause.weight >= 1.0 && cause.mechanism != Mechanism::gradient_overflow;
        });
    if (!explained && ends_not_finite() && values_overflow()) return false;
    // Values that become NaN or infinite explain more than values that are rounded.
    std::vector<Cause> causes = proof_->causes;
    const bool broken = ends_not_finite();
    std::stable_partition(causes.begin(), causes.end(), [broken](const Cause& cause) {
      return cause.weight >= 1.0 && !(broken && cause.mechanism == Mechanism::gradient_overflow);
    });
    std::vector<Mechanism> said;
    for (const Cause& cause : causes) {
      if (cause.weight < 0.5 * heaviest) continue;
      add_root(cause.layer, cause.site);
      if (std::find(said.begin(), said.end(), cause.mechanism) != said.end()) continue;
      if (said.empty()) result_.mechanism = cause.mechanism;
      if (!said.empty()) result_.cause += " ";
      result_.cause += with_stop(cause.text);
      said.push_back(cause.mechanism);
    }
    return true;
  }

  /// Returns whether a rule found values that are too large for their format in the forward pass.
  bool values_overflow() const {
    const Finding* const finding = finding_of(Mechanism::forward_overflow);
    if (finding == nullptr) return false;
    const std::optional<int> site = lane_.run().find_site(lane_.lane(), finding->site);
    return site && lane_.run().total(lane_.lane(), *site).overflow > 0;
  }

  bool ends_not_finite() const {
    return std::any_of(harm_.items.begin(), harm_.items.end(),
                       [](const HarmItem& item) { return std::isinf(item.error); });
  }

  /// Returns the worst finding of the lane with this mechanism.
  const Finding* finding_of(Mechanism wanted) const {
    for (const Finding& finding : findings_) {
      const bool counts = finding.lane == result_.lane && finding.severity >= Severity::warning;
      if (counts && finding.rule != "harm" && mechanism_of(finding) == wanted) return &finding;
    }
    return nullptr;
  }

  /// Returns the mechanisms that rules report where such a change helps, most likely first.
  static std::vector<Mechanism> signs_of(FixKind kind) {
    switch (kind) {
      case FixKind::update_fp32:
        return {Mechanism::flushed_state, Mechanism::lost_update, Mechanism::stuck_state};
      case FixKind::state_fp32:
        return {Mechanism::stuck_state, Mechanism::flushed_state, Mechanism::lost_update};
      case FixKind::average_fp32:
        return {Mechanism::stuck_state, Mechanism::lost_update};
      case FixKind::gradient_sum_fp32:
      case FixKind::reduce_fp32:
      case FixKind::reduce_order:
        return {Mechanism::gradient_sum, Mechanism::stalled_sum};
      default:
        return {mechanism_of(kind)};
    }
  }

  /// Returns the finding that best explains why a change of the whole lane helps.
  const Finding* finding_behind(FixKind kind) const {
    for (const Mechanism sign : signs_of(kind)) {
      if (const Finding* finding = finding_of(sign)) return finding;
    }
    // Everything that is stored moves to fp32 with the weights.
    const Finding* const worst = kind == FixKind::weights_fp32 ? worst_finding() : nullptr;
    const std::optional<int> site =
        worst == nullptr ? std::nullopt : lane_.run().find_site(result_.lane, worst->site);
    return site && lane_.site(*site).role == Role::state ? worst : nullptr;
  }

  static bool is_about_scales(FixKind kind) {
    return kind == FixKind::amax_floor || kind == FixKind::scale_round_up ||
           kind == FixKind::stochastic_rounding;
  }

  /// Blames the node whose operands suffer most from their scales.
  bool from_scales() {
    const std::optional<Suspect> suspect = scaled_suspect(lane_);
    if (!suspect) return false;
    result_.mechanism = suspect->mechanism;
    result_.cause = with_stop(suspect->text);
    add_root(lane_.nodes()[static_cast<size_t>(suspect->node)].path,
             lane_.site(suspect->site).name());
    return true;
  }

  /// Blames the node whose gradients leave their format's range first or most.
  bool from_gradients() {
    const std::vector<Suspect> suspects = backward_suspects(lane_);
    if (suspects.empty()) return false;
    result_.cause = with_stop(suspects.front().text);
    for (const int node : planned_nodes(lane_, suspects.front().node)) {
      add_root(lane_.nodes()[static_cast<size_t>(node)].path,
               lane_.site(suspects.front().site).name());
    }
    return true;
  }

  bool from_finding() {
    const bool of_lane = result_.verified && result_.fix.changes.front().path.empty();
    const Finding* finding = worst_finding();
    if (of_lane) {
      const auto lighter = [](const Change& a, const Change& b) { return a.kind < b.kind; };
      const std::vector<Change>& all = result_.fix.changes;
      const FixKind kind = std::max_element(all.begin(), all.end(), lighter)->kind;
      result_.mechanism = mechanism_of(kind);
      finding = finding_behind(kind);
      // State that is 0 differs from state that cannot move; the rest are signs of it.
      const Mechanism shown = finding == nullptr ? Mechanism::unknown : mechanism_of(*finding);
      const bool flushed = shown == Mechanism::flushed_state;
      if (flushed || shown == Mechanism::forward_overflow) result_.mechanism = shown;
      if (finding == nullptr && is_about_scales(kind) && from_scales()) return true;
      if (finding == nullptr && kind == FixKind::loss_scale && from_gradients()) return true;
      if (finding == nullptr) {
        for (const std::string& path : worst_variables(lane_)) add_root(path, "");
        result_.cause = sentence_of(result_.mechanism);
        return true;
      }
    } else {
      if (finding == nullptr || mechanism_of(*finding) == Mechanism::unknown) return false;
      result_.mechanism = mechanism_of(*finding);
    }
    add_roots_of(*finding);
    result_.cause = with_stop(finding->mechanism);
    return true;
  }

  /// Returns whether the node stands for a variable that is not named after a node.
  bool is_variable(int node) const {
    const ForwardNode& own = lane_.nodes()[static_cast<size_t>(node)];
    return own.layer < 0 && own.output_site < 0;
  }

  /// Returns whether the site is a gradient, which the reader of the variable computes.
  bool is_gradient(const std::string& site) const {
    const std::optional<int> order = lane_.run().find_site(lane_.lane(), site);
    return order && lane_.site(*order).phase == Phase::backward;
  }

  void add_roots_of(const Finding& finding) {
    const int node = node_of_path(lane_, finding.layer);
    if (node < 0) {
      if (!finding.layer.empty()) add_root(finding.layer, finding.site);
    } else if (mechanism_of(finding) == Mechanism::bad_data ||
               (is_variable(node) && !is_gradient(finding.site))) {
      add_root(finding.layer, finding.site);
    } else {
      for (const int each : planned_nodes(lane_, node)) {
        add_root(lane_.nodes()[static_cast<size_t>(each)].path, finding.site);
      }
    }
    const bool is_setting = mechanism_of(finding) == Mechanism::configuration;
    if (!result_.root.empty() || is_setting) return;
    for (const std::string& path : worst_variables(lane_)) add_root(path, "");
  }

  void from_evidence() {
    const std::vector<Suspect> suspects = forward_suspects(lane_);
    if (suspects.empty()) return;
    const Suspect& first = suspects.front();
    result_.likely = !result_.verified;
    result_.mechanism = first.mechanism;
    result_.cause = with_stop(first.text);
    for (const int node : planned_nodes(lane_, first.node)) {
      add_root(lane_.nodes()[static_cast<size_t>(node)].path, lane_.site(first.site).name());
    }
  }

  /// Returns whether the place is a running statistic, which leads nowhere in training.
  bool is_unread(const Place& place) const {
    const std::optional<int> site = lane_.run().find_site(lane_.lane(), place.site);
    return site && !lane_.inference() && is_running_statistic(lane_.site(*site));
  }

  std::vector<int> root_nodes() const {
    std::vector<int> roots;
    for (const Place& place : result_.root) {
      const int node = node_of_path(lane_, place.layer);
      if (node >= 0) roots.push_back(node);
    }
    return roots;
  }

  void find_symptom(const std::vector<int>& roots, const std::vector<int64_t>& steps) {
    const int site = first_symptom_site(lane_, roots);
    if (site < 0) {
      if (!harm_.items.empty()) result_.symptom = harm_.items.front().text;
      return;
    }
    const SiteInfo& info = lane_.site(site);
    result_.first_symptom = place_of(lane_, info.path, info.name());
    result_.symptom = hop_at(lane_, site, steps).text;
  }

  void read_trials() {
    if (!proof_) return;
    // Proofs of older versions contain only the deciding trials.
    result_.trials = static_cast<int64_t>(std::max(proof_->tried.size(), proof_->trials.size()));
    result_.alternatives = proof_->alternatives;
    for (const TriedEdit& tried : proof_->tried) {
      if (tried.passes || tried.edit.changes.size() != 1) continue;
      const Change& change = tried.edit.changes.front();
      const bool of_fix = std::find(result_.fix.changes.begin(), result_.fix.changes.end(),
                                    change) != result_.fix.changes.end();
      if (!of_fix) result_.does_not_help.push_back(tried);
    }
  }

  bool is_root_or_fix(const std::string& path) const {
    const bool of_fix = std::any_of(result_.fix.changes.begin(), result_.fix.changes.end(),
                                    [&](const Change& change) { return change.path == path; });
    // Steps of a layer, as "norm/square" of norm, belong to it.
    return of_fix || std::any_of(result_.root.begin(), result_.root.end(), [&](const Place& place) {
             return place.layer == path || path.starts_with(place.layer + "/");
           });
  }

  void reject(const std::string& path, const std::string& site, const std::string& why) {
    const bool known = std::any_of(result_.decoys.begin(), result_.decoys.end(),
                                   [&](const Decoy& decoy) { return decoy.place.layer == path; });
    if (!known && !is_root_or_fix(path)) {
      result_.decoys.push_back({place_of(lane_, path, site), why});
    }
  }

  /// Clears the places that the first NaN, or the largest error, would make one blame.
  void reject_decoys() {
    // A fix of the whole lane blames no node and clears none.
    const bool of_nodes = std::any_of(result_.fix.changes.begin(), result_.fix.changes.end(),
                                      [](const Change& change) { return !change.path.empty(); });
    if (result_.root.empty() || !of_nodes) return;
    for (const TriedEdit& tried : result_.does_not_help) {
      const Change& change = tried.edit.changes.front();
      if (change.path.empty()) continue;
      reject(change.path, "", "On its own, a change there does not fix the run.");
    }
    const int nan = first_nan_site(lane_);
    if (nan >= 0) {
      reject(lane_.site(nan).path, lane_.site(nan).name(),
             "The first NaN appears here, but its inputs are already wrong.");
    }
    if (result_.first_symptom) {
      reject(
          result_.first_symptom->layer, result_.first_symptom->site,
          "Its output is the first that looks wrong, but the error comes from an earlier layer.");
    }
  }

  void judge() {
    const bool placed = !result_.root.empty() || result_.mechanism == Mechanism::configuration;
    const bool known = result_.mechanism != Mechanism::unknown && placed;
    if (result_.verified) {
      result_.reasons.push_back(
          result_.fix.changes.size() > 1
              ? "The fix was tried: the run is right with it, and wrong without any part of it."
              : "The fix was tried: the run is right with it, and wrong without it.");
    } else if (proof_) {
      result_.reasons.emplace_back("No change that was tried fixes the lane.");
    } else if (lane_.captured()) {
      result_.reasons.emplace_back(
          "Nothing was tried: make the change in your script, and record it again.");
    } else {
      result_.reasons.emplace_back(
          "Nothing was tried yet. `halfscope diagnose` with --verify finds and proves the smallest "
          "fix.");
    }
    if (known && !result_.likely) {
      result_.reasons.push_back("The run shows the cause: " + result_.cause);
    }
    if (known && result_.likely) {
      result_.reasons.emplace_back("The run does not show whether this is the cause.");
    }
    if (!known) result_.reasons.emplace_back("No recorded tensor shows which layer causes it.");
    if (!result_.alternatives.empty()) {
      result_.reasons.push_back(
          fmt::format("{} just as small also {} the lane. Take the one that costs least.",
                      counted(static_cast<int64_t>(result_.alternatives.size()), "other change"),
                      result_.alternatives.size() == 1 ? "fixes" : "fix"));
    }
    const bool shown = known && !result_.likely;
    result_.confidence = result_.verified && known                ? Confidence::high
                         : result_.verified || (shown && !proof_) ? Confidence::medium
                                                                  : Confidence::low;
  }

  LaneFacts lane_;
  std::span<const Finding> findings_;
  const PlanEdit& advice_;
  const std::optional<Proof>& proof_;
  Harm harm_;
  Diagnosis result_;
};

}  // namespace

const char* confidence_name(Confidence confidence) noexcept {
  switch (confidence) {
    case Confidence::low:
      return "low";
    case Confidence::medium:
      return "medium";
    case Confidence::high:
      return "high";
  }
  return "unknown";
}

Diagnosis diagnose(const RunView& run, std::span<const Finding> findings, int lane,
                   const PlanEdit& advice, const std::optional<Proof>& proof) {
  return Diagnoser(run, findings, lane, advice, proof).run();
}

}  // namespace halfscope
