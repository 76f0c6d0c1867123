// SPDX-License-Identifier: MIT
#include "core/onnx/function_attributes.h"

#include <algorithm>

#include "core/error.h"
#include "core/onnx/node_order.h"

namespace halfscope::onnx_files {

AttributeList defaults_of(const ::onnx::FunctionProto& function) {
  // FunctionProto.attribute_proto, since IR version 9. Classes that were made before keep the field
  // among those that they do not know.
  constexpr int kNumber = 11;
  AttributeList list;
  if (const auto* field = function.GetDescriptor()->FindFieldByNumber(kNumber)) {
    const google::protobuf::Reflection& reflection = *function.GetReflection();
    for (int i = 0; i < reflection.FieldSize(function, field); ++i) {
      list.emplace_back();
      list.back().CopyFrom(reflection.GetRepeatedMessage(function, field, i));
    }
    return list;
  }
  for (int i = 0; i < function.unknown_fields().field_count(); ++i) {
    const google::protobuf::UnknownField& field = function.unknown_fields().field(i);
    if (field.number() != kNumber) continue;
    list.emplace_back();
    if (field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED ||
        !list.back().ParseFromString(field.length_delimited())) {
      throw Error("function '" + printable(function.name()) + "' has a damaged attribute");
    }
  }
  return list;
}

void give_attributes(::onnx::NodeProto& node, const ::onnx::NodeProto& call,
                     const AttributeList& defaults, const std::string& what, int depth) {
  if (depth > kDeepest) throw Error(what + ": its graphs are nested too deeply");
  for (int i = node.attribute_size() - 1; i >= 0; --i) {
    ::onnx::AttributeProto& attribute = *node.mutable_attribute(i);
    for (::onnx::NodeProto& inner : *attribute.mutable_g()->mutable_node())
      give_attributes(inner, call, defaults, what, depth + 1);
    const std::string wanted = attribute.ref_attr_name(), name = attribute.name();
    if (wanted.empty()) continue;
    const auto is_wanted = [&](const auto& one) { return one.name() == wanted; };
    const auto given = std::find_if(call.attribute().begin(), call.attribute().end(), is_wanted);
    const auto other = std::find_if(defaults.begin(), defaults.end(), is_wanted);
    if (given != call.attribute().end() || other != defaults.end()) {
      const ::onnx::AttributeProto value = given != call.attribute().end() ? *given : *other;
      attribute = value;
      attribute.set_name(name);
    } else {
      node.mutable_attribute()->DeleteSubrange(i, 1);
    }
  }
}

}  // namespace halfscope::onnx_files
