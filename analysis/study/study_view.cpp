// SPDX-License-Identifier: MIT
// Reads a study file in one transaction. As with run files, each value is checked before it is used
// as an index or a size.
#include "analysis/study/study_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "analysis/loss_gap.h"
#include "analysis/shared_file.h"
#include "analysis/study/study_schema.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using sqlite::Database;
using sqlite::SqliteError;
using sqlite::Statement;
using sqlite::Transaction;

constexpr const char* kStudyFileName = "study.sqlite";

std::string text_or_nothing(const Statement& row, int column) {
  return row.is_null(column) ? "" : row.text(column);
}

int64_t integer_or_zero(const Statement& row, int column) {
  return row.is_null(column) ? 0 : row.integer(column);
}

StudyInfo read_info(Database& database) {
  StudyInfo info;
  Statement study(database, "SELECT name, json, version, baseline, tolerance FROM study");
  if (!study.step()) database.fail_damaged("it does not describe a study");
  info.name = study.text(0);
  info.json = study.text(1);
  info.version = study.text(2);
  info.baseline = text_or_nothing(study, 3);
  info.tolerance = study.real(4);
  Statement axes(database, "SELECT axis, name, place, value FROM axes ORDER BY axis, place");
  while (axes.step()) {
    const int64_t axis = axes.integer(0), place = axes.integer(2);
    const auto count = static_cast<int64_t>(info.axes.size());
    if (axis == count) info.axes.push_back({axes.text(1)});
    if (axis != static_cast<int64_t>(info.axes.size()) - 1 ||
        place != static_cast<int64_t>(info.axes.back().values.size())) {
      database.fail_damaged("an axis is incomplete");
    }
    info.axes.back().values.push_back(axes.text(3));
  }
  return info;
}

std::vector<int> read_places(const Database& database, const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  std::vector<int> places;
  if (!json.is_array()) database.fail_damaged("places are not a list");
  for (const nlohmann::json& place : json) {
    if (!place.is_number_integer()) database.fail_damaged("a place is not a number");
    places.push_back(static_cast<int>(std::clamp<int64_t>(place.get<int64_t>(), -2, INT32_MAX)));
  }
  return places;
}

TrialStatus status_of(const Database& database, const std::string& name) {
  for (const TrialStatus each : {TrialStatus::waiting, TrialStatus::done, TrialStatus::failed}) {
    if (name == trial_status_name(each)) return each;
  }
  database.fail_damaged("unknown status '" + name + "'");
}

std::vector<CurvePoint> read_curve(const Database& database, std::span<const uint8_t> blob) {
  if (blob.size() % sizeof(CurvePoint) != 0) database.fail_damaged("a curve is cut off");
  std::vector<CurvePoint> curve(blob.size() / sizeof(CurvePoint));
  if (!blob.empty()) std::memcpy(curve.data(), blob.data(), blob.size());
  return curve;
}

TrialRow read_trial(const Database& database, const Statement& row) {
  TrialRow trial;
  trial.hash = row.text(1);
  trial.baseline = row.integer(2) != 0;
  trial.places = read_places(database, row.text(3));
  if (!row.is_null(4)) {
    trial.base = static_cast<int>(std::clamp<int64_t>(row.integer(4), -1, INT32_MAX));
  }
  trial.command = row.text(5);
  trial.run = row.text(6);
  trial.status = status_of(database, row.text(7));
  trial.error = text_or_nothing(row, 8);
  trial.steps = integer_or_zero(row, 9);
  trial.skipped = integer_or_zero(row, 10);
  trial.loss = row.real(11);
  trial.test_loss = row.real(12);
  trial.accuracy = row.real(13);
  if (!row.is_null(14)) {
    trial.first_bad = {row.integer(14), text_or_nothing(row, 15), text_or_nothing(row, 16)};
  }
  trial.cause = text_or_nothing(row, 17);
  trial.cause_layer = text_or_nothing(row, 18);
  trial.headline = text_or_nothing(row, 19);
  trial.bits = row.real(20);
  if (!row.is_null(21)) trial.curve = read_curve(database, row.blob(21));
  trial.seconds = row.real(22);
  trial.worker = text_or_nothing(row, 23);
  return trial;
}

std::vector<TrialRow> read_trials(Database& database) {
  Statement rows(database,
                 "SELECT trial, hash, baseline, places, base, command, run, status, error, steps, "
                 "skipped, loss, test_loss, accuracy, first_bad_step, first_bad_layer, "
                 "first_bad_role, cause, cause_layer, headline, bits, curve, seconds, worker "
                 "FROM trials ORDER BY trial");
  std::vector<TrialRow> trials;
  while (rows.step()) {
    if (rows.integer(0) != static_cast<int64_t>(trials.size())) {
      database.fail_damaged("a trial is missing");
    }
    trials.push_back(read_trial(database, rows));
  }
  return trials;
}

