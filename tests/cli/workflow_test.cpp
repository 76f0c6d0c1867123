// SPDX-License-Identifier: MIT
// The whole way through `halfscope`: train, export, report, recommend, train with the plan; that
// threads change nothing and weights survive a file.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "core/policy/policy.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::lines_of;
using test::Outcome;
using test::small_training;
using test::text_of;
using Words = std::vector<std::string>;

TEST(CliWorkflow, ExportHasTheColumnsOfTheContract) {
  const Bench bench;
  ASSERT_EQ(
      bench.run(small_training({"--lanes", "float32,float64,mixed_float16", "--every", "2"})).code,
      0);
  ASSERT_EQ(
      bench.run({"report", "run.hscope", "--steps", "steps.csv", "--stats", "stats.csv"}).code, 0);
  const Words steps = lines_of(text_of(bench / "steps.csv")),
              stats = lines_of(text_of(bench / "stats.csv"));
  ASSERT_EQ(steps.size(), 1u + 3 * 4);
  EXPECT_EQ(steps[0], "step,lane,loss,loss_scale,skipped,grad_norm,accuracy,ms,first_bad");
  EXPECT_TRUE(steps[1].starts_with("0,float32,2.")) << steps[1];
  EXPECT_TRUE(steps[2].starts_with("0,float64,2.")) << steps[2];
  EXPECT_NE(steps[3].find(",65536,"), std::string::npos) << steps[3];
  EXPECT_EQ(stats[0],
            "step,step_count,lane,site,path,tensor,role,phase,op,format,n,zero,pos_inf,neg_inf,nan,"
            "overflow,"
            "underflow,subnormal,lost,max_abs,min_abs,mean,rms,exponents");
  size_t mixed = 0;
  for (const std::string& line : stats) {
    EXPECT_EQ(line.find("float64"), std::string::npos) << "the double lane has no sites";
    EXPECT_FALSE(line.starts_with("1,") || line.starts_with("3,")) << "--every 2: " << line;
    mixed += line.starts_with(
        "2,1,mixed_float16,fc1.weight_grad,fc1,weight_grad,weight_grad,backward,Gemm,fp16,12544,");
  }
  EXPECT_EQ(mixed, 1u);
  // Both refuse to replace what is there.
  EXPECT_EQ(bench.run({"report", "run.hscope", "--steps", "steps.csv"}).code, 2);
  EXPECT_EQ(bench.run({"report", "run.hscope", "--steps", "steps.csv", "--force"}).code, 0);
}

TEST(CliWorkflow, ReportInAboutTenLines) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  const Outcome summary = bench.run({"report", "run.hscope", "--summary", "--md", "r.md"});
  EXPECT_EQ(summary.code, 0) << summary.err;
  EXPECT_LE(test::lines_of(summary.out).size(), 12u);
  EXPECT_NE(summary.out.find("mixed_float16"), std::string::npos);
  EXPECT_GT(test::text_of(bench / "r.md").size(), summary.out.size());
  EXPECT_EQ(bench.run({"report", "run.hscope", "--summary", "--quiet"}).code, 2);
}

TEST(CliWorkflow, ReportInFourForms) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  ASSERT_EQ(bench
                .run({"report", "run.hscope", "--html", "r.html", "--md", "r.md", "--json",
                      "r.json", "--csv", "r.csv"})
                .code,
            0);
  EXPECT_NE(text_of(bench / "r.html").find("</html>"), std::string::npos);
  EXPECT_NE(text_of(bench / "r.md").find("mixed_float16"), std::string::npos);
  const auto json = nlohmann::json::parse(text_of(bench / "r.json"));
  EXPECT_EQ(json.at("schema"), "halfscope.report/1");
  EXPECT_EQ(json.at("lanes").size(), 2u);
  EXPECT_EQ(json.at("run").at("status"), "complete");
  EXPECT_GT(lines_of(text_of(bench / "r.csv")).size(), 10u);
  const Outcome to_screen = bench.run({"report", "run.hscope"});
  EXPECT_EQ(to_screen.code, 0);
  EXPECT_EQ(to_screen.out, text_of(bench / "r.md"));
  const Outcome runs = bench.run({"inspect", "run.hscope"});
  EXPECT_EQ(runs.code, 0);
  EXPECT_EQ(lines_of(runs.out).size(), 3u) << runs.out;
  EXPECT_NE(runs.out.find("complete"), std::string::npos);
}

/// All columns but ms.
std::string without_ms(const std::string& csv) {
  std::string result;
  for (const std::string& line : lines_of(csv)) {
    size_t begin = 0, cell = 0;
    while (begin <= line.size()) {
      const size_t end = std::min(line.find(',', begin), line.size());
      if (cell++ != 7) result += line.substr(begin, end - begin) + ",";
      begin = end + 1;
    }
    result += "\n";
  }
  return result;
}

