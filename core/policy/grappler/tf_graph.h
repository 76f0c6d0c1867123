// SPDX-License-Identifier: MIT
// A TensorFlow graph as the automatic mixed precision pass sees it: operators, devices, types and
// edges, without tensors. tf_graph_def.h reads one from a file, training_graph.h makes one from a
// network of ours.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halfscope::grappler {

/// TensorFlow's numbers of element types (tensorflow/core/framework/types.proto). 0 is invalid.
using TfType = int;
inline constexpr TfType kTfFloat = 1, kTfInt32 = 3, kTfBool = 10, kTfBfloat16 = 14, kTfHalf = 19,
                        kTfVariant = 21;

/// Returns "float", "half", "bfloat16", "int32" ...; "type 99" for unknown numbers.
std::string tf_type_name(TfType type);

/// A set of types below 64.
using TfTypeSet = uint64_t;
inline constexpr TfTypeSet tf_type_bit(TfType type) noexcept {
  return type > 0 && type < 64 ? TfTypeSet{1} << static_cast<unsigned>(type) : 0;
}

/// An attribute's value, as far as types depend on it.
struct TfAttr {
  TfType type = 0;              ///< of an attribute "type"
  std::vector<TfType> types{};  ///< of an attribute "list(type)"
  int64_t i = 0;
  bool b = false;
};

struct TfNode {
  std::string name;
  std::string op;
  std::string device{};               ///< "" or "/job:worker/device:GPU:0", "/GPU:0" ...
  std::vector<std::string> inputs{};  ///< "node", "node:1" or, at the end, "^node" (control)
  std::map<std::string, TfAttr, std::less<>> attrs{};
};

/// One operand or result of an operator.
struct TfArgument {
  std::string attr{};    ///< the attribute with its type or, for lists, its types; "" if fixed
  std::string number{};  ///< the attribute with the number of repetitions
  bool list = false;
  TfType fixed = 0;
};

struct TfTypeAttr {
  std::string name;
  bool list = false;
  TfTypeSet allowed = 0;  ///< 0: all types
  TfType usual = 0;       ///< the default; 0 if there is none
};

/// The types that one kernel accepts, by attribute. No attributes: everything.
using TfKernel = std::vector<std::pair<std::string, TfTypeSet>>;

struct TfOp {
  std::string name;
  bool stateful = false;
  bool has_refs = false;     ///< an operand or result is a reference
  bool is_function = false;  ///< from the graph's function library
  std::vector<TfArgument> inputs{}, outputs{};
  std::vector<TfTypeAttr> attrs{};
  std::vector<TfKernel> gpu{}, cpu{};

  const TfTypeAttr* attr(std::string_view attr_name) const;
};

/// Returns an operator of TensorFlow 2.21, or nullptr. Its kernels are those of the official build
/// for Linux with CUDA.
const TfOp* find_tf_op(std::string_view name);

struct TfGraph {
  std::vector<TfNode> nodes{};
  std::map<std::string, TfOp, std::less<>> functions{};  ///< signatures
  size_t function_nodes = 0;  ///< nodes in the bodies of the functions; they are not in `nodes`
  std::string about{};        ///< what the file was: "GraphDef", "SavedModel"
};

}  // namespace halfscope::grappler
