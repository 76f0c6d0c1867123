// SPDX-License-Identifier: MIT
// Failures of range: results or constants outside what a format can represent.
#include <algorithm>
#include <cmath>

#include "tests/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

const std::vector<std::string> kHalf{"mixed_float16", "float16", "float16_stagewise"};

/// The second matrix of a feed-forward block makes sums of about 8e4.
Setup f1() {
  Net n(1);
  ValueId x = n.layer_norm(n.in({32, 16}, n.draw.normals(32 * 16)), 1e4);
  x = n.op("Relu", {n.linear(x, 64)});
  std::vector<float> down = n.draw.normals(8 * 64, 0.4);
  for (float& w : down) w = std::fabs(w);
  return n.infer(n.layer_norm(n.linear(x, 8, down)));
}

/// A layer ends just below 65504, and the rescaling of a dropout moves it beyond.
Setup f2() {
  Net n(2);
  const ValueId x = n.in({16, 32}, n.draw.normals(16 * 32, 0.01, 1.0));
  const ValueId y = n.linear(x, 24, n.draw.normals(24 * 32, 8.0, 6.2e4 / 32.0));
  std::vector<float> mask;
  for (int i = 0; i < 16 * 24; ++i) mask.push_back(n.draw.uniform() < 0.1 ? 0.0f : 1.0f / 0.9f);
  const ValueId kept = n.mul(y, n.constant({16, 24}, mask));
  return n.infer(n.linear(kept, 4, n.draw.normals(4 * 24, 1e-4)));
}

/// Squares of +-512 exceed 65504, the variance becomes infinite and the output 0: no NaN anywhere.
Setup f3() {
  Net n(3);
  std::vector<float> map;
  for (int i = 0; i < 4 * 4 * 16; ++i) map.push_back(n.draw.uniform() < 0.5 ? -512.0f : 512.0f);
  const ValueId x = n.in({4, 4, 4, 4}, map);
  const ValueId y = n.op(
      "InstanceNormalization",
      {x, n.variable({4}, n.draw.normals(4, 0.1, 1.0)), n.variable({4}, n.draw.normals(4, 0.1))},
      {{"epsilon", 1e-5}});
  return n.infer(n.linear(n.op("Flatten", {y}), 8));
}

/// A layer normalization in primitives, with one outlier of 400 in each row.
Setup f4() {
  Net n(4);
  std::vector<float> rows = n.draw.normals(8 * 768);
  for (size_t i = 0; i < 8; ++i) rows[i * 768 + 11 * i + 3] = 400.0f;
  const ValueId x = n.in({8, 768}, rows);
  const ValueId centred = n.sub(x, n.mean(x, {1}));
  const ValueId var = n.mean(n.op("Pow", {centred, n.constant(2.0)}), {1});
  const ValueId y = n.div(centred, n.op("Sqrt", {n.add(var, n.constant(1e-5))}));
  return n.infer(n.mul(y, n.variable({768}, n.draw.normals(768, 0.1, 1.0))));
}

/// Rows divided by their norm, which is at least 1e-12; some rows are zero.
Setup f5() {
  Net n(5);
  std::vector<float> rows = n.draw.normals(16 * 24);
  std::fill(rows.begin() + 24 * 5, rows.begin() + 24 * 7, 0.0f);
  const ValueId x = n.in({16, 24}, rows);
  const ValueId norm = n.op("Sqrt", {n.sum(n.mul(x, x), {1})});
  return n.infer(n.linear(n.div(x, n.op("Max", {norm, n.constant(1e-12)})), 8));
}

