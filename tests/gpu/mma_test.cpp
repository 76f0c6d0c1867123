// SPDX-License-Identifier: MIT
// The kernel on tensor cores: its fragments are those that the PTX ISA writes down, here typed from
// its formulas shape by shape, and its products have the emulator's bits for every architecture
// that has mma.sync.
#include "gpu/bodies/mma.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include "core/policy/policy.h"
#include "gpu/device_info.h"
#include "gpu/engine/device_cores.h"
#include "gpu/host_program.h"
#include "tests/gpu/comparisons.h"
#include "tests/gpu/small_network.h"
#include "tests/support/op_cases.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests
using gpu::mma_place_a;
using gpu::mma_place_b;

using Place = std::pair<int, int>;  ///< row, column

struct Fragments {
  Place a, b;
};

/// "Matrix fragments for mma.m16n8k16 with .f16 or .bf16": a0..a7, b0..b3.
Place a16(int lane, int i) {
  const int group = lane >> 2, place = lane % 4;
  const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
  return {row, place * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
Place b16(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane >> 2}; }
/// "... mma.m16n8k8" with .tf32: a0..a3, b0..b1.
Place a8(int lane, int i) {
  const int group = lane >> 2, place = lane % 4;
  return {i == 0 || i == 2 ? group : group + 8, i < 2 ? place : place + 4};
}
Place b8(int lane, int i) { return {i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2}; }
/// "... mma.m16n8k32" with 8-bit types: a0..a15, b0..b7.
Place a32(int lane, int i) {
  const int group = lane >> 2, place = lane % 4;
  const int row = (i >= 0 && i < 4) || (i >= 8 && i < 12) ? group : group + 8;
  return {row, place * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
}
Place b32(int lane, int i) { return {lane % 4 * 4 + (i & 3) + (i >= 4 ? 16 : 0), lane >> 2}; }

TEST(Mma, FragmentsAreThoseOfThePtxIsa) {
  struct Shape {
    int per_word;
    Place (*a)(int, int);
    Place (*b)(int, int);
  };
  for (const Shape& shape : {Shape{1, a8, b8}, Shape{2, a16, b16}, Shape{4, a32, b32}}) {
    const int e = shape.per_word;
    std::set<Place> all_a, all_b;
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4 * e; ++i) {
        const gpu::MmaPlace at = mma_place_a(lane, i / e);
        EXPECT_EQ(Place(at.line, at.word * e + i % e), shape.a(lane, i)) << lane << " a" << i;
        all_a.insert(shape.a(lane, i));
      }
      for (int i = 0; i < 2 * e; ++i) {
        const gpu::MmaPlace at = mma_place_b(lane, i / e);
        EXPECT_EQ(Place(at.word * e + i % e, at.line), shape.b(lane, i)) << lane << " b" << i;
        all_b.insert(shape.b(lane, i));
      }
    }
    EXPECT_EQ(all_a.size(), 16u * 8 * static_cast<size_t>(e));
    EXPECT_EQ(all_b.size(), 8u * 8 * static_cast<size_t>(e));
  }
  std::set<Place> all_c;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Place place{gpu::mma_row_c(lane, i), gpu::mma_column_c(lane, i)};
      EXPECT_EQ(place, Place(i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)));
      all_c.insert(place);
    }
  }
  EXPECT_EQ(all_c.size(), 128u);
}

constexpr const char* kOnCores = "own kernel on the tensor cores of this device";

class CoreBackend final : public Backend {
 public:
  explicit CoreBackend(std::string arch) : arch_(std::move(arch)) {}
  const char* name() const noexcept override { return "cores"; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return gpu::compile_on_host(executable, true, nullptr, arch_);
  }

 private:
  std::string arch_;
};

