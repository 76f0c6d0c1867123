// SPDX-License-Identifier: MIT
#include "core/onnx/import.h"

#include "core/onnx/importer.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/model_file.h"

namespace halfscope {

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

OnnxImport read_onnx(const std::filesystem::path& file, const ImportOptions& options) {
  ::onnx::ModelProto model = onnx_files::read_model(file);
  return onnx_files::Importer(model, file.string(), file.parent_path(), options).run();
}

}  // namespace halfscope
