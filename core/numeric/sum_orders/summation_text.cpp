// SPDX-License-Identifier: MIT
// Names of summation trees, and their drawing as text. Both follow a tree along its spine: from the
// root always into the largest child, which is the accumulator of a chain.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/numeric/sum_orders/summation_shape.h"

namespace halfscope {

SummationShape::SummationShape(const SummationTree& tree)
    : tree_(tree),
      children_(tree.children),
      size_(children_.size(), 1),
      least_(children_.size(), 0),
      height_(children_.size(), 0),
      shape_(children_.size(), 0) {
  order_.push_back(tree.root);
  for (size_t k = 0; k < order_.size(); ++k) {
    const std::vector<int>& below = children_[static_cast<size_t>(order_[k])];
    order_.insert(order_.end(), below.begin(), below.end());
  }
  std::map<std::vector<int>, int> shapes;  // of sorted children, and of leaves: {}
  for (size_t k = order_.size(); k-- > 0;) {
    const auto node = static_cast<size_t>(order_[k]);
    least_[node] = order_[k];
    std::vector<int> key;
    if (!is_leaf(order_[k])) {
      size_[node] = 0;
      std::sort(children_[node].begin(), children_[node].end(), [this](int x, int y) {
        return least_[static_cast<size_t>(x)] < least_[static_cast<size_t>(y)];
      });
      for (const int child : children_[node]) {
        size_[node] += size(child);
        height_[node] = std::max(height_[node], height(child) + 1);
        key.push_back(shape(child));
      }
      least_[node] = least_[static_cast<size_t>(children_[node].front())];
    }
    shape_[node] = shapes.try_emplace(key, static_cast<int>(shapes.size())).first->second;
  }
}

bool SummationShape::all_leaves(const std::vector<int>& nodes) const {
  return std::all_of(nodes.begin(), nodes.end(), [this](int node) { return is_leaf(node); });
}

std::vector<int> SummationShape::summands(int node) const {
  std::vector<int> found, stack{node};
  while (!stack.empty()) {
    const int each = stack.back();
    stack.pop_back();
    if (is_leaf(each)) found.push_back(each);
    stack.insert(stack.end(), children(each).begin(), children(each).end());
  }
  std::sort(found.begin(), found.end());
  return found;
}

int SummationShape::spine_child(int node) const {
  int best = children(node).front();
  for (const int child : children(node)) {
    if (size(child) > size(best)) best = child;
  }
  return best;
}

std::string summand_list(const std::vector<int>& summands) {
  const auto name = [](int k) { return "x" + std::to_string(k); };
  const int first = summands.front(), last = summands.back();
  const size_t n = summands.size();
  if (n > 2 && last - first + 1 == static_cast<int>(n)) return name(first) + ".." + name(last);
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t k = 0; k < n; ++k) {
    if (n > kMost && k == kMost - 2) {
      text += " ...";
      k = n - 2;
      continue;
    }
    text += (k == 0 ? "" : " ") + name(summands[k]);
  }
  return text;
}

namespace {

using Groups = std::vector<std::vector<int>>;

bool ascending(const std::vector<int>& order) { return std::is_sorted(order.begin(), order.end()); }
bool descending(const std::vector<int>& order) {
  return std::is_sorted(order.rbegin(), order.rend());
}

/// Returns the length of the runs if the groups receive 0, 1, ... in runs of equal length, in turn;
/// otherwise 0.
int dealt_run(const Groups& groups) {
  if (groups.size() < 2) return 0;
  std::vector<std::pair<int, int>> owner;  // summand, group
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const int k : groups[g]) owner.emplace_back(k, static_cast<int>(g));
  }
  std::sort(owner.begin(), owner.end());
  size_t run = 0;
  while (run < owner.size() && owner[run].second == 0) ++run;
  if (run == 0 || run >= groups[0].size()) return 0;
  for (size_t k = 0; k < owner.size(); ++k) {
    if (owner[k].second != static_cast<int>(k / run % groups.size())) return 0;
  }
  return static_cast<int>(run);
}

std::string counted(size_t n, const std::string& what) { return std::to_string(n) + " " + what; }

