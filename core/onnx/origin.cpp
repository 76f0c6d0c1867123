// SPDX-License-Identifier: MIT
#include "core/onnx/origin.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "core/onnx/dynamo_calls.h"
#include "core/onnx/node_order.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Names after a '%', in order.
std::vector<std::string> percent_names(std::string_view text) {
  std::vector<std::string> names;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') continue;
    size_t end = i + 1;
    while (end < text.size() && is_name_character(text[end])) ++end;
    names.emplace_back(text.substr(i + 1, end - i - 1));
    i = end - 1;
  }
  return names;
}

/// "linear" of "... call_function[target=torch.ops.aten.linear.default](args = ...".
std::string called_function(std::string_view text) {
  constexpr std::string_view kTarget = "[target=";
  const size_t begin = text.find(kTarget);
  if (begin == std::string_view::npos) return "";
  std::string_view name = text.substr(begin + kTarget.size());
  name = name.substr(0, name.find(']'));
  for (std::string_view prefix : {"torch.ops.", "aten.", "prims.", "operator."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return std::string(name.substr(0, name.find('.')));
}

/// Positional arguments of a call as they are written: "%x", "[2, 2]", "None" of
/// "(args = (%x, [2, 2], None), kwargs = {})".
std::vector<std::string> written_arguments(std::string_view call) {
  constexpr std::string_view kArguments = "(args = (";
  const size_t begin = call.find(kArguments);
  std::vector<std::string> written;
  if (begin == std::string_view::npos) return written;
  int depth = 0;
  std::string argument;
  for (const char c : call.substr(begin + kArguments.size())) {
    if (c == '(' || c == '[') ++depth;
    if ((c == ')' || c == ']') && depth-- == 0) break;
    if (c == ',' && depth == 0) {
      written.push_back(std::exchange(argument, {}));
    } else if (c != ' ' || !argument.empty()) {
      argument += c;
    }
  }
  if (!argument.empty()) written.push_back(argument);
  return written;
}

/// The row that an embedding says is padding; -1 without one.
int64_t padding_row(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) return -1;
  const std::string& text = arguments[2];
  int64_t row = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row);
  return error == std::errc() && row >= 0 ? row : -1;
}

/// Without "@1", which marks the second call of a module.
std::string without_call_number(const std::string& module) {
  const size_t at = module.find('@');
  return at == std::string::npos ? module : module.substr(0, at);
}

TensorKind kind_of(std::string_view text) {
  if (text == "PARAMETER") return TensorKind::parameter;
  if (text == "BUFFER") return TensorKind::buffer;
  if (text == "CONSTANT_TENSOR") return TensorKind::constant;
  return TensorKind::unknown;
}

/// A line of the signature: "p_fc_weight: PARAMETER target='fc.weight'".
void read_signature_line(std::string_view line, Signature& signature) {
  constexpr std::string_view kTarget = " target='";
  const size_t colon = line.find(": "), target = line.find(kTarget);
  if (colon == std::string_view::npos || target == std::string_view::npos || target < colon) return;
  const TensorKind kind = kind_of(line.substr(colon + 2, target - colon - 2));
  if (kind == TensorKind::unknown) return;
  std::string_view name = line.substr(target + kTarget.size());
  name = name.substr(0, name.find('\''));
  signature.arguments[std::string(line.substr(0, colon))] = {kind, std::string(name)};
  signature.kinds[std::string(name)] = kind;
}

