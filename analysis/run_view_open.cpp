// SPDX-License-Identifier: MIT
// RunView::open: reads a run file (docs/reference/files.md) in one read transaction, live
// or finished. Nothing in the file is believed: each value is checked before it is used as an
// index or a size, and whatever does not fit is one Error.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "analysis/live_writer.h"
#include "analysis/run_schema.h"
#include "analysis/run_view.h"
#include "analysis/shared_file.h"
#include "analysis/sqlite.h"
#include "core/data/stored_array.h"
#include "core/data/tensor_file.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using sqlite::Database;
using sqlite::SqliteError;
using sqlite::Statement;
using sqlite::Transaction;

/// Real counters and steps stay far below; sums of many rows still fit in 64 bits.
constexpr int64_t kLargestCount = int64_t{1} << 48;

/// Upper limit of memory reserved because a file says so; more is allocated when needed.
constexpr int64_t kLargestReserve = int64_t{1} << 30;

class Reader {
 public:
  explicit Reader(Database& database) : database_(database) {}

  RunView read() {
    const int64_t version = check_schema(database_);
    const std::map<std::string, std::string> meta = read_meta();
    RunInfo info = to_run_info(meta);
    read_lanes(info);
    for (size_t lane = 0; lane < info.lanes.size(); ++lane) {
      read_layers(static_cast<int64_t>(lane), info.lanes[lane]);
      read_sites(static_cast<int64_t>(lane), info.lanes[lane]);
    }
    if (meta.contains("node_names")) name_nodes(meta_text(meta, "node_names"), info);
    RunView view(std::move(info), to_status(meta_text(meta, "status")));
    if (meta.contains("lost_lanes")) read_lost_lanes(meta_text(meta, "lost_lanes"), view);
    read_steps(view);
    read_evals(view, version);
    read_windows(view);
    read_errors(view);
    read_deviations(view);
    read_sums(view);
    read_kernels(view);
    read_reductions(view);
    read_ranks(view);
    read_proofs(view);
    for (int lane = 0; lane < view.lane_count(); ++lane) {
      const auto kept = meta.find(fmt::format("trials.{}", lane));
      if (kept != meta.end()) view.set_trials(lane, kept->second);
    }
    return view;
  }

 private:
  std::map<std::string, std::string> read_meta() {
    std::map<std::string, std::string> meta;
    Statement rows(database_, "SELECT key, value FROM meta");
    while (rows.step()) meta[rows.text(0)] = rows.text(1);
    return meta;
  }