/// An additive mask of -1e9; in one row of each sample everything is masked.
Setup f6() {
  Net n(6);
  std::vector<float> scores = n.draw.normals(8 * 4 * 4);
  for (size_t i = 0; i < 8; ++i)
    std::fill_n(scores.begin() + static_cast<int>(i) * 16 + 8, 4, 0.0f);
  const ValueId x = n.in({8, 4, 4}, scores);
  const ValueId v = n.in({8, 4, 6}, n.draw.normals(8 * 4 * 6));
  std::vector<float> mask(16, 0.0f);
  std::fill_n(mask.begin() + 8, 4, -1e9f);
  mask[3] = mask[6] = -1e9f;
  const ValueId p = n.op("Softmax", {n.add(x, n.constant({4, 4}, mask))}, {{"axis", int64_t{-1}}});
  return n.infer(n.op("MatMul", {p, v}));
}

/// Scores of a query with a key that is equal to it exceed 65504 before they are divided by 8.
Setup f7() {
  Net n(7);
  const std::vector<float> q = n.draw.normals(2 * 16 * 64, 45.0);
  std::vector<float> k = n.draw.normals(2 * 64 * 16, 45.0);  // transposed
  for (size_t s = 0; s < 2; ++s) {
    for (size_t i = 0; i < 64; ++i) k[(s * 64 + i) * 16 + 5] = q[(s * 16 + 9) * 64 + i];
  }
  const ValueId a = n.in({2, 16, 64}, q), b = n.in({2, 64, 16}, k);
  const ValueId v = n.in({2, 16, 8}, n.draw.normals(2 * 16 * 8));
  return n.infer(n.op("Attention", {a, b, v}, {{"scale", 0.125}}));
}

/// A Dice loss over 82,944 pixels: the sums exceed 65504.
Setup f10() {
  constexpr int64_t kPixels = 288 * 288, kSamples = 4;
  Net n(10);
  const ValueId x = n.in({2, kPixels}, n.draw.normals(kSamples * kPixels, 1.0, 4.0));
  std::vector<float> truth;
  for (int64_t i = 0; i < kSamples * kPixels; ++i) truth.push_back(n.draw.uniform() < 0.85f);
  const ValueId t = n.in({2, kPixels}, truth);
  const ValueId z = n.add(n.mul(x, n.variable({1}, {1.0f})), n.variable({1}, {0.0f}));
  const ValueId p = n.op("Sigmoid", {z});
  const ValueId both = n.sum(n.mul(p, t), {1}), all = n.add(n.sum(p, {1}), n.sum(t, {1}));
  const ValueId one = n.constant(1.0), two = n.constant(2.0);
  const ValueId dice = n.div(n.add(n.mul(both, two), one), n.add(all, one));
  return n.train_loss(n.sub(one, n.mean_of_all(dice)), "sgd:lr=0.5", 8);
}

ValueId area(Net& n, ValueId box) {
  const ValueId width = n.sub(n.columns(box, 2, 3), n.columns(box, 0, 1));
  return n.mul(width, n.sub(n.columns(box, 3, 4), n.columns(box, 1, 2)));
}

std::vector<float> boxes(Net& n, int64_t count, double size) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double x = std::floor(n.draw.uniform() * 40.0), y = std::floor(n.draw.uniform() * 40.0);
    const double w = std::floor(size * (0.95 + 0.1 * n.draw.uniform()));
    const double h = std::floor(size * (0.95 + 0.1 * n.draw.uniform()));
    for (const double v : {x, y, x + w, y + h}) values.push_back(static_cast<float>(v));
  }
  return values;
}

}  // namespace

Setup box_overlap(double size) {
  Net n(11);
  const ValueId a = n.in({8, 4}, boxes(n, 8, size)), b = n.in({8, 4}, boxes(n, 8, size));
  const ValueId low = n.op("Max", {n.columns(a, 0, 2), n.columns(b, 0, 2)});
  const ValueId high = n.op("Min", {n.columns(a, 2, 4), n.columns(b, 2, 4)});
  const ValueId sides = n.op("Relu", {n.sub(high, low)});
  const ValueId inter = n.mul(n.columns(sides, 0, 1), n.columns(sides, 1, 2));
  return n.infer(n.div(inter, n.sub(n.add(area(n, a), area(n, b)), inter)));
}

