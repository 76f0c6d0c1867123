// SPDX-License-Identifier: MIT
#include "analysis/proof/search.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>

#include "analysis/format_limits.h"
#include "analysis/proof/cost.h"
#include "analysis/rules/loss_scale_window.h"
#include "core/ops/ops.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr int kRounds = 8;
/// Suspects with less than this fraction of the first one's weight wait for the next round.
constexpr double kHeavy = 0.5;
/// Up to here, each node of a cure is worth further trials.
constexpr int64_t kFew = 6;
/// Maximum number of alternatives to test.
constexpr size_t kAlternatives = 8;

Change in_fp32(const std::string& path) { return {.kind = FixKind::operator_fp32, .path = path}; }

/// Returns whether the layer is the node at `path`, or a step of this expanded composite.
bool is_in(const LayerInfo& layer, const std::string& path) {
  return layer.path == path || layer.path.starts_with(path + "/");
}

PlanEdit edit_of(std::vector<Change> changes) { return {.changes = std::move(changes)}; }

class Searcher {
 public:
  Searcher(TrialBook& book, const SearchRequest& request) : book_(book), request_(request) {
    if (request.evidence != nullptr) evidence_.emplace(*request.evidence, request.lane);
  }

  SearchResult run() {
    std::optional<PlanEdit> cure = find_cure();
    if (cure) {
      cure = merged(smaller(*cure));
      cure = with_lane_change(single(*cure));
      cure = smaller(cheaper(*cure));
      cure = in_order(as_integers(with_another_scale(prescaled(*cure))));
      result_.cure = cure;
      find_alternatives(*cure);
    }
    result_.exhausted = book_.exhausted() && !book_.stopped();
    return std::move(result_);
  }

 private:
  std::optional<PlanEdit> find_cure() {
    const std::vector<Change> of_lane = lane_changes(request_);
    const bool lane_first = request_.trains && (forward_is_right() || begins_right());
    if (lane_first || !request_.trains) {
      if (const std::optional<PlanEdit> found = try_lane(of_lane)) return found;
    }
    if (!request_.advice.empty()) {
      if (book_.passes(request_.advice)) return request_.advice;
      // The advice may cure the forward pass of a lane whose updates are wrong as well.
      if (const std::optional<PlanEdit> found = try_lane(of_lane, request_.advice)) return found;
    }
    if (const std::optional<PlanEdit> found = grow(request_.advice)) return found;
    // A cured lane may lag because it is still looking for its loss scale.
    if (request_.loss_scale && !grown_.empty() && !book_.exhausted()) {
      constexpr double kLower = 8.0;
      PlanEdit scaled = grown_;
      scaled.set_loss_scale(std::max(*request_.loss_scale / kLower, 1.0));
      if (book_.passes(scaled)) return scaled;
    }
    if (!lane_first && request_.trains) {
      if (const std::optional<PlanEdit> found = try_lane(of_lane)) return found;
    }
    return try_everything(of_lane);
  }

  /// Returns whether the lane has harm of one of these kinds.
  static bool any_harm(const Harm& harm, std::initializer_list<HarmItem::Of> kinds) {
    return std::any_of(harm.items.begin(), harm.items.end(), [&](const HarmItem& item) {
      return std::find(kinds.begin(), kinds.end(), item.of) != kinds.end();
    });
  }

  /// Returns whether all results are right for equal weights, so that only updates can be wrong.
  bool forward_is_right() const {
    using Of = HarmItem::Of;
    return evidence_ && !any_harm(harm_of(*evidence_), {Of::output, Of::loss, Of::gradient});
  }

  /// Returns whether the first recorded step is finite and a later one is not, which points to the
  /// updates.
  bool begins_right() const {
    if (!evidence_) return false;
    const std::vector<RecordedStep>& steps = evidence_->recorded();
    return steps.size() > 1 && steps.front().bad.empty() &&
           std::any_of(steps.begin(), steps.end(),
                       [](const RecordedStep& step) { return !step.bad.empty(); });
  }

