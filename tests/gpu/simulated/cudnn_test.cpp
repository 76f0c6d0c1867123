// SPDX-License-Identifier: MIT
// The simulated cuDNN notices what a caller does wrong: each mistake is made here. Sums of whole
// numbers are exact, so every deviation is one.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/cudnn_layers.h"
#include "core/numeric/formats/codes.h"
#include "gpu/libraries/cudnn_descriptor.cuh"
#include "gpu/libraries/cudnn_engines.cuh"
#include "gpu/libraries/cudnn_graph.cuh"
#include "gpu/libraries/cudnn_sums.cuh"
#include "gpu/libraries/cudnn_workspace.cuh"
#include "gpu/libraries/libraries.h"
#include "tests/gpu/simulated/device.h"

namespace halfscope::simulated {
namespace {

using gpu::ConvPlan;
using gpu::ConvProduct;
using gpu::Storage;
using gpu::cudnn::Descriptor;
using gpu::cudnn::functions;
using gpu::cudnn::require;

constexpr int64_t kChannels = 16, kPixels = 6, kElements = kChannels * kPixels;

/// y = x * w with 16 channels, 2 x 3 pixels, and a filter of 1 x 1.
ConvPlan plan_of(Storage operands, Storage result, int64_t groups = 1) {
  const gpu::ConvGeometry s{.group = groups,
                            .in = kChannels / groups,
                            .height = 2,
                            .width = 3,
                            .out = kChannels / groups,
                            .out_height = 2,
                            .out_width = 3};
  return plan_convolution(ConvProduct::forward, s, operands, result, true);
}

class SimulatedCudnn : public testing::Test {
 protected:
  SimulatedCudnn() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(functions().create(&handle_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(functions().set_stream(handle_, stream_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), 5 * kPart), cudaSuccess);
  }
  ~SimulatedCudnn() override {
    static_cast<void>(functions().destroy(handle_));
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  static float x_at(int64_t i) { return static_cast<float>(i * 5 % 63 - 31); }
  static float w_at(int64_t i) { return static_cast<float>(i * 11 % 61 - 20); }

  /// Returns what a convolution by hand gives, in the layout of y.
  static std::vector<float> expected(int64_t groups = 1) {
    const int64_t each = kChannels / groups;
    std::vector<float> y;
    for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
      for (int64_t k = 0; k < kChannels; ++k) {
        float sum = 0.0f;
        for (int64_t c = 0; c < each; ++c) {
          sum += x_at(pixel * kChannels + k / each * each + c) * w_at(k * each + c);
        }
        y.push_back(sum);
      }
    }
    return y;
  }

  /// Places of operands, result and workspace in the memory, to be changed by mistakes.
  struct Places {
    int64_t x = 0, w = kPart, y = 2 * kPart, workspace = 3 * kPart;
  };

  /// Runs an engine and returns the result.
  std::vector<float> run(const ConvPlan& plan, const Descriptor& config, const Places& at) {
    std::vector<std::byte> bytes(2 * kPart);
    const auto put = [&](int64_t place, Storage storage, const auto& value, int64_t count) {
      const FloatFormat format = format_of(storage);
      const auto size = static_cast<size_t>(bytes_of(storage));
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t code = encode(value(i), format);
        std::memcpy(bytes.data() + place + i * static_cast<int64_t>(size), &code, size);
      }
    };
    put(0, plan.x.storage, x_at, kElements);
    put(kPart, plan.w.storage, w_at, kChannels * plan.w.size[1]);
    EXPECT_EQ(cudaMemcpyAsync(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    Descriptor execution(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    execution.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle_);
    execution.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    execution.finalize("execution plan");
    const int64_t names[] = {gpu::cudnn::kX, gpu::cudnn::kW, gpu::cudnn::kY};
    void* const pointers[] = {memory_ + at.x, memory_ + at.w, memory_ + at.y};
    void* const workspace = memory_ + at.workspace;
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names, 3);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, 3);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
    pack.finalize("variant pack");
    require(functions().execute(handle_, execution.raw(), pack.raw()), "execute");
    std::vector<float> y(kElements);
    const auto size = static_cast<size_t>(bytes_of(plan.y.storage));
    std::vector<std::byte> made(kElements * size);
    EXPECT_EQ(
        cudaMemcpyAsync(made.data(), memory_ + at.y, made.size(), cudaMemcpyDeviceToHost, stream_),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (size_t i = 0; i < y.size(); ++i) {
      uint32_t code = 0;
      std::memcpy(&code, made.data() + i * size, size);
      y[i] = decode(code, format_of(plan.y.storage));
    }
    return y;
  }

