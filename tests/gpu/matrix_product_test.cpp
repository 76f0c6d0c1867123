// SPDX-License-Identifier: MIT
// Plans of matrix products for a library, in numbers; how much work they launch; results that a
// library rounds after it has added the bias.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/libraries/libraries.h"
#include "tests/gpu/interpreted_library.h"
#include "tests/gpu/one_node.h"
#include "tests/gpu/op_lockstep.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operands of these tests
using gpu::BatchLevel;
using gpu::BatchOffset;
using gpu::InPlacePlan;
using testing::AnyOf;
using testing::StartsWith;

std::optional<InPlacePlan> plan_of(const std::vector<BatchLevel>& levels,
                                   Storage storage = Storage::fp16) {
  return gpu::plan_batch_in_place(8, 24, 16, {16, 1, 24, 1}, levels, storage, storage, storage);
}

TEST(MatrixPlans, ABatchIsOneCall) {
  const std::optional<InPlacePlan> one = plan_of({});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->matrix.count, 1);
  EXPECT_EQ(one->calls.size(), 1u);
  const std::optional<InPlacePlan> six = plan_of({{6, 128, 384, 192}});
  ASSERT_TRUE(six);
  const MatrixPlan& plan = six->matrix;
  EXPECT_EQ(plan.count, 6);
  EXPECT_EQ(plan.second.stride, 128);
  EXPECT_EQ(plan.first.stride, 384);
  EXPECT_EQ(plan.d.stride, 192);
  EXPECT_EQ(plan.second.alignment, 256);
  EXPECT_EQ(plan.first.alignment, 256);
  EXPECT_EQ(plan.d.alignment, 128) << "every other matrix begins on 384 bytes";
  EXPECT_EQ(six->calls.size(), 1u);
}

