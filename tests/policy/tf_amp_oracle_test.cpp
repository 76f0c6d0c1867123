// SPDX-License-Identifier: MIT
// The painter of TensorFlow graphs against TensorFlow 2.21 itself: tests/policy/files/tf_amp has
// graphs and what the pass did to them, written by tf_amp.py. HALFSCOPE_TF_AMP_CASES names
// another folder of such cases.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/policy/grappler/paint.h"
#include "core/policy/grappler/tf_graph_def.h"

namespace halfscope::grappler {
namespace {

using Json = nlohmann::json;

std::filesystem::path folder() {
  const char* other = std::getenv("HALFSCOPE_TF_AMP_CASES");
  if (other != nullptr) return other;
  return std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "tests/policy/files/tf_amp";
}

Json read_cases() {
  std::ifstream in(folder() / "cases.json");
  return Json::parse(in);
}

AmpOptions options_of(const Json& item) {
  AmpOptions options;
  if (item.at("mode") == "cpu_bfloat16") {
    options.mode = AmpMode::cpu_bfloat16;
    options.compute_capability = 0;
  }
  for (const Json& name : item.at("preserve")) options.preserve.insert(name.get<std::string>());
  read_environment(options, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = item.at("env").find(name);
    if (found == item.at("env").end()) return std::nullopt;
    return found->get<std::string>();
  });
  return options;
}

std::multiset<std::string> changed_by(const TfGraph& graph, const AmpPainting& painting) {
  std::multiset<std::string> changed;
  for (const AmpPaint& paint : painting.paints) {
    if (paint.changed) changed.insert(graph.nodes[paint.node].name + ":" + paint.attr);
  }
  return changed;
}

/// A cast as one line: its name, what it reads, where it goes.
std::set<std::string> casts_of(const TfGraph& graph, const AmpPainting& painting) {
  std::set<std::string> casts;
  for (const AmpCast& cast : painting.casts) {
    std::set<std::string> readers;
    for (const auto& [node, port] : cast.readers)
      readers.insert(graph.nodes[node].name + ":" + std::to_string(port));
    std::string line = cast.name + " < " + graph.nodes[cast.node].name + ":" +
                       std::to_string(cast.port) + (cast.to_target ? " 16 >" : " 32 >");
    for (const std::string& reader : readers) line += " " + reader;
    casts.insert(line);
  }
  return casts;
}

std::set<std::string> casts_of(const Json& item) {
  std::set<std::string> casts;
  for (const auto& [name, cast] : item.at("casts").items()) {
    std::string line = name + " < " + cast.at("source").get<std::string>() +
                       (cast.at("to_f16").get<bool>() ? " 16 >" : " 32 >");
    const std::set<std::string> readers = cast.at("readers");
    for (const std::string& reader : readers) line += " " + reader;
    casts.insert(line);
  }
  return casts;
}

TEST(TfAmpOracle, PaintsEveryGraphAsTensorFlowDoes) {
  const Json cases = read_cases();
  ASSERT_FALSE(cases.empty());
  size_t painted = 0, casts = 0;
  for (const Json& item : cases) {
    SCOPED_TRACE(item.at("name").get<std::string>());
    const TfGraph graph = read_tf_graph(folder() / (item.at("graph").get<std::string>() + ".pb"));
    ASSERT_EQ(graph.nodes.size(), item.at("nodes").get<size_t>());
    if (item.contains("error")) {
      EXPECT_THROW(paint(graph, options_of(item)), Error) << item.at("error");
      continue;
    }
    const AmpPainting painting = paint(graph, options_of(item));
    EXPECT_EQ(changed_by(graph, painting), item.at("changed").get<std::multiset<std::string>>());
    EXPECT_EQ(casts_of(graph, painting), casts_of(item));
    EXPECT_EQ(painting.log, item.at("log").get<std::string>());
    EXPECT_EQ(painting.renamed_nodes, item.at("renamed").get<std::vector<std::string>>());
    painted += painting.changed;
    casts += painting.casts.size();
  }
  EXPECT_GT(painted, 100u);
  EXPECT_GT(casts, 100u);
}

TEST(TfAmpOracle, EveryFloatAttributeHasAReason) {
  for (const Json& item : read_cases()) {
    if (item.contains("error")) continue;
    SCOPED_TRACE(item.at("name").get<std::string>());
    const TfGraph graph = read_tf_graph(folder() / (item.at("graph").get<std::string>() + ".pb"));
    const AmpPainting painting = paint(graph, options_of(item));
    const AmpSummary& sum = painting.summary;
    EXPECT_LE(sum.allowed_converted, sum.converted);
    EXPECT_LE(sum.recognized, sum.processable);
    for (size_t i = 0; i < painting.paints.size(); ++i) {
      const AmpPaint& each = painting.paints[i];
      const std::string reason = reason_of(graph, painting, i);
      ASSERT_FALSE(reason.empty());
      // Reasons for paint are the first of the list, those against it the others.
      if (each.is_float) {
        EXPECT_EQ(each.changed, each.why <= AmpWhy::cast_painted)
            << graph.nodes[each.node].name << ":" << each.attr << " " << reason;
      }
    }
  }
}

/// "A=x B=y,z" by name.
std::map<std::string, std::string> variables_in(const std::string& text) {
  std::map<std::string, std::string> variables;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    variables[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return variables;
}

/// The environment that change_variables() prints has the effect, together with the one before.
TEST(TfAmpOracle, VariablesDoWhatTheySay) {
  size_t checked = 0;
  for (Json item : read_cases()) {
    if (item.contains("error")) continue;
    const TfGraph graph = read_tf_graph(folder() / (item.at("graph").get<std::string>() + ".pb"));
    if (graph.nodes.size() > 60) continue;
    SCOPED_TRACE(item.at("name").get<std::string>());
    const AmpPainting painting = paint(graph, options_of(item));
    const std::vector<AmpTrial> all = trials(graph, painting);
    for (size_t i = 0; i < painting.paints.size(); ++i) {
      if (!painting.paints[i].is_float) continue;
      const std::string text = change_variables(painting, all, i);
      Json changed = item;
      for (const auto& [name, value] : variables_in(text)) changed["env"][name] = value;
      const bool differs =
          paint(graph, options_of(changed)).paints[i].changed != painting.paints[i].changed;
      EXPECT_EQ(differs, !text.empty()) << text;
      checked += differs ? 1 : 0;
    }
  }
  EXPECT_GT(checked, 50u);
}

/// Applies what change_of() promises, and looks whether the paint changes.
TEST(TfAmpOracle, ChangesDoWhatTheySay) {
  size_t checked = 0;
  for (const Json& item : read_cases()) {
    if (item.contains("error") || item.at("env").size() > 1) continue;
    const TfGraph graph = read_tf_graph(folder() / (item.at("graph").get<std::string>() + ".pb"));
    if (graph.nodes.size() > 120) continue;
    SCOPED_TRACE(item.at("name").get<std::string>());
    const AmpPainting painting = paint(graph, options_of(item));
    const std::vector<AmpTrial> all = trials(graph, painting);
    for (size_t i = 0; i < painting.paints.size(); ++i) {
      if (!painting.paints[i].is_float) continue;
      const std::string text = change_of(painting, all, i);
      EXPECT_FALSE(text.empty());
      for (const AmpTrial& trial : all) {
        std::string start = trial.text;
        start[0] = static_cast<char>(start[0] - 'a' + 'A');
        if (!text.starts_with(start + ".") && !text.starts_with(start + ";")) continue;
        AmpOptions options = painting.options;
        options.edits.insert(options.edits.end(), trial.edits.begin(), trial.edits.end());
        EXPECT_NE(paint(graph, options).paints[i].changed, painting.paints[i].changed) << text;
        ++checked;
        break;
      }
    }
  }
  EXPECT_GT(checked, 50u);
}

}  // namespace
}  // namespace halfscope::grappler
