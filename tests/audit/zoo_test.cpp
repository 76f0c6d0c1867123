// SPDX-License-Identifier: MIT
// The zoo's failures of constants are found without running them, and no healthy network is blamed.
#include "core/models/zoo/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/audit/audit.h"

namespace halfscope {
namespace {

/// Returns the sentences about harm in the case under a plan, or "" if there are none.
std::string harm_in(const zoo::Case& which, const zoo::Setup& setup, const std::string& plan) {
  const zoo::LaneChoice lane = which.lane(plan);
  TrainConfig training = setup.train;
  training.sum_format = lane.sum_format;
  training.state_format = lane.state_format;
  std::string text;
  for (const AuditedConstant& each :
       audit_constants(setup.model, lane.plan, setup.trains ? &training : nullptr)) {
    if (each.is_harmful()) text += each.text + ". " + each.advice + "\n";
  }
  return text;
}

TEST(AuditZoo, FailuresOfConstantsAreFound) {
  int found = 0;
  for (const zoo::Case& each : zoo::all_cases()) {
    const bool named = each.id == "F15" || each.id == "F17" || each.id == "F38";
    if (!each.fails || (each.about.mechanism != Mechanism::constant && !named)) continue;
    const zoo::Setup setup = each.make();
    for (const std::string& plan : each.right) {
      ++found;
      EXPECT_NE(harm_in(each, setup, plan), "") << each.id << " under " << plan;
      if (!each.repaired) continue;
      EXPECT_EQ(harm_in(each, each.repaired(), plan), "") << each.id;
    }
  }
  EXPECT_GE(found, 6);
}

TEST(AuditZoo, HealthyNetworksAreNotBlamed) {
  int audited = 0;
  for (const zoo::Case& each : zoo::all_cases()) {
    if (each.fails) continue;
    const zoo::Setup setup = each.make();
    for (const std::string& plan : each.plain) {
      ++audited;
      EXPECT_EQ(harm_in(each, setup, plan), "") << each.id << " under " << plan;
    }
  }
  EXPECT_GE(audited, 70);
}

}  // namespace
}  // namespace halfscope
