// SPDX-License-Identifier: MIT
// Field numbers are those of
// tensorflow/core/framework/{graph,node_def,attr_value,op_def,function}.proto and
// tensorflow/core/protobuf/{saved_model,meta_graph}.proto.
#include "core/policy/grappler/tf_graph_def.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/policy/grappler/wire.h"

namespace halfscope::grappler {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr const char* kBinaryHint =
    "pass a binary .pb file, for example from tf.io.write_graph(..., as_text=False)";

Error not_a_graph(const std::string& name) {
  return Error("'" + name + "' is not a valid TensorFlow GraphDef, or it is truncated",
               kBinaryHint);
}

/// Returns whether the bytes are text with a message, as a GraphDef of as_text=True is. A binary
/// one has control characters: the tags of its fields.
bool is_text(Bytes bytes) {
  return std::find(bytes.begin(), bytes.end(), '{') != bytes.end() &&
         std::all_of(bytes.begin(), bytes.end(), [](uint8_t c) {
           return (c >= ' ' && c != 0x7f) || c == '\n' || c == '\r' || c == '\t';
         });
}

/// Calls visit(reader) for each field. Throws Error if the message is damaged.
template <class Visit>
void each_field(Bytes bytes, const std::string& name, const Visit& visit) {
  WireReader reader(bytes);
  while (reader.next()) visit(reader);
  if (reader.failed()) throw not_a_graph(name);
}

TfType type_of_number(uint64_t number) {
  constexpr uint64_t kRefs = 100;  // DT_FLOAT_REF is 101
  return static_cast<TfType>(number > kRefs && number < 2 * kRefs ? number - kRefs : number);
}

void add_types(const WireReader& field, std::vector<TfType>& types, const std::string& name) {
  if (field.is_number()) {
    types.push_back(type_of_number(field.number()));
    return;
  }
  if (!WireReader::packed(field.bytes(),
                          [&](uint64_t number) { types.push_back(type_of_number(number)); })) {
    throw not_a_graph(name);
  }
}

TfAttr parse_attr(Bytes bytes, const std::string& name) {
  TfAttr attr;
  each_field(bytes, name, [&](const WireReader& field) {
    if (field.field() == 3 && field.is_number()) attr.i = static_cast<int64_t>(field.number());
    if (field.field() == 5 && field.is_number()) attr.b = field.number() != 0;
    if (field.field() == 6 && field.is_number()) attr.type = type_of_number(field.number());
    if (field.field() == 1 && field.is_bytes()) {
      each_field(field.bytes(), name, [&](const WireReader& item) {
        if (item.field() == 6) add_types(item, attr.types, name);
      });
    }
  });
  return attr;
}

TfNode parse_node(Bytes bytes, const std::string& name) {
  TfNode node;
  each_field(bytes, name, [&](const WireReader& field) {
    if (!field.is_bytes()) return;
    switch (field.field()) {
      case 1:
        node.name = field.text();
        break;
      case 2:
        node.op = field.text();
        break;
      case 3:
        node.inputs.push_back(field.text());
        break;
      case 4:
        node.device = field.text();
        break;
      case 5: {
        std::string key;
        TfAttr value;
        each_field(field.bytes(), name, [&](const WireReader& entry) {
          if (entry.field() == 1 && entry.is_bytes()) key = entry.text();
          if (entry.field() == 2 && entry.is_bytes()) value = parse_attr(entry.bytes(), name);
        });
        node.attrs[key] = std::move(value);
        break;
      }
      default:
        break;
    }
  });
  return node;
}

TfArgument parse_argument(Bytes bytes, const std::string& name) {
  TfArgument argument;
  each_field(bytes, name, [&](const WireReader& field) {
    if (field.field() == 3 && field.is_number()) argument.fixed = type_of_number(field.number());
    if (!field.is_bytes()) return;
    if (field.field() == 4) argument.attr = field.text();
    if (field.field() == 5) argument.number = field.text();
    if (field.field() == 6) {
      argument.attr = field.text();
      argument.list = true;
    }
  });
  return argument;
}

TfTypeAttr parse_type_attr(Bytes bytes, const std::string& name) {
  TfTypeAttr attr;
  std::string kind;
  each_field(bytes, name, [&](const WireReader& field) {
    if (!field.is_bytes()) return;
    if (field.field() == 1) attr.name = field.text();
    if (field.field() == 2) kind = field.text();
  });
  attr.list = kind == "list(type)";
  if (kind != "type" && !attr.list) attr.name.clear();
  return attr;
}

TfOp parse_signature(Bytes bytes, const std::string& name) {
  TfOp op;
  op.is_function = true;
  each_field(bytes, name, [&](const WireReader& field) {
    if (field.field() == 17 && field.is_number()) op.stateful = field.number() != 0;
    if (!field.is_bytes()) return;
    if (field.field() == 1) op.name = field.text();
    if (field.field() == 2) op.inputs.push_back(parse_argument(field.bytes(), name));
    if (field.field() == 3) op.outputs.push_back(parse_argument(field.bytes(), name));
    if (field.field() == 4) {
      TfTypeAttr attr = parse_type_attr(field.bytes(), name);
      if (!attr.name.empty()) op.attrs.push_back(std::move(attr));
    }
  });
  return op;
}

void parse_function(Bytes bytes, const std::string& name, TfGraph& graph) {
  TfOp op;
  each_field(bytes, name, [&](const WireReader& field) {
    if (field.field() == 1 && field.is_bytes()) op = parse_signature(field.bytes(), name);
    if (field.field() == 3) ++graph.function_nodes;
  });
  graph.functions[op.name] = std::move(op);
}

TfGraph parse_graph(Bytes bytes, const std::string& name) {
  TfGraph graph;
  graph.about = "GraphDef";
  each_field(bytes, name, [&](const WireReader& field) {
    if (field.field() != 1 && field.field() != 2) return;
    if (!field.is_bytes()) throw not_a_graph(name);
    if (field.field() == 1) {
      graph.nodes.push_back(parse_node(field.bytes(), name));
      const TfNode& node = graph.nodes.back();
      if (node.name.empty() || node.op.empty()) throw not_a_graph(name);
    } else {
      each_field(field.bytes(), name, [&](const WireReader& part) {
        if (part.field() == 1 && part.is_bytes()) parse_function(part.bytes(), name, graph);
      });
    }
  });
  return graph;
}

/// A SavedModel begins with a number, the version of its schema; a GraphDef with a node.
TfGraph parse_saved_model(Bytes bytes, const std::string& name) {
  std::optional<TfGraph> graph;
  each_field(bytes, name, [&](const WireReader& field) {
    if (field.field() != 2 || !field.is_bytes() || graph) return;
    each_field(field.bytes(), name, [&](const WireReader& part) {
      if (part.field() == 2 && part.is_bytes()) graph = parse_graph(part.bytes(), name);
    });
  });
  if (!graph) throw not_a_graph(name);
  graph->about = "SavedModel";
  return *std::move(graph);
}

}  // namespace