/// "shared" of "shared_1", if the name ends so.
std::string without_suffix(const std::string& part) {
  const size_t under = part.rfind('_');
  if (under == std::string::npos || under == 0 || under + 1 == part.size()) return "";
  const bool number =
      std::all_of(part.begin() + static_cast<std::ptrdiff_t>(under) + 1, part.end(),
                  [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
  return number ? part.substr(0, under) : "";
}

/// Finds the modules that stand for further calls of another one: they have no parameters of their
/// own name, and what they read, the first call reads, too.
class RepeatedModules {
 public:
  RepeatedModules(const ::onnx::GraphProto& graph, const Origins& origins) {
    const std::map<std::string, std::string> copies = copied_initializers(graph);
    std::set<std::string> initializers;
    for (const ::onnx::TensorProto& tensor : graph.initializer())
      initializers.insert(tensor.name());
    names_ = initializers;
    for (const auto& [copy, source] : copies) names_.insert(copy);
    for (const ::onnx::NodeProto& node : graph.node()) {
      const NodeOrigin& origin = origins.at(&node);
      if (!origin.known || !origin.call.empty()) continue;
      for (size_t end = 0; end != std::string::npos;) {
        end = origin.module.find('.', end == 0 ? 0 : end + 1);
        std::set<std::string>& reads = reads_[origin.module.substr(0, end)];
        for (const std::string& input : node.input()) {
          const auto found = copies.find(input);
          const std::string& source = found != copies.end() ? found->second : input;
          if (initializers.contains(source)) reads.insert(source);
        }
      }
    }
  }

  std::string first_call(const std::string& module) const {
    std::string before, own;  // of the result, and as it is written
    for (size_t begin = 0; begin <= module.size();) {
      const size_t end = std::min(module.find('.', begin), module.size());
      const std::string part = module.substr(begin, end - begin), base = without_suffix(part);
      begin = end + 1;
      const std::string dot = before.empty() ? "" : ".";
      const std::string written = own + (own.empty() ? "" : ".") + part;
      const bool repeats = !base.empty() && is_call_of(written, before + dot + base);
      before += dot + (repeats ? base : part);
      own = written;
    }
    return before;
  }

 private:
  bool is_call_of(const std::string& module, const std::string& first) const {
    const auto own = reads_.find(module), other = reads_.find(first);
    if (own == reads_.end() || other == reads_.end()) return false;
    const auto named = names_.lower_bound(module + ".");
    if (named != names_.end() && named->starts_with(module + ".")) return false;
    return std::includes(other->second.begin(), other->second.end(), own->second.begin(),
                         own->second.end());
  }

  std::set<std::string> names_;
  std::map<std::string, std::set<std::string>> reads_;
};

/// TorchScript leaves out what it does not call, such as the ModuleDict "m" of "m.norm"; the names
/// of weights have it.
class OuterModules {
 public:
  OuterModules(const ::onnx::GraphProto& graph, const Origins& origins) {
    std::set<std::string> doubtful;
    for (const ::onnx::NodeProto& node : graph.node()) {
      const NodeOrigin& origin = origins.at(&node);
      if (!origin.known || !origin.call.empty() || origin.module.empty()) continue;
      const std::string first = first_part(origin.module);
      for (const std::string& name : node.input()) {
        const size_t dot = name.rfind('.');
        if (dot == std::string::npos || is_numbered(name)) continue;
        const std::string owner = name.substr(0, dot);
        for (const std::string& start : {first, without_suffix(first)}) {
          const std::string inner = start + origin.module.substr(first.size());
          if (start.empty() || !owner.ends_with("." + inner)) continue;
          const std::string before = owner.substr(0, owner.size() - inner.size());
          const auto [found, added] = before_.try_emplace(first, before);
          if (!added && found->second != before) doubtful.insert(first);
          break;
        }
      }
    }
    for (const std::string& first : doubtful) before_.erase(first);
  }

  std::string whole(const std::string& module) const {
    const std::string first = first_part(module), base = without_suffix(first);
    const auto found = before_.find(first);
    if (found == before_.end()) return module;
    // "l" in two of them: the second one is "l_1" here, but not a second call.
    const auto other = before_.find(base);
    const bool renamed = !base.empty() && other != before_.end() && other->second != found->second;
    return found->second + (renamed ? base : first) + module.substr(first.size());
  }

 private:
  static std::string first_part(const std::string& module) {
    return module.substr(0, module.find('.'));
  }

  std::map<std::string, std::string> before_;  ///< by the first part of a path: "m."
};

void read_value_metadata(const std::string& name, const std::map<std::string, std::string>& notes,
                         Signature& signature) {
  if (const auto found = notes.find("pkg.onnxscript.optimizer.folded_from"); found != notes.end())
    signature.folded_from[name] = parse_python_list(found->second);
  const auto found = notes.find("pkg.torch.export.graph_signature.InputSpec.kind");
  if (found == notes.end()) return;
  const TensorKind kind = kind_of(found->second);
  if (kind == TensorKind::unknown) return;
  signature.kinds.try_emplace(name, kind);
  if (const auto argument = notes.find("pkg.torch.onnx.original_node_name");
      argument != notes.end()) {
    signature.arguments.try_emplace(argument->second, Signature::Entry{kind, name});
  }
}

/// Reads casts and regions without autocast in the code of the network.
void read_autocast(const std::map<std::string, std::string>& notes, NodeOrigin& origin) {
  std::vector<int64_t> casts, off;
  const auto regions = notes.find("halfscope.autocast_off");
  for (const std::string device : {"cuda", "cpu"}) {
    const auto cast = notes.find("halfscope.cast." + device);
    const std::string to = cast == notes.end() ? "" : cast->second;
    casts.push_back(static_cast<int64_t>(to == "float32"    ? TorchCast::float32
                                         : to == "autocast" ? TorchCast::low
                                                            : TorchCast::none));
    off.push_back(regions != notes.end() && regions->second.find(device) != std::string::npos);
  }
  if (casts != std::vector<int64_t>{0, 0}) origin.casts = std::move(casts);
  if (off != std::vector<int64_t>{0, 0}) origin.autocast_off = std::move(off);
}

}  // namespace

std::map<std::string, std::string> metadata_of(const google::protobuf::Message& message,
                                               int number) {
  std::map<std::string, std::string> notes;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto keep = [&](const ::onnx::StringStringEntryProto& entry) {
    notes[entry.key()] = entry.value();
  };
  if (const auto* field = message.GetDescriptor()->FindFieldByNumber(number)) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE ||
        !field->is_repeated()) {
      return notes;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      ::onnx::StringStringEntryProto entry;
      entry.CopyFrom(reflection.GetRepeatedMessage(message, field, i));
      keep(entry);
    }
    return notes;
  }
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const google::protobuf::UnknownField& field = unknown.field(i);
    ::onnx::StringStringEntryProto entry;
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
        entry.ParseFromString(field.length_delimited())) {
      keep(entry);
    }
  }
  return notes;
}

