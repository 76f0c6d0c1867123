// SPDX-License-Identifier: MIT
// Products that a library computes, without one: plans are interpreted by the library's rules
// (interpreted_library.h), and values and statistics are the emulator's, whichever way a product
// takes: in place, packed, with channels last, as patches, or back to our own kernel.
#include <gtest/gtest.h>

#include <map>

#include "core/graph/autodiff.h"
#include "core/models/models.h"
#include "core/policy/policy.h"
#include "gpu/libraries/libraries.h"
#include "tests/gpu/distinct_presets.h"
#include "tests/gpu/interpreted_library.h"
#include "tests/gpu/op_lockstep.h"
#include "tests/gpu/small_network.h"
#include "tests/support/op_cases.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests

/// Odd sizes, every transposition, strides, dilations and uneven padding.
std::vector<OpCase> products() {
  std::vector<OpCase> cases;
  for (const int64_t ta : {0, 1}) {
    for (const int64_t tb : {0, 1}) {
      cases.push_back({"gemm",
                       "Gemm",
                       {noisy(ta != 0 ? Shape{37, 5} : Shape{5, 37}, 1),
                        noisy(tb != 0 ? Shape{9, 37} : Shape{37, 9}, 2), noisy({9}, 3)},
                       {{"transA", ta}, {"transB", tb}}});
    }
  }
  cases.push_back({"plain", "Gemm", {noisy({16, 32}, 4), noisy({32, 16}, 5)}});
  cases.push_back({"single", "Gemm", {noisy({1, 1}, 4), noisy({1, 1}, 5), noisy({1}, 6)}});
  cases.push_back({"conv",
                   "Conv",
                   {noisy({2, 3, 7, 6}, 6), noisy({5, 3, 3, 2}, 7), noisy({5}, 8)},
                   conv({2, 1}, {1, 1, 0, 2}, {1, 2})});
  cases.push_back({"batch", "MatMul", {noisy({2, 3, 5, 16}, 11), noisy({3, 16, 7}, 12)}});
  cases.push_back({"rows", "MatMul", {noisy({2, 5, 37}, 13), noisy({37, 9}, 14)}});
  cases.push_back(
      {"rows and bias", "MatMul", {noisy({2, 5, 32}, 13), noisy({32, 8}, 14), noisy({8}, 15)}});
  cases.push_back({"column", "MatMul", {noisy({2, 5, 37}, 13), noisy({37}, 14)}});
  for (const int64_t ta : {0, 1}) {
    for (const int64_t tb : {0, 1}) {
      cases.push_back({"heads",
                       "MatMul",
                       {noisy(ta != 0 ? Shape{2, 3, 16, 8} : Shape{2, 3, 8, 16}, 21),
                        noisy(tb != 0 ? Shape{2, 3, 24, 16} : Shape{2, 3, 16, 24}, 22)},
                       {{"transA", ta}, {"transB", tb}}});
    }
  }
  cases.push_back(
      {"fewer heads", "MatMul", {noisy({2, 3, 2, 8, 16}, 23), noisy({2, 3, 1, 16, 8}, 24)}});
  cases.push_back({"positions", "MatMul", {noisy({3, 2, 8, 16}, 25), noisy({1, 2, 16, 8}, 26)}});
  cases.push_back({"same", "MatMul", {noisy({1, 3, 8, 16}, 27), noisy({5, 1, 16, 8}, 28)}});
  cases.push_back(
      {"levels", "MatMul", {noisy({2, 1, 3, 1, 4, 16}, 29), noisy({1, 2, 1, 2, 16, 8}, 30)}});
  cases.push_back({"biased", "Gemm", {noisy({5, 16}, 31), noisy({16, 24}, 32), noisy({24}, 33)}});
  cases.push_back({"scaled",
                   "Gemm",
                   {noisy({16, 24}, 15), noisy({24, 8}, 16), noisy({16, 1}, 17)},
                   {{"alpha", 0.5}, {"beta", -1.5}}});
  cases.push_back({"grouped",
                   "Conv",
                   {noisy({2, 4, 6, 5}, 18), noisy({6, 2, 3, 3}, 19), noisy({6}, 20)},
                   {{"group", int64_t{2}}, {"pads", Ints{1, 1, 1, 1}}}});
  cases.push_back({"depthwise",
                   "Conv",
                   {noisy({2, 8, 5, 6}, 21), noisy({8, 1, 3, 3}, 22), noisy({8}, 23)},
                   {{"group", int64_t{8}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 1}}}});
  cases.push_back({"even",
                   "Conv",
                   {noisy({2, 8, 6, 6}, 9), noisy({8, 8, 3, 3}, 10)},
                   conv({2, 2}, {1, 1, 1, 1}, {1, 1})});
  return cases;
}

