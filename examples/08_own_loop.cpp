// SPDX-License-Identifier: MIT
// A training loop of your own: lower a network under a plan, scale the loss, decide, update, record
// what the taps see, and print what the rules find. HalfScope's Trainer is not used.
//   08_own_loop [FILE.onnx]
#include <cstdio>
#include <memory>
#include <vector>

#include "halfscope/analysis/memory_sink.h"
#include "halfscope/analysis/rules/rules.h"
#include "halfscope/core/backend/step_decision.h"
#include "halfscope/core/error.h"
#include "halfscope/core/models/loss.h"
#include "halfscope/core/models/models.h"
#include "halfscope/core/onnx/import.h"
#include "halfscope/core/policy/policy.h"
#include "halfscope/core/train/feed.h"
#include "halfscope/core/train/lane_setup.h"
#include "halfscope/core/train/trainer.h"
#include "halfscope/emulation/backends.h"

using namespace halfscope;

int main(int argc, char** argv) try {
  const int64_t batch = 32, steps = 30;
  const Dataset data = make_digits();
  Model model = argc > 1 ? read_onnx(argv[1], {.batch = batch}).model
                         : build_network("lenet", batch, data.sample_shape, data.classes);
  add_loss(model, parse_loss("cross-entropy"));

  // One lane: the network under a plan, compiled for a backend.
  const LaneConfig lane{*preset_plan("float16"), parse_loss_scale("dynamic:16777216"),
                        &emulation_backend()};
  const Executable exe = lower(model, lane.plan, {.optimizer = parse_optimizer("sgd:lr=0.1")});
  const std::unique_ptr<Program> program = lane.backend->compile(exe);
  write_weights(*program, exe.graph, starting_weights(model, 1, {}));

  MemorySink sink;
  RunInfo run;
  run.model = model.name;
  run.batch = batch;
  run.lanes = {describe_lane(lane, exe)};
  sink.begin(run);
  Feed feed(exe, data);
  const BatchOrder order(data.train.size(), batch, 1, true);
  const StepRules rules{lane.scaler};
  StepState state{initial_state(lane.scaler)};
  std::vector<TensorStats> seen(exe.taps.size());  // one per tensor of the step

  for (int64_t step = 0; step < steps; ++step) {
    feed.write(exe, *program, data.train, order.batch(step));
    program->write_scalar(exe.loss_scale, state.scaler.scale);
    seen.assign(seen.size(), {});
    for (const Entry entry : {Entry::begin, Entry::grad, Entry::norm}) program->run(entry, seen);

    const double sum_sq = program->read_scalar(exe.gradient_norm);  // of the scaled gradients
    const StepDecision now = decide(state, rules, sum_sq);
    const StepRow row{.step = step,
                      .loss = program->read_scalar(exe.loss),
                      .loss_scale = state.scaler.scale,
                      .skipped = now.skipped,
                      .grad_norm = unscaled_norm(sum_sq, state.scaler),
                      .first_bad = first_bad_site(exe, seen)};
    if (!now.skipped) {
      program->write_scalar(exe.inverse_scale, static_cast<double>(now.inverse_scale));
      program->write_scalar(exe.learning_rate, 0.1);
      program->write_scalar(exe.clip, now.clip);  // Adam also reads exe.step_scalars
      program->run(Entry::update, seen);
    }
    state = now.next;
    sink.step(0, row, seen);
    std::printf("step %2d  loss %-8.4g loss scale %-9.0f%s\n", static_cast<int>(step), row.loss,
                row.loss_scale, row.skipped ? "  skipped" : "");
  }
  sink.end(RunEnd::complete);
  for (const Finding& finding : run_rules(sink.view())) std::puts(finding.text.c_str());
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
