// SPDX-License-Identifier: MIT
// HalfScope's main task as library calls: train a network that breaks in fp16, find the layer that
// causes it, keep that layer in fp32, and train again. Everything stays in memory.
#include <atomic>
#include <cstdio>

#include "halfscope/analysis/memory_sink.h"
#include "halfscope/analysis/rules/recommend.h"
#include "halfscope/analysis/rules/rules.h"
#include "halfscope/core/policy/policy.h"
#include "halfscope/core/train/trainer.h"
#include "halfscope/emulation/backends.h"

namespace {

using namespace halfscope;

/// Trains one lane for 12 steps and returns its recorded run.
RunView train(const Plan& plan, const Dataset& data) {
  TrainConfig config;
  config.model = "lenet-hot";
  config.batch = 32;
  config.steps = 12;
  config.evaluate = false;
  config.lanes = {{plan, parse_loss_scale("dynamic"), &emulation_backend()}};
  Trainer trainer(config, data);
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> stop{false};
  trainer.run(&sink, nullptr, stop);
  return sink.view();
}

int64_t skipped_steps(const RunView& run) {
  int64_t count = 0;
  for (const StepRow& row : run.steps(0)) count += row.skipped ? 1 : 0;
  return count;
}

}  // namespace

int main() {
  const Dataset data = make_digits();
  const RunView broken = train(*preset_plan("mixed_float16"), data);
  const std::vector<Finding> findings = run_rules(broken);
  const std::optional<Recommendation> advice = recommend(broken, findings, 0);
  if (!advice) {
    std::puts("nothing to advise");
    return 1;
  }
  std::printf("broken: %ld steps skipped\nadvice: %s\n", static_cast<long>(skipped_steps(broken)),
              advice->text.c_str());

  const RunView cured = train(plan_from_json(advice->plan_json), data);
  std::printf("cured: %ld steps skipped, loss %.4f\n", static_cast<long>(skipped_steps(cured)),
              cured.steps(0).back().loss);
  const bool right = advice->edit.fp32_layers() == std::vector<std::string>{"conv2"};
  return right && skipped_steps(cured) == 0 ? 0 : 1;
}