  static int64_t index_of(const Descriptor& config) { return gpu::cudnn::look_at(config).engine; }
  std::vector<Descriptor> configs(const Descriptor& graph, bool fallback) const {
    return gpu::cudnn::configurations(
        graph, fallback ? CUDNN_HEUR_MODE_FALLBACK : CUDNN_HEUR_MODE_A, {handle_, nullptr});
  }
  /// Returns the engines whose results are exact whenever they run, and those that are not.
  std::pair<std::set<int64_t>, std::set<int64_t>> sorted_engines(const ConvPlan& plan,
                                                                 bool two_nodes) {
    const gpu::cudnn::Nodes nodes(plan, two_nodes);
    const Descriptor graph = nodes.graph(handle_);
    std::set<int64_t> right, wrong;
    for (const bool fallback : {false, true}) {
      for (const Descriptor& config : configs(graph, fallback)) {
        const int64_t index = index_of(config);
        if (index == 6 || index == 24) continue;  // no device has so much memory
        bool exact = true;
        for (int i = 0; i < 2; ++i) {
          exact = exact && run(plan, config, {}) == expected(plan.groups());
        }
        (exact ? right : wrong).insert(index);
      }
    }
    return {right, wrong};
  }

  /// Returns the result of the good engine of two nodes whose convolution sums in `compute` and
  /// whose virtual tensor has the type `sums`.
  std::vector<float> summed_in(cudnnDataType_t compute, Storage sums) {
    const ConvPlan plan = plan_of(Storage::fp16, Storage::fp32);
    gpu::TensorPlan between = plan.y;
    between.storage = sums;
    const Descriptor x = gpu::cudnn::tensor(gpu::cudnn::kX, plan.x),
                     w = gpu::cudnn::tensor(gpu::cudnn::kW, plan.w),
                     from = gpu::cudnn::tensor(gpu::cudnn::kSums, between, true),
                     y = gpu::cudnn::tensor(gpu::cudnn::kY, plan.y);
    Descriptor window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t two = 2, none[] = {0, 0}, one[] = {1, 1};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    window.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, &two);
    window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
    window.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode);
    window.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, none, 2);
    window.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, none, 2);
    window.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, one, 2);
    window.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, one, 2);
    window.finalize("convolution");
    const gpu::cudnn::OperationNames names = gpu::cudnn::names_of(ConvProduct::forward);
    const float alpha = 1.0f, beta = 0.0f;
    Descriptor product(names.type);
    product.set(names.x, x);
    product.set(names.w, w);
    product.set(names.y, from);
    product.set(names.window, window);
    product.set(names.alpha, CUDNN_TYPE_FLOAT, &alpha);
    product.set(names.beta, CUDNN_TYPE_FLOAT, &beta);
    product.finalize("operation");
    Descriptor identity(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const cudnnPointwiseMode_t copies = CUDNN_POINTWISE_IDENTITY;
    const cudnnDataType_t in = CUDNN_DATA_FLOAT;
    identity.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &copies);
    identity.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &in);
    identity.finalize("copy");
    Descriptor copy(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    copy.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, identity);
    copy.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
    copy.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    copy.finalize("copy");
    const cudnnBackendDescriptor_t nodes[] = {product.raw(), copy.raw()};
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle_);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, nodes, 2);
    graph.finalize("operation graph");
    for (const Descriptor& config : configs(graph, false)) {
      if (index_of(config) == 27) return run(plan, config, {});
    }
    return {};
  }

  static constexpr int64_t kPart = 8192;
  cudaStream_t stream_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  std::byte* memory_ = nullptr;
};

using Engines = std::set<int64_t>;

