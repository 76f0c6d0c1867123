// SPDX-License-Identifier: MIT
#include "core/observe/rank_check.h"

#include <cmath>

#include "core/numeric/formats/round.h"
#include "core/ops/rank_reduction.h"

namespace halfscope {
namespace {

struct Distance {
  double difference = 0.0, norm = 0.0;
  void add(double x, double truth) {
    difference += (x - truth) * (x - truth);
    norm += truth * truth;
  }
  double error() const { return difference == 0.0 ? 0.0 : std::sqrt(difference / norm); }
};

/// One variable's gradients on all ranks, and their reduction.
struct RankStack {
  Reduction how;
  FloatFormat format;
  int64_t n;
  const std::vector<float>* rows;        ///< [ranks, n]
  const std::vector<float>* takes_part;  ///< by rank
};

ReductionError check_ranks(const RankStack& stack, int64_t ranks) {
  ReductionError row;
  row.ranks = ranks;
  row.n = stack.n;
  Reduction once = stack.how;
  once.algorithm = Reduction::Algorithm::all_to_all;
  const std::vector<RankAddition> chain = rank_additions(once.algorithm, ranks, 0);
  const int64_t chunks = reduction_chunks(stack.how.algorithm, ranks);
  Distance reduced, stored;
  std::vector<float> terms(static_cast<size_t>(ranks)), copy;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::vector<RankAddition> additions = rank_additions(stack.how.algorithm, ranks, chunk);
    const int64_t end = chunk_begin(stack.n, chunks, chunk + 1);
    for (int64_t i = chunk_begin(stack.n, chunks, chunk); i < end; ++i) {
      double mean = 0.0;
      for (size_t rank = 0; rank < terms.size(); ++rank) {
        const size_t place = rank * static_cast<size_t>(stack.n) + static_cast<size_t>(i);
        terms[rank] = (*stack.takes_part)[rank] != 0.0f ? (*stack.rows)[place] : 0.0f;
        mean += static_cast<double>(terms[rank]);
      }
      mean /= static_cast<double>(ranks);
      if (!std::isfinite(mean)) continue;  // not caused by the reduction
      copy = terms;
      const double x =
          static_cast<double>(reduce_element(stack.how, additions, stack.format, terms, &row));
      if (std::isfinite(x)) {
        reduced.add(x, mean);
      } else {
        ++row.broken;
      }
      const double best =
          static_cast<double>(reduce_element(once, chain, stack.format, copy, nullptr));
      if (std::isfinite(best)) stored.add(best, mean);
    }
  }
  row.error = reduced.error();
  row.stored = stored.error();
  return row;
}

}  // namespace

float reduce_element(const Reduction& how, const std::vector<RankAddition>& additions,
                     const FloatFormat& format, std::vector<float>& terms, ReductionError* row) {
  const float ranks = static_cast<float>(terms.size());
  const bool after = how.average == Reduction::Average::after;
  const bool stores_each = how.algorithm != Reduction::Algorithm::all_to_all;
  const auto stored = [&](float x) { return round_to_format(x, format).value; };
  for (float& term : terms) {
    term = stored(term);
    if (!after) term = stored(term / ranks);
  }
  for (const RankAddition& addition : additions) {
    float& to = terms[static_cast<size_t>(addition.to)];
    const float own = to, sent = terms[static_cast<size_t>(addition.from)];
    to = stores_each ? stored(own + sent) : own + sent;
    if (row == nullptr || own == 0.0f || sent == 0.0f) continue;
    ++row->additions;
    row->swamped += to == own || to == sent ? 1 : 0;
  }
  const float sum = terms[additions.empty() ? 0 : static_cast<size_t>(additions.back().to)];
  return stored(after ? sum / ranks : sum);
}

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
      rows.push_back(check_ranks(stack, ranks));
      rows.back().step = step;
      rows.back().site = site;
      if (ranks == executable.ranks) break;
    }
  }
  return rows;
}

}  // namespace halfscope
