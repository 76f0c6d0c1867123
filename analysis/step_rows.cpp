// SPDX-License-Identifier: MIT
#include "analysis/step_rows.h"

#include <fmt/format.h>

#include "analysis/run_schema.h"
#include "core/error.h"

namespace halfscope {
namespace {

using sqlite::Statement;

/// Binds a counter. Missing counters are negative.
void bind_or_null(Statement& insert, int parameter, int64_t value) {
  if (value < 0) {
    insert.bind_null(parameter);
  } else {
    insert.bind(parameter, value);
  }
}

void check_step(const char* what, int64_t of, int64_t step) {
  if (of == step) return;
  throw Error(fmt::format("{} of step {} came with step {}", what, of, step));
}

}  // namespace

const char* const kInsertDeviation =
    "INSERT OR REPLACE INTO deviations VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,"
    "?13,?14,?15,?16,?17,?18,?19)";

void write_deviation(sqlite::Statement& insert, int lane, const Deviation& row) {
  insert.bind(1, row.step);
  insert.bind(2, static_cast<int64_t>(lane));
  insert.bind(3, std::string(deviation_name(row.of)));
  insert.bind(4, row.name);
  insert.bind(5, row.n);
  insert.bind(6, row.broken);
  int parameter = 6;
  for (const double value : {row.error, row.worst, row.ratio, row.spread, row.worst_spread,
                             row.ratio_spread, row.worst_channel, row.worst_channel_spread,
                             row.differences, row.differences_spread, row.noise}) {
    insert.bind(++parameter, value);
  }
  for (const int64_t place : {row.channel_axis, row.channel}) {
    if (place < 0) {
      insert.bind_null(++parameter);
    } else {
      insert.bind(++parameter, place);
    }
  }
  insert.run();
}

StepRows::StepRows(sqlite::Database& database)
    : insert_step_(database, "INSERT INTO steps VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)"),
      insert_error_(database,
                    "INSERT INTO errors VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)"),
      insert_deviation_(database, kInsertDeviation),
      insert_sums_(database, "INSERT INTO sums VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)"),
      insert_kernel_(database,
                     "INSERT INTO kernels VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)"),
      insert_reduction_(database, "INSERT INTO reductions VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)"),
      insert_ranks_(database, "INSERT INTO ranks VALUES(?1,?2,?3,?4,?5)") {}

void StepRows::write(int lane, const StepRow& row) {
  insert_step_.bind(1, row.step);
  insert_step_.bind(2, static_cast<int64_t>(lane));
  insert_step_.bind(3, row.loss);
  insert_step_.bind(4, row.loss_scale);
  insert_step_.bind(5, static_cast<int64_t>(row.skipped));
  insert_step_.bind(6, row.grad_norm);
  insert_step_.bind(7, row.accuracy);
  insert_step_.bind(8, row.ms);
  bind_or_null(insert_step_, 9, row.first_bad);
  insert_step_.bind(10, row.learning_rate);
  insert_step_.run();
}

void StepRows::write(int lane, const SiteError& error, int64_t step) {
  check_step("an error", error.step, step);
  encode_bins(error.ulps, bins_);
  int parameter = 0;
  for (const int64_t value :
       {error.step, static_cast<int64_t>(lane), static_cast<int64_t>(error.site),
        static_cast<int64_t>(error.other_lane), static_cast<int64_t>(error.other_site), error.n,
        error.differing, error.sign_flips}) {
    insert_error_.bind(++parameter, value);
  }
  for (const double value :
       {error.total, error.max_ulps, error.local_fp32, error.local_fp64, error.inherited}) {
    insert_error_.bind(++parameter, value);
  }
  insert_error_.bind(++parameter, std::span<const uint8_t>(bins_));
  insert_error_.run();
}

void StepRows::write(int lane, const Deviation& row) {
  write_deviation(insert_deviation_, lane, row);
}

void StepRows::write(int lane, const SiteSums& sums, int64_t step) {
  check_step("diagnostics", sums.step, step);
  const SumDiagnostics& counts = sums.counts;
  insert_sums_.bind(1, sums.step);
  insert_sums_.bind(2, static_cast<int64_t>(lane));
  insert_sums_.bind(3, static_cast<int64_t>(sums.site));
  insert_sums_.bind(4, sums.layer);
  insert_sums_.bind(5, accumulation_name(sums.accumulation));
  insert_sums_.bind(6, counts.sums);
  insert_sums_.bind(7, counts.products);
  insert_sums_.bind(8, counts.swamped);
  insert_sums_.bind(9, counts.largest);
  insert_sums_.bind(10, counts.overflowed);
  bind_or_null(insert_sums_, 11, counts.first_overflow);
  insert_sums_.run();
}

void StepRows::write(int lane, const KernelCheck& check, int64_t step) {
  check_step("a check", check.step, step);
  insert_kernel_.bind(1, check.step);
  insert_kernel_.bind(2, static_cast<int64_t>(lane));
  insert_kernel_.bind(3, static_cast<int64_t>(check.site));
  insert_kernel_.bind(4, check.n);
  insert_kernel_.bind(5, check.differing);
  insert_kernel_.bind(6, check.max_ulps);
  bind_or_null(insert_kernel_, 7, check.worst);
  bind_or_null(insert_kernel_, 8, check.beyond);
  insert_kernel_.bind(9, check.kernel);
  insert_kernel_.bind(10, check.order);
  insert_kernel_.bind(11, check.sampled);
  insert_kernel_.bind(12, check.explained);
  insert_kernel_.bind(13, check.unexplained);
  insert_kernel_.run();
}

void StepRows::write(int lane, const ReductionError& error, int64_t step) {
  check_step("a reduction", error.step, step);
  int parameter = 0;
  for (const int64_t value :
       {error.step, static_cast<int64_t>(lane), static_cast<int64_t>(error.site), error.ranks,
        error.n, error.broken}) {
    insert_reduction_.bind(++parameter, value);
  }
  insert_reduction_.bind(7, error.error);
  insert_reduction_.bind(8, error.stored);
  insert_reduction_.bind(9, error.additions);
  insert_reduction_.bind(10, error.swamped);
  insert_reduction_.run();
}

void StepRows::write(int lane, const RankSpread& spread, int64_t step) {
  check_step("a disagreement of ranks", spread.step, step);
  insert_ranks_.bind(1, spread.step);
  insert_ranks_.bind(2, static_cast<int64_t>(lane));
  insert_ranks_.bind(3, spread.ranks);
  insert_ranks_.bind(4, spread.skipped);
  insert_ranks_.bind(5, spread.distance);
  insert_ranks_.run();
}

}  // namespace halfscope
