// SPDX-License-Identifier: MIT
// The GPU report: the tensor-core table, the version codes, the words for every state, and that
// asking fails nowhere.
#include "gpu/device_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halfscope {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(TensorCores, FollowTheComputeCapability) {
  EXPECT_THAT(tensor_core_formats(6, 1), IsEmpty());
  EXPECT_THAT(tensor_core_formats(7, 0), ElementsAre("fp16"));
  EXPECT_THAT(tensor_core_formats(7, 5), ElementsAre("fp16"));
  EXPECT_THAT(tensor_core_formats(8, 0), ElementsAre("fp16", "bf16", "tf32"));
  EXPECT_THAT(tensor_core_formats(8, 6), ElementsAre("fp16", "bf16", "tf32"));
  EXPECT_THAT(tensor_core_formats(8, 9), ElementsAre("fp16", "bf16", "tf32", "fp8"));
  EXPECT_THAT(tensor_core_formats(9, 0), ElementsAre("fp16", "bf16", "tf32", "fp8"));
  const auto blackwell = ElementsAre("fp16", "bf16", "tf32", "fp8", "mxfp8", "fp4");
  EXPECT_THAT(tensor_core_formats(10, 0), blackwell);
  EXPECT_THAT(tensor_core_formats(12, 0), blackwell);
}

TEST(TensorCores, KerasAsksForSeven) {
  EXPECT_FALSE(keras_mixed_float16_is_fast(6, 9));
  EXPECT_TRUE(keras_mixed_float16_is_fast(7, 0));
}

TEST(GpuVersions, AreDecoded) {
  EXPECT_EQ(decode_cuda_version(13000), (GpuVersion{13, 0, 0}));
  EXPECT_EQ(decode_cuda_version(12080), (GpuVersion{12, 8, 0}));
  EXPECT_EQ(decode_library_version(91900), (GpuVersion{9, 19, 0}));
  EXPECT_EQ(decode_library_version(120103), (GpuVersion{12, 1, 3}));
  EXPECT_EQ(decode_library_version(120103).text(), "12.1.3");
  EXPECT_EQ(decode_library_version(0).text(), "not found");
}

TEST(GpuWords, EveryMissingThingComesWithSomethingToDo) {
  for (GpuState state : {GpuState::not_built, GpuState::no_driver, GpuState::old_driver,
                         GpuState::no_device, GpuState::failed}) {
    GpuReport report;
    report.built = state != GpuState::not_built;
    report.state = state;
    EXPECT_THAT(describe(report), Contains(StartsWith("to do: "))) << static_cast<int>(state);
  }
}

TEST(GpuWords, AMissingGpuIsOneErrorWithAHint) {
  for (GpuState state : {GpuState::not_built, GpuState::no_driver, GpuState::old_driver,
                         GpuState::no_device, GpuState::failed}) {
    GpuReport report;
    report.built = state != GpuState::not_built;
    report.state = state;
    const Error error = no_gpu_error(report);
    EXPECT_THAT(error.what(), StartsWith("cannot use backend 'cuda': "));
    EXPECT_THAT(error.hint(), StartsWith("use --backend emulated, which needs no GPU; or "));
    EXPECT_THAT(error.hint(), Not(HasSubstr("to do")));
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

TEST(GpuWords, ADeviceIsDescribed) {
  GpuReport report;
  report.built = true;
  report.state = GpuState::ready;
  report.devices.push_back({"Some GPU", 9, 0, int64_t{80} << 30, 132});
  const std::vector<std::string> lines = describe(report);
  EXPECT_THAT(lines, Contains("device 0: Some GPU, compute capability 9.0, 80.0 GiB, 132 SMs"));
  EXPECT_THAT(lines, Contains(HasSubstr("fp16, bf16, tf32, fp8")));
  EXPECT_THAT(lines, Not(Contains(StartsWith("to do: "))));
}

TEST(GpuQuery, AnswersOnAnyMachine) {
  const GpuReport report = query_gpus();
  EXPECT_EQ(report.built, report.state != GpuState::not_built);
  EXPECT_EQ(report.built, report.toolkit.found());
  EXPECT_EQ(report.state == GpuState::ready, !report.devices.empty() && report.problem.empty());
}

// Run by `ctest -L gpu`; CTest counts it as skipped if there is no GPU.
TEST(GpuOnDevice, TheDeviceIsReported) {
  const GpuReport report = query_gpus();
  if (report.state != GpuState::ready) GTEST_SKIP() << describe(report).back();
  for (const GpuDevice& device : report.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.major, 5);
    EXPECT_GT(device.memory_bytes, int64_t{1} << 28);
    EXPECT_GT(device.sm_count, 0);
  }
  EXPECT_TRUE(report.driver.found());
  EXPECT_GE(report.driver.major, report.runtime.major);
}

}  // namespace
}  // namespace halfscope