TEST_F(SimulatedCudnn, EnginesThatACarefulCallerRejectsAreWrong) {
  const auto of = [&](Storage operands, Storage result, bool two, int64_t groups = 1) {
    return sorted_engines(plan_of(operands, result, groups), two);
  };
  EXPECT_EQ(of(Storage::fp32, Storage::fp32, false),
            std::pair(Engines{7, 9, 10}, Engines{1, 2, 3, 4, 8, 11}));
  EXPECT_EQ(of(Storage::fp16, Storage::fp32, true),
            std::pair(Engines{27}, Engines{21, 22, 23, 25}));
  EXPECT_EQ(of(Storage::fp16, Storage::fp32, false), std::pair(Engines{71}, Engines{}));
  EXPECT_EQ(of(Storage::fp32, Storage::fp32, false, 4), std::pair(Engines{5, 10}, Engines{}));
  EXPECT_EQ(of(Storage::fp16, Storage::fp32, true, 4), std::pair(Engines{}, Engines{}));
}

TEST_F(SimulatedCudnn, SumsInTheTypesThatAreDescribed) {
  EXPECT_EQ(summed_in(CUDNN_DATA_FLOAT, Storage::fp32), expected());
  EXPECT_NE(summed_in(CUDNN_DATA_HALF, Storage::fp32), expected());
  EXPECT_NE(summed_in(CUDNN_DATA_BFLOAT16, Storage::fp32), expected());
  EXPECT_NE(summed_in(CUDNN_DATA_FLOAT, Storage::fp16), expected());
  EXPECT_NE(summed_in(CUDNN_DATA_FLOAT, Storage::bf16), expected());
}

