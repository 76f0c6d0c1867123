// SPDX-License-Identifier: MIT
// The order in which a black box sums, recovered from its results (FPRev, Xie et al., USENIX ATC
// 2025, arXiv:2411.00442). All summands are u except two, +M and -M, with M so large that M + n * u
// is M. Everything added before the two meet is lost, the rest is counted. So
//   L(i, j) = n - result / u
// is the number of leaves below the node where the leaves i and j meet, and all L determine the
// tree. Standard library only; the matrix product under test is a callable.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace halfscope {

/// A node sums its children at once: two for an addition, more for a fused block. Nodes without
/// children are leaves; the first `leaves` nodes are summands 0, 1, ...
struct SummationTree {
  int leaves = 0;
  int root = 0;
  std::vector<std::vector<int>> children;

  /// Returns the children in the order of their least summands, as nested lists: "(((0 1) 2) 3)".
  std::string text() const;
  bool operator==(const SummationTree& other) const { return text() == other.text(); }

  bool is_leaf(int node) const { return node < leaves; }
};

/// The factors of the summands: a * b is M or u. If all b are equal, one matrix with equal columns
/// is enough.
struct FprevValues {
  float big_a = 0x1p60f, big_b = 1.0f, small_a = 1.0f, small_b = 1.0f;
};

/// Computes `rows` dot products of n pairs: out[r] = sum over k of a[r * n + k] * b[r * n + k].
using DotProducts = std::function<void(std::span<const float> a, std::span<const float> b,
                                       int64_t rows, int64_t n, std::span<float> out)>;

struct RecoveredTree {
  SummationTree tree;
  int64_t probes = 0;
  /// Why the results fit no tree, with the first contradiction; "" if they fit. `tree` is only
  /// valid if this is "".
  std::string problem;
};

/// Runs FPRev: about n * (1 + G / 2) probes for a chain of blocks of G, at most n * (n - 1) / 2. As
/// many again (64 * n at most) check the tree and that results are repeatable. The same seed gives
/// the same probes.
RecoveredTree recover_summation_tree(int n, const DotProducts& dot, const FprevValues& values = {},
                                     uint64_t seed = 1);

/// Runs all n * (n - 1) / 2 probes, to check the faster function.
RecoveredTree recover_summation_tree_basic(int n, const DotProducts& dot,
                                           const FprevValues& values = {});

/// Returns the name of the structure: "one ascending chain", "pairwise", "chain of blocks of 16,
/// ...".
std::string describe(const SummationTree& tree);

/// Draws the tree as lines of text; repeated parts are folded to keep it short.
std::string draw_text(const SummationTree& tree);

}  // namespace halfscope