  /// Tries each change of the whole lane, then all of them together, each beside `others`.
  std::optional<PlanEdit> try_lane(const std::vector<Change>& changes,
                                   const PlanEdit& others = {}) {
    std::vector<PlanEdit> edits;
    for (const Change& change : changes) {
      edits.push_back(others);
      edits.back().add(change);
    }
    if (changes.size() > 1) {
      edits.push_back(others);
      edits.back().add(edit_of(changes));
    }
    const int found = book_.first_that_passes(edits);
    if (found < 0) return std::nullopt;
    return edits[static_cast<size_t>(found)];
  }

  /// Adds the suspects of the lane with `edit`, then those of the lane with these changes, and so
  /// on.
  std::optional<PlanEdit> grow(PlanEdit edit) {
    for (int round = 0; round < kRounds && !book_.exhausted(); ++round) {
      std::optional<RunView> recorded;
      const RunView* view = request_.evidence;
      int lane = request_.lane;
      if (!edit.empty() || view == nullptr) {
        recorded = book_.record(edit);
        if (!recorded) return std::nullopt;
        view = &*recorded;
        lane = view->lane_count() - 1;
      }
      const size_t before = edit.changes.size();
      add_suspects(LaneFacts(*view, lane), edit);
      grown_ = edit;
      if (edit.changes.size() == before) return std::nullopt;
      if (book_.passes(edit)) return edit;
    }
    return std::nullopt;
  }

  void add_suspects(const LaneFacts& lane, PlanEdit& edit) {
    const Harm harm = harm_of(lane);
    using Of = HarmItem::Of;
    const bool forward =
        !request_.trains || harm.items.empty() || any_harm(harm, {Of::output, Of::loss});
    const std::vector<Suspect> suspects =
        forward ? forward_suspects(lane) : backward_suspects(lane);
    double heaviest = 0.0;
    std::vector<bool> below(lane.nodes().size(), false);
    for (const Suspect& suspect : suspects) {
      std::vector<std::string> paths = paths_of(lane, suspect.node);
      std::erase_if(paths, [&](const std::string& path) { return edit.keeps(path); });
      if (paths.empty() || below[static_cast<size_t>(suspect.node)]) continue;
      if (suspect.weight < kHeavy * heaviest) continue;
      heaviest = std::max(heaviest, suspect.weight);
      for (const std::string& path : paths) {
        edit.add(in_fp32(path));
        seen_.insert(path);
      }
      if (suspect.weight < 1.0) continue;
      const std::vector<bool> reached = lane.downstream(suspect.node);
      for (size_t i = 0; i < below.size(); ++i) below[i] = below[i] || reached[i];
    }
  }

  static std::vector<std::string> paths_of(const LaneFacts& lane, int node) {
    std::vector<std::string> paths;
    for (const int each : planned_nodes(lane, node)) {
      paths.push_back(lane.nodes()[static_cast<size_t>(each)].path);
    }
    return paths;
  }

  /// Tries all nodes in fp32, without and with the changes of the whole lane, then halves the set.
  std::optional<PlanEdit> try_everything(const std::vector<Change>& of_lane) {
    std::vector<Change> nodes;
    for (const LayerInfo& layer : request_.layers) {
      const bool is_narrow = !full_precision(layer.read) || !full_precision(layer.write);
      if (is_narrow || layer.follows) {
        nodes.push_back(in_fp32(layer.path));
      }
    }
    std::vector<Change> both = of_lane;
    both.insert(both.end(), nodes.begin(), nodes.end());
    for (const std::vector<Change>* all : {&nodes, &both}) {
      if (all->empty() || book_.exhausted()) continue;
      if (book_.passes(edit_of(*all))) return halved(*all);
    }
    const Change format{.kind = FixKind::format, .text = "bf16"};
    if (!book_.exhausted() && uses_fp16() && book_.passes(edit_of({format}))) {
      return edit_of({format});
    }
    return std::nullopt;
  }

  bool uses_fp16() const {
    return std::any_of(request_.layers.begin(), request_.layers.end(), [](const LayerInfo& layer) {
      return layer.read == kFp16 || layer.write == kFp16;
    });
  }

