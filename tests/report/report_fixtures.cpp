// SPDX-License-Identifier: MIT
#include "tests/report/report_fixtures.h"

#include <cmath>

namespace halfscope::test {
namespace {

/// Copies everything of a run except its description and status.
void copy_rows(const RunView& from, RunView& to) {
  for (int lane = 0; lane < from.lane_count(); ++lane) {
    for (const StepRow& row : from.steps(lane)) to.add_step(lane, row);
    for (const EvalRow& row : from.evals(lane)) to.add_eval(lane, row);
    for (const SiteError& error : from.errors(lane)) to.add_error(lane, error);
    if (!from.proof(lane).empty()) to.set_proof(lane, from.proof(lane));
    for (const SiteInfo& site : from.lane(lane).sites) {
      for (const StatsWindow& window : from.windows(lane, site.order)) {
        to.add_window(lane, site.order, window);
      }
    }
  }
}

}  // namespace

void add_errors(RunView& run, const std::string& adder) {
  // Beyond the recorded rows; all of these steps were skipped: samples of failed steps are omitted.
  for (int64_t step : {44, 49}) {
    double inherited = 0.0;
    for (const SiteInfo& site : run.lane(1).sites) {
      if (site.role == Role::update || site.role == Role::weight) continue;
      const std::optional<int> other = run.find_site(0, site.name());
      if (!other) continue;
      SiteError error{.step = step, .site = site.order, .other_lane = 0, .other_site = *other};
      error.n = 512;
      if (site.role != Role::input) {
        const double local = site.path == adder ? 0.02 : site.op == "Relu" ? 0.0 : 3e-4;
        error.local_fp64 = local * (step == 44 ? 1.0 : 1.5);
        error.inherited = inherited;
        inherited = std::sqrt(inherited * inherited + local * local);
        error.total = inherited;
        error.differing = 300;
        error.ulps[1] = 200;
        error.ulps[2] = 90;
        error.ulps[4] = 10;
        error.max_ulps = site.path == adder ? 11.0 : 9.0;
        if (site.role == Role::activation) error.sign_flips = site.path == "conv1" ? 3 : 0;
        if (site.op == "SoftmaxCrossEntropyLoss") error.sign_flips = error.n;  // no ReLU after it
      }
      error.ulps[0] = error.n - error.differing;
      run.add_error(1, error);
    }
  }
}

std::string proof_json() {
  return R"({"lane":"mixed_float16","advised":"mixed_float16+fp32","layers":["conv2","fc1"],
"loss_scale":null,"holds":true,"steps":200,"seed":1,"tolerance":0.012,"twin_spread":0.006,
"trials":[
{"name":"mixed_float16","kind":"original","without":null,"gap":"inf","skipped":200,
 "calibration_skips":16,"passes":false},
{"name":"mixed_float16+fp32","kind":"advised","without":null,"gap":0.0041,"skipped":1,
 "calibration_skips":2,"passes":true},
{"name":"without conv2","kind":"leave_one_out","without":"conv2","gap":"nan","skipped":200,
 "calibration_skips":16,"passes":false},
{"name":"without fc1","kind":"leave_one_out","without":"fc1","gap":0.31,"skipped":7,
 "calibration_skips":2,"passes":false}],
"dropped":["fc2"],
"text":"With conv2 and fc1 in fp32 the loss follows fp32; without either it does not."})";
}

RunView full_run() {
  RunSpec spec = hot_spec();
  spec.steps = 40;
  spec.lanes.push_back(
      {.name = "mixed_float16+fp32", .loss_scale = 4096.0, .keep_fp32 = {"conv2"}});
  RunView run = make_run(spec);
  add_errors(run);
  run.set_proof(1, proof_json());
  return run;
}

RunView large_run(int layers) {
  RunSpec spec = healthy_spec();
  spec.layers.clear();
  std::string before = "input";
  for (int i = 0; i < layers; ++i) {
    const std::string path = "block" + std::to_string(i / 10) + "/fc" + std::to_string(i % 10);
    spec.layers.push_back({.path = path, .op = "Gemm", .inputs = {before}, .weights = true});
    before = path;
  }
  spec.steps = 1;
  spec.elements = 1024;
  spec.spread = 3.0;
  RunView run = make_run(spec);
  add_errors(run, "block7/fc7");
  return run;
}

RunView with_status(const RunView& run, RunStatus status, int64_t planned) {
  RunInfo info = run.info();
  info.steps_planned = planned;
  RunView copy(std::move(info), status);
  copy_rows(run, copy);
  return copy;
}

}  // namespace halfscope::test
