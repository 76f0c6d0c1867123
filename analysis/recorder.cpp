// SPDX-License-Identifier: MIT
// The writer of the run file. In WAL mode with synchronous=NORMAL a commit is a plain append
// without an fsync: a killed process loses nothing that was committed, a power cut at most the last
// steps, and neither damages the file. A step waits in memory until the last lane has reported it,
// because only then it is known whether it is an event; then it is written at once.
#include "analysis/recorder.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/live_writer.h"
#include "analysis/output_file.h"
#include "analysis/packed_stats.h"
#include "analysis/run_description.h"
#include "analysis/run_schema.h"
#include "analysis/run_view.h"
#include "analysis/shared_file.h"
#include "analysis/sqlite.h"
#include "analysis/step_rows.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using sqlite::Access;
using sqlite::Database;
using sqlite::SqliteError;
using sqlite::Statement;
using sqlite::Transaction;

constexpr const char* kSideFiles[] = {"-wal", "-shm", "-journal"};

/// Larger than SQLite's 1000 pages: a checkpoint syncs the disk, so it should be rare.
constexpr const char* kCheckpointPragma = "PRAGMA wal_autocheckpoint=4000";
/// A reader that keeps its snapshot for long makes the WAL grow, because the WAL cannot restart
/// until the reader is gone. Then it is cut back to this many bytes, a little more than 4000 pages
/// need.
constexpr const char* kWalSizePragma = "PRAGMA journal_size_limit=20000000";

bool is_in_use(const fs::path& file) {
  if (has_live_writer(file)) return true;
  try {
    Database database(file, Access::read_write);
    return !sqlite::leave_wal_mode(database);
  } catch (const SqliteError&) {
    return false;  // not a database, damaged, read-only: nobody records into it
  }
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) {
    throw Error(fmt::format("cannot replace '{}': {}", file.string(), error.message()),
                "check the permissions of its folder");
  }
}

/// Creates an empty file of that name. Fails if another process has created it.
void create_file(const fs::path& file, bool force) {
  check_output_file(file, force);
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) {
      throw usage_error(fmt::format("'{}' is not a regular file", file.string()),
                        "choose the name of a regular file");
    }
    if (is_in_use(file)) {
      throw usage_error(fmt::format("'{}' is in use by another program", file.string()),
                        "choose another name; the file may belong to a run in progress");
    }
    remove_file(file);
  }
  for (const char* suffix : kSideFiles) remove_file(sqlite::side_file(file, suffix));

  errno = 0;
  std::FILE* stream = std::fopen(file.c_str(), "wx");
  if (stream == nullptr) {
    const std::error_code reason(errno, std::generic_category());
    throw Error(fmt::format("cannot write '{}': {}", file.string(), reason.message()),
                "choose a folder that you can write to");
  }
  std::fclose(stream);
}

}  // namespace

class Recorder::Writer {
 public:
  Writer(const fs::path& file, const Options& options) : file_(file), windows_(options.limits) {
    create_file(file, options.force);
    try {
      database_.emplace(file, Access::read_write);
      database_->set_busy_timeout(5000);
      if (options.private_until_end) {
        database_->execute("PRAGMA journal_mode=MEMORY");
        database_->execute("PRAGMA synchronous=OFF");
        database_->execute("PRAGMA locking_mode=EXCLUSIVE");
      } else {
        database_->execute("PRAGMA journal_mode=WAL");
        database_->execute("PRAGMA synchronous=NORMAL");
        database_->execute(kCheckpointPragma);
        database_->execute(kWalSizePragma);
      }
      Transaction transaction(*database_, Transaction::Kind::write);
      database_->execute(fmt::format("PRAGMA application_id={}", kApplicationId).c_str());
      database_->execute(fmt::format("PRAGMA user_version={}", kSchemaVersion).c_str());
      database_->execute(kSchemaSql);
      transaction.commit();
      if (!options.private_until_end) lock_.emplace().acquire(file);
    } catch (...) {
      remove_files();
      throw;
    }
  }

  ~Writer() {
    try {
      if (state_ == State::created) remove_files();
      if (state_ == State::running || state_ == State::failed) finish(RunStatus::interrupted);
    } catch (...) {
      // A destructor cannot report this. The file keeps status "running", which readers understand.
    }
  }

