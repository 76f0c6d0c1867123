// SPDX-License-Identifier: MIT
#include "cli/tasks/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/live_writer.h"
#include "analysis/proof/search.h"
#include "analysis/proof/trial_runner.h"
#include "analysis/proof_file.h"
#include "analysis/report/report.h"
#include "analysis/rules/rules.h"
#include "analysis/skipped_steps.h"
#include "cli/args/backends.h"
#include "cli/tasks/dealt_trials.h"
#include "cli/tasks/forward.h"
#include "cli/tasks/training.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// One progress line after the other, for all that is run.
class ProofLine {
 public:
  /// `what`: "proof", "twins".
  ProofLine(const char* what, const RunInfo& run, int64_t steps, bool quiet)
      : what_(what), inference_(run.inference), steps_(steps), quiet_(quiet) {}

  /// Shows the newest of the trials that run side by side.
  void operator()(const std::string& name, int lane, const StepRow& row) {
    if (lane < lane_) return;
    if (lane > lane_) {
      lane_ = lane;
      line_.reset();
      RunInfo info;
      info.inference = inference_;
      LaneInfo& shown = info.lanes.emplace_back();
      shown.name = fmt::format("{} {}: {}", what_, lane, name);
      line_.emplace(steps_, info, quiet_);
    }
    (*line_)({row});
  }

 private:
  const char* what_;
  bool inference_;
  int64_t steps_;
  bool quiet_;
  int lane_ = 0;
  std::optional<ProgressLine> line_;
};

void check_repeatable(const std::string& file, const RunInfo& info) {
  if (!info.lanes.empty() && is_capture(info.lanes.front().backend)) {
    throw usage_error(
        fmt::format("'{}' was recorded in {}, so halfscope cannot repeat the training", file,
                    info.lanes.front().backend),
        "make the change in your script (--fix-as writes it), and record it again");
  }
  if (info.settings.empty()) {
    const char* verb = info.inference ? "run" : "trained";
    throw usage_error(
        fmt::format("'{}' does not say how it was {}, so it cannot be repeated", file, verb),
        fmt::format("record it again with this version of halfscope {}",
                    info.inference ? "run" : "train"));
  }
  if (has_live_writer(file)) {
    throw usage_error("'" + file + "' is still being recorded",
                      "wait for its end, or stop it with Ctrl-C");
  }
}

/// Returns the data of a recorded training. It is not copied, as the network is built from it.
struct TrainingAgain {
  explicit TrainingAgain(const RunInfo& info)
      : settings(parse_settings(kTrain, info.settings)), config(train_config(settings)) {
    config.init = read_initial_weights(settings);
    data = load_training_data(settings);
    attach_network(config, settings, data);
  }
  TrainingAgain(const TrainingAgain&) = delete;

  Settings settings;
  TrainConfig config;
  Dataset data;
};

/// The lane's reference if it is the one that a repetition on `backend` has; -1 if not.
int repeated_reference(const RunView& run, int lane, const std::string& backend) {
  const int reference = reference_lane(run, lane);
  if (reference < 0 || run.lane(reference).backend != backend) return -1;
  Plan recorded = plan_from_json(run.lane(reference).plan_json);
  const Plan wanted = reference_of(plan_from_json(run.lane(lane).plan_json));
  recorded.name = wanted.name;
  return plan_to_json(recorded) == plan_to_json(wanted) ? reference : -1;
}

std::vector<StepRow> steps_of(const RunView& run, int lane) {
  if (lane < 0) return {};
  return {run.steps(lane).begin(), run.steps(lane).end()};
}

/// Where two twins leave a lane just outside their tolerance, more are trained, up to this number.
constexpr uint64_t kMostTwins = 6;

/// A run that did not reach its end is compared with twins as long as it.
int64_t steps_done(const RunView& run, int lane, const TrainConfig& config) {
  const std::span<const StepRow> rows = run.steps(lane);
  const int64_t done = rows.empty() ? 0 : rows.back().step + 1;
  return done < config.steps ? done : 0;
}