  /// Delta debugging (Zeller and Hildebrandt 2002): removes ever smaller parts as long as the rest
  /// still passes. Suspects come last, so that other nodes are removed first.
  PlanEdit halved(std::vector<Change> changes) {
    std::stable_partition(changes.begin(), changes.end(),
                          [&](const Change& change) { return !seen_.contains(change.path); });
    size_t parts = 2;
    while (changes.size() > 1 && !book_.exhausted()) {
      const size_t size = (changes.size() + parts - 1) / parts;
      std::vector<PlanEdit> rests;
      for (size_t from = 0; from < changes.size(); from += size) {
        std::vector<Change> rest = changes;
        const auto begin = rest.begin() + static_cast<int64_t>(from);
        rest.erase(begin, begin + static_cast<int64_t>(std::min(size, rest.size() - from)));
        if (!rest.empty()) rests.push_back(edit_of(std::move(rest)));
      }
      const int found = book_.first_that_passes(rests);
      if (found >= 0) {
        changes = rests[static_cast<size_t>(found)].changes;
        parts = std::max<size_t>(parts - 1, 2);
      } else if (size == 1) {
        break;
      } else {
        parts = std::min(parts * 2, changes.size());
      }
    }
    return edit_of(std::move(changes));
  }

  /// Removes single members, the most expensive first, as long as the rest still cures. Keeps
  /// members of `stays`.
  PlanEdit smaller(PlanEdit edit, const PlanEdit& stays = {}) {
    constexpr size_t kMany = 6;
    if (edit.changes.size() > kMany && stays.empty()) edit = halved(edit.changes);
    for (bool dropped = true; dropped && !book_.exhausted();) {
      dropped = false;
      const std::vector<PlanEdit> members = droppable(edit, stays);
      for (size_t i = 0; i < members.size() && edit.members().size() > 1;) {
        std::vector<PlanEdit> rests;
        for (size_t j = i; j < members.size(); ++j) rests.push_back(edit.without(members[j]));
        const int found = book_.first_that_passes(rests);
        if (found < 0) break;
        edit = rests[static_cast<size_t>(found)];
        dropped = true;
        i += static_cast<size_t>(found) + 1;
      }
    }
    return edit;
  }

  /// Returns members that may be removed, the most expensive first.
  std::vector<PlanEdit> droppable(const PlanEdit& edit, const PlanEdit& stays) const {
    std::vector<std::pair<Cost, PlanEdit>> members;
    for (PlanEdit& member : edit.members()) {
      const std::vector<Change>& fixed = stays.changes;
      if (std::find(fixed.begin(), fixed.end(), member.changes.front()) != fixed.end()) continue;
      members.emplace_back(cost(member), std::move(member));
    }
    std::stable_sort(members.begin(), members.end(),
                     [](const auto& a, const auto& b) { return is_cheaper(b.first, a.first); });
    std::vector<PlanEdit> sorted;
    for (auto& [own, member] : members) sorted.push_back(std::move(member));
    return sorted;
  }

  Cost cost(const PlanEdit& edit) const {
    return evidence_ ? cost_of(evidence_->info(), edit) : Cost{};
  }

  static int64_t node_count(const PlanEdit& edit) {
    return std::count_if(edit.changes.begin(), edit.changes.end(),
                         [](const Change& change) { return !change.path.empty(); });
  }

  /// Tries a change of the whole lane instead of all fp32 nodes but those that need it anyway. Most
  /// often, weights or an optimizer state in a narrow format need it, and nodes in fp32 only hide
  /// that.
  PlanEdit with_lane_change(const PlanEdit& cure) {
    PlanEdit best = cure;
    const int64_t nodes = node_count(cure);
    if (!request_.trains || nodes < 2 || nodes > kFew) return best;
    for (const Change& change : lane_changes(request_)) {
      if (book_.exhausted()) break;
      const auto& own = cure.changes;
      if (change.kind == FixKind::loss_scale ||
          std::find(own.begin(), own.end(), change) != own.end()) {
        continue;
      }
      PlanEdit both = cure;
      both.add(change);
      both = smaller(both, edit_of({change}));
      const auto size = [this](const PlanEdit& edit) {
        return std::pair(edit.changes.size(), cost(edit).multiply_share.value_or(0.0));
      };
      if (size(both) < size(best)) best = both;
    }
    return best;
  }

