// SPDX-License-Identifier: MIT
#include "analysis/cost/tensor_core_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

constexpr int64_t kLineBits = 16 * 8, kBestLineBits = 128 * 8;
constexpr int64_t kMxBlock = 32;

TensorCoreInput by_bits(std::string_view name, int64_t bits, bool padded = false) {
  return {name, kLineBits / bits, kBestLineBits / bits, padded};
}

/// Returns whether the value is a trained variable or a constant of the file, whatever its shape.
bool is_weight(const Graph& graph, ValueId value) {
  ValueId source = before_narrowing(graph, value);
  for (NodeId id = graph.value(source).producer; id != kNone; id = graph.value(source).producer) {
    const Node& node = graph.node(id);
    if (node.op != "Transpose" && !is_view(node)) break;
    source = before_narrowing(graph, node.inputs[0]);
  }
  return graph.variable_of(source) != nullptr ||
         std::any_of(graph.constants().begin(), graph.constants().end(),
                     [&](const Constant& constant) { return constant.value == source; });
}

std::array<ProductSize, 3> matrix_sizes(const Graph& graph, const Node& node, int64_t m, int64_t n,
                                        int64_t k) {
  if (is_weight(graph, node.inputs[1])) return {{{"row", m}, {"output", n}, {"input", k}}};
  if (is_weight(graph, node.inputs[0])) return {{{"output", m}, {"column", n}, {"input", k}}};
  return {{{"row", m}, {"column", n}, {"summed term", k}}};
}

void set_sizes(const Graph& graph, const Node& node, TensorCoreFit& fit) {
  const auto shape = [&](size_t i) { return graph.value(node.inputs[i]).shape; };
  const Shape& result = graph.value(node.outputs[0]).shape;
  const ProductKind product = find_op(node.op).product;
  if (product == ProductKind::matrix) {
    const MatMulShape s = matmul_shape(node, shape(0), shape(1));
    fit.products = element_count(s.products);
    fit.sizes = matrix_sizes(graph, node, s.m, s.n, s.k);
  } else if (product == ProductKind::conv || product == ProductKind::conv_grad_input) {
    // The latter, as a layer, is a transposed convolution with the weight [in, out / group, ...].
    const Shape w = shape(1);
    const bool transposed = product == ProductKind::conv_grad_input;
    fit.products = conv_window(node).group;
    const int64_t first = w[0] / fit.products;
    const char* each = fit.products == 1 ? "" : " in each group";
    fit.sizes = {{{"pixel", result[0] * result[2] * result[3], false},
                  {fmt::format("output channel{}", each), transposed ? w[1] : first},
                  {fmt::format("input channel{}", each), transposed ? first : w[1]}}};
  } else {
    throw Error(node.path + ": the dimensions of operator " + node.op + " are unknown");
  }
}

bool all_multiples(const TensorCoreFit& fit, int64_t multiple) {
  return std::all_of(fit.sizes.begin(), fit.sizes.end(), [multiple](const ProductSize& each) {
    return !each.matters || each.size % multiple == 0;
  });
}

/// Returns "1 input channel", "10 outputs", "3 input channels in each group".
std::string named(const ProductSize& size) {
  std::string name = size.name;
  if (size.size != 1) {
    const size_t end = name.find(" in each");
    name.insert(end == std::string::npos ? name.size() : end, "s");
  }
  return fmt::format("{} {}", size.size, name);
}

}  // namespace

std::optional<TensorCoreInput> tensor_core_input(const FloatFormat& format,
                                                 const TensorScale& scale) {
  if (format == kFp16) return by_bits("fp16", 16);
  if (format == kBf16) return by_bits("bf16", 16);
  if (format == kTf32) return by_bits("tf32", 32);
  if (format == kInt8Format) return by_bits("int8", 8, true);
  if (format == kInt4Format) return by_bits("int4", 4, true);
  const bool mx =
      scale.kind == TensorScale::Kind::block && scale.block_size == kMxBlock && !scale.fp32_scales;
  if (format == kE4m3fn || format == kE5m2) {
    if (!mx) return by_bits("fp8", 8, true);
    // Lines must also be whole blocks.
    TensorCoreInput input = by_bits("mxfp8", 8, true);
    input.multiple = std::max(input.multiple, kMxBlock);
    return input;
  }
  // fp4 always has scales by block. 16 bytes are 32 elements: one block of MX or two of NVFP4.
  if (format == kE2m1 && (mx || scale.kind == TensorScale::Kind::nvfp4)) {
    return by_bits("fp4", 4, true);
  }
  return std::nullopt;
}

bool TensorCoreFit::fits() const { return input && all_multiples(*this, input->multiple); }

bool TensorCoreFit::fits_best() const { return input && all_multiples(*this, input->best); }

std::vector<std::string> TensorCoreFit::advice() const {
  std::vector<std::string> lines;
  if (!input) return lines;
  if (!sizes[0].matters && products > 1 && sizes[1].size == 1 && sizes[2].size == 1) {
    return {"1 channel in each group: no matrices for tensor cores"};
  }
  for (const ProductSize& each : sizes) {
    const int64_t rest = each.size % input->multiple;
    if (!each.matters || rest == 0) continue;
    lines.push_back(fmt::format("{}: pad to {}", named(each), each.size - rest + input->multiple));
  }
  return lines;
}

std::vector<TensorCoreFit> tensor_core_fits(const Executable& executable) {
  const Graph& graph = executable.graph;
  std::vector<TensorCoreFit> fits;
  for (const NodeId id : executable.entry(executable.forward)) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::forward || !find_op(node.op).sums_products()) continue;
    TensorCoreFit fit;
    fit.path = node.path;
    fit.op = node.op;
    fit.read = node.plan.read;
    fit.input = tensor_core_input(node.plan.read, node.plan.scale);
    set_sizes(graph, node, fit);
    fits.push_back(std::move(fit));
  }
  return fits;
}

}  // namespace halfscope
