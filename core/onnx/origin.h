// SPDX-License-Identifier: MIT
// Origins that PyTorch's exporters record in a file: the module of a node, the call it was made
// for, and which tensors are parameters. Dynamo writes this as metadata
// ("pkg.torch.onnx.name_scopes" and others), TorchScript as the names of nodes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Returns the metadata of a message whose field `number` holds key-value pairs. Older classes of

std::map<std::string, std::string> metadata_of(const google::protobuf::Message& message,
                                               int number);

/// Field numbers of metadata_props (onnx.proto3, IR version 10).
inline constexpr int kNodeMetadata = 9, kValueMetadata = 4, kGraphMetadata = 16;

/// Origin of a node.
struct NodeOrigin {
  std::string module{};  ///< "layer1.0.conv2"; "" for the network itself
  /// The module as written in the file: for further calls of a module, "layer1.0.conv2_1".
  std::string module_call{};
  /// The call it was made for, unique in the network: "linear_4". Empty without metadata.
  std::string call{};
  std::string what{};                    ///< operation of the call: "linear"
  std::vector<std::string> arguments{};  ///< names that the call read: "p_layer1_weight", "relu"
  std::vector<std::string> written{};    ///< arguments as written: "%relu", "None", "0.1"
  bool reads_copy = false;               ///< its first argument is a copy, as of .contiguous()
  std::optional<int64_t> padding_row{};  ///< for calls of an embedding: -1 if it has none
  /// The call was in a region that dynamo traces apart, as for no_grad() and autocast, and the file
  /// does not say which.
  bool in_region = false;
  /// For CUDA and the CPU: TorchCast if the code casts under autocast, and whether autocast is off
  /// ("halfscope.cast.cuda", "halfscope.autocast_off", written by halfscope.save_twin).
  std::vector<int64_t> casts{}, autocast_off{};
  bool known = false;      ///< the file contains the module
  bool rewritten = false;  ///< the exporter's optimizer made it from other nodes
};

/// Reads "pkg.torch.onnx.name_scopes" and "pkg.torch.onnx.fx_node", else the node's name if it is a
/// path as TorchScript writes it ("/layer1/layer1.0/conv1/Conv").
NodeOrigin origin_of(const ::onnx::NodeProto& node);

/// Returns "layer1.0.conv1" for "/layer1/layer1.0/conv1": modules in lists and sequences repeat the
/// name of the enclosing module.
std::string module_of_scopes(std::string_view path);

/// Origins of the nodes of a graph, by node.
using Origins = std::map<const ::onnx::NodeProto*, NodeOrigin>;
/// Returns origin_of() for all nodes, with one name for a module that is called several times:
/// TorchScript names the second call of "shared" "shared_1".
Origins origins_of(const ::onnx::GraphProto& graph);

/// Returns the outputs of Identity nodes that copy an initializer, with its name. Exporters store
/// equal tensors once and write such a node for every other one.
std::map<std::string, std::string> copied_initializers(const ::onnx::GraphProto& graph);

/// Kind of a tensor according to the file.
enum class TensorKind : uint8_t { unknown, parameter, buffer, constant };

/// Dynamo's metadata about the tensors that the network reads.
struct Signature {
  struct Entry {
    TensorKind kind = TensorKind::unknown;
    std::string name;  ///< as in named_parameters(): "layer1.0.conv1.weight"
  };
  std::map<std::string, Entry> arguments{};   ///< by argument of calls: "p_layer1_0_conv1_weight"
  std::map<std::string, TensorKind> kinds{};  ///< by names as in named_parameters()
  /// Names that an initializer was computed from, by the initializer.
  std::map<std::string, std::vector<std::string>> folded_from{};

  bool empty() const { return kinds.empty(); }
  bool is_parameter(const std::string& name) const {
    const auto found = kinds.find(name);
    return found != kinds.end() && found->second == TensorKind::parameter;
  }
};
Signature signature_of(const ::onnx::GraphProto& graph);

/// Returns whether an exporter generated the name by numbering: "onnx::MatMul_12", "val_7", "362".
bool is_numbered(const std::string& name);

/// Parses "['a', 'b']"; damaged entries are left out.
std::vector<std::string> parse_python_list(std::string_view text);

}  // namespace halfscope::onnx_files
