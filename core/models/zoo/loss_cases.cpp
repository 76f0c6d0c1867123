// SPDX-License-Identifier: MIT
// Failures of range in losses, in their inputs and in their gradients.
#include <algorithm>
#include <cmath>

#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {

FocalLoss focal(Net& n, ValueId scores, ValueId truth) {
  FocalLoss loss;
  const ValueId one = n.constant(1.0), guard = n.constant(1.17549435e-38);
  const auto square = [&](ValueId x) { return n.mul(x, x); };
  loss.p = n.op("Sigmoid", {scores});
  loss.q = n.sub(one, loss.p);
  const ValueId low = square(loss.q), log_p = n.op("Log", {n.op("Max", {loss.p, guard})});
  // Nodes are named by their number, so each line adds them in one order only.
  const ValueId hits = n.mul(truth, n.constant(-0.25)), hit = n.mul(n.mul(low, log_p), hits);
  const ValueId high = square(loss.p);
  loss.guarded = n.op("Max", {loss.q, guard});
  loss.log_q = n.op("Log", {loss.guarded});
  const ValueId weight = n.constant(-0.75), misses = n.mul(n.sub(one, truth), weight);
  const ValueId miss = n.mul(n.mul(high, loss.log_q), misses);
  loss.each = n.add(hit, miss);
  return loss;
}

