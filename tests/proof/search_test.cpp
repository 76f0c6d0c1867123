// SPDX-License-Identifier: MIT
// Searches on networks whose cure can be worked out by hand.
#include "analysis/proof/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>
#include <utility>

#include "analysis/memory_sink.h"
#include "analysis/proof/proof.h"
#include "analysis/proof/side_by_side.h"
#include "analysis/proof/trial_book.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "core/train/runner.h"
#include "emulation/backends.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

const std::atomic<bool> kGoOn{false};

/// Rows of eight numbers between 1 and 2.
Dataset rows(int64_t samples, float size = 1.0f) {
  Dataset set{.name = "rows", .sample_shape = {}, .train = {}, .test = {}};
  SampleArray array{.name = "x", .sample_shape = {8}, .samples = samples};
  for (int64_t i = 0; i < samples * 8; ++i) {
    array.reals.push_back(size * (1.0f + 0.125f * static_cast<float>((i * 5) % 8)));
  }
  set.test.arrays.push_back(std::move(array));
  return set;
}

/// A network of one input [4, 8].
struct Sketch {
  Model model;
  ValueId x = kNone;

  Sketch() { x = model.graph.add_input("x", {4, 8}); }
  ValueId op(const std::string& path, const std::string& op, std::vector<ValueId> inputs,
             Attributes attributes = {}) {
    return model.graph.add1(op, path, std::move(inputs), std::move(attributes));
  }
  ValueId times(const std::string& path, ValueId value, float factor) {
    return op(path, "Mul",
              {value, model.graph.add_constant(Tensor{{8}, std::vector<float>(8, factor)})});
  }
  Model done(ValueId output) {
    model.name = "sketch";
    model.outputs = {{"y", output}};
    return std::move(model);
  }
};

/// Runs the network under `plan` beside fp32 and searches for what cures it.
struct Search {
  Search(const Model& network, const Plan& plan, const Dataset& data, TrialBudget budget = {},
         std::vector<TriedEdit> tried = {}, int* runs = nullptr) {
    const RunnerConfig config{
        .lanes = with_references({{.plan = preset_plan("float32").value(),
                                   .scaler = {},
                                   .backend = &emulation_backend()},
                                  {.plan = plan, .scaler = {}, .backend = &emulation_backend()}}),
        .errors = {.enabled = true}};
    Runner runner(network, config, data);
    MemorySink sink;
    sink.begin(runner.describe());
    runner.run(&sink, {}, kGoOn);
    InferenceProofRequest request{.run = config,
                                  .network = [&] { return network; },
                                  .original = plan,
                                  .advice = {.lane = 1, .plan_json = plan_to_json(plan)},
                                  .backend = &emulation_backend()};
    request.search = {.on = true, .budget = budget, .evidence = &sink.view(), .lane = 1};
    request.search.tried = std::move(tried);
    request.search.on_trial = [this](const std::vector<TriedEdit>& all) { kept = all; };
    const auto count = [runs](const std::string&, int number, const StepRow&) {
      if (runs != nullptr) *runs = std::max(*runs, number);
    };
    proof = prove(request, data, count, kGoOn).value();
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Change& change : proof.edit.changes) all.push_back(change.name());
    return all;
  }

  Proof proof;
  std::vector<TriedEdit> kept;
};

Plan half() { return preset_plan("float16").value(); }

/// 1 to 2, made 1e5 times as large and brought back: the result between has to stay in fp32, and
/// the next operator has to read it so.
Model one_overflow() {
  Sketch net;
  const ValueId large = net.times("up", net.op("first", "Neg", {net.x}), 1e5f);
  return net.done(net.op("last", "Neg", {net.times("down", large, 1e-5f)}));
}

TEST(Search, FindsBothSidesOfAnOverflow) {
  const Search found(one_overflow(), half(), rows(8));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  EXPECT_THAT(found.names(), UnorderedElementsAre("up", "down"));
  ASSERT_THAT(found.proof.causes, SizeIs(2));
  for (const Cause& cause : found.proof.causes) {
    // The number 1e5 is too large for fp16 as well.
    EXPECT_TRUE(cause.mechanism == Mechanism::forward_overflow ||
                cause.mechanism == Mechanism::constant)
        << cause.text;
  }
}

