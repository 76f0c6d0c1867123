// SPDX-License-Identifier: MIT
#include "cli/tasks/plan_graphdef.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cli/args/network.h"
#include "cli/args/tf_amp.h"
#include "cli/tasks/plan_show.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/plan/plan.h"  // glob_match
#include "core/policy/grappler/paint.h"
#include "core/policy/grappler/tf_graph_def.h"

namespace halfscope {
namespace {

using namespace grappler;

constexpr size_t kShownCasts = 12;
constexpr size_t kShownNames = 6;

/// Placeholders are fed, and what no other node reads is fetched.
std::set<std::string, std::less<>> fed_or_fetched(const TfGraph& graph) {
  std::set<std::string> read;
  for (const TfNode& node : graph.nodes) {
    for (const std::string& input : node.inputs) {
      if (input.starts_with('^')) {
        read.insert(input.substr(1));
      } else {
        read.insert(input.substr(0, input.rfind(':')));
        read.insert(input);
      }
    }
  }
  std::set<std::string, std::less<>> kept;
  for (const TfNode& node : graph.nodes) {
    if (node.op.starts_with("Placeholder") || !read.contains(node.name)) kept.insert(node.name);
  }
  return kept;
}

/// A graph with its painting.
struct Painted {
  std::string plan, file;
  TfGraph graph;
  AmpPainting painting;