  /// Tries another static loss scale instead of some or all fp32 nodes if gradients fall outside
  /// their format's range.
  PlanEdit with_another_scale(PlanEdit cure) {
    const int64_t nodes = node_count(cure);
    if (!request_.trains || nodes == 0 || cure.loss_scale()) return cure;
    for (const double scale : other_scales()) {
      if (book_.exhausted()) return cure;
      const PlanEdit alone = PlanEdit::with_loss_scale(scale);
      if (book_.passes(alone)) return alone;
      PlanEdit both = cure;
      both.add(alone);
      if (nodes < 3 || !book_.passes(both)) continue;
      both = smaller(both, alone);
      if (both.changes.size() < cure.changes.size()) cure = both;
    }
    return cure;
  }

  /// Returns static scales that move gradients into their format's range. Returns none if gradients
  /// do not leave it or are not scaled.
  std::vector<double> other_scales() const {
    if (!evidence_ || !needs_loss_scaling(request_.original)) return {};
    const std::span<const StepRow> steps = evidence_->run().steps(request_.lane);
    if (steps.empty()) return {};
    bool large = false, small = false;
    for (const Suspect& suspect : backward_suspects(*evidence_)) {
      large = large || suspect.mechanism == Mechanism::gradient_overflow;
      small = small || suspect.mechanism == Mechanism::gradient_flush;
    }
    constexpr double kFactor = 64.0, kMost = 0x1p24;
    const double now = static_cast<double>(steps.front().loss_scale);
    std::vector<double> scales;
    // The scale that recorded magnitudes ask for comes first.
    const std::optional<ScaleWindow> window = loss_scale_window(*evidence_);
    if ((large || small) && window && window->scale > 0.0 && window->scale != now) {
      scales.push_back(window->scale);
    }
    for (double scale = now / kFactor, n = 0; large && scale >= 1.0 && n < 2; ++n) {
      scales.push_back(scale);
      scale /= kFactor;
    }
    for (double scale = now * kFactor, n = 0; small && scale <= kMost && n < 2; ++n) {
      scales.push_back(scale);
      scale *= kFactor;
    }
    return scales;
  }

  /// Returns the edit with its nodes in execution order, then the changes of the whole lane.
  PlanEdit in_order(PlanEdit edit) const {
    const auto place = [this](const Change& change) {
      return std::find_if(request_.layers.begin(), request_.layers.end(),
                          [&](const LayerInfo& layer) { return is_in(layer, change.path); });
    };
    std::stable_sort(edit.changes.begin(), edit.changes.end(),
                     [&](const Change& a, const Change& b) { return place(a) < place(b); });
    return edit;
  }

  /// Replaces primitives of one composite by the composite, which is a single change for the user.
  PlanEdit merged(const PlanEdit& edit) {
    std::map<std::string, int> parents;
    for (const Change& change : edit.changes) {
      const size_t slash = change.path.rfind('/');
      if (change.kind == FixKind::operator_fp32 && slash != std::string::npos) {
        ++parents[change.path.substr(0, slash)];
      }
    }
    PlanEdit result = edit;
    for (const auto& [parent, parts] : parents) {
      if (parts < 2 || book_.exhausted()) continue;
      PlanEdit other = result;
      std::erase_if(other.changes, [inside = parent + "/"](const Change& change) {
        return change.path.starts_with(inside);
      });
      other.add(in_fp32(parent));
      if (book_.passes(other)) result = std::move(other);
    }
    return result;
  }

  /// Tries one cheap change at a single node. For example, a wide result with narrow operands may
  /// work where a wide operator does not.
  PlanEdit single(const PlanEdit& edit) {
    if (edit.changes.size() < 2 || node_count(edit) > kFew) return edit;
    std::vector<PlanEdit> others;
    for (const Change& member : edit.changes) {
      if (member.kind != FixKind::operator_fp32) continue;
      for (const Change& change : cheaper_changes(member.path)) others.push_back(edit_of({change}));
    }
    const int found = book_.first_that_passes(others);
    return found < 0 ? edit : others[static_cast<size_t>(found)];
  }