  template <typename Integer>
  Integer meta_integer(const std::map<std::string, std::string>& meta, const char* key) const {
    const std::string text = meta_text(meta, key);
    Integer value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) {
      database_.fail_damaged(fmt::format("meta.{} is not a number", key));
    }
    return value;
  }

  std::string meta_text(const std::map<std::string, std::string>& meta, const char* key) const {
    const auto entry = meta.find(key);
    if (entry == meta.end()) database_.fail_damaged(fmt::format("meta.{} is missing", key));
    return entry->second;
  }

  /// Returns whether the meta key exists. Throws if its value is not the only known one.
  bool says(const std::map<std::string, std::string>& meta, const char* key,
            const char* known) const {
    if (!meta.contains(key)) return false;
    const std::string what = meta_text(meta, key);
    if (what == known) return true;
    throw usage_error(
        fmt::format("'{}' has unknown evaluations of \"{}\"", database_.file().string(), what),
        "update HalfScope");
  }

  RunInfo to_run_info(const std::map<std::string, std::string>& meta) const {
    RunInfo info;
    info.model = printable_name(meta_text(meta, "model"));
    info.data = printable_name(meta_text(meta, "data"));
    info.optimizer = printable_name(meta_text(meta, "optimizer"));
    info.command = printable_name(meta_text(meta, "command"));
    info.settings = json_array<std::string>(meta_text(meta, "settings"), "meta");
    info.lane_settings = json_array<std::string>(meta_text(meta, "lane_settings"), "meta");
    if (meta.contains("kind")) {
      const std::string kind = meta_text(meta, "kind");
      if (kind != "inference" && kind != "training") {
        throw usage_error(fmt::format("'{}' is a run of the kind \"{}\", which this program does "
                                      "not know",
                                      database_.file().string(), kind),
                          "update HalfScope");
      }
      info.inference = kind == "inference";
    }
    info.evaluates_averages = says(meta, "evaluated", kEvaluatedAverages);
    if (meta.contains("observed")) {
      info.observed = json_array<std::string>(meta_text(meta, "observed"), "meta");
    }
    info.detects = says(meta, "accuracy", kAccuracyIsPrecision);
    info.batch = meta_integer<int64_t>(meta, "batch");
    info.steps_planned = meta_integer<int64_t>(meta, "steps_planned");
    info.classes = meta_integer<int64_t>(meta, "classes");
    info.train_samples = meta_integer<int64_t>(meta, "train_samples");
    info.test_samples = meta_integer<int64_t>(meta, "test_samples");
    info.seed = meta_integer<uint64_t>(meta, "seed");
    info.threads = meta_integer<int>(meta, "threads");
    info.every = meta_integer<int>(meta, "every");
    info.isa = printable_name(meta_text(meta, "isa"));
    info.version = printable_name(meta_text(meta, "version"));
    return info;
  }

  RunStatus to_status(const std::string& text) const {
    for (RunStatus status :
         {RunStatus::running, RunStatus::complete, RunStatus::interrupted, RunStatus::early_stop}) {
      if (text == status_name(status)) return status;
    }
    database_.fail_damaged("meta.status is unknown");
  }

  void read_lanes(RunInfo& info) {
    Statement rows(database_,
                   "SELECT lane, name, backend, plan, loss_scale FROM lanes ORDER BY lane");
    while (rows.step()) {
      require(rows.integer(0) == static_cast<int64_t>(info.lanes.size()), "lanes");
      LaneInfo lane;
      lane.name = printable_name(rows.text(1));
      lane.backend = printable_name(rows.text(2));
      lane.plan_json = rows.text(3);
      lane.loss_scale = printable_name(rows.text(4));
      info.lanes.push_back(std::move(lane));
    }
  }

  void name_nodes(const std::string& text, RunInfo& info) {
    const nlohmann::json names = nlohmann::json::parse(text, nullptr, false);
    require(names.is_object(), "meta.node_names");
    for (LaneInfo& lane : info.lanes) {
      for (LayerInfo& layer : lane.layers) {
        const auto name = names.find(layer.path);
        if (name == names.end()) continue;
        require(name->is_string(), "meta.node_names");
        layer.alias = printable_name(name->get<std::string>());
      }
    }
  }

  void read_layers(int64_t lane_index, LaneInfo& lane) {
    Statement rows(database_,
                   "SELECT layer, path, op, inputs, read, write, follows, parameters FROM layers "
                   "WHERE lane = ?1 ORDER BY layer");
    rows.bind(1, lane_index);
    while (rows.step()) {
      require(rows.integer(0) == static_cast<int64_t>(lane.layers.size()), "layers");
      LayerInfo layer;
      layer.path = printable_name(rows.text(1));
      layer.op = printable_name(rows.text(2));
      layer.inputs = json_array<std::string>(rows.text(3), "layers");
      for (std::string& input : layer.inputs) input = printable_name(input);
      layer.read = to_format(rows.text(4));
      layer.write = to_format(rows.text(5));
      layer.follows = rows.integer(6) != 0;
      layer.parameters = count(rows, 7);
      lane.layers.push_back(std::move(layer));
    }
  }

  void read_sites(int64_t lane_index, LaneInfo& lane) {
    Statement rows(database_,
                   "SELECT site, path, tensor, role, phase, op, format, shape, scale FROM sites "
                   "WHERE lane = ?1 ORDER BY site");
    rows.bind(1, lane_index);
    while (rows.step()) {
      SiteInfo site;
      site.order = static_cast<int>(lane.sites.size());
      require(rows.integer(0) == site.order, "sites");
      site.path = printable_name(rows.text(1));
      site.tensor = printable_name(rows.text(2));
      site.role = to_role(rows.text(3));
      site.phase = to_phase(rows.text(4));
      site.op = printable_name(rows.text(5));
      site.format = to_format(rows.text(6));
      site.shape = json_array<int64_t>(rows.text(7), "sites");
      site.scale = printable_name(rows.text(8));
      lane.sites.push_back(std::move(site));
    }
  }

  void read_steps(RunView& view) {
    Statement rows(database_,
                   "SELECT step, lane, loss, loss_scale, skipped, grad_norm, accuracy, ms, "
                   "first_bad, learning_rate FROM steps ORDER BY step, lane");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      StepRow row;
      row.step = count(rows, 0);
      row.loss = rows.real(2);
      row.loss_scale = rows.real(3);
      row.skipped = rows.integer(4) != 0;
      row.grad_norm = rows.real(5);
      row.accuracy = rows.real(6);
      row.ms = rows.real(7);
      if (!rows.is_null(8)) row.first_bad = site_index(view, lane, rows.integer(8));
      row.learning_rate = rows.real(9);
      require(view.steps(lane).empty() || view.steps(lane).back().step < row.step, "steps");
      view.add_step(lane, row);
    }
  }

  void read_evals(RunView& view, int64_t version) {
    const char* const scores = version > kOldestSchemaVersion ? "auc, mean_iou" : "NULL, NULL";
    Statement rows(database_, fmt::format("SELECT step, lane, loss, accuracy, {} FROM evals "
                                          "ORDER BY step, lane",
                                          scores)
                                  .c_str());
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      const EvalRow row{.step = count(rows, 0),
                        .loss = rows.real(2),
                        .accuracy = rows.real(3),
                        .auc = rows.real(4),
                        .mean_iou = rows.real(5)};
      require(view.evals(lane).empty() || view.evals(lane).back().step < row.step, "evals");
      view.add_eval(lane, row);
    }
  }

  void read_windows(RunView& view) {
    // Lengths stand at the front of a row, so this does not read the statistics.
    const int64_t bytes =
        database_.query_integer("SELECT coalesce(sum(length(stats)), 0) FROM windows");
    view.reserve_windows(static_cast<size_t>(std::clamp<int64_t>(bytes, 0, kLargestReserve)));
    Statement rows(database_, "SELECT step, step_count, stats FROM windows ORDER BY step");
    while (rows.step()) {
      const int64_t step = count(rows, 0);
      const int64_t step_count = count(rows, 1);
      require(step_count > 0 && view.add_packed_window(step, step_count, rows.blob(2)), "windows");
    }
  }

  void read_errors(RunView& view) {
    Statement rows(database_,
                   "SELECT step, lane, site, other_lane, other_site, n, differing, sign_flips, "
                   "total, max_ulps, local_fp32, local_fp64, inherited, ulps FROM errors "
                   "ORDER BY step, lane, site, other_lane");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      SiteError error;
      error.step = count(rows, 0);
      error.site = site_index(view, lane, rows.integer(2));
      error.other_lane = lane_index(view, rows.integer(3));
      require(error.other_lane != lane, "errors");
      error.other_site = site_index(view, error.other_lane, rows.integer(4));
      int column = 5;
      for (int64_t* counter : {&error.n, &error.differing, &error.sign_flips}) {
        *counter = count(rows, column++);
        require(*counter <= error.n, "errors");
      }
      for (double* real : {&error.total, &error.max_ulps, &error.local_fp32, &error.local_fp64,
                           &error.inherited}) {
        *real = rows.real(column++);
      }
      require(decode_bins(rows.blob(column), error.ulps), "errors");
      for (const int64_t bin : error.ulps) require(bin <= error.n, "errors");
      view.add_error(lane, error);
    }
  }

  void read_deviations(RunView& view) {
    Statement rows(database_,
                   "SELECT step, lane, kind, name, n, broken, error, worst, ratio, spread, "
                   "worst_spread, ratio_spread, worst_channel, worst_channel_spread, "
                   "differences, differences_spread, noise, channel_axis, channel FROM deviations "
                   "ORDER BY step, lane, kind, name");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      Deviation row;
      row.step = count(rows, 0);
      const std::optional<Deviation::Of> of = parse_deviation(rows.text(2));
      require(of.has_value(), "deviations");
      row.of = *of;
      row.name = printable_name(rows.text(3));
      row.n = count(rows, 4);
      row.broken = count(rows, 5);
      int column = 6;
      for (double* real : {&row.error, &row.worst, &row.ratio, &row.spread, &row.worst_spread,
                           &row.ratio_spread, &row.worst_channel, &row.worst_channel_spread,
                           &row.differences, &row.differences_spread, &row.noise}) {
        *real = rows.real(column++);
        require(!(*real < 0.0), "deviations");
      }
      if (!rows.is_null(column)) row.channel_axis = count(rows, column);
      if (!rows.is_null(column + 1)) row.channel = count(rows, column + 1);
      require(row.broken <= row.n, "deviations");
      view.add_deviation(lane, row);
    }
  }

  void read_sums(RunView& view) {
    Statement rows(
        database_,
        "SELECT step, lane, site, layer, accumulation, sums, products, swamped, largest, "
        "overflowed, first_overflow FROM sums ORDER BY step, lane, site");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      SiteSums row;
      row.step = count(rows, 0);
      row.site = site_index(view, lane, rows.integer(2));
      row.layer = printable_name(rows.text(3));
      const std::optional<Accumulation> how = parse_accumulation(rows.text(4));
      require(how.has_value(), "sums");
      row.accumulation = *how;
      SumDiagnostics& counts = row.counts;
      counts.sums = count(rows, 5);
      counts.products = count(rows, 6);
      counts.swamped = count(rows, 7);
      counts.largest = rows.real(8);
      counts.overflowed = count(rows, 9);
      if (!rows.is_null(10)) counts.first_overflow = count(rows, 10);
      require(counts.swamped <= counts.products && counts.overflowed <= counts.sums &&
                  counts.largest >= 0.0 && (counts.overflowed > 0) == (counts.first_overflow >= 0),
              "sums");
      view.add_sums(lane, row);
    }
  }

  void read_kernels(RunView& view) {
    Statement rows(database_,
                   "SELECT step, lane, site, n, differing, max_ulps, worst, beyond, kernel, "
                   "sum_order, sampled, explained, unexplained FROM kernels "
                   "ORDER BY step, lane, site");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      KernelCheck check;
      check.step = count(rows, 0);
      check.site = site_index(view, lane, rows.integer(2));
      check.n = count(rows, 3);
      check.differing = count(rows, 4);
      check.max_ulps = rows.real(5);
      if (!rows.is_null(6)) check.worst = count(rows, 6);
      if (!rows.is_null(7)) check.beyond = count(rows, 7);
      check.kernel = printable_name(rows.text(8));
      check.order = printable_name(rows.text(9));
      check.sampled = count(rows, 10);
      check.explained = count(rows, 11);
      check.unexplained = printable_name(rows.text(12));
      require(check.differing <= check.n && check.worst < check.n && check.beyond <= check.n &&
                  check.explained <= check.sampled && check.max_ulps >= 0.0 &&
                  (check.differing > 0) == (check.worst >= 0),
              "kernels");
      view.add_kernel(lane, check);
    }
  }

  void read_reductions(RunView& view) {
    Statement rows(database_,
                   "SELECT step, lane, site, ranks, n, broken, error, stored, additions, swamped "
                   "FROM reductions ORDER BY step, lane, site, ranks");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(1));
      ReductionError row;
      row.step = count(rows, 0);
      row.site = site_index(view, lane, rows.integer(2));
      row.ranks = count(rows, 3);
      row.n = count(rows, 4);
      row.broken = count(rows, 5);
      row.error = rows.real(6);
      row.stored = rows.real(7);
      row.additions = count(rows, 8);
      row.swamped = count(rows, 9);
      require(row.ranks > 1 && row.broken <= row.n && row.error >= 0.0 && row.stored >= 0.0 &&
                  row.swamped <= row.additions,
              "reductions");
      view.add_reduction(lane, row);
    }
  }

  void read_ranks(RunView& view) {
    Statement rows(database_,
                   "SELECT step, lane, ranks, skipped, distance FROM ranks ORDER BY step, lane");
    while (rows.step()) {
      const RankSpread row{count(rows, 0), count(rows, 2), count(rows, 3), rows.real(4)};
      require(row.ranks > 1 && row.skipped <= row.ranks && row.distance >= 0.0, "ranks");
      view.add_ranks(lane_index(view, rows.integer(1)), row);
    }
  }

  void read_proofs(RunView& view) {
    Statement rows(database_, "SELECT lane, proof FROM proofs");
    while (rows.step()) {
      const int lane = lane_index(view, rows.integer(0));
      std::string proof = rows.text(1);
      require(nlohmann::json::accept(proof), "proofs");
      view.set_proof(lane, std::move(proof));
    }
  }

  void read_lost_lanes(const std::string& text, RunView& view) {
    const nlohmann::json lanes = nlohmann::json::parse(text, nullptr, false);
    require(lanes.is_array(), "meta");
    for (const nlohmann::json& each : lanes) {
      require(each.is_object() && each.contains("lane") && each["lane"].is_number_integer() &&
                  each.contains("step") && each["step"].is_number_integer() &&
                  each.contains("why") && each["why"].is_string(),
              "meta");
      const int64_t step = each["step"].get<int64_t>();
      require(step >= 0 && step < kLargestCount, "meta");
      view.set_lost(lane_index(view, each["lane"].get<int64_t>()),
                    {step, printable_name(each["why"].get<std::string>())});
    }
  }

  void require(bool condition, const char* table) const {
    if (!condition) database_.fail_damaged(fmt::format("table {} has an invalid row", table));
  }

  int64_t count(const Statement& rows, int column) const {
    const int64_t value = rows.integer(column);
    if (value < 0 || value > kLargestCount) database_.fail_damaged("a count is out of range");
    return value;
  }

  int lane_index(const RunView& view, int64_t lane) const {
    if (lane < 0 || lane >= view.lane_count()) {
      database_.fail_damaged(fmt::format("lane {} does not exist", lane));
    }
    return static_cast<int>(lane);
  }

  int site_index(const RunView& view, int lane, int64_t site) const {
    if (site < 0 || site >= static_cast<int64_t>(view.lane(lane).sites.size())) {
      database_.fail_damaged(fmt::format("lane {} has no site {}", lane, site));
    }
    return static_cast<int>(site);
  }

  FloatFormat to_format(const std::string& text) const {
    const std::optional<FloatFormat> format = parse_format(text);
    if (!format) database_.fail_damaged("it names an unknown float format");
    return *format;
  }

  Role to_role(const std::string& text) const {
    for (Role role : {Role::input, Role::activation, Role::weight, Role::activation_grad,
                      Role::weight_grad, Role::update, Role::state}) {
      if (text == role_name(role)) return role;
    }
    database_.fail_damaged("a site has an unknown role");
  }

  Phase to_phase(const std::string& text) const {
    for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
      if (text == phase_name(phase)) return phase;
    }
    database_.fail_damaged("a site has an unknown phase");
  }

  template <typename Value>
  std::vector<Value> json_array(const std::string& text, const char* table) const {
    const nlohmann::json array = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    std::vector<Value> values;
    require(array.is_array(), table);
    for (const nlohmann::json& value : array) {
      if constexpr (std::is_integral_v<Value>) {
        require(value.is_number_integer() && value >= 0 && value <= kLargestCount, table);
      } else {
        require(value.is_string(), table);
      }
      values.push_back(value.get<Value>());
    }
    return values;
  }

  Database& database_;
};

