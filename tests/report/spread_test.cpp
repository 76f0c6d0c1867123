// SPDX-License-Identifier: MIT
// How the first value that is not finite spread: paths of values through the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "analysis/rules/rules.h"
#include "tests/report/capture.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

/// Returns the path that the finding of a run with infinities at these sites prints.
std::string chain_with(const RunView& clean, const std::set<std::string>& bad) {
  const RunView run = changed(
      clean,
      [&](const SiteInfo& site, TensorStats& stats) {
        if (bad.contains(site.name()) && site.format == kFp16) stats.pos_inf += 1;
      },
      [](StepRow& row) { row.skipped = true; });
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == "first_non_finite")
      return std::get<std::string>(finding.evidence.at("chain"));
  }
  return "";
}

/// Gradients of parameters do not read one another.
TEST(Spread, ParametersGradientsAreEnds) {
  const RunView run = captured(healthy_spec());
  EXPECT_EQ(chain_with(run, {"fc2.weight_grad", "conv1.weight_grad"}),
            "fc2.weight_grad -> update skipped");
  EXPECT_EQ(chain_with(run, {"fc2.weight_grad", "conv2.activation_grad", "conv1.weight_grad"}),
            "fc2.weight_grad -> update skipped");
}

TEST(Spread, GradientsRunAgainstTheGraph) {
  const RunView run = captured(healthy_spec());
  const std::set<std::string> all{"fc1.activation_grad",   "fc1.weight_grad",
                                  "relu2.activation_grad", "rescale2.activation_grad",
                                  "conv2.activation_grad", "conv2.weight_grad",
                                  "pool1.activation_grad", "relu1.activation_grad",
                                  "conv1.activation_grad", "conv1.weight_grad"};
  EXPECT_EQ(chain_with(run, all),
            "fc1.activation_grad -> relu2.activation_grad -> rescale2.activation_grad -> "
            "conv2.activation_grad -> pool1.activation_grad -> relu1.activation_grad -> "
            "conv1.activation_grad -> (1 more) -> update skipped");
  EXPECT_EQ(chain_with(run, {"conv2.activation_grad", "conv2.weight_grad"}),
            "conv2.activation_grad -> conv2.weight_grad -> update skipped");
}

/// The gradient of one branch does not come from that of another.
TEST(Spread, BranchesAreApart) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc1").inputs = {"relu1"};
  layer_of(spec, "fc2").inputs = {"relu2", "relu3"};
  EXPECT_EQ(chain_with(captured(spec),
                       {"relu3.activation_grad", "relu2.activation_grad", "conv1.activation_grad"}),
            "relu3.activation_grad -> conv1.activation_grad -> update skipped");
}

}  // namespace
}  // namespace halfscope::test
