// SPDX-License-Identifier: MIT
// The arguments of an operator's kernel, and the table of kernels. T is float in the emulator and
// double in the reference; one source serves both where the arithmetic is the same. Kernels write
// unrounded outputs (as exact as the accumulation allows); the Program rounds and measures them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/graph/graph.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/movement.h"
#include "core/ops/ops.h"
#include "emulation/gemm/gemm.h"
#include "emulation/team.h"

namespace halfscope {

template <class T>
struct KernelCall {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::vector<const T*> in;              ///< null for index inputs and omitted inputs
  std::vector<const int32_t*> index_in;  ///< null for real inputs
  std::vector<T*> out;
  std::vector<int32_t*> index_out;
  RandomSource random{};  ///< draws of this run
  bool measured = false;  ///< statistics are requested in this run
  bool keeps = true;      ///< every value must be what the graph says (Program::keep_values)
  bool unrounded =
      false;         ///< outputs are requested as for fp32, whatever their format in the graph
  int64_t lost = 0;  ///< set by update kernels if measured
  Diagnostics* diagnostics = nullptr;  ///< requested instead of outputs; for sums of products
  std::optional<Movement> movement;    ///< of kernels that move elements; set in their first run
  std::optional<double> wide;          ///< set by kernels whose scalar result needs double's range

  const Shape& in_shape(size_t i) const { return graph->value(node->inputs[i]).shape; }
  const Shape& out_shape(size_t i) const { return graph->value(node->outputs[i]).shape; }
  int64_t in_count(size_t i) const { return element_count(in_shape(i)); }
  int64_t out_count(size_t i) const { return element_count(out_shape(i)); }
  const FloatFormat& out_format(size_t i) const {
    return unrounded ? kFp32 : graph->value(node->outputs[i]).format;
  }
  TensorRounding out_rounding(size_t i) const {
    return rounding_now(graph->value(node->outputs[i]).rounding, node->outputs[i], random);
  }
  /// Returns how the Program will round the first output, for kernels that must know. fp32 is not
  /// rounded.
  TensorRounding result_rounding() const {
    return out_format(0) == kFp32 ? TensorRounding{} : out_rounding(0);
  }
  SumSpec sum_spec() const {
    SumSpec spec = sum_spec_of(*graph, *node, unrounded);
    spec.key = sum_key(node->plan.accumulation.rounding, node->outputs[0], random);
    return spec;
  }
  /// Returns the factor for the sums of a product of scaled operands, or nothing if there is none.
  std::optional<T> sum_factor() const {
    if (in.size() <= kFirstScaleInput || unrounded) return std::nullopt;
    T factor = 1;
    for (size_t i = kFirstScaleInput; i < in.size(); ++i) {
      if (in[i] != nullptr) factor *= *in[i];
    }
    return factor;
  }
};

/// Returns the sum as the kernel writes it. An fp64 sum is rounded here so that the Program's
/// rounding to the format gives the same bits as rounding once.
template <class T>
T delivered(double sum, const SumSpec& spec) {
  if constexpr (std::is_same_v<T, double>) return sum;
  return spec.accumulation == Accumulation::fp64 ? static_cast<T>(deliver(sum, spec.write))
                                                 : static_cast<T>(sum);
}

template <class T>
using Kernel = void (*)(KernelCall<T>&);

template <class T>
struct KernelEntry {
  const char* op;
  Kernel<T> run;
};

// One list per file of this folder.
template <class T>
std::span<const KernelEntry<T>> elementwise_kernels();
template <class T>
std::span<const KernelEntry<T>> function_kernels();
template <class T>
std::span<const KernelEntry<T>> gather_kernels();
template <class T>
std::span<const KernelEntry<T>> choice_kernels();
template <class T>
std::span<const KernelEntry<T>> sum_kernels();
template <class T>
std::span<const KernelEntry<T>> normalization_kernels();
template <class T>
std::span<const KernelEntry<T>> group_normalization_kernels();
template <class T>
std::span<const KernelEntry<T>> softmax_kernels();
template <class T>
std::span<const KernelEntry<T>> pooling_kernels();
template <class T>
std::span<const KernelEntry<T>> loss_kernels();
template <class T>
std::span<const KernelEntry<T>> update_kernels();
template <class T>
std::span<const KernelEntry<T>> rank_kernels();
template <class T>
std::span<const KernelEntry<T>> quantize_kernels();

/// Returns the kernel of an operator that only moves elements, or null for other operators.
template <class T>
Kernel<T> move_kernel(const OpDef& def);

/// Operators between reals and indices.
template <class T>
std::span<const KernelEntry<T>> conversion_kernels();
/// Arithmetic and sums of indices alone.
std::span<const KernelEntry<int32_t>> integer_kernels();

/// The kernel of a node. `reals` may also read or write indices; `indices` is for nodes that have
/// only indices.
template <class T>
struct NodeKernel {
  Kernel<T> reals = nullptr;
  Kernel<int32_t> indices = nullptr;

  explicit operator bool() const noexcept { return reals != nullptr || indices != nullptr; }
  void operator()(KernelCall<T>& call) const;
};

/// Returns the kernel of `node`. Throws Error if the operator has none.
template <class T>
NodeKernel<T> find_kernel(const Graph& graph, const Node& node);

/// Calls f(begin, end) for fixed pieces of [0, n), on all threads; a small n stays on one thread.
template <class F>
void parallel_ranges(int64_t n, int64_t grain, const F& f) {
  const int64_t pieces = (n + grain - 1) / grain;
  for_each_on(pieces > 1 ? omp_get_max_threads() : 1, pieces, [&](int64_t piece) {
    const int64_t begin = piece * grain;
    f(begin, begin + grain < n ? begin + grain : n);
  });
}

/// Calls body(i) for all i in [0, n), in the same pieces. `body` is from core/bodies or similar.
template <class Body>
void for_items(int64_t n, int64_t grain, const Body& body) {
  parallel_ranges(n, grain, [&](int64_t begin, int64_t end) {
    const Body own = body;  // a copy: otherwise the outputs might overlap its members
    for (int64_t i = begin; i < end; ++i) own(i);
  });
}

/// Elements per piece of elementwise work.
inline constexpr int64_t kGrain = 16384;

}  // namespace halfscope
