// SPDX-License-Identifier: MIT
// Operators that the painter treats specially, as auto_mixed_precision.cc and op_types.cc of
// TensorFlow name them. For the sources of this folder.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {

template <size_t N>
inline bool is_one_of(std::string_view op, const std::array<std::string_view, N>& ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

inline bool reads_list(std::string_view op) {
  return is_one_of(op, std::to_array<std::string_view>({"TensorListConcat", "TensorListConcatV2",
                                                        "TensorListGather", "TensorListGetItem",
                                                        "TensorListPopBack", "TensorListStack"}));
}

inline bool writes_list(std::string_view op) {
  return is_one_of(
      op, std::to_array<std::string_view>(
              {"TensorListFromTensor", "TensorListPushBack", "TensorListPushBackBatch",
               "TensorListScatter", "TensorListScatterV2", "TensorListScatterIntoExistingList",
               "TensorListSetItem", "TensorListSplit"}));
}

/// Data can come from and go to places outside the graph.
inline bool is_source_or_sink(std::string_view op) {
  return is_one_of(op, std::to_array<std::string_view>({"_Arg", "_Retval", "OptionalFromValue",
                                                        "OptionalGetValue", "PartitionedCall",
                                                        "Placeholder", "StatefulPartitionedCall"}));
}

inline bool is_variable(std::string_view op) {
  return is_one_of(op, std::to_array<std::string_view>(
                           {"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp",
                            "ReadVariableOp", "_VarHandlesOp", "_ReadVariablesOp"}));
}

/// Types of numbers with a scale: qint8, quint8, qint32, qint16, quint16.
inline bool is_quantized(TfType type) {
  return (type >= 11 && type <= 13) || type == 15 || type == 16;
}

}  // namespace halfscope::grappler