TEST(Search, FindsTwoFaultsThatHideEachOther) {
  Sketch net;
  const auto fault = [&](const std::string& name, ValueId value) {
    const ValueId large = net.op(name + "_up", "Mul", {net.op(name + "_a", "Exp", {value}), value});
    const ValueId power = net.op(name + "_power", "Mul", {large, large});
    const ValueId more = net.op(name + "_more", "Mul", {power, power});
    return net.op(name + "_log", "Log", {more});
  };
  // exp(2) * 2 = 15, to the fourth 4.8e4; twice as much is 7.7e5: beyond 65504.
  const ValueId first = fault("a", net.op("twice", "Add", {net.x, net.x}));
  const ValueId second =
      fault("b", net.op("third", "Div", {first, net.model.graph.add_constant(4.0f)}));
  const Search found(net.done(second), half(), rows(8));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  EXPECT_THAT(found.proof.tried, testing::Not(IsEmpty()));
  // Both powers are scaled, which their logarithms undo; the second one's square is too large, too.
  std::vector<std::string> paths;
  for (const Change& change : found.proof.edit.changes) paths.push_back(change.path);
  EXPECT_THAT(paths, UnorderedElementsAre("a_more", "b_more", "b_power"));
}

TEST(Search, PutsASafeConstantBeforeFp32) {
  // x / max(x - x, 1e-12) where x - x is 0: in fp16 1e-12 is 0, and 0 / 0 is NaN.
  Sketch net;
  const ValueId zero = net.op("zero", "Sub", {net.x, net.x});
  const ValueId guard = net.op("guard", "Max", {zero, net.model.graph.add_constant(1e-12f)});
  const ValueId share = net.op("share", "Div", {zero, guard});
  Plan plan = half();
  plan.defaults.stagewise = true;
  const Search found(net.done(net.op("sum", "Add", {share, net.x})), plan, rows(8));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  EXPECT_THAT(found.names(), ElementsAre("constant guard"));
  ASSERT_THAT(found.proof.causes, SizeIs(1));
  EXPECT_EQ(found.proof.causes[0].mechanism, Mechanism::constant);
}

TEST(Search, WidensASumThatStalls) {
  // 8 * 512 terms of 1 to 2, summed in bf16: beyond 256 they change nothing.
  Sketch net;
  ValueId wide =
      net.op("repeat", "Concat", std::vector<ValueId>(512, net.x), {{"axis", int64_t{1}}});
  const ValueId sum = net.op("sum", "ReduceSum", {wide},
                             {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}});
  Plan plan = preset_plan("bfloat16").value();
  plan.defaults.accumulation = Accumulation::format;
  const Search found(net.done(net.op("out", "Neg", {sum})), plan, rows(8));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  EXPECT_THAT(found.names(), ElementsAre("accumulate_fp32 sum"));
  ASSERT_THAT(found.proof.causes, SizeIs(1));
  EXPECT_EQ(found.proof.causes[0].mechanism, Mechanism::stalled_sum);
}

TEST(Search, ScalesOperandsWhereAResultAloneIsTooLarge) {
  // Values up to 375 are squared, giving 140625 or 2^17.1, and scaled back at once. In fp32, both
  // operators must change. Kept times 2^-3, with a binade to spare, the square fits and its reader
  // undoes the scaling.
  Sketch net;
  const ValueId side = net.times("side", net.x, 200.0f);
  const ValueId square = net.op("square", "Mul", {side, side});
  const Model model = net.done(net.op("last", "Neg", {net.times("down", square, 0x1p-8f)}));
  const Search found(model, half(), rows(8));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  EXPECT_THAT(found.names(), ElementsAre("prescale square 0.125"));
  ASSERT_THAT(found.proof.causes, SizeIs(1));
  EXPECT_EQ(found.proof.causes[0].layer, "square");
  EXPECT_EQ(found.proof.causes[0].mechanism, Mechanism::forward_overflow);
}

