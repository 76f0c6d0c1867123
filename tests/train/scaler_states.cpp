// SPDX-License-Identifier: MIT
// Prints the states of a loss scaler, one line per step, for tests/oracle/scaler_traces.py:
//   scaler_states LOSS_SCALE PATTERN
// The pattern has one letter per step: F for gradients of 1, Z for 0, O for infinity. With several
// optimizers (torch), A is infinity for the first of two only, B for the second only. Columns:
// scale after the step, tracker, hysteresis, iteration, last overflow, optimizer steps, skipped,
// weight finite, stop; skipped has one digit per optimizer. The weight is trained by SGD with a
// rate of 1.
#include <cmath>
#include <cstdio>
#include <string_view>

#include "core/backend/step_decision.h"
#include "core/error.h"

namespace halfscope {
namespace {

void print(const LossScalerState& state, int64_t updates, const char* skipped, float weight) {
  std::printf("%a %d %d %lld %lld %lld %s %d %d\n", state.scale, state.tracker, state.hysteresis,
              static_cast<long long>(state.iteration), static_cast<long long>(state.last_overflow),
              static_cast<long long>(updates), skipped, std::isfinite(weight) ? 1 : 0,
              static_cast<int>(state.stop));
}

void one_optimizer(const LossScalerConfig& scaler, std::string_view pattern) {
  StepState state{initial_state(scaler), 0};
  const StepRules rules{.scaler = scaler};
  float weight = 0.0f;
  for (const char letter : pattern) {
    const float gradient = letter == 'F' ? 1.0f : letter == 'Z' ? 0.0f : INFINITY;
    const double square = static_cast<double>(gradient) * static_cast<double>(gradient);
    const StepDecision decision = decide(state, rules, square);
    if (!decision.skipped) {
      weight -= divides_by_scale(scaler) ? gradient / decision.inverse_scale
                                         : gradient * decision.inverse_scale;
    }
    state = decision.next;
    print(state.scaler, state.updates, decision.skipped ? "1" : "0", weight);
  }
}

void two_optimizers(const LossScalerConfig& scaler, std::string_view pattern) {
  LossScalerState state = initial_state(scaler);
  int64_t updates = 0;
  for (const char letter : pattern) {
    const bool both = letter == 'O';
    const SharedStep step =
        shared_step(state, scaler, {!both && letter != 'A', !both && letter != 'B'});
    state = step.next;
    for (const bool skipped : step.skipped) updates += skipped ? 0 : 1;
    const char text[] = {step.skipped[0] ? '1' : '0', step.skipped[1] ? '1' : '0', '\0'};
    print(state, updates, text, 0.0f);
  }
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: scaler_states LOSS_SCALE PATTERN\n");
    return 2;
  }
  try {
    const halfscope::LossScalerConfig scaler = halfscope::parse_loss_scale(argv[1]);
    const std::string_view pattern = argv[2];
    const bool shared = pattern.find_first_of("AB") != std::string_view::npos;
    (shared ? halfscope::two_optimizers : halfscope::one_optimizer)(scaler, pattern);
    return 0;
  } catch (const halfscope::Error& error) {
    std::fprintf(stderr, "scaler_states: %s\n", error.what());
    return 2;
  }
}
