// SPDX-License-Identifier: MIT
// Failures of range: results or constants outside what a format can represent.
#include <algorithm>
#include <cmath>

#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

const std::vector<std::string> kHalf{"mixed_float16", "float16", "float16_stagewise"};

/// The second matrix of a feed-forward block produces sums of about 8e4.
Setup f1() {
  Net n(1);
  ValueId x = n.layer_norm(n.in({32, 16}, n.draw.normals(32 * 16)), 1e4);
  x = n.op("Relu", {n.linear(x, 64)});
  std::vector<float> down = n.draw.normals(8 * 64, 0.4);
  for (float& w : down) w = std::fabs(w);
  const ValueId sums = n.linear(x, 8, down), normal = n.layer_norm(sums);
  n.root(sums);
  n.symptom(sums);
  n.decoy(normal);
  n.fix(kStore, sums);
  return n.infer(normal);
}

/// A layer's results are just below 65504, and dropout's rescaling moves them above it.
Setup f2() {
  Net n(2);
  const ValueId x = n.in({16, 32}, n.draw.normals(16 * 32, 0.01, 1.0));
  const ValueId y = n.linear(x, 24, n.draw.normals(24 * 32, 8.0, 6.2e4 / 32.0));
  std::vector<float> mask;
  for (int i = 0; i < 16 * 24; ++i) mask.push_back(n.draw.uniform() < 0.1 ? 0.0f : 1.0f / 0.9f);
  const ValueId kept = n.mul(y, n.constant({16, 24}, mask));
  const ValueId last = n.linear(kept, 4, n.draw.normals(4 * 24, 1e-4));
  n.root(kept);
  n.symptom(kept);
  n.decoy(y);
  n.fix(kStore, kept);
  n.fix(kOperator, last);  // it reads the result in fp16 again otherwise
  return n.infer(last);
}

/// Squares of +-512 exceed 65504, so the variance is infinite and the output is 0, without any NaN.
Setup f3() {
  Net n(3);
  std::vector<float> map;
  for (int i = 0; i < 4 * 4 * 16; ++i) map.push_back(n.draw.uniform() < 0.5 ? -512.0f : 512.0f);
  const ValueId x = n.in({4, 4, 4, 4}, map);
  const ValueId y = n.op(
      "InstanceNormalization",
      {x, n.variable({4}, n.draw.normals(4, 0.1, 1.0)), n.variable({4}, n.draw.normals(4, 0.1))},
      {{"epsilon", 1e-5}});
  const ValueId last = n.linear(n.op("Flatten", {y}), 8);
  n.root(y);
  n.symptom(y);
  n.decoy(last);
  n.fix(kOperator, y);
  return n.infer(last);
}

/// A layer normalization written as primitives, with one outlier of 400 in each row.
Setup f4() {
  Net n(4);
  std::vector<float> rows = n.draw.normals(8 * 768);
  for (size_t i = 0; i < 8; ++i) rows[i * 768 + 11 * i + 3] = 400.0f;
  const ValueId x = n.in({8, 768}, rows);
  const ValueId centred = n.sub(x, n.mean(x, {1}));
  const ValueId squares = n.op("Pow", {centred, n.constant(2.0)});
  const ValueId var = n.mean(squares, {1});
  const ValueId y = n.div(centred, n.op("Sqrt", {n.add(var, n.constant(1e-5))}));
  n.root(squares);
  n.symptom(squares);
  n.decoy(y);
  n.fix(kStore, squares);
  n.fix(kOperator, var);
  return n.infer(n.mul(y, n.variable({768}, n.draw.normals(768, 0.1, 1.0))));
}

/// Rows divided by their norm, clamped to at least `least`. Some rows are zero.
Setup f5(double least) {
  Net n(5);
  std::vector<float> rows = n.draw.normals(16 * 24);
  std::fill(rows.begin() + 24 * 5, rows.begin() + 24 * 7, 0.0f);
  const ValueId x = n.in({16, 24}, rows);
  const ValueId norm = n.op("Sqrt", {n.sum(n.mul(x, x), {1})});
  const ValueId guarded = n.op("Max", {norm, n.constant(least)});
  const ValueId y = n.div(x, guarded), last = n.linear(y, 8);
  n.root(guarded);
  n.symptom(y);
  n.decoy(last);
  n.fix(FixKind::constant, guarded);
  return n.infer(last);
}

