// SPDX-License-Identifier: MIT
#include "analysis/study/study_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "analysis/live_writer.h"
#include "analysis/shared_file.h"
#include "analysis/study/study_schema.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using sqlite::Access;
using sqlite::Database;
using sqlite::SqliteError;
using sqlite::Statement;
using sqlite::Transaction;

/// Creates the file if it does not exist. Returns whether it is empty.
bool prepare_study_file(const fs::path& file) {
  errno = 0;
  std::FILE* stream = std::fopen(file.c_str(), "ab");
  if (stream == nullptr) {
    const std::error_code reason(errno, std::generic_category());
    throw Error(fmt::format("cannot write '{}': {}", file.string(), reason.message()),
                "choose a folder that you can write to with --out");
  }
  std::fclose(stream);
  return fs::file_size(file) == 0;
}

void bind_text(Statement& statement, int parameter, const std::string& text) {
  if (text.empty()) {
    statement.bind_null(parameter);
  } else {
    statement.bind(parameter, std::string_view(text));
  }
}

std::span<const uint8_t> bytes_of(const std::vector<CurvePoint>& curve) {
  return {reinterpret_cast<const uint8_t*>(curve.data()), curve.size() * sizeof(CurvePoint)};
}

}  // namespace

class StudyFile::Writer {
 public:
  Writer(const fs::path& file, const StudyInfo& info, std::span<const TrialSpec> trials,
         const std::function<void()>& before_replacing) {
    const bool empty = prepare_study_file(file);
    database_.emplace(file, Access::read_write);
    database_->set_busy_timeout(5000);
    if (!empty) check_study_schema(*database_);
    database_->execute("PRAGMA journal_mode=WAL");
    database_->execute("PRAGMA synchronous=NORMAL");
    {
      Transaction transaction(*database_, Transaction::Kind::write);
      database_->execute(fmt::format("PRAGMA application_id={}", kStudyApplicationId).c_str());
      database_->execute(fmt::format("PRAGMA user_version={}", kStudySchemaVersion).c_str());
      if (database_->query_integer("SELECT COUNT(*) FROM sqlite_master") == 0) {
        database_->execute(kStudySchemaSql);
        write_study(info, trials);  // readers never see a study without trials
      }
      transaction.commit();
    }
    // Nothing was replaced so far, so a study that another process writes is still whole.
    lock(file);
    if (before_replacing) before_replacing();
    transaction_.emplace(*database_, Transaction::Kind::write);
    write_study(info, trials);
    update_.emplace(*database_,
                    "UPDATE trials SET status=?2, error=?3, steps=?4, skipped=?5, loss=?6, "
                    "test_loss=?7, accuracy=?8, first_bad_step=?9, first_bad_layer=?10, "
                    "first_bad_role=?11, cause=?12, cause_layer=?13, headline=?14, bits=?15, "
                    "curve=?16, seconds=?17, worker=?18 WHERE trial=?1");
  }

  ~Writer() {
    try {
      commit();
      update_.reset();
      database_->set_busy_timeout(0);
      // While a program is reading, the file stays in WAL mode, which readers can read as well.
      sqlite::leave_wal_mode(*database_);
    } catch (...) {
      // A destructor cannot report this. The run files say the same.
    }
  }

  void write(int trial, const TrialResult& result) {
    if (!transaction_) transaction_.emplace(*database_, Transaction::Kind::write);
    Statement& update = *update_;
    update.bind(1, static_cast<int64_t>(trial));
    update.bind(2, std::string_view(trial_status_name(result.status)));
    bind_text(update, 3, result.error);
    if (result.status == TrialStatus::done) {
      update.bind(4, result.steps);
      update.bind(5, result.skipped);
    } else {
      update.bind_null(4);
      update.bind_null(5);
    }
    update.bind(6, result.loss);
    update.bind(7, result.test_loss);
    update.bind(8, result.accuracy);
    if (result.first_bad) {
      update.bind(9, result.first_bad->step);
    } else {
      update.bind_null(9);
    }
    bind_text(update, 10, result.first_bad ? result.first_bad->layer : "");
    bind_text(update, 11, result.first_bad ? result.first_bad->role : "");
    bind_text(update, 12, result.cause);
    bind_text(update, 13, result.cause_layer);
    bind_text(update, 14, result.headline);
    update.bind(15, result.bits);
    if (result.curve.empty()) {
      update.bind_null(16);
    } else {
      update.bind(16, bytes_of(result.curve));
    }
    update.bind(17, result.seconds);
    bind_text(update, 18, result.worker);
    update.run();
  }

  void commit() {
    if (!transaction_) return;
    transaction_->commit();
    transaction_.reset();
  }

 private:
  void lock(const fs::path& file) {
    try {
      lock_.acquire(file);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      throw usage_error(fmt::format("another sweep is writing '{}'", file.string()),
                        "wait until it ends, or choose another folder with --out");
    }
  }

  void write_study(const StudyInfo& info, std::span<const TrialSpec> trials) {
    database_->execute("DELETE FROM study; DELETE FROM axes; DELETE FROM trials");
    Statement study(*database_, "INSERT INTO study VALUES(?1,?2,?3,?4,?5)");
    study.bind(1, std::string_view(info.name));
    study.bind(2, std::string_view(info.json));
    study.bind(3, std::string_view(info.version));
    bind_text(study, 4, info.baseline);
    study.bind(5, info.tolerance);
    study.run();
    Statement axes(*database_, "INSERT INTO axes VALUES(?1,?2,?3,?4)");
    for (size_t axis = 0; axis < info.axes.size(); ++axis) {
      for (size_t place = 0; place < info.axes[axis].values.size(); ++place) {
        axes.bind(1, static_cast<int64_t>(axis));
        axes.bind(2, std::string_view(info.axes[axis].name));
        axes.bind(3, static_cast<int64_t>(place));
        axes.bind(4, std::string_view(info.axes[axis].values[place]));
        axes.run();
      }
    }
    Statement rows(*database_,
                   "INSERT INTO trials(trial, hash, baseline, places, base, command, run, status) "
                   "VALUES(?1,?2,?3,?4,?5,?6,?7,'waiting')");
    for (size_t trial = 0; trial < trials.size(); ++trial) {
      const TrialSpec& spec = trials[trial];
      rows.bind(1, static_cast<int64_t>(trial));
      rows.bind(2, std::string_view(spec.hash));
      rows.bind(3, int64_t{spec.baseline});
      rows.bind(4, std::string_view(nlohmann::json(spec.places).dump()));
      if (spec.base) {
        rows.bind(5, static_cast<int64_t>(*spec.base));
      } else {
        rows.bind_null(5);
      }
      rows.bind(6, std::string_view(spec.command));
      rows.bind(7, std::string_view(spec.run));
      rows.run();
    }
  }

  std::optional<Database> database_;
  WriterLock lock_;
  std::optional<Transaction> transaction_;
  std::optional<Statement> update_;
};

StudyFile::StudyFile(const fs::path& file, const StudyInfo& info, std::span<const TrialSpec> trials,
                     const std::function<void()>& before_replacing) {
  try {
    writer_ = std::make_unique<Writer>(file, info, trials, before_replacing);
  } catch (const SqliteError& error) {
    throw study_error(error, file);
  }
}

StudyFile::~StudyFile() = default;

void StudyFile::write(int trial, const TrialResult& result) { writer_->write(trial, result); }

void StudyFile::commit() { writer_->commit(); }

}  // namespace halfscope