TEST_F(SimulatedCudnn, TheGoodEnginesAreChosen) {
  std::string why;
  const std::unique_ptr<gpu::ProductLibrary> library = gpu::open_cudnn(stream_, false, why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_EQ(library->device_bytes(), 0);
  const auto choice = [&](Storage operands, Storage result, int64_t groups = 1) {
    const auto product = library->convolution(plan_of(operands, result, groups), why);
    if (product == nullptr) return why;
    const std::string text = product->text();
    return text.substr(text.find("engine"), text.find(", knobs") - text.find("engine"));
  };
  EXPECT_EQ(choice(Storage::fp16, Storage::fp32),
            "engine 27 on tensor cores, compiled at run time, sums copied");
  EXPECT_EQ(library->device_bytes(), 512);
  EXPECT_EQ(choice(Storage::tf32, Storage::fp32), "engine 7 on tensor cores");
  EXPECT_EQ(library->device_bytes(), 4096) << "as much as the engine that needs most";
  EXPECT_EQ(choice(Storage::fp32, Storage::fp32), "engine 9");
  EXPECT_EQ(choice(Storage::tf32, Storage::fp32, 4), "engine 5, compiled at run time");
  EXPECT_EQ(choice(Storage::fp16, Storage::fp32, 4),
            "cuDNN: no engine: its heuristics propose none");
  EXPECT_EQ(library->device_bytes(), 4096);
}

/// A convolution of 7 x 7 pixels in fp32.
ConvPlan plan_of_window(ConvProduct product, int64_t window, int64_t pad, int64_t stride = 1) {
  const ConvLayer layer{3, 7, 4, window, stride, pad};
  return plan_convolution(product, layer.geometry(2), Storage::fp32, Storage::fp32, false);
}

// Engine 12 transforms its operands and does not say so.
TEST_F(SimulatedCudnn, EnginesThatTransformAreFoundByWhatTheyCompute) {
  std::string why;
  const std::unique_ptr<gpu::ProductLibrary> library = gpu::open_cudnn(stream_, false, why);
  ASSERT_NE(library, nullptr) << why;
  for (const ConvProduct product :
       {ConvProduct::forward, ConvProduct::grad_input, ConvProduct::grad_weight}) {
    for (const auto& [window, pad] : {std::pair(2, 0), {2, 1}, {3, 0}, {3, 1}, {5, 0}, {5, 2}}) {
      const ConvPlan plan = plan_of_window(product, window, pad);
      ASSERT_TRUE(gpu::cudnn::neighbour_check(plan).has_value());
      const auto chosen = library->convolution(plan, why);
      ASSERT_NE(chosen, nullptr) << why;
      EXPECT_NE(chosen->text().find(": engine 9, "), std::string::npos) << chosen->text();
    }
  }
  EXPECT_EQ(gpu::cudnn::neighbour_check(plan_of_window(ConvProduct::forward, 1, 0)), std::nullopt);
  EXPECT_EQ(gpu::cudnn::neighbour_check(plan_of_window(ConvProduct::forward, 3, 1, 2)),
            std::nullopt)
      << "no engine transforms a window that is moved by two";
}

using SimulatedCudnnDeathTest = SimulatedCudnn;

TEST_F(SimulatedCudnnDeathTest, PointersMustFit) {
  const ConvPlan plan = plan_of(Storage::fp16, Storage::fp32);
  const gpu::cudnn::Nodes nodes(plan, true);
  const Descriptor graph = nodes.graph(handle_);
  const std::vector<Descriptor> all = configs(graph, false);
  const Descriptor& good = all.back();
  ASSERT_EQ(index_of(good), 27);
  EXPECT_EQ(run(plan, good, {}), expected());
  EXPECT_DEATH(run(plan, good, {.x = 4}), "does not begin where its descriptor says");
  EXPECT_DEATH(run(plan, good, {.y = 2 * kPart + 8}), "does not begin where its descriptor says");
  EXPECT_DEATH(run(plan, good, {.y = 5 * kPart - 16}), "reaches over its memory");
  EXPECT_DEATH(run(plan, good, {.workspace = 5 * kPart - 256}), "the workspace is too small");
  EXPECT_DEATH(run(plan, good, {.workspace = 3 * kPart + 4}), "the workspace is not aligned");
  EXPECT_DEATH(run(plan, good, {.w = 0, .y = 0}), "replaces an operand");
  // An engine overwrites its workspace.
  EXPECT_NE(run(plan, good, {.workspace = kPart}), expected());
}

// Engines that need more memory than there is are not chosen, and the memory follows the choice.
TEST_F(SimulatedCudnn, AWorkspaceGrowsUntilItIsUsed) {
  constexpr int64_t kMebi = int64_t{1} << 20;
  gpu::cudnn::Workspace workspace;
  EXPECT_EQ(workspace.bytes(), 0);
  EXPECT_TRUE(workspace.reserve(kMebi));
  EXPECT_TRUE(workspace.reserve(64));
  EXPECT_EQ(workspace.bytes(), kMebi);
  EXPECT_TRUE(workspace.reserve(2 * kMebi));
  EXPECT_EQ(workspace.bytes(), 2 * kMebi);
  EXPECT_FALSE(workspace.reserve(gpu::cudnn::kMostWorkspaceBytes + 1));
  EXPECT_EQ(workspace.bytes(), 2 * kMebi);
  void* const before = *workspace.use();
  EXPECT_FALSE(workspace.reserve(3 * kMebi)) << "a CUDA graph may contain its address";
  EXPECT_TRUE(workspace.reserve(kMebi));
  EXPECT_EQ(*workspace.use(), before);
}

TEST_F(SimulatedCudnn, AWorkspaceSettlesForLessIfMemoryIsShort) {
  constexpr int64_t kMebi = int64_t{1} << 20, kGibi = int64_t{1} << 30;
  gpu::cudnn::Workspace workspace;
  ASSERT_TRUE(workspace.reserve(8 * kMebi));
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  limit_memory(static_cast<int64_t>(total - free) + 40 * kMebi);  // after the limit was found
  EXPECT_FALSE(workspace.reserve(kGibi));
  EXPECT_EQ(workspace.bytes(), 8 * kMebi);
  EXPECT_FALSE(workspace.reserve(kGibi / 2 + 1)) << "half of it is the limit now";
  EXPECT_TRUE(workspace.reserve(32 * kMebi));
  EXPECT_EQ(workspace.bytes(), 32 * kMebi);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "nobody else hears of it";
  limit_memory(static_cast<int64_t>(total));
}

}  // namespace
}  // namespace halfscope::simulated
