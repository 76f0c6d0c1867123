// SPDX-License-Identifier: MIT
// A kernel that returns NaN or zeros where the emulator computes numbers is blamed itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/zoo/kernel_trial.h"

namespace halfscope::zoo {
namespace {

TEST(KernelTrials, TheKernelIsBlamed) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("halfscope_kernels_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const KernelTrial& trial : kernel_trials()) {
    SCOPED_TRACE(trial.id);
    const KernelScore score = score_of(trial, folder);
    EXPECT_TRUE(score.healthy_elsewhere);
    EXPECT_TRUE(score.harmful);
    EXPECT_TRUE(score.alarm) << score.headline;
    EXPECT_TRUE(score.blamed) << score.cause;
    EXPECT_TRUE(score.nothing_else);
    EXPECT_NE(score.headline.find("the kernel of"), std::string::npos) << score.headline;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace halfscope::zoo
