// SPDX-License-Identifier: MIT
// Files like those of PyTorch's exporters, and the names in what is read from them.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/onnx/network_support.h"

namespace halfscope::test {

using Names = std::vector<std::string>;

inline std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(generator() % 100003) / 50000.0f - 1.0f;
  return values;
}

template <class List>
Names names_in(const List& list) {
  Names names;
  for (const auto& each : list) names.push_back(each.name);
  return names;
}
inline Names trained(const OnnxImport& import) { return names_in(import.parameters); }
inline Names doubtful(const OnnxImport& import) { return names_in(import.doubts); }
inline Names constant(const OnnxImport& import) { return names_in(import.constants); }
inline Names layers(const OnnxImport& import) {
  Names paths;
  for (const Node& node : import.model.graph.nodes()) paths.push_back(node.path);
  return paths;
}

/// Files as torch.onnx.export(dynamo=True) writes them.
class DynamoFile : public FileBuilder {
 public:
  DynamoFile() { file().set_producer_name("pytorch"); }

  void signature(const Names& parameters, const Names& buffers = {}) {
    std::string text = "\n# inputs\n";
    for (const auto* list : {&parameters, &buffers}) {
      for (const std::string& name : *list) {
        text += argument(name) + ": " + (list == &parameters ? "PARAMETER" : "BUFFER") +
                " target='" + name + "'\n";
      }
    }
    add_metadata(graph(), 16, "pkg.torch.export.ExportedProgram.graph_signature",
                 text + "x: USER_INPUT\n");
  }
  static std::string argument(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return "p_" + name;
  }
  void folded_from(const std::string& name, const std::string& list) {
    ::onnx::ValueInfoProto& info = *graph().add_value_info();
    info.set_name(name);
    add_metadata(info, 4, "pkg.onnxscript.optimizer.folded_from", list);
  }
  /// Says that the last node is of the call NUMBER of `what` in `module`, which reads `reads`.
  void call(const std::string& module, const std::string& what, const std::string& number,
            const Names& reads) {
    ::onnx::NodeProto& node = *graph().mutable_node(graph().node_size() - 1);
    std::string scopes = "[''";
    for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1))
      scopes += ", '" + module.substr(0, dot) + "'";
    if (!module.empty()) scopes += ", '" + module + "'";
    add_metadata(node, 9, "pkg.torch.onnx.name_scopes", scopes + ", '" + what + "']");
    std::string text = "%" + what + number +
                       " : [num_users=1] = call_function[target=" + "torch.ops.aten." + what +
                       ".default](args = (%x";
    for (const std::string& each : reads) text += ", %" + argument(each);
    add_metadata(node, 9, "pkg.torch.onnx.fx_node", text + "), kwargs = {})");
  }
};

/// Files as torch.onnx.export(dynamo=False) writes them.
class ScriptFile : public FileBuilder {
 public:
  ScriptFile() { file().set_producer_name("pytorch"); }
};

}  // namespace halfscope::test
