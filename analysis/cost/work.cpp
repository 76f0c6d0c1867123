// SPDX-License-Identifier: MIT
#include "analysis/cost/work.h"

#include <algorithm>
#include <set>

#include "core/graph/unrounded.h"
#include "core/lower/execution.h"
#include "core/lower/known_values.h"
#include "core/lower/narrow.h"
#include "core/ops/ops.h"
#include "core/ops/product_terms.h"

namespace halfscope {
namespace {

constexpr const char* kDequantize = "Dequantize";

/// Codes of block-scaled operands, by the value that stands for them. Only products read them.
std::map<ValueId, ValueId> block_codes(const Graph& graph) {
  std::map<ValueId, ValueId> codes;
  for (const Node& node : graph.nodes()) {
    if (node.op == kDequantize) codes[node.outputs[0]] = node.inputs[0];
  }
  for (const Node& node : graph.nodes()) {
    const OpDef* def = lookup_op(node.op);
    if (def == nullptr || def->sums_products()) continue;
    for (const ValueId input : node.inputs) codes.erase(input);
  }
  return codes;
}

/// Returns whether the scales of the blocks, in fp32 here, have 8 bits in memory.
bool has_small_scales(const Node& node) {
  return node.op == "Quantize" && node.plan.scale.by_block() &&
         block_format(node).scale != ScaleKind::fp32;
}

/// Returns the bits of one element in memory: 4, 8, 16 or 32, the smallest that the format fits in.
/// Indices have 32.
int64_t stored_bits(const Value& value) {
  if (value.type == ElementType::index) return 32;
  const int bits = value.format.bits();
  return bits <= 4 ? 4 : bits <= 8 ? 8 : bits <= 16 ? 16 : 32;
}

/// M, N, K and the number of products of a node, from its operands.
void set_product(const Graph& graph, const Node& node, NodeWork& work) {
  const auto shape = [&](ValueId value) { return graph.value(value).shape; };
  const ProductTerms terms = *ProductTerms::of(graph, node);
  work.flops = 2 * terms.results() * terms.terms();
  const Shape result = shape(node.outputs[0]), first = shape(node.inputs[0]);
  switch (find_op(node.op).product) {
    case ProductKind::matrix: {
      const MatMulShape s = matmul_shape(node, shape(node.inputs[0]), shape(node.inputs[1]));
      work.products = std::max<int64_t>(1, element_count(s.products));
      work.sizes = {s.m, s.n, s.k};
      return;
    }
    case ProductKind::conv_grad_weight: {
      const int64_t group = conv_window(node).group;
      work.products = group;
      work.sizes = {result[0] / group, element_count(result) / result[0], terms.terms()};
      return;
    }
    case ProductKind::conv_grad_input: {
      // Each gradient of a result is multiplied by every weight of its channel; with strides, most
      // places of the kernel meet none.
      const Shape weights = shape(node.inputs[1]);
      work.flops = 2 * element_count(first) * (element_count(weights) / weights[0]);
      break;
    }
    default:
      break;
  }
  // Rows are samples and pixels, columns channels.
  work.products = conv_window(node).group;
  const int64_t rows = element_count(result) / result[1], columns = result[1] / work.products;
  work.sizes = {rows, columns, std::max<int64_t>(1, work.flops / (2 * element_count(result)))};
}

class Counter {
 public:
  explicit Counter(const Executable& executable)
      : executable_(executable), graph_(executable.graph), storage_(executable.graph) {
    for (const std::vector<NodeId>& entry : executable.entries) {
      for (const NodeId id : entry) {
        for (const ValueId input : graph_.node(id).inputs) read_.insert(input);
      }
    }
    for (const NamedValue& output : executable.outputs) read_.insert(output.value);
    read_.insert(executable.loss);
  }

  std::vector<NodeWork> count() const {
    std::vector<NodeWork> all;
    const bool trains = executable_.forward == Entry::grad;
    const std::vector<bool> known = trains ? std::vector<bool>{} : known_values(executable_);
    for (const NodeId id : executable_.entry(executable_.forward)) {
      const Node& node = graph_.node(id);
      if (!trains && known[static_cast<size_t>(node.outputs[0])]) continue;
      if (std::find(node.outputs.begin(), node.outputs.end(), executable_.accuracy) !=
              node.outputs.end() ||
          storage_.is_view(node)) {
        continue;
      }
      all.push_back(of(id));
    }
    if (trains) all.push_back(of_optimizer());
    return all;
  }

 private:
  bool writes(ValueId output) const {
    return output != kNone && !storage_.in_registers(output) &&
           (read_.contains(output) || storage_.root(output) != output);
  }

