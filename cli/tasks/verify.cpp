// SPDX-License-Identifier: MIT
#include "cli/tasks/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/live_writer.h"
#include "analysis/proof_file.h"
#include "analysis/report/report.h"
#include "cli/args/backends.h"
#include "cli/tasks/training.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// One progress line per lane that is trained.
class ProofLine {
 public:
  ProofLine(int64_t steps, bool quiet) : steps_(steps), quiet_(quiet) {}

  void operator()(const std::string& name, int lane, const StepRow& row) {
    if (lane != lane_) {
      lane_ = lane;
      line_.reset();
      RunInfo info;
      LaneInfo& shown = info.lanes.emplace_back();
      shown.name = fmt::format("proof {}: {}", lane, name);
      line_.emplace(steps_, info, quiet_);
    }
    (*line_)({row});
  }

 private:
  int64_t steps_;
  bool quiet_;
  int lane_ = 0;
  std::optional<ProgressLine> line_;
};

}  // namespace

void Verified::check_stored() const {
  if (not_stored) throw Error(*not_stored);
}

Verified verify_advice(const std::string& file, const RunView& run, const Recommendation& advice,
                       bool quiet) {
  const RunInfo& info = run.info();
  const LaneInfo& lane = run.lane(advice.lane);
  if (info.inference) {
    throw usage_error(file + " holds forward passes, by which advice cannot be proved",
                      "run the network again with the plan and compare");
  }
  if (info.settings.empty() || lane.loss_scale.empty()) {
    throw usage_error(file + " does not say how it was trained, so the advice cannot be tried",
                      "record it again with this version of halfscope train");
  }
  if (has_live_writer(file)) {
    throw usage_error(file + " is still being recorded",
                      "wait for its end, or stop it with Ctrl-C");
  }
  const Settings settings = parse_settings(kTrain, info.settings);
  ProofRequest request{.training = train_config(settings),
                       .original = plan_from_json(lane.plan_json),
                       .scaler = parse_loss_scale(lane.loss_scale),
                       .advice = advice};
  request.recorded.assign(run.steps(advice.lane).begin(), run.steps(advice.lane).end());
  for (int i = 0; i < run.lane_count(); ++i) {
    // The proof trains on the lane's backend; another one's fp32 may have other bits.
    if (run.lane(i).plan_json != plan_to_json(Plan{}) || run.lane(i).backend != lane.backend) {
      continue;
    }
    request.recorded_reference.assign(run.steps(i).begin(), run.steps(i).end());
  }
  request.backend = &backend_for(request.original, lane.backend);
  request.training.init = read_initial_weights(settings);
  const Dataset data = load_training_data(settings);
  attach_network(request.training, settings, data);
  const std::atomic<bool>& stop = catch_stop_signals();
  Verified result{.advice = advice, .proof = {}, .not_stored = {}};
  {
    ProofLine line(request.training.steps, quiet);
    result.proof = prove(request, data, std::ref(line), stop);
  }
  if (!result.proof) return result;
  try {
    store_proof(file, advice.lane, proof_json(*result.proof));
  } catch (const Error& e) {
    result.not_stored.emplace(fmt::format("the proof is not in the run file: {}", e.what()),
                              e.hint(), e.kind());
  }
  return result;
}

Verified verify_run(const std::string& file, bool quiet) {
  const RunView run = RunView::open(file);
  const std::optional<Recommendation> advice = make_report(run).recommendation;
  return advice ? verify_advice(file, run, *advice, quiet) : Verified{};
}

std::string proof_line(const Verified& verified) {
  if (!verified.advice) return "proof: there is no advice to prove";
  return "proof: " + (verified.proof ? verified.proof->text : "stopped before its end");
}

Json proof_member(const std::optional<Proof>& proof) {
  return proof ? Json::parse(proof_json(*proof)) : Json(nullptr);
}

}  // namespace halfscope
