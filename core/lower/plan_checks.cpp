// SPDX-License-Identifier: MIT
#include "core/lower/plan_checks.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/lower/narrow.h"
#include "core/near_miss.h"
#include "core/numeric/sums/tensor_core.h"
#include "core/ops/ops.h"

namespace halfscope {

void check_tensor_cores(const Node& node) {
  const Accumulation& how = node.plan.accumulation;
  if (how.kind != Accumulation::tensor_core || !find_op(node.op).sums_products()) return;
  const FloatFormat accumulator = how.half_accumulator ? kFp16 : kFp32;
  const FloatFormat& read = node.plan.read;
  const FloatFormat gradient = node.plan.grad_read.value_or(read);
  for (const size_t operand : {size_t{0}, size_t{1}}) {
    const TensorScale& scale = operand_scale(node.plan, operand);
    if (!scale.by_block() || read == kFp32) continue;
    throw usage_error(node.path + ": " + accumulation_name(how) +
                          " cannot multiply operands scaled by block, but the plan sets scale " +
                          scale_name(scale),
                      "scale whole tensors (static, current, delayed) or sum in fp32; train lanes "
                      "with block scales in a separate run")
        .about({"accumulate", "lanes", "plan"});
  }
  for (const auto& [a, b] : {std::pair(read, read), std::pair(gradient, read)}) {
    if (a == kFp32 || b == kFp32 || tensor_core_profile(how.arch, a, b, accumulator)) continue;
    std::vector<std::string> formats;
    for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2}) {
      if (tensor_core_profile(how.arch, format, accumulator)) {
        formats.push_back(format_name(format));
      }
    }
    const std::string what = a == b ? format_name(a) : format_name(a) + " with " + format_name(b);
    throw usage_error(node.path + ": " + accumulation_name(how) + " cannot multiply " + what,
                      "use a format that it reads: " + comma_list(formats))
        .about({"accumulate", "lanes", "plan"});
  }
}

void check_scale(const Node& node) {
  const bool nvfp4 = operand_scale(node.plan, 0).kind == TensorScale::Kind::nvfp4 ||
                     operand_scale(node.plan, 1).kind == TensorScale::Kind::nvfp4;
  if (!nvfp4 || !scales_operands(node)) return;
  for (const FloatFormat& read : {node.plan.read, node.plan.grad_read.value_or(node.plan.read)}) {
    if (read == kE2m1 || read == kFp32) continue;
    throw usage_error(node.path + ": nvfp4 scales need e2m1 operands, not " + format_name(read),
                      "read in e2m1, or use scale mx or block:N")
        .about({"lanes", "plan"});
  }
}

void check_trains(const Node& node) {
  if (!node.plan.second_scale || !scales_operands(node)) return;
  throw usage_error(node.path +
                        ": the plan scales the second operand in its own way, which only "
                        "the forward pass has",
                    "use this plan for inference (halfscope run, cost --inference), or leave "
                    "second_scale out")
      .about({"lanes", "plan"});
}

}  // namespace halfscope
