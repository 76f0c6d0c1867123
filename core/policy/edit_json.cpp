// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "core/policy/policy.h"

namespace halfscope {

std::string edit_to_json(const PlanEdit& edit) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Change& change : edit.changes) {
    nlohmann::ordered_json item{{"kind", fix_name(change.kind)}};
    if (!change.path.empty()) item["path"] = change.path;
    if (change.value != 0.0) item["value"] = change.value;
    if (!change.text.empty()) item["text"] = change.text;
    if (!change.nodes.empty()) item["nodes"] = change.nodes;
    list.push_back(std::move(item));
  }
  return list.dump();
}

std::optional<PlanEdit> edit_from_json(std::string_view text) {
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return std::nullopt;
  PlanEdit edit;
  const auto text_of = [](const nlohmann::json& item, const char* key) {
    const auto found = item.find(key);
    return found != item.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const nlohmann::json& item : list) {
    if (!item.is_object()) return std::nullopt;
    const std::optional<FixKind> kind = parse_fix(text_of(item, "kind"));
    if (!kind) return std::nullopt;
    const auto value = item.find("value");
    std::vector<std::string> nodes;
    if (const auto found = item.find("nodes"); found != item.end()) {
      if (!found->is_array()) return std::nullopt;
      for (const nlohmann::json& node : *found) {
        if (!node.is_string()) return std::nullopt;
        nodes.push_back(node.get<std::string>());
      }
    }
    edit.add(Change{.kind = *kind,
                    .path = text_of(item, "path"),
                    .value = value != item.end() && value->is_number() ? value->get<double>() : 0.0,
                    .text = text_of(item, "text"),
                    .nodes = std::move(nodes)});
  }
  return edit;
}

}  // namespace halfscope
