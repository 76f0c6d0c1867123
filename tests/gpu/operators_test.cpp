// SPDX-License-Identifier: MIT
// Every operator with a gradient, forward and backward, on the bodies of the GPU kernels: same bits
// as the emulator in several formats, roundings and accumulations, and same statistics. On a device
// each operator has a separate test, such as Gpu/OperatorBits.HaveTheBitsOfTheEmulator/Cuda_Conv,
// so that an operator that ends the process can run in a separate process.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "core/error.h"
#include "core/numeric/sums/accumulate.h"
#include "tests/gpu/comparisons.h"
#include "tests/support/op_cases.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests

std::vector<Variant> variants() {
  std::vector<Variant> list;
  for (const FloatFormat& format : {kFp32, kFp16, kBf16, kE4m3fn}) {
    list.push_back({format, Accumulation::fp32});
  }
  for (const char* text : {"fp64", "pairwise", "interleaved16", "kahan", "format", "format-mul-add",
                           "fma32-then-round", "interleaved16:promote=5", "fp32:promote=3",
                           "fp64:promote=5", "format:promote=2,split-k=3", "kahan:split-k=2"}) {
    list.push_back({kFp16, parse_accumulation(text).value()});
  }
  list.push_back({kE5m2, Accumulation::format});
  list.push_back({kFp16, Accumulation::fp32, RoundingMode::stochastic});
  list.push_back({kBf16, Accumulation::fp64, RoundingMode::toward_zero});
  return list;
}

std::vector<int32_t> same(size_t count, int32_t index) { return std::vector(count, index); }
/// Indices from 0 toward `end`, which may be negative.
std::vector<int32_t> spread(int32_t count, int32_t end) {
  std::vector<int32_t> list;
  for (int32_t i = 0; i < count; ++i) {
    list.push_back(static_cast<int32_t>(int64_t{i + (end < 0 ? 1 : 0)} * end / count));
  }
  return list;
}

/// Sums of many elements that one row was read for, with rows that nobody reads, and of none.
std::vector<OpCase> gather_cases() {
  std::vector<int32_t> often;
  for (int32_t i = 0; i < 300; ++i) often.push_back(i * i % 7 - (i % 3 == 0 ? 9 : 0));
  return {{"rows", "Gather", {Operand{Tensor{{9, 5}, noise(45, 1)}}, indices({300}, often)}},
          {"columns",
           "Gather",
           {Operand{Tensor{{3, 9, 2}, noise(54, 2)}}, indices({30, 10}, often)},
           {{"axis", int64_t{1}}}},
          {"elements",
           "GatherElements",
           {Operand{Tensor{{9, 10}, noise(90, 3)}}, indices({60, 5}, often)}},
          {"middle",
           "GatherElements",
           {noisy({3, 9, 7}, 4), indices({2, 25, 6}, often)},
           {{"axis", int64_t{1}}}},
          {"same", "GatherElements", {noisy({2, 3}, 5), indices({100, 3}, same(300, -1))}},
          {"one", "Gather", {noisy({1, 6}, 6), indices({150}, same(150, 0))}},
          {"many", "Gather", {noisy({66000}, 7), indices({40}, spread(40, 66000))}},
          {"backwards", "Gather", {noisy({41, 3}, 8), indices({40}, spread(40, -41))}},
          {"none", "Gather", {noisy({4, 3}, 9), indices({0}, {})}}};
}

