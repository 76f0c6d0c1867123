// SPDX-License-Identifier: MIT
#include "cli/tasks/dealt_trials.h"

#include <fmt/format.h>

#include <bit>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr std::chrono::milliseconds kPatience{50};

/// JSON has no infinities, so numbers travel as their bits.
uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }
double number_of(const Json& bits) { return std::bit_cast<double>(bits.get<uint64_t>()); }

/// A process that cannot take part in the proof, and why.
struct Unable {
  std::string why;
};

std::string outcome_text(const Outcome& outcome) {
  const Trial& trial = outcome.trial;
  return Json{{"gap", bits_of(trial.gap)},
              {"skipped", trial.skipped},
              {"calibration_skips", trial.calibration_skips},
              {"better", trial.better},
              {"passes", trial.passes},
              {"last_scale", bits_of(outcome.last_scale)},
              {"why", outcome.why},
              {"beside", outcome.beside}}
      .dump();
}

Outcome read_outcome(const std::string& text) {
  const Json json = Json::parse(text);
  if (json.contains("error")) throw Error(json["error"].get<std::string>());
  if (json.contains("unable")) throw Unable{json["unable"].get<std::string>()};
  Outcome outcome;
  outcome.trial.gap = number_of(json["gap"]);
  outcome.trial.skipped = json["skipped"];
  outcome.trial.calibration_skips = json["calibration_skips"];
  outcome.trial.better = json["better"];
  outcome.trial.passes = json["passes"];
  outcome.last_scale = number_of(json["last_scale"]);
  outcome.why = json["why"];
  outcome.beside = json["beside"];
  return outcome;
}

class DealtTrials final : public TrialRunner {
 public:
  DealtTrials(std::unique_ptr<TrialRunner> own, MpiJob& job, const std::string& run_file, int lane)
      : own_(std::move(own)), job_(job), own_left_(std::max(own_->at_once(), 1)) {
    const std::string begin = Json{{"prove", run_file}, {"lane", lane}}.dump();
    for (int rank = 0; rank < job_.size(); ++rank) {
      if (rank == job_.rank()) continue;
      job_.post(rank, begin);
      free_.push_back(rank);
    }
  }
  ~DealtTrials() override {
    for (int rank = 0; rank < job_.size(); ++rank) {
      if (rank != job_.rank()) job_.post(rank, Json{{"done", true}}.dump());
    }
  }

  std::string prepare(const LaneConfig& original, Proof& proof) override {
    return own_->prepare(original, proof);
  }
  int at_once() const override { return std::max(own_->at_once(), 1) + job_.size() - 1; }

  Outcome run(const LaneConfig& lane, bool is_original) override {
    const std::string asked = Json{
        {"plan", plan_to_json(lane.plan)},
        {"loss_scale", loss_scale_text(lane.scaler)},
        {"name", lane.own_name}}.dump();
    for (;;) {
      Turn turn(*this, !is_original);
      if (turn.rank == job_.rank()) return own_->run(lane, is_original);
      job_.post(turn.rank, asked);
      try {
        return read_outcome(answer_of(turn.rank));
      } catch (const Unable& unable) {
        turn.comes_back = false;
        fmt::print(stderr, "note: rank {} does not take part in the proof: {}\n", turn.rank,
                   unable.why);
      }
    }
  }

  std::optional<RunView> record(const LaneConfig& lane) override {
    const Turn turn(*this, false);
    return own_->record(lane);
  }

  std::string distance(const Outcome& outcome) const override { return own_->distance(outcome); }
  std::string allowed(const Proof& proof) const override { return own_->allowed(proof); }
  std::string failure(const Outcome& original, const Proof& proof) const override {
    return own_->failure(original, proof);
  }
  std::string proved() const override { return own_->proved(); }
  std::string healthy(const std::string& lane) const override { return own_->healthy(lane); }
  std::string hint(const Outcome& advised) const override { return own_->hint(advised); }

