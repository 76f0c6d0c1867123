// SPDX-License-Identifier: MIT
// Failures of scaled operands: fp8 and fp4 products. One rounding to e4m3 has an error of about
// 2.6% (rms) and one to e2m1 about 10%, so these cases have their own tolerances.
#include <cmath>

#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

/// One outlier of 3e4 determines its tensor's scale, although its own weights are zero.
Setup f28() {
  Net n(28);
  std::vector<float> rows = n.draw.normals(32 * 256, 0.2);
  rows[9 * 256 + 7] = 3e4f;
  std::vector<float> weights = n.draw.normals(16 * 256, 1.0 / 16.0);
  for (size_t i = 0; i < 16; ++i) weights[i * 256 + 7] = 0.0f;
  const ValueId y = n.linear(n.in({32, 256}, rows), 16, weights);
  n.root(y);
  n.symptom(y);
  n.fix(kOperator, y);
  return n.infer(y);
}

/// The weights of a layer normalization, all in (0.875, 1), as the diagonal of a product: the scale
/// of a block is 2^floor(log2 amax) / 2^8, so that all of them become 0.875.
Setup f36() {
  Net n(36);
  std::vector<float> diagonal(64 * 64, 0.0f);
  for (size_t i = 0; i < 64; ++i)
    diagonal[i * 65] = static_cast<float>(0.95 + 0.04 * n.draw.uniform());
  std::vector<float> rows;  // values that e4m3 has, so that the weights alone are rounded
  for (int i = 0; i < 32 * 64; ++i) rows.push_back(n.draw.uniform() < 0.5 ? -1.0f : 1.0f);
  const ValueId y = n.linear(n.in({32, 64}, rows), 64, diagonal);
  n.root(n.made_by(y).inputs[1]);
  n.root(y);
  n.symptom(y);
  n.fix(FixKind::scale_round_up);
  return n.infer(y);
}

/// Blocks whose largest value is 1.95 times a power of two.
Setup f37() {
  Net n(37);
  std::vector<float> rows = n.draw.normals(32 * 128, 0.02);
  for (size_t i = 0; i < rows.size(); i += 32) {
    rows[i + static_cast<size_t>(n.draw.below(32))] = n.draw.uniform() < 0.5 ? -1.99f : 1.99f;
  }
  std::vector<float> weights;  // values that e4m3 has
  for (int i = 0; i < 16 * 128; ++i) weights.push_back(n.draw.uniform() < 0.5 ? -0.5f : 0.5f);
  const ValueId y = n.linear(n.in({32, 128}, rows), 16, weights);
  n.root(y);
  n.symptom(y);
  n.fix(FixKind::scale_round_up);
  return n.infer(y);
}

/// Each row is scaled by 448 over its largest magnitude, which is at least `floor`, as in a network
/// that quantizes its own activations. One row is zero.
Setup f38(double floor) {
  Net n(38);
  std::vector<float> rows = n.draw.normals(16 * 32);
  std::fill_n(rows.begin() + 32 * 6, 32, 0.0f);
  const ValueId x = n.in({16, 32}, rows);
  const ValueId largest = n.op("ReduceMax", {n.op("Abs", {x})},
                               {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}});
  const ValueId guarded = n.op("Max", {largest, n.constant(floor)});
  const ValueId scale = n.div(n.constant(448.0), guarded), scaled = n.mul(x, scale);
  const ValueId codes = n.op("Round", {scaled}), last = n.linear(n.div(codes, scale), 8);
  n.root(guarded);
  n.symptom(scale);
  n.decoy(last);
  n.fix_each(kOperator, {guarded, scale, scaled});
  return n.infer(last);
}

/// One row of zeros, with a scale per row that no guard keeps away from 0.
Setup f38b() {
  Net n(381);
  std::vector<float> rows = n.draw.normals(16 * 32);
  std::fill_n(rows.begin() + 32 * 6, 32, 0.0f);
  const ValueId first = n.linear(n.in({16, 32}, rows), 16), last = n.linear(first, 8);
  n.root(first);
  n.symptom(first);
  n.decoy(last);
  n.fix(FixKind::amax_floor);
  return n.infer(last);
}

/// Blocks of 16 gradients, 15 of 0.9 and one of 30, each for its own weight. Adam makes all of them
/// equally important.
Setup f45() {
  Net n(45);
  std::vector<float> rows(64 * 16, 0.0f), pattern;
  for (size_t i = 0; i < 64; ++i) {
    rows[i * 16 + i % 16] = 1.0f;
    pattern.push_back(i % 16 == 0 ? 30.0f : 0.9f);
  }
  const ValueId x = n.in({64, 16}, rows), weight = n.in({64, 1}, pattern);
  const ValueId y = n.linear(x, 16, n.draw.normals(256, 0.25));
  n.root(y);
  n.symptom(y);
  n.fix(Change{.kind = FixKind::stochastic_rounding, .text = "gradients"});
  Setup setup = n.train_loss(n.mean_of_all(n.mul(y, weight)), "adam:lr=0.01", 60);
  setup.train.shuffle = false;
  return setup;
}

}  // namespace

std::vector<Case> scaled_cases() {
  std::vector<Case> cases{
      {"F28",
       "one outlier sets the scale of a whole tensor",
       true,
       f28,
       {"fp8_current"},
       {"fp8_current", "mxfp8"},
       Measure::outputs,
       0.06,
       0.08},
      {"F36",
       "MX scales clip different weights to the same value",
       true,
       f36,
       {"mxfp8_floor"},
       {"mxfp8_floor", "mxfp8"},
       Measure::outputs,
       0.05,
       0.07},
      {"F37",
       "MX scales that are rounded down clip a block's largest value",
       true,
       f37,
       {"mxfp8_floor"},
       {"mxfp8_floor", "mxfp8"},
       Measure::outputs,
       0.05,
       0.07},
      {"F38",
       "a guard of 1e-12 becomes 0, so a row of zeros has an infinite scale",
       true,
       [] { return f38(1e-12); },
       {"float16_stagewise"},
       {"float16", "float16_stagewise", "bfloat16_stagewise"}},
      {"F38b",
       "a row of zeros has no valid fp8 scale, and a product reads it",
       true,
       f38b,
       {"fp8_rows_unguarded"},
       {"fp8_rows_unguarded", "fp8_current"},
       Measure::outputs,
       0.06,
       0.08},
      {"F45",
       "gradients in the same fp4 block as an outlier round to 0",
       true,
       f45,
       {"nvfp4_nearest"},
       {"nvfp4_nearest", "nvfp4"},
       Measure::weights,
       0.15,
       0.3},
  };
  repair(cases, "F38", [] { return f38(0.01); });
  return cases;
}

}  // namespace halfscope::zoo