bool WireReader::varint(uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return false;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) return true;
  }
  return false;
}

bool WireReader::skip(size_t count) {
  if (rest_.size() < count) return false;
  rest_ = rest_.subspan(count);
  return true;
}

bool WireReader::next() {
  if (failed_ || rest_.empty()) return false;
  uint64_t tag = 0, length = 0;
  bool good = varint(tag);
  field_ = tag >> 3U;
  wire_ = static_cast<unsigned>(tag & 7U);
  good = good && field_ != 0;
  constexpr size_t kFixed64 = 8, kFixed32 = 4;
  switch (wire_) {
    case 0:
      good = good && varint(number_);
      break;
    case 1:
      good = good && skip(kFixed64);
      break;
    case 2:
      good = good && varint(length) && length <= rest_.size();
      if (!good) break;
      bytes_ = rest_.first(static_cast<size_t>(length));
      rest_ = rest_.subspan(static_cast<size_t>(length));
      break;
    case 5:
      good = good && skip(kFixed32);
      break;
    default:
      good = false;
  }
  failed_ = !good;
  return good;
}

TfGraph parse_tf_graph(std::span<const uint8_t> bytes, const std::string& name) {
  if (bytes.empty()) throw Error("'" + name + "' is empty", kBinaryHint);
  if (is_text(bytes)) throw Error("'" + name + "' is text, not a binary GraphDef", kBinaryHint);
  WireReader first(bytes);
  if (!first.next()) throw not_a_graph(name);
  TfGraph graph = first.field() == 1 && first.is_number() ? parse_saved_model(bytes, name)
                                                          : parse_graph(bytes, name);
  if (graph.nodes.empty()) {
    throw Error("'" + name + "' has no nodes", "pass the graph of a network");
  }
  return graph;
}

TfGraph read_tf_graph(const std::filesystem::path& path) {
  std::error_code failed;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file, failed)) {
    file /= "saved_model.pb";
    if (!std::filesystem::exists(file, failed)) {
      throw Error("folder '" + path.string() + "' has no saved_model.pb",
                  "pass a SavedModel's folder, or a GraphDef file");
    }
  }
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file, failed)) {
    throw Error("cannot read '" + file.string() + "'" +
                    (std::filesystem::exists(file, failed) ? "" : ": file not found"),
                "check the path and its permissions");
  }
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error("cannot read all of '" + file.string() + "'");
  return parse_tf_graph(bytes, file.string());
}

}  // namespace halfscope::grappler
