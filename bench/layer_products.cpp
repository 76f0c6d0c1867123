// SPDX-License-Identifier: MIT
#include "bench/layer_products.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/lower/narrow.h"
#include "core/numeric/formats/rng.h"
#include "core/ops/ops.h"
#include "gpu/bodies/stored.h"

namespace halfscope {
namespace {

/// Returns the product of its layer that a node computes. A gradient is identified by the operand
/// that it reads besides the layer's gradient.
std::string role_of(const Graph& graph, const Node& node) {
  if (node.phase == Phase::forward) return "forward";
  const Node& layer = graph.node(node.forward);
  const auto reads = [&](ValueId operand) {
    const ValueId wanted = before_narrowing(graph, operand);
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input != kNone && before_narrowing(graph, input) == wanted;
    });
  };
  return reads(layer.inputs[1]) ? "grad_input" : "grad_weight";
}

bool equal_products(const Graph& graph, const LayerProduct& a, const LayerProduct& b) {
  const Node &x = graph.node(a.node), &y = graph.node(b.node);
  return a.product == b.product && a.operands == b.operands && x.op == y.op &&
         x.attributes == y.attributes;
}

}  // namespace

std::vector<LayerProduct> layer_products(const Executable& executable) {
  const Graph& graph = executable.graph;
  std::vector<LayerProduct> products;
  for (const NodeId id : executable.entry(Entry::grad)) {
    const Node& node = graph.node(id);
    if (!find_op(node.op).sums_products()) continue;
    LayerProduct product{.layer = node.path, .product = role_of(graph, node), .node = id};
    for (size_t i = 0; i < 2; ++i) product.operands.push_back(graph.value(node.inputs[i]).shape);
    const auto same = std::find_if(products.begin(), products.end(), [&](const LayerProduct& each) {
      return equal_products(graph, each, product);
    });
    if (same == products.end()) {
      products.push_back(std::move(product));
    } else {
      ++same->count;
    }
  }
  return products;
}

Executable alone(const Executable& executable, NodeId id) {
  const Graph& from = executable.graph;
  const Node& node = from.node(id);
  if (scales_operands(node)) {
    throw Error(node.path + ": products with scaled operands cannot be timed alone");
  }
  Executable result;
  result.forward = Entry::eval;
  Graph& graph = result.graph;
  std::vector<ValueId> inputs;
  for (const ValueId input : node.inputs) {
    inputs.push_back(kNone);
    if (input == kNone) continue;
    const std::string name = "operand" + std::to_string(inputs.size());
    inputs.back() = graph.add_input(name, from.value(input).shape, from.value(input).type);
    graph.value(inputs.back()).format = from.value(input).format;
    result.inputs.push_back({name, inputs.back()});
  }
  const ValueId y = graph.add1(node.op, node.path, inputs, node.attributes);
  const NodeId copy = graph.value(y).producer;
  graph.node(copy).plan = node.plan;
  graph.value(y).format = from.value(node.outputs[0]).format;
  graph.value(y).rounding = from.value(node.outputs[0]).rounding;
  result.outputs = {{"y", y}};
  result.entries[static_cast<size_t>(Entry::eval)] = {copy};
  return result;
}

int64_t product_bytes(const Executable& product) {
  int64_t bytes = 0;
  for (const Value& value : product.graph.values()) {
    bytes += element_count(value.shape) * gpu::bytes_of(gpu::storage_for(value.format));
  }
  return bytes;
}

float product_operand(size_t which, int64_t i) {
  const uint64_t word = splitmix64((static_cast<uint64_t>(which) << 48) + static_cast<uint64_t>(i));
  return static_cast<float>(static_cast<int64_t>(word % 9) - 4) / 4.0f;
}

ProductTimer::ProductTimer(const Backend& backend, Executable product)
    : product_(std::move(product)), program_(backend.compile(product_)) {
  program_->keep_values(false);  // plain steps are timed
  for (size_t which = 0; which < product_.inputs.size(); ++which) {
    const ValueId input = product_.inputs[which].value;
    std::vector<float> data(static_cast<size_t>(element_count(product_.graph.value(input).shape)));
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = product_operand(which, static_cast<int64_t>(i));
    }
    program_->write(input, std::span<const float>(data));
  }
  constexpr int64_t kWarm = 3;  // a GPU runs it plainly, captures it, then replays it
  elapsed(kWarm);
}

double ProductTimer::elapsed(int64_t runs) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < runs; ++i) program_->run(Entry::eval, {});
  program_->read_scalar(product_.outputs[0].value);  // waits for all of them
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double ProductTimer::milliseconds(double least_ms) {
  if (runs_ == 0) {
    for (runs_ = 1; elapsed(runs_) < least_ms;) runs_ *= 2;
  }
  return elapsed(runs_) / static_cast<double>(runs_);
}

}  // namespace halfscope
