// SPDX-License-Identifier: MIT
// Recovery and checks; names and text are in summation_text.cpp.
#include "core/numeric/sum_orders/summation_tree.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace halfscope {
namespace {

struct Probe {
  int i, j, leaves;
};

/// Measures L for pairs of leaves and remembers the results.
class Prober {
 public:
  Prober(int n, const DotProducts& dot, const FprevValues& values)
      : n_(n),
        dot_(dot),
        values_(values),
        unit_(static_cast<double>(values.small_a) * static_cast<double>(values.small_b)) {}

  /// Returns L(i, j) of every pair, complete; sets problem() for a result that is not a count.
  std::vector<int> measure(std::span<const std::pair<int, int>> pairs) {
    const size_t n = static_cast<size_t>(n_);
    // Limits memory: n * kRows floats are a few megabytes.
    const size_t rows_at_once = std::max<size_t>(1, (size_t{1} << 20) / n);
    std::vector<int> leaves;
    for (size_t start = 0; start < pairs.size(); start += rows_at_once) {
      const size_t rows = std::min(rows_at_once, pairs.size() - start);
      std::vector<float> a(rows * n, values_.small_a), b(rows * n, values_.small_b), out(rows);
      for (size_t r = 0; r < rows; ++r) {
        const size_t i = r * n + static_cast<size_t>(pairs[start + r].first);
        const size_t j = r * n + static_cast<size_t>(pairs[start + r].second);
        a[i] = values_.big_a;
        a[j] = -values_.big_a;
        b[i] = b[j] = values_.big_b;
      }
      dot_(a, b, static_cast<int64_t>(rows), n_, out);
      for (size_t r = 0; r < rows; ++r) leaves.push_back(count(pairs[start + r], out[r]));
    }
    probes_ += static_cast<int64_t>(pairs.size());
    return leaves;
  }

  const std::vector<Probe>& measured() const { return measured_; }
  int64_t probes() const { return probes_; }
  const std::string& problem() const { return problem_; }

 private:
  int count(std::pair<int, int> pair, float result) {
    const double lost = n_ - static_cast<double>(result) / unit_;
    if (!(lost >= 2.0 && lost <= n_) || lost != std::floor(lost)) {
      report(pair, "gave " + std::to_string(result) + ", which counts no summands");
      return n_;
    }
    const int leaves = static_cast<int>(lost);
    measured_.push_back({pair.first, pair.second, leaves});
    return leaves;
  }

  void report(std::pair<int, int> pair, const std::string& what) {
    if (!problem_.empty()) return;
    problem_ = "not a summation tree: summands " + std::to_string(pair.first) + " and " +
               std::to_string(pair.second) + " " + what;
  }

  int n_;
  const DotProducts& dot_;
  FprevValues values_;
  double unit_;
  std::vector<Probe> measured_;
  int64_t probes_ = 0;
  std::string problem_;
};

SummationTree bare_leaves(int n) {
  return {
      .leaves = n, .root = 0, .children = std::vector<std::vector<int>>(static_cast<size_t>(n))};
}

int new_node(SummationTree& tree, std::vector<int> children) {
  tree.children.push_back(std::move(children));
  return static_cast<int>(tree.children.size()) - 1;
}

/// Returns the tree over the leaves `group` and the largest L among them, as in FPRev.
std::pair<int, int> build(SummationTree& tree, Prober& prober, const std::vector<int>& group) {
  if (group.size() == 1) return {group[0], 1};
  std::vector<std::pair<int, int>> pairs;
  for (size_t k = 1; k < group.size(); ++k) pairs.emplace_back(group[0], group[k]);
  const std::vector<int> leaves = prober.measure(pairs);
  std::map<int, std::vector<int>> by_leaves;
  for (size_t k = 0; k < leaves.size(); ++k) by_leaves[leaves[k]].push_back(group[k + 1]);
  int current = group[0], largest = 1;
  for (const auto& [count, members] : by_leaves) {
    if (!prober.problem().empty()) break;
    const auto [root, inside] = build(tree, prober, members);
    if (inside == static_cast<int>(members.size())) {
      current = new_node(tree, {current, root});
    } else {
      // The members meet each other where they meet the first: one node with several children.
      if (tree.is_leaf(root)) break;
      tree.children[static_cast<size_t>(root)].push_back(current);
      current = root;
    }
    largest = count;
  }
  return {current, largest};
}

/// Leaf counts, parents and depths of a connected tree.
struct Family {
  std::vector<int> size, parent, depth;

  explicit Family(const SummationTree& tree)
      : size(tree.children.size(), 1), parent(size.size(), -1), depth(size.size(), 0) {
    std::vector<int> order{tree.root};
    for (size_t k = 0; k < order.size(); ++k) {
      for (const int child : tree.children[static_cast<size_t>(order[k])]) {
        parent[static_cast<size_t>(child)] = order[k];
        depth[static_cast<size_t>(child)] = depth[static_cast<size_t>(order[k])] + 1;
        order.push_back(child);
      }
    }
    for (size_t k = order.size(); k-- > 0;) {
      const auto node = static_cast<size_t>(order[k]);
      if (tree.children[node].empty()) continue;
      size[node] = 0;
      for (const int child : tree.children[node]) size[node] += size[static_cast<size_t>(child)];
    }
  }

