// SPDX-License-Identifier: MIT
#include "tests/zoo/metamorphic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>

#include "analysis/causes/evidence.h"
#include "analysis/rules/lane_facts.h"
#include "tests/zoo/trial.h"
#include "tests/zoo/variants.h"

namespace halfscope::zoo {
namespace {

/// Powers of two that data are made smaller by until nothing overflows any more.
constexpr int kSmaller[] = {-1, -2, -4, -6, -8, -12};
/// A sum must stall if it has this many times the terms that a format can count.
constexpr double kSurely = 4.0;

bool is_overflow(Mechanism mechanism) {
  return mechanism == Mechanism::forward_overflow || mechanism == Mechanism::gradient_overflow;
}

/// Returns whether the mechanism turns numbers into 0 or infinity, or counts them, so that labels
/// of one scale say little about another.
bool depends_on_scale(Mechanism mechanism) {
  using M = Mechanism;
  return is_overflow(mechanism) || mechanism == M::forward_flush || mechanism == M::constant ||
         mechanism == M::flushed_state || mechanism == M::gradient_flush ||
         mechanism == M::integer_in_float || mechanism == M::rank_disagreement;
}

RunView run_in(const std::filesystem::path& folder) { return RunView::open(folder / "run.hscope"); }

/// The nodes of a recorded run whose values become 0 in their format.
std::set<int> flushing(const RunView& run) {
  const LaneFacts lane(run, 1);
  std::set<int> nodes;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::forward || run.total(1, site.order).underflow == 0) continue;
    nodes.insert(lane.node_of(site.order));
  }
  return nodes;
}

/// Diagnosis of the unchanged case.
struct Original {
  Cure cure;
  std::set<int> flushing;
};

/// Found once.
const Original& original_of(const Case& which, const std::filesystem::path& folder) {
  static std::map<std::string, Original> known;
  const auto found = known.find(which.id);
  if (found != known.end()) return found->second;
  Original original{.cure = find_cure(which, which.right.at(0), folder), .flushing = {}};
  original.flushing = flushing(run_in(folder));
  return known[which.id] = std::move(original);
}

class Relation {
 public:
  Relation(const Case& which, std::filesystem::path folder, Pair& pair)
      : which_(which), plan_(which.right.at(0)), folder_(std::move(folder)), pair_(pair) {}

  /// Expects the same result: only names and orders differ.
  void same(const Case& variant) { expect_named(variant, plan_); }

  /// The numbers are different: harm is measured first.
  void measured(const Case& variant) { by_truth(variant, plan_); }

  /// An added layer counts as a cause if the lane with only this layer in its formats shows harm.
  void deeper(End end) {
    const Case variant = deepened(which_, end);
    const Setup setup = variant.make();
    const std::vector<std::string> added = added_layers(setup.model);
    std::vector<std::string> guilty;
    Stage stage(variant, folder_);
    // If settings of the lane do harm without any layer's formats, no layer is to blame.
    const bool any_layer = stage.truth(only(variant, setup.model.graph, "")).harm == Harm::none;
    for (const std::string& each : added) {
      const LaneChoice lane = only(variant, setup.model.graph, each);
      if (any_layer && stage.truth(lane).harm != Harm::none) guilty.push_back(each);
    }
    Case known = variant;
    known.make = [make = variant.make, guilty] {
      Setup changed = make();
      for (const std::string& each : guilty) changed.labels.root.push_back(each);
      return changed;
    };
    by_truth(known, plan_);
  }

  /// Overflow goes away with the data's magnitude, and only then.
  void smaller_data() {
    if (which_.about.mechanism != Mechanism::forward_overflow) {
      return leave_out("its mechanism is no overflow of the forward pass");
    }
    int last = 0;
    for (const int exponent : kSmaller) {
      const Case variant = rescaled(which_, exponent);
      const Harm harm = harm_in(variant, plan_);
      if (harm == Harm::real) {
        last = exponent;
        continue;
      }
      if (harm == Harm::unclear) continue;
      expect_healthy(variant, plan_);
      if (!beyond_format(recorded()).empty()) break;
      if (pair_.state != Pair::State::holds || last == 0) return;
      expect_named(rescaled(which_, last), plan_);
      return;
    }
    leave_out("what overflows does not scale with its data");
  }

  void larger_data() {
    if (which_.about.mechanism == Mechanism::forward_overflow) {
      // More may overflow now, and further up.
      const Case variant = rescaled(which_, 1);
      const Cure cure = find_cure(variant, plan_, folder_);
      return hold_against_magnitudes(cure);
    }
    if (depends_on_scale(which_.about.mechanism)) {
      return leave_out("other numbers become 0, infinite or whole at another scale");
    }
    const std::set<int> before = original_of(which_, folder_).flushing;
    by_truth(rescaled(which_, 1), plan_);
    if (pair_.state == Pair::State::left_out) return;
    const std::set<int> now = flushing(recorded());
    if (!std::includes(before.begin(), before.end(), now.begin(), now.end())) {
      leave_out("results of other nodes become 0 then");
    }
  }