namespace {

/// Box targets: the logarithm of a width that is 0, with 1e-8 added.
Setup f12() {
  Net n(12);
  std::vector<float> widths = n.draw.uniforms(16, 8.0, 64.0);
  widths[3] = widths[10] = 0.0f;
  const ValueId w = n.in({16, 1}, widths), anchor = n.in({16, 1}, n.draw.uniforms(16, 16.0, 64.0));
  const ValueId ratio = n.add(n.div(w, anchor), n.constant(1e-8));
  return n.infer(n.mul(n.op("Log", {ratio}), n.constant(5.0)));
}

}  // namespace

ValueId focal(Net& n, ValueId scores, ValueId truth) {
  const ValueId one = n.constant(1.0), guard = n.constant(1.17549435e-38);
  const auto log = [&](ValueId x) { return n.op("Log", {n.op("Max", {x, guard})}); };
  const auto square = [&](ValueId x) { return n.mul(x, x); };
  const ValueId p = n.op("Sigmoid", {scores}), q = n.sub(one, p);
  const ValueId hit = n.mul(n.mul(square(q), log(p)), n.mul(truth, n.constant(-0.25)));
  const ValueId miss = n.mul(n.mul(square(p), log(q)), n.mul(n.sub(one, truth), n.constant(-0.75)));
  return n.add(hit, miss);
}

namespace {

/// Scores of about 8 to 10: the sigmoid rounds to 1, 1 - p to 0, and the logarithm is infinite.
Setup f13a() {
  Net n(13);
  const ValueId x = n.in({32, 8}, n.draw.normals(128 * 8));
  std::vector<float> truth;
  for (int i = 0; i < 128 * 10; ++i) truth.push_back(n.draw.uniform() < 0.1 ? 1.0f : 0.0f);
  const ValueId t = n.in({32, 10}, truth);
  return n.train_loss(n.mean_of_all(focal(n, n.linear(x, 10, 3.5), t)), "sgd:lr=0.5", 50);
}

/// The loss of 9000 anchors x 80 classes at p = 0.5, summed before it is divided: 9.4e4.
Setup f13b() {
  Net n(14);
  const ValueId x = n.in({1, 9000 * 80}, n.draw.normals(9000 * 80, 0.01));
  const ValueId t = n.constant({1}, {0.0f});
  return n.infer(n.mul(n.sum(focal(n, x, t), {1}), n.constant(1e-4)));
}

/// Three scores that are 22 apart: the softmax is 0 in fp16, and so is what the logarithm reads.
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
  const ValueId picked = n.sum(n.mul(n.op("Log", {p}), t), {1});
  return n.train_loss(n.op("Neg", {n.mean_of_all(picked)}), "sgd:lr=0.001", 50);
}

/// The gradient of a 3-norm of values of 1e-4, whose cubes are 0 in fp16.
Setup f23() {
  Net n(23);
  const ValueId x = n.in({32, 16}, n.draw.normals(128 * 16, 2e-5, 1e-4));
  const ValueId y = n.mul(x, n.variable({16}, n.draw.normals(16, 0.1, 1.0)));
  const ValueId cubes = n.sum(n.op("Pow", {n.op("Abs", {y}), n.constant(3.0)}), {1});
  const ValueId norm = n.op("Pow", {cubes, n.constant(1.0 / 3.0)});
  return n.train_loss(n.mean_of_all(norm), "sgd:lr=50", 50);
}

/// A convolution overflows in front of a batch normalization, whose statistics then are infinite.
Setup f24a() {
  Net n(24);
  std::vector<float> images = n.draw.normals(64 * 64, 20.0);
  std::vector<int32_t> labels;
  for (int i = 0; i < 64; ++i) {
    labels.push_back(n.draw.below(4));
    for (int p = 0; p < 16; ++p)
      images[static_cast<size_t>(i * 64 + labels.back() * 16 + p)] += 60.0f;
  }
  const ValueId x = n.in({16, 1, 8, 8}, images);
  const ValueId y = n.op("Relu", {n.batch_norm(n.conv(x, 8, 3, 1000.0))});
  return n.train_classes(n.linear(n.op("Flatten", {y}), 4), labels, "sgd:lr=0.05", 50);
}

