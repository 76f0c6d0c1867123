// SPDX-License-Identifier: MIT
// Processes with a device each, for which threads stand. Their gradients travel by NCCL where they
// can, otherwise through the host; both ways train with the bits of the emulator's ranks.
#include "gpu/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "gpu/backends.h"
#include "gpu/libraries/nccl.h"
#include "tests/gpu/simulated/device.h"
#include "tests/train/process_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: trainings of these tests
using testing::HasSubstr;

/// So many devices; the process has one again afterwards.
class NcclBetweenDevices : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu::nccl_version() == 0) GTEST_SKIP() << "built without NCCL";
  }
  void TearDown() override {
    simulated::list_devices(1);
    simulated::hang_nccl(false);
    unsetenv("HALFSCOPE_NCCL");
  }
};

/// Returns how each rank says that gradients travel; all must say the same.
std::string text_of_connection(int ranks, std::chrono::milliseconds limit = gpu::kNcclLimit) {
  std::vector<std::string> texts(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](Exchange& exchange) {
    choose_device(exchange.rank());
    const DeviceConnection connection = connect_devices(exchange, limit);
    texts[static_cast<size_t>(exchange.rank())] = connection.text;
    EXPECT_EQ(connection.nccl == nullptr, gpu::nccl_link(exchange, nullptr) == nullptr);
  });
  EXPECT_THAT(texts, testing::Each(texts[0]));
  return texts[0];
}

TEST_F(NcclBetweenDevices, ConnectsRanksOnDifferentDevices) {
  simulated::list_devices(3);
  EXPECT_THAT(text_of_connection(3), HasSubstr("are sent by NCCL 2."));
  EXPECT_THAT(text_of_connection(4),
              HasSubstr("pass through the host: ranks 0 and 3 share a GPU, which NCCL refuses"));
  setenv("HALFSCOPE_NCCL", "off", 1);
  EXPECT_THAT(text_of_connection(3), HasSubstr("rank 0 has HALFSCOPE_NCCL=off"));
}

TEST_F(NcclBetweenDevices, IsLeftOutIfItDoesNotConnectInTime) {
  simulated::list_devices(2);
  simulated::hang_nccl(true);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(text_of_connection(2, std::chrono::milliseconds(300)),
              HasSubstr("pass through the host: NCCL did not connect the ranks within 0.3 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  // The ranks that waited connect at last, which changes nothing for the next connection.
  simulated::hang_nccl(false);
  EXPECT_THAT(text_of_connection(2), HasSubstr("are sent by NCCL 2."));
}

TEST_F(NcclBetweenDevices, TrainsWithTheBitsOfTheSimulation) {
  for (const char* recipe :
       {"ring", "ring:format=bf16,average=after", "tree:format=fp16", "halving:format=e5m2",
        "all-to-all:format=bf16", "all-to-all:format=e4m3fn,average=after"}) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::string(recipe) + ", " + std::to_string(ranks) + " ranks");
      simulated::list_devices(ranks);
      const bool narrow = std::string(recipe).find("e4m3fn") != std::string::npos;
      TrainConfig setup = config(kMlp, "mixed_float16", narrow ? "dynamic:8e3" : "dynamic:4e6");
      setup.reduction = parse_reduction(recipe);
      setup.batch = 24;
      setup.steps = 8;
      setup.every = 3;
      std::vector<DeviceConnection> connections(static_cast<size_t>(ranks));
      std::vector<int64_t> by_nccl(static_cast<size_t>(ranks));
      const std::vector<StepRow> steps = expect_simulated(
          setup, ranks, data(), &cuda_backend(GpuProducts::own), [&](Exchange& exchange) {
            choose_device(exchange.rank());
            const auto rank = static_cast<size_t>(exchange.rank());
            connections[rank] = connect_devices(exchange);
            by_nccl[rank] = connections[rank].nccl != nullptr ? 1 : 0;
          });
      EXPECT_THAT(by_nccl, testing::Each(1));
      EXPECT_TRUE(steps.front().skipped);
      EXPECT_FALSE(steps.back().skipped);
      if (HasFailure()) return;
    }
  }
}

/// Gradients never touch the host: copies there do not grow with the network.
TEST_F(NcclBetweenDevices, KeepsGradientsOnTheDevice) {
  const auto copies = [](const std::string& model, bool nccl) {
    if (nccl) unsetenv("HALFSCOPE_NCCL");
    if (!nccl) setenv("HALFSCOPE_NCCL", "off", 1);
    simulated::list_devices(2);
    TrainConfig setup = config(model, "mixed_float16", "dynamic:4096");
    setup.reduction = parse_reduction("ring");
    setup.every = 0;
    setup.steps = 5;
    setup.ranks = 2;
    setup.lanes[0].backend = &cuda_backend(GpuProducts::own);
    const simulated::Transfers before = simulated::transfers();
    on_ranks(2, [&](Exchange& exchange) {
      omp_set_num_threads(1);
      choose_device(exchange.rank());
      const DeviceConnection connection = connect_devices(exchange);
      TrainConfig own = setup;
      own.exchange = &exchange;
      Trainer trainer(own, data());
      const std::atomic<bool> stop{false};
      trainer.run(nullptr, {}, stop);
    });
    return simulated::transfers().to_host - before.to_host;
  };
  EXPECT_EQ(copies("mlp:256-10", true), copies("mlp:256-40-24-16-10", true));
  EXPECT_GT(copies("mlp:256-10", false), copies("mlp:256-10", true));
}

}  // namespace
}  // namespace halfscope
