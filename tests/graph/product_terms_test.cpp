// SPDX-License-Identifier: MIT
// Positions of the terms of products: summed in exact arithmetic, they give the kernels' results.
// And single nodes, which compute the same from the same operands as in their graph.
#include "core/ops/product_terms.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/lower/single_node.h"
#include "emulation/backends.h"
#include "tests/support/op_cases.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests

std::vector<OpCase> cases() {
  std::vector<OpCase> list = product_cases();
  list.push_back({"",
                  "Conv",
                  {real({2, 3, 6, 5}), real({4, 3, 3, 2}), real({4})},
                  conv({2, 1}, {1, 0, 0, 1}, {1, 2})});
  list.push_back({"", "Conv", {real({1, 2, 4, 4}), real({3, 2, 1, 1})}});
  return list;
}

/// work(program, node, terms) for every product of every case, forward and backward.
template <class Work>
void for_each_product(const Work& work) {
  int64_t products = 0;
  for (const OpCase& op : cases()) {
    OpProgram program(emulation_backend(), op.operands,
                      [&](Graph& graph, const std::vector<ValueId>& inputs) {
                        return graph.add1(op.op, "op", inputs, op.attributes);
                      });
    program.run();
    const Graph& graph = program.graph();
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      const Node& node = graph.node(id);
      const std::optional<ProductTerms> terms = ProductTerms::of(graph, node);
      ASSERT_EQ(terms.has_value(), find_op(node.op).sums_products()) << node.op;
      if (!terms) continue;
      SCOPED_TRACE(node.op + " " + to_string(graph.value(node.inputs[0]).shape) + " " +
                   to_string(graph.value(node.inputs[1]).shape));
      work(program, id, *terms);
      ++products;
    }
  }
  EXPECT_GT(products, 80);
}

TEST(ProductTerms, GiveTheResults) {
  for_each_product([](const OpProgram& program, NodeId id, const ProductTerms& terms) {
    const Graph& graph = program.graph();
    const Node& node = graph.node(id);
    const Tensor a = program.program().read(node.inputs[0]),
                 b = program.program().read(node.inputs[1]);
    const Tensor result = program.program().read(node.outputs[0]);
    const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNone;
    const Tensor bias = has_bias ? program.program().read(node.inputs[2]) : Tensor{};
    ASSERT_EQ(terms.results(), static_cast<int64_t>(result.data.size()));
    for (int64_t i = 0; i < terms.results(); ++i) {
      double sum = 0.0;
      for (int64_t k = 0; k < terms.terms(); ++k) {
        const ProductTerms::Place at = terms.place(i, k);
        ASSERT_EQ(at.first == ProductTerms::kNowhere, at.second == ProductTerms::kNowhere);
        if (at.first == ProductTerms::kNowhere) continue;
        sum += static_cast<double>(a.data.at(static_cast<size_t>(at.first))) *
               static_cast<double>(b.data.at(static_cast<size_t>(at.second)));
      }
      sum *= real_attribute(node, "alpha", 1.0);
      if (has_bias) {
        sum += real_attribute(node, "beta", 1.0) *
               static_cast<double>(bias.data.at(static_cast<size_t>(terms.bias(i))));
      }
      // All operands are small multiples of a power of two: sums are exact.
      EXPECT_EQ(static_cast<double>(result.data[static_cast<size_t>(i)]), sum) << i;
    }
  });
}

TEST(ProductTerms, ResultsApartShareNoElementOfOneOperand) {
  int64_t found = 0;
  for_each_product([&](const OpProgram&, NodeId, const ProductTerms& terms) {
    const ProductTerms::Apart apart = terms.apart();
    std::set<int64_t> seen;
    for (const int64_t result : apart.results) {
      ASSERT_LT(result, terms.results());
      for (int64_t k = 0; k < terms.terms(); ++k) {
        const ProductTerms::Place at = terms.place(result, k);
        ASSERT_NE(at.first, ProductTerms::kNowhere);
        EXPECT_TRUE(seen.insert(apart.operand == 0 ? at.first : at.second).second);
      }
    }
    found += apart.results.size() > 1 ? 1 : 0;
  });
  EXPECT_GT(found, 40);
}

TEST(SingleNode, MakesTheSameOfTheSameOperands) {
  for_each_product([](const OpProgram& program, NodeId id, const ProductTerms&) {
    const Executable single = single_node(program.graph(), id);
    const auto alone = emulation_backend().compile(single);
    for (const NamedValue& operand : single.inputs) {
      const Tensor values = program.program().read(operand.value);
      alone->write(operand.value, std::span<const float>(values.data));
    }
    alone->run(Entry::eval, {});
    const ValueId result = program.graph().node(id).outputs[0];
    EXPECT_EQ(alone->read(result).data, program.program().read(result).data);
  });
}

TEST(SingleNode, ABareProductHasNoBiasAndNoFactors) {
  Graph graph;
  const ValueId a = graph.add_input("a", {2, 2}), b = graph.add_input("b", {2, 2}),
                c = graph.add_input("c", {2});
  graph.value(a).format = graph.value(b).format = kFp16;
  const ValueId y = graph.add1("Gemm", "fc", {a, b, c}, {{"alpha", 3.0}, {"beta", 2.0}});
  graph.value(y).format = kFp16;
  const Executable bare = bare_product(graph, 0);
  ASSERT_EQ(bare.inputs.size(), 2u);
  EXPECT_EQ(bare.graph.value(y).format, kFp32);
  EXPECT_EQ(bare.graph.value(a).format, kFp16);
  const auto program = emulation_backend().compile(bare);
  program->write(a, std::vector<float>{1, 2, 3, 4});
  program->write(b, std::vector<float>{5, 6, 7, 2049});  // rounded to 2048
  program->run(Entry::eval, {});
  EXPECT_EQ(program->read(y).data, (std::vector<float>{19, 4102, 43, 8210}));
  const ValueId sum = graph.add1("Add", "add", {y, y});
  EXPECT_THROW(bare_product(graph, graph.value(sum).producer), Error);
}

}  // namespace
}  // namespace halfscope