std::optional<Twins> twins_beside(const RunView& run, int lane, const TrainingAgain& again,
                                  uint64_t first_seed, bool quiet) {
  const LaneInfo& info = run.lane(lane);
  const std::string backend = run.lane(reference_lane(run, lane)).backend;
  // Trainings in double are compared with fp32 on the lane's own backend.
  const bool is_double = backend == "float64";
  TwinRequest request{.training = again.config, .plan = plan_from_json(info.plan_json)};
  request.backend = &backend_for(reference_of(request.plan), is_double ? info.backend : backend);
  request.recorded_reference = steps_of(run, repeated_reference(run, lane, backend));
  request.steps = steps_done(run, lane, again.config);
  request.first_seed = first_seed;
  if (first_seed == 1) request.skips = normal_skips(run.steps(lane));
  ProofLine line("twins", run.info(), again.config.steps, quiet);
  return train_twins(request, again.data, std::ref(line), catch_stop_signals());
}

void check_lanes(const std::string& file, const RunView& run, const std::vector<int>& lanes,
                 bool quiet, TwinCheck& check) {
  check_repeatable(file, run.info());
  store_deviations(file, {});  // whether it can be written shows before the work
  const TrainingAgain again(run.info());
  for (const int lane : lanes) {
    std::optional<Twins> twins;
    for (uint64_t seed = 1; seed <= kMostTwins; seed += kTwins) {
      std::optional<Twins> more = twins_beside(run, lane, again, seed, quiet);
      if (!more) throw Error("stopped before their end");
      check.trainings += static_cast<int64_t>(more->moved.size());
      if (twins) add_twins(*twins, std::move(*more));
      if (!twins) twins = std::move(more);
      std::vector<std::pair<int, Deviation>> rows;
      for (Deviation& row :
           rows_beside(*twins, run.steps(lane), run.steps(reference_lane(run, lane)),
                       run.deviations(lane))) {
        rows.emplace_back(lane, std::move(row));
      }
      store_deviations(file, rows);
      if (!more_twins_may_matter(RunView::open(file), lane)) break;
    }
    check.seconds += twins->seconds;
    check.twins.emplace(lane, std::move(*twins));
  }
}

/// A search that goes on where an earlier one of this version ended, and keeps its trials.
SearchOptions search_options(const std::string& file, const RunView& run, int lane,
                             const TrialBudget& budget) {
  SearchOptions options{.on = true, .budget = budget, .evidence = &run, .lane = lane};
  options.doubtful = is_doubtful(run, run_rules(run), lane);
  const Json kept = Json::parse(run.trials(lane), nullptr, false);
  if (kept.is_object() && kept.value("version", "") == HALFSCOPE_VERSION &&
      kept.contains("tried")) {
    options.tried = read_tried(kept["tried"].dump());
  }
  options.on_trial = [file, lane, writable = true](const std::vector<TriedEdit>& tried) mutable {
    if (!writable) return;
    const Json json{{"version", HALFSCOPE_VERSION}, {"tried", Json::parse(tried_json(tried))}};
    try {
      store_trials(file, lane, json.dump());
    } catch (const Error&) {
      // The next search runs these trials again. Whether the proof can be stored is told at the
      // end. Each further attempt could wait for seconds.
      writable = false;
    }
  };
  return options;
}

ProofRequest training_request(const RunView& run, const Recommendation& advice,
                              const TrainingAgain& again) {
  const LaneInfo& lane = run.lane(advice.lane);
  if (lane.loss_scale.empty()) {
    throw usage_error(fmt::format("the run does not say how the loss of {} was scaled", lane.name),
                      "record it again with this version of halfscope train");
  }
  ProofRequest request{.training = again.config,
                       .original = plan_from_json(lane.plan_json),
                       .scaler = parse_loss_scale(lane.loss_scale),
                       .advice = advice};
  request.backend = &backend_for(request.original, lane.backend);
  request.recorded = steps_of(run, advice.lane);
  request.recorded_reference = steps_of(run, repeated_reference(run, advice.lane, lane.backend));
  request.deviations.assign(run.deviations(advice.lane).begin(), run.deviations(advice.lane).end());
  request.harm = harm_of(LaneFacts(run, advice.lane)).items;
  return request;
}

