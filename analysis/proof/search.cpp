// SPDX-License-Identifier: MIT
#include "analysis/proof/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/rules/error_source.h"
#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/ops/ops.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr int kRounds = 8;
/// Suspects with less than this part of the first one's weight wait for the next round.
constexpr double kHeavy = 0.5;
/// How many other answers are tried.
constexpr int kAlternatives = 8;

bool is_narrow_format(const FloatFormat& format) {
  return format != kFp32 && kFp32.contains(format);
}
bool is_narrow_format(const std::optional<FloatFormat>& format) {
  return format && is_narrow_format(*format);
}

Change in_fp32(const std::string& path) { return {.kind = FixKind::operator_fp32, .path = path}; }

PlanEdit edit_of(std::vector<Change> changes) { return {.changes = std::move(changes)}; }

class Searcher {
 public:
  Searcher(TrialBook& book, const SearchRequest& request) : book_(book), request_(request) {}

  SearchResult run() {
    std::optional<PlanEdit> cure = find_cure();
    if (cure) {
      cure = merged(smaller(*cure));
      cure = single(*cure);
      cure = as_integers(smaller(cheaper(*cure)));
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
    if (!request_.advice.empty() && book_.passes(request_.advice)) return request_.advice;
    PlanEdit base = request_.advice;
    if (const std::optional<PlanEdit> found = grow(base)) return found;
    // What is cured may still have to search for its loss scale, and be behind for that.
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

  /// Whether nothing is wrong with results at equal weights, so that updates must be.
  bool forward_is_right() const {
    if (request_.evidence == nullptr) return false;
    const Harm harm = harm_of(LaneFacts(*request_.evidence, request_.lane));
    return std::all_of(harm.items.begin(), harm.items.end(), [](const HarmItem& item) {
      using Of = HarmItem::Of;
      return item.of != Of::output && item.of != Of::loss && item.of != Of::gradient;
    });
  }

  /// Whether the first recorded step was finite throughout and a later one was not: then updates
  /// did it.
  bool begins_right() const {
    if (request_.evidence == nullptr) return false;
    const LaneFacts lane(*request_.evidence, request_.lane);
    const std::vector<RecordedStep>& steps = lane.recorded();
    return steps.size() > 1 && steps.front().bad.empty() &&
           std::any_of(steps.begin(), steps.end(),
                       [](const RecordedStep& step) { return !step.bad.empty(); });
  }

  /// One change of the whole lane after the other, then all of them.
  std::optional<PlanEdit> try_lane(const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      if (book_.exhausted()) return std::nullopt;
      if (book_.passes(edit_of({change}))) return edit_of({change});
    }
    if (changes.size() > 1 && book_.passes(edit_of(changes))) return edit_of(changes);
    return std::nullopt;
  }

  /// Adds the suspects of the lane as it is with `edit`, and of what is left after that.
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
    const bool forward = !request_.trains || !forward_fine(lane);
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

  static bool forward_fine(const LaneFacts& lane) {
    const Harm harm = harm_of(lane);
    if (harm.items.empty()) return false;
    return std::none_of(harm.items.begin(), harm.items.end(), [](const HarmItem& item) {
      using Of = HarmItem::Of;
      return item.of == Of::output || item.of == Of::loss;
    });
  }

  static std::vector<std::string> paths_of(const LaneFacts& lane, int node) {
    std::vector<std::string> paths;
    for (const int each : planned_nodes(lane, node)) {
      paths.push_back(lane.nodes()[static_cast<size_t>(each)].path);
    }
    return paths;
  }

  /// Every node in fp32, without and with the changes of the whole lane; then halves of it.
  std::optional<PlanEdit> try_everything(const std::vector<Change>& of_lane) {
    std::vector<Change> nodes;
    for (const LayerInfo& layer : request_.layers) {
      if (is_narrow_format(layer.read) || is_narrow_format(layer.write) || layer.follows) {
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

  /// Delta debugging (Zeller and Hildebrandt 2002): takes away ever smaller parts as long as the
  /// rest still passes. Suspects stand last, so that the others go first.
  PlanEdit halved(std::vector<Change> changes) {
    std::stable_partition(changes.begin(), changes.end(),
                          [&](const Change& change) { return !seen_.contains(change.path); });
    size_t parts = 2;
    while (changes.size() > 1 && !book_.exhausted()) {
      const size_t size = (changes.size() + parts - 1) / parts;
      bool smaller = false;
      for (size_t from = 0; from < changes.size() && !book_.exhausted(); from += size) {
        std::vector<Change> rest = changes;
        const auto begin = rest.begin() + static_cast<int64_t>(from);
        rest.erase(begin, begin + static_cast<int64_t>(std::min(size, rest.size() - from)));
        if (rest.empty() || !book_.passes(edit_of(rest))) continue;
        changes = std::move(rest);
        parts = std::max<size_t>(parts - 1, 2);
        smaller = true;
        break;
      }
      if (smaller) continue;
      if (size == 1) break;
      parts = std::min(parts * 2, changes.size());
    }
    return edit_of(std::move(changes));
  }

  /// Takes out single members as long as the rest still cures.
  PlanEdit smaller(PlanEdit edit) {
    constexpr size_t kMany = 6;
    if (edit.changes.size() > kMany) edit = halved(edit.changes);
    for (bool dropped = true; dropped && !book_.exhausted();) {
      dropped = false;
      for (const PlanEdit& member : edit.members()) {
        if (book_.exhausted()) break;
        const PlanEdit rest = edit.without(member);
        if (rest.members().empty() || !book_.passes(rest)) continue;
        edit = rest;
        dropped = true;
      }
    }
    return edit;
  }

  /// Primitives of one composite become the composite, which is one change to make.
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
      std::erase_if(other.changes,
                    [&](const Change& change) { return change.path.starts_with(parent + "/"); });
      other.add(in_fp32(parent));
      try {
        if (book_.passes(other)) result = std::move(other);
      } catch (const Error& error) {  // it may be a scope, which no plan can name
        if (error.kind() != ErrorKind::usage) throw;
      }
    }
    return result;
  }

  /// One cheap change at one of the nodes, where that cures alone: a wide result beside operands
  /// that stay narrow may fit what a wide operator does not.
  PlanEdit single(const PlanEdit& edit) {
    constexpr size_t kFew = 6;
    if (edit.changes.size() < 2 || edit.changes.size() > kFew) return edit;
    for (const Change& member : edit.changes) {
      if (member.kind != FixKind::operator_fp32) continue;
      for (const Change& change : cheaper_changes(member.path)) {
        if (book_.exhausted()) return edit;
        const PlanEdit other = edit_of({change});
        if (book_.passes(other)) return other;
      }
    }
    return edit;
  }

  /// For each node in fp32 the cheapest change in its place that still cures.
  PlanEdit cheaper(PlanEdit edit) {
    const std::vector<Change> members = edit.changes;
    for (const Change& member : members) {
      if (member.kind != FixKind::operator_fp32) continue;
      for (const Change& cheap : cheaper_changes(member.path)) {
        if (book_.exhausted()) return edit;
        PlanEdit other = edit;
        std::replace(other.changes.begin(), other.changes.end(), member, cheap);
        if (!book_.passes(other)) continue;
        edit = other;
        break;
      }
    }
    return edit;
  }

  std::vector<Change> cheaper_changes(const std::string& path) const {
    std::vector<Change> changes;
    const auto add = [&](FixKind kind) { changes.push_back({.kind = kind, .path = path}); };
    const auto layer = std::find_if(request_.layers.begin(), request_.layers.end(),
                                    [&](const LayerInfo& each) { return each.path == path; });
    if (layer == request_.layers.end()) return changes;
    const NodePlan plan = resolve(request_.original, path, layer->op);
    if (has_bad_constant(path)) add(FixKind::constant);
    if (plan.accumulation.sums_in_format()) add(FixKind::accumulate_fp32);
    if (is_narrow_format(layer->write)) add(FixKind::store_fp32);
    if (const double power = prescale_for(path); power > 0.0) {
      changes.push_back({.kind = FixKind::prescale, .path = path, .value = power});
    }
    return changes;
  }

  /// The power of two that brings what the node writes into its format's range, with a binade to
  /// spare; 0 where nothing overflows, or no format holds it.
  double prescale_for(const std::string& path) const {
    if (request_.evidence == nullptr) return 0.0;
    for (const SiteInfo& site : request_.evidence->lane(request_.lane).sites) {
      if (site.path != path || site.role != Role::activation) continue;
      const TensorStats& stats = request_.evidence->total(request_.lane, site.order);
      if (stats.overflow == 0) continue;
      const int by = site.format.max_exponent() - std::ilogb(stats.max_abs) - 1;
      if (by < 0 && moved_range(site.format, by)) return std::ldexp(1.0, by);
    }
    return 0.0;
  }

  /// Nodes whose integers are too large for their format, as one change.
  PlanEdit as_integers(const PlanEdit& edit) {
    if (request_.evidence == nullptr || book_.exhausted()) return edit;
    const auto in_fp32_at = [&](const std::string& path) {
      return std::find_if(edit.changes.begin(), edit.changes.end(), [&](const Change& change) {
        return change.path == path &&
               (change.kind == FixKind::operator_fp32 || change.kind == FixKind::store_fp32);
      });
    };
    const LaneFacts lane(*request_.evidence, request_.lane);
    const std::vector<Suspect> suspects = forward_suspects(lane);
    const bool counts = std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& suspect) {
      return suspect.mechanism == Mechanism::integer_in_float &&
             in_fp32_at(lane.nodes()[static_cast<size_t>(suspect.node)].path) != edit.changes.end();
    });
    if (!counts) return edit;
    Change integers{.kind = FixKind::keep_integer};
    PlanEdit other = edit;
    for (const LayerInfo& layer : request_.layers) {  // in the order of execution
      const auto found = in_fp32_at(layer.path);
      if (found == edit.changes.end()) continue;
      if (!integers.path.empty()) integers.nodes.push_back(integers.path);
      integers.path = layer.path;
      std::erase(other.changes, *found);
    }
    if (integers.path.empty()) return edit;
    other.add(integers);
    return book_.passes(other) ? other : edit;
  }

