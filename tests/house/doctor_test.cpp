// SPDX-License-Identifier: MIT
// `halfscope doctor` says what it is meant to say, on any machine.
#include "cli/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "emulation/isa.h"
#include "gpu/device_info.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

TEST(Doctor, ReportsEverySection) {
  std::ostringstream out;
  EXPECT_EQ(run_doctor(out, "1.2.3"), 0);
  const std::string text = out.str();
  for (const char* wanted :
       {"HalfScope         1.2.3\n", "compiler ", "processor ", "threads ", "memory ", "Eigen ",
        "SQLite ", "zlib ", "fmt ", "nlohmann-json ", "\nGPU\n", "baseline"}) {
    EXPECT_THAT(text, HasSubstr(wanted));
  }
  EXPECT_THAT(text, HasSubstr(std::string("in use: ") + isa_name(active_isa())));
  for (const std::string& line : describe(query_gpus())) EXPECT_THAT(text, HasSubstr(line));
}

TEST(Doctor, FollowsTheInstructionSetInUse) {
  set_active_isa(Isa::baseline);
  std::ostringstream out;
  run_doctor(out, "1.2.3");
  EXPECT_THAT(out.str(), HasSubstr("in use: baseline"));
}

}  // namespace
}  // namespace halfscope