TEST(Mma, ProductsHaveTheBitsOfTheEmulator) {
  const auto noisy = [](const Shape& shape, uint64_t seed) {
    return Operand{Tensor{shape, noise(element_count(shape), seed)}};
  };
  // Negative zeros in all products of a sum, and k that ends in every block of an instruction.
  std::vector<OpCase> cases{{"zeros",
                             "Gemm",
                             {Operand{Tensor{{2, 3}, {-0.0f, -0.0f, -0.0f, 1, 0, -1}}},
                              Operand{Tensor{{3, 2}, {1, 2, 3, 0, 5, 0}}}}},
                            {"conv",
                             "Conv",
                             {noisy({2, 5, 6, 5}, 6), noisy({4, 5, 3, 3}, 7), noisy({4}, 8)},
                             conv({2, 1}, {1, 1, 0, 2}, {1, 2})}};
  for (const int64_t k : {1, 4, 5, 8, 9, 16, 17, 33, 75}) {
    cases.push_back({"gemm",
                     "Gemm",
                     {noisy({70, k}, 1), noisy({37, k}, 2), noisy({37}, 3)},
                     {{"transB", int64_t{1}}}});
  }
  int kernels = 0;
  for (const char* arch : {"a100", "ada", "h100", "b200", "rtx-blackwell"}) {
    for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2}) {
      const Accumulation how = parse_accumulation(std::string("tensor-core:") + arch).value();
      if (!tensor_core_of({.accumulation = how, .write = format, .read = format})) continue;
      for (const OpCase& op : cases) {
        SCOPED_TRACE(op.name + " in " + format_name(format) + " on " + arch);
        const CoreBackend backend(arch);
        OpLockstep program(op, {format, how}, backend);
        (*program).run(Entry::grad, false);
        if (HasFatalFailure()) return;
        const Graph& graph = program.graph();
        for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
          const std::string kernel = (*program).candidate().kernel_of(id);
          if (kernel.empty()) continue;
          EXPECT_EQ(kernel, kOnCores);
          ++kernels;
        }
      }
    }
  }
  EXPECT_EQ(kernels, 23 * 33);
}

/// Returns products of operands that hardware may treat differently from its model.
std::vector<OpCase> special_cases(const FloatFormat& format) {
  const float least = static_cast<float>(format.min_subnormal());
  const float normal = static_cast<float>(format.min_normal());
  const float most = static_cast<float>(format.max_finite());
  struct Kind {
    const char* name;
    std::vector<float> values;
  };
  const std::vector<Kind> kinds{
      {"infinities", {INFINITY, -INFINITY}},
      {"NaN", {NAN}},
      {"zeros of both signs", {-0.0f, 0.0f, -0.0f}},
      {"subnormal operands", {least, -least, 3 * least, normal - least, -normal}},
      // In bf16 and tf32, these products are subnormal in fp32, or larger than all of its numbers.
      {"small products", {0x1p-70f, -0x1p-72f, 0x1.8p-65f}},
      {"large products", {0x1p70f, 0x1p60f, -0x1p70f, 0x1.8p63f}},
      {"largest values", {most, -most, most}},
      {"infinities and NaN and zeros", {INFINITY, -0.0f, NAN, 0.0f, -INFINITY}}};
  std::vector<OpCase> cases;
  for (const Kind& kind : kinds) {
    const auto operand = [&](const Shape& shape, uint64_t seed) {
      Tensor tensor{shape, noise(element_count(shape), seed)};
      const size_t every = 2 + seed;
      for (size_t i = seed; i < tensor.data.size(); i += every) {
        tensor.data[i] = kind.values[(i / every + i / 64) % kind.values.size()];
      }
      return Operand{tensor};
    };
    cases.push_back({kind.name,
                     "Gemm",
                     {operand({19, 75}, 0), operand({13, 75}, 1)},
                     {{"transB", int64_t{1}}}});
    cases.push_back({kind.name,
                     "Conv",
                     {operand({2, 5, 6, 5}, 3), operand({4, 5, 3, 3}, 4), operand({4}, 2)},
                     conv({2, 1}, {1, 1, 0, 2}, {1, 2})});
  }
  return cases;
}

/// Runs all cases on a backend with those tensor cores; `tell` gets each case with its outcome.
template <class F>
int64_t run_special_cases(const Backend& backend, std::string_view arch, const F& tell) {
  int64_t on_cores = 0;
  for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2}) {
    const Accumulation how = parse_accumulation("tensor-core:" + std::string(arch)).value();
    if (!tensor_core_of({.accumulation = how, .write = format, .read = format})) continue;
    Comparisons comparisons(backend);
    for (const OpCase& op : special_cases(format)) {
      const Variant variant{format, how};
      const std::string outcome = comparisons.outcome_of(op, variant, [&](OpLockstep& program) {
        (*program).run(Entry::grad, true);
        for (NodeId id = 0; id < static_cast<NodeId>(program.graph().nodes().size()); ++id) {
          on_cores += (*program).candidate().kernel_of(id) == kOnCores ? 1 : 0;
        }
      });
      tell(op.op + ", " + op.name, test::describe(variant), outcome);
      if (comparisons.is_lost()) return on_cores;
    }
  }
  return on_cores;
}