  void other_format() {
    const std::string plan = in_other_format(which_, plan_);
    if (plan.empty()) return leave_out("there is no such plan in another format");
    if (which_.about.mechanism == Mechanism::stalled_sum) return stalls_by_count(plan);
    const bool to_bf16 = plan.find("bfloat16") != std::string::npos;
    if (!to_bf16 || !is_overflow(which_.about.mechanism)) {
      return leave_out("its mechanism does not say what another format does");
    }
    if (harm_in(which_, plan) == Harm::none) return expect_healthy(which_, plan);
    const Cure cure = find_cure(which_, plan, folder_);
    state(!is_overflow(cure.diagnosis.mechanism), "bf16 is said to overflow");
  }

 private:
  /// The lane with everything but that node in fp32.
  LaneChoice only(const Case& variant, const Graph& graph, const std::string& path) const {
    PlanEdit others;
    for (const Node& node : graph.nodes()) {
      if (node.path != path) others.keep(node.path, true);
    }
    LaneChoice lane = variant.lane(plan_);
    lane.plan = others.apply(lane.plan);
    return lane;
  }

  /// Nearly harmful counts as unclear, because HalfScope's tolerances differ from the zoo's.
  Harm harm_in(const Case& variant, const std::string& plan) const {
    const Truth truth = Stage(variant, folder_).truth(variant.lane(plan));
    const bool near = truth.harm == Harm::none && truth.error > 0.25 * variant.ok;
    return near ? Harm::unclear : truth.harm;
  }

  RunView recorded() const { return run_in(folder_); }

  /// The nodes at which the reference of a recorded run has values that the lane's formats do not
  /// have; what is narrowed for a node counts as its own.
  static std::set<int> beyond_format(const RunView& run) {
    const LaneFacts lane(run, 1);
    std::set<int> nodes;
    for (const SiteInfo& site : lane.info().sites) {
      const std::optional<int> theirs = lane.reference_site(site.order);
      if (site.phase != Phase::forward || !theirs || lane.reference() < 0) continue;
      const auto largest = static_cast<double>(run.total(lane.reference(), *theirs).max_abs);
      if (largest > site.format.max_finite()) nodes.insert(lane.node_of(site.order));
    }
    return nodes;
  }

  void leave_out(const std::string& why) {
    pair_.state = Pair::State::left_out;
    pair_.why = why;
  }

  void state(bool holds, const std::string& why) {
    pair_.state = holds ? Pair::State::holds : Pair::State::broken;
    pair_.why = holds ? "" : why;
  }

  void by_truth(const Case& variant, const std::string& plan) {
    const Harm harm = harm_in(variant, plan);
    if (harm == Harm::unclear) return leave_out("the harm is neither small nor large");
    if (harm == Harm::none) return expect_healthy(variant, plan);
    expect_named(variant, plan);
  }

  void expect_healthy(const Case& variant, const std::string& plan) {
    const Cure cure = find_cure(variant, plan, folder_);
    state(!cure.diagnosis.harmed, "healthy, but blamed: " + cure.diagnosis.cause);
  }

  /// The diagnosis must find as much as without the change.
  void expect_named(const Case& variant, const std::string& plan) {
    const Cure& before = original_of(which_, folder_).cure;
    const Cure now = find_cure(variant, plan, folder_);
    if (now.decoy_advised) return state(false, "a decoy is advised" + of(now));
    if (before.named && !now.named) return state(false, "the cause is not named" + of(now));
    if (before.proved && !now.proved) return state(false, "nothing is proved" + of(now));
    state(true, "");
  }

  static std::string of(const Cure& cure) {
    std::string text = cure_row(cure);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return fmt::format(": {} [{}] {}", cure.diagnosis.cause, text, cure.why_not);
  }

  /// The root must be a place whose values in the reference, or those it reads, are beyond the
  /// format, and nothing further up may be.
  void hold_against_magnitudes(const Cure& cure) {
    const RunView run = recorded();
    const LaneFacts lane(run, 1);
    const std::set<int> beyond = beyond_format(run);
    if (beyond.empty()) return leave_out("only values inside an operator are beyond the format");
    std::set<int> first = beyond;
    for (const int above : beyond) {
      const std::vector<bool> reached = lane.downstream(above);
      std::erase_if(first,
                    [&](int node) { return node != above && reached[static_cast<size_t>(node)]; });
    }
    const std::vector<Place>& roots = cure.diagnosis.root;
    const bool named = std::any_of(first.begin(), first.end(), [&](int node) {
      // If an input exceeds the format, the nodes that read it are to blame.
      for (const int planned : planned_nodes(lane, node)) {
        const std::string& path = lane.nodes()[static_cast<size_t>(planned)].path;
        const bool is_root = std::any_of(roots.begin(), roots.end(), [&](const Place& place) {
          return path == place.layer || path.starts_with(place.layer + "/");
        });
        if (is_root) return true;
      }
      return false;
    });
    if (!cure.proved) return state(false, "nothing is proved" + of(cure));
    state(named, "no root is where the first values are beyond the format" + of(cure));
  }