  /// Whether the node reads a constant that its format makes 0 or infinite.
  bool has_bad_constant(const std::string& path) const {
    if (request_.evidence == nullptr) return false;
    const LaneInfo& lane = request_.evidence->lane(request_.lane);
    return std::any_of(lane.sites.begin(), lane.sites.end(), [&](const SiteInfo& site) {
      if (site.path != path || site.role != Role::input || !site.tensor.starts_with("constant")) {
        return false;
      }
      const TensorStats& stats = request_.evidence->total(request_.lane, site.order);
      return stats.overflow + stats.underflow > 0;
    });
  }

  /// Other answers that are not larger: one change near the cure, or another format.
  void find_alternatives(const PlanEdit& cure) {
    std::vector<PlanEdit> candidates;
    const auto add = [&](Change change) {
      const PlanEdit edit = edit_of({std::move(change)});
      if (std::find(candidates.begin(), candidates.end(), edit) == candidates.end() &&
          edit != cure) {
        candidates.push_back(edit);
      }
    };
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
    if (uses_fp16()) add({.kind = FixKind::format, .text = "bf16"});
    int tried = 0;
    for (const PlanEdit& each : candidates) {
      if (book_.exhausted() || ++tried > kAlternatives) return;
      if (book_.passes(each)) result_.alternatives.push_back(each);
    }
  }

