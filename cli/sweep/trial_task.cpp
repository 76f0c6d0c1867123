// SPDX-License-Identifier: MIT
#include "cli/sweep/trial_task.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>
#include <system_error>

#include "analysis/recorder.h"
#include "analysis/study/trial_file.h"
#include "analysis/study/trial_summary.h"
#include "cli/sweep/study_folder.h"
#include "cli/tasks/record_training.h"
#include "cli/tasks/training.h"
#include "cli/terminal/output.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// Data sets that are kept: a study may have them as an axis, and they may be large.
constexpr size_t kKeptDataSets = 2;

constexpr const char* kOutOfMemory = "out of memory";

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

/// Returns a name that no other process uses for this trial, also on another machine.
fs::path partial_file(const fs::path& run) {
  static const std::string suffix = fmt::format(".{}-{}.partial", host_name(), getpid());
  return fs::path(run).replace_extension(suffix);
}

/// Removes an incomplete run file.
class PartialFile {
 public:
  explicit PartialFile(fs::path file) : file_(std::move(file)) {}
  ~PartialFile() {
    std::error_code ignored;
    fs::remove(file_, ignored);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  const fs::path& file() const { return file_; }

 private:
  fs::path file_;
};

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw Error(fmt::format("cannot write '{}': {}", to.string(), error.message()),
                "check the folder of the study and its free space");
  }
}

}  // namespace

std::string TrialTask::text() const {
  const Json json{{"work", work == Work::check ? "check" : "train"},
                  {"trial", trial},
                  {"hash", hash},
                  {"command", command},
                  {"words", words},
                  {"run", run.string()},
                  {"threads", threads}};
  return json.dump();
}

TrialTask TrialTask::parse(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    return {.work = json.at("work") == "check" ? Work::check : Work::train,
            .trial = json.at("trial"),
            .hash = json.at("hash"),
            .command = json.at("command"),
            .words = json.at("words"),
            .run = json.at("run").get<std::string>(),
            .threads = json.at("threads")};
  } catch (const Json::exception&) {
    throw Error("a worker got a message that it cannot read");
  }
}

TrialTask task_of(const StudyPlan& study, int trial, const fs::path& folder, TrialTask::Work work) {
  const StudyTrial& which = study.trials.at(static_cast<size_t>(trial));
  TrialTask task{.work = work,
                 .trial = trial,
                 .hash = which.spec.hash,
                 .command = which.spec.command,
                 .words = settings_words(which.settings),
                 .run = folder / which.spec.run,
                 .threads = study.threads};
  for (const std::string& word : lane_settings_words(which.settings)) task.words.push_back(word);
  return task;
}

std::string TrialAnswer::text(const std::string& hash) const {
  Json json{{"result", trial_json(hash, result)}};
  if (error) {
    json["error"] = {{"what", error->what()},
                     {"hint", error->hint()},
                     {"usage", error->kind() == ErrorKind::usage},
                     {"settings", error->settings()}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TrialAnswer TrialAnswer::parse(const std::string& hash, const std::string& text) {
  try {
    const Json json = Json::parse(text);
    TrialAnswer answer;
    const std::optional<TrialResult> result = parse_trial(hash, json.at("result"));
    if (!result) throw Error("a worker answered about another trial");
    answer.result = *result;
    if (json.contains("error")) {
      const Json& error = json["error"];
      answer.error = Error(error.at("what"), error.at("hint"),
                           error.at("usage") == true ? ErrorKind::usage : ErrorKind::runtime)
                         .about(error.at("settings"));
    }
    return answer;
  } catch (const Json::exception&) {
    throw Error("a worker gave an answer that cannot be read");
  }
}

std::shared_ptr<const Dataset> TrialTrainer::data_for(const Settings& settings) {
  const std::string key = settings.data + '\n' + settings.normalize;
  for (const auto& [name, data] : data_) {
    if (name == key) return data;
  }
  // Makes room before the next one is loaded.
  while (data_.size() >= kKeptDataSets) data_.pop_front();
  auto data = std::make_shared<const Dataset>(load_training_data(settings));
  data_.emplace_back(key, data);
  return data;
}

TrialResult TrialTrainer::train(const TrialTask& task, const Settings& settings) {
  static const std::atomic<bool> never{false};
  RecordedTraining training(settings, task.command, data_for(settings));
  const PartialFile partial(partial_file(task.run));
  {
    Recorder recorder(partial.file(), {.force = true, .private_until_end = true});
    training.run(recorder, never);
  }
  TrialResult result = summarize_trial(RunView::open(partial.file()));
  if (result.status == TrialStatus::failed) {
    // The lane knows a hint; what it stopped with is its error.
    throw Error(result.error, training.trainer().lost_lanes().empty()
                                  ? ""
                                  : training.trainer().lost_lanes().front().hint);
  }
  result.seconds = training.seconds();
  store_trial(partial.file(), task.hash, result);
  rename_file(partial.file(), task.run);
  std::error_code ignored;
  fs::remove(error_file(task.run), ignored);  // of an earlier attempt
  return result;
}

TrialAnswer TrialTrainer::do_task(const TrialTask& task) {
  TrialAnswer answer;
  try {
    Settings settings = parse_settings(kTrain, task.words);
    settings.threads = task.threads;
    settings.quiet = true;
    if (task.work == TrialTask::Work::check) {
      const RecordedTraining training(settings, task.command, data_for(settings));
    } else {
      answer.result = train(task, settings);
    }
  } catch (const Error& error) {
    answer.error = error;
  } catch (const std::bad_alloc&) {
    data_.clear();
    answer.error = Error(kOutOfMemory, "use a smaller batch, or fewer workers");
  }
  if (answer.error && task.work == TrialTask::Work::train) {
    write_trial_error(task.run, answer.error->what());
  }
  if (answer.error) answer.result = {.status = TrialStatus::failed, .error = answer.error->what()};
  return answer;
}

std::string TrialTrainer::answer(const std::string& message) {
  const TrialTask task = TrialTask::parse(message);
  return do_task(task).text(task.hash);
}

}  // namespace halfscope
