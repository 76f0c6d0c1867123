// SPDX-License-Identifier: MIT
// If a kernel returns NaN or zeros where the emulator computes numbers, the kernel is blamed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "analysis/report/report.h"
#include "tests/zoo/kernel_trial.h"
#include "tests/zoo/trial.h"

namespace halfscope::zoo {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class KernelTrials : public testing::Test {
 protected:
  KernelTrials() { std::filesystem::create_directories(folder_); }
  ~KernelTrials() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("halfscope_kernels_" + std::to_string(getpid()));
};

TEST_F(KernelTrials, TheKernelIsBlamed) {
  for (const KernelTrial& trial : kernel_trials()) {
    SCOPED_TRACE(trial.id);
    const KernelScore score = score_of(trial, folder_);
    EXPECT_TRUE(score.healthy_elsewhere);
    EXPECT_TRUE(score.harmful);
    EXPECT_TRUE(score.alarm) << score.headline;
    EXPECT_TRUE(score.blamed) << score.cause;
    EXPECT_TRUE(score.nothing_else);
    EXPECT_THAT(score.headline, HasSubstr("'s kernel is wrong"));
  }
}

/// F52: normalizations give wrong results for a reason that no tensor of the run shows, and nothing
/// that was tried cures it. Then nothing may be blamed.
TEST_F(KernelTrials, WhatNothingExplainsIsUnknown) {
  const auto normalizations = [](const SiteInfo& site) {
    return site.op == "LayerNormalization" && site.role == Role::activation;
  };
  const FaultyKernel backend(normalizations, 0.5f, "emulated");
  Stage stage(find_case("OKgptrun"), folder_);
  const Trial trial = stage.run("mixed_bfloat16", backend);
  EXPECT_EQ(trial.truth.harm, Harm::real);
  EXPECT_TRUE(trial.alarm);
  const RunView run = RunView::open(folder_ / "run.hscope");
  const Report report = make_report(run);
  EXPECT_FALSE(report.recommendation) << report.recommendation->text;
  Proof proof;
  for (const LayerInfo& layer : run.lane(1).layers) {
    proof.tried.push_back({.edit = PlanEdit::in_fp32({layer.path}), .gap = 1.0});
  }
  const Diagnosis found = diagnose(run, report.findings, 1, {}, proof);
  EXPECT_TRUE(found.harmed);
  EXPECT_EQ(found.mechanism, Mechanism::unknown) << found.cause;
  EXPECT_THAT(found.root, IsEmpty());
  EXPECT_TRUE(found.fix.empty());
  EXPECT_EQ(found.confidence, Confidence::low);
  EXPECT_EQ(diagnosis_lines(found),
            "cause: unknown.\nconfidence: low. No change that was tried fixes the lane.\n");
  // The verdict says what is wrong, and blames no layer for it.
  const std::string& headline = report.verdict.headline;
  EXPECT_THAT(headline, HasSubstr("mixed_bfloat16 fails: its output "));
  for (const LayerInfo& layer : run.lane(1).layers) {
    EXPECT_THAT(headline, Not(HasSubstr(layer.path)));
  }
}

}  // namespace
}  // namespace halfscope::zoo