  /// Replaces each fp32 node by the cheapest change that still cures.
  PlanEdit cheaper(PlanEdit edit) {
    const std::vector<Change> members = edit.changes;
    for (const Change& member : members) {
      if (member.kind != FixKind::operator_fp32) continue;
      std::vector<PlanEdit> others;
      for (const Change& cheap : cheaper_changes(member.path)) {
        PlanEdit other = edit;
        std::replace(other.changes.begin(), other.changes.end(), member, cheap);
        others.push_back(std::move(other));
      }
      const int found = book_.first_that_passes(others);
      if (found >= 0) edit = others[static_cast<size_t>(found)];
    }
    return edit;
  }

  std::vector<Change> cheaper_changes(const std::string& path) const {
    std::vector<Change> changes;
    const auto add = [&](FixKind kind) { changes.push_back({.kind = kind, .path = path}); };
    // The last step of a composite computes its result.
    const auto last = std::find_if(request_.layers.rbegin(), request_.layers.rend(),
                                   [&](const LayerInfo& each) { return is_in(each, path); });
    if (last == request_.layers.rend()) return changes;
    const LayerInfo* const layer = &*last;
    const NodePlan plan = resolve(request_.original, path, layer->op);
    if (has_bad_constant(path)) add(FixKind::constant);
    if (plan.accumulation.sums_in_format()) add(FixKind::accumulate_fp32);
    if (!full_precision(layer->write)) add(FixKind::store_fp32);
    if (const double power = prescale_for(path); power > 0.0) {
      changes.push_back({.kind = FixKind::prescale, .path = path, .value = power});
    }
    return changes;
  }

  /// Returns the power of two that moves the node's results into its format's range with a binade
  /// to spare. Returns 0 if nothing overflows or no such power exists.
  double prescale_for(const std::string& path) const {
    if (!evidence_) return 0.0;
    for (const SiteInfo& site : evidence_->info().sites) {
      if (site.path != path || site.role != Role::activation) continue;
      // After another overflow, only the reference shows how large the results really are.
      double largest = evidence_->run().total(evidence_->lane(), site.order).max_abs;
      if (const std::optional<int> theirs = evidence_->reference_site(site.order)) {
        const TensorStats& right = evidence_->run().total(evidence_->reference(), *theirs);
        largest = std::max(largest, static_cast<double>(right.max_abs));
      }
      if (!std::isfinite(largest) || largest < overflow_threshold(site.format)) continue;
      const int by = site.format.max_exponent() - std::ilogb(largest) - 1;
      if (by < 0 && moved_range(site.format, by)) return std::ldexp(1.0, by);
    }
    return 0.0;
  }

  /// Tries scaled operands for all nodes that overflow. They replace those nodes' own changes, and
  /// nodes in fp32 that only read them.
  PlanEdit prescaled(const PlanEdit& edit) {
    if (edit.changes.size() < 2 || book_.exhausted()) return edit;
    PlanEdit scaled, others;
    for (const Change& change : edit.changes) {
      const double power = change.path.empty() ? 0.0 : prescale_for(change.path);
      if (power > 0.0) {
        scaled.add({.kind = FixKind::prescale, .path = change.path, .value = power});
      } else {
        others.add(change);
      }
    }
    if (scaled.empty()) return edit;
    PlanEdit other = scaled;
    if (!book_.passes(scaled)) {
      other.add(others);
      if (others.empty() || !book_.passes(other)) return edit;
    }
    other = smaller(other);
    return other.changes.size() < edit.changes.size() ? other : edit;
  }