namespace {

const std::vector<std::string> kHalfPlans{"mixed_float16", "float16", "float16_stagewise"};

/// A Dice loss over 82,944 pixels: its sums exceed 65504. `means` uses means instead of sums.
Setup f10(bool means) {
  constexpr int64_t kPixels = 288 * 288, kSamples = 4;
  Net n(10);
  const ValueId x = n.in({2, kPixels}, n.draw.normals(kSamples * kPixels, 1.0, 4.0));
  std::vector<float> truth;
  for (int64_t i = 0; i < kSamples * kPixels; ++i) truth.push_back(n.draw.uniform() < 0.85f);
  const ValueId t = n.in({2, kPixels}, truth);
  const ValueId shift = n.variable({1}, {0.0f}), scale = n.variable({1}, {1.0f});
  const ValueId p = n.op("Sigmoid", {n.add(n.mul(x, scale), shift)});
  const auto total = [&](ValueId x) { return means ? n.mean(x, {1}) : n.sum(x, {1}); };
  const ValueId both = total(n.mul(p, t)), all_p = total(p), all_t = total(t);
  const ValueId all = n.add(all_p, all_t);
  const ValueId one = n.constant(1.0), two = n.constant(2.0);
  const ValueId smooth = means ? n.constant(1.0 / kPixels) : one;
  const ValueId twice = n.mul(both, two), above = n.add(twice, smooth), below = n.add(all, smooth);
  const ValueId dice = n.div(above, below);
  for (const ValueId each : {both, all_p, all_t}) n.root(each);
  n.symptom(both);
  n.decoy(p);
  n.fix_each(kOperator, {both, all_p, all_t, all, twice, above, below, dice});
  return n.train_loss(n.sub(one, n.mean_of_all(dice)), "sgd:lr=0.5", 8);
}

/// Box targets: log(width / anchor + guard) with some widths of 0.
Setup f12(double guard) {
  Net n(12);
  std::vector<float> widths = n.draw.uniforms(16, 8.0, 64.0);
  widths[3] = widths[10] = 0.0f;
  const ValueId w = n.in({16, 1}, widths), anchor = n.in({16, 1}, n.draw.uniforms(16, 16.0, 64.0));
  const ValueId share = n.div(w, anchor), ratio = n.add(share, n.constant(guard));
  const ValueId size = n.op("Log", {ratio});
  n.root(ratio);
  n.symptom(size);
  n.decoy(share);
  n.fix_each(kOperator, {ratio, size});
  return n.infer(n.mul(size, n.constant(5.0)));
}

/// Scores of about 8 to 10: the sigmoid rounds to 1, 1 - p to 0, and the logarithm is infinite.
Setup f13a() {
  Net n(13);
  const ValueId x = n.in({32, 8}, n.draw.normals(128 * 8));
  std::vector<float> truth;
  for (int i = 0; i < 128 * 10; ++i) truth.push_back(n.draw.uniform() < 0.1 ? 1.0f : 0.0f);
  const ValueId t = n.in({32, 10}, truth);
  const ValueId scores = n.linear(x, 10, 3.5);
  const FocalLoss loss = focal(n, scores, t);
  n.root(loss.p);
  n.root(loss.q);
  n.symptom(loss.log_q);
  n.decoy(scores);
  n.fix_each(kOperator, {loss.p, loss.q, loss.guarded, loss.log_q});
  return n.train_loss(n.mean_of_all(loss.each), "sgd:lr=0.5", 50);
}

/// The loss of 9000 anchors x 80 classes at p = 0.5. Its sum is 9.4e4 before the division; with
/// `first`, the terms are divided before they are summed.
Setup f13b(bool first) {
  Net n(14);
  const ValueId x = n.in({1, 9000 * 80}, n.draw.normals(9000 * 80, 0.01));
  const ValueId t = n.constant({1}, {0.0f});
  const FocalLoss loss = focal(n, x, t);
  const ValueId share = n.constant(1e-4);
  if (first) return n.infer(n.sum(n.mul(loss.each, share), {1}));
  const ValueId all = n.sum(loss.each, {1}), mean = n.mul(all, share);
  n.root(all);
  n.symptom(all);
  n.decoy(loss.each);
  n.fix(kStore, all);
  n.fix(kOperator, mean);
  return n.infer(mean);
}

/// Three scores 22 apart: their softmax underflows to 0 in fp16, and the logarithm reads that 0.
Setup f14() {
  Net n(15);
  std::vector<float> rows, truth;
  for (int i = 0; i < 128; ++i) {
    const int wrong = n.draw.below(3);
    for (int c = 0; c < 3; ++c) {
      rows.push_back(c == wrong ? 22.0f : static_cast<float>(n.draw.normal()));
      truth.push_back(c == (wrong + (i % 4 == 0 ? 1 : 0)) % 3 ? 1.0f : 0.0f);
    }
  }
  const ValueId x = n.in({32, 3}, rows), t = n.in({32, 3}, truth);
  const ValueId z = n.linear(x, 3, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  const ValueId p = n.op("Softmax", {z}, {{"axis", int64_t{-1}}});
  const ValueId log_p = n.op("Log", {p}), picked = n.sum(n.mul(log_p, t), {1});
  n.root(p);
  n.symptom(log_p);
  n.decoy(z);
  n.fix_each(kOperator, {p, log_p});
  return n.train_loss(n.op("Neg", {n.mean_of_all(picked)}), "sgd:lr=0.001", 50);
}

/// The gradient of a 3-norm of values around 1e-4, whose cubes are 0 in fp16.
Setup f23() {
  Net n(23);
  const ValueId x = n.in({32, 16}, n.draw.normals(128 * 16, 2e-5, 1e-4));
  const ValueId y = n.mul(x, n.variable({16}, n.draw.normals(16, 0.1, 1.0)));
  const ValueId cube = n.op("Pow", {n.op("Abs", {y}), n.constant(3.0)});
  const ValueId cubes = n.sum(cube, {1});
  const ValueId norm = n.op("Pow", {cubes, n.constant(1.0 / 3.0)});
  n.root(cube);
  n.symptom(cube);
  n.decoy(y);
  n.fix_each(kOperator, {cube, cubes, norm});
  return n.train_loss(n.mean_of_all(norm), "sgd:lr=50", 50);
}

/// Log-mel spectra: powers exceed 65504, and the guard for silent frames is 0.
Setup f33() {
  constexpr int64_t kFrames = 32, kBins = 64, kBands = 12;
  Net n(33);
  std::vector<float> real = n.draw.normals(kFrames * kBins, 150.0);
  std::vector<float> imaginary = n.draw.normals(kFrames * kBins, 150.0);
  for (std::vector<float>* part : {&real, &imaginary}) {
    std::fill(part->begin() + 7 * kBins, part->begin() + 9 * kBins, 0.0f);
  }
  std::vector<float> bands;
  for (int64_t i = 0; i < kBins; ++i) {
    for (int64_t j = 0; j < kBands; ++j) {
      const double distance = static_cast<double>(i) - 5.0 * static_cast<double>(j + 1);
      bands.push_back(static_cast<float>(std::max(0.0, 1.0 - std::fabs(distance) / 5.0)));
    }
  }
  const ValueId a = n.in({kFrames, kBins}, real), b = n.in({kFrames, kBins}, imaginary);
  const ValueId square_a = n.mul(a, a), square_b = n.mul(b, b), power = n.add(square_a, square_b);
  const ValueId mel = n.op("MatMul", {power, n.variable({kBins, kBands}, bands)});
  const ValueId guarded = n.add(mel, n.constant(1e-10)), features = n.op("Log", {guarded});
  const ValueId first = n.linear(features, 8);
  for (const ValueId each : {square_a, power, mel, guarded}) n.root(each);
  n.symptom(square_a);
  n.decoy(first);
  n.fix_each(kOperator, {square_a, square_b, power, mel, guarded, features});
  return n.infer(first);
}

/// Gradients of a residual stream grow from block to block. At a loss scale of 65536 they exceed
/// 65504, although no forward result is larger than 400.
Setup f48() {
  constexpr int64_t kBatch = 16, kWidth = 16, kSamples = 64;
  Net n(48);
  const std::vector<float> rows = n.draw.normals(kSamples * kWidth);
  ValueId stream = n.linear(n.in({kBatch, kWidth}, rows), kWidth), first = kNone;
  for (int i = 0; i < 24; ++i) {
    stream = n.add(stream, n.linear(n.op("Relu", {stream}), kWidth, 0.4));
    if (first == kNone) first = stream;
  }
  const ValueId prediction = n.linear(stream, 1, 0.2);
  n.root(first);
  n.symptom(first);
  n.decoy(n.made_by(first).inputs[1]);
  n.fix(Change{.kind = FixKind::loss_scale, .value = 1024.0});
  return n.train_squares(prediction, n.draw.normals(kSamples, 5.0), "sgd:lr=1e-4", 40);
}

/// F1 in training: the forward pass overflows in every step, at any loss scale.
Setup f25() {
  constexpr int64_t kBatch = 16, kSamples = 64;
  Net n(25);
  ValueId x = n.layer_norm(n.in({kBatch, 16}, n.draw.normals(kSamples * 16)), 1e4);
  x = n.op("Relu", {n.linear(x, 32)});
  std::vector<float> down = n.draw.normals(8 * 32, 0.6);
  for (float& w : down) w = std::fabs(w);
  const ValueId sums = n.linear(x, 8, down), normal = n.layer_norm(sums);
  n.root(sums);
  n.symptom(sums);
  n.decoy(normal);
  n.fix(kStore, sums);
  return n.train_squares(normal, n.draw.normals(kSamples * 8), "sgd:lr=0.05", 200);
}

}  // namespace

std::vector<Case> loss_cases() {
  const std::vector<std::string> step{"float16_stagewise"};
  std::vector<Case> cases{
      {"F10", "the sums of a Dice loss exceed 65504", true, [] { return f10(false); }, step,
       kHalfPlans, Measure::loss},
      {"F12", "a guard of 1e-8 becomes 0, so the logarithm of 0 is -inf", true,
       [] { return f12(1e-8); }, step, kHalfPlans},
      {"F13a", "1 - sigmoid becomes 0 in a focal loss, so its log is -inf", true, f13a, step,
       kHalfPlans, Measure::loss},
      {"F13b", "the sum of a focal loss exceeds 65504", true, [] { return f13b(false); }, step,
       kHalfPlans},
      {"F14", "a softmax output becomes 0, so its log is -inf", true, f14, step, kHalfPlans,
       Measure::loss},
      {"F23", "the cubes in a 3-norm become 0, so its gradient is wrong", true, f23, step,
       kHalfPlans, Measure::loss},
      {"F25",
       "the loss scale collapses because the forward pass overflows",
       true,
       f25,
       {"mixed_float16", "mixed_float16 scale=static:1024"},
       {"mixed_float16", "mixed_float16 scale=none", "float16", "float16_stagewise",
        "mixed_bfloat16"},
       Measure::weights},
      {"F33", "log-mel features: powers overflow and the guard becomes 0", true, f33, step,
       kHalfPlans},
      {"F48",
       "residual gradients overflow at a loss scale of 65536",
       true,
       f48,
       {"mixed_float16 scale=static:65536"},
       {"mixed_float16", "mixed_float16 scale=static:65536"},
       Measure::weights},
  };
  repair(cases, "F10", [] { return f10(true); });
  repair(cases, "F12", [] { return f12(1e-7); });
  repair(cases, "F13b", [] { return f13b(true); });
  return cases;
}

}  // namespace halfscope::zoo
