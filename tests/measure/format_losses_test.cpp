// SPDX-License-Identifier: MIT
// Losses of files that are read in parts. tests/oracle/inspect_tensors.py compares counts with
// NumPy.
#include "emulation/measure/format_losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/data/npz.h"
#include "core/error.h"

namespace halfscope {
namespace {

class LossesOfFile : public ::testing::Test {
 protected:
  LossesOfFile() { std::filesystem::create_directories(folder_); }
  ~LossesOfFile() override { std::filesystem::remove_all(folder_); }

  static std::vector<ArrayLosses> losses(const TensorFile& file,
                                         const std::vector<TargetFormat>& targets) {
    std::vector<ArrayLosses> all;
    measure_losses(file, targets, true,
                   [&](const StoredArray&, const ArrayLosses& each) { all.push_back(each); });
    return all;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("halfscope_losses_" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) +
       testing::UnitTest::GetInstance()->current_test_info()->name());
};

// Threads read parts of the file; the error of one of them must reach the caller.
TEST_F(LossesOfFile, AFileThatBecomesShorterIsAnError) {
  const std::filesystem::path path = folder_ / "x.npy";
  write_npy(path, {{3'000'000}, std::vector<float>(3'000'000, 1.0f)});
  const TensorFile file(path);
  std::filesystem::resize_file(path, 6'000'000);
  try {
    losses(file, {{.name = "fp16"}});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("became shorter"), std::string::npos) << error.what();
  }
}

// The scale of the tensor comes from its last value, which other parts of the file do not see.
TEST_F(LossesOfFile, Nvfp4ScalesByTheLargestOfTheWholeTensor) {
  constexpr int64_t kCount = 1'000'000;
  Tensor tensor{{kCount}, std::vector<float>(kCount, 1.0f)};
  tensor.data.back() = 0x1p20f;
  // The scale of the tensor is 2^20 / (6 * 448) = 390.1, so that a block of ones would need the
  // scale 1 / (6 * 390.1) = 4.3e-4, less than half of e4m3fn's smallest number, 2^-9.
  write_npy(folder_ / "x.npy", tensor);
  write_npz(folder_ / "x.npz", {{"x", tensor}});
  const std::vector<TargetFormat> target{{.name = "nvfp4", .blocks = kNvfp4}};
  for (const char* name : {"x.npy", "x.npz"}) {
    const std::vector<ArrayLosses> all = losses(TensorFile(folder_ / name), target);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].formats[0].underflow, kCount - 1) << name;
    EXPECT_EQ(all[0].formats[0].overflow, 0) << name;
    EXPECT_NEAR(all[0].formats[0].error, static_cast<double>(kCount - 1), 1.0) << name;
  }
}

}  // namespace
}  // namespace halfscope