 private:
  /// Waits for a process that is free, other ones first if they may run it, and frees it again.
  struct Turn {
    Turn(DealtTrials& all, bool others_may) : trials(all), rank(all.job_.rank()) {
      std::unique_lock lock(trials.mutex_);
      const auto other = [&] { return others_may && !trials.free_.empty(); };
      trials.changed_.wait(lock, [&] { return trials.own_left_ > 0 || other(); });
      if (other()) {
        rank = trials.free_.back();
        trials.free_.pop_back();
      } else {
        --trials.own_left_;
      }
    }
    ~Turn() {
      const std::lock_guard lock(trials.mutex_);
      if (rank == trials.job_.rank()) {
        ++trials.own_left_;
      } else if (comes_back) {
        trials.free_.push_back(rank);
      }
      trials.changed_.notify_all();
    }
    Turn(const Turn&) = delete;

    DealtTrials& trials;
    int rank;
    bool comes_back = true;
  };

  /// Any waiting thread may receive the answer to another one.
  std::string answer_of(int rank) {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (const auto found = answers_.find(rank); found != answers_.end()) {
          std::string text = std::move(found->second);
          answers_.erase(found);
          return text;
        }
      }
      const std::optional<MpiJob::Mail> mail = job_.mail(kPatience);
      if (!mail) continue;
      const std::lock_guard lock(mutex_);
      answers_[mail->from] = mail->text;
    }
  }

  const std::unique_ptr<TrialRunner> own_;
  MpiJob& job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int own_left_;           ///< trials that this process can begin
  std::vector<int> free_;  ///< ranks without a trial
  std::map<int, std::string> answers_;
};

/// Trains for one proof until it is done.
void serve_proof(MpiJob& job, const std::function<std::unique_ptr<ServedProof>()>& open) {
  std::unique_ptr<ServedProof> proof;
  std::string unable;
  try {
    proof = open();
    Proof unused;
    unable = proof->runner().prepare(proof->original(), unused);
  } catch (const Error& error) {
    unable = error.what();
  } catch (const std::bad_alloc&) {
    unable = "out of memory";
  }
  for (;;) {
    const std::optional<MpiJob::Mail> mail = job.mail(kPatience);
    if (!mail) continue;
    const Json asked = Json::parse(mail->text);
    if (asked.contains("done")) return;
    if (!unable.empty()) {
      job.post(mail->from, Json{{"unable", unable}}.dump());
      continue;
    }
    std::string answer;
    try {
      LaneConfig lane = proof->original();
      lane.plan = plan_from_json(asked["plan"].get<std::string>());
      lane.scaler = parse_loss_scale(asked["loss_scale"].get<std::string>());
      lane.own_name = asked["name"];
      answer = outcome_text(proof->runner().run(lane, false));
    } catch (const Error& error) {
      answer = Json{{"error", error.what()}}.dump();
    } catch (const std::bad_alloc&) {
      answer = Json{{"error", "out of memory"}}.dump();
    }
    job.post(mail->from, answer);
  }
}

}  // namespace

std::unique_ptr<TrialRunner> dealt_trials(std::unique_ptr<TrialRunner> own, MpiJob& job,
                                          const std::string& run_file, int lane) {
  return std::make_unique<DealtTrials>(std::move(own), job, run_file, lane);
}

void serve_trials(MpiJob& job, const OpenProof& open) {
  for (;;) {
    const std::optional<MpiJob::Mail> mail = job.mail(kPatience);
    if (!mail) continue;
    const Json asked = Json::parse(mail->text);
    if (asked.contains("end")) return;
    serve_proof(job,
                [&] { return open(asked["prove"].get<std::string>(), asked["lane"].get<int>()); });
  }
}

void end_serving(MpiJob& job) {
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank != job.rank()) job.post(rank, Json{{"end", true}}.dump());
  }
  leave_together();
}

}  // namespace halfscope
