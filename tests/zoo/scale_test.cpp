// SPDX-License-Identifier: MIT
// Loss scales in the zoo: one that collapses over a forward pass that overflows, one that comes
// down as it should, and one that grows to the end of its range.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "analysis/report/report.h"
#include "tests/zoo/cure.h"
#include "tests/zoo/trial.h"

namespace halfscope::zoo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Scales : public testing::Test {
 protected:
  Scales() { std::filesystem::create_directories(folder_); }
  ~Scales() override { std::filesystem::remove_all(folder_); }

  RunView run(const std::string& id, const std::string& plan) {
    Stage(find_case(id), folder_).run(plan);
    return RunView::open(folder_ / "run.hscope");
  }
  static std::vector<Finding> overflows(const RunView& run) {
    std::vector<Finding> found;
    for (const Finding& each : make_report(run).findings) {
      if (each.lane == 1 && each.rule == "forward_overflow") found.push_back(each);
    }
    return found;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("halfscope_scales_" + std::to_string(getpid()));
};

/// 200 halvings of 65536; the last ones are below fp32's smallest number.
TEST_F(Scales, ACollapseIsTheForwardPass) {
  const std::vector<std::string> root = find_case("F25").make().labels.root;
  const RunView collapsed = run("F25", "mixed_float16");
  ASSERT_EQ(collapsed.steps(1).size(), 200u);
  EXPECT_EQ(collapsed.steps(1)[165].loss_scale, 0x1p-149);
  EXPECT_EQ(collapsed.steps(1).back().loss_scale, 0.0);
  for (const char* plan : {"mixed_float16", "mixed_float16 scale=static:1024"}) {
    SCOPED_TRACE(plan);
    const std::vector<Finding> found = overflows(run("F25", plan));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(root, ElementsAre(found[0].layer));
    EXPECT_THAT(found[0].text, HasSubstr("Lowering the loss scale alone does not help"));
    const Cure cure = find_cure(find_case("F25"), plan, folder_);
    EXPECT_EQ(cure.diagnosis.mechanism, Mechanism::forward_overflow);
    EXPECT_FALSE(cure.diagnosis.fix.has(FixKind::loss_scale));
  }
}

/// Without a loss scaler the first update makes all weights NaN. Non-finite values after that are
/// not a separate overflow.
TEST_F(Scales, NaNWeightsAreNoSecondOverflow) {
  const std::vector<Finding> found = overflows(run("F25", "mixed_float16 scale=none"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(find_case("F25").make().labels.root, ElementsAre(found[0].layer));
  EXPECT_EQ(found[0].step, 0);
}

TEST_F(Scales, ACalibrationEnds) {
  const RunView calibrated = run("F25ok", "mixed_float16");
  int skipped = 0, last = -1;
  for (const StepRow& row : calibrated.steps(1)) {
    if (!row.skipped) continue;
    ++skipped;
    last = static_cast<int>(row.step);
  }
  EXPECT_GE(skipped, 1);
  EXPECT_LE(skipped, 4);
  EXPECT_LT(last, 10);
}

/// Torch's guard: what would be infinite is not taken.
TEST_F(Scales, GrowthEndsAtTheLargestPowerOfTwo) {
  const RunView grown = run("F26", "mixed_bfloat16 scale=dynamic:1.7014118346046923e38");
  ASSERT_EQ(grown.steps(1).size(), 2100u) << "the scale would double at step 2000";
  for (const StepRow& row : grown.steps(1)) {
    EXPECT_EQ(row.loss_scale, 0x1p127) << row.step;
    EXPECT_FALSE(row.skipped) << row.step;
    EXPECT_EQ(row.grad_norm, 0.0) << row.step;
  }
}

/// Ranks that skip alone.
TEST_F(Scales, OfRanksThatDisagreeTheVoteIsToBlame) {
  const Cure cure = find_cure(find_case("F49"), "mixed_float16 reduce=ring:vote=one", folder_);
  EXPECT_EQ(cure.diagnosis.mechanism, Mechanism::rank_disagreement);
  ASSERT_EQ(cure.diagnosis.fix.changes.size(), 1u);
  EXPECT_EQ(cure.diagnosis.fix.changes[0].kind, FixKind::config);
  EXPECT_EQ(cure.diagnosis.fix.changes[0].text, "ring");
  EXPECT_THAT(cure.diagnosis.cause, HasSubstr("anks disagree about skipping a step"));
}

}  // namespace
}  // namespace halfscope::zoo
