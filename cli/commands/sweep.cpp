// SPDX-License-Identifier: MIT
// `halfscope sweep`: many trainings, on the processors of this machine or one command at a time
// under another program's control.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "analysis/rules/text.h"
#include "analysis/study/study_file.h"
#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/mpi/job.h"
#include "cli/sweep/deal.h"
#include "cli/sweep/local_workers.h"
#include "cli/sweep/mpi_workers.h"
#include "cli/sweep/study.h"
#include "cli/sweep/study_folder.h"
#include "cli/sweep/sweep_progress.h"
#include "cli/sweep/sweep_summary.h"
#include "cli/sweep/trial_task.h"
#include "cli/terminal/output.h"
#include "cli/terminal/stop.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr int kMostWorkers = 1024;
constexpr size_t kHashDigits = 16;

struct SweepFlags {
  std::string study, out, trial;
  int workers = 0;  ///< 0: as many as the processors have room for
  bool print_trials = false, collect = false, json = false, quiet = false;
  bool serve = false;  ///< this process is a worker
};

StudyView view_of(const StudyPlan& study, const std::vector<TrialResult>& results) {
  std::vector<TrialRow> rows(results.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    static_cast<TrialSpec&>(rows[i]) = study.trials[i].spec;
    static_cast<TrialResult&>(rows[i]) = results[i];
  }
  return {study.info, std::move(rows)};
}

/// Prints what the study says now. Throws Error if trials failed.
int conclude_sweep(const StudyPlan& study, const std::vector<TrialResult>& results,
                   const SweepFlags& flags, const std::string& folder) {
  const StudyView view = view_of(study, results);
  if (flags.json) {
    write_json(sweep_json(view, folder));
  } else if (!flags.quiet) {
    write_out(sweep_text(view, folder, text_style(STDOUT_FILENO).width));
  }
  if (const std::optional<Error> error = sweep_error(view, folder)) throw Error(*error);
  return 0;
}

int workers_for(const SweepFlags& flags, int threads, size_t missing) {
  const int usual = std::max(1, omp_get_num_procs() / threads);
  const int wanted = flags.workers > 0 ? flags.workers : usual;
  return static_cast<int>(std::min<size_t>(static_cast<size_t>(wanted), missing));
}

/// `ranks` are the workers in a job of several processes; null: processes of this machine.
void train_missing(const StudyPlan& study, const StudyFolder& folder, StudyFile& file,
                   std::vector<TrialResult>& results, const SweepFlags& flags,
                   TrialWorkers* ranks) {
  const auto missing = static_cast<size_t>(
      std::count_if(results.begin(), results.end(),
                    [](const TrialResult& each) { return each.status != TrialStatus::done; }));
  if (missing == 0) return;
  const std::atomic<bool>& stop = catch_stop_signals("the running trials");
  SweepProgress progress(results.size() - missing, results.size(), flags.quiet);
  std::optional<LocalWorkers> local;
  if (ranks == nullptr) {
    local.emplace(workers_for(flags, study.threads, missing), kOwnProgram,
                  std::vector<std::string>{"sweep", "--serve"});
  }
  const Deal deal{study, folder,
                  file,  results,
                  stop,  [&](size_t done, size_t failed) {
                    progress.show(done, failed); }};
  deal_trials(deal, ranks != nullptr ? *ranks : *local);
}

/// Says that finished trials are missing, because their run files cannot be used.
void note_damaged(int64_t count, const fs::path& folder, bool collect) {
  if (count == 0) return;
  const bool one = count == 1;
  fmt::print(stderr, "note: {} in '{}' {} damaged; {}\n", counted(count, "run file"),
             folder.string(), one ? "is" : "are",
             collect ? fmt::format("the same command without --collect trains {} again",
                                   one ? "its trial" : "their trials")
             : one   ? "its trial is trained again"
                     : "their trials are trained again");
}

int run_sweep(const StudyPlan& study, const StudyFolder& folder, const SweepFlags& flags,
              TrialWorkers* ranks = nullptr) {
  folder.make();
  std::vector<TrialResult> results;
  int64_t damaged = 0;
  {
    StudyFile file(folder.study_file(), study.info, study.specs(), [&] {
      folder.check_is_of(study);
      results = folder.results(study, &damaged);
    });
    if (!flags.quiet) note_damaged(damaged, folder.path(), flags.collect);
    for (size_t i = 0; i < results.size(); ++i) {
      const bool known = results[i].status == TrialStatus::done ||
                         (flags.collect && results[i].status == TrialStatus::failed);
      if (known) file.write(static_cast<int>(i), results[i]);
    }
    file.commit();
    if (!flags.collect) train_missing(study, folder, file, results, flags, ranks);
  }
  folder.remove_leftovers();
  return conclude_sweep(study, results, flags, folder.path().string());
}

/// Returns the trial with this number or hash. Throws Error (usage).
int find_trial(const StudyPlan& study, const std::string& text) {
  if (text.size() != kHashDigits) {
    return static_cast<int>(parse_integer("--trial", text, 0, study.trials.size() - 1));
  }
  for (size_t i = 0; i < study.trials.size(); ++i) {
    if (study.trials[i].spec.hash == text) return static_cast<int>(i);
  }
  throw usage_error("--trial " + text + ": the study has no such trial",
                    "the study or a file that it reads has changed: print its trials again");
}

