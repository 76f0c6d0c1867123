// SPDX-License-Identifier: MIT
// Compiled so that watch.h sees what bodies do (bench/CMakeLists.txt).
#include "bench/count/counted_program.h"

#include <memory>
#include <numeric>
#include <utility>

#include "bench/count/counting_library.h"
#include "core/backend/step_queue.h"
#include "core/train/feed.h"
#include "gpu/engine/program.h"
#include "gpu/engine/steps.h"

namespace halfscope::count {
namespace {

/// As core/train/trainer.cpp runs it.
void run_step(const Executable& executable, const Dataset& data, Feed& feed, Program& program,
              StepQueue& steps, const StepState* state, bool measured) {
  steps.open(state);
  steps.run(Entry::begin, false);
  std::vector<int64_t> samples(static_cast<size_t>(feed.batch()));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  feed.write(executable, program, data.train, samples);
  program.write_scalar(executable.keep_sum, 0.0);
  steps.run(Entry::grad, measured);
  steps.run(Entry::accumulate, measured);
  steps.keep(executable.loss);
  if (executable.accuracy != kNone) steps.keep(executable.accuracy);
  steps.run(Entry::norm, false);
  program.write_scalar(executable.learning_rate, 0.1);
  steps.update(measured);
  steps.close();
  steps.collect();
}

}  // namespace

CountedStep count_step(const Executable& executable, const Dataset& data, GpuProducts products,
                       bool measured) {
  auto owned = std::make_unique<CountingExecutor>();
  CountingExecutor& executor = *owned;
  std::unique_ptr<gpu::ProductLibrary> library;
  if (products != GpuProducts::own) {
    library = std::make_unique<CountingLibrary>(executor.launches(), products == GpuProducts::fast);
  }
  gpu::DeviceProgram<CountingExecutor> program(executable, std::move(owned), std::move(library));
  program.keep_values(false);  // nobody reads them
  const StepRules rules{};
  const std::unique_ptr<StepQueue> steps = program.step_queue(rules, 1, measured);
  const StepState state{};
  Feed feed(executable, data);
  run_step(executable, data, feed, program, *steps, &state, measured);
  executor.launches().clear();  // scalars that never change are written in the first step
  run_step(executable, data, feed, program, *steps, nullptr, measured);
  return {std::move(executor.launches()), program.device_bytes()};
}

}  // namespace halfscope::count
