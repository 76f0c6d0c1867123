// SPDX-License-Identifier: MIT
// Failures of data-parallel ranks: in their gradient sums, and in what they agree on.
#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

constexpr const char* kInBf16 = "mixed_bfloat16 reduce=ring:format=bf16";

/// Adds a change to the smallest fix: this reduction instead of the case's own.
void fix_reduction(Net& n, FixKind kind, const std::string& recipe) {
  n.fix(Change{.kind = kind, .text = reduction_text(parse_reduction(recipe))});
}

/// Each rank has one sample, and a step's gradient is the mean of the ranks' gradients, that is, of
/// their inputs. Inputs are drawn from N(mean, deviation).
Setup averaged(int64_t ranks, int64_t inputs, double mean, double deviation, int64_t steps) {
  Net n(430 + static_cast<uint64_t>(ranks));
  const ValueId x = n.in({1, inputs}, n.draw.normals(ranks * inputs, deviation, mean));
  const ValueId w = n.variable({inputs, 1}, n.draw.normals(inputs, 0.1, 1.0));
  const ValueId y = n.op("MatMul", {x, w});
  n.symptom(w);
  n.decoy(y);
  fix_reduction(n, FixKind::reduce_order, "all-to-all:format=bf16");
  Setup setup = n.train_loss(n.mean_of_all(y), "sgd:lr=0.01", steps);
  setup.train.batch = setup.train.ranks = ranks;
  setup.train.shuffle = false;
  return setup;
}

/// Two ranks. Only the second one has a gradient that overflows at a loss scale of 65536, in its
/// first batch.
Setup f49() {
  constexpr int64_t kRows = 4, kWidth = 4, kOut = 2, kSteps = 60;
  Net n(49);
  std::vector<float> rows = n.draw.normals(2 * kRows * kSteps * kWidth);
  for (int64_t i = kRows * kWidth; i < 2 * kRows * kWidth; ++i) {
    rows[static_cast<size_t>(i)] *= 3.0f;
  }
  const std::vector<float> wanted = n.draw.uniforms(kOut * kWidth, 0.3, 0.6);
  std::vector<float> targets;
  for (int64_t i = 0; i < 2 * kRows * kSteps; ++i) {
    for (int64_t o = 0; o < kOut; ++o) {
      double sum = 0.0;
      for (int64_t j = 0; j < kWidth; ++j) {
        sum += static_cast<double>(rows[static_cast<size_t>(i * kWidth + j)]) *
               static_cast<double>(wanted[static_cast<size_t>(o * kWidth + j)]);
      }
      targets.push_back(static_cast<float>(sum));
    }
  }
  const ValueId x = n.in({kRows, kWidth}, rows);
  const ValueId y = n.linear(x, kOut, std::vector<float>(kOut * kWidth, 0.0f));
  n.symptom(n.made_by(y).inputs[1]);
  n.decoy(y);
  fix_reduction(n, FixKind::config, "ring");
  Setup setup = n.train_squares(y, targets, "sgd:lr=0.3", kSteps);
  setup.train.batch = 2 * kRows;
  setup.train.ranks = 2;
  setup.train.shuffle = false;
  return setup;
}

}  // namespace

std::vector<Case> rank_cases() {
  const std::vector<std::string> plain{"mixed_bfloat16", "mixed_bfloat16 reduce=ring:format=fp32",
                                       "mixed_bfloat16 reduce=all-to-all:format=bf16"};
  return {
      {"F22r",
       "the gradient sum over 1024 ranks stalls",
       true,
       [] { return averaged(1024, 4, 1.0, 0.02, 20); },
       {kInBf16},
       plain,
       Measure::weights},
      {"F43",
       "384 ranks sum gradients in bf16 and round at every hop",
       true,
       [] { return averaged(384, 64, 0.0, 1.0, 30); },
       {kInBf16},
       plain,
       Measure::weights,
       0.005,
       0.01},
      {"F49",
       "one of two ranks overflows and skips the step, the other does not",
       true,
       f49,
       {"mixed_float16 reduce=ring:vote=one"},
       {"mixed_float16", "mixed_float16 reduce=ring:vote=one"},
       Measure::weights},
  };
}

}  // namespace halfscope::zoo
