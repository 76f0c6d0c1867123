// SPDX-License-Identifier: MIT
// The simulated cuBLASLt notices the mistakes that it is there to find: each is made here. What
// gpu/libraries/cublas_lt.cpp makes of a product has the emulator's bits on it, which a wrong
// compute type, short accumulators, a split sum or a wrong stride would change.
#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "gpu/backends.h"
#include "tests/gpu/one_node.h"
#include "tests/gpu/simulated/device.h"
#include "tests/gpu/simulated/stored.h"

namespace halfscope {
namespace {

using test::noise;
using test::OneNode;
using testing::ElementsAre;

constexpr int32_t kRows = 16, kColumns = 32, kDepth = 64, kBatch = 3;
constexpr int32_t kGood = 66, kDoesNotRun = 7, kSplits = 21, kSplitsQuietly = 22, kReduces = 23;

/// The description that the library gets. A is kept as [row][depth], B as [column][depth]: "TN".
struct Call {
  cudaDataType_t type = CUDA_R_32F, result = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int8_t fast_accumulation = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  int32_t algorithm = kGood;  ///< id
  int32_t batch = kBatch, batch_of_a = kBatch;
  int64_t stride_a = kRows * kDepth, stride_d = kRows * kColumns;
  uint32_t alignment = 64;
  int64_t begin_a = 0;  ///< in elements
  uint64_t workspace = 4096;
  bool biased = false, own_bias_type = true;
  int32_t other_rows =
      0;                  ///< rows of the product for which the algorithm is asked for; 0: the same
  bool in_place = false;  ///< writes over A
};

class CublasLt : public testing::Test {
 protected:
  CublasLt() {
    EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    for (void** memory : {&a_, &b_, &d_, &bias_, &workspace_}) {
      EXPECT_EQ(cudaMalloc(memory, kBytes), cudaSuccess);
    }
  }
  ~CublasLt() override {
    for (void* memory : {a_, b_, d_, bias_, workspace_}) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
  }

  /// Returns the ids that the heuristics propose; chooses the call's.
  std::vector<int32_t> proposed(const Call& call) {
    Objects objects(call, call.other_rows == 0 ? kRows : call.other_rows, bias_);
    cublasLtMatmulHeuristicResult_t found[16];
    int count = 0;
    status_ = cublasLtMatmulAlgoGetHeuristic(handle_, objects.how, objects.a, objects.b, objects.d,
                                             objects.d, objects.wanted, 16, found, &count);
    std::vector<int32_t> ids;
    for (int i = 0; i < count; ++i) {
      int32_t id = 0;
      size_t written = 0;
      EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                     sizeof id, &written),
                CUBLAS_STATUS_SUCCESS);
      if (id == call.algorithm) chosen_ = found[i];
      ids.push_back(id);
    }
    return ids;
  }

  cublasStatus_t status_of(const Call& call) {
    proposed(call);
    return status_;
  }

  /// Returns d.
  std::vector<float> run(const Call& call) {
    put(a_, call.type, kBatch * kRows * kDepth, 1);
    put(b_, call.type, kBatch * kColumns * kDepth, 2);
    put(bias_, call.result, kRows, 3);
    EXPECT_FALSE(proposed(call).empty());
    const Objects objects(call, kRows, bias_);
    const float wide[2] = {1.0f, 0.0f};
    const uint16_t half[2] = {0x3c00, 0};
    const bool halves = call.compute == CUBLAS_COMPUTE_16F;
    const void* const one = halves ? static_cast<const void*>(half) : wide;
    const void* const zero = halves ? static_cast<const void*>(half + 1) : wide + 1;
    const void* const first = static_cast<const std::byte*>(a_) + call.begin_a * width(call.type);
    void* const d = call.in_place ? a_ : d_;
    EXPECT_EQ(
        cublasLtMatmul(handle_, objects.how, one, first, objects.a, b_, objects.b, zero, d,
                       objects.d, d, objects.d, &chosen_.algo, workspace_, call.workspace, stream_),
        CUBLAS_STATUS_SUCCESS);
    return got(d, call.result, call.batch * kRows * kColumns);
  }

  static constexpr size_t kBytes = kBatch * kColumns * kDepth * 4;

 private:
  struct Objects {
    cublasLtMatmulDesc_t how = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulPreference_t wanted = nullptr;