  /// What a node reads, and what reads it.
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
  SearchResult result_;
  PlanEdit grown_;              ///< as far as evidence led
  std::set<std::string> seen_;  ///< paths of nodes that were suspects
};

/// Reductions over ranks that agree, add in fp32 or are fp32 altogether.
void add_reductions(const Reduction& before, std::vector<Change>& changes) {
  const auto add = [&](FixKind kind, const Reduction& after) {
    if (after != before) changes.push_back({.kind = kind, .text = reduction_text(after)});
  };
  Reduction after = before;
  after.vote = Reduction::Vote::all;
  add(FixKind::config, after);
  if (before.format == kFp32) return;
  Reduction in_order = after;
  in_order.algorithm = Reduction::Algorithm::all_to_all;
  add(FixKind::reduce_order, in_order);
  after.format = kFp32;
  add(FixKind::reduce_fp32, after);
}

}  // namespace

bool is_doubtful(const RunView& run, std::span<const Finding> findings, int lane) {
  const Harm harm = harm_of(LaneFacts(run, lane));
  if (!harm.items.empty() || !harm.doubtful) return false;
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.lane == lane && finding.severity >= Severity::warning;
  });
}

std::vector<Change> lane_changes(const SearchRequest& request) {
  const Plan& plan = request.original;
  std::vector<Change> changes;
  const auto add = [&](bool applies, FixKind kind, const char* text = "") {
    if (applies) changes.push_back({.kind = kind, .text = text});
  };
  const auto scales = [&](const auto& is) {
    return is(plan.defaults.scale) ||
           std::any_of(plan.rules.begin(), plan.rules.end(),
                       [&](const PlanRule& rule) { return rule.scale && is(*rule.scale); });
  };
  add(scales([](const TensorScale& scale) {
        return scale.kind == TensorScale::Kind::block && scale.rule != ScaleRule::up;
      }),
      FixKind::scale_round_up);
  add(scales([](const TensorScale& scale) { return scale.unguarded && scale.amax_floor == 0.0f; }),
      FixKind::amax_floor);
  if (!request.trains) return changes;
  add(is_narrow_format(plan.schedule), FixKind::schedule_fp32);
  if (request.ranks > 1) add_reductions(plan.reduction.value_or(request.reduction), changes);
  const FloatFormat storage = plan.storage;
  const bool state_is_narrow = is_narrow_format(plan.state) ||
                               (!plan.state && is_narrow_format(request.state_format)) ||
                               is_narrow_format(storage);
  if (request.loss_scale) {
    changes.push_back({.kind = FixKind::loss_scale, .value = *request.loss_scale});
  }
  add(is_narrow_format(plan.gradient_sum) ||
          (!plan.gradient_sum && is_narrow_format(request.sum_format)),
      FixKind::gradient_sum_fp32);
  add(is_narrow_format(plan.clip), FixKind::clip_fp32);
  add(is_narrow_format(plan.update_compute), FixKind::update_fp32);
  add(is_narrow_format(plan.average_compute) || is_narrow_format(plan.average),
      FixKind::average_fp32);
  add(state_is_narrow, FixKind::state_fp32);
  add(is_narrow_format(storage), FixKind::weights_fp32);
  add(scales([](const TensorScale& scale) { return scale.any(); }), FixKind::stochastic_rounding,
      "gradients");
  add(is_narrow_format(storage), FixKind::stochastic_rounding, "weights");
  return changes;
}

