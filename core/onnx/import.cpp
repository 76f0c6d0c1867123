// SPDX-License-Identifier: MIT
#include "core/onnx/import.h"

#include "core/error.h"
#include "core/onnx/importer.h"
#include "core/onnx/model_file.h"

namespace halfscope {

OnnxImport parse_onnx(std::span<const uint8_t> bytes, const std::string& name,
                      const std::filesystem::path& folder, const ImportOptions& options) {
  const ::onnx::ModelProto file = onnx_files::parse_model(bytes, name);
  onnx_files::Importer importer(file, name, folder, options, true);
  try {
    return importer.run();
  } catch (const Error&) {
    if (!importer.batch_replaced()) throw;
  }
  return onnx_files::Importer(file, name, folder, options, false).run();
}

OnnxImport read_onnx(const std::filesystem::path& file, const ImportOptions& options) {
  return parse_onnx(onnx_files::read_model_bytes(file), file.string(), file.parent_path(), options);
}

}  // namespace halfscope