    Objects(const Call& call, int32_t rows, void* bias) {
      cublasLtMatmulDescCreate(&how, call.compute,
                               call.compute == CUBLAS_COMPUTE_16F ? CUDA_R_16F : CUDA_R_32F);
      set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T});
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, call.fast_accumulation);
      if (call.biased) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
        if (!call.own_bias_type) {
          set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(CUDA_R_32F));
        }
      }
      cublasLtMatrixLayoutCreate(&a, call.type, kDepth, static_cast<uint64_t>(rows), kDepth);
      cublasLtMatrixLayoutCreate(&b, call.type, kDepth, kColumns, kDepth);
      cublasLtMatrixLayoutCreate(&d, call.result, static_cast<uint64_t>(rows), kColumns, rows);
      batch(a, call.batch_of_a, call.stride_a);
      batch(b, call.batch, kColumns * kDepth);
      batch(d, call.batch, call.stride_d);
      cublasLtMatmulPreferenceCreate(&wanted);
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kBytes});
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, call.reductions);
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, call.alignment);
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, call.alignment);
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, call.alignment);
    }
    Objects(const Objects&) = delete;
    Objects& operator=(const Objects&) = delete;
    ~Objects() {
      cublasLtMatmulPreferenceDestroy(wanted);
      for (cublasLtMatrixLayout_t each : {a, b, d}) cublasLtMatrixLayoutDestroy(each);
      cublasLtMatmulDescDestroy(how);
    }
    template <class T>
    void set(cublasLtMatmulDescAttributes_t which, T value) const {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(how, which, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    }
    template <class T>
    void prefer(cublasLtMatmulPreferenceAttributes_t which, T value) const {
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(wanted, which, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    }
    static void batch(cublasLtMatrixLayout_t layout, int32_t count, int64_t stride) {
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                       sizeof count);
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                       sizeof stride);
    }
  };

  static int64_t width(cudaDataType_t type) { return simulated::format_of(type)->bits() / 8; }
  void put(void* memory, cudaDataType_t type, int64_t count, uint64_t seed) {
    std::vector<std::byte> codes(static_cast<size_t>(count * width(type)));
    const std::vector<float> values = noise(count, seed);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t code = encode(values[static_cast<size_t>(i)], *simulated::format_of(type));
      std::memcpy(codes.data() + i * width(type), &code, static_cast<size_t>(width(type)));
    }
    EXPECT_EQ(cudaMemcpyAsync(memory, codes.data(), codes.size(), cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
  }
  std::vector<float> got(void* memory, cudaDataType_t type, int64_t count) {
    std::vector<std::byte> codes(static_cast<size_t>(count * width(type)));
    EXPECT_EQ(cudaMemcpyAsync(codes.data(), memory, codes.size(), cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(simulated::load(codes.data(), i, *simulated::format_of(type)));
    }
    return values;
  }

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void *a_ = nullptr, *b_ = nullptr, *d_ = nullptr, *bias_ = nullptr, *workspace_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};
using SimulatedDeviceCublasLt = CublasLt;
using SimulatedDeviceCublasLtDeathTest = CublasLt;

TEST_F(SimulatedDeviceCublasLt, MultipliesABatch) {
  const std::vector<float> d = run({});
  const std::vector<float> a = noise(kBatch * kRows * kDepth, 1);
  const std::vector<float> b = noise(kBatch * kColumns * kDepth, 2);
  for (const size_t p : {size_t{0}, size_t{2}}) {
    float sum = 0.0f;  // of element (row 5, column 7)
    for (size_t l = 0; l < kDepth; ++l) {
      sum = std::fma(b[(p * kColumns + 7) * kDepth + l], a[(p * kRows + 5) * kDepth + l], sum);
    }
    EXPECT_EQ(d[(p * kColumns + 7) * kRows + 5], sum);
  }
}

TEST_F(SimulatedDeviceCublasLt, ComputeTypesChangeBits) {
  const std::vector<float> exact = run({});
  EXPECT_EQ(run({.compute = CUBLAS_COMPUTE_32F_PEDANTIC}), exact);
  for (const cublasComputeType_t compute :
       {CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32}) {
    EXPECT_NE(run({.compute = compute}), exact);
    EXPECT_EQ(status_of({.type = CUDA_R_16F, .compute = compute}), CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const Call half{.type = CUDA_R_16F, .result = CUDA_R_16F};
  Call sums = half;
  sums.compute = CUBLAS_COMPUTE_16F;
  EXPECT_NE(run(sums), run(half));
  sums.result = CUDA_R_32F;
  EXPECT_EQ(status_of(sums), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(SimulatedDeviceCublasLt, FastAccumulationLosesBits) {
  const Call slow{.type = CUDA_R_8F_E4M3};
  Call fast = slow;
  fast.fast_accumulation = 1;
  const std::vector<float> all = run(slow), some = run(fast);
  EXPECT_NE(all, some);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], some[i], 64 * 0x1p-8);
}

TEST_F(SimulatedDeviceCublasLt, ProposesAlgorithmsThatSplitSums) {
  Call call;
  EXPECT_THAT(proposed(call), ElementsAre(kDoesNotRun, kSplits, kSplitsQuietly, kReduces, kGood));
  const std::vector<float> whole = run(call);
  for (const int32_t id : {kSplits, kSplitsQuietly, kReduces}) {
    call.algorithm = id;
    call.workspace = kBytes;
    EXPECT_NE(run(call), whole) << id;
  }
  call.reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  EXPECT_THAT(proposed(call), ElementsAre(kDoesNotRun, kSplitsQuietly, kGood));
}

TEST_F(SimulatedDeviceCublasLt, AddsABiasBeforeItRounds) {
  const std::vector<float> sums = run({.type = CUDA_R_16F});
  const std::vector<float> made = run({.type = CUDA_R_16F, .result = CUDA_R_16F, .biased = true});
  const std::vector<float> bias = noise(kRows, 3);
  for (size_t i = 0; i < made.size(); ++i) {
    const float added = round_to_format(bias[i % kRows], kFp16).value;
    EXPECT_EQ(made[i], round_to_format(sums[i] + added, kFp16).value);
  }
}

TEST_F(SimulatedDeviceCublasLt, RefusesWhatItHasNoKernelFor) {
  EXPECT_EQ(status_of({}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status_of({.batch_of_a = 2}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status_of({.type = CUDA_R_8F_E4M3, .alignment = 8}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status_of({.type = CUDA_R_16F, .alignment = 2}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status_of({.type = CUDA_R_8F_E5M2}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(
      status_of({.type = CUDA_R_16F, .result = CUDA_R_16F, .biased = true, .own_bias_type = false}),
      CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(SimulatedDeviceCublasLtDeathTest, EndsProgramsThatBreakItsRules) {
  EXPECT_DEATH(run({.algorithm = kDoesNotRun}), "does not run");
  EXPECT_DEATH(run({.algorithm = kSplits, .workspace = kBytes - 1}), "workspace is too small");
  EXPECT_DEATH(run({.other_rows = 8}), "not proposed for");
  EXPECT_DEATH(run({.begin_a = 8}), "does not begin where");
  EXPECT_DEATH(run({.stride_a = kRows * kDepth - 8}), "does not begin where");
  EXPECT_DEATH(run({.stride_a = 1 << 20}), "reaches over its memory");
  EXPECT_DEATH(run({.stride_d = kRows * kColumns - 16}), "matrices of the output overlap");
  EXPECT_DEATH(run({.in_place = true}), "overwrites its operands");
}

/// Products of the library, in place and copied, alone and in batches of one level and two.
std::vector<OneNode> products(const FloatFormat& read, const FloatFormat& write) {
  const Attributes tb{{"transB", int64_t{1}}};
  return {{"Gemm", {{16, 48}, {32, 48}, {32}}, read, write, tb},
          {"Gemm", {{5, 37}, {37, 9}}, read, write},
          {"MatMul", {{2, 3, 16, 48}, {2, 3, 32, 48}}, read, write, tb},
          {"MatMul", {{2, 3, 5, 37}, {2, 3, 37, 9}}, read, write},
          {"MatMul", {{2, 3, 16, 48}, {3, 32, 48}}, read, write, tb},
          {"MatMul", {{2, 3, 2, 16, 48}, {2, 3, 1, 32, 48}}, read, write, tb}};
}

TEST(OnSimulatedDevice, ProductsOfCublasLtHaveTheBitsOfTheEmulator) {
  for (const FloatFormat& read : {kFp32, kTf32, kFp16, kBf16, kE4m3fn}) {
    SCOPED_TRACE(format_name(read));
    for (const OneNode& product : products(read, kFp32)) {
      test::Lockstep lockstep(product.executable, cuda_backend(GpuProducts::library));
      ASSERT_TRUE(lockstep.candidate().by_library(0)) << lockstep.candidate().kernel_of(0);
      EXPECT_THAT(lockstep.candidate().kernel_of(0), testing::HasSubstr("algorithm 66"));
      product.write_operands(lockstep);
      for (int i = 0; i < 3; ++i) lockstep.run(Entry::grad, true);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// The comparison above can fail: it does where the library is free to lose bits.
TEST(OnSimulatedDevice, FastProductsHaveOtherBits) {
  for (const FloatFormat& read : {kFp32, kFp16, kE4m3fn}) {
    const OneNode product = products(read, kFp32)[0];
    test::Lockstep lockstep(product.executable, cuda_backend(GpuProducts::fast));
    lockstep.keep_differences();
    product.write_operands(lockstep);
    lockstep.run(Entry::grad, false);
    EXPECT_THAT(lockstep.first_difference(), testing::StartsWith("value ")) << format_name(read);
  }
}

// A bias that the library adds: recorded steps have the same bits, and others launch nothing else.
TEST(OnSimulatedDevice, RecordedStepsHaveTheBitsOfTheLibrarysRounding) {
  for (const FloatFormat& format : {kFp16, kBf16}) {
    const OneNode product = products(format, format)[0];
    const auto program = [&] {
      std::unique_ptr<Program> made = cuda_backend(GpuProducts::fast).compile(product.executable);
      EXPECT_THAT(made->kernel_of(0), testing::HasSubstr(" with bias"));
      product.write_operands(*made);
      made->keep_values(false);
      return made;
    };
    test::Lockstep near(product.executable, cuda_backend(GpuProducts::fast));
    product.write_operands(near);
    near.run_near(Entry::grad, 0.02, false);  // far less than a bias
    const std::unique_ptr<Program> recorded = program(), plain = program();
    for (int i = 0; i < 3; ++i) {
      std::vector<TensorStats> stats(1);
      recorded->run(Entry::grad, stats);
      plain->run(Entry::grad, {});
      EXPECT_EQ(recorded->read(product.result).data, plain->read(product.result).data);
      EXPECT_EQ(stats[0].n, 16 * 32);
    }
    const auto kernels = [&] {
      const int64_t before = simulated::launches().single;
      const std::unique_ptr<Program> first = program();
      const int64_t compiled = simulated::launches().single;
      first->run(Entry::grad, {});
      EXPECT_GT(compiled, before);
      return simulated::launches().single - compiled;
    };
    EXPECT_EQ(kernels(), 0) << "the library does it all";
  }
}

std::string graph_of(const Shape& a, const Shape& b, GpuProducts products) {
  const OneNode product("MatMul", {a, b}, kFp16, kFp16);
  const std::unique_ptr<Program> program = cuda_backend(products).compile(product.executable);
  product.write_operands(*program);
  program->keep_values(false);
  for (int i = 0; i < 3; ++i) program->run(Entry::grad, {});
  const std::vector<std::string> ways = program->launches_of(Entry::grad);
  return ways.size() == 1 ? ways[0] : "";
}

// Attention: batches of heads.
TEST(OnSimulatedDevice, ABatchOfProductsIsOneCall) {
  for (const GpuProducts which : {GpuProducts::library, GpuProducts::fast}) {
    const std::string one = graph_of({1, 1, 8, 16}, {1, 1, 16, 8}, which);
    EXPECT_THAT(one, testing::MatchesRegex("CUDA graph of [1-3] nodes"));
    EXPECT_EQ(graph_of({4, 12, 8, 16}, {4, 12, 16, 8}, which), one);
    const std::string copied = graph_of({1, 1, 8, 15}, {1, 1, 15, 8}, which);
    EXPECT_THAT(copied, testing::MatchesRegex("CUDA graph of [1-5] nodes"));
    EXPECT_EQ(graph_of({4, 12, 8, 15}, {4, 12, 15, 8}, which), copied);
  }
}

}  // namespace
}  // namespace halfscope
