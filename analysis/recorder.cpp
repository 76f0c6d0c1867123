// SPDX-License-Identifier: MIT
// The run file's writer. In WAL mode with synchronous=NORMAL a commit is a plain append without
// an fsync: a killed process loses nothing that was committed, a power cut at most the last
// steps, and neither damages the file.
#include "analysis/recorder.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "analysis/output_file.h"
#include "analysis/run_schema.h"
#include "analysis/run_view.h"
#include "analysis/sqlite.h"
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

/// Readers hold a run file for milliseconds; a writer holds it as long as it lives.
constexpr int kLockAttempts = 50;
constexpr std::chrono::milliseconds kLockPause{20};

/// Larger than SQLite's 1000 pages: a checkpoint syncs the disk, so it should be rare.
constexpr const char* kCheckpointPragma = "PRAGMA wal_autocheckpoint=4000";

/// Leaves WAL mode, which needs the file for itself. False if somebody else has it open.
bool leave_wal_mode(Database& database) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kLockPause);
    try {
      if (database.query_text("PRAGMA journal_mode=DELETE") == "delete") return true;
    } catch (const SqliteError& error) {
      if (error.primary_code() != SQLITE_BUSY && error.primary_code() != SQLITE_LOCKED) throw;
    }
  }
  return false;
}

bool is_in_use(const fs::path& file) {
  try {
    Database database(file, Access::read_write);
    return !leave_wal_mode(database);
  } catch (const SqliteError&) {
    return false;  // not a database, damaged, read-only: nobody records into it
  }
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) {
    throw Error(fmt::format("cannot replace {}: {}", file.string(), error.message()),
                "check the permissions of its folder");
  }
}

/// Makes an empty file of that name, and no other process can have made it.
void create_file(const fs::path& file, bool force) {
  check_output_file(file, force);
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) {
      throw usage_error(fmt::format("{} is not a plain file", file.string()),
                        "a run file needs a plain file");
    }
    if (is_in_use(file)) {
      throw usage_error(fmt::format("{} is in use by another program", file.string()),
                        "it may be a run that is still going on; choose another name");
    }
    remove_file(file);
  }
  for (const char* suffix : kSideFiles) remove_file(sqlite::side_file(file, suffix));

  errno = 0;
  std::FILE* stream = std::fopen(file.c_str(), "wx");
  if (stream == nullptr) {
    const std::error_code reason(errno, std::generic_category());
    throw Error(fmt::format("cannot write {}: {}", file.string(), reason.message()),
                "choose a folder you may write to");
  }
  std::fclose(stream);
}

/// JSON text whatever bytes the strings hold.
std::string to_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_lane(Database& database, int64_t index, const LaneInfo& lane) {
  Statement insert_lane(database, "INSERT INTO lanes VALUES(?1,?2,?3,?4)");
  insert_lane.bind(1, index);
  insert_lane.bind(2, lane.name);
  insert_lane.bind(3, lane.backend);
  insert_lane.bind(4, lane.plan_json);
  insert_lane.run();

  Statement insert_layer(database, "INSERT INTO layers VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  for (size_t i = 0; i < lane.layers.size(); ++i) {
    const LayerInfo& layer = lane.layers[i];
    insert_layer.bind(1, index);
    insert_layer.bind(2, static_cast<int64_t>(i));
    insert_layer.bind(3, layer.path);
    insert_layer.bind(4, layer.op);
    insert_layer.bind(5, to_text(layer.inputs));
    insert_layer.bind(6, format_name(layer.read));
    insert_layer.bind(7, format_name(layer.write));
    insert_layer.bind(8, static_cast<int64_t>(layer.follows));
    insert_layer.bind(9, layer.parameters);
    insert_layer.run();
  }

  Statement insert_site(database, "INSERT INTO sites VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  for (const SiteInfo& site : lane.sites) {
    insert_site.bind(1, index);
    insert_site.bind(2, static_cast<int64_t>(site.order));
    insert_site.bind(3, site.path);
    insert_site.bind(4, site.tensor);
    insert_site.bind(5, role_name(site.role));
    insert_site.bind(6, phase_name(site.phase));
    insert_site.bind(7, site.op);
    insert_site.bind(8, format_name(site.format));
    insert_site.bind(9, to_text(site.shape));
    insert_site.run();
  }
}