/// Sums that walk through windows and along lines: more windows than one covers an element, lines
/// of several pieces, lines that share a block or not.
std::vector<OpCase> walk_cases() {
  std::vector<OpCase> list;
  const auto average = [&](const Shape& x, const Ints& kernel, const Ints& strides,
                           const Ints& pads, const Ints& dilations) {
    for (const int64_t padding : {0, 1}) {
      Attributes attributes = pool(kernel, strides, pads);
      attributes["dilations"] = dilations;
      attributes["ceil_mode"] = attributes["count_include_pad"] = padding;
      list.push_back({"average", "AveragePool", {noisy(x, 20)}, attributes});
    }
  };
  average({1, 2, 13, 11}, {3, 4}, {2, 3}, {2, 1, 2, 2}, {4, 2});
  average({2, 1, 12, 14}, {5, 3}, {1, 1}, {2, 1, 2, 1}, {1, 3});
  average({1, 1, 17, 9}, {2, 2}, {4, 3}, {1, 0, 0, 1}, {6, 6});
  average({1, 1, 9, 9}, {9, 9}, {1, 1}, {4, 4, 4, 4}, {1, 1});
  const auto sums = [&](const Shape& x, int64_t axis, int64_t reverse, int64_t exclusive) {
    list.push_back({"sums",
                    "CumSum",
                    {noisy(x, 21)},
                    {{"axis", axis}, {"reverse", reverse}, {"exclusive", exclusive}}});
  };
  sums({2, 2200}, 1, 0, 0);
  sums({2, 1100}, 1, 1, 1);
  sums({70, 45}, 0, 1, 0);
  sums({2, 68, 5}, 1, 0, 1);
  sums({4100, 3}, 1, 0, 0);
  sums({4097, 3}, 1, 1, 1);
  return list;
}

/// Sums longer than a tile, sizes that no tile divides, tensors of several chunks of statistics.
std::vector<OpCase> tile_cases() {
  const auto some_labels = [](int32_t rows) {  // three classes; -1: no label
    std::vector<int32_t> list;
    for (int32_t row = 0; row < rows; ++row) list.push_back(row % 11 % 4 - 1);
    return labels(list);
  };
  return {{"wide", "Gemm", {noisy({70, 45}, 1), noisy({45, 131}, 2), noisy({131}, 3)}},
          {"deep",
           "Gemm",
           {noisy({700, 3}, 4), noisy({65, 700}, 5)},
           {{"transA", int64_t{1}}, {"transB", int64_t{1}}}},
          {"conv",
           "Conv",
           {noisy({3, 5, 13, 11}, 6), noisy({67, 5, 3, 3}, 7), noisy({67}, 8)},
           conv({2, 1}, {1, 1, 0, 2}, {1, 2})},
          {"sum", "ReduceSum", {noisy({37, 5, 41}, 9)}, reduce({0, 2}, 0)},
          {"pixels", "ReduceSum", {noisy({31, 3, 9, 15}, 11)}, reduce({0, 2, 3}, 0)},
          {"columns", "ReduceSum", {noisy({150, 70}, 12)}, reduce({0}, 0)},
          {"rows", "ReduceMean", {noisy({3, 7, 150}, 13)}, reduce({2}, 1)},
          {"average", "GlobalAveragePool", {noisy({2, 3, 12, 13}, 14)}},
          {"losses", "SoftmaxCrossEntropyLoss", {noisy({2100, 3}, 15), some_labels(2100)}},
          {"relu", "Relu", {noisy({5, 8, 1000}, 10)}}};
}

std::vector<OpCase> core_cases() {
  return {{"gemm",
           "Gemm",
           {noisy({5, 75}, 1), noisy({6, 75}, 2), noisy({6}, 3)},
           {{"transB", int64_t{1}}}},
          {"conv",
           "Conv",
           {noisy({2, 5, 6, 5}, 6), noisy({4, 5, 3, 3}, 7), noisy({4}, 8)},
           conv({2, 1}, {1, 1, 0, 2}, {1, 2})}};
}

/// Where operators run, and which of them; "" means all.
struct Choice {
  Candidate candidate;
  std::string op;

  friend std::ostream& operator<<(std::ostream& out, const Choice& choice) {
    return out << name_of(choice.candidate) << ' ' << choice.op;
  }
};

/// Here all operators of the cases in one test, on a device each in its own.
std::vector<Choice> choices(const std::vector<OpCase>& cases) {
  std::vector<Choice> list{{Candidate::host, ""}, {Candidate::shuffled, ""}};
  const size_t here = list.size();
  for (const OpCase& each : cases) {
    const auto same = [&](const Choice& choice) { return choice.op == each.op; };
    const auto begin = list.begin() + static_cast<int64_t>(here);
    if (std::none_of(begin, list.end(), same)) list.push_back({Candidate::cuda, each.op});
  }
  return list;
}

std::string choice_name(const testing::TestParamInfo<Choice>& info) {
  const std::string where = name_of(info.param.candidate);
  return info.param.op.empty() ? where : where + "_" + info.param.op;
}