  int leaves_where_they_meet(int i, int j) const {
    while (i != j) {
      int& deeper = depth[static_cast<size_t>(i)] >= depth[static_cast<size_t>(j)] ? i : j;
      deeper = parent[static_cast<size_t>(deeper)];
      if (deeper < 0) return 0;
    }
    return size[static_cast<size_t>(i)];
  }
};

/// Returns the first probe that the tree does not explain.
std::string contradiction(const SummationTree& tree, std::span<const Probe> probes) {
  const Family family(tree);
  for (const Probe& probe : probes) {
    const int expected = family.leaves_where_they_meet(probe.i, probe.j);
    if (expected == probe.leaves) continue;
    return "not a summation tree: summands " + std::to_string(probe.i) + " and " +
           std::to_string(probe.j) + " meet among " + std::to_string(probe.leaves) +
           ", but the other results say " + std::to_string(expected);
  }
  return "";
}

uint64_t next_random(uint64_t& state) {  // splitmix64
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::vector<std::pair<int, int>> all_pairs(int n) {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) pairs.emplace_back(i, j);
  }
  return pairs;
}

/// Returns pairs in both orders, so that the signs of M are exchanged, too.
std::vector<std::pair<int, int>> check_pairs(int n, size_t wanted, uint64_t seed) {
  std::vector<std::pair<int, int>> pairs;
  for (size_t k = 0; k < wanted; ++k) {
    const int i = static_cast<int>(next_random(seed) % static_cast<uint64_t>(n));
    const int j = static_cast<int>(next_random(seed) % static_cast<uint64_t>(n));
    if (i != j) pairs.emplace_back(i, j);
  }
  return pairs;
}

RecoveredTree finished(SummationTree tree, const Prober& prober) {
  std::string problem = prober.problem();
  if (problem.empty()) problem = contradiction(tree, prober.measured());
  return {.tree = std::move(tree), .probes = prober.probes(), .problem = std::move(problem)};
}

}  // namespace

RecoveredTree recover_summation_tree(int n, const DotProducts& dot, const FprevValues& values,
                                     uint64_t seed) {
  SummationTree tree = bare_leaves(std::max(n, 0));
  if (n < 2) return {.tree = std::move(tree), .probes = 0, .problem = ""};
  Prober prober(n, dot, values);
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  tree.root = build(tree, prober, all).first;
  if (prober.problem().empty()) {
    const size_t wanted = std::min(static_cast<size_t>(prober.probes()), 64 * all.size());
    prober.measure(check_pairs(n, wanted, seed));
  }
  return finished(std::move(tree), prober);
}

RecoveredTree recover_summation_tree_basic(int n, const DotProducts& dot,
                                           const FprevValues& values) {
  SummationTree tree = bare_leaves(std::max(n, 0));
  if (n < 2) return {.tree = std::move(tree), .probes = 0, .problem = ""};
  Prober prober(n, dot, values);
  prober.measure(all_pairs(n));
  std::vector<Probe> probes = prober.measured();
  std::stable_sort(probes.begin(), probes.end(),
                   [](const Probe& x, const Probe& y) { return x.leaves < y.leaves; });
  // Clusters of leaves, each with its root; `level` is the L at which a node was created.
  std::vector<int> cluster(static_cast<size_t>(n)), top(cluster.size()), level(cluster.size(), 1);
  std::iota(cluster.begin(), cluster.end(), 0);
  std::iota(top.begin(), top.end(), 0);
  for (const Probe& probe : probes) {
    const auto find = [&cluster](int x) {
      while (cluster[static_cast<size_t>(x)] != x) {
        const int above = cluster[static_cast<size_t>(x)];
        cluster[static_cast<size_t>(x)] = cluster[static_cast<size_t>(above)];
        x = above;
      }
      return static_cast<size_t>(x);
    };
    size_t x = find(probe.i), y = find(probe.j);
    if (x == y) continue;
    if (level[x] != probe.leaves) std::swap(x, y);
    if (level[x] != probe.leaves) {
      top[x] = new_node(tree, {top[x], top[y]});
    } else if (level[y] == probe.leaves) {
      for (const int child : tree.children[static_cast<size_t>(top[y])]) {
        tree.children[static_cast<size_t>(top[x])].push_back(child);
      }
    } else {
      tree.children[static_cast<size_t>(top[x])].push_back(top[y]);
    }
    level[x] = probe.leaves;
    cluster[y] = static_cast<int>(x);
    tree.root = top[x];
  }
  return finished(std::move(tree), prober);
}

std::string SummationTree::text() const {
  if (leaves == 0) return "";
  std::vector<int> least(children.size());
  std::vector<int> order{root};
  for (size_t k = 0; k < order.size(); ++k) {
    for (const int child : children[static_cast<size_t>(order[k])]) order.push_back(child);
  }
  for (size_t k = order.size(); k-- > 0;) {
    const auto node = static_cast<size_t>(order[k]);
    least[node] = order[k];
    if (is_leaf(order[k])) continue;
    least[node] = leaves;
    for (const int child : children[node]) {
      least[node] = std::min(least[node], least[static_cast<size_t>(child)]);
    }
  }
  // Without recursion, since a chain is as deep as it has leaves: -1 closes a parenthesis.
  std::string result;
  std::vector<int> stack{root};
  while (!stack.empty()) {
    const int node = stack.back();
    stack.pop_back();
    if (node < 0) {
      result += ')';
      continue;
    }
    if (!result.empty() && result.back() != '(') result += ' ';
    if (is_leaf(node)) {
      result += std::to_string(node);
      continue;
    }
    result += '(';
    std::vector<int> sorted = children[static_cast<size_t>(node)];
    std::sort(sorted.begin(), sorted.end(), [&least](int x, int y) {
      return least[static_cast<size_t>(x)] > least[static_cast<size_t>(y)];
    });
    stack.push_back(-1);
    stack.insert(stack.end(), sorted.begin(), sorted.end());
  }
  return result;
}

}  // namespace halfscope
