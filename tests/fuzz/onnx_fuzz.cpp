// SPDX-License-Identifier: MIT
// Reads arbitrary bytes as an ONNX file. They must give a network or an Error. A network is also
// exported and imported again.
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "core/onnx/export.h"
#include "core/onnx/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfscope;
  try {
    const ImportOptions options{.batch = size % 2 == 0 ? 0 : 3, .dimensions = {{"n", 2}}};
    // No external data is ever found here.
    const OnnxImport import = parse_onnx({data, size}, "fuzz.onnx", "/nonexistent", options);
    const std::string bytes = onnx_bytes(import.model, import.model.initial);
    parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again.onnx",
               "/nonexistent");
  } catch (const Error&) {
  }
  return 0;
}