int run_trial(const StudyPlan& study, const StudyFolder& folder, const SweepFlags& flags) {
  const int number = find_trial(study, flags.trial);
  const StudyTrial& trial = study.trials[static_cast<size_t>(number)];
  folder.make();
  folder.check_is_of(study);
  const std::string name = fmt::format("trial {} ({})", number, trial.spec.hash);
  if (folder.is_finished(trial)) {
    if (!flags.quiet) write_out(name + " is already finished\n");
    return 0;
  }
  catch_stop_signals("this trial");
  const TrialTask task = task_of(study, number, folder.path(), TrialTask::Work::train);
  const TrialAnswer answer = TrialTrainer().do_task(task);
  if (answer.error) throw answer.error->with_text(name + ": " + answer.error->what());
  if (!flags.quiet) {
    write_out(fmt::format("{}: loss {}, {} steps, {} skipped\n", name,
                          table_number(answer.result.loss), answer.result.steps,
                          answer.result.skipped));
  }
  return 0;
}

/// Returns this program's file, so that the commands need no search path.
std::string program_file() {
  std::error_code error;
  const fs::path file = fs::read_symlink(kOwnProgram, error);
  return error ? "halfscope" : file.string();
}

int print_trials(const StudyPlan& study, const StudyFolder& folder) {
  folder.check_is_of(study);
  const std::string program = shell_quoted(program_file());
  const std::vector<TrialResult> results = folder.results(study);
  std::string text;
  for (size_t i = 0; i < results.size(); ++i) {
    const StudyTrial& trial = study.trials[i];
    if (results[i].status == TrialStatus::done) continue;
    text +=
        fmt::format("{} sweep {} --out {} --trial {}\n", program, shell_quoted(study.file.string()),
                    shell_quoted(folder.path().string()), trial.spec.hash);
  }
  write_out(text);
  return 0;
}

void check_sweep_flags(const SweepFlags& flags) {
  const int actions = int{flags.print_trials} + int{flags.collect} + int{!flags.trial.empty()};
  if (actions > 1) {
    throw usage_error("--print-trials, --collect and --trial exclude each other",
                      "leave out all but one of them");
  }
  if (flags.workers > 0 && actions > 0) {
    throw usage_error("--workers is for a sweep of all trials", "leave it out");
  }
  if (flags.json && (flags.print_trials || !flags.trial.empty())) {
    throw usage_error("--json is for a sweep of all trials and --collect", "leave it out");
  }
}

StudyFolder folder_of(const SweepFlags& flags) {
  return StudyFolder(
      fs::absolute(flags.out.empty() ? usual_folder(flags.study) : fs::path(flags.out))
          .lexically_normal());
}

/// The process that records deals the trials, the others train them.
int sweep_in_job(MpiJob& job, const SweepFlags& flags) {
  std::optional<StudyPlan> study;
  const auto prepare = [&] {
    check_sweep_flags(flags);
    if (flags.print_trials || flags.collect || !flags.trial.empty() || flags.workers > 0) {
      throw usage_error("several processes train a whole study",
                        "leave out --print-trials, --collect, --trial and --workers, or start one "
                        "process");
    }
    if (job.records()) study = read_study(flags.study);
  };
  begin_together(job, prepare, [] { return fmt::format("version={}\n", kVersion); });
  if (!job.records()) {
    for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);  // the dealer decides
    TrialTrainer trainer;
    serve_ranks(job, trainer);
    return 0;
  }
  MpiWorkers workers(job);
  return run_sweep(*study, folder_of(flags), flags, &workers);
}

int sweep(const SweepFlags& flags) {
  if (flags.serve) {
    TrialTrainer trainer;
    return serve_messages(trainer);
  }
  if (MpiJob* const job = mpi_job()) return sweep_in_job(*job, flags);
  check_sweep_flags(flags);
  const StudyPlan study = read_study(flags.study);
  const StudyFolder folder = folder_of(flags);
  if (flags.print_trials) return print_trials(study, folder);
  if (!flags.trial.empty()) return run_trial(study, folder, flags);
  return run_sweep(study, folder, flags);
}

}  // namespace

void add_sweep(CLI::App& app, Invocation& call) {
  auto flags = std::make_shared<SweepFlags>();
  CLI::App* sub = app.add_subcommand("sweep", "Train a study: plans x seeds x any setting");
  sub->footer(
      "Example:  halfscope sweep study.json --workers 8\n"
      "          halfscope sweep study.json --print-trials | parallel -j 8");
  offer(sub->add_option("study", flags->study, "Study: its settings and axes (JSON)")
            ->type_name("STUDY"),
        {.files = "*.json"});
  offer(
      sub->add_option("--out", flags->out, "Folder of the study [STUDY without .json, and -study]")
          ->type_name("FOLDER")
          ->group(group::kCommon),
      {.folders_after = {""}});
  add_integer(*sub, "--workers", flags->workers, 1, kMostWorkers,
              "Trainings at once [processors divided by the study's \"threads\"]")
      ->group(group::kCommon);
  sub->add_flag("--print-trials", flags->print_trials,
                "Print a command for each trial that is not finished, and exit")
      ->group(group::kCommon);
  sub->add_flag("--collect", flags->collect,
                "Read the trials that other programs have run, and train nothing")
      ->group(group::kCommon);
  sub->add_option("--trial", flags->trial, "Train this trial only, unless it is finished")
      ->type_name("N|HASH")
      ->group(group::kCommon);
  sub->add_flag("--json", flags->json, "Print the result as JSON")->group(group::kOutput);
  sub->add_flag("--quiet", flags->quiet, "Print no progress and no table")->group(group::kOutput);
  sub->add_flag("--serve", flags->serve)->group("");  // how a sweep starts its workers
  sub->callback([flags, &call] {
    call.action = [flags] {
      if (flags->study.empty() && !flags->serve) {
        throw usage_error("sweep needs a study", "halfscope sweep study.json");
      }
      return sweep(*flags);
    };
  });
}

}  // namespace halfscope