/// Describes how summands are distributed: "", or ", taken in turn in runs of 2", or nothing for an
/// unknown pattern.
std::optional<std::string> arrangement(const Groups& groups) {
  std::vector<int> order;
  for (const std::vector<int>& group : groups)
    order.insert(order.end(), group.begin(), group.end());
  if (ascending(order)) return "";
  Groups reversed(groups.rbegin(), groups.rend());
  order.clear();
  for (const std::vector<int>& group : reversed) {
    order.insert(order.end(), group.begin(), group.end());
  }
  if (ascending(order)) return ", last one first";
  if (const int run = dealt_run(groups); run != 0) {
    return ", dealt out in turn in runs of " + std::to_string(run);
  }
  return std::nullopt;
}

class Describer {
 public:
  explicit Describer(const SummationTree& tree) : shape_(tree) {}

  std::string name(int node) {
    if (shape_.is_leaf(node)) return "one summand";
    for (const auto attempt :
         {&Describer::chain, &Describer::pairwise, &Describer::interleaved, &Describer::parts}) {
      if (std::optional<std::string> found = (this->*attempt)(node)) return *found;
    }
    return "irregular";
  }

 private:
  /// Names a chain of summands, or of blocks of summands that are added at once.
  std::optional<std::string> chain(int node) {
    Groups groups;  // from the root down
    for (int current = node;;) {
      std::vector<int> leaves;
      int next = -1;
      for (const int child : shape_.children(current)) {
        if (shape_.is_leaf(child)) {
          leaves.push_back(child);
        } else if (next >= 0) {
          return std::nullopt;
        } else {
          next = child;
        }
      }
      if (leaves.empty()) return std::nullopt;
      groups.push_back(leaves);
      if (next < 0) break;
      current = next;
    }
    std::reverse(groups.begin(), groups.end());
    if (groups.size() == 1) {
      const size_t n = groups[0].size();
      return n == 2 ? "one addition" : "one block of " + std::to_string(n);
    }
    const size_t block = groups[0].size();
    const bool scalar = block == 2 && std::all_of(groups.begin() + 1, groups.end(),
                                                  [](const auto& g) { return g.size() == 1; });
    if (scalar) return scalar_chain(groups);
    for (size_t g = 1; g < groups.size(); ++g) {
      const bool last = g + 1 == groups.size();
      if (groups[g].size() > block || (!last && groups[g].size() != block)) return std::nullopt;
    }
    const std::string blocks = "chain of blocks of " + std::to_string(block);
    const std::optional<std::string> pattern = arrangement(groups);
    if (!pattern) return "irregular " + blocks;
    return pattern->empty() ? "one ascending " + blocks : blocks + *pattern;
  }

  static std::string scalar_chain(const Groups& groups) {
    std::vector<int> order;
    for (const std::vector<int>& group : groups) {
      order.insert(order.end(), group.begin(), group.end());
    }
    if (ascending(order)) return "one ascending chain";
    std::swap(order[0], order[1]);  // the first two may be in either order
    if (descending(order)) return "one descending chain";
    return "one chain in irregular order";
  }

  /// Names a binary tree in which every node halves its consecutive summands.
  std::optional<std::string> pairwise(int node) {
    std::vector<int> stack{node};
    while (!stack.empty()) {
      const int current = stack.back();
      stack.pop_back();
      const std::vector<int>& below = shape_.children(current);
      if (below.empty()) continue;
      if (below.size() != 2) return std::nullopt;
      const std::vector<int> left = shape_.summands(below[0]), right = shape_.summands(below[1]);
      const int n = shape_.size(current), half = static_cast<int>(left.size());
      int power = 1;  // the largest power of two below n
      while (2 * power < n) power *= 2;
      if (left.back() > right.front()) return std::nullopt;
      if (half != n / 2 && half != n - n / 2 && half != power) return std::nullopt;
      stack.insert(stack.end(), below.begin(), below.end());
    }
    return shape_.size(node) < 4 ? std::nullopt : std::optional<std::string>("pairwise");
  }