TEST(MatrixPlans, OneCallTakesTheLargestLevel) {
  // The operand a is the same for all products of the inner level, b for those of the outer one.
  const std::optional<InPlacePlan> plan = plan_of({{3, 0, 384, 192}, {5, 128, 0, 576}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->matrix.count, 5);
  EXPECT_EQ(plan->matrix.first.stride, 0);
  ASSERT_EQ(plan->calls.size(), 3u);
  EXPECT_EQ(plan->calls[2].a, 0);
  EXPECT_EQ(plan->calls[2].b, 768);
  EXPECT_EQ(plan->calls[2].d, 384);
  EXPECT_EQ(plan->matrix.d.alignment, 128);
}

TEST(MatrixPlans, ProductsWithTheSameRightOperandAreRowsOfOne) {
  const std::optional<InPlacePlan> plan = plan_of({{4, 128, 0, 192}, {3, 512, 384, 768}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->matrix.n, 32);
  EXPECT_EQ(plan->matrix.count, 3);
  EXPECT_EQ(plan->calls.size(), 1u);
  // Not if the rows of the next product are somewhere else.
  EXPECT_EQ(plan_of({{4, 256, 0, 192}})->matrix.count, 4);
}

TEST(MatrixPlans, NarrowMatricesBeginOnLines) {
  EXPECT_FALSE(plan_of({{2, 132, 384, 192}}));
  EXPECT_FALSE(plan_of({{2, 128, 388, 192}, {2, 256, 800, 384}}));
  const std::optional<InPlacePlan> wide = plan_of({{2, 129, 384, 192}}, Storage::fp32);
  ASSERT_TRUE(wide);
  EXPECT_EQ(wide->matrix.second.alignment, 4);
}

TEST(MatrixPlans, OffsetsAreThoseOfAllProducts) {
  const std::vector<BatchOffset> offsets = gpu::offsets_of({{2, 1, 10, 100}, {3, 7, 0, 1000}});
  ASSERT_EQ(offsets.size(), 6u);
  EXPECT_EQ(offsets[0].d, 0);
  EXPECT_EQ(offsets[3].a, 8);
  EXPECT_EQ(offsets[3].b, 10);
  EXPECT_EQ(offsets[5].d, 2100);
}

TEST(MatrixPlans, CopiesOfABatchFollowEachOther) {
  const gpu::PackedPlan plan =
      gpu::plan_packed(5, 37, 100, Storage::fp16, Storage::fp16, Storage::fp32, 3);
  EXPECT_EQ(plan.matrix.count, 3);
  EXPECT_EQ(plan.matrix.second.stride, 5 * 104);
  EXPECT_EQ(plan.matrix.first.stride, 40 * 104);
  EXPECT_EQ(plan.matrix.d.stride, 5 * 40);
  EXPECT_EQ(plan.matrix.second.alignment, 16);
  EXPECT_EQ(plan.matrix.d.alignment, 32);
  EXPECT_EQ(plan.operand_bytes(), 3 * 45 * 104 * 2);
  EXPECT_EQ(plan.sum_bytes(), 3 * 5 * 40 * 4);
  EXPECT_EQ(gpu::products_of_a_call(13, 10, 120), 7);
  EXPECT_EQ(gpu::products_of_a_call(12, 10, 120), 12);
  EXPECT_EQ(gpu::products_of_a_call(5, 10, 5), 1);
  EXPECT_EQ(gpu::products_of_a_call(1, 10, 1000), 1);
}

/// Launches of a MatMul without statistics: [batch][heads][rows][depth] times its counterpart.
int64_t launches(int64_t batch, int64_t heads, int64_t depth, const FloatFormat& format,
                 const InterpretedOptions& options = {}, int64_t shared = 1) {
  const OneNode product("MatMul", {{batch, heads, 8, depth}, {batch, heads / shared, depth, 16}},
                        format, format);
  return product.launches_on_host(LibraryBackend(options));
}

// As many for all heads of a batch as for a single product.
TEST(MatrixLaunches, DoNotGrowWithTheBatch) {
  for (const FloatFormat& format : {kFp32, kFp16, kBf16, kE4m3fn}) {
    for (const bool fast : {false, true}) {
      for (const int64_t depth : {16, 17}) {  // read in place, and copied
        SCOPED_TRACE(format_name(format) + ", depth " + std::to_string(depth));
        const int64_t one = launches(1, 1, depth, format, {.fast = fast});
        EXPECT_EQ(launches(5, 12, depth, format, {.fast = fast}), one);
        EXPECT_GT(one, 0);
        EXPECT_LE(one, 8) << "what every entry launches, two copies, the product, its results";
      }
    }
  }
}

TEST(MatrixLaunches, GrowWhereCopiesTakeTooMuchMemory) {
  const int64_t one = launches(1, 1, 17, kFp16), rest = one - 4;
  const int64_t bytes = (8 + 16) * 24 * 2 + 8 * 16 * 4;
  EXPECT_EQ(launches(5, 12, 17, kFp16, {.most_copied = 20 * bytes}), rest + 3 * 4);
  EXPECT_EQ(launches(5, 12, 17, kFp16, {.most_copied = 19 * bytes}), rest + 4 * 4);
}

// A last call that repeats products gives the same bits.
TEST(MatrixLaunches, CallsMayOverlap) {
  for (const FloatFormat& format : {kFp16, kE4m3fn}) {
    for (const int64_t most : {2000, 4000, 6000, 9000}) {
      SCOPED_TRACE(format_name(format) + ", " + std::to_string(most) + " bytes");
      const OpCase op{"batch", "MatMul", {noisy({7, 5, 17}, 1), noisy({7, 17, 9}, 2)}};
      OpLockstep program(op, {format, Accumulation::fp32}, LibraryBackend({.most_copied = most}));
      (*program).run(Entry::grad, true);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

std::string kernel(const OneNode& product, const InterpretedOptions& options) {
  return LibraryBackend(options).compile(product.executable)->kernel_of(0);
}

TEST(MatrixLaunches, AProgramSaysHowOftenItCalls) {
  const auto levels = [](int64_t size, const FloatFormat& format) {
    return OneNode("MatMul", {{size, 1, 4, 16}, {1, size, 16, 8}}, format, format);
  };
  EXPECT_EQ(kernel(levels(1, kFp16), {}), "interpreted matrix");
  EXPECT_EQ(kernel(levels(8, kFp16), {}), "interpreted matrix, 8 calls");
  EXPECT_EQ(kernel(levels(9, kFp16), {}), "interpreted matrix, operands copied first");
  const std::string in_place = kernel(levels(9, kFp32), {.most_copied = 0});
  EXPECT_EQ(in_place, "interpreted matrix, 9 calls") << "better than no library";
}

// Fast mode: the library adds the bias and rounds; nothing follows in a step without statistics. A
// recorded step measures what the library wrote and has the same bits.
TEST(MatrixBias, IsAddedByALibraryThatRounds) {
  const Shape a{5, 16}, b{16, 24};
  for (const FloatFormat& format : {kFp16, kBf16}) {
    SCOPED_TRACE(format_name(format));
    const OneNode biased("Gemm", {a, b, {24}}, format, format);
    const OneNode plain("Gemm", {a, b}, format, format);
    EXPECT_EQ(kernel(biased, {.fast = true}), "interpreted matrix with bias");
    const LibraryBackend fast({.fast = true}), exact({});
    EXPECT_EQ(biased.launches_on_host(fast), plain.launches_on_host(fast));
    EXPECT_EQ(biased.launches_on_host(fast), biased.launches_on_host(exact) - 1);
    Lockstep lockstep(biased.executable, fast);
    lockstep.keep_differences();
    biased.write_operands(lockstep);
    for (int i = 0; i < 3; ++i) lockstep.run(Entry::grad, true);
    EXPECT_THAT(lockstep.first_difference(), AnyOf("", StartsWith("statistics of")))
        << "of values after rounding";
  }
}

TEST(MatrixBias, IsOursWhereTheLibraryCannotAddIt) {
  const auto is_ours = [](const OneNode& product, const InterpretedOptions& options) {
    SCOPED_TRACE(kernel(product, options));
    EXPECT_EQ(kernel(product, options).find("bias"), std::string::npos);
    Lockstep lockstep(product.executable, LibraryBackend(options));
    product.write_operands(lockstep);
    lockstep.run(Entry::grad, false);
  };
  const Shape a{8, 16}, b{16, 24};
  is_ours({"Gemm", {a, b, {24}}, kFp16, kFp16}, {});                                // reproducible
  is_ours({"Gemm", {a, b, {24}}, kFp16, kFp16}, {.fast = true, .biases = false});   // no algorithm
  is_ours({"Gemm", {a, b, {8, 1}}, kFp16, kFp16}, {.fast = true});                  // one per row
  is_ours({"Gemm", {a, b, {1}}, kFp16, kFp16}, {.fast = true});                     // one for all
  is_ours({"Gemm", {a, b, {8, 24}}, kFp16, kFp16}, {.fast = true});                 // a matrix
  is_ours({"Gemm", {a, b, {24}}, kFp16, kFp32}, {.fast = true});                    // fp32 sums
  is_ours({"Gemm", {a, b, {24}}, kFp32, kFp32}, {.fast = true});                    // likewise
  is_ours({"Gemm", {a, b, {24}}, kE4m3fn, kFp16}, {.fast = true});                  // fp8 operands
  is_ours({"Gemm", {a, {16, 20}, {20}}, kFp16, kFp16}, {.fast = true});             // padded rows
  is_ours({"Gemm", {a, b, {24}}, kFp16, kFp16, {{"alpha", 0.5}}}, {.fast = true});  // scaled
  is_ours({"Gemm", {a, b, {24}}, kFp16, kFp16, {{"beta", 0.5}}}, {.fast = true});
  OneNode other("Gemm", {a, b, {24}}, kFp16, kFp16);
  other.executable.graph.value(other.operands[2]).format = kFp32;  // stored unlike the output
  is_ours(other, {.fast = true});
}

// The real library checks descriptions without a device, where it is installed.
TEST(MatrixBias, IsPartOfADescription) {
  const uint16_t bias[24] = {};
  for (const Storage storage : {Storage::fp16, Storage::bf16}) {
    std::optional<InPlacePlan> plan = plan_of({{6, 128, 384, 192}}, storage);
    ASSERT_TRUE(plan);
    const auto objection = [&] { return gpu::cublas_lt_objection(plan->matrix); };
    if (!objection()) GTEST_SKIP() << "cuBLASLt is not installed";
    EXPECT_EQ(*objection(), "");
    plan->matrix.bias = bias;
    EXPECT_EQ(*objection(), "");
  }
}

}  // namespace
}  // namespace halfscope