  /// Tries the nodes whose integers are too large for their format, and their neighbours, as one
  /// change.
  PlanEdit as_integers(const PlanEdit& edit) {
    if (!evidence_ || book_.exhausted()) return edit;
    const auto in_fp32_at = [&](const std::string& path) {
      return std::find_if(edit.changes.begin(), edit.changes.end(), [&](const Change& change) {
        return change.path == path &&
               (change.kind == FixKind::operator_fp32 || change.kind == FixKind::store_fp32);
      });
    };
    std::set<std::string> paths;
    bool too_large = false;
    for (size_t i = 0; i < evidence_->nodes().size(); ++i) {
      const std::string& path = evidence_->nodes()[i].path;
      const int node = static_cast<int>(i);
      if (in_fp32_at(path) == edit.changes.end() || !counts(*evidence_, node)) continue;
      const std::optional<Suspect> suspect = examine(*evidence_, node);
      too_large = too_large || (suspect && suspect->mechanism == Mechanism::integer_in_float);
      paths.insert(path);
      for (const std::string& next : neighbours(path)) paths.insert(next);
    }
    if (!too_large) return edit;
    Change integers{.kind = FixKind::keep_integer};
    PlanEdit other = edit;
    for (const LayerInfo& layer : request_.layers) {  // in execution order
      const auto found = in_fp32_at(layer.path);
      if (found == edit.changes.end() || !paths.contains(layer.path)) continue;
      if (!integers.path.empty()) integers.nodes.push_back(integers.path);
      integers.path = layer.path;
      std::erase(other.changes, *found);
    }
    other.add(integers);
    return book_.passes(other) ? other : edit;
  }

  bool has_bad_constant(const std::string& path) const {
    return evidence_ && reads_bad_constant(*evidence_, path);
  }

  /// Finds other answers that are not larger: one change near the cure, or another format.
  void find_alternatives(const PlanEdit& cure) {
    std::vector<PlanEdit> candidates;
    const auto add = [&](Change change) {
      const PlanEdit edit = edit_of({std::move(change)});
      if (std::find(candidates.begin(), candidates.end(), edit) == candidates.end() &&
          edit != cure) {
        candidates.push_back(edit);
      }
    };
    if (uses_fp16()) add({.kind = FixKind::format, .text = "bf16"});
    for (const Change& change : lane_changes(request_)) add(change);
    for (const Change& member : cure.changes) {
      if (member.path.empty()) continue;
      if (has_bad_constant(member.path)) add({.kind = FixKind::constant, .path = member.path});
      if (const double power = prescale_for(member.path); power > 0.0) {
        add({.kind = FixKind::prescale, .path = member.path, .value = power});
        add({.kind = FixKind::clamp, .path = member.path});
      }
      if (cure.changes.size() > 1) add(in_fp32(member.path));
      for (const std::string& path : neighbours(member.path)) add(in_fp32(path));
    }
    if (candidates.size() > kAlternatives) candidates.resize(kAlternatives);
    book_.expect(candidates);
    for (const PlanEdit& each : candidates) {
      if (book_.exhausted()) break;
      if (book_.passes(each)) result_.alternatives.push_back(each);
    }
    std::stable_sort(result_.alternatives.begin(), result_.alternatives.end(),
                     [&](const PlanEdit& a, const PlanEdit& b) {
                       const FixKind kind_a = a.changes.front().kind;
                       const FixKind kind_b = b.changes.front().kind;
                       return kind_a != kind_b ? kind_a < kind_b : is_cheaper(cost(a), cost(b));
                     });
  }

  /// Returns the nodes that a node reads and those that read it.
  std::vector<std::string> neighbours(const std::string& path) const {
    std::vector<std::string> paths;
    for (const LayerInfo& layer : request_.layers) {
      const bool reads =
          std::find(layer.inputs.begin(), layer.inputs.end(), path) != layer.inputs.end();
      if (reads) paths.push_back(layer.path);
      if (layer.path != path) continue;
      for (const std::string& input : layer.inputs) {
        const bool is_layer =
            std::any_of(request_.layers.begin(), request_.layers.end(),
                        [&](const LayerInfo& each) { return each.path == input; });
        if (is_layer) paths.push_back(input);
      }
    }
    return paths;
  }

  TrialBook& book_;
  const SearchRequest& request_;
  std::optional<LaneFacts> evidence_;
  SearchResult result_;
  PlanEdit grown_;              ///< the edit that evidence led to
  std::set<std::string> seen_;  ///< paths of nodes that were suspects
};

}  // namespace

bool is_doubtful(const RunView& run, std::span<const Finding> findings, int lane) {
  const Harm harm = harm_of(LaneFacts(run, lane));
  if (!harm.items.empty() || !harm.doubtful) return false;
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.lane == lane && finding.severity >= Severity::warning;
  });
}

SearchResult search(TrialBook& book, const SearchRequest& request) {
  return Searcher(book, request).run();
}

}  // namespace halfscope
