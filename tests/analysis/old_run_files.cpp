// SPDX-License-Identifier: MIT
#include "tests/analysis/old_run_files.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/recorder.h"
#include "analysis/run_schema.h"
#include "analysis/sqlite.h"
#include "tests/analysis/sample_run.h"

namespace halfscope::test {
namespace {

namespace fs = std::filesystem;
using sqlite::Database;
using sqlite::Statement;

constexpr const char* kVersion1 = R"sql(
PRAGMA application_id=0x48534350;
PRAGMA user_version=1;
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE lanes(lane INTEGER PRIMARY KEY, name TEXT NOT NULL, backend TEXT NOT NULL,
  plan TEXT NOT NULL);
CREATE TABLE layers(lane INTEGER NOT NULL, layer INTEGER NOT NULL, path TEXT NOT NULL,
  op TEXT NOT NULL, inputs TEXT NOT NULL, read TEXT NOT NULL, write TEXT NOT NULL,
  follows INTEGER NOT NULL, parameters INTEGER NOT NULL, PRIMARY KEY(lane, layer)) WITHOUT ROWID;
CREATE TABLE sites(lane INTEGER NOT NULL, site INTEGER NOT NULL, path TEXT NOT NULL,
  tensor TEXT NOT NULL, role TEXT NOT NULL, phase TEXT NOT NULL, op TEXT NOT NULL,
  format TEXT NOT NULL, shape TEXT NOT NULL, PRIMARY KEY(lane, site)) WITHOUT ROWID;
CREATE TABLE steps(step INTEGER NOT NULL, lane INTEGER NOT NULL, loss REAL, loss_scale REAL,
  skipped INTEGER NOT NULL, grad_norm REAL, accuracy REAL, ms REAL, first_bad INTEGER,
  PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE evals(step INTEGER NOT NULL, lane INTEGER NOT NULL, loss REAL, accuracy REAL,
  PRIMARY KEY(step, lane)) WITHOUT ROWID;
CREATE TABLE stats(step INTEGER NOT NULL, lane INTEGER NOT NULL, site INTEGER NOT NULL,
  step_count INTEGER NOT NULL, n INTEGER NOT NULL, zero INTEGER NOT NULL,
  pos_inf INTEGER NOT NULL, neg_inf INTEGER NOT NULL, nan INTEGER NOT NULL,
  overflow INTEGER NOT NULL, underflow INTEGER NOT NULL, subnormal INTEGER NOT NULL,
  lost INTEGER NOT NULL, max_abs REAL NOT NULL, min_abs REAL, sum REAL NOT NULL,
  sum_sq REAL NOT NULL, exponents BLOB NOT NULL, PRIMARY KEY(step, lane, site)) WITHOUT ROWID;
)sql";

/// Runs `sql` with the values bound in order; a double that is NaN, and null, are NULL.
class Insert {
 public:
  Insert(Database& database, const char* sql) : statement_(database, sql) {}

  template <typename... Values>
  void operator()(const Values&... values) {
    int parameter = 0;
    (bind(++parameter, values), ...);
    statement_.run();
  }

 private:
  void bind(int parameter, int64_t value) { statement_.bind(parameter, value); }
  void bind(int parameter, double value) { statement_.bind(parameter, value); }
  void bind(int parameter, const std::string& value) { statement_.bind(parameter, value); }
  void bind(int parameter, const std::vector<uint8_t>& value) {
    statement_.bind(parameter, std::span<const uint8_t>(value));
  }

