// SPDX-License-Identifier: MIT
// Functions that are looked up: every code of 16 and 8 bits, for every function of one operand and
// its gradient, gives the emulator's bits.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/elementary/functions.h"
#include "core/numeric/formats/codes.h"
#include "gpu/engine/executor.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/node_call.h"
#include "tests/gpu/one_node.h"
#include "tests/gpu/op_lockstep.h"
#include "tests/support/op_cases.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests
using gpu::Storage;

/// Returns the values of all codes.
Tensor all_values(const FloatFormat& format) {
  const uint32_t codes = 1u << format.bits();
  Tensor tensor{{int64_t{codes}}, {}};
  for (uint32_t code = 0; code < codes; ++code) tensor.data.push_back(decode(code, format));
  return tensor;
}

bool is_looked_up(std::string_view op) {
  return op == "Exp" || op == "Log" ||
         make_by_name<bool>(op, UnaryFunctions{}, []<class F>(F) { return true; });
}

/// Returns every function with the attributes that gradient_cases() has, each once.
std::vector<OpCase> functions() {
  std::vector<OpCase> list;
  std::set<std::string> seen;
  for (const OpCase& each : gradient_cases()) {
    if (!is_looked_up(each.op)) continue;
    std::string name = each.op;
    for (const auto& [attribute, value] : each.attributes) {
      const double* const real = std::get_if<double>(&value);
      name += " " + attribute + " " + (real != nullptr ? std::to_string(*real) : "1");
    }
    if (seen.insert(name).second) list.push_back({name, each.op, {}, each.attributes});
  }
  return list;
}

class FunctionTables : public OnCandidate {};
INSTANTIATE_TEST_SUITE_P(Gpu, FunctionTables,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

TEST_P(FunctionTables, HaveTheBitsOfTheEmulator) {
  EXPECT_GE(functions().size(), 27u);
  for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn, kE5m2}) {
    for (OpCase op : functions()) {
      SCOPED_TRACE(op.name + " in " + format_name(format));
      op.operands = {Operand{all_values(format)}};
      OpLockstep program(op, {format, Accumulation::fp32}, candidate());
      (*program).run(Entry::grad, true);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Roundings that need the exact result are computed, and so is what is read in 32 bits.
TEST_P(FunctionTables, AreForResultsRoundedToNearest) {
  for (const char* name : {"Gelu", "Exp"}) {
    const OpCase op{name, name, {Operand{all_values(kBf16)}}};
    for (const Variant& variant : {Variant{kBf16, Accumulation::fp32, RoundingMode::stochastic},
                                   Variant{kBf16, Accumulation::fp32, RoundingMode::down},
                                   Variant{kFp32, Accumulation::fp32}}) {
      OpLockstep program(op, variant, candidate());
      (*program).run(Entry::grad, true);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// Steps of one function on the host, on the codes 0, 1, 2, ... .
class FunctionSteps : public testing::Test {
 protected:
  /// Returns the results of `count` elements, unrounded for `write`, with the help of tables or
  /// without.
  std::vector<float> results(const std::string& op, Storage storage, int64_t count,
                             gpu::FunctionTables* tables, const FloatFormat& write = kFp32,
                             const Attributes& attributes = {}) {
    Graph graph;
    const ValueId x = graph.add_variable("x", {count}, {});
    const ValueId y = graph.add1(op, "function", {x}, attributes);
    graph.value(y).format = write;
    const size_t bytes = static_cast<size_t>(gpu::bytes_of(storage));
    std::vector<std::byte> codes(static_cast<size_t>(count) * bytes);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const uint32_t code = static_cast<uint32_t>(i);
      std::memcpy(codes.data() + i * bytes, &code, bytes);
    }
    std::vector<float> made(static_cast<size_t>(count));
    gpu::WorkingMemory working([&](size_t size) { return executor_.allocate(size); });
    const gpu::NodeCall<gpu::HostExecutor, float> call{
        .executor = &executor_,
        .graph = &graph,
        .node = &graph.node(0),
        .in = {gpu::In<float>(codes.data(), storage)},
        .index_in = {nullptr},
        .out = {gpu::Out<float>(made.data())},
        .index_out = {nullptr},
        .memory = &working,
        .tables = tables};
    gpu::Step step = gpu::function_step(call);
    if (!step) step = gpu::movement_step(call);
    step({});
    return made;
  }

 private:
  gpu::HostExecutor executor_{gpu::HostOrder::shuffled};
};

// Also those of NaN with a payload, which values written by the host do not have.
TEST_F(FunctionSteps, LookUpEveryCode) {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  for (const Storage storage : {Storage::fp16, Storage::bf16, Storage::e4m3fn, Storage::e5m2}) {
    const int64_t codes = gpu::bytes_of(storage) == 2 ? 65536 : 256;
    gpu::FunctionTables tables;
    size_t expected = 1;  // the codes
    for (const OpCase& op : functions()) {
      for (const FloatFormat& write : {kFp32, kFp16}) {
        SCOPED_TRACE(op.name + " to " + format_name(write));
        const auto of = [&](gpu::FunctionTables* with) {
          return results(op.op, storage, codes, with, write, op.attributes);
        };
        EXPECT_TRUE(same(of(&tables), of(nullptr)));
        EXPECT_EQ(tables.size(), ++expected);
        EXPECT_TRUE(same(of(&tables), of(nullptr)));
        EXPECT_EQ(tables.size(), expected) << "made once";
      }
    }
  }
}

TEST_F(FunctionSteps, ComputeWhereATableDoesNotPay) {
  gpu::FunctionTables tables;
  for (const Storage storage : {Storage::fp16, Storage::bf16}) {
    results("Gelu", storage, 65535, &tables);
  }
  results("Gelu", Storage::e4m3fn, 255, &tables);
  results("Gelu", Storage::fp32, 65536, &tables);
  EXPECT_EQ(tables.size(), 0u);
}

// No run fills a table again.
TEST(FunctionLaunches, AreOneForEachNode) {
  const auto launches = [](const char* op, const std::vector<Shape>& shapes) {
    return OneNode(op, shapes, kFp16, kFp16).launches_on_host(host_executor_backend());
  };
  EXPECT_EQ(launches("Gelu", {{65536}}), launches("Gelu", {{1}}));
  EXPECT_EQ(launches("GeluGrad", {{65536}, {65536}}), launches("GeluGrad", {{1}, {1}}));
}

}  // namespace
}  // namespace halfscope
