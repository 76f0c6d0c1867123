// SPDX-License-Identifier: MIT
// The packages that the project must use, and a place in the product that uses each: a package that
// nothing uses is only a line in a list.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace halfscope::house {
namespace {

struct Package {
  const char *name, *file, *use;
};

class Packages : public testing::TestWithParam<Package> {};

TEST_P(Packages, IsAtWork) {
  const std::filesystem::path file = std::filesystem::path(HALFSCOPE_SOURCE_DIR) / GetParam().file;
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  ASSERT_FALSE(text.empty()) << file;
  EXPECT_NE(text.find(GetParam().use), std::string::npos)
      << GetParam().name << " is no longer used there: name the new place";
}

INSTANTIATE_TEST_SUITE_P(
    House, Packages,
    testing::Values(Package{"CUDA", "gpu/engine/cuda_executor.cuh", "cudaMalloc("},
                    Package{"cuBLAS", "gpu/libraries/cublas_lt.cpp", "cublasLtMatmul"},
                    Package{"cuDNN", "gpu/libraries/cudnn.cpp",
                            "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR"},
                    Package{"NCCL", "gpu/libraries/nccl.cpp", "ncclSend"},
                    Package{"Eigen", "emulation/engine/double_sums.cpp", "Eigen::Map"},
                    Package{"ImGui", "gui/app/layout.cpp", "ImGui::BeginMenuBar("},
                    Package{"GLFW", "gui/app/window.cpp", "glfwCreateWindow("},
                    Package{"GoogleTest", "tests/CMakeLists.txt", "GTest::gmock"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace halfscope::house
