// SPDX-License-Identifier: MIT
#include "cli/terminal/network_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "analysis/rules/text.h"
#include "cli/terminal/lane_summary.h"
#include "core/number_text.h"

namespace halfscope {
namespace {

int64_t elements_of(const NetworkSummary& summary) {
  int64_t count = 0;
  for (const ImportParameter& each : summary.parameters) count += element_count(each.shape);
  return count;
}

/// Layers that read a parameter, without the parts of a module and repeated calls.
std::vector<std::string> layers_of(const ImportParameter& parameter) {
  std::vector<std::string> layers;
  for (const std::string& reader : parameter.readers) {
    std::string layer = reader.substr(0, reader.find(':'));
    if (std::find(layers.begin(), layers.end(), layer) == layers.end())
      layers.push_back(std::move(layer));
  }
  return layers;
}

std::vector<const ImportParameter*> tied(const NetworkSummary& summary) {
  std::vector<const ImportParameter*> list;
  for (const ImportParameter& each : summary.parameters) {
    if (layers_of(each).size() > 1) list.push_back(&each);
  }
  return list;
}

/// Frozen weights, masks and tables; scalars are settings, such as an epsilon.
int64_t constant_elements(const Graph& graph) {
  std::set<ValueId> read;
  for (const Node& node : graph.nodes()) read.insert(node.inputs.begin(), node.inputs.end());
  int64_t count = 0;
  for (const Constant& each : graph.constants()) {
    const int64_t elements = element_count(graph.value(each.value).shape);
    const bool real = graph.value(each.value).type == ElementType::real;
    if (real && elements > 1 && read.contains(each.value)) count += elements;
  }
  return count;
}

std::string batch_text(const NetworkSummary& summary) {
  if (!summary.open_batch.empty()) return "takes any number of samples at once";
  return summary.batch == 1 ? "takes 1 sample at once"
                            : fmt::format("takes {} samples at once", summary.batch);
}

std::string tied_text(const ImportParameter& parameter) {
  return fmt::format("tied: {} is read by {}", parameter.name,
                     fmt::join(layers_of(parameter), " and "));
}

Json batch_json(const NetworkSummary& summary) {
  return {{"samples", summary.batch}, {"open", !summary.open_batch.empty()}};
}

Json doubts_json(const NetworkSummary& summary) {
  Json doubts = Json::array();
  for (const ImportDoubt& each : summary.doubts)
    doubts.push_back({{"name", each.name}, {"why", each.why}});
  return doubts;
}

}  // namespace

NetworkSummary summary_of(const OnnxImport& import, const std::string& file, int64_t batch) {
  return {.file = file,
          .parameters = import.parameters,
          .constants = import.constants,
          .doubts = import.doubts,
          .notes = import.notes,
          .batch = batch,
          .open_batch = import.open_batch,
          .constant_elements = constant_elements(import.model.graph)};
}

std::string summary_text(const NetworkSummary& summary) {
  std::string text = fmt::format("{}: trains {} ({} numbers)", summary.file,
                                 counted(std::ssize(summary.parameters), "parameter"),
                                 grouped(elements_of(summary)));
  if (!summary.constants.empty())
    text += ", keeps " + counted(std::ssize(summary.constants), "tensor") + " constant";
  else if (summary.constant_elements > 0)  // frozen, and nothing in the file to say more of
    text += ", reads " + grouped(summary.constant_elements) + " constant numbers";
  text += ", " + batch_text(summary);
  if (!summary.doubts.empty())
    text += "; " + counted(std::ssize(summary.doubts), "point") +
            (summary.doubts.size() == 1 ? " is doubtful" : " are doubtful");
  text += ".\n";
  for (const ImportParameter* each : tied(summary)) text += "  " + tied_text(*each) + "\n";
  return text;
}

Json summary_json(const NetworkSummary& summary) {
  Json shared = Json::array();
  for (const ImportParameter* each : tied(summary))
    shared.push_back({{"name", each->name}, {"layers", layers_of(*each)}});
  return {{"file", summary.file},
          {"parameters", summary.parameters.size()},
          {"elements", elements_of(summary)},
          {"tied", shared},
          {"constants", summary.constants.size()},
          {"doubtful", doubts_json(summary)},
          {"batch", batch_json(summary)}};
}

std::string listing_text(const NetworkSummary& summary) {
  std::string text = summary_text(summary);
  std::vector<std::vector<std::string>> rows{{"trains", "shape", "numbers", "in the file"}};
  for (const ImportParameter& each : summary.parameters) {
    rows.push_back({each.name, to_string(each.shape), grouped(element_count(each.shape)),
                    each.file_name == each.name ? "" : each.file_name});
  }
  if (rows.size() > 1) text += "\n" + aligned(rows, {false, false, true, false});
  rows = {{"stays constant", "shape", "because it is"}};
  for (const ImportConstant& each : summary.constants)
    rows.push_back({each.name, to_string(each.shape), each.why});
  if (rows.size() > 1) text += "\n" + aligned(rows, {false, false, false});
  if (!summary.doubts.empty()) text += "\ndoubtful\n";
  for (const ImportDoubt& each : summary.doubts) text += "  " + each.name + ": " + each.why + "\n";
  if (!summary.doubts.empty()) text += std::string("  hint: ") + kDoubtHint + "\n";
  if (!summary.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : summary.notes) text += "  " + note + "\n";
  return text;
}

Json listing_json(const NetworkSummary& summary) {
  Json parameters = Json::array(), constants = Json::array();
  for (const ImportParameter& each : summary.parameters) {
    parameters.push_back({{"name", each.name},
                          {"file_name", each.file_name},
                          {"shape", each.shape},
                          {"elements", element_count(each.shape)},
                          {"layers", layers_of(each)}});
  }
  for (const ImportConstant& each : summary.constants)
    constants.push_back({{"name", each.name}, {"shape", each.shape}, {"why", each.why}});
  return {
      {"file", summary.file},   {"elements", elements_of(summary)}, {"parameters", parameters},
      {"constants", constants}, {"doubtful", doubts_json(summary)}, {"batch", batch_json(summary)},
      {"notes", summary.notes}};
}

}  // namespace halfscope