TEST(Search, OffersAClampBesideAnFp32Result) {
  // The square again, in a softmax over one large score and many far below it: 65504 wins as well.
  Sketch net;
  std::vector<float> factors(8, 1.0f);
  factors[3] = 400.0f;
  const ValueId side =
      net.op("side", "Mul", {net.x, net.model.graph.add_constant(Tensor{{8}, factors})});
  const ValueId square = net.op("square", "Mul", {side, side});
  Plan plan = half();
  plan.rules.push_back({.path = "chances", .op = "", .read = kFp32, .write = kFp32});
  const Model model = net.done(net.op("chances", "Softmax", {square}, {{"axis", int64_t{1}}}));
  const Search found(model, plan, rows(8));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  EXPECT_THAT(found.names(), ElementsAre("store_fp32 square"));
  std::vector<std::string> others;
  for (const PlanEdit& each : found.proof.alternatives) others.push_back(each.member_name());
  EXPECT_THAT(others, testing::Contains("clamp square"));
  EXPECT_THAT(others, testing::Contains(testing::StartsWith("prescale square")));
}

TEST(Search, KeepsIntegersAsOneChange) {
  // 3000 to 5625 in steps of 375, plus 1, less themselves: 1. fp16 has every fourth integer there.
  Sketch net;
  const ValueId count = net.op(
      "count", "Add", {net.x, net.model.graph.add_constant(Tensor{{8}, {1, 1, 1, 1, 1, 1, 1, 1}})});
  const Search found(net.done(net.op("last", "Neg", {net.op("rest", "Sub", {count, net.x})})),
                     half(), rows(8, 3000.0f));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  ASSERT_THAT(found.proof.edit.changes, SizeIs(1)) << found.proof.text;
  const Change& change = found.proof.edit.changes[0];
  EXPECT_EQ(change.kind, FixKind::keep_integer);
  EXPECT_EQ(change.path, "rest");
  EXPECT_THAT(change.nodes, ElementsAre("count"));
  ASSERT_THAT(found.proof.causes, SizeIs(1));
  EXPECT_EQ(found.proof.causes[0].mechanism, Mechanism::integer_in_float);
}

TEST(Search, OffersOfTheLaneFollowItsPlan) {
  SearchRequest request{.original = half(), .trains = true};
  const auto offers = [&](FixKind kind) {
    const std::vector<Change> all = lane_changes(request);
    return std::any_of(all.begin(), all.end(),
                       [&](const Change& change) { return change.kind == kind; });
  };
  EXPECT_FALSE(offers(FixKind::schedule_fp32));
  EXPECT_FALSE(offers(FixKind::amax_floor));
  request.original.schedule = kFp16;
  request.original.defaults.scale = parse_scale("current").value();
  EXPECT_TRUE(offers(FixKind::schedule_fp32));
  EXPECT_FALSE(offers(FixKind::amax_floor)) << "scales have their guard";
  request.original.defaults.scale = parse_scale("current:unguarded").value();
  EXPECT_TRUE(offers(FixKind::amax_floor));
  request.original = PlanEdit::of(FixKind::amax_floor).apply(request.original);
  EXPECT_FALSE(offers(FixKind::amax_floor));
}

/// Two products beyond 65504, each brought back by its reader.
Model two_overflows() {
  Sketch net;
  const ValueId first = net.times("down_a", net.times("up_a", net.x, 0x1p15f), 0x1p-15f);
  const ValueId second = net.op("between", "Neg", {first});
  return net.done(net.times("down_b", net.times("up_b", second, -0x1p15f), 0x1p-15f));
}

TEST(Search, ScalesAllNodesThatOverflowInsteadOfTheirReaders) {
  // 2^15 to 2^16 fits, and twice that does not: x up to 1.875 * 1.5.
  const Search found(two_overflows(), half(), rows(8, 1.5f));
  EXPECT_TRUE(found.proof.holds) << found.proof.text;
  ASSERT_THAT(found.proof.edit.changes, SizeIs(2)) << testing::PrintToString(found.names());
  for (const Change& change : found.proof.edit.changes) {
    EXPECT_EQ(change.kind, FixKind::prescale) << change.name();
  }
}

TEST(Search, FindsNoCureWhereFp32HasNone) {
  Sketch net;
  const ValueId root = net.op("root", "Neg", {net.x});
  const Search found(net.done(root), half(), rows(8));
  EXPECT_TRUE(found.proof.trials.at(0).passes) << "nothing is wrong";
  EXPECT_TRUE(found.proof.edit.empty());
  EXPECT_THAT(found.proof.tried, SizeIs(1)) << "the lane as it is, and nothing else";
}

