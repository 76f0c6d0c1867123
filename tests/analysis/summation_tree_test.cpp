// SPDX-License-Identifier: MIT
// Summation trees recovered from sums whose order is known: chains, blocks, slices, pairs, and
// random trees in which every node swamps what is small beside M.
#include "core/numeric/sum_orders/summation_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using Row = std::span<const float>;

DotProducts rows_of(std::function<float(Row, Row)> dot) {
  return [dot](Row a, Row b, int64_t rows, int64_t n, std::span<float> out) {
    const size_t length = static_cast<size_t>(n);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      out[r] = dot(a.subspan(r * length, length), b.subspan(r * length, length));
    }
  };
}

/// Evaluates a tree exactly, except for swamping: next to numbers as large as M, all others vanish.
float evaluate(const SummationTree& tree, int node, Row a, Row b) {
  if (tree.is_leaf(node)) {
    return a[static_cast<size_t>(node)] * b[static_cast<size_t>(node)];
  }
  double big = 0.0, small = 0.0;
  bool any_big = false;
  for (const int child : tree.children[static_cast<size_t>(node)]) {
    const double x = evaluate(tree, child, a, b);
    any_big = any_big || std::fabs(x) > 0x1p40;
    (std::fabs(x) > 0x1p40 ? big : small) += x;
  }
  return static_cast<float>(any_big ? big : small);
}

DotProducts sum_by(const SummationTree& tree) {
  return rows_of([&tree](Row a, Row b) { return evaluate(tree, tree.root, a, b); });
}

/// Adds nodes over the leaves [begin, end) until one is left.
SummationTree random_tree(int n, int most_children, uint32_t seed) {
  std::mt19937 generator(seed);
  SummationTree tree{.leaves = n, .root = 0, .children = {}};
  tree.children.resize(static_cast<size_t>(n));
  std::vector<int> loose(static_cast<size_t>(n));
  for (int k = 0; k < n; ++k) loose[static_cast<size_t>(k)] = k;
  std::shuffle(loose.begin(), loose.end(), generator);
  while (loose.size() > 1) {
    const size_t most = std::min<size_t>(loose.size(), static_cast<size_t>(most_children));
    const size_t ways = 2 + generator() % (most - 1);
    std::vector<int> children;
    for (size_t k = 0; k < ways; ++k) {
      const size_t at = generator() % loose.size();
      children.push_back(loose[at]);
      loose[at] = loose.back();
      loose.pop_back();
    }
    tree.children.push_back(children);
    loose.push_back(static_cast<int>(tree.children.size()) - 1);
  }
  tree.root = loose[0];
  return tree;
}

