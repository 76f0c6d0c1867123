// SPDX-License-Identifier: MIT
#include "core/onnx/module_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// "layer_normalization" of "LayerNormalization".
std::string in_snake_case(const std::string& op) {
  std::string text;
  for (size_t i = 0; i < op.size(); ++i) {
    const auto c = static_cast<unsigned char>(op[i]);
    const bool begins =
        std::isupper(c) != 0 && i > 0 && std::islower(static_cast<unsigned char>(op[i - 1])) != 0;
    if (begins && op != "MatMul") text += '_';
    text += static_cast<char>(std::tolower(c));
  }
  return text;
}

/// Returns the rank of a node in its module: the nodes with the smallest number represent it.
int rank_of(const Graph& graph, const Node& node) {
  constexpr std::array<std::string_view, 8> kMain{"LayerNormalization",
                                                  "RMSNormalization",
                                                  "BatchNormalization",
                                                  "InstanceNormalization",
                                                  "GroupNormalization",
                                                  "Attention",
                                                  "Gelu",
                                                  "Swish"};
  const bool weighs = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    return input != kNone && graph.variable_of(input) != nullptr;
  });
  if (find_op(node.op).sums_products()) return 0;
  if (std::find(kMain.begin(), kMain.end(), node.op) != kMain.end()) return 1;
  return weighs ? 2 : 3;
}

/// The module that both are in.
std::string common_module(const std::string& a, const std::string& b) {
  size_t end = 0;
  for (size_t i = 0;; ++i) {
    const bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) return a.substr(0, end);
  }
}