  NodeWork of(NodeId id) const {
    const Node& node = graph_.node(id);
    const OpDef& def = find_op(node.op);
    const Node& layer = node.forward == kNone ? node : graph_.node(node.forward);
    NodeWork work{.node = id, .layer = layer.path, .op = layer.op, .phase = node.phase};
    work.cast = node.op == "Cast" || node.op == "Quantize" || node.op == "ScaleUpdate";
    work.fused = storage_.in_registers(node.outputs[0]);
    int64_t written = 0;
    for (const ValueId output : node.outputs) {
      if (writes(output)) written += storage_.bytes(storage_.root(output));
    }
    work.bytes = written;
    std::set<ValueId> seen;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || storage_.in_registers(node.inputs[i])) continue;
      for (const ValueId part : storage_.parts(node.inputs[i])) {
        if (seen.insert(part).second) work.bytes += read_bytes(node, def, i, part, written);
      }
    }
    if (def.sums_products()) set_product(graph_, node, work);
    return work;
  }

  /// Operators that pick or move elements read those that they write. The largest magnitude that a
  /// delayed scale needs is taken on the way, by the kernel that rounds.
  int64_t read_bytes(const Node& node, const OpDef& def, size_t i, ValueId root,
                     int64_t written) const {
    const int64_t all = storage_.bytes(root);
    const bool picks = i == 0 && (def.picks == Picks::rows || def.movement != nullptr);
    if (node.op == "ScaleUpdate" && i == 0) return 0;
    return picks ? std::min(all, written) : all;
  }

  NodeWork of_optimizer() const {
    NodeWork work{.layer = "optimizer", .op = "optimizer", .phase = Phase::update};
    std::set<ValueId> reads, writes_to;
    for (const Entry entry : {Entry::norm, Entry::update}) {
      for (const NodeId id : executable_.entry(entry)) {
        const Node& node = graph_.node(id);
        for (const ValueId input : node.inputs) {
          if (input != kNone) reads.insert(storage_.root(input));
        }
        for (const ValueId output : node.outputs) {
          if (writes(output) && storage_.root(output) != output)
            writes_to.insert(storage_.root(output));
        }
      }
    }
    for (const ValueId root : reads) work.bytes += storage_.bytes(root);
    for (const ValueId root : writes_to) work.bytes += storage_.bytes(root);
    return work;
  }

  const Executable& executable_;
  const Graph& graph_;
  Storage storage_;
  std::set<ValueId> read_;
};

}  // namespace

Storage::Storage(const Graph& graph) : graph_(graph), roots_(memory_aliases(graph)) {
  roots_.merge(block_codes(graph));
  for (const Node& node : graph.nodes()) {
    if (!node.outputs.empty() && is_unrounded(graph, node.outputs[0]))
      registers_.insert(node.outputs[0]);
  }
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) {
      if (!registers_.contains(input)) continue;
      if (graph.node(graph.value(input).producer).phase != node.phase) registers_.erase(input);
    }
  }
}

bool Storage::in_registers(ValueId value) const { return registers_.contains(value); }

ValueId Storage::root(ValueId value) const {
  for (auto found = roots_.find(value); found != roots_.end(); found = roots_.find(value)) {
    value = found->second;
  }
  return value;
}

std::vector<ValueId> Storage::parts(ValueId value) const {
  std::vector<ValueId> parts{root(value)};
  const NodeId made_by = graph_.value(value).producer;
  if (made_by != kNone && graph_.node(made_by).op == kDequantize && parts[0] != value) {
    for (size_t i = 1; i < graph_.node(made_by).inputs.size(); ++i)
      parts.push_back(root(graph_.node(made_by).inputs[i]));
  }
  return parts;
}

int64_t Storage::bytes(ValueId root) const {
  const Value& value = graph_.value(root);
  const bool scales = value.producer != kNone && has_small_scales(graph_.node(value.producer)) &&
                      graph_.node(value.producer).outputs[1] == root;
  // Kept for the backward pass, an intermediate result has the format that its operator reads.
  Value stored = value;
  if (is_unrounded(graph_, root)) stored.format = graph_.node(value.producer).plan.read;
  return (element_count(value.shape) * (scales ? 8 : stored_bits(stored)) + 7) / 8;
}

bool Storage::is_view(const Node& node) const {
  return halfscope::is_view(node) ||
         (node.op == kDequantize && root(node.outputs[0]) != node.outputs[0]);
}

std::vector<NodeWork> work_of(const Executable& executable) { return Counter(executable).count(); }

}  // namespace halfscope
