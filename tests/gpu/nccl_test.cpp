// SPDX-License-Identifier: MIT
// NCCL on one device. Two devices need two processes: docs/scale.md.
#include "gpu/libraries/nccl.h"

#include <gtest/gtest.h>

#include "core/numeric/formats/rng.h"
#include "gpu/backends.h"
#include "gpu/processes.h"
#include "tests/train/thread_exchange.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: exchanges of tests

class NcclOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: nothing is sent";
  }
  static bool is_there() { return gpu::nccl_version() != 0; }
};

/// Without the library it sends nothing and says so.
TEST_F(NcclOnDevice, SendsToItself) {
  std::vector<std::byte> bytes(size_t{3} << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(splitmix64(i));
  const std::optional<std::vector<std::byte>> arrived = gpu::nccl_echo(bytes);
  ASSERT_EQ(arrived.has_value(), is_there());
  EXPECT_TRUE(!arrived || *arrived == bytes);
}

TEST_F(NcclOnDevice, ConnectsASingleRank) {
  on_ranks(1, [](Exchange& exchange) {
    const DeviceConnection connection = connect_devices(exchange);
    EXPECT_EQ(connection.nccl != nullptr, is_there());
    EXPECT_TRUE(connection.text.starts_with(
        is_there() ? "gradients of lanes on GPUs are sent by NCCL "
                   : "gradients of lanes on GPUs pass through the host: rank 0 finds no NCCL"))
        << connection.text;
  });
}

}  // namespace
}  // namespace halfscope