namespace {

/// Whether the path is the member's, one of its primitives', or data that only it reads.
bool belongs(const LaneFacts& lane, int node, const std::string& member) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (own.layer >= 0) return own.path == member || own.path.starts_with(member + "/");
  return std::any_of(own.readers.begin(), own.readers.end(), [&](int reader) {
    const std::string& path = lane.nodes()[static_cast<size_t>(reader)].path;
    return path == member || path.starts_with(member + "/");
  });
}

/// An error that only later operators make large.
Cause passed_on(const LaneFacts& lane, const Change& member) {
  Cause cause{.layer = member.path, .mechanism = Mechanism::early_rounding, .weight = 0.4};
  const Harm harm = harm_of(lane);
  const LayerInfo* part = nullptr;  // the layer, or the last step of a composite
  for (const LayerInfo& layer : lane.info().layers) {
    if (layer.path == member.path || layer.path.starts_with(member.path + "/")) part = &layer;
  }
  const std::string format = part == nullptr ? "few bits" : format_name(part->write);
  const bool has_steps = part != nullptr && part->path != member.path;
  cause.text = fmt::format("{} rounds {} to {}", member.path,
                           has_steps ? "the results of its steps" : "its result", format);
  if (member.kind == FixKind::accumulate_fp32) {
    cause.mechanism = Mechanism::stalled_sum;
    cause.weight = 0.9;
    cause.text = fmt::format("{} sums in {}, where small terms stop counting", member.path, format);
    return cause;
  }
  for (size_t node = 0; node < lane.nodes().size(); ++node) {
    if (lane.nodes()[node].path != member.path) continue;
    const int zeros = cancelled_site(lane, static_cast<int>(node));
    if (zeros < 0) break;
    cause.weight = 0.8;
    cause.text +=
        fmt::format(", and {} then becomes 0 where it is not 0 in fp32", lane.site(zeros).path);
    return cause;
  }
  if (harm.items.empty()) return cause;
  const std::optional<ErrorSource> growth = grows_error(lane, harm);
  if (!growth || lane.site(growth->site).path == member.path) {
    cause.text += ", and the next steps need the bits that this drops";
    return cause;
  }
  const std::string& worse = lane.site(growth->site).path;
  cause.text += std::isfinite(growth->after)
                    ? fmt::format(", and {} is then {} off", worse, percent(growth->after))
                    : fmt::format(", and {} is then not finite", worse);
  return cause;
}

}  // namespace

std::vector<Cause> find_causes(TrialBook& book, const PlanEdit& edit) {
  std::vector<Cause> causes;
  for (const Change& member : edit.changes) {
    if (member.path.empty()) continue;
    PlanEdit rest = edit;
    std::erase(rest.changes, member);
    const std::optional<RunView> run = book.record(rest);
    if (!run) break;
    const LaneFacts lane(*run, run->lane_count() - 1);
    std::optional<Suspect> worst;
    const auto is_of_member = [&](int node) {
      return belongs(lane, node, member.path) ||
             std::any_of(member.nodes.begin(), member.nodes.end(),
                         [&](const std::string& path) { return belongs(lane, node, path); });
    };
    for (size_t node = 0; node < lane.nodes().size(); ++node) {
      if (!is_of_member(static_cast<int>(node))) continue;
      std::optional<Suspect> found = examine(lane, static_cast<int>(node));
      if (found && (!worst || found->weight > worst->weight)) worst = std::move(found);
    }
    if (!worst) {
      for (Suspect& each : backward_suspects(lane)) {
        if (!belongs(lane, each.node, member.path)) continue;
        worst = std::move(each);
        break;
      }
    }
    if (!worst) {
      causes.push_back(passed_on(lane, member));
      continue;
    }
    const int layer = worst->node;
    causes.push_back({.layer = member.nodes.empty() ? member.path
                                                    : lane.nodes()[static_cast<size_t>(layer)].path,
                      .site = lane.site(worst->site).name(),
                      .mechanism = worst->mechanism,
                      .weight = worst->weight,
                      .text = worst->text});
  }
  return causes;
}

SearchResult search(TrialBook& book, const SearchRequest& request) {
  return Searcher(book, request).run();
}

}  // namespace halfscope