void write_meta(Database& database, const RunInfo& run) {
  Statement insert(database, "INSERT INTO meta VALUES(?1,?2)");
  const auto put = [&insert](const char* key, const std::string& value) {
    insert.bind(1, key);
    insert.bind(2, value);
    insert.run();
  };
  put("status", status_name(RunStatus::running));
  put("model", run.model);
  put("data", run.data);
  put("optimizer", run.optimizer);
  put("command", run.command);
  put("batch", std::to_string(run.batch));
  put("steps_planned", std::to_string(run.steps_planned));
  put("classes", std::to_string(run.classes));
  put("train_samples", std::to_string(run.train_samples));
  put("test_samples", std::to_string(run.test_samples));
  put("seed", std::to_string(run.seed));
  put("threads", std::to_string(run.threads));
  put("every", std::to_string(run.every));
  put("isa", run.isa);
  put("version", run.version);
}

}  // namespace

class Recorder::Writer {
 public:
  Writer(const fs::path& file, bool force) : file_(file) {
    create_file(file, force);
    try {
      database_.emplace(file, Access::read_write);
      database_->set_busy_timeout(5000);
      database_->execute("PRAGMA journal_mode=WAL");
      database_->execute("PRAGMA synchronous=NORMAL");
      database_->execute(kCheckpointPragma);
      Transaction transaction(*database_, Transaction::Kind::write);
      database_->execute(fmt::format("PRAGMA application_id={}", kApplicationId).c_str());
      database_->execute(fmt::format("PRAGMA user_version={}", kSchemaVersion).c_str());
      database_->execute(kSchemaSql);
      transaction.commit();
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
      // Nobody is left to tell. The file keeps status "running", which readers understand.
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
      insert_step_.emplace(*database_, "INSERT INTO steps VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
      insert_eval_.emplace(*database_, "INSERT INTO evals VALUES(?1,?2,?3,?4)");
      insert_stats_.emplace(*database_,
                            "INSERT INTO stats VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,"
                            "?13,?14,?15,?16,?17,?18)");
      state_ = State::running;
    });
  }

  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) {
    require(State::running);
    if (lane != next_lane_ || static_cast<size_t>(lane) >= site_counts_.size()) {
      throw Error(fmt::format("a step of lane {} came where lane {} was due", lane, next_lane_));
    }
    if (!stats.empty() && stats.size() != site_counts_[static_cast<size_t>(lane)]) {
      throw Error(fmt::format("lane {} has {} sites, but {} statistics came", lane,
                              site_counts_[static_cast<size_t>(lane)], stats.size()));
    }
    if (row.first_bad >= static_cast<int>(site_counts_[static_cast<size_t>(lane)])) {
      throw Error(fmt::format("lane {} has no site {}", lane, row.first_bad));
    }
    guard([&] {
      if (lane == 0) step_transaction_.emplace(*database_, Transaction::Kind::write);
      write_step(lane, row);
      for (size_t site = 0; site < stats.size(); ++site) {
        if (stats[site].n > 0) write_stats(lane, row.step, static_cast<int64_t>(site), stats[site]);
      }
      next_lane_ = lane + 1;
      if (static_cast<size_t>(next_lane_) == site_counts_.size()) {
        step_transaction_->commit();
        step_transaction_.reset();
        next_lane_ = 0;
      }
    });
  }

  /// Outside a step it is committed at once, inside one with the step.
  void eval(int lane, const EvalRow& row) {
    require(State::running);
    if (lane < 0 || static_cast<size_t>(lane) >= site_counts_.size()) {
      throw Error(fmt::format("an evaluation of lane {} came, which does not exist", lane));
    }
    guard([&] {
      insert_eval_->bind(1, row.step);
      insert_eval_->bind(2, static_cast<int64_t>(lane));
      insert_eval_->bind(3, row.loss);
      insert_eval_->bind(4, row.accuracy);
      insert_eval_->run();
    });
  }

  void end(bool interrupted) {
    require(State::running);
    guard([&] { finish(interrupted ? RunStatus::interrupted : RunStatus::complete); });
  }

 private:
  enum class State : uint8_t { created, running, failed, ended };

  void require(State state) const {
    if (state_ == state) return;
    if (state_ == State::failed) {
      throw Error(fmt::format("nothing more is written to {} after an earlier error",
                              file_.string()));
    }
    throw Error(fmt::format("the calls that record to {} came in the wrong order",
                            file_.string()));
  }

  /// After a failure the open step is dropped and no later one is written, so that the file
  /// has no gaps.
  template <typename Work>
  void guard(Work work) {
    try {
      work();
    } catch (...) {
      step_transaction_.reset();
      if (state_ == State::running) state_ = State::failed;
      throw;
    }
  }

  void write_step(int lane, const StepRow& row) {
    Statement& insert = *insert_step_;
    insert.bind(1, row.step);
    insert.bind(2, static_cast<int64_t>(lane));
    insert.bind(3, row.loss);
    insert.bind(4, row.loss_scale);
    insert.bind(5, static_cast<int64_t>(row.skipped));
    insert.bind(6, row.grad_norm);
    insert.bind(7, row.accuracy);
    insert.bind(8, row.ms);
    if (row.first_bad < 0) {
      insert.bind_null(9);
    } else {
      insert.bind(9, static_cast<int64_t>(row.first_bad));
    }
    insert.run();
  }

  void write_stats(int lane, int64_t step, int64_t site, const TensorStats& stats) {
    encode_exponents(stats.exponents, blob_);
    Statement& insert = *insert_stats_;
    int parameter = 0;
    for (const int64_t value : {step, static_cast<int64_t>(lane), site, int64_t{1}, stats.n,
                                stats.zero, stats.pos_inf, stats.neg_inf, stats.nan,
                                stats.overflow, stats.underflow, stats.subnormal, stats.lost}) {
      insert.bind(++parameter, value);
    }
    insert.bind(++parameter, static_cast<double>(stats.max_abs));
    if (std::isinf(stats.min_abs)) {  // there is no non-zero value
      insert.bind_null(++parameter);
    } else {
      insert.bind(++parameter, static_cast<double>(stats.min_abs));
    }
    insert.bind(++parameter, stats.sum);
    insert.bind(++parameter, stats.sum_sq);
    insert.bind(++parameter, std::span<const uint8_t>(blob_));
    insert.run();
  }

  /// Closes the run: sets the status and turns the file and its WAL into one plain file.
  void finish(RunStatus status) {
    step_transaction_.reset();  // a step that not all lanes have finished
    {
      Statement update(*database_, "UPDATE meta SET value=?1 WHERE key='status'");
      update.bind(1, status_name(status));
      update.run();
    }
    state_ = State::ended;
    // If somebody is reading right now the file stays in WAL mode, which is as good to read.
    database_->set_busy_timeout(0);
    leave_wal_mode(*database_);
    close();
  }

  void close() {
    step_transaction_.reset();
    insert_step_.reset();
    insert_stats_.reset();
    insert_eval_.reset();
    database_.reset();
  }

  void remove_files() {
    close();
    std::error_code ignored;
    for (const char* suffix : kSideFiles) fs::remove(sqlite::side_file(file_, suffix), ignored);
    fs::remove(file_, ignored);
  }

  fs::path file_;
  State state_ = State::created;
  std::vector<size_t> site_counts_;  // by lane
  int next_lane_ = 0;
  std::vector<uint8_t> blob_;
  // The order matters: statements and the transaction end before the database does.
  std::optional<Database> database_;
  std::optional<Statement> insert_step_, insert_stats_, insert_eval_;
  std::optional<Transaction> step_transaction_;
};

Recorder::Recorder(const fs::path& file) : Recorder(file, Options{}) {}

Recorder::Recorder(const fs::path& file, Options options)
    : writer_(std::make_unique<Writer>(file, options.force)) {}

Recorder::~Recorder() = default;

void Recorder::begin(const RunInfo& run) { writer_->begin(run); }

void Recorder::step(int lane, const StepRow& row, std::span<const TensorStats> stats) {
  writer_->step(lane, row, stats);
}

void Recorder::eval(int lane, const EvalRow& row) { writer_->eval(lane, row); }

void Recorder::end(bool interrupted) { writer_->end(interrupted); }

}  // namespace halfscope