/// A file that says "running" is still being recorded, or its writer died.
RunStatus true_status(Database& database, RunStatus status) {
  if (status != RunStatus::running || has_live_writer(database.file())) return status;
  // The writer may have ended the run since the snapshot. It is gone for good, so what the file
  // says now is the last word.
  const std::string now = database.query_text("SELECT value FROM meta WHERE key='status'");
  return now == status_name(RunStatus::running) ? RunStatus::died : status;
}

RunView read_run(Database& database) {
  try {
    Transaction transaction(database, Transaction::Kind::read);
    RunView view = Reader(database).read();
    transaction.commit();
    view.set_status(true_status(database, view.status()));
    return view;
  } catch (const SqliteError& error) {
    // It is a database, so what is not understood here (a missing table, say) is damage.
    if (error.primary_code() != SQLITE_ERROR) throw;
    database.fail_damaged("its tables are not those of a run file");
  }
}

void check_is_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(fmt::format("cannot read '{}': file not found", file.string()),
                "`halfscope train --out FILE` writes a run file");
  }
  if (fs::is_directory(status)) {
    throw usage_error(fmt::format("'{}' is a folder, not a run file", file.string()),
                      "pass the run file in it");
  }
  if (!fs::exists(status)) {
    throw Error(fmt::format("cannot read '{}': {}", file.string(), error.message()),
                "check the permissions of its folder");
  }
  refuse_torch_file(file);
  const uintmax_t size = fs::file_size(file, error);
  if (!error && size > 0 && size < sqlite::kSmallestPage) {
    throw usage_error(fmt::format("'{}' is not a run file", file.string()),
                      "pass a run file written by `halfscope train`");
  }
}

}  // namespace

RunView RunView::open(const fs::path& file) {
  check_is_file(file);
  std::optional<RunView> view;
  sqlite::read_snapshot(file, [&view](Database& database) { view = read_run(database); });
  return std::move(*view);
}

}  // namespace halfscope
