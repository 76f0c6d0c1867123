// SPDX-License-Identifier: MIT
#include "cli/sweep/study_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "analysis/study/trial_file.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrials = "trials";

Error unwritable(const fs::path& folder, const std::string& why) {
  return usage_error(fmt::format("cannot write to the folder '{}': {}", folder.string(), why),
                     "choose another folder with --out");
}

std::string hash_in(const std::string& file) { return file.substr(0, file.find('.')); }

/// Returns who has trained the finished trials of the study file, by hash.
std::map<std::string, std::string> known_workers(const fs::path& study_file) {
  std::map<std::string, std::string> known;
  std::error_code ignored;
  if (!fs::exists(study_file, ignored) || fs::file_size(study_file, ignored) == 0) return known;
  const StudyView view = StudyView::open(study_file);
  for (const TrialRow& row : view.trials()) {
    if (row.done()) known[row.hash] = row.worker;
  }
  return known;
}

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

fs::path usual_folder(const fs::path& study_file) {
  fs::path folder = study_file;
  if (folder.extension() == ".json") folder.replace_extension();
  return folder += "-study";
}

fs::path error_file(const fs::path& run) { return fs::path(run).replace_extension(".error"); }

void write_trial_error(const fs::path& run, const std::string& what) noexcept {
  try {
    std::ofstream(error_file(run), std::ios::binary) << what << '\n';
  } catch (const std::exception&) {
    // The folder is gone or full.
  }
}

void StudyFolder::make() const {
  std::error_code error;
  fs::create_directories(folder_ / kTrials, error);
  if (error) {
    const fs::path trials = folder_ / kTrials;
    std::error_code ignored;
    const bool in_the_way = fs::exists(trials, ignored) && !fs::is_directory(trials, ignored);
    throw unwritable(in_the_way ? trials : folder_, error.message());
  }
  for (const fs::path& each : {folder_, folder_ / kTrials}) {
    if (access(each.c_str(), W_OK | X_OK) == 0) continue;
    throw unwritable(each, std::generic_category().message(errno));
  }
}

void StudyFolder::check_is_of(const StudyPlan& study) const {
  std::error_code ignored;
  if (!fs::exists(study_file(), ignored) || fs::file_size(study_file(), ignored) == 0) return;
  const StudyView there = StudyView::open(study_file());
  if (there.info().version != study.info.version) {
    throw usage_error(
        fmt::format("the study in '{}' was made by version {}, and this is version {}",
                    folder_.string(), there.info().version, study.info.version),
        "choose another folder with --out: results of different versions do not mix");
  }
  std::set<std::string> hashes;
  for (const StudyTrial& trial : study.trials) hashes.insert(trial.spec.hash);
  const auto is_ours = [&](const TrialRow& row) { return hashes.contains(row.hash); };
  if (there.trials().empty() ||
      std::any_of(there.trials().begin(), there.trials().end(), is_ours)) {
    return;
  }
  throw usage_error(fmt::format("'{}' is the folder of another study", folder_.string()),
                    "none of its trials is in this study; choose another folder with --out");
}

std::set<std::string> StudyFolder::files() const {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / kTrials, error)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

bool StudyFolder::is_finished(const StudyTrial& trial) const {
  return stored_trial(folder_ / trial.spec.run, trial.spec.hash).has_value();
}

std::vector<TrialResult> StudyFolder::results(const StudyPlan& study, int64_t* damaged) const {
  const std::set<std::string> there = files();
  const std::map<std::string, std::string> workers = known_workers(study_file());
  std::vector<TrialResult> results;
  for (const StudyTrial& trial : study.trials) {
    TrialResult& result = results.emplace_back();
    const fs::path run = folder_ / trial.spec.run;
    if (there.contains(run.filename().string())) {
      const auto worker = workers.find(trial.spec.hash);
      if (const auto stored = stored_trial(run, trial.spec.hash)) {
        result = *stored;
        if (worker != workers.end()) result.worker = worker->second;
      } else if (damaged != nullptr) {
        ++*damaged;
      }
    }
    if (result.status == TrialStatus::done) continue;
    if (const fs::path error = error_file(run); there.contains(error.filename().string())) {
      result = {.status = TrialStatus::failed, .error = first_line(error)};
    }
  }
  return results;
}

void StudyFolder::remove_leftovers() const {
  const std::set<std::string> there = files();
  for (const std::string& name : there) {
    if (name.find(".partial") == name.npos || !there.contains(hash_in(name) + ".hscope")) continue;
    std::error_code ignored;
    fs::remove(folder_ / kTrials / name, ignored);
  }
}

}  // namespace halfscope
