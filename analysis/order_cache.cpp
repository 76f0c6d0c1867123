// SPDX-License-Identifier: MIT
#include "analysis/order_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/output_file.h"
#include "core/error.h"
#include "core/hash.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSchema = "halfscope.kernel-order/1";
/// Our files are far smaller, so larger ones are not ours.
constexpr uintmax_t kMostBytes = uintmax_t{4} << 20;
constexpr int64_t kMostNodes = 1 << 20;

/// Returns a count or an index of nodes; -1 for anything else.
int node_of(const Json& json) {
  if (!json.is_number_integer()) return -1;
  const int64_t number = json.get<int64_t>();
  return number >= 0 && number <= kMostNodes ? static_cast<int>(number) : -1;
}

/// Returns whether every node except the root is the child of exactly one sum below the root.
bool is_tree(const SummationTree& tree) {
  const int nodes = static_cast<int>(tree.children.size());
  if (tree.leaves < 1 || nodes < tree.leaves || tree.root < 0 || tree.root >= nodes) return false;
  std::vector<bool> seen(tree.children.size(), false);
  std::vector<int> waiting{tree.root};
  seen[static_cast<size_t>(tree.root)] = true;
  size_t reached = 0;
  while (!waiting.empty()) {
    const int node = waiting.back();
    waiting.pop_back();
    ++reached;
    const std::vector<int>& children = tree.children[static_cast<size_t>(node)];
    if (tree.is_leaf(node) != children.empty() || children.size() == 1) return false;
    for (const int child : children) {
      if (child < 0 || child >= nodes || seen[static_cast<size_t>(child)]) return false;
      seen[static_cast<size_t>(child)] = true;
      waiting.push_back(child);
    }
  }
  return reached == tree.children.size();
}

}  // namespace

fs::path cache_folder() {
  if (const char* folder = std::getenv("HALFSCOPE_CACHE")) return folder;
  // Only absolute paths count: XDG Base Directory Specification.
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder == '/') {
    return fs::path(folder) / "halfscope";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".cache/halfscope";
  }
  return {};
}

std::string order_to_json(const std::string& key, const ProbedOrder& order) {
  Json json{{"schema", kSchema}, {"key", key}};
  if (order.tree) {
    const SummationTree& tree = *order.tree;
    json["leaves"] = tree.leaves;
    json["root"] = tree.root;
    json["sums"] =
        std::vector<std::vector<int>>(tree.children.begin() + tree.leaves, tree.children.end());
  } else {
    json["none"] = order.why;
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::optional<ProbedOrder> order_from_json(const std::string& text, const std::string& key) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    if (json.at("schema") != kSchema || json.at("key") != key) return std::nullopt;
    if (json.contains("none")) {
      std::string why = json["none"].get<std::string>();
      if (why.empty()) return std::nullopt;
      return ProbedOrder{.tree = {}, .why = std::move(why), .of_kernel = true};
    }
    SummationTree tree;
    tree.leaves = node_of(json.at("leaves"));
    tree.root = node_of(json.at("root"));
    tree.children.resize(static_cast<size_t>(std::max(tree.leaves, 0)));
    for (const Json& sum : json.at("sums")) {
      std::vector<int>& children = tree.children.emplace_back();
      for (const Json& child : sum) children.push_back(node_of(child));
    }
    if (!is_tree(tree)) return std::nullopt;
    return ProbedOrder{.tree = std::move(tree), .why = {}, .of_kernel = true};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

/// The file contains the key itself, in case two keys have the same hash.
fs::path OrderFiles::file(const std::string& key) const {
  return folder_ / "kernel-orders" / fmt::format("{:016x}.json", fnv1a(key));
}

std::optional<ProbedOrder> OrderFiles::find(const std::string& key) {
  if (folder_.empty()) return std::nullopt;
  std::error_code error;
  const fs::path path = file(key);
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error || bytes > kMostBytes) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  return order_from_json({std::istreambuf_iterator<char>(stream), {}}, key);
}

void OrderFiles::store(const std::string& key, const ProbedOrder& order) {
  if (folder_.empty()) return;
  const fs::path path = file(key);
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  try {
    write_output_file(path, order_to_json(key, order), true);
  } catch (const Error&) {  // the folder may not be written to, or is full
  }
}

}  // namespace halfscope
