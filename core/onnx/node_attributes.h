// SPDX-License-Identifier: MIT
// The attributes of a NodeProto, checked for their types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

class NodeAttributes {
 public:
  /// `what` names the node in messages; both must outlive this.
  NodeAttributes(const ::onnx::NodeProto& node, const std::string& what)
      : node_(node), what_(what) {}

  bool has(const char* name) const { return find(name) != nullptr; }
  /// Return the attribute, or the fallback if it is missing. Throw Error if it has another type.
  int64_t integer(const char* name, int64_t fallback) const;
  double real(const char* name, double fallback) const;
  std::string text(const char* name, const std::string& fallback) const;
  std::vector<std::string> texts(const char* name) const;  ///< empty if missing
  std::optional<std::vector<int64_t>> ints(const char* name) const;
  std::vector<int64_t> ints(const char* name, const std::vector<int64_t>& fallback) const;
  std::optional<std::vector<float>> reals(const char* name) const;
  const ::onnx::TensorProto* tensor(const char* name) const;  ///< null if missing
  const ::onnx::GraphProto* graph(const char* name) const;    ///< null if missing

 private:
  const ::onnx::AttributeProto* find(const char* name) const;
  const ::onnx::AttributeProto* find(const char* name, ::onnx::AttributeProto::AttributeType type,
                                     const char* type_text) const;

  const ::onnx::NodeProto& node_;
  const std::string& what_;
};

}  // namespace halfscope::onnx_files
