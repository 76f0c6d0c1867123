// SPDX-License-Identifier: MIT
#include "cli/tasks/diagnosed_run.h"

#include <unistd.h>

#include <filesystem>

#include "analysis/rules/text.h"
#include "cli/args/config_file.h"
#include "cli/tasks/record_forward.h"
#include "cli/tasks/record_training.h"
#include "cli/tasks/run_input.h"
#include "cli/tasks/training.h"
#include "cli/terminal/output.h"
#include "emulation/isa.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// SQLite writes beside the file, too.
bool can_be_written(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  return access(file.c_str(), W_OK) == 0 &&
         access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
}

/// The command that records the same.
std::string recording_line(const Settings& settings, const std::string& file) {
  const bool trains = settings.command == kTrain;
  std::string line = trains ? "halfscope train" : "halfscope run";
  for (const auto& words : {settings_words(settings), lane_settings_words(settings)}) {
    for (const std::string& word : words) line += " " + shell_quoted(word);
  }
  return line + (trains ? " --out " : " --record ") + shell_quoted(file);
}

std::optional<Error> record_run(const Settings& settings, const std::string& line) {
  if (settings.command == kTrain) {
    RecordedTraining training(settings, line);
    training.run();
    return training.lost();
  }
  ForwardRun forward(settings, line);
  forward.run();
  return forward.lost();
}

}  // namespace

DiagnosedRun::DiagnosedRun(const std::string& run, bool changes) : file_(run), name_(run) {
  std::error_code ignored;
  if (!changes || !fs::is_regular_file(run, ignored) || can_be_written(run)) return;
  temporary_.emplace();
  file_ = temporary_->run_file();
  std::error_code error;
  for (const char* suffix : {"", "-wal"}) {
    if (suffix[0] == '\0' || fs::exists(run + suffix, ignored)) {
      fs::copy_file(run + suffix, file_ + suffix, error);
    }
    if (!error && fs::exists(file_ + suffix, ignored)) {
      fs::permissions(file_ + suffix, fs::perms::owner_read | fs::perms::owner_write, error);
    }
    if (error) throw Error("cannot copy " + run + ": " + error.message());
  }
  not_stored_ = "it or its folder is read-only";
}

DiagnosedRun::DiagnosedRun(Settings settings, const std::string& record)
    : file_(record), name_(record) {
  if (settings.command == kTrain) {
    train_config(settings);
  } else {
    check_sources(settings);
  }
  active_isa();  // a bad HALFSCOPE_ISA shows before the work
  if (record.empty()) {
    temporary_.emplace();
    file_ = temporary_->run_file();
  }
  (settings.command == kTrain ? settings.out : settings.record) = file_;
  const std::string shown = record.empty() ? "run.hscope" : record;
  naming_keys(settings, [&] { lost_ = record_run(settings, recording_line(settings, shown)); });
}

}  // namespace halfscope