TEST(CliWorkflow, ThreadsDoNotChangeTheResult) {
  const Bench bench;
  for (const char* threads : {"1", "2"}) {
    const std::string run = std::string(threads) + ".hscope";
    ASSERT_EQ(bench
                  .run(small_training({"--lanes", "float32,mixed_float16,bfloat16", "--threads",
                                       threads, "--out", run}))
                  .code,
              0);
    ASSERT_EQ(bench
                  .run({"report", run, "--steps", std::string(threads) + ".csv", "--stats",
                        std::string(threads) + "s.csv"})
                  .code,
              0);
  }
  const std::string one = without_ms(text_of(bench / "1.csv"));
  EXPECT_GT(one.size(), 200u);
  EXPECT_EQ(one, without_ms(text_of(bench / "2.csv")));
  EXPECT_EQ(text_of(bench / "1s.csv"), text_of(bench / "2s.csv"));
}

TEST(CliWorkflow, SavedWeightsGoOnWhereTheyLeft) {
  const Bench bench;
  // One whole batch of the data set per step and file order: step 0 of the second run sees the
  // batch that step 0 of the first saw.
  const Words common{"train",     "--model", "mlp:784-10",  "--batch", "12000",  "--no-shuffle",
                     "--no-eval", "--quiet", "--no-record", "--lanes", "float32"};
  const auto with = [&](const Words& more) {
    Words words = common;
    words.insert(words.end(), more.begin(), more.end());
    return bench.run(words).code;
  };
  ASSERT_EQ(with({"--steps", "4", "--out", "whole.hscope"}), 0);
  ASSERT_EQ(with({"--steps", "2", "--out", "first.hscope", "--save-weights", "w.npz"}), 0);
  ASSERT_EQ(with({"--steps", "2", "--out", "second.hscope", "--init", "w.npz", "--seed", "9"}), 0);
  const RunView whole = RunView::open(bench / "whole.hscope"),
                second = RunView::open(bench / "second.hscope");
  ASSERT_EQ(whole.steps(0).size(), 4u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(second.steps(0)[i].loss, whole.steps(0)[2 + i].loss);
    EXPECT_EQ(second.steps(0)[i].grad_norm, whole.steps(0)[2 + i].grad_norm);
  }
  EXPECT_NE(whole.steps(0)[0].loss, whole.steps(0)[2].loss);
}

// The layer of lenet-hot that overflows fp16 is found, and keeping it alone in fp32 cures it.
TEST(CliWorkflow, TheHotLayerIsFoundAndCured) {
  const Bench bench;
  const Words common{"--model", "lenet-hot", "--batch",   "32",
                     "--steps", "25",        "--no-eval", "--quiet"};
  const auto train = [&](const Words& more) {
    Words words{"train"};
    words.insert(words.end(), common.begin(), common.end());
    words.insert(words.end(), more.begin(), more.end());
    return bench.run(words);
  };
  ASSERT_EQ(train({"--out", "hot.hscope"}).code, 0);
  const RunView hot = RunView::open(bench / "hot.hscope");
  for (const StepRow& row : hot.steps(1)) EXPECT_TRUE(row.skipped) << "step " << row.step;
  EXPECT_EQ(hot.lane(1).sites.at(static_cast<size_t>(hot.steps(1)[0].first_bad)).name(),
            "conv2.activation");

  EXPECT_EQ(bench.run({"report", "hot.hscope", "--fail-on", "error"}).code, 1);
  const Outcome advice =
      bench.run({"diagnose", "hot.hscope", "--out", "plan.json", "--fail-on", "error"});
  EXPECT_EQ(advice.code, 1) << advice.err;
  EXPECT_NE(advice.out.find("conv2"), std::string::npos) << advice.out;
  const Plan plan = load_plan((bench / "plan.json").string());
  Words kept;
  for (const PlanRule& rule : plan.rules) {
    if (!rule.path.empty()) kept.push_back(rule.path);
  }
  EXPECT_EQ(kept, Words{"conv2"});

  ASSERT_EQ(train({"--plan", "plan.json", "--out", "cured.hscope"}).code, 0);
  const RunView cured = RunView::open(bench / "cured.hscope");
  ASSERT_EQ(cured.lane_count(), 2);
  int skipped = 0;
  for (const StepRow& row : cured.steps(1)) skipped += row.skipped ? 1 : 0;
  EXPECT_LE(skipped, 3) << "the first steps may calibrate the loss scale";
  for (size_t step = 0; step < 25; ++step) {
    const double reference = cured.steps(0)[step].loss;
    EXPECT_NEAR(cured.steps(1)[step].loss, reference, 0.1 * reference) << "step " << step;
  }
  std::printf("skipped %d of 25; last loss %.5f, float32 %.5f\n", skipped, cured.steps(1)[24].loss,
              cured.steps(0)[24].loss);
  const Outcome clean = bench.run({"report", "cured.hscope", "--fail-on", "error"});
  EXPECT_EQ(clean.code, 0) << clean.out;
}

}  // namespace
}  // namespace halfscope