  /// A running total of equal terms in p bits stalls at 2^p of them.
  void stalls_by_count(const std::string& plan) {
    const Setup setup = which_.make();
    const double terms = terms_of(setup);
    if (terms == 0.0) return leave_out("its root is no sum of the forward pass");
    const FloatFormat format = which_.lane(plan).plan.defaults.write;
    const double counts = FloatFormat::power_of_two(format.mantissa_bits + 1);
    const Harm harm = Stage(which_, folder_).truth(which_.lane(plan)).harm;
    if (terms >= kSurely * counts && harm != Harm::real) {
      return state(false, fmt::format("{} terms in {} do no harm", terms, format_name(format)));
    }
    if (terms <= counts && harm == Harm::real) {
      return state(false, fmt::format("{} terms in {} do harm", terms, format_name(format)));
    }
    by_truth(which_, plan);
  }

  /// Terms of one sum at the root, by the sizes of what it reads and makes.
  static double terms_of(const Setup& setup) {
    const Graph& graph = setup.model.graph;
    for (const Node& node : graph.nodes()) {
      if (std::find(setup.labels.root.begin(), setup.labels.root.end(), node.path) ==
          setup.labels.root.end()) {
        continue;
      }
      const Shape& in = graph.value(node.inputs.at(0)).shape;
      const Shape& out = graph.value(node.outputs.at(0)).shape;
      if (node.op == "Gather" || in.empty()) return 0.0;
      const auto all = static_cast<double>(element_count(in));
      if (element_count(out) < element_count(in))
        return all / static_cast<double>(element_count(out));
      return static_cast<double>(in.back());
    }
    return 0.0;
  }

  const Case& which_;
  std::string plan_;
  std::filesystem::path folder_;
  Pair& pair_;
};

struct NamedChange {
  std::string name;
  std::function<void(Relation&, const Case&)> hold;
};

const std::vector<NamedChange>& changes() {
  static const std::vector<NamedChange> all{
      {"renamed", [](Relation& r, const Case& c) { r.same(renamed(c, Names::random)); }},
      {"misleading_names",
       [](Relation& r, const Case& c) { r.same(renamed(c, Names::misleading)); }},
      {"permuted", [](Relation& r, const Case& c) { r.same(permuted(c, 7)); }},
      {"layers_in_front", [](Relation& r, const Case&) { r.deeper(End::front); }},
      {"layers_behind", [](Relation& r, const Case&) { r.deeper(End::back); }},
      {"widened", [](Relation& r, const Case& c) { r.measured(widened(c)); }},
      {"reseeded", [](Relation& r, const Case& c) { r.measured(reseeded(c, 3)); }},
      {"reseeded_again", [](Relation& r, const Case& c) { r.measured(reseeded(c, 4)); }},
      {"smaller_data", [](Relation& r, const Case&) { r.smaller_data(); }},
      {"larger_data", [](Relation& r, const Case&) { r.larger_data(); }},
      {"other_format", [](Relation& r, const Case&) { r.other_format(); }},
  };
  return all;
}

const NamedChange& find_change(const std::string& name) {
  for (const NamedChange& each : changes()) {
    if (each.name == name) return each;
  }
  throw std::invalid_argument("no change is called " + name);
}

const char* state_name(Pair::State state) {
  return state == Pair::State::holds ? "holds" : state == Pair::State::broken ? "BROKEN" : "-";
}

}  // namespace

const std::vector<std::string>& change_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedChange& each : changes()) all.push_back(each.name);
    return all;
  }();
  return names;
}

Pair hold(const Case& which, const std::string& change, const std::filesystem::path& folder) {
  const auto begin = std::chrono::steady_clock::now();
  Pair pair{.case_id = which.id, .change = change};
  Relation relation(which, folder, pair);
  try {
    find_change(change).hold(relation, which);
  } catch (const std::invalid_argument& error) {
    pair.state = Pair::State::left_out;
    pair.why = error.what();
  }
  pair.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return pair;
}

std::string pair_row(const Pair& pair) {
  return fmt::format("{:<6} {:<18} {:<7} {:>6.1f} s  {}\n", pair.case_id, pair.change,
                     state_name(pair.state), pair.seconds, pair.why);
}

std::string pair_totals(const std::vector<Pair>& pairs) {
  std::map<std::string, std::map<Pair::State, int>> counts;
  for (const Pair& pair : pairs) {
    ++counts[pair.change][pair.state];
    ++counts["all"][pair.state];
  }
  std::string text;
  std::vector<std::string> names = change_names();
  names.emplace_back("all");
  for (const std::string& name : names) {
    if (!counts.contains(name)) continue;
    std::map<Pair::State, int>& of = counts[name];
    text +=
        fmt::format("{:<18} {} of {} hold, {} left out\n", name, of[Pair::State::holds],
                    of[Pair::State::holds] + of[Pair::State::broken], of[Pair::State::left_out]);
  }
  return text;
}

}  // namespace halfscope::zoo
