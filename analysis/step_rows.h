// SPDX-License-Identifier: MIT
// StepRows: writes the rows of one step into a run file, within a transaction of the caller.
// Private to analysis.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/sqlite.h"
#include "core/observe/recording.h"

namespace halfscope {

/// SQL that inserts a row of the table `deviations`, and the function that binds and runs it.
extern const char* const kInsertDeviation;
void write_deviation(sqlite::Statement& insert, int lane, const Deviation& deviation);

class StepRows {
 public:
  explicit StepRows(sqlite::Database& database);

  void write(int lane, const StepRow& row);
  /// Replaces the row of the same lane, step, kind and name.
  void write(int lane, const Deviation& deviation);
  /// These write rows of `step` and throw Error for rows of another step.
  void write(int lane, const SiteError& error, int64_t step);
  void write(int lane, const SiteSums& sums, int64_t step);
  void write(int lane, const KernelCheck& check, int64_t step);
  void write(int lane, const ReductionError& error, int64_t step);
  void write(int lane, const RankSpread& spread, int64_t step);

 private:
  sqlite::Statement insert_step_, insert_error_, insert_deviation_, insert_sums_, insert_kernel_,
      insert_reduction_, insert_ranks_;
  std::vector<uint8_t> bins_;
};

}  // namespace halfscope
