// SPDX-License-Identifier: MIT
// A search must find three faults of a deep network together, in few trials.
#include "tests/zoo/planted.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

namespace halfscope::zoo {
namespace {

const std::vector<Fault> kFaults{{Fault::Kind::overflow, "layer1/1/conv1"},
                                 {Fault::Kind::offset, "layer2/1/conv2"},
                                 {Fault::Kind::flush, "layer3/2/conv1"}};

/// Returns the nodes that a fix must change. Under float16, the node that undoes the fault would
/// read it in fp16 again; under mixed_float16 it reads the existing format.
std::set<std::string> planted(const std::vector<Fault>& faults, const std::string& plan) {
  std::set<std::string> paths;
  for (const Fault& fault : faults) {
    paths.insert(fault.at);
    if (plan == "float16") paths.insert(undo_path(fault));
  }
  return paths;
}

class Planted : public testing::TestWithParam<std::string> {};

TEST_P(Planted, EachFaultFailsAloneAndNothingElseDoes) {
  EXPECT_FALSE(hunt(planted_resnet20({}), GetParam(), false).fails);
  for (const Fault& fault : kFaults) {
    EXPECT_TRUE(hunt(planted_resnet20({fault}), GetParam(), false).fails) << fault.at;
  }
}

TEST_P(Planted, AllAreFoundInATenthOfATrialPerNode) {
  const Hunt found = hunt(planted_resnet20(kFaults), GetParam());
  std::printf("%s, all: %s", GetParam().c_str(), hunt_text(found).c_str());
  ASSERT_TRUE(found.fails);
  ASSERT_TRUE(found.cure);
  std::set<std::string> paths;
  for (const Change& change : found.cure->changes) paths.insert(change.path);
  for (const Fault& fault : kFaults) EXPECT_TRUE(paths.contains(fault.at)) << fault.at;
  // If operands are scaled, the node that undoes a fault can stay unchanged.
  const std::set<std::string> all = planted(kFaults, GetParam());
  EXPECT_TRUE(std::includes(all.begin(), all.end(), paths.begin(), paths.end()))
      << testing::PrintToString(paths);
  EXPECT_LE(10 * found.to_cure, found.nodes);
  EXPECT_LE(10 * found.first_size, found.nodes) << "it has tried everything at once";
}

INSTANTIATE_TEST_SUITE_P(Zoo, Planted, testing::Values("mixed_float16", "float16"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace halfscope::zoo