std::vector<std::string> parse_python_list(std::string_view text) {
  std::vector<std::string> list;
  for (size_t i = 0; i < text.size(); ++i) {
    const char quote = text[i];
    if (quote != '\'' && quote != '"') continue;
    std::string item;
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      item += text[i];
    }
    list.push_back(std::move(item));
  }
  return list;
}

std::string module_of_scopes(std::string_view path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    std::string part(path.substr(begin, end - begin));
    begin = end + 1;
    if (part.empty()) continue;
    if (!parts.empty() && part.starts_with(parts.back() + ".")) parts.pop_back();
    parts.push_back(std::move(part));
  }
  std::string module;
  for (const std::string& part : parts) module += (module.empty() ? "" : ".") + part;
  return module;
}

NodeOrigin origin_of(const ::onnx::NodeProto& node) {
  NodeOrigin origin;
  const std::map<std::string, std::string> notes = metadata_of(node, kNodeMetadata);
  read_autocast(notes, origin);
  if (const auto found = notes.find("pkg.torch.onnx.name_scopes"); found != notes.end()) {
    const std::vector<std::string> scopes = parse_python_list(found->second);
    origin.known = true;
    if (scopes.size() >= 2) origin.module = printable(without_call_number(scopes.end()[-2]));
    if (!scopes.empty()) origin.what = scopes.back();
  }
  if (const auto found = notes.find("pkg.torch.onnx.fx_node"); found != notes.end()) {
    std::vector<std::string> names = percent_names(found->second);
    if (!names.empty()) {
      origin.call = names.front();
      origin.arguments.assign(names.begin() + 1, names.end());
    }
    if (const std::string what = called_function(found->second); !what.empty()) origin.what = what;
    origin.written = written_arguments(found->second);
    origin.reads_copy =
        !origin.written.empty() && without_number(origin.written.front()) == "%clone";
    if (origin.what == "embedding") origin.padding_row = padding_row(origin.written);
  }
  if (const auto found = notes.find("pkg.torch.onnx.stack_trace"); found != notes.end())
    origin.in_region =
        found->second.starts_with("File \"<eval_with_key>") && origin.autocast_off.empty();
  origin.rewritten = notes.contains("pkg.onnxscript.rewriter.rule_name");
  if (origin.known) return origin;
  // "/layer1/conv/Conv_1": the last part is the operator. Other tools write paths, too, but without
  // the slash in front.
  const std::string& name = node.name();
  const size_t last = name.rfind('/');
  if (name.empty() || name[0] != '/' || last == name.size() - 1) return origin;
  origin.known = true;
  origin.module = printable(module_of_scopes(std::string_view(name).substr(0, last)));
  return origin;
}

Signature signature_of(const ::onnx::GraphProto& graph) {
  Signature signature;
  const std::map<std::string, std::string> notes = metadata_of(graph, kGraphMetadata);
  const auto found = notes.find("pkg.torch.export.ExportedProgram.graph_signature");
  if (found != notes.end()) {
    std::string_view text = found->second;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      read_signature_line(text.substr(0, end), signature);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  for (const ::onnx::ValueInfoProto& value : graph.value_info())
    read_value_metadata(value.name(), metadata_of(value, kValueMetadata), signature);
  return signature;
}

std::map<std::string, std::string> copied_initializers(const ::onnx::GraphProto& graph) {
  std::set<std::string> initializers;
  for (const ::onnx::TensorProto& tensor : graph.initializer()) initializers.insert(tensor.name());
  std::map<std::string, std::string> copies;
  for (const ::onnx::NodeProto* node : in_order(graph.node())) {
    if (node->op_type() != "Identity" || node->input_size() != 1 || node->output_size() != 1 ||
        !origin_of(*node).casts.empty())
      continue;
    const auto found = copies.find(node->input(0));
    const std::string source = found != copies.end() ? found->second : node->input(0);
    if (initializers.contains(source)) copies[node->output(0)] = source;
  }
  return copies;
}

Origins origins_of(const ::onnx::GraphProto& graph) {
  Origins origins;
  for (const ::onnx::NodeProto& node : graph.node()) origins[&node] = origin_of(node);
  const OuterModules outer(graph, origins);
  for (auto& [node, origin] : origins) {
    if (origin.known && origin.call.empty()) origin.module = outer.whole(origin.module);
    origin.module_call = origin.module;
  }
  const RepeatedModules repeated(graph, origins);
  for (auto& [node, origin] : origins) {
    if (origin.known && origin.call.empty()) origin.module = repeated.first_call(origin.module);
  }
  return origins;
}

bool is_numbered(const std::string& name) {
  const auto digits = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
  };
  if (name.starts_with("onnx::") || name.find("_output_") != std::string::npos) return true;
  return digits(name) || (name.starts_with("val_") && digits(std::string_view(name).substr(4)));
}

}  // namespace halfscope::onnx_files
