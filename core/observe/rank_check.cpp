// SPDX-License-Identifier: MIT
#include "core/observe/rank_check.h"

#include <algorithm>

#include "core/observe/reduction_meter.h"
#include "core/ops/rank_reduction.h"

namespace halfscope {
namespace {

/// One variable's gradients on all ranks, and their reduction.
struct RankStack {
  Reduction how;
  FloatFormat format;
  int64_t n;
  const std::vector<float>* rows;        ///< [ranks, n]
  const std::vector<float>* takes_part;  ///< by rank
};

ReductionError check_ranks(const RankStack& stack, int64_t ranks, const Program& program) {
  const std::vector<float> zeros(static_cast<size_t>(stack.n), 0.0f);
  ReductionMeter meter(stack.how, ranks, stack.n, [&](float* numbers, int64_t count) {
    program.round(std::span(numbers, static_cast<size_t>(count)), stack.format);
  });
  meter.add(0, stack.n, [&](int64_t rank) {
    const bool takes_part = (*stack.takes_part)[static_cast<size_t>(rank)] != 0.0f;
    return takes_part ? stack.rows->data() + rank * stack.n : zeros.data();
  });
  return meter.result();
}

}  // namespace

std::vector<ReductionError> check_reductions(
    int64_t step, const Executable& executable, const Program& program,
    const std::function<std::vector<float>(const ReducedGradient&)>& gradients) {
  std::vector<ReductionError> rows;
  if (executable.ranks < 2) return rows;
  const Graph& graph = executable.graph;
  // Processes skip a step together, so each of them takes part.
  const std::vector<float> takes_part =
      executable.exchanged ? std::vector<float>(static_cast<size_t>(executable.ranks), 1.0f)
                           : program.read(executable.rank_takes_part).data;
  for (const ReducedGradient& each : executable.reduced) {
    int site = -1;
    for (const Tap& tap : executable.taps) {
      if (tap.value == each.reduced) site = tap.site.order;
    }
    if (site < 0) continue;
    const Value& reduced = graph.value(each.reduced);
    const std::vector<float> rows_of_ranks = gradients(each);
    const RankStack stack{reduction_of(graph.node(reduced.producer)), reduced.format,
                          element_count(reduced.shape), &rows_of_ranks, &takes_part};
    for (int64_t ranks = 2;; ranks = std::min(2 * ranks, executable.ranks)) {
      rows.push_back(check_ranks(stack, ranks, program));
      rows.back().step = step;
      rows.back().site = site;
      if (ranks == executable.ranks) break;
    }
  }
  return rows;
}

}  // namespace halfscope