/// An additive mask; one row of each sample is fully masked.
Setup f6(float mask_value) {
  Net n(6);
  std::vector<float> scores = n.draw.normals(8 * 4 * 4);
  for (size_t i = 0; i < 8; ++i)
    std::fill_n(scores.begin() + static_cast<int>(i) * 16 + 8, 4, 0.0f);
  const ValueId x = n.in({8, 4, 4}, scores);
  const ValueId v = n.in({8, 4, 6}, n.draw.normals(8 * 4 * 6));
  std::vector<float> mask(16, 0.0f);
  std::fill_n(mask.begin() + 8, 4, mask_value);
  mask[3] = mask[6] = mask_value;
  const ValueId masked = n.add(x, n.constant({4, 4}, mask));
  const ValueId p = n.op("Softmax", {masked}, {{"axis", int64_t{-1}}});
  const ValueId mixed = n.op("MatMul", {p, v});
  n.root(masked);
  n.symptom(masked);
  n.decoy(mixed);
  n.fix(FixKind::constant, masked);
  return n.infer(mixed);
}

/// Scores of a query with an equal key exceed 65504 before they are divided by 8. With `before`,
/// the query is divided instead.
Setup f7(bool before) {
  Net n(7);
  std::vector<float> q = n.draw.normals(2 * 16 * 64, 45.0);
  std::vector<float> k = n.draw.normals(2 * 64 * 16, 45.0);  // transposed
  for (size_t s = 0; s < 2; ++s) {
    for (size_t i = 0; i < 64; ++i) k[(s * 64 + i) * 16 + 5] = q[(s * 16 + 9) * 64 + i];
  }
  if (before) {
    for (float& x : q) x *= 0.125f;
  }
  const ValueId a = n.in({2, 16, 64}, q), b = n.in({2, 64, 16}, k);
  const ValueId v = n.in({2, 16, 8}, n.draw.normals(2 * 16 * 8));
  const ValueId y = n.op("Attention", {a, b, v}, {{"scale", before ? 1.0 : 0.125}});
  const std::string path = n.path_of(y);  // of an operator that always runs as several
  n.root(path + "/scores");
  n.root(path);
  n.symptom(path + "/scores");
  n.decoy(path + "/softmax");
  n.fix(kStore, path + "/scores");
  return n.infer(y);
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

Setup box_overlap(double size, double unit) {
  Net n(11);
  const auto in_units = [&](std::vector<float> values) {
    for (float& x : values) x = static_cast<float>(static_cast<double>(x) / unit);
    return n.in({8, 4}, std::move(values));
  };
  const ValueId a = in_units(boxes(n, 8, size)), b = in_units(boxes(n, 8, size));
  const ValueId low = n.op("Max", {n.columns(a, 0, 2), n.columns(b, 0, 2)});
  const ValueId high = n.op("Min", {n.columns(a, 2, 4), n.columns(b, 2, 4)});
  const ValueId sides = n.op("Relu", {n.sub(high, low)});
  const ValueId inter = n.mul(n.columns(sides, 0, 1), n.columns(sides, 1, 2));
  const ValueId first = area(n, a), second = area(n, b);
  const ValueId both = n.add(first, second), joined = n.sub(both, inter);
  const ValueId overlap = n.div(inter, joined);
  for (const ValueId each : {first, second, inter}) n.root(each);
  n.symptom(inter);
  n.decoy(sides);
  n.fix_each(kOperator, {inter, first, second, both, joined, overlap});
  return n.infer(overlap);
}

namespace {

/// A convolution overflows before a batch normalization, whose statistics become infinite.
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
  const ValueId sums = n.conv(x, 8, 3, 1000.0), normal = n.batch_norm(sums);
  const ValueId y = n.op("Relu", {normal});
  n.root(sums);
  n.symptom(sums);
  n.decoy(normal);
  n.fix(kStore, sums);
  return n.train_classes(n.linear(n.op("Flatten", {y}), 4), labels, "sgd:lr=0.05", 50);
}

/// Running variances of 1e5, which fp16 rounds to infinity.
Setup f24b() {
  Net n(25);
  std::vector<float> map = n.draw.normals(8 * 4 * 16);
  for (size_t i = 0; i < map.size(); ++i) {
    if (i / 16 % 4 < 2) map[i] *= 300.0f;
  }
  const ValueId x = n.in({8, 4, 4, 4}, map);
  const ValueId weight = n.variable({4}, n.draw.normals(4, 0.1, 1.0));
  const ValueId bias = n.variable({4}, n.draw.normals(4, 0.1));
  const ValueId mean = n.variable({4}, {0, 0, 0, 0});
  const ValueId variance = n.variable({4}, {1e5f, 9e4f, 1.0f, 1.1f});
  const ValueId y =
      n.op("BatchNormalization", {x, weight, bias, mean, variance}, {{"epsilon", 1e-5}});
  const ValueId last = n.linear(n.op("Flatten", {y}), 6);
  n.root(variance);
  n.root(y);
  n.symptom(variance);
  n.decoy(last);
  n.fix(kOperator, y);
  return n.infer(last);
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
  const ValueId w = n.variable({16, 64}, weights);
  const ValueId y = n.op("Gemm", {x, w, n.variable({16}, bias)}, {{"transB", int64_t{1}}});
  std::vector<float> shift(16, 0.0f);
  shift[9] = -2e4f;
  const ValueId shifted = n.add(y, n.constant({16}, shift));
  n.root(w);
  n.root(y);
  n.symptom(w);
  n.decoy(shifted);
  n.fix(kOperator, y);
  return n.infer(shifted);
}

}  // namespace

