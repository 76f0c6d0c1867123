// SPDX-License-Identifier: MIT
#include "core/onnx/import.h"

#include <set>
#include <utility>

#include "core/onnx/importer.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/model_file.h"
#include "core/onnx/node_order.h"
#include "core/onnx/tensor_proto.h"

namespace halfscope {
namespace {

/// Collects the external files of all tensors, also of those in attributes and inner graphs.
struct ExternalFiles {
  std::filesystem::path model;
  std::set<std::filesystem::path> files{};

  void add(const ::onnx::TensorProto& tensor) {
    const std::string what = model.string() + ": " + onnx_files::printable(tensor.name());
    if (auto file = onnx_files::external_file(tensor, model.parent_path(), what))
      files.insert(std::move(*file));
  }
  void add(const ::onnx::SparseTensorProto& tensor) {
    add(tensor.values());
    add(tensor.indices());
  }
  void add(const ::onnx::NodeProto& node) {
    for (const ::onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_t()) add(attribute.t());
      if (attribute.has_sparse_tensor()) add(attribute.sparse_tensor());
      if (attribute.has_g()) add(attribute.g());
      add_all(attribute.tensors());
      add_all(attribute.sparse_tensors());
      add_all(attribute.graphs());
    }
  }
  void add(const ::onnx::GraphProto& graph) {
    add_all(graph.initializer());
    add_all(graph.sparse_initializer());
    add_all(graph.node());
  }
  template <typename Messages>
  void add_all(const Messages& messages) {
    for (const auto& each : messages) add(each);
  }
};

}  // namespace

OnnxImport parse_onnx(std::span<const uint8_t> bytes, const std::string& name,
                      const std::filesystem::path& folder, const ImportOptions& options) {
  ::onnx::ModelProto file = onnx_files::parse_model(bytes, name);
  return onnx_files::Importer(file, name, folder, options).run();
}

std::map<std::string, std::string> onnx_input_types(std::span<const uint8_t> bytes,
                                                    const std::string& name) {
  const ::onnx::ModelProto file = onnx_files::parse_model(bytes, name);
  std::map<std::string, std::string> types;
  for (const ::onnx::ValueInfoProto& input : file.graph().input()) {
    const int32_t type = input.type().tensor_type().elem_type();
    types[input.name()] = onnx_files::type_name(static_cast<onnx_files::DataType>(type));
  }
  return types;
}

std::vector<std::filesystem::path> external_files(const std::filesystem::path& file) {
  const ::onnx::ModelProto model = onnx_files::read_model(file);
  ExternalFiles external{file};
  external.add(model.graph());
  for (const ::onnx::FunctionProto& function : model.functions()) external.add_all(function.node());
  return {external.files.begin(), external.files.end()};
}

OnnxImport read_onnx(const std::filesystem::path& file, const ImportOptions& options) {
  ::onnx::ModelProto model = onnx_files::read_model(file);
  return onnx_files::Importer(model, file.string(), file.parent_path(), options).run();
}

}  // namespace halfscope
