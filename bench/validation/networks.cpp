// SPDX-License-Identifier: MIT
#include "bench/validation/networks.h"

#include <atomic>

#include "analysis/memory_sink.h"
#include "core/train/runner.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"

namespace halfscope::validation {

std::vector<float> output_of(const zoo::Setup& setup, const std::string& plan) {
  const zoo::LaneChoice choice = zoo::lane_choice(plan);
  RunnerConfig config;
  config.lanes = {{.plan = choice.plan, .scaler = choice.scaler, .backend = &emulation_backend()}};
  config.every = 0;
  Runner runner(setup.model, config, setup.data);
  const std::atomic<bool> stop{false};
  runner.run(nullptr, {}, stop);
  return runner.result(0).outputs.begin()->second.data;
}

Training train(TrainConfig config, const Dataset& data, const std::string& plan) {
  const zoo::LaneChoice choice = zoo::lane_choice(plan);
  config.lanes = {{.plan = choice.plan, .scaler = choice.scaler, .backend = &emulation_backend()}};
  if (choice.sum_format) config.sum_format = choice.sum_format;
  if (choice.state_format) config.state_format = choice.state_format;
  Trainer trainer(config, data);
  MemorySink sink;
  sink.begin(trainer.describe());
  const NamedTensors start = trainer.weights(0);
  const std::atomic<bool> stop{false};
  trainer.run(&sink, {}, stop);
  return {.start = start, .end = trainer.weights(0), .run = sink.view()};
}

Training train(const zoo::Setup& setup, const std::string& plan) {
  TrainConfig config = setup.train;
  config.build = [model = setup.model](int64_t) { return model; };
  return train(config, setup.data, plan);
}

}  // namespace halfscope::validation
