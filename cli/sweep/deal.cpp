// SPDX-License-Identifier: MIT
#include "cli/sweep/deal.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cli/sweep/trial_task.h"

namespace halfscope {
namespace {

using Clock = std::chrono::steady_clock;
using Work = TrialTask::Work;

constexpr std::chrono::milliseconds kLongestWait{200};
/// Readers of the study file see results this much later.
constexpr std::chrono::milliseconds kBetweenCommits{200};

class Dealer {
 public:
  Dealer(const Deal& deal, TrialWorkers& workers)
      : deal_(deal),
        workers_(workers),
        running_(static_cast<size_t>(workers.size())),
        deaths_(deal.study.trials.size(), 0) {
    for (size_t i = 0; i < deal_.results.size(); ++i) {
      TrialResult& result = deal_.results[i];
      if (result.status == TrialStatus::failed) {
        failed_before_.insert(static_cast<int>(i));
        result = {};
      }
      count(result.status);
    }
  }

  void run() {
    deal_out(Work::check, unchecked());
    deal_out(Work::train, missing());
    deal_.file.commit();
    for (int worker = 0; worker < workers_.size(); ++worker) workers_.stop(worker);
  }

 private:
  /// Baselines come first, so that the first trials can be compared with something; trials that
  /// failed before come last, since they may fail again and cost a worker.
  std::deque<int> missing() {
    std::deque<int> trials;
    for (size_t i = 0; i < deal_.results.size(); ++i) {
      if (deal_.results[i].status != TrialStatus::done) trials.push_back(static_cast<int>(i));
    }
    std::stable_sort(trials.begin(), trials.end(), [this](int a, int b) {
      const auto rank = [this](int trial) {
        return std::pair(failed_before_.contains(trial),
                         !deal_.study.trials[static_cast<size_t>(trial)].spec.baseline);
      };
      return rank(a) < rank(b);
    });
    return trials;
  }

  /// Returns one trial of each kind of which none has been trained.
  std::deque<int> unchecked() {
    std::set<std::string> known;
    for (size_t i = 0; i < deal_.results.size(); ++i) {
      if (deal_.results[i].status == TrialStatus::done) known.insert(deal_.study.trials[i].kind);
    }
    std::deque<int> trials;
    for (const int trial : missing()) {
      if (known.insert(deal_.study.trials[static_cast<size_t>(trial)].kind).second) {
        trials.push_back(trial);
      }
    }
    return trials;
  }

  void deal_out(Work work, std::deque<int> waiting) {
    waiting_ = std::move(waiting);
    show();
    while (true) {
      for (int worker = 0; worker < workers_.size(); ++worker) {
        std::optional<int>& trial = running_[static_cast<size_t>(worker)];
        if (trial || waiting_.empty() || deal_.stop) continue;
        trial = waiting_.front();
        waiting_.pop_front();
        workers_.give(worker, task_of(deal_.study, *trial, deal_.folder.path(), work).text());
      }
      if (std::none_of(running_.begin(), running_.end(),
                       [](const auto& trial) { return trial.has_value(); })) {
        return;
      }
      if (const std::optional<WorkerEvent> event = workers_.wait(kLongestWait)) {
        take(*event, work);
      }
      if (Clock::now() - committed_ >= kBetweenCommits) {
        deal_.file.commit();
        committed_ = Clock::now();
      }
      show();
    }
  }

  void take(const WorkerEvent& event, Work work) {
    std::optional<int>& running = running_[static_cast<size_t>(event.worker)];
    if (!running) return;  // it died while it had nothing to do
    const int trial = *running;
    running.reset();
    if (event.kind == WorkerEvent::Kind::died) return take_death(trial, event.message, work);
    const std::string& hash = deal_.study.trials[static_cast<size_t>(trial)].spec.hash;
    const TrialAnswer answer = TrialAnswer::parse(hash, event.message);
    if (work == Work::check) return take_check(trial, answer);
    end(trial, answer.result, workers_.name(event.worker));
  }

  void end(int trial, const TrialResult& how, const std::string& worker) {
    TrialResult& result = deal_.results[static_cast<size_t>(trial)];
    result = how;
    result.worker = worker;
    count(result.status);
    deal_.file.write(trial, result);
  }

  /// Whatever is not a mistake in the study is left to the training, which says so of its trial.
  void take_check(int trial, const TrialAnswer& answer) {
    if (!answer.error || answer.error->kind() != ErrorKind::usage) return;
    throw named_in_study(deal_.study.trials[static_cast<size_t>(trial)], *answer.error);
  }

  void take_death(int trial, const std::string& how, Work work) {
    if (work == Work::check) return;
    if (++deaths_[static_cast<size_t>(trial)] < kTrialAttempts) {
      waiting_.push_front(trial);
      return;
    }
    const std::string error = fmt::format("its worker died {} times: {}", kTrialAttempts, how);
    write_trial_error(deal_.folder.path() / deal_.study.trials[static_cast<size_t>(trial)].spec.run,
                      error);
    end(trial, {.status = TrialStatus::failed, .error = error}, "");
  }

  void count(TrialStatus status) {
    done_ += status == TrialStatus::done ? 1 : 0;
    failed_ += status == TrialStatus::failed ? 1 : 0;
  }

  void show() const { deal_.progress(done_, failed_); }

  const Deal& deal_;
  TrialWorkers& workers_;
  std::deque<int> waiting_;
  std::vector<std::optional<int>> running_;  // by worker
  std::vector<int> deaths_;                  // by trial
  std::set<int> failed_before_;              // trials
  size_t done_ = 0, failed_ = 0;
  Clock::time_point committed_ = Clock::now();
};

}  // namespace

void deal_trials(const Deal& deal, TrialWorkers& workers) { Dealer(deal, workers).run(); }

}  // namespace halfscope
