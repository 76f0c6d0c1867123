// SPDX-License-Identifier: MIT
#include "cli/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "analysis/live_writer.h"
#include "analysis/proof_file.h"
#include "analysis/rules/rules.h"
#include "cli/backends.h"
#include "cli/progress.h"
#include "cli/stop.h"
#include "cli/train_options.h"
#include "cli/training.h"
#include "core/error.h"

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

std::optional<Proof> verify_advice(const std::string& file, const RunView& run,
                                   const Recommendation& advice, bool quiet) {
  const RunInfo& info = run.info();
  const LaneInfo& lane = run.lane(advice.lane);
  if (info.settings.empty() || lane.loss_scale.empty()) {
    throw usage_error(file + " does not say how it was trained, so the advice cannot be tried",
                      "record it again with this version of halfscope train");
  }
  if (has_live_writer(file)) {
    throw usage_error(file + " is still being recorded",
                      "wait for its end, or stop it with Ctrl-C");
  }
  const TrainOptions options = parse_settings(info.settings);
  ProofRequest request{train_config(options), plan_from_json(lane.plan_json),
                       parse_loss_scale(lane.loss_scale), advice, nullptr};
  request.backend = &backend_for(request.original);
  if (!options.init.empty()) request.training.init = read_initial_weights(options.init);
  const Dataset data = load_dataset(options.data);
  const std::atomic<bool>& stop = catch_stop_signals();
  std::optional<Proof> proof;
  {
    ProofLine line(request.training.steps, quiet);
    proof = prove(request, data, std::ref(line), stop);
  }
  if (!proof) return proof;
  try {
    store_proof(file, advice.lane, proof_json(*proof));
  } catch (const Error& e) {
    std::cerr << "halfscope: the proof is not in the run file: " << e.what() << '\n';
  }
  return proof;
}

Verified verify_run(const std::string& file, bool quiet) {
  const RunView run = RunView::open(file);
  const std::vector<Finding> findings = run_rules(run);
  const int lane = default_lane(run, findings);
  Verified result;
  if (lane >= 0) result.advice = recommend(run, findings, lane);
  if (result.advice) result.proof = verify_advice(file, run, *result.advice, quiet);
  return result;
}

std::string proof_line(const Verified& verified) {
  if (!verified.advice) return "proof: there is no advice to prove\n";
  return "proof: " + (verified.proof ? verified.proof->text : "stopped before its end") + "\n";
}

Json proof_member(const std::optional<Proof>& proof) {
  return proof ? Json::parse(proof_json(*proof)) : Json(nullptr);
}

}  // namespace halfscope