/// Running variances of 1e5, which is infinite in fp16.
Setup f24b() {
  Net n(25);
  std::vector<float> map = n.draw.normals(8 * 4 * 16);
  for (size_t i = 0; i < map.size(); ++i) {
    if (i / 16 % 4 < 2) map[i] *= 300.0f;
  }
  const ValueId x = n.in({8, 4, 4, 4}, map);
  const ValueId y = n.op(
      "BatchNormalization",
      {x, n.variable({4}, n.draw.normals(4, 0.1, 1.0)), n.variable({4}, n.draw.normals(4, 0.1)),
       n.variable({4}, {0, 0, 0, 0}), n.variable({4}, {1e5f, 9e4f, 1.0f, 1.1f})},
      {{"epsilon", 1e-5}});
  return n.infer(n.linear(n.op("Flatten", {y}), 6));
}

/// A checkpoint that fp16 cannot represent: one weight of 7e4, one bias of 6.6e4, small weights.
Setup f31() {
  Net n(31);
  std::vector<float> weights = n.draw.normals(16 * 64, 0.1);
  for (size_t i = 0; i < weights.size(); i += 97) weights[i] = 3e-8f;
  weights[5 * 64 + 17] = 7e4f;
  std::vector<float> bias(16, 0.0f);
  bias[9] = -5.4e4f;
  const ValueId x = n.in({16, 64}, n.draw.normals(16 * 64));
  const ValueId y = n.op("Gemm", {x, n.variable({16, 64}, weights), n.variable({16}, bias)},
                         {{"transB", int64_t{1}}});
  std::vector<float> shift(16, 0.0f);
  shift[9] = -2e4f;
  return n.infer(n.add(y, n.constant({16}, shift)));
}

}  // namespace

std::vector<Case> range_cases() {
  const std::vector<std::string> mixed{"mixed_float16"}, step{"float16_stagewise"};
  return {
      {"F1", "a sum of products exceeds 65504", true, f1, mixed, kHalf},
      {"F2", "rescaling of a dropout exceeds 65504", true, f2, mixed, kHalf},
      {"F3", "squares in a normalization become infinite, its output 0", true, f3, step, kHalf},
      {"F4", "Pow of an outlier in a written-out normalization", true, f4, step, kHalf},
      {"F5", "an epsilon of 1e-12 is 0, and 0 / 0", true, f5, step, kHalf},
      {"F6", "a mask of -1e9 is -inf; a fully masked row is NaN", true, f6, step, kHalf},
      {"F7", "scores overflow before they are scaled", true, f7, mixed, kHalf},
      {"F10", "sums of a Dice loss exceed 65504", true, f10, step, kHalf, Measure::loss},
      {"F11", "areas of boxes of 300 pixels", true, [] { return box_overlap(300.0); }, step, kHalf},
      {"F12", "log(0 + 1e-8)", true, f12, step, kHalf},
      {"F13a", "1 - sigmoid is 0 in a focal loss", true, f13a, step, kHalf, Measure::loss},
      {"F13b", "the sum of a focal loss exceeds 65504", true, f13b, step, kHalf},
      {"F14", "log of a softmax that is 0", true, f14, step, kHalf, Measure::loss},
      {"F23", "gradient of a 3-norm whose cubes are 0", true, f23, step, kHalf, Measure::loss},
      {"F24",
       "a convolution overflows in front of a batch normalization",
       true,
       f24a,
       mixed,
       {"mixed_float16", "mixed_float16 buffers=always", "float16"},
       Measure::loss},
      {"F24b", "a running variance of 1e5 is infinite", true, f24b, step, kHalf},
      {"F31",
       "weights and sums of a checkpoint exceed 65504",
       true,
       f31,
       mixed,
       {"mixed_float16", "float16", "mixed_bfloat16"}},
  };
}

}  // namespace halfscope::zoo