float chain(Row a, Row b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

float backwards(Row a, Row b) {
  float sum = 0.0f;
  for (size_t k = a.size(); k-- > 0;) sum += a[k] * b[k];
  return sum;
}

float pairs(Row a, Row b) {
  if (a.size() == 1) return a[0] * b[0];
  const size_t half = a.size() / 2;
  return pairs(a.first(half), b.first(half)) + pairs(a.subspan(half), b.subspan(half));
}

/// Eight accumulators, then a tree over them, as SIMD code does.
float lanes(Row a, Row b) {
  float sum[8] = {};
  for (size_t k = 0; k < a.size(); ++k) sum[k % 8] += a[k] * b[k];
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

RecoveredTree recovered(int n, float (*dot)(Row, Row)) {
  return recover_summation_tree(n, rows_of(dot));
}

TEST(SummationTree, TextbookOrders) {
  const RecoveredTree ascending = recovered(5, chain);
  EXPECT_EQ(ascending.problem, "");
  EXPECT_EQ(ascending.tree.text(), "((((0 1) 2) 3) 4)");
  EXPECT_EQ(describe(ascending.tree), "one ascending chain");
  EXPECT_EQ(recovered(5, backwards).tree.text(), "(0 (1 (2 (3 4))))");
  EXPECT_EQ(describe(recovered(40, backwards).tree), "one descending chain");
  EXPECT_EQ(recovered(8, pairs).tree.text(), "(((0 1) (2 3)) ((4 5) (6 7)))");
  for (const int n : {4, 7, 64, 100}) EXPECT_EQ(describe(recovered(n, pairs).tree), "pairwise");
  const std::string simd = describe(recovered(64, lanes).tree);
  EXPECT_THAT(simd, HasSubstr("dealt out in turn in runs of 1"));
  EXPECT_THAT(simd, HasSubstr("one ascending chain"));
}

TEST(SummationTree, Small) {
  EXPECT_EQ(recovered(0, chain).tree.text(), "");
  EXPECT_EQ(recovered(1, chain).tree.text(), "0");
  EXPECT_EQ(recovered(2, chain).tree.text(), "(0 1)");
  EXPECT_EQ(describe(recovered(0, chain).tree), "no summands");
  EXPECT_EQ(describe(recovered(1, chain).tree), "one summand");
  EXPECT_EQ(describe(recovered(2, chain).tree), "one addition");
  EXPECT_EQ(draw_text(recovered(2, chain).tree), "x0 + x1\n");
  EXPECT_EQ(draw_text(recovered(1, chain).tree), "x0\n");
}

TEST(SummationTree, ProbesOfAChainAreAsManyAsSummands) {
  const RecoveredTree found = recovered(1000, chain);
  EXPECT_EQ(found.problem, "");
  EXPECT_LE(found.probes, 2 * 999);
  EXPECT_EQ(describe(found.tree), "one ascending chain");
}

TEST(SummationTree, RandomTreesAreRecovered) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const int n = 2 + static_cast<int>(seed * 7 % 45), ways = 2 + static_cast<int>(seed % 4) * 3;
    const SummationTree tree = random_tree(n, ways, seed);
    const RecoveredTree fast = recover_summation_tree(n, sum_by(tree));
    EXPECT_EQ(fast.problem, "") << seed;
    EXPECT_EQ(fast.tree.text(), tree.text()) << seed;
    const RecoveredTree basic = recover_summation_tree_basic(n, sum_by(tree));
    EXPECT_EQ(basic.problem, "") << seed;
    EXPECT_EQ(basic.tree.text(), tree.text()) << seed;
    EXPECT_EQ(basic.probes, n * (n - 1) / 2);
    EXPECT_FALSE(draw_text(tree).empty());
    EXPECT_FALSE(describe(tree).empty());
  }
}

/// fp16 on a tensor core.
RecoveredTree tensor_core(const char* arch, int n, const TensorCorePlan& plan = {},
                          const FloatFormat& format = kFp16) {
  const TensorCoreProfile profile = *tensor_core_profile(arch, format);
  const FprevValues fp16{0x1p15f, 0x1p15f, 0x1p-14f, 0x1p-14f};
  const FprevValues e4m3{0x1p8f, 0x1p8f, 0x1p-9f, 0x1p-9f};
  return recover_summation_tree(
      n, rows_of([&](Row a, Row b) { return tensor_core_dot(profile, a, b, 0.0f, plan); }),
      format == kFp16 ? fp16 : e4m3);
}

TEST(SummationTree, TensorCores) {
  const std::pair<const char*, const char*> blocks[] = {
      {"v100", "one ascending chain of blocks of 4"},
      {"t4", "one ascending chain of blocks of 8"},
      {"a100", "one ascending chain of blocks of 8"},
      {"h100", "one ascending chain of blocks of 16"},
      {"b200-tcgen05", "one ascending chain of blocks of 16"}};
  for (const auto& [arch, name] : blocks) {
    for (const int n : {64, 70, 97}) {
      const RecoveredTree found = tensor_core(arch, n);
      EXPECT_EQ(found.problem, "") << arch;
      EXPECT_EQ(describe(found.tree), name) << arch << " " << n;
    }
  }
  EXPECT_EQ(tensor_core("v100", 9).tree.text(), "(((0 1 2 3) 4 5 6 7) 8)");
  EXPECT_EQ(describe(tensor_core("h100", 12).tree), "one block of 12");
  // The counts that the paper's method needs, n * (1 + G / 2), and as many checks.
  EXPECT_EQ(tensor_core("a100", 32).tree.text(), tensor_core("ada", 32).tree.text());
  EXPECT_LE(tensor_core("h100", 48).probes, 2 * 392);
}

