// SPDX-License-Identifier: MIT
#include "analysis/spectrum/groups.h"

#include <algorithm>
#include <memory>
#include <string_view>

namespace halfscope {
namespace {

struct Group {
  std::string name{};  ///< the whole path so far
  std::vector<int> layers{};
  std::vector<Group> children{};
};

/// Puts layers that share their next path segment under one node. Members of a group stay where its
/// first one is.
void split(Group& node, std::span<const std::string> paths, size_t from) {
  std::vector<Group> children;
  for (const int layer : node.layers) {
    const std::string& path = paths[static_cast<size_t>(layer)];
    // A leading separator belongs to the first segment.
    const size_t begin = std::min(path.find_first_not_of("/.", from), path.size());
    const size_t end = std::min(path.find_first_of("/.", begin), path.size());
    const std::string name = path.substr(0, end);
    const auto found = std::find_if(children.begin(), children.end(),
                                    [&](const Group& each) { return each.name == name; });
    if (found == children.end()) {
      children.push_back({.name = name, .layers = {layer}});
    } else {
      found->layers.push_back(layer);
    }
  }
  for (Group& child : children) {
    if (child.layers.size() == 1) {
      child.name = paths[static_cast<size_t>(child.layers[0])];
      continue;
    }
    split(child, paths, child.name.size());
    // A group that only contains a group is the inner one.
    if (child.children.size() == 1) child = Group(std::move(child.children[0]));
  }
  node.children = std::move(children);
}

bool is_in(std::span<const std::string> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Folder {
  std::span<const std::string> opened, closed;

  void add_rows(const Group& node, const std::vector<std::string>& groups, int levels,
                std::vector<LayerRow>& rows) const {
    for (const Group& child : node.children) {
      const bool leaf = child.children.empty();
      const bool open = is_in(opened, child.name) || (levels > 0 && !is_in(closed, child.name));
      if (leaf || !open) {
        rows.push_back({child.name, child.layers, !leaf, groups});
        continue;
      }
      std::vector<std::string> inner = groups;
      inner.push_back(child.name);
      add_rows(child, inner, levels - 1, rows);
    }
  }
};

int depth_of(const Group& node) {
  int depth = 0;
  for (const Group& child : node.children) depth = std::max(depth, 1 + depth_of(child));
  return depth;
}

/// Folds neighbouring rows, layers and groups alike, into stretches of `length`.
std::vector<LayerRow> in_stretches(std::vector<LayerRow> rows, size_t length,
                                   std::span<const std::string> opened) {
  std::vector<LayerRow> folded;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    while (end < rows.size() && end < begin + length && rows[end].groups == rows[begin].groups) {
      ++end;
    }
    if (end < begin + 2) {
      folded.push_back(std::move(rows[begin++]));
      continue;
    }
    LayerRow stretch{.name = rows[begin].name + " to " + rows[end - 1].name,
                     .folded = true,
                     .groups = rows[begin].groups};
    if (is_in(opened, stretch.name)) {
      for (size_t i = begin; i < end; ++i) {
        rows[i].groups.push_back(stretch.name);
        folded.push_back(std::move(rows[i]));
      }
    } else {
      for (size_t i = begin; i < end; ++i) {
        stretch.layers.insert(stretch.layers.end(), rows[i].layers.begin(), rows[i].layers.end());
      }
      folded.push_back(std::move(stretch));
    }
    begin = end;
  }
  return folded;
}

}  // namespace

std::vector<LayerRow> fold_layers(std::span<const std::string> paths, size_t most,
                                  std::span<const std::string> opened,
                                  std::span<const std::string> closed) {
  Group root;
  for (size_t i = 0; i < paths.size(); ++i) root.layers.push_back(static_cast<int>(i));
  split(root, paths, 0);
  const size_t limit = std::max<size_t>(most, 1);
  // The depth that fits is decided without the user's choices, so that opening a group closes no
  // other.
  int levels = 0;
  const auto rows_at = [&](int level, const Folder& folder) {
    std::vector<LayerRow> rows;
    folder.add_rows(root, {}, level, rows);
    return rows;
  };
  const int deepest = depth_of(root);
  while (levels < deepest && rows_at(levels + 1, {{}, {}}).size() <= limit) ++levels;
  const size_t count = rows_at(levels, {{}, {}}).size();
  std::vector<LayerRow> rows = rows_at(levels, {opened, closed});
  if (count <= limit) return rows;
  return in_stretches(std::move(rows), (count + limit - 1) / limit, opened);
}

}  // namespace halfscope
