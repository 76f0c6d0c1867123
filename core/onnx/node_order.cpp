// SPDX-License-Identifier: MIT
#include "core/onnx/node_order.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/error.h"
#include "core/onnx/origin.h"
#include "core/utf8.h"

namespace halfscope::onnx_files {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<::onnx::NodeProto>;

/// Names that a node reads, those that graphs in its attributes take from around them included.
void collect_reads(const ::onnx::NodeProto& node, std::vector<std::string>& reads, int depth) {
  for (const std::string& input : node.input()) {
    if (!input.empty()) reads.push_back(input);
  }
  if (depth > kDeepest) return;
  for (const ::onnx::AttributeProto& attribute : node.attribute()) {
    for (const ::onnx::NodeProto& inner : attribute.g().node())
      collect_reads(inner, reads, depth + 1);
    for (const ::onnx::ValueInfoProto& output : attribute.g().output())
      reads.push_back(output.name());
  }
}

}  // namespace

std::string printable(std::string text) {
  constexpr size_t kLongest = 300;
  std::string result;
  for (size_t i = 0; i < text.size() && result.size() < kLongest;) {
    const Utf8Character next = first_character(std::string_view(text).substr(i));
    const bool valid = keeps_the_line(next);
    result += valid ? text.substr(i, next.length) : "_";
    i += valid ? next.length : 1;
  }
  return result;
}

std::string describe(const ::onnx::NodeProto& node) {
  std::string name = node.name();
  if (name.empty() && node.output_size() > 0) name = node.output(0);
  if (name.empty()) name = "an unnamed node";
  const NodeOrigin origin = origin_of(node);
  const std::string op = printable(node.op_type());
  if (origin.module.empty() || !origin.known) return printable(name) + " (" + op + ")";
  return origin.module + " (" + op + " " + printable(name) + ")";
}

std::vector<const ::onnx::NodeProto*> in_order(const Nodes& nodes) {
  std::unordered_map<std::string, size_t> maker;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].output()) {
      if (!output.empty()) maker.try_emplace(output, static_cast<size_t>(i));
    }
  }
  const auto count = static_cast<size_t>(nodes.size());
  std::vector<std::vector<size_t>> readers(count);
  std::vector<size_t> waits(count, 0);
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> reads;
    collect_reads(nodes[static_cast<int>(i)], reads, 0);
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    for (const std::string& name : reads) {
      const auto found = maker.find(name);
      if (found == maker.end()) continue;
      readers[found->second].push_back(i);
      ++waits[i];
    }
  }
  std::set<size_t> ready;  // in the order of the file
  for (size_t i = 0; i < count; ++i) {
    if (waits[i] == 0) ready.insert(i);
  }
  std::vector<const ::onnx::NodeProto*> order;
  while (!ready.empty()) {
    const size_t next = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(&nodes[static_cast<int>(next)]);
    for (size_t reader : readers[next]) {
      if (--waits[reader] == 0) ready.insert(reader);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (waits[i] > 0) throw Error(describe(nodes[static_cast<int>(i)]) + ": depends on itself");
  }
  return order;
}

}  // namespace halfscope::onnx_files