  /// Names chains that get the summands in turn and whose sums are added as a balanced tree: at
  /// each of its nodes, summands at even and at odd places meet.
  std::optional<std::string> interleaved(int node) {
    std::vector<int> parts{node};
    for (std::vector<int> halves{node}; !halves.empty();) {
      parts = std::exchange(halves, {});
      for (const int part : parts) {
        const std::vector<int>& below = shape_.children(part);
        const bool deals = below.size() == 2 &&
                           dealt_run({shape_.summands(below[0]), shape_.summands(below[1])}) == 1;
        if (!deals) {
          halves.clear();
          break;
        }
        halves.insert(halves.end(), below.begin(), below.end());
      }
    }
    const int length = shape_.size(parts.front());
    if (parts.size() < 4 || length < 3) return std::nullopt;
    for (const int part : parts) {
      const std::string chain = within(part, shape_.summands(part));
      if (chain != "one ascending chain" && chain != "one addition") return std::nullopt;
    }
    return counted(parts.size(), "parts of " + std::to_string(length)) +
           ", dealt out in turn in runs of 1, each one ascending chain, summed as a balanced tree";
  }

  /// Names partial sums that are added one after the other, or at once.
  std::optional<std::string> parts(int node) {
    std::vector<int> found;  // from the root down
    std::string how = "summed in order";
    int part = 0, current = node;
    if (shape_.children(node).size() > 2) {
      how = "summed at once";
      found.assign(shape_.children(node).rbegin(), shape_.children(node).rend());
    } else {
      while (shape_.children(current).size() == 2 &&
             (found.empty() || shape_.size(current) > part)) {
        const int next = shape_.spine_child(current);
        const std::vector<int>& below = shape_.children(current);
        const int other = below[0] == next ? below[1] : below[0];
        found.push_back(other);
        part = std::max(part, shape_.size(other));
        current = next;
      }
      found.push_back(current);
    }
    std::optional<std::string> name = name_parts(found, how);
    if (!name && shape_.children(node).size() == 2) {
      // If the first of two parts is the longer one, it was mistaken for several parts.
      const int next = shape_.spine_child(node);
      const std::vector<int>& below = shape_.children(node);
      name = name_parts({below[0] == next ? below[1] : below[0], next}, how);
    }
    return name;
  }

  /// `found` from the root down, so the first part comes last.
  std::optional<std::string> name_parts(std::vector<int> found, const std::string& how) {
    std::reverse(found.begin(), found.end());
    const int part = shape_.size(found.front());
    Groups groups;
    for (size_t p = 0; p < found.size(); ++p) {
      const int size = shape_.size(found[p]);
      const bool last = p + 1 == found.size();
      if (size > part || (!last && size != part)) return std::nullopt;
      groups.push_back(shape_.summands(found[p]));
      if (size == part && shape_.shape(found[p]) != shape_.shape(found[0])) return std::nullopt;
    }
    const std::string inside = within(found[0], groups[0]);
    if (part < 2 || inside == "irregular") return std::nullopt;
    for (size_t p = 1; p < found.size(); ++p) {  // same shape, but different order?
      const std::string other = within(found[p], groups[p]);
      // A shorter last part may be too short for its pattern to show.
      const bool tiny =
          groups[p].size() < groups[0].size() &&
          (other == "one summand" || other == "one addition" || other.starts_with("one block of"));
      if (other != inside && !tiny) return std::nullopt;
    }
    const std::optional<std::string> pattern = arrangement(groups);
    if (!pattern) return std::nullopt;
    return counted(found.size(), "parts of " + std::to_string(part)) + *pattern + ", each " +
           inside + ", " + how;
  }

  /// Returns the name of a subtree with its summands renumbered 0, 1, ...
  std::string within(int node, const std::vector<int>& summands) {
    if (shape_.is_leaf(node)) return "one summand";
    SummationTree copy{.leaves = static_cast<int>(summands.size()), .root = 0, .children = {}};
    copy.children.resize(summands.size());
    copy.root = copy_into(copy, node, summands);
    return Describer(copy).name(copy.root);
  }

