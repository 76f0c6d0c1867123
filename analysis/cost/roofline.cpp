// SPDX-License-Identifier: MIT
#include "analysis/cost/roofline.h"

#include <algorithm>

#include "analysis/cost/tensor_core_fit.h"
#include "core/graph/op_def.h"

namespace halfscope {
namespace {

constexpr int64_t kTile = 128, kLeastTerms = 512;

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

/// The name of a format's units in Device::rates; "" for formats without any.
std::string_view unit_of(const FloatFormat& format, const TensorScale& scale) {
  if (format == kFp32) return "fp32";
  const std::optional<TensorCoreInput> input = tensor_core_input(format, scale);
  if (!input) return "";
  return input->name == "mxfp8" ? "fp8" : input->name;
}

/// Units that multiply numbers of formats that a device has no units for: the slowest, or the only
/// ones. Units for int8 multiply int4, too.
std::string_view fallback(const Device& device, std::string_view format) {
  if (format == "int4" && device.rate("int8")) return "int8";
  return std::min_element(
             device.rates.begin(), device.rates.end(),
             [](const ProductRate& a, const ProductRate& b) { return a.tera < b.tera; })
      ->format;
}

/// Returns whether the sizes that are lines of memory are multiples. Pixels of convolutions are
/// not.
bool are_multiples(const NodeWork& work, ProductKind product, int64_t multiple) {
  for (size_t i = 0; i < work.sizes.size(); ++i) {
    const bool pixels = product == ProductKind::matrix             ? false
                        : product == ProductKind::conv_grad_weight ? i == 2
                                                                   : i == 0;
    if (!pixels && work.sizes[i] % multiple != 0) return false;
  }
  return true;
}

bool has_tensor_cores(const Device& device) {
  const std::optional<double> halves = device.rate("fp16"), singles = device.rate("fp32");
  return halves && singles && *halves > 2.0 * *singles;
}

UnitUse use_of(const Executable& executable, const NodeWork& work, const Device& device) {
  const Node& node = executable.graph.node(work.node);
  const FloatFormat& read = node.plan.read;
  UnitUse use{.format = unit_of(read, node.plan.scale)};
  const auto& [m, n, k] = work.sizes;
  use.no_unit = !device.rate(use.format);
  use.thin = device.columns == 1 && std::min({m, n, k}) == 1;
  if (use.no_unit || use.thin) use.format = fallback(device, use.thin ? "" : use.format);
  if (device.columns > 1) {
    const auto padded = [](int64_t size, int64_t multiple) {
      return static_cast<double>(pieces(size, multiple) * multiple);
    };
    const double real = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    use.used =
        real / (padded(m, device.rows) * padded(n, device.columns) * padded(k, device.columns));
    if (use.used < 1.0) use.padded_to = device.columns;
    return use;
  }
  const std::optional<TensorCoreInput> input = tensor_core_input(read, node.plan.scale);
  if (!use.no_unit && !use.thin && input && has_tensor_cores(device)) {
    use.misaligned = !are_multiples(work, find_op(node.op).product, input->multiple);
    if (use.misaligned) use.used /= 2.0;
  }
  const int64_t tiles =
      work.products * pieces(m, kTile) * pieces(n, kTile) * std::max<int64_t>(1, k / kLeastTerms);
  if (tiles < device.processors) {
    use.few_tiles = true;
    use.used *= static_cast<double>(tiles) / device.processors;
  }
  return use;
}

}  // namespace

Estimate estimate(const Executable& executable, const NodeWork& work, const Device& device) {
  constexpr double kTera = 1e12, kGiga = 1e9;
  Estimate result;
  if (work.is_product()) {
    result.use = use_of(executable, work, device);
    const double rate = *device.rate(result.use.format) * kTera * kComputeShare * result.use.used;
    result.compute = static_cast<double>(work.flops) / rate;
  }
  result.memory = static_cast<double>(work.bytes) / (device.bandwidth * kGiga * kMemoryShare);
  const double shortest = work.fused ? 0.0 : kKernelSeconds;
  result.seconds = std::max({result.compute, result.memory, shortest});
  result.limit = result.seconds == shortest && !work.fused ? Limit::start
                 : result.compute > result.memory          ? Limit::compute
                                                           : Limit::memory;
  return result;
}

}  // namespace halfscope
