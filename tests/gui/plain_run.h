// SPDX-License-Identifier: MIT
// Small runs, so that every number that a panel shows is known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/run_view.h"
#include "gui/data/run_model.h"

namespace halfscope::test {

inline std::shared_ptr<const gui::RunModel> model_of(RunView view, bool with_report = false) {
  return gui::RunModel::make("run.hscope", std::make_shared<const RunView>(std::move(view)),
                             with_report);
}

/// Two lanes of `layers` layers with an activation and a gradient each, and nothing measured.
inline RunInfo plain_info(int layers) {
  RunInfo info;
  for (const char* name : {"float32", "half"}) {
    LaneInfo lane;
    lane.name = name;
    lane.backend = "emulated";
    for (int i = 0; i < layers; ++i) {
      for (const Role role : {Role::activation, Role::weight_grad}) {
        SiteInfo site{.path = "layer" + std::to_string(i),
                      .tensor = role == Role::activation ? "activation" : "weight_grad",
                      .role = role,
                      .phase = role == Role::activation ? Phase::forward : Phase::backward,
                      .op = "Gemm",
                      .format = kFp16,
                      .shape = {4}};
        site.order = static_cast<int>(lane.sites.size());
        lane.sites.push_back(site);
      }
    }
    info.lanes.push_back(lane);
  }
  return info;
}

inline TensorStats stats_of(std::vector<float> values) {
  std::vector<float> rounded(values.size());
  return measure(values, rounded, kFp16);
}

/// `steps` steps of plain_info: the loss is 1 + step, the scale 1024 and from step 50 on 512; in
/// step 50 the update is skipped and the gradient of layer 1 overflows.
inline RunView plain_run(int layers, int64_t steps) {
  RunView run(plain_info(layers), RunStatus::complete);
  for (int64_t step = 0; step < steps; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      run.add_step(lane, {.step = step,
                          .loss = 1.0 + static_cast<double>(step) + lane,
                          .loss_scale = lane == 0   ? 1.0
                                        : step < 50 ? 1024.0
                                                    : 512.0,
                          .learning_rate = 0.125,
                          .skipped = lane == 1 && step == 50,
                          .grad_norm = 0.75});
      for (const SiteInfo& site : run.lane(lane).sites) {
        const bool bad = lane == 1 && step == 50 && site.name() == "layer1.weight_grad";
        run.add_window(lane, site.order,
                       {.step = step,
                        .step_count = 1,
                        .stats = stats_of({bad ? 1e6f : 8.0f, 2.0f, 0.5f, 0.0f})});
      }
    }
  }
  return run;
}

}  // namespace halfscope::test