class OnOperators : public testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    if (GetParam().candidate == Candidate::cuda && !cuda_is_ready()) {
      GTEST_SKIP() << "no GPU here: not compared on a device";
    }
  }
  static const Backend& candidate() { return backend_of(GetParam().candidate); }
  static bool all() { return GetParam().op.empty(); }
  /// Returns the cases of the chosen operator.
  static std::vector<OpCase> chosen(std::vector<OpCase> cases) {
    if (!all()) std::erase_if(cases, [](const OpCase& op) { return op.op != GetParam().op; });
    return cases;
  }
  static void run(OpLockstep& program) { (*program).run(Entry::grad, true); }
};

class OperatorBits : public OnOperators {};
INSTANTIATE_TEST_SUITE_P(Gpu, OperatorBits, testing::ValuesIn(choices(gradient_cases())),
                         choice_name);
class OperatorIndices : public OnOperators {};
INSTANTIATE_TEST_SUITE_P(Gpu, OperatorIndices, testing::ValuesIn(choices(index_result_cases())),
                         choice_name);
class OperatorGathers : public OnOperators {};
INSTANTIATE_TEST_SUITE_P(Gpu, OperatorGathers, testing::ValuesIn(choices(gather_cases())),
                         choice_name);
class OperatorWalks : public OnOperators {};
INSTANTIATE_TEST_SUITE_P(Gpu, OperatorWalks, testing::ValuesIn(choices(walk_cases())), choice_name);
class OperatorTiles : public OnOperators {};
INSTANTIATE_TEST_SUITE_P(Gpu, OperatorTiles, testing::ValuesIn(choices(tile_cases())), choice_name);
class OperatorCores : public OnOperators {};
INSTANTIATE_TEST_SUITE_P(Gpu, OperatorCores, testing::ValuesIn(choices(core_cases())), choice_name);
class Operators : public OnCandidate {};
INSTANTIATE_TEST_SUITE_P(Gpu, Operators,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

TEST_P(OperatorBits, HaveTheBitsOfTheEmulator) {
  Comparisons comparisons(candidate());
  const std::vector<OpCase> cases = chosen(gradient_cases());
  for (const Variant& variant : variants()) {
    for (const OpCase& op : cases) comparisons.add(op, variant, run);
  }
  EXPECT_GT(comparisons.elements(), all() ? 100000 : 0);
  EXPECT_GT(comparisons.statistics(), all() ? 5000 : 0);
}

// Comparisons, logic and positions, which the test of bits above reads as choices, too.
TEST_P(OperatorIndices, MakeTheSameIndices) {
  Comparisons comparisons(candidate(), "indices");
  const std::vector<OpCase> cases = chosen(index_result_cases());
  for (const Variant& variant :
       {Variant{kFp32, Accumulation::fp32}, Variant{kFp16, Accumulation::fp32}}) {
    for (const OpCase& op : cases) {
      comparisons.add(op, variant, [&](OpLockstep& program) {
        run(program);
        for (size_t i = 0; i < op.operands.size(); ++i) {
          if (op.operands[i].labels) continue;
          std::vector<float> data = op.operands[i].real.data;
          for (size_t e = 1 + i; e < data.size(); e += 3) data[e] = e % 2 == 0 ? NAN : -0.0f;
          program.write(i, data);
        }
        run(program);
        (*program).rerun(Entry::grad);
      });
    }
  }
}

TEST_P(OperatorGathers, SumWhatWasGatheredOften) {
  Comparisons comparisons(candidate(), "gathered often");
  const std::vector<OpCase> cases = chosen(gather_cases());
  for (const Variant& variant : variants()) {
    for (const OpCase& op : cases) comparisons.add(op, variant, run);
  }
}

/// Returns a backend's error about an index that is out of range, from an input, a constant or a
/// node.
std::string objection(const Backend& backend, int source, int32_t index) {
  Executable executable;
  Graph& graph = executable.graph;
  const ValueId x = graph.add_variable("x", {3, 2}, {});
  const ValueId input = graph.add_input("at", {1}, ElementType::index);
  ValueId at = input;
  if (source == 1) at = graph.add_index_constant({1}, {index});
  if (source == 2) {  // the position of the largest of 5, the 4th
    Tensor tensor{{1, 5}, {0, 0, 0, 1, 0}};
    at = graph.add1("ArgMax", "most", {graph.add_constant(tensor)},
                    {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  }
  graph.add("Gather", "pick", {x, at});
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    executable.entries[static_cast<size_t>(Entry::grad)].push_back(id);
  }
  try {
    const std::unique_ptr<Program> program = backend.compile(executable);
    if (source == 0) program->write(input, std::span<const int32_t>(&index, 1));
    program->run(Entry::grad, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(Operators, RefuseIndicesOutOfRange) {
  for (const Backend* backend : {&emulation_backend(), &candidate()}) {
    SCOPED_TRACE(backend->name());
    for (const int source : {0, 1, 2}) {
      const std::string wrong = objection(*backend, source, 3);
      EXPECT_NE(wrong.find("pick (Gather): index 3 is out of range: there are 3 elements"),
                std::string::npos)
          << wrong;
    }
    for (const int source : {0, 1}) {
      EXPECT_EQ(objection(*backend, source, -3), "");
      EXPECT_NE(objection(*backend, source, -4), "");
    }
  }
}

// Recording changes no bit, and a node run once more has the operands it had.
TEST_P(OperatorBits, RunAgainAndWithoutStatistics) {
  Comparisons comparisons(candidate(), "run again");
  const std::vector<OpCase> cases = chosen(gradient_cases());
  for (const OpCase& op : cases) {
    comparisons.add(op, {kFp16, Accumulation::fp32}, [](OpLockstep& program) {
      (*program).run(Entry::grad, false);
      (*program).rerun(Entry::grad);
    });
  }
}

// Infinities, NaNs, zeros of both signs and fp32 subnormals.
TEST_P(OperatorBits, TreatSpecialValuesAlike) {
  Comparisons comparisons(candidate(), "special values");
  const std::vector<OpCase> cases = chosen(gradient_cases());
  const std::vector<float> special{INFINITY, -0.0f,    0x1p-140f,  3.0f, -INFINITY, 1e-30f,
                                   NAN,      70000.0f, -0x1p-149f, 0.0f, 6e-8f};
  const auto named = [](const char* name) { return parse_accumulation(name).value(); };
  for (const Variant& variant :
       {Variant{kFp32, Accumulation::fp32}, Variant{kFp16, Accumulation::fp32},
        Variant{kFp16, Accumulation::format}, Variant{kE4m3fn, Accumulation::pairwise},
        Variant{kBf16, Accumulation::kahan}, Variant{kFp16, named("tensor-core:h100")},
        Variant{kBf16, named("tensor-core:a100,promote=8")},
        Variant{kE4m3fn, named("tensor-core:h100")},
        Variant{kFp16, named("format:rounding=stochastic")},
        Variant{kE4m3fnuz, Accumulation::format}}) {
    for (const OpCase& op : cases) {
      comparisons.add(op, variant, [&](OpLockstep& program) {
        for (size_t i = 0; i < op.operands.size(); ++i) {
          if (op.operands[i].labels) continue;
          std::vector<float> data = op.operands[i].real.data;
          for (size_t e = i; e < data.size(); e += 7) {
            data[e] = special[(e + 3 * i) % special.size()];
          }
          program.write(i, data);
        }
        run(program);
      });
    }
  }
}

TEST_P(OperatorTiles, WorkOnTensorsOfManyTiles) {
  Comparisons comparisons(candidate(), "many tiles");
  const std::vector<OpCase> cases = chosen(tile_cases());
  for (const Variant& variant : variants()) {
    for (const OpCase& op : cases) comparisons.add(op, variant, run);
  }
}

TEST_P(OperatorWalks, SumWindowsAndLines) {
  Comparisons comparisons(candidate(), "walks");
  const std::vector<OpCase> cases = chosen(walk_cases());
  std::vector<Variant> all = variants();
  for (const char* how : {"format:rounding=stochastic", "format-mul-add:rounding=down",
                          "format:rounding=odd", "tensor-core:h100"}) {
    all.push_back({kFp16, parse_accumulation(how).value()});
  }
  for (const Variant& variant : all) {
    for (const OpCase& op : cases) {
      comparisons.add(op, variant, [&](OpLockstep& program) {
        run(program);
        (*program).rerun(Entry::grad);
      });
    }
  }
}

// Every tensor core with every format that it multiplies, for all ways of cutting k.
TEST_P(OperatorCores, SumAsTensorCoresDo) {
  Comparisons comparisons(candidate());
  const std::vector<OpCase> cases = chosen(core_cases());
  int64_t variants = 0;
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2, kE2m1}) {
      for (const char* options :
           {"", ",acc=fp16", ",promote=24", ",split-k=3", ",acc=fp16,promote=40,split-k=2"}) {
        const std::string name = "tensor-core:" + std::string(arch.name) + options;
        const Accumulation how = parse_accumulation(name).value();
        if (!tensor_core_of({.accumulation = how, .write = format, .read = format})) continue;
        ++variants;
        for (const OpCase& op : cases) comparisons.add(op, {format, how}, run);
      }
    }
  }
  EXPECT_GE(variants, 140);
}

// Outputs that are rounded in modes other than nearest even, with special values among the
// operands.
TEST_P(OperatorBits, RoundResultsInAnyMode) {
  Comparisons comparisons(candidate(), "rounded results");
  const std::vector<OpCase> cases = chosen(gradient_cases());
  const std::vector<float> special{INFINITY, -0.0f, 0x1p-140f, -INFINITY, 4006.0f,   NAN,
                                   3e38f,    0.0f,  0x1p-24f,  1000.0f,   -65504.0f, -1e-30f};
  for (const RoundingMode mode : kAllRoundingModes) {
    if (mode == RoundingMode::nearest_even) continue;  // tested in HaveTheBitsOfTheEmulator
    std::vector<FloatFormat> formats{kFp16, kBf16};
    if (mode == RoundingMode::stochastic) formats = {kFp16, kE4m3b11fnuz, {8, 22, 127}};
    for (const FloatFormat& format : formats) {
      for (const OpCase& op : cases) {
        comparisons.add(op, {format, Accumulation::fp32, mode, kFp32}, [&](OpLockstep& program) {
          run(program);
          for (size_t i = 0; i < op.operands.size(); ++i) {
            if (op.operands[i].labels) continue;
            std::vector<float> data = op.operands[i].real.data;
            for (size_t e = i; e < data.size(); e += 3) data[e] = special[(e + i) % special.size()];
            program.write(i, data);
          }
          (*program).run(Entry::grad, false);
        });
      }
    }
  }
}

// Some sums have the sign of their first term, others that of +0.
TEST_P(OperatorBits, SumNegativeZerosAlike) {
  Comparisons comparisons(candidate(), "negative zeros");
  const std::vector<OpCase> cases = chosen(gradient_cases());
  for (const char* how : {"pairwise", "interleaved16", "pairwise:split-k=2",
                          "pairwise:promote=3,split-k=2", "fp32:split-k=2"}) {
    for (const OpCase& op : cases) {
      comparisons.add(op, {kFp16, parse_accumulation(how).value()}, [&](OpLockstep& program) {
        for (size_t i = 0; i < op.operands.size(); ++i) {
          if (op.operands[i].labels) continue;
          program.write(i, std::vector<float>(op.operands[i].real.data.size(), i == 0 ? -0.0f : 1));
        }
        run(program);
      });
    }
  }
}

// Sums that are rounded in modes other than nearest even, with the draws of stochastic ones.
TEST_P(OperatorBits, RoundSumsInAnyMode) {
  Comparisons comparisons(candidate(), "rounded sums");
  const std::vector<OpCase> cases = chosen(gradient_cases());
  for (const RoundingMode mode : kAllRoundingModes) {
    for (const char* kind : {"format", "format-mul-add"}) {
      for (const char* options : {"", ",promote=2", ",split-k=2"}) {
        const std::string name =
            std::string(kind) + ":rounding=" + std::string(rounding_mode_name(mode)) + options;
        const std::optional<Accumulation> how = parse_accumulation(name);
        ASSERT_TRUE(how) << name;
        for (const OpCase& op : cases) {
          comparisons.add(op, {kFp16, *how},
                          [](OpLockstep& program) { (*program).run(Entry::grad, false); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace halfscope