/// x times a weight, and divided by it again.
Model one_weight(float weight, const std::string& name) {
  Sketch net;
  const ValueId w = net.model.graph.add_variable(name, {8}, {});
  net.model.initial[name] = Tensor{{8}, std::vector<float>(8, weight)};
  const ValueId scaled = net.op("scaled", "Mul", {net.x, w});
  return net.done(net.op("back", "Mul", {scaled, net.model.graph.add_constant(1.0f / weight)}));
}

TEST(Search, SeesWeightsThatAreLostAsTheyAreStored) {
  // The second name is that of no node.
  for (const auto& [weight, mechanism, name] :
       {std::tuple{0x1p-30f, Mechanism::forward_flush, "scaled.weight"},
        {0x1p20f, Mechanism::forward_overflow, "scaled.weight"},
        {0x1p-30f, Mechanism::forward_flush, "w3"},
        {0x1p20f, Mechanism::forward_overflow, "w3"}}) {
    SCOPED_TRACE(std::string(name) + " of " + std::to_string(weight));
    const Search found(one_weight(weight, name), half(), rows(8));
    EXPECT_TRUE(found.proof.holds) << found.proof.text;
    EXPECT_THAT(found.names(), UnorderedElementsAre("scaled", "back"));
    const auto cause = std::find_if(found.proof.causes.begin(), found.proof.causes.end(),
                                    [](const Cause& each) { return each.layer == "scaled"; });
    ASSERT_NE(cause, found.proof.causes.end());
    EXPECT_EQ(cause->mechanism, mechanism) << cause->text;
    const std::string owner = std::string(name) == "w3" ? "w3" : "scaled";
    EXPECT_THAT(cause->text, testing::HasSubstr(owner + " has weights that ")) << cause->text;
  }
}

TEST(Search, EndsWithItsBudget) {
  const Search whole(one_overflow(), half(), rows(8));
  const Search some(one_overflow(), half(), rows(8), {.trials = 2});
  EXPECT_LT(some.proof.tried.size(), whole.proof.tried.size());
  EXPECT_TRUE(some.proof.exhausted);
  EXPECT_FALSE(whole.proof.exhausted);
}

TEST(Search, RunsNothingTwice) {
  const Search first(one_overflow(), half(), rows(8));
  ASSERT_GT(first.kept.size(), 3u);
  std::vector<TriedEdit> known = read_tried(tried_json(first.kept));
  // The original lane still runs again, because it has to repeat what was recorded.
  ASSERT_TRUE(known.front().edit.empty());
  known.front().passes = true;
  int asked = 0;
  Search again(one_overflow(), half(), rows(8), {}, known, &asked);
  EXPECT_EQ(again.names(), first.names());
  EXPECT_EQ(again.proof.text, first.proof.text);
  EXPECT_EQ(again.proof.tried.size(), first.proof.tried.size());
  EXPECT_EQ(asked, 1);
  const auto trials = [](const Proof& proof) {
    return nlohmann::json::parse(proof_json(proof)).at("trials");
  };
  EXPECT_EQ(trials(again.proof), trials(first.proof));
}

TEST(Search, KeepsAllThatATrialCameTo) {
  const TriedEdit tried{.edit = PlanEdit::in_fp32({"conv2"}),
                        .gap = 0.5,
                        .passes = true,
                        .skipped = 7,
                        .calibration_skips = 5,
                        .last_scale = 2048.0,
                        .why = "the gradient of conv2 is 12% off"};
  const std::vector<TriedEdit> read = read_tried(tried_json({tried}));
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_EQ(read[0].edit, tried.edit);
  EXPECT_EQ(read[0].gap, tried.gap);
  EXPECT_TRUE(read[0].passes);
  EXPECT_EQ(read[0].skipped, 7);
  EXPECT_EQ(read[0].calibration_skips, 5);
  EXPECT_EQ(read[0].last_scale, 2048.0);
  EXPECT_EQ(read[0].why, tried.why);
}