TEST(SummationTree, Plans) {
  EXPECT_EQ(describe(tensor_core("a100", 64, {.slices = 2}).tree),
            "2 parts of 32, each one ascending chain of blocks of 8, summed in order");
  EXPECT_EQ(describe(tensor_core("h100", 200, {.slices = 4}).tree),
            "4 parts of 64, each one ascending chain of blocks of 16, summed in order");
  EXPECT_EQ(describe(tensor_core("a100", 96, {.interleave = 2, .tile = 32}).tree),
            "2 parts of 48, dealt out in turn in runs of 16, each one ascending chain of blocks "
            "of 8, summed in order");
  EXPECT_EQ(describe(tensor_core("h100-wgmma", 512, {.promote_every = 128}, kE4m3fn).tree),
            "4 parts of 128, each one ascending chain of blocks of 32, summed in order");
  // The second of two parts may be shorter.
  EXPECT_EQ(describe(tensor_core("h100", 80, {.promote_every = 48}).tree),
            "2 parts of 48, each one ascending chain of blocks of 16, summed in order");
  EXPECT_EQ(describe(tensor_core("h100", 60, {.promote_every = 48}).tree),
            "2 parts of 48, each one ascending chain of blocks of 16, summed in order");
  EXPECT_EQ(describe(tensor_core("h100", 128, {}, kE4m3fn).tree),
            "4 parts of 32, each chain of blocks of 16, dealt out in turn in runs of 2, summed in "
            "order");
}

TEST(SummationTree, WhatIsNoTreeIsSaidToBe) {
  // A different order in every call.
  int calls = 0;
  const RecoveredTree restless = recover_summation_tree(
      24,
      rows_of([&calls](Row a, Row b) { return ++calls % 3 == 0 ? backwards(a, b) : chain(a, b); }));
  EXPECT_THAT(restless.problem, HasSubstr("not a summation tree"));
  // Exact sums: nothing is swamped, every result is n - 2.
  const RecoveredTree exact = recover_summation_tree(16, rows_of([](Row a, Row b) {
                                                       double sum = 0.0;
                                                       for (size_t k = 0; k < a.size(); ++k) {
                                                         const float x = a[k] * b[k];
                                                         sum += std::fabs(x) < 0x1p40f ? x : 0.0f;
                                                       }
                                                       return static_cast<float>(sum);
                                                     }));
  EXPECT_THAT(exact.problem, HasSubstr("not a summation tree"));
  for (const float nonsense : {0.5f, -3.0f, 1e30f, std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity()}) {
    const auto constant = rows_of([nonsense](Row, Row) { return nonsense; });
    EXPECT_THAT(recover_summation_tree(9, constant).problem, HasSubstr("counts no summands"));
    EXPECT_THAT(recover_summation_tree_basic(9, constant).problem, HasSubstr("not a summation"));
  }
  // One pair of summands is added elsewhere.
  const RecoveredTree odd = recover_summation_tree(32, rows_of([](Row a, Row b) {
                                                     const bool marked = a[3] != a[4];
                                                     return marked ? pairs(a, b) : chain(a, b);
                                                   }));
  EXPECT_THAT(odd.problem, HasSubstr("not a summation tree"));
}

TEST(SummationTree, TextStaysShort) {
  EXPECT_EQ(draw_text(recovered(100, chain).tree),
            "x0 + x1\n+ x2\n+ x3\n... 95 more like these ...\n+ x99\n");
  EXPECT_EQ(draw_text(recovered(8, pairs).tree),
            "x0 + x1\n+ (x2 + x3)\n+ (x4..x7 in the way shown above)\n");
  EXPECT_EQ(draw_text(tensor_core("h100", 64, {.slices = 2}).tree),
            "sum of x0..x15\n+ x16..x31\n+ (x32..x63 in the way shown above)\n");
  EXPECT_LT(draw_text(recovered(512, pairs).tree).size(), 600u);
}

}  // namespace
}  // namespace halfscope