  void begin(const RunInfo& run) {
    require(State::created);
    check_site_order(run);
    guard([&] {
      Transaction transaction(*database_, Transaction::Kind::write);
      write_meta(*database_, run);
      for (size_t lane = 0; lane < run.lanes.size(); ++lane) {
        write_lane(*database_, static_cast<int64_t>(lane), run.lanes[lane]);
        site_counts_.push_back(run.lanes[lane].sites.size());
      }
      transaction.commit();
      statements_.emplace(*database_);
      state_ = State::running;
    });
  }

  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) {
    require(State::running);
    if (rows_.empty() && lost_.size() < site_counts_.size()) pass_lost_lanes();
    if (lane != static_cast<int>(due_)) {
      throw Error(fmt::format("got a step of lane {} instead of lane {}", lane, due_));
    }
    const size_t sites = site_counts_[static_cast<size_t>(lane)];
    if (!stats.empty() && stats.size() != sites) {
      throw Error(
          fmt::format("lane {} has {} sites, but got {} statistics", lane, sites, stats.size()));
    }
    if (row.first_bad >= static_cast<int>(sites)) {
      throw Error(fmt::format("lane {} has no site {}", lane, row.first_bad));
    }
    guard([&] {
      require_next(row.step, lane);
      rows_.push_back({lane, row});
      recorded_ = recorded_ || !stats.empty();
      if (stats.empty()) packed_step_.resize(packed_step_.size() + sites, kPackedNothing);
      for (const TensorStats& site : stats) pack_stats(site, packed_step_);
      ++due_;
      pass_lost_lanes();
    });
  }

  void rows(std::span<const StepRow> rows) {
    require(State::running);
    if (site_counts_.size() != 1) throw Error("got rows of a run with several lanes");
    guard([&] {
      Transaction transaction(*database_, statements_->begin, statements_->commit);
      for (const StepRow& row : rows) {
        require_next(row.step, 0);
        statements_->rows.write(0, row);
        last_step_ = row.step;
      }
      transaction.commit();
    });
  }

  void lost(int lane, int64_t step, const std::string& why) {
    require(State::running);
    guard([&] {
      lost_[static_cast<size_t>(lane)] = {{"lane", lane}, {"step", step}, {"why", why}};
      nlohmann::json all = nlohmann::json::array();
      for (const auto& [unused, each] : lost_) all.push_back(each);
      Statement insert(*database_, "INSERT OR REPLACE INTO meta VALUES('lost_lanes',?1)");
      insert.bind(1, to_text(all));
      insert.run();
      if (!rows_.empty()) pass_lost_lanes();
    });
  }

  void observed(const std::vector<std::string>& facts) {
    require(State::running);
    guard([&] {
      Statement insert(*database_, "INSERT OR REPLACE INTO meta VALUES('observed',?1)");
      insert.bind(1, to_text(facts));
      insert.run();
    });
  }

  void error(int lane, const SiteError& error) {
    require(State::running);
    if (!is_site(lane, error.site) || !is_site(error.other_lane, error.other_site) ||
        lane == error.other_lane) {
      throw Error(fmt::format("got an invalid error: lane {}, site {}, lane {}, site {}", lane,
                              error.site, error.other_lane, error.other_site));
    }
    if (!rows_.empty()) throw Error("got an error in the middle of a step");
    errors_.emplace_back(lane, error);
  }

  void sums(int lane, const SiteSums& sums) {
    require(State::running);
    if (!is_site(lane, sums.site)) {
      throw Error(fmt::format("got sums of unknown lane {}, site {}", lane, sums.site));
    }
    if (!rows_.empty()) throw Error("got sums in the middle of a step");
    sums_.emplace_back(lane, sums);
  }

  void kernel(int lane, const KernelCheck& check) {
    require(State::running);
    if (!is_site(lane, check.site)) {
      throw Error(fmt::format("got a check of unknown lane {}, site {}", lane, check.site));
    }
    if (!rows_.empty()) throw Error("got a check in the middle of a step");
    checks_.emplace_back(lane, check);
  }

  void reduction(int lane, const ReductionError& error) {
    require(State::running);
    if (!is_site(lane, error.site)) throw Error("got a reduction of an unknown site");
    if (!rows_.empty()) throw Error("got a reduction in the middle of a step");
    reductions_.emplace_back(lane, error);
  }
  void ranks(int lane, const RankSpread& spread) {
    require(State::running);
    if (!is_lane(lane)) throw Error(fmt::format("got ranks of unknown lane {}", lane));
    spreads_.emplace_back(lane, spread);
  }

  /// Writes the deviation with the next step, or at the end.
  void deviation(int lane, const Deviation& deviation) {
    require(State::running);
    if (!is_lane(lane)) {
      throw Error(fmt::format("got a deviation of unknown lane {}", lane));
    }
    deviations_.emplace_back(lane, deviation);
  }

  /// Commits the evaluation at once. It replaces an earlier one after the same step.
  void eval(int lane, const EvalRow& row) {
    require(State::running);
    if (!is_lane(lane)) {
      throw Error(fmt::format("got an evaluation of unknown lane {}", lane));
    }
    guard([&] {
      Statement& insert = statements_->insert_eval;
      insert.bind(1, row.step);
      insert.bind(2, static_cast<int64_t>(lane));
      insert.bind(3, row.loss);
      insert.bind(4, row.accuracy);
      insert.bind(5, row.auc);
      insert.bind(6, row.mean_iou);
      insert.run();
    });
  }

  void end(RunEnd how) {
    require(State::running);
    guard([&] { finish(status_after(how)); });
  }

 private:
  enum class State : uint8_t { created, running, failed, ended };
  /// Prepared once.
  struct Statements {
    explicit Statements(Database& database)
        : begin(database, "BEGIN IMMEDIATE"),
          commit(database, "COMMIT"),
          insert_eval(database, "INSERT OR REPLACE INTO evals VALUES(?1,?2,?3,?4,?5,?6)"),
          rows(database),
          insert_window(database, "INSERT INTO windows VALUES(?1,?2,?3)"),
          update_window(database, "UPDATE windows SET step_count=?2, stats=?3 WHERE step=?1"),
          select_window(database, "SELECT stats FROM windows WHERE step=?1"),
          delete_window(database, "DELETE FROM windows WHERE step=?1") {}

    Statement begin, commit, insert_eval;
    StepRows rows;
    Statement insert_window, update_window, select_window, delete_window;
  };

  struct LaneRow {
    int lane;
    StepRow row;
  };

  void require(State state) const {
    if (state_ == state) return;
    if (state_ == State::failed) {
      throw Error(
          fmt::format("'{}' is no longer written to after an earlier error", file_.string()));
    }
    throw Error(fmt::format("got calls for '{}' in the wrong order", file_.string()));
  }

  void require_next(int64_t step, int lane) const {
    if (step > last_step_ && (rows_.empty() || step == rows_.front().row.step)) return;
    throw Error(fmt::format("lane {} got step {}, which is not the next one", lane, step));
  }
  bool is_lane(int lane) const {
    return lane >= 0 && static_cast<size_t>(lane) < site_counts_.size();
  }
  bool is_site(int lane, int site) const {
    return is_lane(lane) && site >= 0 &&
           static_cast<size_t>(site) < site_counts_[static_cast<size_t>(lane)];
  }

  /// Drops the open step after a failure and writes no later one, so that the file has no gaps.
  template <typename Work>
  void guard(Work work) {
    try {
      work();
    } catch (...) {
      if (state_ == State::running) state_ = State::failed;
      throw;
    }
  }

  /// Skips failed lanes, which measure nothing. Writes the step when all other lanes have reported.
  void pass_lost_lanes() {
    const size_t lanes = site_counts_.size();
    for (size_t lane = due_; lane < lanes && lost_.contains(lane); lane = ++due_) {
      packed_step_.resize(packed_step_.size() + site_counts_[lane], kPackedNothing);
    }
    if (due_ == lanes) write_step();
  }

  /// Writes the complete step in one transaction.
  void write_step() {
    Statements& sql = *statements_;
    const int64_t step = rows_.front().row.step;
    Transaction transaction(*database_, sql.begin, sql.commit);
    for (const LaneRow& each : rows_) sql.rows.write(each.lane, each.row);
    for (const auto& [lane, error] : errors_) sql.rows.write(lane, error, step);
    write_deviations();
    for (const auto& [lane, sums] : sums_) sql.rows.write(lane, sums, step);
    for (const auto& [lane, check] : checks_) sql.rows.write(lane, check, step);
    for (const auto& [lane, error] : reductions_) sql.rows.write(lane, error, step);
    for (const auto& [lane, spread] : spreads_) sql.rows.write(lane, spread, step);
    if (recorded_) write_window(step);
    transaction.commit();
    last_step_ = step;
    rows_.clear();
    due_ = 0;
    errors_.clear();
    sums_.clear();
    checks_.clear();
    reductions_.clear();
    spreads_.clear();
    packed_step_.clear();
    recorded_ = false;
  }

  void write_window(int64_t step) {
    const auto is_event = [](const LaneRow& each) {
      return each.row.skipped || each.row.first_bad >= 0;
    };
    const bool event = std::any_of(rows_.begin(), rows_.end(), is_event);
    const WindowList::Change change = windows_.add(step, event);
    if (change.grows) {
      merge(packed_last_, packed_step_);
      packed_last_.swap(scratch_);
      update_window(change.window.step, change.window.step_count(), packed_last_);
    } else {
      packed_last_.swap(packed_step_);
      Statement& insert = statements_->insert_window;
      insert.bind(1, step);
      insert.bind(2, int64_t{1});
      insert.bind(3, std::span<const uint8_t>(packed_last_));
      insert.run();
    }
    if (change.merge) merge_rows(*change.merge);
  }

  void update_window(int64_t step, int64_t step_count, std::span<const uint8_t> stats) {
    Statement& update = statements_->update_window;
    update.bind(1, step);
    update.bind(2, step_count);
    update.bind(3, stats);
    update.run();
  }

  void merge_rows(const WindowList::Merge& rows) {
    const std::vector<uint8_t> first = stored_window(rows.step);
    merge(first, stored_window(rows.removed));
    update_window(rows.step, rows.step_count, scratch_);
    Statement& remove = statements_->delete_window;
    remove.bind(1, rows.removed);
    remove.run();
  }

  std::vector<uint8_t> stored_window(int64_t step) {
    Statement& select = statements_->select_window;
    select.bind(1, step);
    if (!select.step()) database_->fail_damaged("a window is missing");
    const std::span<const uint8_t> stats = select.blob(0);
    std::vector<uint8_t> copy(stats.begin(), stats.end());
    select.reset();
    return copy;
  }

  /// Writes the result to scratch_.
  void merge(std::span<const uint8_t> first, std::span<const uint8_t> second) {
    if (!merge_packed(first, second, scratch_)) database_->fail_damaged("a window is invalid");
  }

  void write_deviations() {
    for (const auto& [lane, each] : deviations_) statements_->rows.write(lane, each);
    deviations_.clear();
  }

  /// Closes the run: sets the status and turns the file and its WAL into one plain file.
  void finish(RunStatus status) {
    {
      Transaction transaction(*database_, statements_->begin, statements_->commit);
      write_deviations();
      transaction.commit();
      Statement update(*database_, "UPDATE meta SET value=?1 WHERE key='status'");
      update.bind(1, status_name(status));
      update.run();
    }
    state_ = State::ended;
    statements_.reset();
    // While a program is reading, the file stays in WAL mode, which readers can read as well.
    database_->set_busy_timeout(0);
    sqlite::leave_wal_mode(*database_);
    database_.reset();
    lock_.reset();
  }

  void remove_files() {
    statements_.reset();
    database_.reset();
    std::error_code ignored;
    for (const char* suffix : kSideFiles) fs::remove(sqlite::side_file(file_, suffix), ignored);
    fs::remove(file_, ignored);
  }

  fs::path file_;
  State state_ = State::created;
  std::vector<size_t> site_counts_;  // by lane
  int64_t last_step_ = -1;
  WindowList windows_;

  // The current step.
  std::vector<LaneRow> rows_;  // of the lanes that have come
  size_t due_ = 0;             // the lane whose step comes next
  std::map<size_t, nlohmann::json> lost_;
  std::vector<std::pair<int, SiteError>> errors_;
  std::vector<std::pair<int, Deviation>> deviations_;
  std::vector<std::pair<int, SiteSums>> sums_;
  std::vector<std::pair<int, KernelCheck>> checks_;
  std::vector<std::pair<int, ReductionError>> reductions_;
  std::vector<std::pair<int, RankSpread>> spreads_;
  bool recorded_ = false;             // some lane came with statistics
  std::vector<uint8_t> packed_step_;  // its statistics, all lanes
  std::vector<uint8_t> packed_last_;  // those of the last window
  std::vector<uint8_t> scratch_;
  // The order matters: statements end before the database does, and that before the lock.
  std::optional<WriterLock> lock_;
  std::optional<Database> database_;
  std::optional<Statements> statements_;
};