TEST(Search, FindsTheSameOnAnyNumberOfCores) {
  const int before = omp_get_max_threads();
  std::vector<std::string> proofs;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    proofs.push_back(proof_json(Search(one_overflow(), half(), rows(8)).proof));
    proofs.push_back(proof_json(Search(one_overflow(), half(), rows(8), {.trials = 6}).proof));
  }
  omp_set_num_threads(before);
  for (size_t i = 2; i < proofs.size(); ++i) EXPECT_EQ(proofs[i], proofs[i % 2]) << i;
}

/// Trials that take no time, and count what is run.
class CountedTrials final : public TrialRunner {
 public:
  std::string prepare(const LaneConfig&, Proof&) override { return ""; }
  int at_once() const override { return 4; }
  Outcome run(const LaneConfig& lane, bool) override {
    ++runs;
    if (!lane.plan.rules.empty() && lane.plan.rules.back().path == "bad") throw Error("bad trial");
    Outcome outcome;
    outcome.trial.passes = lane.plan.rules.size() > 1;
    return outcome;
  }
  std::optional<RunView> record(const LaneConfig&) override { return std::nullopt; }
  std::string distance(const Outcome&) const override { return ""; }
  std::string allowed(const Proof&) const override { return ""; }
  std::string failure(const Outcome&, const Proof&) const override { return ""; }
  std::string proved() const override { return ""; }
  std::string healthy(const std::string&) const override { return ""; }
  std::string hint(const Outcome&) const override { return ""; }

  std::atomic<int> runs{0};
};

TEST(TrialBook, TellsChangesApartThatHaveOneName) {
  CountedTrials trials;
  TrialBook book({.plan = half(), .scaler = {}, .backend = nullptr}, trials, kGoOn, {});
  const auto integers = [](std::vector<std::string> nodes) {
    return PlanEdit{.changes = {{.kind = FixKind::keep_integer, .path = "a", .nodes = nodes}}};
  };
  EXPECT_FALSE(book.passes(integers({})));
  EXPECT_TRUE(book.passes(integers({"b"}))) << "two nodes are two rules";
  EXPECT_FALSE(book.passes(integers({})));
  EXPECT_EQ(trials.runs, 2);
}

TEST(TrialBook, CountsTrialsWhenTheyAreAskedFor) {
  CountedTrials trials;
  TrialBook book({.plan = half(), .scaler = {}, .backend = nullptr}, trials, kGoOn, {.trials = 3});
  const std::vector<PlanEdit> edits{PlanEdit::in_fp32({"a"}), PlanEdit::in_fp32({"b"}),
                                    PlanEdit::in_fp32({"bad"}), PlanEdit::in_fp32({"c"})};
  book.expect(edits);
  EXPECT_EQ(trials.runs, 3) << "no more than the budget";
  EXPECT_EQ(book.trials(), 0);
  EXPECT_FALSE(book.passes(edits[1]));
  EXPECT_EQ(trials.runs, 3);
  EXPECT_EQ(book.trials(), 1);
  ASSERT_THAT(book.tried(), SizeIs(1));
  EXPECT_EQ(book.tried()[0].edit, edits[1]);
  // An error on another thread is reported here, and only if its result is requested.
  EXPECT_THROW(book.passes(edits[2]), Error);
}

TEST(SideBySide, KeepsToTheMemory) {
  EXPECT_EQ(trials_that_fit(0), 1);
  EXPECT_EQ(trials_that_fit(int64_t{1} << 60), 1);
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  EXPECT_EQ(trials_that_fit(1), 3);
  omp_set_num_threads(64);
  EXPECT_EQ(trials_that_fit(1), 8);
  omp_set_num_threads(before);
}

TEST(SideBySide, DoesEverythingOnceAndSharesTheThreads) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(4);
  std::vector<std::atomic<int>> done(9);
  std::atomic<int> now{0}, most{0}, threads{0};
  side_by_side(done.size(), 2, [&](size_t i) {
    const int at_once = ++now;
    for (int seen = most; at_once > seen && !most.compare_exchange_weak(seen, at_once);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    threads = omp_get_max_threads();
    ++done[i];
    --now;
  });
  EXPECT_EQ(omp_get_max_threads(), 4) << "the caller keeps its own";
  omp_set_num_threads(before);
  for (const std::atomic<int>& each : done) EXPECT_EQ(each, 1);
  EXPECT_EQ(most, 2);
  EXPECT_EQ(threads, 2);
}

}  // namespace
}  // namespace halfscope::test