OpCase named(const std::string& name) {
  for (const OpCase& op : products()) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

std::set<std::string> kernels_of(const OpCase& op, const FloatFormat& format,
                                 const InterpretedOptions& options,
                                 const Accumulation& how = Accumulation::fp32) {
  OpLockstep program(op, {format, how}, LibraryBackend(options));
  std::set<std::string> kernels;
  const Graph& graph = program.graph();
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const std::string kernel = (*program).candidate().kernel_of(id);
    if (!kernel.empty()) kernels.insert(graph.node(id).op + ": " + kernel);
  }
  return kernels;
}

TEST(Libraries, ProductsHaveTheBitsOfTheEmulator) {
  for (const FloatFormat& format : {kFp32, kTf32, kFp16, kBf16, kE4m3fn, kE5m2}) {
    for (const InterpretedOptions& options :
         {InterpretedOptions{}, InterpretedOptions{.convolutions = false},
          InterpretedOptions{.matrices = false}, InterpretedOptions{.half_convolutions = false}}) {
      for (const OpCase& op : products()) {
        SCOPED_TRACE(op.name + " in " + format_name(format));
        const LibraryBackend backend(options);
        OpLockstep program(op, {format, Accumulation::fp32}, backend);
        (*program).run(Entry::grad, true);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// A plan may read in 32 bits what is stored in 16 or 8: a layer kept in fp32 after others.
TEST(Libraries, OperandsMayBeStoredInFewerBytesThanTheyAreRead) {
  for (const FloatFormat& format : {kFp32, kTf32}) {
    for (const FloatFormat& stored : {kFp16, kBf16, kE4m3fn}) {
      for (const bool convolutions : {true, false}) {
        for (const OpCase& op : products()) {
          SCOPED_TRACE(op.name + " in " + format_name(format) + " of " + format_name(stored));
          Variant variant{format, Accumulation::fp32};
          variant.stored = stored;
          OpLockstep program(op, variant, LibraryBackend({.convolutions = convolutions}));
          (*program).run(Entry::grad, true);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Copies for tensor cores have channels last; fp32 keeps its layout.
TEST(Libraries, CopiedOperandsHaveTheLayoutOfTheirEngines) {
  const gpu::ConvGeometry s{.batch = 2, .in = 3, .height = 4, .width = 5};
  const auto layouts = [&](Storage operands, Storage result, bool copied) {
    std::string text;
    for (const ConvPlan& plan :
         plans_of_convolution(ConvProduct::forward, s, operands, result, copied)) {
      text += std::string(text.empty() ? "" : ", ") + name_of(plan.x.storage) +
              (plan.channels_last ? " last" : "");
    }
    return text;
  };
  for (const bool copied : {false, true}) {
    EXPECT_EQ(layouts(Storage::fp32, Storage::fp32, copied), "fp32");
    EXPECT_EQ(layouts(Storage::tf32, Storage::fp32, copied), copied ? "tf32 last" : "tf32");
    EXPECT_EQ(layouts(Storage::fp16, Storage::fp32, copied), "fp16 last, tf32 last");
    EXPECT_EQ(layouts(Storage::bf16, Storage::bf16, copied), "bf16 last");
  }
}

// In fast mode a library may round outputs itself: the values are the same, but its overflows and
// flushes are not counted.
TEST(Libraries, FastResultsAreTheSameValues) {
  for (const FloatFormat& format : {kFp32, kFp16, kBf16, kE4m3fn}) {
    for (const bool convolutions : {true, false}) {
      for (const OpCase& op : products()) {
        SCOPED_TRACE(op.name + " in " + format_name(format));
        const LibraryBackend backend({.convolutions = convolutions, .fast = true});
        OpLockstep program(op, {format, Accumulation::fp32}, backend);
        (*program).run(Entry::grad, false);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void compare_steps(const std::map<std::string, Plan>& presets) {
  for (const auto& [preset, plan] : presets) {
    for (const bool convolutions : {true, false}) {
      SCOPED_TRACE(preset + (convolutions ? "" : ", without convolutions"));
      run_lockstep(plan, "sgd:momentum=0.9", LibraryBackend({.convolutions = convolutions}));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Libraries, WholeStepsAreTheEmulators) { compare_steps(few_presets(small_network(kBatch))); }
TEST(EveryPreset, StepsWithLibrariesAreTheEmulators) {
  compare_steps(distinct_presets(small_network(kBatch)));
}

using Kernels = std::set<std::string>;

TEST(Libraries, AProgramSaysWhatComputesItsProducts) {
  const OpCase gemm = products()[0], convolution = named("conv"), grouped = named("grouped");
  const std::string first = ", operands copied first";
  EXPECT_EQ(kernels_of(gemm, kFp16, {}), Kernels{"Gemm: interpreted matrix" + first});
  EXPECT_EQ(kernels_of(gemm, kE5m2, {}),
            Kernels{"Gemm: own kernel: cuBLASLt cannot multiply e5m2 by e5m2"});
  EXPECT_EQ(kernels_of(gemm, parse_format("e5m3").value(), {}),
            Kernels{"Gemm: own kernel: no library multiplies this format"});
  EXPECT_EQ(kernels_of(gemm, kFp16, {}, parse_accumulation("tensor-core:h100").value()),
            Kernels{"Gemm: own kernel: no library has this accumulation"});
  EXPECT_EQ(kernels_of(gemm, kFp16, {.matrices = false}),
            Kernels{"Gemm: own kernel: no matrices here"});
  const auto all_three = [](const std::string& kernel) {
    return Kernels{"Conv: " + kernel, "ConvGradInput: " + kernel, "ConvGradWeight: " + kernel};
  };
  const std::string in = "interpreted convolution in ";
  EXPECT_EQ(kernels_of(convolution, kBf16, {}), all_three(in + "bf16, channels last"));
  EXPECT_EQ(kernels_of(convolution, kFp16, {.half_convolutions = false}),
            all_three(in + "tf32, channels last"));
  EXPECT_EQ(kernels_of(convolution, kFp32, {}), all_three(in + "fp32"));
  EXPECT_EQ(kernels_of(grouped, kFp16, {}), all_three(in + "fp16, channels last"));
  EXPECT_EQ(kernels_of(grouped, kFp16, {.convolutions = false}),
            all_three("own kernel: no convolutions here; grouped convolutions are not computed as "
                      "matrix products"));
  EXPECT_EQ(kernels_of(grouped, kE4m3fn, {}),
            all_three("own kernel: grouped convolutions are not computed as matrix products"));
  const std::string patches =
      "interpreted matrix (as a matrix product: no convolutions here)" + first;
  EXPECT_EQ(kernels_of(convolution, kBf16, {.convolutions = false}), all_three(patches));
  EXPECT_EQ(kernels_of(convolution, kFp16, {.matrices = false, .convolutions = false}),
            all_three("own kernel: no convolutions here; no matrices here"));
  // fp8 convolutions are matrix products at once.
  EXPECT_EQ(kernels_of(convolution, kE4m3fn, {}), all_three("interpreted matrix" + first));
}

// Whole lines of 16 bytes, and of fp8 lines of k, are multiplied where they are.
TEST(Libraries, ReadOperandsAsTheyLie) {
  const auto kernel = [](const Shape& a, const Shape& b, int64_t trans_b, const FloatFormat& format,
                         bool fast) {
    const OpCase op{"whole", "Gemm", {noisy(a, 1), noisy(b, 2)}, {{"transB", trans_b}}};
    const LibraryBackend backend({.fast = fast});
    OpLockstep program(op, {format, Accumulation::fp32}, backend);
    (*program).run(Entry::grad, !fast);
    return (*program).candidate().kernel_of(0);
  };
  const std::string in_place = "interpreted matrix";
  const std::string packed = in_place + ", operands copied first";
  for (const bool fast : {false, true}) {
    SCOPED_TRACE(fast);
    EXPECT_EQ(kernel({5, 9}, {9, 3}, 0, kFp32, fast), in_place);
    for (const FloatFormat& format : {kFp16, kBf16}) {
      EXPECT_EQ(kernel({5, 16}, {16, 24}, 0, format, fast), in_place);
      EXPECT_EQ(kernel({5, 16}, {11, 16}, 1, format, fast), in_place);
      EXPECT_EQ(kernel({5, 16}, {16, 20}, 0, format, fast), packed);
      EXPECT_EQ(kernel({5, 20}, {20, 24}, 0, format, fast), packed);
    }
    EXPECT_EQ(kernel({16, 48}, {32, 48}, 1, kE4m3fn, fast), in_place);
    EXPECT_EQ(kernel({16, 48}, {48, 32}, 0, kE4m3fn, fast), packed);
    EXPECT_EQ(kernel({15, 48}, {32, 48}, 1, kE4m3fn, fast), packed);
  }
}

// On a device the real libraries sum in different orders. A wrong layout, however, gives completely
// different numbers.
TEST(LibrariesOnDevice, AreNearTheEmulatorAndRepeatTheirBits) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: no library was run";
  for (const GpuProducts which : {GpuProducts::library, GpuProducts::fast}) {
    for (const auto& [format, tolerance] :
         {std::pair(kFp32, 1e-5), std::pair(kTf32, 2e-3), std::pair(kFp16, 2e-3),
          std::pair(kBf16, 2e-2), std::pair(kE4m3fn, 0.3)}) {
      for (const OpCase& op : products()) {
        SCOPED_TRACE(op.name + " in " + format_name(format) + " on " + gpu_backend_name(which));
        OpLockstep program(op, {format, Accumulation::fp32}, cuda_backend(which));
        (*program).run_near(Entry::grad, tolerance, which == GpuProducts::library);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Small whole numbers have sums without rounding, which no order of terms changes. So every bit
// must be right, twice, unless a library multiplies or adds in fewer bits or transforms operands.
TEST(LibrariesOnDevice, GiveSumsOfWholeNumbersExactly) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: no library was run";
  const auto whole = [](const Shape& shape, int64_t from) {
    std::vector<float> data(static_cast<size_t>(element_count(shape)));
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<float>((from + 7 * static_cast<int64_t>(i)) % 63 - 31);
    }
    return Operand{Tensor{shape, data}};
  };
  const auto sizes = [](int64_t group) {
    return Attributes{{"group", group}, {"pads", Ints{1, 1, 1, 1}}};
  };
  for (const FloatFormat& format : {kFp32, kTf32, kFp16, kBf16}) {
    for (const FloatFormat& stored : {format, kFp16}) {
      for (const OpCase& op :
           {OpCase{"dense", "Conv", {whole({2, 16, 5, 6}, 1), whole({8, 16, 3, 3}, 2)}, sizes(1)},
            OpCase{"odd", "Conv", {whole({2, 3, 5, 6}, 3), whole({5, 3, 3, 3}, 4)}, sizes(1)},
            OpCase{"groups", "Conv", {whole({2, 8, 5, 6}, 5), whole({8, 4, 3, 3}, 6)}, sizes(2)},
            OpCase{"depthwise", "Conv", {whole({2, 8, 5, 6}, 7), whole({8, 1, 3, 3}, 8)}, sizes(8)},
            OpCase{"matrix", "Gemm", {whole({16, 24}, 9), whole({24, 8}, 10)}}}) {
        SCOPED_TRACE(op.name + " in " + format_name(format) + " of " + format_name(stored));
        Variant variant{format, Accumulation::fp32};
        variant.stored = stored;
        OpLockstep program(op, variant, cuda_backend(GpuProducts::library));
        (*program).run(Entry::grad, true);
        (*program).run(Entry::grad, false);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The real libraries check descriptions without a device, too, where they are installed.
TEST(Libraries, TakeTheDescriptionsOfPlans) {
  using gpu::Storage;
  int here = 0;
  const auto take = [&](const std::optional<std::string>& objection) {
    if (!objection) return;
    ++here;
    EXPECT_EQ(*objection, "");
  };
  for (const Storage a :
       {Storage::fp32, Storage::tf32, Storage::fp16, Storage::bf16, Storage::e4m3fn}) {
    take(gpu::cublas_lt_objection(gpu::plan_packed(5, 37, 100, a, a, Storage::fp32).matrix));
    take(gpu::cublas_lt_objection(
        *gpu::plan_in_place(16, 32, 48, {48, 1, 1, 48}, a, a, Storage::fp32)));
  }
  const gpu::ConvGeometry s{.batch = 2,
                            .in = 8,
                            .height = 7,
                            .width = 6,
                            .out = 5,
                            .kernel_h = 3,
                            .kernel_w = 2,
                            .stride_h = 2,
                            .stride_w = 1,
                            .dilation_h = 1,
                            .dilation_w = 2,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 0,
                            .pad_right = 2,
                            .out_height = 3,
                            .out_width = 7};
  gpu::ConvGeometry grouped = s;
  grouped.group = 4;
  for (const ConvProduct product :
       {ConvProduct::forward, ConvProduct::grad_input, ConvProduct::grad_weight}) {
    for (const Storage storage : {Storage::fp32, Storage::tf32, Storage::fp16, Storage::bf16}) {
      for (gpu::ConvGeometry each : {s, grouped}) {
        for (const bool fast : {false, true}) {
          const bool narrow = fast && gpu::bytes_of(storage) == 2;
          for (const ConvPlan& plan : gpu::plans_of_convolution(
                   product, each, storage, narrow ? storage : Storage::fp32, fast)) {
            take(gpu::cudnn_objection(plan));
          }
        }
      }
    }
  }
  if (here == 0) GTEST_SKIP() << "neither cuBLASLt nor cuDNN is installed";
}

// The rules that cuBLASLt has for fp8, in numbers.
TEST(Libraries, PackedPlansArePadded) {
  const gpu::PackedPlan fp8 =
      gpu::plan_packed(5, 37, 100, Storage::e4m3fn, Storage::e5m2, Storage::fp32);
  EXPECT_EQ(fp8.a_lines, 16);
  EXPECT_EQ(fp8.b_lines, 48);
  EXPECT_EQ(fp8.pitch, 112);
  EXPECT_EQ(fp8.d_pitch, 48);
  EXPECT_EQ(fp8.matrix.m, 48);
  EXPECT_EQ(fp8.matrix.n, 16);
  EXPECT_EQ(fp8.matrix.first.storage, Storage::e5m2);
  const gpu::PackedPlan fp16 =
      gpu::plan_packed(5, 37, 100, Storage::fp16, Storage::fp16, Storage::fp16);
  EXPECT_EQ(fp16.a_lines, 5);
  EXPECT_EQ(fp16.b_lines, 40);
  EXPECT_EQ(fp16.pitch, 104);
  EXPECT_FALSE(
      gpu::plan_in_place(4, 4, 4, {8, 2, 4, 1}, Storage::fp32, Storage::fp32, Storage::fp32));
}

}  // namespace
}  // namespace halfscope
