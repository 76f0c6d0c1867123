// SPDX-License-Identifier: MIT
// Functions of one element as operators of the emulator: for every instruction set the bits of
// core/numeric/elementary/functions.h taken number by number, in pieces and with broadcasting.
#include "core/ops/functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "emulation/backends.h"
#include "emulation/isa.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using test::OpCase;
using test::OpProgram;

/// Sizes from 2^-20 to 2^10 of both signs, and special values.
std::vector<float> numbers(int64_t count, uint64_t seed) {
  const float special[] = {INFINITY, -INFINITY, NAN,     0.0f,   -0.0f,  0x1p-140f,
                           3.0e38f,  -90.0f,    -103.9f, 88.72f, 0x1p24f};
  std::mt19937_64 random(seed);
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i) {
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 31) - 20);
    const float fraction = static_cast<float>(random() % 65536) / 32768.0f - 1.0f;
    result.push_back(i % 37 == 5 ? special[random() % std::size(special)] : size * fraction);
  }
  return result;
}

uint32_t bits(float x) { return std::isnan(x) ? 0x7fc00000 : std::bit_cast<uint32_t>(x); }

/// Expects the same output and gradients under every instruction set, and outputs equal to
/// `expected`.
void expect_same_bits(const OpCase& op, const std::vector<float>& expected) {
  SCOPED_TRACE(op.op);
  const Isa before = active_isa();
  std::vector<std::vector<float>> first;
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    set_active_isa(isa);
    OpProgram program(emulation_backend(), op);
    program.run();
    std::vector<std::vector<float>> results{program.output().data};
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (const std::optional<Tensor> gradient = program.gradient(i)) {
        results.push_back(gradient->data);
      }
    }
    ASSERT_EQ(results[0].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(bits(results[0][i]), bits(expected[i])) << i;
    }
    if (first.empty()) first = results;
    ASSERT_EQ(results.size(), first.size());
    for (size_t r = 0; r < results.size(); ++r) {
      for (size_t i = 0; i < results[r].size(); ++i) {
        ASSERT_EQ(bits(results[r][i]), bits(first[r][i])) << "result " << r << ", element " << i;
      }
    }
  }
  set_active_isa(before);
}

/// Not a whole number of pieces or vectors.
constexpr int64_t kCount = 2 * 256 + 77;

template <class... F>
void check_unary(FunctionList<F...>) {
  const Tensor x{{kCount}, numbers(kCount, 1)};
  const auto check = [&]<class Function>(Function f, const Attributes& attributes) {
    std::vector<float> expected;
    for (const float each : x.data) expected.push_back(static_cast<float>(f(each)));
    expect_same_bits({"case", Function::kName, {{x}}, attributes}, expected);
    if constexpr (requires { f.tanh; }) {
      f.tanh = true;
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(f(x.data[i]));
      expect_same_bits({"case", Function::kName, {{x}}, {{"tanh", int64_t{1}}}}, expected);
    }
  };
  (check(F{}, {}), ...);
}

TEST(Functions, OfOneOperandHaveTheSameBitsForEveryInstructionSet) {
  check_unary(UnaryFunctions{});
}

TEST(Functions, ExpAndLogHaveTheSameBitsForEveryInstructionSet) {
  const Tensor x{{kCount}, numbers(kCount, 2)};
  std::vector<float> powers, logs;
  for (const float each : x.data) {
    powers.push_back(static_cast<float>(elementary::exp(each)));
    logs.push_back(static_cast<float>(elementary::log(each)));
  }
  expect_same_bits({"case", "Exp", {{x}}}, powers);
  expect_same_bits({"case", "Log", {{x}}}, logs);
}

TEST(Functions, OfTwoOperandsHaveTheSameBitsForEveryInstructionSet) {
  const auto check = [&]<class Function>(Function f) {
    struct Shapes {
      Shape a, b, y;
    };
    for (const auto& [a, b, y] :
         {Shapes{{3, 301}, {3, 301}, {3, 301}}, Shapes{{}, {301}, {301}}, Shapes{{301}, {1}, {301}},
          Shapes{{3, 301}, {3, 1}, {3, 301}}, Shapes{{301}, {3, 1}, {3, 301}},
          Shapes{{3, 1, 5}, {1, 300, 1}, {3, 300, 5}}}) {
      if (std::is_same_v<Function, fn::PRelu> && a != y) continue;  // it stretches slopes only
      const Tensor left{a, numbers(element_count(a), 3)}, right{b, numbers(element_count(b), 4)};
      const auto at = [&](const Shape& shape, int64_t i) {  // the operand's element for y[i]
        int64_t offset = 0, stride = 1;
        for (size_t d = y.size(); d-- > 0;) {
          const int64_t k = i % y[d];
          i /= y[d];
          if (d + shape.size() < y.size()) continue;
          const int64_t size = shape[d + shape.size() - y.size()];
          offset += size == 1 ? 0 : k * stride;
          stride *= size;
        }
        return static_cast<size_t>(offset);
      };
      std::vector<float> expected;
      for (int64_t i = 0; i < element_count(y); ++i) {
        expected.push_back(static_cast<float>(f(left.data[at(a, i)], right.data[at(b, i)])));
      }
      expect_same_bits({"case", Function::kName, {{left}, {right}}}, expected);
    }
  };
  check(fn::Max{});
  check(fn::Min{});
  check(fn::PRelu{});
  check(fn::Pow{});
}