/// The proof that another process of the job searches for.
class OpenedProof final : public ServedProof {
 public:
  OpenedProof(const std::string& file, int lane)
      : run_(RunView::open(file)),
        again_(run_.info()),
        request_(training_request(run_, {.lane = lane}, again_)),
        original_{
            .plan = request_.original, .scaler = request_.scaler, .backend = request_.backend} {
    request_.search.evidence = &run_;
    request_.search.lane = lane;
    runner_ = training_trials(request_, again_.data, {}, catch_stop_signals());
  }
  TrialRunner& runner() override { return *runner_; }
  const LaneConfig& original() const override { return original_; }

 private:
  RunView run_;
  TrainingAgain again_;
  ProofRequest request_;
  LaneConfig original_;
  std::unique_ptr<TrialRunner> runner_;
};

std::optional<Proof> prove_training(const std::string& file, const RunView& run,
                                    const Recommendation& advice, const TwinCheck& check,
                                    SearchOptions search, bool quiet) {
  const TrainingAgain again(run.info());
  ProofRequest request = training_request(run, advice, again);
  const LaneInfo& lane = run.lane(advice.lane);
  const int reference = repeated_reference(run, advice.lane, lane.backend);
  request.search = std::move(search);
  if (MpiJob* const job = mpi_job()) {
    request.share = [job, &file, &advice](std::unique_ptr<TrialRunner> own) {
      return dealt_trials(std::move(own), *job, file, advice.lane);
    };
  }
  const auto twins = check.twins.find(advice.lane);
  const bool whole = steps_done(run, advice.lane, again.config) == 0;
  if (twins != check.twins.end() && reference >= 0 && whole) request.twins = twins->second;
  ProofLine line("proof", run.info(), again.config.steps, quiet);
  return prove(request, again.data, std::ref(line), catch_stop_signals());
}

std::optional<Proof> prove_inference(const std::string& file, const RunView& run,
                                     const Recommendation& advice, SearchOptions search,
                                     bool quiet) {
  const LaneInfo& lane = run.lane(advice.lane);
  Settings settings = parse_settings(kRun, run.info().settings);
  settings.record = file;  // it was recorded
  InferenceProofRequest request{.run = runner_config(settings),
                                .network = {},
                                .original = plan_from_json(lane.plan_json),
                                .advice = advice};
  request.backend = &backend_for(request.original, lane.backend);
  const bool comparable = run.status() == RunStatus::complete &&
                          repeated_reference(run, advice.lane, lane.backend) >= 0;
  for (const Deviation& each : run.deviations(advice.lane)) {
    if (comparable && each.of == Deviation::Of::output) request.recorded.push_back(each);
  }
  request.run.init = read_initial_weights(settings);
  request.search = std::move(search);
  const Work work = read_work(settings);
  request.network = [&work] { return work.network; };
  ProofLine line("proof", run.info(), run.info().steps_planned, quiet);
  return prove(request, work.samples.data, std::ref(line), catch_stop_signals());
}

}  // namespace

std::vector<std::string> TwinCheck::lines() const {
  std::vector<std::string> all;
  if (trainings > 0) {
    all.push_back(
        fmt::format("checked against {} further float32 trainings ({:.1f} s)", trainings, seconds));
  }
  for (const std::string& problem : problems) {
    all.push_back("not checked against further float32 trainings: " + problem);
  }
  return all;
}

