// SPDX-License-Identifier: MIT
// `halfscope report --tensorboard`: files and folders. tests/oracle/tensorboard_export.py compares
// the values with TensorBoard's reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::small_training;
using test::text_of;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kEvents = "events.out.tfevents.0.halfscope";

TEST(CliTensorboard, AFolderForEachLane) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  const Outcome outcome = bench.run({"report", "run.hscope", "--tensorboard", "logs"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, IsEmpty());
  const std::string text = text_of(bench / "logs" / "mixed_float16" / kEvents);
  for (const char* tag : {"loss", "loss_scale", "grad_norm", "overflow/activation",
                          "underflow/weight_grad", "lost_updates", "exponents/", "findings"}) {
    EXPECT_THAT(text, HasSubstr(tag));
  }
  EXPECT_THAT(text_of(bench / "logs" / "float32" / kEvents), HasSubstr("brain.Event:2"));
}

TEST(CliTensorboard, NothingIsReplacedWithoutForce) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32"})).code, 0);
  std::filesystem::create_directories(bench / "logs" / "float32");
  const std::filesystem::path file = bench / "logs" / "float32" / kEvents;
  std::ofstream(file) << "old";
  const Outcome refused = bench.run({"report", "run.hscope", "--tensorboard", "logs"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, StartsWith("halfscope: folder 'logs' is not empty\nhint: "));
  EXPECT_EQ(text_of(file), "old");
  EXPECT_EQ(bench.run({"report", "run.hscope", "--tensorboard", "logs", "--force"}).code, 0);
  EXPECT_THAT(text_of(file), HasSubstr("brain.Event:2"));
}

TEST(CliTensorboard, OtherNamesAreRefused) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32"})).code, 0);
  for (const char* name : {"-", "run.hscope", "none/logs"}) {
    const Outcome outcome = bench.run({"report", "run.hscope", "--tensorboard", name});
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, HasSubstr("\nhint: ")) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(bench / "none"));
}

}  // namespace
}  // namespace halfscope