TEST(Functions, SoftmaxHasTheSameBitsForEveryInstructionSet) {
  const Tensor x{{7, 67}, numbers(7 * 67, 5)};
  for (const int64_t axis : {0, 1}) {
    const int64_t size = x.shape[static_cast<size_t>(axis)], stride = axis == 0 ? 67 : 1;
    std::vector<float> shares(x.data.size()), logs(x.data.size());
    for (int64_t line = 0; line < 7 * 67 / size; ++line) {
      const float* const in = x.data.data() + line * (axis == 0 ? 1 : 67);
      double largest = -INFINITY, sum = 0.0;
      for (int64_t k = 0; k < size; ++k) {
        const double value = in[k * stride];
        if (value > largest || std::isnan(value)) largest = value;
      }
      for (int64_t k = 0; k < size; ++k) sum += elementary::exp(in[k * stride] - largest);
      for (int64_t k = 0; k < size; ++k) {
        const size_t at = static_cast<size_t>(in + k * stride - x.data.data());
        const double shifted = static_cast<double>(x.data[at]) - largest;
        shares[at] = static_cast<float>(elementary::exp(shifted) / sum);
        logs[at] = static_cast<float>(shifted - elementary::log(sum));
      }
    }
    expect_same_bits({"case", "Softmax", {{x}}, {{"axis", axis}}}, shares);
    expect_same_bits({"case", "LogSoftmax", {{x}}, {{"axis", axis}}}, logs);
  }
}

/// Returns the output and gradients of an operator whose tensors have a format.
std::vector<std::vector<float>> results_of(const OpCase& op, const FloatFormat& format) {
  const auto make = [&](Graph& graph, const std::vector<ValueId>& inputs) {
    return graph.add(op.op, "node", inputs, op.attributes).front();
  };
  const auto adjust = [&](Graph& graph) {
    for (ValueId value = 0; value < static_cast<ValueId>(graph.values().size()); ++value) {
      if (graph.value(value).type == ElementType::real) graph.value(value).format = format;
    }
  };
  OpProgram program(emulation_backend(), op.operands, make, std::nullopt, false, adjust);
  program.run();
  std::vector<std::vector<float>> results{program.output().data};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (const std::optional<Tensor> gradient = program.gradient(i)) {
      results.push_back(gradient->data);
    }
  }
  return results;
}

// Vectors compute approximations and decide by their bounds how they round. Without vectors,
// everything is computed exactly. In fp32 one element in a million is in doubt; in fewer bits,
// which round to odd, every result that fp32 has exactly is, too.
TEST(Functions, ApproximationsNeverDecideABit) {
  constexpr int64_t kMany = 1 << 19;
  Tensor rows{{kMany / 128, 128}, {}};
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int64_t i = 0; i < kMany; ++i) {
    const int64_t row = i / 128, column = i % 128;
    rows.data.push_back(column > row % 128 ? -INFINITY : normal(random));
  }
  Tensor plain = rows;
  for (float& x : plain.data) x = std::isinf(x) ? normal(random) : x;
  const std::vector<float> ones(128, 1.0f), zeros(128, 0.0f);
  const std::vector<OpCase> cases{
      {"", "Softmax", {{rows}}},
      {"", "Gelu", {{plain}}, {{"tanh", int64_t{1}}}},
      {"", "Swish", {{plain}}, {{"alpha", 1.7}}},
      {"", "Sigmoid", {{plain}}},
      {"", "LayerNormalization", {{plain}, {Tensor{{128}, ones}}, {Tensor{{128}, zeros}}}}};
  const Isa before = active_isa();
  for (const OpCase& op : cases) {
    for (const FloatFormat& format : {kFp32, kFp16, kE4m3fn}) {
      SCOPED_TRACE(op.op + " " + format_name(format));
      set_active_isa(Isa::baseline);
      const auto exact = results_of(op, format);
      for (const Isa isa : supported_isas()) {
        set_active_isa(isa);
        const auto results = results_of(op, format);
        ASSERT_EQ(results.size(), exact.size());
        for (size_t r = 0; r < results.size(); ++r) {
          for (size_t i = 0; i < results[r].size(); ++i) {
            ASSERT_EQ(bits(results[r][i]), bits(exact[r][i]))
                << isa_name(isa) << ": result " << r << ", element " << i;
          }
        }
      }
    }
  }
  set_active_isa(before);
}

TEST(Functions, ApproximationsAreWithinTheirBounds) {
  const std::vector<float> x = numbers(200'000, 11), dy = numbers(200'000, 12);
  int64_t known = 0;
  const auto check = [&](double exact, const elementary::Bounded& quick, size_t i) {
    if (!(quick.error <= std::numeric_limits<double>::max())) return;  // not known
    ++known;
    ASSERT_LE(std::fabs(exact - quick.value), quick.error) << x[i] << " " << dy[i];
  };
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = static_cast<double>(x[i]), g = static_cast<double>(dy[i]);
    check(fn::Gelu{.tanh = true}(at), fn::Gelu::quick(at), i);
    check(fn::GeluGrad{.tanh = true}(g, at), fn::GeluGrad::quick(g, at), i);
    check(fn::Swish{1.7}(at), fn::Swish{1.7}.quick(at), i);
    check(fn::SwishGrad{1.7}(g, at), fn::SwishGrad{1.7}.quick(g, at), i);
    check(fn::Sigmoid{}(at), fn::Sigmoid::quick(at), i);
  }
  EXPECT_GT(known, 900'000) << "of a million";
}

}  // namespace
}  // namespace halfscope
