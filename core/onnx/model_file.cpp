// SPDX-License-Identifier: MIT
#include "core/onnx/model_file.h"

#include <fstream>
#include <limits>

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/stubs/logging.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#include "core/error.h"

namespace halfscope::onnx_files {
namespace {

constexpr int kDeepestMessage = 100;  // protobuf's own default
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
constexpr int kBytesAtOnce = 1 << 20;  // read from a file

Error too_large(const std::string& name) {
  return Error("'" + name + "' is larger than 2 GB, the limit of one ONNX file",
               "store the weights as external data in a second file");
}

}  // namespace

namespace {

/// Reads the whole stream as one model.
::onnx::ModelProto parse_stream(google::protobuf::io::CodedInputStream& in,
                                const std::string& name) {
  const google::protobuf::LogSilencer silent;  // we report errors ourselves
  ::onnx::ModelProto model;
  in.SetRecursionLimit(kDeepestMessage);
  if (!model.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) {
    throw Error("'" + name + "' is not a valid ONNX file, or it is truncated",
                "check the file, for example with onnx.checker");
  }
  if (!model.has_graph()) {
    throw Error("'" + name + "' is not a valid ONNX file: it has no graph",
                "export the network again");
  }
  return model;
}

}  // namespace

::onnx::ModelProto read_model(const std::filesystem::path& file) {
  std::error_code failed;
  if (std::filesystem::is_directory(file, failed)) {
    throw usage_error("'" + file.string() + "' is a folder", "pass the .onnx file in it");
  }
  if (std::filesystem::exists(file, failed) && !std::filesystem::is_regular_file(file, failed))
    throw usage_error("'" + file.string() + "' is not a regular file", "pass an .onnx file");
  std::ifstream in(file, std::ios::binary);
  const auto size = in ? std::filesystem::file_size(file, failed) : 0;
  if (!in || failed) {
    throw Error("cannot read '" + file.string() + "'" +
                    (std::filesystem::exists(file, failed) ? "" : ": file not found"),
                "check the path and its permissions");
  }
  if (size > static_cast<uint64_t>(kLargest)) throw too_large(file.string());
  // Parse straight from the file, so that its bytes and the model are never both in memory.
  google::protobuf::io::IstreamInputStream stream(&in, kBytesAtOnce);
  google::protobuf::io::CodedInputStream coded(&stream);
  ::onnx::ModelProto model = parse_stream(coded, file.string());
  if (in.bad()) throw Error("cannot read all of '" + file.string() + "'");
  return model;
}

::onnx::ModelProto parse_model(std::span<const uint8_t> bytes, const std::string& name) {
  if (bytes.size() > static_cast<size_t>(kLargest)) throw too_large(name);
  google::protobuf::io::CodedInputStream in(bytes.data(), static_cast<int>(bytes.size()));
  return parse_stream(in, name);
}

int64_t opset_of(const ::onnx::ModelProto& model, const std::string& name) {
  int64_t version = 0;
  for (const ::onnx::OperatorSetIdProto& opset : model.opset_import()) {
    if (opset.domain().empty() || opset.domain() == "ai.onnx") version = opset.version();
  }
  if (version == 0) throw Error("'" + name + "' does not say which operator set it uses");
  if (version < kOldestOpset || version > kNewestOpset) {
    throw Error("'" + name + "' uses operator set " + std::to_string(version) + ", but only " +
                    std::to_string(kOldestOpset) + " to " + std::to_string(kNewestOpset) +
                    " are supported",
                "export it with opset_version " + std::to_string(kNewestOpset) +
                    ", or convert it with onnx.version_converter");
  }
  return version;
}

std::string model_bytes(const ::onnx::ModelProto& model, const std::string& name) {
  if (model.ByteSizeLong() > static_cast<size_t>(kLargest)) throw too_large(name);
  std::string bytes;
  if (!model.SerializeToString(&bytes)) throw Error("'" + name + "' cannot be serialized");
  return bytes;
}

}  // namespace halfscope::onnx_files
