// SPDX-License-Identifier: MIT
// The installed cuDNN's engines on described GPUs. Nothing runs and no GPU is needed. cuDNN hides
// engines if it finds no driver, so ctest runs these tests again with a stand-in for one
// (described_driver.cpp).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "bench/cudnn_layers.h"
#include "gpu/libraries/libraries.h"

namespace halfscope {
namespace {

using gpu::ConvPlan;
using gpu::ConvProduct;
using gpu::CudnnChoice;
using gpu::Storage;

constexpr ConvProduct kProducts[] = {ConvProduct::forward, ConvProduct::grad_input,
                                     ConvProduct::grad_weight};

/// Returns why this cuDNN cannot be asked, or "".
std::string cannot_ask() {
  const ConvLayer layer{64, 8, 64, 3, 1, 1};
  const std::optional<CudnnChoice> choice = gpu::cudnn_choice(
      plan_convolution(ConvProduct::forward, layer.geometry(8), Storage::tf32, Storage::fp32, true),
      false, described_h100().json);
  if (!choice) return "cuDNN is not installed, or is older than 9.8";
  if (choice->why_none.starts_with("description") &&
      choice->why_none.find("9.19") == std::string::npos) {
    return "this cuDNN describes devices in other words: " + choice->why_none;
  }
  return "";
}

/// Returns the choice for the first plan that has an engine, as a program makes it.
CudnnChoice choose(ConvProduct product, const gpu::ConvGeometry& s, Storage operands,
                   Storage result, bool fast, const DescribedGpu& gpu) {
  std::string why;
  for (const ConvPlan& plan :
       gpu::plans_of_convolution(product, s, operands, result, gpu::bytes_of(operands) == 2)) {
    const CudnnChoice choice = gpu::cudnn_choice(plan, fast, gpu.json).value();
    if (!choice.text.empty()) return choice;
    why += choice.why_none + "; ";
  }
  return {.text = "", .why_none = why};
}

// cuDNN has an engine for every convolution that it is given, in the same mode.
TEST(CudnnEngines, ExistForEveryConvolutionThatItIsGiven) {
  if (!cannot_ask().empty()) GTEST_SKIP() << cannot_ask();
  int64_t chosen = 0, on_cores = 0;
  for (const ConvLayer& layer : {ConvLayer{1, 28, 32, 5, 1, 0}, ConvLayer{3, 32, 16, 3, 1, 1},
                                 ConvLayer{16, 32, 32, 3, 2, 1}, ConvLayer{16, 32, 32, 1, 2, 0},
                                 ConvLayer{64, 8, 64, 3, 1, 1}}) {
    for (const ConvProduct product : kProducts) {
      struct Way {
        Storage operands, result;
        bool fast;
      };
      for (const Way& way :
           {Way{Storage::fp32, Storage::fp32, false}, Way{Storage::tf32, Storage::fp32, false},
            Way{Storage::fp16, Storage::fp32, false}, Way{Storage::bf16, Storage::fp32, false},
            Way{Storage::tf32, Storage::fp32, true}, Way{Storage::fp16, Storage::fp16, true},
            Way{Storage::bf16, Storage::bf16, true}}) {
        const CudnnChoice choice = choose(product, layer.geometry(128), way.operands, way.result,
                                          way.fast, described_h100());
        EXPECT_NE(choice.text, "") << choice.why_none;
        EXPECT_FALSE(way.operands == Storage::fp32 && choice.tensor_cores) << choice.text;
        ++chosen;
        on_cores += choice.tensor_cores ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(chosen, 5 * 3 * 7);
  EXPECT_GT(on_cores, chosen / 2) << "of six in seven that may; few channels do not pay";
}

// Groups, also of single channels, in both layouts.
TEST(CudnnEngines, ExistForGroupedConvolutions) {
  if (!cannot_ask().empty()) GTEST_SKIP() << cannot_ask();
  for (const int64_t groups : {2, 8, 32}) {
    const ConvLayer layer{32, 14, 32, 3, 1, 1, groups};
    for (const ConvProduct product : kProducts) {
      for (const Storage operands : {Storage::fp32, Storage::tf32, Storage::fp16}) {
        const CudnnChoice choice =
            choose(product, layer.geometry(16), operands, Storage::fp32, false, described_h100());
        EXPECT_NE(choice.text, "") << choice.why_none;
      }
    }
  }
}

// With the layout that they are given in and enough memory, all but the first layer's products of
// tf32 are multiplied on tensor cores.
TEST(CudnnEngines, MultiplyTf32OnTensorCores) {
  if (!cannot_ask().empty()) GTEST_SKIP() << cannot_ask();
  for (const DescribedGpu& gpu : {described_h100(), described_h200(), described_a100()}) {
    for (const ConvLayer& layer :
         {ConvLayer{64, 56, 256, 1, 1, 0}, ConvLayer{128, 56, 128, 3, 2, 1}}) {
      for (const ConvProduct product : kProducts) {
        for (const bool channels_last : {false, true}) {
          const ConvPlan plan = plan_convolution(product, layer.geometry(256), Storage::tf32,
                                                 Storage::fp32, channels_last);
          const CudnnChoice choice = gpu::cudnn_choice(plan, false, gpu.json).value();
          EXPECT_TRUE(choice.tensor_cores) << gpu.name << ": " << choice.text << choice.why_none;
          EXPECT_FALSE(choice.compiled_now) << choice.text;
          // ONNX's order is converted in the workspace.
          if (!channels_last) {
            EXPECT_GT(choice.workspace_bytes, int64_t{1} << 25) << choice.text;
          }
        }
      }
    }
  }
}

// Sums of 16-bit operands in fp32, on tensor cores, without making the operands wider.
TEST(CudnnEngines, SumHalvesInFp32WhereThereIsADriver) {
  if (!cannot_ask().empty()) GTEST_SKIP() << cannot_ask();
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr || dlsym(driver, "halfscope_described_driver") == nullptr) {
    GTEST_SKIP() << "the stand-in for a driver is not in LD_LIBRARY_PATH: see the test "
                    "cudnn_engines_with_driver of ctest";
  }
  const ConvLayer layer{64, 56, 64, 3, 1, 1};
  for (const auto& [gpu, half] :
       {std::pair(described_h100(), Storage::fp16), std::pair(described_h100(), Storage::bf16),
        std::pair(described_h200(), Storage::fp16), std::pair(described_a100(), Storage::fp16)}) {
    for (const ConvProduct product : kProducts) {
      const CudnnChoice choice =
          choose(product, layer.geometry(256), half, Storage::fp32, false, gpu);
      EXPECT_TRUE(choice.tensor_cores) << gpu.name << ": " << choice.text << choice.why_none;
      EXPECT_TRUE(choice.sums_copied) << choice.text;
      EXPECT_NE(choice.text.find(std::string(" in ") + gpu::name_of(half)), std::string::npos)
          << choice.text;
    }
  }
  // 3 channels do not fill the 16 bytes that the gradients' engines need: they are multiplied as
  // tf32.
  const ConvLayer first{3, 32, 16, 3, 1, 1};
  const CudnnChoice choice = choose(ConvProduct::grad_weight, first.geometry(128), Storage::fp16,
                                    Storage::fp32, false, described_h100());
  EXPECT_NE(choice.text.find(" in tf32, channels last"), std::string::npos) << choice.text;
}

}  // namespace
}  // namespace halfscope