  std::string list_of(const std::string& op) const {
    const std::optional<AmpList> list = painting.lists.list_of(op);
    return list ? amp_list_name(*list) : "-";
  }
  std::string type_of(const AmpPaint& paint) const {
    if (paint.changed) return painting.options.target_name();
    return paint.is_float ? "float32" : "unchanged";
  }
};

Painted painted(const std::string& plan, const std::string& file) {
  TfGraph graph = read_tf_graph(file);
  AmpOptions options = amp_options(plan);
  options.preserve = fed_or_fetched(graph);
  AmpPainting painting = paint(graph, options);
  return {plan, file, std::move(graph), std::move(painting)};
}

std::string colour_name(AmpColor color) {
  switch (color) {
    case AmpColor::allow:
      return "allow";
    case AmpColor::deny:
      return "deny";
    case AmpColor::none:
      break;
  }
  return "none";
}

Json summary_json(const AmpSummary& sum) {
  return {{"processable", sum.processable},
          {"recognized", sum.recognized},
          {"converted", sum.converted},
          {"casts", sum.casts},
          {"allowed_converted", sum.allowed_converted},
          {"blocking", sum.blocking},
          {"blocked", sum.blocked}};
}

/// The nodes with their float32 attributes; `wanted` by node.
Json nodes_json(const Painted& all, const std::vector<bool>& wanted,
                const std::vector<AmpTrial>* trials) {
  Json nodes = Json::array();
  const std::vector<AmpPaint>& paints = all.painting.paints;
  size_t i = 0;
  for (size_t index = 0; index < all.graph.nodes.size(); ++index) {
    const TfNode& node = all.graph.nodes[index];
    Json attributes = Json::array();
    for (; i < paints.size() && paints[i].node == index; ++i) {
      if (!wanted[index] || !paints[i].is_float) continue;
      Json attribute{{"name", paints[i].attr},
                     {"colour", colour_name(paints[i].color)},
                     {"type", all.type_of(paints[i])},
                     {"why", reason_of(all.graph, all.painting, i)}};
      if (trials != nullptr) {
        attribute["change"] = change_of(all.painting, *trials, i);
        attribute["variables"] = change_variables(all.painting, *trials, i);
      }
      attributes.push_back(std::move(attribute));
    }
    if (!wanted[index]) continue;
    const bool listed = all.painting.lists.list_of(node.op).has_value();
    nodes.push_back({{"name", node.name},
                     {"op", node.op},
                     {"list", listed ? Json(all.list_of(node.op)) : Json(nullptr)},
                     {"attributes", std::move(attributes)}});
  }
  return nodes;
}

Json casts_json(const Painted& all) {
  Json casts = Json::array();
  for (const AmpCast& cast : all.painting.casts) {
    Json readers = Json::array();
    for (const auto& [node, port] : cast.readers)
      readers.push_back(fmt::format("{}:{}", all.graph.nodes[node].name, port));
    casts.push_back({{"name", cast.name},
                     {"reads", fmt::format("{}:{}", all.graph.nodes[cast.node].name, cast.port)},
                     {"readers", std::move(readers)},
                     {"to", cast.to_target ? all.painting.options.target_name() : "float32"},
                     {"counted", cast.counted}});
  }
  return casts;
}

/// One row per operator with float32 types, in the order of the lists.
std::string operators_text(const Painted& all) {
  std::map<std::pair<int, std::string>, std::pair<size_t, size_t>> rows;
  for (const AmpPaint& paint : all.painting.paints) {
    if (!paint.is_float) continue;
    const std::string& op = all.graph.nodes[paint.node].op;
    const std::optional<AmpList> list = all.painting.lists.list_of(op);
    auto& [changed, stays] = rows[{list ? static_cast<int>(*list) : 4, op}];
    ++(paint.changed ? changed : stays);
  }
  std::vector<std::vector<std::string>> table{
      {"operator", "list", all.painting.options.target_name(), "float32"}};
  for (const auto& [key, counts] : rows) {
    table.push_back({key.second, all.list_of(key.second), std::to_string(counts.first),
                     std::to_string(counts.second)});
  }
  return aligned(table, {false, false, true, true});
}

std::string casts_text(const Painted& all) {
  const std::vector<AmpCast>& casts = all.painting.casts;
  size_t to_target = 0;
  for (const AmpCast& cast : casts) to_target += cast.to_target ? 1 : 0;
  std::string text = fmt::format(
      "Casts: {} to {} ({} of them not of constants and variables), {} to float32\n", to_target,
      all.painting.options.target_name(), all.painting.counted_casts, casts.size() - to_target);
  for (size_t i = 0; i < casts.size() && i < kShownCasts; ++i) text += "  " + casts[i].name + "\n";
  if (casts.size() > kShownCasts)
    text += fmt::format("  and {} more (--json lists them)\n", casts.size() - kShownCasts);
  return text;
}

std::string kept_text(const Painted& all) {
  std::string names;
  size_t shown = 0;
  const auto& kept = all.painting.options.preserve;
  for (const std::string& name : kept) {
    if (shown == kShownNames) {
      names += fmt::format(" and {} more", kept.size() - shown);
      break;
    }
    names += (shown++ == 0 ? "" : ", ") + name;
  }
  return names;
}

std::string left_out(const Painted& all) {
  if (all.graph.functions.empty()) return "";
  return fmt::format(
      "Left out: {} functions with {} nodes. TensorFlow inlines or paints function bodies "
      "separately; export a graph without functions to see them.",
      all.graph.functions.size(), all.graph.function_nodes);
}

}  // namespace

bool is_tf_graph_file(const std::string& model) {
  if (model.ends_with(".pb") || model.ends_with(".pbtxt")) return true;
  std::error_code failed;
  if (!std::filesystem::is_directory(model, failed)) return false;
  // A folder may have the name of a built-in network.
  const std::vector<std::string> words = network_words();
  return std::find(words.begin(), words.end(), model) == words.end();
}

int plan_graphdef(const std::string& plan, const std::string& file, bool json) {
  const Painted all = painted(plan, file);
  const std::vector<bool> everything(all.graph.nodes.size(), true);
  if (json) {
    Json out{{"schema", "halfscope.tf-amp/1"},
             {"version", HALFSCOPE_VERSION},
             {"plan", plan},
             {"file", file}};
    out["kind"] = all.graph.about;
    out["log"] = all.painting.log;
    out["summary"] = summary_json(all.painting.summary);
    out["preserved"] = Json::array();
    for (const std::string& name : all.painting.options.preserve) out["preserved"].push_back(name);
    out["functions_left_out"] = all.graph.functions.size();
    out["nodes"] = nodes_json(all, everything, nullptr);
    out["casts"] = casts_json(all);
    write_json(out);
    return 0;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  std::string text =
      fmt::format("{} paints {} ({}, {} nodes) for {}.\n\n", plan, file, all.graph.about,
                  all.graph.nodes.size(), all.painting.options.on_gpu() ? "a GPU" : "a CPU");
  text += operators_text(all) + "\n" + casts_text(all) + "\n";
  text += "TensorFlow logs:\n  " + all.painting.log + "\n\n";
  text += summary_text(all.painting.summary) + "\n";
  text += paragraph("Fed or fetched, so not changed: " + kept_text(all), style, 0, 2);
  if (const std::string out = left_out(all); !out.empty()) text += paragraph(out, style, 0, 2);
  text += paragraph(fmt::format("Reasons: halfscope plan explain {} NODE --model {}", plan, file),
                    style, 0, 2);
  write_out(text);
  return 0;
}

int explain_graphdef(const std::string& plan, const std::string& glob, const std::string& file,
                     bool json) {
  const Painted all = painted(plan, file);
  std::vector<bool> wanted;
  std::vector<std::string> names;
  bool any = false;
  for (const TfNode& node : all.graph.nodes) {
    wanted.push_back(glob_match(glob, node.name) || glob_match(glob, node.op));
    any |= wanted.back();
    names.push_back(node.name);
    names.push_back(node.op);
  }
  if (!any) {
    throw no_such_node(glob, file, names, "give a node's name, an operator, or a glob");
  }
  const std::vector<AmpTrial> edits = trials(all.graph, all.painting);
  if (json) {
    Json out{{"schema", "halfscope.tf-amp/1"},
             {"version", HALFSCOPE_VERSION},
             {"plan", plan},
             {"file", file}};
    out["nodes"] = nodes_json(all, wanted, &edits);
    write_json(out);
    return 0;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  std::string text;
  std::set<size_t> told;
  for (size_t i = 0; i < all.painting.paints.size(); ++i) {
    const AmpPaint& paint = all.painting.paints[i];
    if (!wanted[paint.node] || !paint.is_float) continue;
    const TfNode& node = all.graph.nodes[paint.node];
    told.insert(paint.node);
    text += fmt::format("{}{} ({}): {} {} {}.\n", text.empty() ? "" : "\n", node.name, node.op,
                        paint.attr, paint.changed ? "becomes" : "stays", all.type_of(paint));
    text += paragraph("Why: " + reason_of(all.graph, all.painting, i), style, 2, 7);
    text += paragraph("To change it: " + change_of(all.painting, edits, i), style, 2, 4);
    // On a line of its own, to be copied.
    const std::string variables = change_variables(all.painting, edits, i);
    if (!variables.empty()) text += "    " + variables + "\n";
  }
  for (size_t node = 0; node < wanted.size(); ++node) {
    if (!wanted[node] || told.contains(node)) continue;
    text += fmt::format("{}{} ({}) has no float32 type.\n", text.empty() ? "" : "\n",
                        all.graph.nodes[node].name, all.graph.nodes[node].op);
  }
  write_out(text);
  return 0;
}

}  // namespace halfscope