Recorder::Recorder(const fs::path& file) : Recorder(file, Options{}) {}
Recorder::Recorder(const fs::path& file, Options options)
    : writer_(std::make_unique<Writer>(file, options)) {}
Recorder::~Recorder() = default;
void Recorder::begin(const RunInfo& run) { writer_->begin(run); }
void Recorder::step(int lane, const StepRow& row, std::span<const TensorStats> stats) {
  writer_->step(lane, row, stats);
}
void Recorder::rows(std::span<const StepRow> rows) { writer_->rows(rows); }
void Recorder::eval(int lane, const EvalRow& row) { writer_->eval(lane, row); }
void Recorder::observed(const std::vector<std::string>& facts) { writer_->observed(facts); }
void Recorder::error(int lane, const SiteError& error) { writer_->error(lane, error); }
void Recorder::sums(int lane, const SiteSums& sums) { writer_->sums(lane, sums); }
void Recorder::deviation(int lane, const Deviation& deviation) {
  writer_->deviation(lane, deviation);
}
void Recorder::kernel(int lane, const KernelCheck& check) { writer_->kernel(lane, check); }
void Recorder::reduction(int lane, const ReductionError& row) { writer_->reduction(lane, row); }
void Recorder::ranks(int lane, const RankSpread& spread) { writer_->ranks(lane, spread); }
void Recorder::lost(int lane, int64_t step, const std::string& why) {
  writer_->lost(lane, step, why);
}
void Recorder::end(RunEnd how) { writer_->end(how); }

}  // namespace halfscope
