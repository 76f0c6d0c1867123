// SPDX-License-Identifier: MIT
#include "core/onnx/import.h"

#include <optional>
#include <utility>

#include "core/error.h"
#include "core/onnx/batch_axis.h"
#include "core/onnx/importer.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/model_file.h"

namespace halfscope {

OnnxImport parse_onnx(std::span<const uint8_t> bytes, const std::string& name,
                      const std::filesystem::path& folder, const ImportOptions& options) {
  const ::onnx::ModelProto file = onnx_files::parse_model(bytes, name);
  onnx_files::Importer importer(file, name, folder, options, true);
  std::optional<OnnxImport> many;
  try {
    many = importer.run();
  } catch (const Error&) {
    if (!importer.batch_replaced() || importer.too_large()) throw;
  }
  if (many && !importer.batch_replaced()) return std::move(*many);
  OnnxImport one = onnx_files::Importer(file, name, folder, options, false).run();
  if (many && onnx_files::samples_stay_apart(one.model, many->model)) return std::move(*many);
  one.notes.emplace_back("the file takes one sample at a time, and its nodes depend on that");
  return one;
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
  return parse_onnx(onnx_files::read_model_bytes(file), file.string(), file.parent_path(), options);
}

}  // namespace halfscope
