// SPDX-License-Identifier: MIT
#include "core/observe/reduction_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/numeric/sums/reduce_ranks.h"

namespace halfscope {
namespace {

constexpr int64_t kMeterBlock = 1024;

Reduction summed_once(Reduction how) {
  how.algorithm = Reduction::Algorithm::all_to_all;
  return how;
}

}  // namespace

void ReductionMeter::Distance::add(double x, double truth) {
  difference += (x - truth) * (x - truth);
  norm += truth * truth;
}

double ReductionMeter::Distance::error() const {
  return difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
}

ReductionMeter::ReductionMeter(const Reduction& how, int64_t ranks, int64_t n, Round round)
    : how_(how),
      once_(summed_once(how)),
      ranks_(ranks),
      n_(n),
      round_(std::move(round)),
      additions_(rank_additions(how.algorithm, ranks, 0)),
      chain_(rank_additions(once_.algorithm, ranks, 0)) {
  seen_.ranks = ranks;
}

void ReductionMeter::add(int64_t begin, int64_t end, const Rows& rows) {
  for (int64_t first = begin; first < end; first += kMeterBlock) {
    add_block(first, std::min(end, first + kMeterBlock), rows, first - begin);
  }
}

ReductionError ReductionMeter::result() const {
  ReductionError row = seen_;
  row.error = reduced_.error();
  row.stored = stored_.error();
  return row;
}

void ReductionMeter::add_block(int64_t begin, int64_t end, const Rows& rows, int64_t offset) {
  const size_t size = static_cast<size_t>(end - begin);
  seen_.n += end - begin;
  mean_.assign(size, 0.0);
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    const float* const row = rows(rank) + offset;
    for (size_t i = 0; i < size; ++i) mean_[i] += static_cast<double>(row[i]);
  }
  finite_.resize(size);
  for (size_t i = 0; i < size; ++i) {
    mean_[i] /= static_cast<double>(ranks_);
    finite_[i] = std::isfinite(mean_[i]) ? 1 : 0;
  }
  reduce(how_, begin, end, rows, offset, &seen_, result_);
  const bool same = how_ == once_;
  if (!same) reduce(once_, begin, end, rows, offset, nullptr, best_);
  for (size_t i = 0; i < size; ++i) {
    if (finite_[i] == 0) continue;  // not caused by the reduction
    const double x = static_cast<double>(result_[i]);
    const double best = same ? x : static_cast<double>(best_[i]);
    if (std::isfinite(x)) {
      reduced_.add(x, mean_[i]);
    } else {
      ++seen_.broken;
    }
    if (std::isfinite(best)) stored_.add(best, mean_[i]);
  }
}

/// Reduces a block. Counts the additions of elements with a finite mean, if `counts` is not null.
void ReductionMeter::reduce(const Reduction& how, int64_t begin, int64_t end, const Rows& rows,
                            int64_t offset, ReductionError* counts, std::vector<float>& out) {
  const int64_t size = end - begin;
  const int64_t chunks = reduction_chunks(how.algorithm, ranks_);
  const bool stores_each = how.algorithm != Reduction::Algorithm::all_to_all;
  out.resize(static_cast<size_t>(size));
  sums_.resize(static_cast<size_t>(size));
  const auto round = [&](float* row) { round_(row, size); };
  const auto load = [&](int64_t place, float* row) {
    for_ranks_at(place, n_, chunks, begin, end, [&](int64_t rank, int64_t first, int64_t last) {
      std::copy_n(rows(rank) + offset + (first - begin), last - first, row + (first - begin));
    });
    round(row);
  };
  const auto add = [&](float* own, const float* sent, bool) {
    float* const sums = sums_.data();
    for (int64_t i = 0; i < size; ++i) sums[i] = own[i] + sent[i];
    if (stores_each) round(sums);
    if (counts != nullptr) {
      const int32_t* const finite = finite_.data();
      int32_t additions = 0, swamped = 0;
      for (int64_t i = 0; i < size; ++i) {
        const int32_t counted = static_cast<int32_t>(own[i] != 0.0f) &
                                static_cast<int32_t>(sent[i] != 0.0f) & finite[i];
        additions += counted;
        swamped += counted & (static_cast<int32_t>(sums[i] == own[i]) |
                              static_cast<int32_t>(sums[i] == sent[i]));
      }
      counts->additions += additions;
      counts->swamped += swamped;
    }
    std::copy_n(sums, size, own);
  };
  const std::vector<RankAddition>& additions = &how == &how_ ? additions_ : chain_;
  reduce_ranks<float>(how, additions, size, load, round, add, out.data());
  round(out.data());
}

}  // namespace halfscope
