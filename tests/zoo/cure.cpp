// SPDX-License-Identifier: MIT
#include "tests/zoo/cure.h"

#include <atomic>
#include <chrono>

#include "analysis/proof/search.h"
#include "analysis/recorder.h"
#include "analysis/report/report.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "emulation/backends.h"

namespace halfscope::zoo {
namespace {

const std::atomic<bool> kGoOn{false};

std::unique_ptr<TapSink> recorder_at(const std::filesystem::path& file, RunInfo info) {
  info.version = "zoo";
  auto recorder = std::make_unique<Recorder>(file, Recorder::Options{.force = true});
  recorder->begin(info);
  return recorder;
}

std::vector<LaneConfig> lanes_of_case(const LaneChoice& choice) {
  return with_references(
      {{.plan = preset_plan("float32").value(), .scaler = {}, .backend = &emulation_backend()},
       {.plan = choice.plan, .scaler = choice.scaler, .backend = &emulation_backend()}});
}

Recommendation advice_for(const RunView& run, int lane) {
  const Report report = make_report(run);
  if (std::optional<Recommendation> advice = recommend(run, report.findings, lane)) return *advice;
  return {.lane = lane, .plan_json = run.lane(lane).plan_json};
}

SearchOptions search_of(const RunView& run, const TrialBudget& budget) {
  SearchOptions options{.on = true, .budget = budget, .evidence = &run, .lane = 1};
  options.doubtful = is_doubtful(run, make_report(run).findings, 1);
  return options;
}

}  // namespace

Cure find_cure(const Case& which, const std::string& plan, const std::filesystem::path& folder,
               const TrialBudget& budget) {
  const auto begin = std::chrono::steady_clock::now();
  Cure cure{.case_id = which.id, .plan = plan};
  const Setup setup = which.make();
  const LaneChoice choice = which.lane(plan);
  const std::filesystem::path file = folder / "run.hscope";
  const ErrorSampling errors{.enabled = true, .emulator = &emulation_backend()};
  try {
    if (setup.trains) {
      TrainConfig config = setup.train;
      config.build = [model = setup.model](int64_t) { return model; };
      config.errors = errors;
      config.lanes = lanes_of_case(choice);
      config.sum_format = choice.sum_format;
      config.state_format = choice.state_format;
      {
        Trainer trainer(config, setup.data);
        const std::unique_ptr<TapSink> sink = recorder_at(file, trainer.describe());
        trainer.run(sink.get(), {}, kGoOn);
      }
      const RunView run = RunView::open(file);
      ProofRequest request{.training = config,
                           .original = choice.plan,
                           .scaler = choice.scaler,
                           .advice = advice_for(run, 1),
                           .backend = &emulation_backend()};
      request.deviations.assign(run.deviations(1).begin(), run.deviations(1).end());
      request.harm = harm_of(LaneFacts(run, 1)).items;
      request.search = search_of(run, budget);
      cure.proof = prove(request, setup.data, {}, kGoOn);
    } else {
      const RunnerConfig config{.lanes = lanes_of_case(choice), .errors = errors};
      {
        Runner runner(setup.model, config, setup.data);
        const std::unique_ptr<TapSink> sink = recorder_at(file, runner.describe());
        runner.run(sink.get(), {}, kGoOn);
      }
      const RunView run = RunView::open(file);
      InferenceProofRequest request{.run = config,
                                    .network = [&setup] { return setup.model; },
                                    .original = choice.plan,
                                    .advice = advice_for(run, 1),
                                    .backend = &emulation_backend()};
      request.search = search_of(run, budget);
      cure.proof = prove(request, setup.data, {}, kGoOn);
    }
  } catch (const Error& error) {
    cure.why_not = error.what();
  }
  cure.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return cure;
}

}  // namespace halfscope::zoo