  int copy_into(SummationTree& copy, int node, const std::vector<int>& summands) const {
    std::map<int, int> renamed;
    std::vector<int> order{node};
    for (size_t k = 0; k < order.size(); ++k) {
      order.insert(order.end(), shape_.children(order[k]).begin(), shape_.children(order[k]).end());
    }
    for (size_t k = order.size(); k-- > 0;) {
      const int each = order[k];
      if (shape_.is_leaf(each)) {
        const auto at = std::lower_bound(summands.begin(), summands.end(), each);
        renamed[each] = static_cast<int>(at - summands.begin());
        continue;
      }
      std::vector<int> below;
      for (const int child : shape_.children(each)) below.push_back(renamed[child]);
      renamed[each] = static_cast<int>(copy.children.size());
      copy.children.push_back(std::move(below));
    }
    return renamed[node];
  }

  SummationShape shape_;
};

/// The drawing as lines of text: the start of a chain, then a line for every step. Steps and
/// subtrees that look like earlier ones are folded.
class TextDrawing {
 public:
  explicit TextDrawing(const SummationTree& tree) : shape_(tree) {}

  std::string draw() {
    subtree(shape_.tree().root, 0);
    return text_;
  }

 private:
  /// The subtree added to a chain at one node, and its appearance.
  struct Step {
    int node = 0;
    std::vector<int> added{};
    std::vector<int> shapes{};
  };

  void line(int indent, const std::string& what) {
    text_ += std::string(static_cast<size_t>(indent) * 2, ' ') + what + "\n";
  }

  /// Returns the child drawn as the accumulator: the first one, unless it is small next to the
  /// largest.
  int accumulator(int node) const {
    const int first = shape_.children(node).front(), largest = shape_.spine_child(node);
    return 2 * shape_.size(first) > shape_.size(largest) ? first : largest;
  }

  std::string sum_of(const std::vector<int>& leaves) const {
    if (leaves.size() != 2) return "sum of " + summand_list(leaves);
    return summand_list({leaves[0]}) + " + " + summand_list({leaves[1]});
  }

  void subtree(int node, int indent) {
    if (shape_.is_leaf(node)) return line(indent, summand_list({node}));
    std::vector<Step> steps;
    int current = node;
    while (!shape_.all_leaves(shape_.children(current))) {
      const int next = accumulator(current);
      Step step{.node = current};
      for (const int child : shape_.children(current)) {
        if (child == next) continue;
        step.added.push_back(child);
        step.shapes.push_back(shape_.shape(child));
      }
      steps.push_back(std::move(step));
      current = next;
    }
    std::reverse(steps.begin(), steps.end());
    line(indent, sum_of(shape_.children(current)));
    drawn_.insert(shape_.shape(current));
    constexpr size_t kMostAlike = 4;
    for (size_t k = 0; k < steps.size();) {
      size_t end = k;  // of the steps that look like this one
      while (end < steps.size() && steps[end].shapes == steps[k].shapes) ++end;
      for (size_t each = k; each < end; ++each) {
        if (end - k > kMostAlike && each == k + 2) {
          line(indent, "... " + std::to_string(end - each - 1) + " more like these ...");
          each = end - 1;
        }
        draw_step(steps[each], indent);
        drawn_.insert(shape_.shape(steps[each].node));
      }
      k = end;
    }
  }

  void draw_step(const Step& step, int indent) {
    if (shape_.all_leaves(step.added)) return line(indent, "+ " + summand_list(step.added));
    for (const int node : step.added) {
      const std::vector<int> summands = shape_.summands(node);
      if (shape_.is_leaf(node)) {
        line(indent, "+ " + summand_list(summands));
      } else if (shape_.all_leaves(shape_.children(node))) {
        line(indent, "+ (" + sum_of(summands) + ")");
      } else if (drawn_.contains(shape_.shape(node))) {
        line(indent, "+ (" + summand_list(summands) + " in the way shown above)");
      } else {
        line(indent, "+ (");
        subtree(node, indent + 2);
        line(indent, "  )");
      }
    }
  }

  SummationShape shape_;
  std::set<int> drawn_;
  std::string text_;
};

}  // namespace

std::string describe(const SummationTree& tree) {
  if (tree.leaves == 0) return "no summands";
  return Describer(tree).name(tree.root);
}

std::string draw_text(const SummationTree& tree) {
  return tree.leaves == 0 ? "" : TextDrawing(tree).draw();
}

}  // namespace halfscope
