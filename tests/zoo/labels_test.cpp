// SPDX-License-Identifier: MIT
// The labels of the zoo, checked by running: under its plan a failure does harm, with the smallest
// fix of its label it does not, and without any part of that fix it does again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "core/lower/weight_average.h"
#include "tests/zoo/trial.h"

namespace halfscope::zoo {
namespace {

/// The lane with these changes.
LaneChoice changed(LaneChoice lane, const PlanEdit& edit) {
  lane.plan = edit.apply(lane.plan);
  if (const std::optional<double> scale = edit.loss_scale()) {
    lane.scaler = {.kind = LossScalerConfig::Kind::constant, .initial = static_cast<float>(*scale)};
  }
  return lane;
}

/// Same operators; each of them sums in fp32 and rounds once.
LaneChoice fused(LaneChoice lane) {
  lane.plan.defaults.stagewise = false;
  accumulate_in(lane.plan, Accumulation::fp32);
  for (PlanRule& rule : lane.plan.rules) rule.stagewise.reset();
  return lane;
}

/// The case with as many steps as show what it shows in a moment.
Case quick(Case which) {
  which.make = [make = which.make] {
    Setup setup = make();
    int64_t each = 200 * (setup.train.micro_batches * setup.train.ranks - 1);
    for (const SampleArray& array : setup.data.train.arrays)
      each += setup.train.batch * element_count(array.sample_shape);
    constexpr int64_t kMost = 200'000;
    if (each > 0)
      setup.train.steps = std::min(setup.train.steps, std::max<int64_t>(4, kMost / each));
    return setup;
  };
  return which;
}

std::vector<std::string> ids_where(bool (*wanted)(const Case&)) {
  std::vector<std::string> ids;
  for (const Case& each : all_cases()) {
    if (wanted(each)) ids.push_back(each.id);
  }
  return ids;
}

std::vector<std::string> failures() {
  return ids_where([](const Case& each) { return each.fails; });
}

/// Failures whose documented fix is another network.
std::vector<std::string> repaired() {
  return ids_where([](const Case& each) { return static_cast<bool>(each.repaired); });
}

/// A case and the data that all its tests share.
struct Staged {
  explicit Staged(Case given) : which(std::move(given)), stage(which, {}) {}

  Case which;
  Stage stage;
};

class Labelled : public testing::TestWithParam<std::string> {
 protected:
  const Case& which() const { return staged().which; }
  const Labels& labels() const { return staged().stage.setup().labels; }
  const Graph& graph() const { return staged().stage.setup().model.graph; }
  LaneChoice lane() const { return which().lane(which().right.at(0)); }
  bool does_harm(const LaneChoice& lane) { return staged().stage.truth(lane).harm == Harm::real; }

 private:
  /// Kept, as its reference takes longer than most tests.
  static Staged& staged() {
    static std::map<std::string, std::unique_ptr<Staged>> all;
    std::unique_ptr<Staged>& each = all[GetParam()];
    if (!each) each = std::make_unique<Staged>(quick(find_case(GetParam())));
    return *each;
  }
};

TEST_P(Labelled, SmallestFixHelpsAndNoPartOfItDoes) {
  EXPECT_TRUE(does_harm(lane()));
  const std::vector<Change>& changes = labels().fix.changes;
  ASSERT_FALSE(changes.empty());
  EXPECT_FALSE(does_harm(changed(lane(), labels().fix)));
  for (size_t i = 0; i < changes.size() && changes.size() > 1; ++i) {
    PlanEdit rest = labels().fix;
    rest.changes.erase(rest.changes.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(does_harm(changed(lane(), rest))) << changes[i].name() << " is not needed";
  }
}

TEST_P(Labelled, ShowsWithoutStagewiseRoundingUnlessItSaysSo) {
  EXPECT_EQ(!does_harm(fused(lane())), which().about.stagewise);
}

/// For ranks whose sum loses its terms: another order of the same numbers, and the same order in
/// fp32. For ranks that disagree, the sum is right as it is.
TEST(RankLabels, EitherReductionHelpsWhereTheSumIsWrong) {
  for (const char* id : {"F22r", "F43", "F49"}) {
    SCOPED_TRACE(id);
    const Case which = quick(find_case(id));
    Stage stage(which, {});
    const bool of_sum = which.about.mechanism == Mechanism::gradient_sum;
    for (const FixKind kind : {FixKind::reduce_order, FixKind::reduce_fp32}) {
      LaneChoice lane = which.lane(which.right.at(0));
      Reduction& how = *lane.plan.reduction;
      if (kind == FixKind::reduce_fp32) how.format = kFp32;
      if (kind == FixKind::reduce_order) how.algorithm = Reduction::Algorithm::all_to_all;
      EXPECT_EQ(stage.truth(lane).harm, of_sum ? Harm::none : Harm::real) << fix_name(kind);
      const std::vector<FixKind>& fixes = which.about.fixes;
      EXPECT_EQ(std::count(fixes.begin(), fixes.end(), kind), of_sum ? 1 : 0);
    }
  }
}

class Repaired : public testing::TestWithParam<std::string> {};

TEST_P(Repaired, IsHealthy) {
  Case repaired = find_case(GetParam());
  repaired.make = repaired.repaired;
  Staged staged(quick(repaired));
  EXPECT_NE(staged.stage.truth(repaired.lane(repaired.right.at(0))).harm, Harm::real);
}

TEST_P(Labelled, NamesNodesAndVariablesThatAreThere) {
  std::set<std::string> paths;
  for (const Node& node : graph().nodes()) paths.insert(node.path);
  for (const Variable& variable : graph().variables()) {
    paths.insert(variable.path);
    paths.insert(average_path(variable.path));
  }
  const auto known = [&](const std::string& path) {
    const size_t part = path.find('/');  // for an operator that runs as several
    return paths.contains(path) || paths.contains(path.substr(0, part));
  };
  for (const std::string& path : labels().root) EXPECT_TRUE(known(path)) << path;
  EXPECT_TRUE(known(labels().first_symptom)) << labels().first_symptom;
  for (const std::string& decoy : labels().decoys) {
    EXPECT_TRUE(known(decoy)) << decoy;
    const auto is_decoy = [&](const Change& change) { return change.path == decoy; };
    EXPECT_TRUE(std::none_of(labels().fix.changes.begin(), labels().fix.changes.end(), is_decoy))
        << decoy;
    EXPECT_EQ(std::count(labels().root.begin(), labels().root.end(), decoy), 0) << decoy;
  }
}

TEST_P(Labelled, KindsOfFixesGoFromTheCheapestAndHoldTheSmallest) {
  const std::vector<FixKind>& fixes = which().about.fixes;
  EXPECT_TRUE(std::is_sorted(fixes.begin(), fixes.end()));
  for (const Change& change : labels().fix.changes) {
    EXPECT_EQ(std::count(fixes.begin(), fixes.end(), change.kind), 1) << fix_name(change.kind);
  }
  EXPECT_NE(which().about.mechanism, Mechanism::unknown);
  EXPECT_FALSE(which().about.seen.empty());
}

constexpr auto kName = [](const auto& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(Zoo, Labelled, testing::ValuesIn(failures()), kName);
INSTANTIATE_TEST_SUITE_P(Zoo, Repaired, testing::ValuesIn(repaired()), kName);

}  // namespace
}  // namespace halfscope::zoo
