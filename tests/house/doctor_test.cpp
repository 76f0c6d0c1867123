// SPDX-License-Identifier: MIT
// `halfscope doctor` says what it is meant to say, on any machine.
#include "cli/tasks/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/models/models.h"
#include "core/policy/policy.h"
#include "emulation/isa.h"
#include "gpu/device_info.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using testing::Not;

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

TEST(Doctor, SaysWhichBackendsCanBeUsed) {
  GpuReport report;
  EXPECT_THAT(backends_text(report), HasSubstr("--backend emulated"));
  EXPECT_THAT(backends_text(report), Not(HasSubstr("cuda")));
  report.state = GpuState::ready;
  EXPECT_THAT(backends_text(report), HasSubstr("--backend cuda (products"));
  EXPECT_THAT(backends_text(report), HasSubstr("cuda-own"));
  EXPECT_THAT(backends_text(report), HasSubstr("cuda-fast"));
}

DoctorNetwork network_of(const std::string& model, const Shape& sample, const std::string& plan,
                         int64_t batch) {
  const Model built = build_network(model, batch, sample, 10);
  return {model, plan, batch, tensor_core_fits(lower_inference(built, preset_plan(plan).value()))};
}

TEST(Doctor, ListsTheLayersOfANetwork) {
  const DoctorNetwork lenet = network_of("lenet", {1, 28, 28}, "mixed_float16", 100);
  std::ostringstream out;
  EXPECT_EQ(run_doctor(out, "1.2.3", &lenet), 0);
  const std::string text = layers_text(lenet, {});
  EXPECT_THAT(out.str(), HasSubstr("\n\nLayers of lenet under mixed_float16, 100 samples"));
  EXPECT_EQ(text,
            "Layers of lenet under mixed_float16, 100 samples at once\n"
            "  layer  operator  read  M x N x K         for tensor cores\n"
            "  conv1  Conv      fp16  57600 x 32 x 1    1 input channel: pad to 8\n"
            "  conv2  Conv      fp16  6400 x 64 x 32    multiples of 8\n"
            "  fc1    Gemm      fp16  100 x 256 x 1024  100 rows: pad to 104\n"
            "  fc2    Gemm      fp16  100 x 10 x 256    100 rows: pad to 104; 10 outputs: pad to "
            "16\n"
            "  1 of 4 layers fit tensor cores\n"
            "  fp16: multiples of 8 fit, of 64 are best; others are slower\n"
            "  rows are samples, times positions where there are any: choose the batch so\n"
            "  convolutions: M = samples x pixels, which may be any number; N, K = channels out, "
            "in\n");
}

TEST(Doctor, SaysWhichDeviceHasTensorCoresForTheFormats) {
  const GpuDevice devices[] = {{"Volta", 7, 0}, {"Hopper", 9, 0}};
  const std::string brain =
      layers_text(network_of("mlp:64-10", {64}, "mixed_bfloat16", 8), devices);
  EXPECT_THAT(brain, HasSubstr("\n    device 0 has no tensor cores for bf16\n"
                               "    device 1 has tensor cores for bf16\n"));
  const std::string eight = layers_text(network_of("mlp:64-10", {64}, "fp8_current", 16), devices);
  EXPECT_THAT(eight, HasSubstr("others have to be padded\n"
                               "    device 0 has no tensor cores for fp8\n"
                               "    device 1 has tensor cores for fp8\n"));
  const std::string full = layers_text(network_of("mlp:64-10", {64}, "float32", 8), devices);
  EXPECT_THAT(full, HasSubstr("fp32: no tensor cores\n  0 of 1 layers fit"));
  EXPECT_THAT(full, Not(HasSubstr("device")));
}

}  // namespace
}  // namespace halfscope