  Statement statement_;
};

constexpr double kNull = std::numeric_limits<double>::quiet_NaN();

void write_rows(Database& database, const RunView& run) {
  Insert insert_step(database, "INSERT INTO steps VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  Insert insert_bad(database, "UPDATE steps SET first_bad=?1 WHERE step=?2 AND lane=?3");
  Insert insert_eval(database, "INSERT INTO evals VALUES(?1,?2,?3,?4)");
  Insert insert_stats(database,
                      "INSERT INTO stats VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,"
                      "?15,?16,?17,?18)");
  for (int64_t lane = 0; lane < run.lane_count(); ++lane) {
    const int index = static_cast<int>(lane);
    for (const StepRow& row : run.steps(index)) {
      insert_step(row.step, lane, row.loss, row.loss_scale, int64_t{row.skipped}, row.grad_norm,
                  row.accuracy, row.ms, kNull);
      if (row.first_bad >= 0) insert_bad(int64_t{row.first_bad}, row.step, lane);
    }
    for (const EvalRow& row : run.evals(index)) {
      insert_eval(row.step, lane, row.loss, row.accuracy);
    }
    for (const SiteInfo& site : run.lane(index).sites) {
      for (const StatsWindow& window : run.windows(index, site.order)) {
        const TensorStats& s = window.stats;
        std::vector<uint8_t> exponents;
        encode_bins(s.exponents, exponents);
        insert_stats(window.step, lane, int64_t{site.order}, window.step_count, s.n, s.zero,
                     s.pos_inf, s.neg_inf, s.nan, s.overflow, s.underflow, s.subnormal, s.lost,
                     static_cast<double>(s.max_abs),
                     std::isinf(s.min_abs) ? kNull : static_cast<double>(s.min_abs), s.sum,
                     s.sum_sq, exponents);
      }
    }
  }
}

}  // namespace

void write_version_1(const fs::path& file, const RunView& run) {
  write_text(file, "");
  Database database(file, sqlite::Access::read_write);
  database.execute(kVersion1);
  sqlite::Transaction transaction(database, sqlite::Transaction::Kind::write);
  const RunInfo& info = run.info();
  Insert meta(database, "INSERT INTO meta VALUES(?1,?2)");
  const std::pair<std::string, std::string> entries[] = {
      {"status", status_name(run.status())},
      {"model", info.model},
      {"data", info.data},
      {"optimizer", info.optimizer},
      {"command", info.command},
      {"batch", std::to_string(info.batch)},
      {"steps_planned", std::to_string(info.steps_planned)},
      {"classes", std::to_string(info.classes)},
      {"train_samples", std::to_string(info.train_samples)},
      {"test_samples", std::to_string(info.test_samples)},
      {"seed", std::to_string(info.seed)},
      {"threads", std::to_string(info.threads)},
      {"every", std::to_string(info.every)},
      {"isa", info.isa},
      {"version", info.version}};
  for (const auto& [key, value] : entries) meta(key, value);
  Insert insert_lane(database, "INSERT INTO lanes VALUES(?1,?2,?3,?4)");
  Insert insert_layer(database, "INSERT INTO layers VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  Insert insert_site(database, "INSERT INTO sites VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  for (int64_t index = 0; index < run.lane_count(); ++index) {
    const LaneInfo& lane = run.lane(static_cast<int>(index));
    insert_lane(index, lane.name, lane.backend, lane.plan_json);
    int64_t number = 0;
    for (const LayerInfo& layer : lane.layers) {
      insert_layer(index, number++, layer.path, layer.op, nlohmann::json(layer.inputs).dump(),
                   format_name(layer.read), format_name(layer.write), int64_t{layer.follows},
                   layer.parameters);
    }
    for (const SiteInfo& site : lane.sites) {
      insert_site(index, int64_t{site.order}, site.path, site.tensor,
                  std::string(role_name(site.role)), std::string(phase_name(site.phase)), site.op,
                  format_name(site.format), nlohmann::json(site.shape).dump());
    }
  }
  write_rows(database, run);
  transaction.commit();
}

RunView sample_of_version_1() {
  RunInfo info = sample_info();
  info.settings.clear();
  for (LaneInfo& lane : info.lanes) lane.loss_scale.clear();
  RunView view(info, RunStatus::complete);
  for (int lane = 0; lane < view.lane_count(); ++lane) {
    for (int64_t step = 0; step < 6; ++step) {
      StepRow row = sample_step(lane, step);
      row.learning_rate = kNull;
      view.add_step(lane, row);
      for (const SiteInfo& site : info.lanes[0].sites) {
        const TensorStats stats = sample_stats(lane, step, site.order);
        if (stats.n > 0) view.add_window(lane, site.order, {step, 1, stats});
      }
    }
    view.add_eval(lane, {6, 0.25, 0.9});
  }
  return view;
}

void write_version_2(const fs::path& file) {
  write_version_3(file);
  Database(file, sqlite::Access::read_write)
      .execute("ALTER TABLE sites DROP COLUMN scale; DROP TABLE sums; PRAGMA user_version=2");
}

void write_version_3(const fs::path& file) {
  {
    Recorder recorder(file);
    send_run(recorder, sample_info(), 3);
  }
  Database(file, sqlite::Access::read_write).execute("DROP TABLE kernels; PRAGMA user_version=3");
}

}  // namespace halfscope::test
