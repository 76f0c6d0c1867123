// SPDX-License-Identifier: MIT
// TensorFlow's operators, parsed from op_defs_*.inc when first asked for. One line each:
//   NAME|FLAGS|OPERANDS|RESULTS|TYPE ATTRIBUTES|KERNELS OF GPUS|KERNELS OF CPUS
// FLAGS: s stateful, r has references. An operand is its type attribute ("T"), a fixed type ("#A"),
// a list of types ("*dtypes") or a number of one of them ("N@T"). An attribute is "T=AS:A": allowed
// types (none: all), then the default; "T*" is a list. A kernel is "T=AS&Tidx=CI", or "." if it
// accepts everything; "=" are the GPU's. Types are letters: A is 1 (float), B is 2 ...
#include <array>
#include <unordered_map>

#include "core/error.h"
#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {
namespace {

constexpr std::array<const char*, 4> kLines{
#include "core/policy/grappler/op_defs_1.inc"
    ,
#include "core/policy/grappler/op_defs_2.inc"
    ,
#include "core/policy/grappler/op_defs_3.inc"
    ,
#include "core/policy/grappler/op_defs_4.inc"
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  if (text.empty()) return parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

TfType type_of(char letter) { return letter >= 'a' ? letter - 'a' + 27 : letter - 'A' + 1; }

TfTypeSet types_of(std::string_view letters) {
  TfTypeSet set = 0;
  for (const char letter : letters) set |= tf_type_bit(type_of(letter));
  return set;
}

TfArgument argument_of(std::string_view text) {
  TfArgument argument;
  if (text.starts_with('*')) {
    argument.list = true;
    argument.attr = text.substr(1);
    return argument;
  }
  if (const size_t at = text.find('@'); at != text.npos) {
    argument.number = text.substr(0, at);
    text.remove_prefix(at + 1);
  }
  if (text.starts_with('#')) {
    argument.fixed = type_of(text.at(1));
  } else {
    argument.attr = text;
  }
  return argument;
}

TfTypeAttr attr_of(std::string_view text) {
  const size_t equal = text.find('=');
  std::string_view name = text.substr(0, equal), allowed = text.substr(equal + 1);
  TfTypeAttr attr;
  if (const size_t colon = allowed.find(':'); colon != allowed.npos) {
    attr.usual = type_of(allowed.at(colon + 1));
    allowed = allowed.substr(0, colon);
  }
  attr.list = name.ends_with('*');
  if (attr.list) name.remove_suffix(1);
  attr.name = name;
  attr.allowed = types_of(allowed);
  return attr;
}

std::vector<TfKernel> kernels_of(std::string_view text) {
  std::vector<TfKernel> kernels;
  for (const std::string_view one : split(text, ';')) {
    TfKernel& kernel = kernels.emplace_back();
    if (one == ".") continue;
    for (const std::string_view part : split(one, '&')) {
      const size_t equal = part.find('=');
      kernel.emplace_back(part.substr(0, equal), types_of(part.substr(equal + 1)));
    }
  }
  return kernels;
}

TfOp op_of(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, '|');
  if (fields.size() != 7) throw Error("op_defs_*.inc: bad line '" + std::string(line) + "'");
  TfOp op;
  op.name = fields[0];
  op.stateful = fields[1].find('s') != fields[1].npos;
  op.has_refs = fields[1].find('r') != fields[1].npos;
  for (const std::string_view text : split(fields[2], ' ')) op.inputs.push_back(argument_of(text));
  for (const std::string_view text : split(fields[3], ' ')) op.outputs.push_back(argument_of(text));
  for (const std::string_view text : split(fields[4], ' ')) op.attrs.push_back(attr_of(text));
  op.gpu = kernels_of(fields[5]);
  op.cpu = fields[6] == "=" ? op.gpu : kernels_of(fields[6]);
  return op;
}

/// Returns the lines by name; parsing all of them would take longer than most questions.
const std::unordered_map<std::string_view, std::string_view>& lines() {
  static const auto all = [] {
    std::unordered_map<std::string_view, std::string_view> result;
    for (const char* text : kLines) {
      for (const std::string_view line : split(text, '\n')) {
        if (!line.empty()) result.emplace(line.substr(0, line.find('|')), line);
      }
    }
    return result;
  }();
  return all;
}

}  // namespace

const TfTypeAttr* TfOp::attr(std::string_view attr_name) const {
  for (const TfTypeAttr& each : attrs) {
    if (each.name == attr_name) return &each;
  }
  return nullptr;
}

const TfOp* find_tf_op(std::string_view name) {
  static const auto all = [] {
    std::unordered_map<std::string_view, TfOp> result;
    for (const auto& [op, line] : lines()) result.emplace(op, op_of(line));
    return result;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

std::string tf_type_name(TfType type) {
  static constexpr std::array<const char*, 24> kNames{
      "invalid",   "float",  "double",     "int32", "uint8",    "int16",   "int8",     "string",
      "complex64", "int64",  "bool",       "qint8", "quint8",   "qint32",  "bfloat16", "qint16",
      "quint16",   "uint16", "complex128", "half",  "resource", "variant", "uint32",   "uint64"};
  if (type >= 0 && static_cast<size_t>(type) < kNames.size())
    return kNames[static_cast<size_t>(type)];
  return "type " + std::to_string(type);
}

}  // namespace halfscope::grappler