void check_is_study_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(fmt::format("cannot read '{}': file not found", file.string()),
                "`halfscope sweep` makes the folder of a study");
  }
  const uintmax_t size = fs::file_size(file, error);
  if (fs::is_regular_file(status) && !error && size >= sqlite::kSmallestPage) return;
  throw usage_error(fmt::format("'{}' is not a study file", file.string()), kNoStudyHint);
}

/// The loss that gaps are divided by.
double size_of_loss(const TrialRow& base) {
  const double first = base.curve.empty() ? 0.0 : static_cast<double>(base.curve.front().loss);
  const double learned = std::isfinite(first) ? kLearnedShare * std::fabs(first) : 0.0;
  return std::max(std::fabs(base.loss), learned);
}

double gap_of(const TrialRow& trial, const TrialRow& base) {
  if (!trial.done() || !base.done() || !std::isfinite(trial.loss) || !std::isfinite(base.loss)) {
    return std::nan("");
  }
  const double distance = trial.loss - base.loss;
  return distance == 0.0 ? 0.0 : distance / size_of_loss(base);
}

/// Returns why a trial fails; "" if it does not.
std::string why_it_fails(const TrialRow& trial, double tolerance) {
  if (!trial.done()) return "";
  if (!trial.error.empty()) return "its training stopped: " + trial.error;
  if (!std::isfinite(trial.loss)) return "its loss is not finite";
  if (!(trial.gap > tolerance)) return "";
  return fmt::format("its loss is {:.3g}% above the baseline's", 100.0 * trial.gap);
}

void check_row(const StudyInfo& info, const TrialRow& row, size_t rows) {
  bool fits = row.places.size() == info.axes.size();
  for (size_t axis = 0; fits && axis < row.places.size(); ++axis) {
    fits = row.places[axis] >= -1 &&
           row.places[axis] < static_cast<int>(info.axes[axis].values.size());
  }
  if (row.base) fits = fits && *row.base >= 0 && static_cast<size_t>(*row.base) < rows;
  if (!fits) throw Error("trial " + row.hash + " of the study does not fit its axes");
}

}  // namespace

const char* trial_status_name(TrialStatus status) noexcept {
  switch (status) {
    case TrialStatus::waiting:
      return "waiting";
    case TrialStatus::done:
      return "done";
    case TrialStatus::failed:
      return "failed";
  }
  return "";
}

StudyView::StudyView(StudyInfo info, std::vector<TrialRow> rows)
    : info_(std::move(info)), trials_(std::move(rows)) {
  for (size_t i = 0; i < trials_.size(); ++i) {
    trials_[i].trial = static_cast<int>(i);
    check_row(info_, trials_[i], trials_.size());
  }
  for (TrialRow& row : trials_) {
    row.gap = row.base ? gap_of(row, trials_[static_cast<size_t>(*row.base)]) : std::nan("");
    row.why = why_it_fails(row, info_.tolerance);
    row.fails = !row.why.empty();
  }
}

StudyView StudyView::open(const fs::path& file_or_folder) {
  const fs::path file = study_file_of(file_or_folder);
  check_is_study_file(file);
  std::optional<StudyView> view;
  const auto read = [&view](Database& database) {
    Transaction transaction(database, Transaction::Kind::read);
    check_study_schema(database);
    view.emplace(read_info(database), read_trials(database));
    transaction.commit();
  };
  try {
    sqlite::read_snapshot(file, read);
  } catch (const SqliteError& error) {
    throw study_error(error, file);
  }
  return std::move(*view);
}

std::optional<size_t> StudyView::find_axis(const std::string& name) const {
  for (size_t axis = 0; axis < info_.axes.size(); ++axis) {
    if (info_.axes[axis].name == name) return axis;
  }
  return std::nullopt;
}

std::string StudyView::value(const TrialRow& trial, size_t axis) const {
  const int place = trial.places.at(axis);
  return place < 0 ? "" : info_.axes[axis].values[static_cast<size_t>(place)];
}

std::string StudyView::plan(const TrialRow& trial) const {
  const std::optional<size_t> axis = find_axis("plan");
  const std::string plan = axis ? value(trial, *axis) : "";
  return plan.empty() ? info_.baseline : plan;
}

size_t StudyView::count(TrialStatus status) const {
  return static_cast<size_t>(
      std::count_if(trials_.begin(), trials_.end(),
                    [status](const TrialRow& row) { return row.status == status; }));
}

fs::path study_file_of(const fs::path& file_or_folder) {
  std::error_code ignored;
  return fs::is_directory(file_or_folder, ignored) ? file_or_folder / kStudyFileName
                                                   : file_or_folder;
}

bool is_study(const fs::path& file_or_folder) noexcept {
  try {
    const fs::path file = study_file_of(file_or_folder);
    // Even if it is damaged: the name is enough to say so in words about studies.
    if (file.filename() == kStudyFileName && fs::exists(file)) return true;
    check_is_study_file(file);
    sqlite::read_snapshot(file, check_study_schema);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace halfscope