std::vector<Case> range_cases() {
  const std::vector<std::string> mixed{"mixed_float16"}, step{"float16_stagewise"};
  const auto boxes_of_300 = [] { return box_overlap(300.0); };
  std::vector<Case> cases{
      {"F1", "a linear layer's outputs exceed 65504, the largest fp16 value", true, f1, mixed,
       kHalf},
      {"F2", "dropout rescales values past 65504", true, f2, mixed, kHalf},
      {"F3", "a normalization's variance overflows, so its output is 0", true, f3, step, kHalf},
      {"F4", "Pow of an outlier overflows in a normalization made of primitives", true, f4, step,
       kHalf},
      {"F5", "an epsilon of 1e-12 becomes 0, so a row of zeros gives 0 / 0", true,
       [] { return f5(1e-12); }, step, kHalf},
      {"F6", "a mask of -1e9 becomes -inf, so a fully masked row is NaN", true,
       [] { return f6(-1e9f); }, step, kHalf},
      {"F7", "attention scores overflow before they are scaled", true, [] { return f7(false); },
       mixed, kHalf},
      {"F11", "the areas of 300-pixel boxes exceed 65504", true, boxes_of_300, step, kHalf},
      {"F24",
       "a convolution overflows before a batch normalization",
       true,
       f24a,
       mixed,
       {"mixed_float16", "live_buffers_float16", "float16"},
       Measure::loss},
      {"F24b", "a running variance of 1e5 becomes infinite", true, f24b, step, kHalf},
      {"F31",
       "a checkpoint's weights and outputs exceed 65504",
       true,
       f31,
       mixed,
       {"mixed_float16", "float16", "mixed_bfloat16"}},
  };
  repair(cases, "F5", [] { return f5(1e-4); });
  repair(cases, "F6", [] { return f6(-6e4f); });
  repair(cases, "F7", [] { return f7(true); });
  repair(cases, "F11", [] { return box_overlap(300.0, 256.0); });
  return cases;
}

}  // namespace halfscope::zoo