class Namer {
 public:
  Namer(Model& model, const ModuleOfPath& modules) : graph_(model.graph), model_(model) {
    if (modules.empty()) return;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      for (ValueId input : graph_.node(id).inputs) readers_[input].push_back(id);
    }
    std::vector<std::optional<std::string>> module_of(graph_.nodes().size());
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const auto found = find(modules, graph_.node(id).path);
      if (!found) continue;
      module_of[static_cast<size_t>(id)] = found->second;
      members_[found->second].push_back({id, found->first});
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (module_of[static_cast<size_t>(id)]) continue;
      const auto module = module_around(id, module_of);
      if (module) {
        members_[*module].push_back({id, graph_.node(id).path});
      } else {
        taken_.insert(graph_.node(id).path);
      }
    }
    for (auto& [module, members] : members_) {
      std::sort(members.begin(), members.end(),
                [](const Member& a, const Member& b) { return a.id < b.id; });
    }
  }

  void run() {
    for (const auto& [module, members] : members_) mark_main(module, members);
    std::map<std::string, std::string> names;  // of the nodes of the file
    for (const auto& [module, members] : members_) {
      for (const Member& member : members) {
        const std::string& file = member.path;
        if (names.contains(file)) continue;
        const bool main = main_.contains(file);
        names[file] = free(main ? module : part_name(module, members, file), main ? ":call" : "");
      }
    }
    for (const auto& [module, members] : members_) {
      for (const Member& member : members) {
        Node& node = graph_.node(member.id);
        node.alias = node.path;
        node.path = names.at(member.path) + node.path.substr(member.path.size());
        renamed_[node.alias] = node.path;
      }
    }
    rename_variables();
  }

 private:
  struct Member {
    NodeId id;
    std::string path;  ///< of the node in the file, which may have become several
  };

  /// The node of the file that a path belongs to, and its module.
  static std::optional<std::pair<std::string, std::string>> find(const ModuleOfPath& modules,
                                                                 std::string path) {
    while (true) {
      if (const auto found = modules.find(path); found != modules.end())
        return std::pair{found->first, found->second};
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || slash == 0) return std::nullopt;
      path.resize(slash);
    }
  }

  /// Returns the module of a node that an exporter made without a name: the one that contains both
  /// its operands and its readers. Returns nothing if one of the two is unknown.
  std::optional<std::string> module_around(
      NodeId id, const std::vector<std::optional<std::string>>& module_of) const {
    std::optional<std::string> before, after;
    const auto add = [&](std::optional<std::string>& to, NodeId from) {
      const std::optional<std::string>& module = module_of[static_cast<size_t>(from)];
      if (module) to = to ? common_module(*to, *module) : *module;
    };
    const Node& node = graph_.node(id);
    for (ValueId input : node.inputs) {
      if (input != kNone && graph_.value(input).producer != kNone)
        add(before, graph_.value(input).producer);
    }
    for (ValueId output : node.outputs) {
      const auto found = readers_.find(output);
      if (found == readers_.end()) continue;
      for (NodeId reader : found->second) add(after, reader);
    }
    if (!before || !after) return std::nullopt;
    return common_module(*before, *after);
  }

  bool has_modules(const std::string& module) const {
    if (module.empty()) return true;
    const auto next = members_.lower_bound(module + ".");
    return next != members_.end() && next->first.starts_with(module + ".");
  }

  /// Nodes that have the module's own name: one, or one for each of its calls.
  void mark_main(const std::string& module, const std::vector<Member>& members) {
    if (has_modules(module)) return;
    int best = 3;
    for (const Member& member : members)
      best = std::min(best, rank_of(graph_, graph_.node(member.id)));
    std::vector<const Member*> candidates;
    for (const Member& member : members) {
      if (rank_of(graph_, graph_.node(member.id)) == best) candidates.push_back(&member);
    }
    const Node& first = graph_.node(candidates.front()->id);
    const bool calls = std::all_of(candidates.begin(), candidates.end(), [&](const Member* each) {
      const Node& node = graph_.node(each->id);
      return node.op == first.op && variables_of(node) == variables_of(first);
    });
    // Without weights, the same operator several times may as well be one call.
    const bool sure = best < 3 || candidates.size() == members.size();
    if (calls && sure) {
      for (const Member* each : candidates) main_.insert(each->path);
    } else {
      // The first that computes with weights; of others the last, which makes the result.
      main_.insert((best < 3 ? candidates.front() : candidates.back())->path);
    }
  }

  std::vector<ValueId> variables_of(const Node& node) const {
    std::vector<ValueId> variables;
    for (ValueId input : node.inputs) {
      if (input != kNone && graph_.variable_of(input) != nullptr) variables.push_back(input);
    }
    return variables;
  }

  std::string part_name(const std::string& module, const std::vector<Member>& members,
                        const std::string& file) const {
    const Node* last = nullptr;  // of those that the node of the file became
    for (const Member& member : members) {
      if (member.path == file) last = &graph_.node(member.id);
    }
    std::string part = in_snake_case(last->op);
    if (last->op == "Add" && adds_bias(*last)) part = "bias";
    return module.empty() ? part : module + ":" + part;
  }

  bool adds_bias(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const Variable* variable = graph_.variable_of(input);
      return variable != nullptr && variable->path.ends_with(".bias");
    });
  }

  /// `wanted`, or with the first free number behind it and `mark`.
  std::string free(const std::string& wanted, const std::string& mark) {
    std::string name = wanted;
    for (int n = 2; !taken_.insert(name).second; ++n)
      name = wanted + mark + "_" + std::to_string(n);
    return name;
  }

  /// Variables that are called by a node that now has another name.
  void rename_variables() {
    std::set<std::string> paths;
    for (const Variable& variable : graph_.variables()) paths.insert(variable.path);
    for (Variable& variable : graph_.variables()) {
      const size_t dot = variable.path.rfind('.');
      if (dot == std::string::npos) continue;
      const auto found = renamed_.find(variable.path.substr(0, dot));
      if (found == renamed_.end()) continue;
      std::string path = found->second;
      // A variable that a part of a module reads belongs to the module.
      if (const size_t part = path.find(':'); part != std::string::npos) path.resize(part);
      path += variable.path.substr(dot);
      if (!paths.insert(path).second) path = found->second + variable.path.substr(dot);
      if (path == variable.path) continue;
      paths.insert(path);
      auto start = model_.initial.extract(variable.path);
      if (!start.empty()) {
        start.key() = path;
        model_.initial.insert(std::move(start));
      }
      variable.path = path;
    }
  }

  Graph& graph_;
  Model& model_;
  std::map<ValueId, std::vector<NodeId>> readers_;
  std::map<std::string, std::vector<Member>> members_;  ///< by module
  std::set<std::string> main_;                          ///< nodes of the file
  std::set<std::string> taken_;
  std::map<std::string, std::string> renamed_;
};

}  // namespace

void name_by_module(Model& model, const ModuleOfPath& modules) { Namer(model, modules).run(); }

}  // namespace halfscope::onnx_files