TwinCheck check_with_twins(const std::string& file, const RunView& run, bool quiet) {
  TwinCheck check;
  std::vector<int> lanes;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    if (twins_may_matter(run, lane)) lanes.push_back(lane);
  }
  if (lanes.empty()) return check;
  try {
    check_lanes(file, run, lanes, quiet, check);
  } catch (const Error& e) {
    check.problems.emplace_back(e.what());
  }
  return check;
}

void Verified::check_stored() const {
  if (!not_stored) return;
  throw not_stored->with_text(
      fmt::format("the proof is not in the run file: {}", not_stored->what()));
}

Verified verify_advice(const std::string& file, const RunView& run, const Recommendation& advice,
                       TwinCheck check, bool quiet, const TrialBudget& budget) {
  check_repeatable(file, run.info());
  Verified result{.check = std::move(check), .advice = advice};
  SearchOptions search = search_options(file, run, advice.lane, budget);
  result.proof = run.info().inference
                     ? prove_inference(file, run, advice, std::move(search), quiet)
                     : prove_training(file, run, advice, result.check, std::move(search), quiet);
  if (!result.proof) return result;
  try {
    std::vector<std::pair<int, Deviation>> rows;
    for (const Deviation& row : result.proof->deviations) rows.emplace_back(advice.lane, row);
    if (!rows.empty()) store_deviations(file, rows);
    store_proof(file, advice.lane, proof_json(*result.proof));
  } catch (const Error& e) {
    result.not_stored = e;
  }
  return result;
}

std::optional<Recommendation> advice_to_try(const RunView& run,
                                            const std::vector<Finding>& findings, int lane) {
  // No plan corrects a setting of the training.
  const bool is_setting =
      std::any_of(findings.begin(), findings.end(), [lane](const Finding& finding) {
        const Rule* rule = rule_of(finding);
        return finding.lane == lane && finding.severity >= Severity::error && rule != nullptr &&
               rule->mechanism == Mechanism::configuration && finding.action.edit.empty();
      });
  if (is_setting) return std::nullopt;
  if (std::optional<Recommendation> advice = recommend(run, findings, lane)) return advice;
  if (harm_of(LaneFacts(run, lane)).items.empty()) return std::nullopt;
  return Recommendation{.lane = lane, .plan_json = run.lane(lane).plan_json};
}

Verified verify_run(const std::string& file, bool quiet) {
  std::optional<RunView> run = RunView::open(file);
  TwinCheck check = check_with_twins(file, *run, quiet);
  if (check.trainings > 0) run = RunView::open(file);
  const Report report = make_report(*run);
  const int lane = report.recommendation ? report.recommendation->lane : report.focus;
  const std::optional<Recommendation> advice =
      lane < 0 ? std::nullopt : advice_to_try(*run, report.findings, lane);
  if (!advice) return {.check = std::move(check), .undecided = !report.actions.empty()};
  return verify_advice(file, *run, *advice, std::move(check), quiet);
}

void serve_proofs(MpiJob& job) {
  serve_trials(job, [](const std::string& file, int lane) {
    return std::make_unique<OpenedProof>(file, lane);
  });
}

std::string proof_line(const Verified& verified) {
  if (verified.undecided) return "proof: not tried, because this advice leaves you a choice";
  if (!verified.advice) return "proof: there is no change of the plan to prove";
  return "proof: " + (verified.proof ? verified.proof->text : "stopped before its end");
}

std::string proof_lines(const Verified& verified) {
  std::string text;
  for (const std::string& line : verified.check.lines()) text += line + "\n";
  return text + proof_line(verified);
}

Json proof_member(const std::optional<Proof>& proof) {
  return proof ? Json::parse(proof_json(*proof)) : Json(nullptr);
}

Json twins_member(const TwinCheck& check) {
  if (check.trainings == 0) return nullptr;
  return {{"trainings", check.trainings}, {"seconds", json_number(check.seconds)}};
}

}  // namespace halfscope
