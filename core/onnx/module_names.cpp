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

/// What a node is to its module: those with the smallest number stand for it.
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

class Namer {
 public:
  Namer(Model& model, const ModuleOfPath& modules) : graph_(model.graph), model_(model) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const auto found = find(modules, graph_.node(id).path);
      if (!found) {
        taken_.insert(graph_.node(id).path);
        continue;
      }
      members_[found->second].push_back({id, found->first});
    }
  }

  void run() {
    for (const auto& [module, members] : members_) mark_main(module, members);
    std::map<std::string, std::string> names;  // of the nodes of the file
    for (const auto& [module, members] : members_) {
      for (const Member& member : members) {
        const std::string& file = member.path;
        if (!names.contains(file)) names[file] = free(name_of(module, members, file));
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

  bool has_modules(const std::string& module) const {
    if (module.empty()) return true;
    const auto next = members_.lower_bound(module + ".");
    return next != members_.end() && next->first.starts_with(module + ".");
  }

  /// Nodes that have the module's own name.
  void mark_main(const std::string& module, const std::vector<Member>& members) {
    if (has_modules(module)) return;
    int best = 3;
    for (const Member& member : members)
      best = std::min(best, rank_of(graph_, graph_.node(member.id)));
    const Member* main = nullptr;
    for (const Member& member : members) {
      if (rank_of(graph_, graph_.node(member.id)) != best) continue;
      // The first that computes with weights; of others the last, which makes the result.
      if (main == nullptr || best == 3) main = &member;
    }
    if (main != nullptr) main_.insert(main->path);
  }

  std::string name_of(const std::string& module, const std::vector<Member>& members,
                      const std::string& file) const {
    if (main_.contains(file)) return module;
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

  std::string free(const std::string& wanted) {
    std::string name = wanted;
    for (int n = 2; !taken_.insert(name).second; ++n) {
      const bool part =
          wanted.find(':') != std::string::npos || wanted.find('.') == std::string::npos;
      name = wanted + (part ? "_" : ":call_") + std::to_string(n);
    }
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
      // What a part of a module reads is the module's.
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
  std::map<std::string, std::vector<Member>> members_;  ///< by module
  std::set<std::string> main_;                          ///< nodes of the file
  std::set<std::string> taken_;
  std::map<std::string, std::string> renamed_;
};

}  // namespace

void name_by_module(Model& model, const ModuleOfPath& modules) { Namer(model, modules).run(); }

}  // namespace halfscope::onnx_files