TEST(Mma, SpecialValuesAreTheEmulators) {
  for (const char* arch : {"a100", "ada", "h100", "b200", "rtx-blackwell"}) {
    const int64_t on_cores = run_special_cases(
        CoreBackend(arch), arch,
        [](const std::string& op, const std::string& variant, const std::string& outcome) {
          EXPECT_EQ(outcome, "equal") << op << " in " << variant;
        });
    EXPECT_GE(on_cores, 3 * 3 * 16) << "three products each, of three formats at least";
  }
}

// The real instruction may differ from its model here. Differences are reported in the table of
// bits (tests/gpu/comparisons.h) and on standard output, but do not fail the test. On the simulated
// device the model replaces the instruction.
TEST(MmaOnDevice, SpecialValuesAreReported) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: no instruction was run";
  const GpuDevice device = query_gpus().devices.at(0);
  const std::string_view arch = gpu::cores_of_capability(device.major, device.minor);
  if (arch == "none") GTEST_SKIP() << "there is no model of this device's tensor cores";
  const bool simulated = device.name == "simulated device";
  int64_t all = 0, different = 0;
  const int64_t on_cores = run_special_cases(
      cuda_backend(GpuProducts::own), arch,
      [&](const std::string& op, const std::string& variant, const std::string& outcome) {
        append_to_bits_table({"mma special values", op, variant, outcome});
        ++all;
        if (outcome == "equal") return;
        ++different;
        std::printf("mma special values: %s in %s %s\n", op.c_str(), variant.c_str(),
                    outcome.c_str());
        EXPECT_FALSE(outcome.starts_with("error") || simulated) << op << ": " << outcome;
      });
  std::printf("mma special values: %d of %d products differ from the model\n",
              static_cast<int>(different), static_cast<int>(all));
  EXPECT_GT(on_cores, 0) << "the kernels were not compiled for this device's tensor cores";
}

// Operands of two formats, as fp8 recipes have them, and a network around it.
TEST(Mma, WholeStepsAreTheEmulators) {
  Plan fp8 = preset_plan("fp8_current").value();
  accumulate_in(fp8, parse_accumulation("tensor-core:h100").value());
  run_lockstep(fp8, "sgd", CoreBackend("h100"));
  Plan half = preset_plan("mixed_float16").value();
  accumulate_in(half, parse_accumulation("tensor-core:a100").value());
  run_lockstep(half, "sgd", CoreBackend("a100"));
}

// Other tensor cores than the device's, and chains that are cut, are the model's.
TEST(Mma, IsUsedForTheDevicesOwnCoresOnly) {
  const OpCase op{"gemm", "Gemm", {real({4, 8}), real({8, 3})}};
  const auto kernel = [&](const char* arch, const char* accumulation) {
    const CoreBackend backend(arch);
    OpLockstep program(op, {kFp16, parse_accumulation(accumulation).value()}, backend);
    for (NodeId id = 0;; ++id) {
      const std::string text = (*program).candidate().kernel_of(id);
      if (!text.empty()) return text;
    }
  };
  EXPECT_EQ(kernel("h100", "tensor-core:h100"), kOnCores);
  EXPECT_EQ(kernel("h100", "tensor-core:a100"), "own kernel");
  EXPECT_EQ(kernel("h100", "tensor-core:h100-wgmma"), "own kernel");
  EXPECT_EQ(kernel("none", "tensor-core:h100"), "own kernel");
  EXPECT_EQ(kernel("h100", "tensor-core:h100,acc=fp16"), "own kernel");
  EXPECT_EQ(kernel("h100", "tensor-core:h100,promote=64"), "own kernel");
  EXPECT_EQ(gpu::cores_of_capability(8, 6), "a100");
  EXPECT_EQ(gpu::cores_of_capability(8, 9), "ada");
  EXPECT_EQ(gpu::cores_of_capability(9, 0), "h100");
  EXPECT_EQ(gpu::cores_of_capability(7, 5), "none");
}

}  // namespace
}  // namespace halfscope
