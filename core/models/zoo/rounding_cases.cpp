// SPDX-License-Identifier: MIT
// Failures of results stored with too few bits, although nothing overflows and every sum is exact:
// positions, ties, and scores that are compared, cast or fed back.
#include <algorithm>
#include <cmath>

#include "core/models/zoo/net.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope::zoo {
namespace {

/// Sine and cosine of position times frequency.
struct Waves {
  ValueId angles, cosine, sine, both;
};

Waves waves(Net& n, ValueId positions, int64_t count) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < count; ++i) {
    frequencies.push_back(static_cast<float>(
        elementary::pow(10000.0, -static_cast<double>(i) / static_cast<double>(count))));
  }
  Waves w{};
  w.angles = n.mul(positions, n.constant({1, count}, frequencies));
  w.cosine = n.op("Cos", {w.angles});
  w.sine = n.op("Sin", {w.angles});
  w.both = n.op("Concat", {w.cosine, w.sine}, {{"axis", int64_t{1}}});
  return w;
}

/// Rotary angles of positions up to 4095 that are stored in bf16.
Setup f19() {
  Net n(19);
  std::vector<float> positions;
  for (int i = 0; i < 2048; ++i) positions.push_back(static_cast<float>(2 * i + 1));
  const Waves w = waves(n, n.in({2048, 1}, positions), 8);
  const ValueId last = n.linear(w.both, 4);
  n.root(w.angles);
  n.symptom(w.angles);
  n.decoy(last);
  n.fix_each(kOperator, {w.angles, w.cosine, w.sine});
  return n.infer(last);
}

/// The row maximum occurs twice, so two weights are exactly 1, v1 + v2 is a tie, and a third term
/// of the same sign breaks every tie the same way. The gradient of the scores is a difference of
/// sums over it.
Setup f35() {
  constexpr int64_t kRows = 8, kWidth = 1024;
  Net n(35);
  std::vector<float> scores, values, upstream;
  for (int64_t i = 0; i < kRows; ++i) {
    scores.insert(scores.end(), {2.0f, 2.0f, -6.0f});
    for (int64_t k = 0; k < 3; ++k) {
      for (int64_t j = 0; j < kWidth; ++j) {  // values of bf16 in (-2, -1)
        values.push_back(-1.0f - std::floor(static_cast<float>(n.draw.uniform() * 128.0)) / 128.0f);
      }
    }
    upstream.insert(upstream.end(), kWidth, 0.5f);
  }
  const ValueId s = n.in({kRows, 1, 3}, scores), v = n.in({kRows, 3, kWidth}, values);
  const ValueId grad = n.in({kRows, 1, kWidth}, upstream);
  const Attributes last{{"axes", std::vector<int64_t>{2}}, {"keepdims", int64_t{1}}};
  const ValueId p = n.op("Exp", {n.sub(s, n.op("ReduceMax", {s}, last))});
  const ValueId out = n.op("MatMul", {p, v});
  const ValueId total = n.sum(p, {2});
  // dS = P / sum (dO V^T - sum_j dO_j O_j / sum)
  const ValueId delta = n.div(n.sum(n.mul(grad, out), {2}), total);
  const ValueId terms = n.sum(n.mul(grad, v), {2});
  const ValueId row = n.reshape(terms, {kRows, 1, 3});
  const ValueId share = n.div(p, total), difference = n.sub(row, delta);
  n.root(out);
  n.symptom(difference);
  n.decoy(p);
  n.fix(kStore, out);
  return n.infer(n.mul(share, difference));
}

/// A router picks the best of 32 experts in each of 8 groups. Scores stored in bf16 tie or swap.
Setup f39() {
  Net n(39);
  const ValueId x = n.in({256, 64}, n.draw.normals(256 * 64));
  const ValueId logits = n.linear(x, 256), scores = n.reshape(logits, {256 * 8, 32});
  const ValueId best = n.op("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  const ValueId experts = n.op("Gather", {n.variable({32, 8}, n.draw.normals(32 * 8)), best});
  n.root(logits);
  n.symptom(best);
  n.decoy(experts);
  n.fix(kOperator, logits);
  return n.infer(n.sum(n.reshape(experts, {256, 8, 8}), {1}));
}

/// Importance ratios of sequences of 512 tokens, with exact old log-probabilities.
Setup f40() {
  constexpr int64_t kSequences = 4, kTokens = 512, kWidth = 32, kWords = 300;
  Net n(40);
  const std::vector<float> x = n.draw.normals(kSequences * kTokens * kWidth);
  const std::vector<float> w = n.draw.normals(kWidth * kWords, 5.0 / std::sqrt(32.0));
  std::vector<int32_t> words;
  std::vector<float> old;
  for (int64_t row = 0; row < kSequences * kTokens; ++row) {
    std::vector<double> logits(kWords, 0.0);
    for (int64_t i = 0; i < kWidth; ++i) {
      for (int64_t j = 0; j < kWords; ++j) {
        logits[static_cast<size_t>(j)] +=
            static_cast<double>(x[static_cast<size_t>(row * kWidth + i)]) *
            static_cast<double>(w[static_cast<size_t>(i * kWords + j)]);
      }
    }
    const auto top = std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const double z : logits) sum += elementary::exp(z - *top);
    words.push_back(static_cast<int32_t>(top - logits.begin()));
    old.push_back(static_cast<float>(-elementary::log(sum)));
  }
  const ValueId hidden = n.in({kSequences, kTokens, kWidth}, x);
  const ValueId logits = n.op("MatMul", {hidden, n.variable({kWidth, kWords}, w)});
  const ValueId all = n.op("LogSoftmax", {logits}, {{"axis", int64_t{-1}}});
  const ValueId picked = n.op("GatherElements", {all, n.index_in({kSequences, kTokens, 1}, words)},
                              {{"axis", int64_t{2}}});
  const ValueId gap = n.sub(picked, n.in({kSequences, kTokens, 1}, old));
  const ValueId ratio = n.op("Exp", {n.sum(gap, {1, 2})});
  n.root(logits);
  n.symptom(ratio);
  n.decoy(all);
  n.fix(kOperator, logits);
  return n.infer(ratio);
}

/// The log-sum-exp is computed from bf16 logits, but the probabilities from logits that the
/// backward pass recomputes in fp32.
Setup f41() {
  Net n(41);
  const ValueId x = n.in({64, 32}, n.draw.normals(64 * 32));
  const ValueId w = n.variable({100, 32}, n.draw.normals(100 * 32, 40.0 / std::sqrt(32.0)));
  const Attributes transposed{{"transB", int64_t{1}}};
  const ValueId forward = n.op("Gemm", {x, w}, transposed);
  const ValueId sum = n.sub(forward, n.op("LogSoftmax", {forward}, {{"axis", int64_t{-1}}}));
  const ValueId again = n.op_at(std::string(kWideLogits), "Gemm", {x, w}, transposed);
  const ValueId p = n.op("Exp", {n.sub(again, sum)});
  n.root(forward);
  n.symptom(p);
  n.decoy(again);
  n.fix(kStore, forward);
  return n.infer(p);
}

/// The residual of a linear system with a nearly correct solution: a small difference of products.
Setup f27() {
  constexpr int64_t kSize = 32, kSystems = 16;
  Net n(27);
  std::vector<float> matrix = n.draw.normals(kSize * kSize);
  for (int64_t i = 0; i < kSize; ++i) matrix[static_cast<size_t>(i * (kSize + 1))] += 100.0f;
  const std::vector<float> solution = n.draw.normals(kSystems * kSize);
  std::vector<float> right;
  for (int64_t i = 0; i < kSystems * kSize; ++i) {
    double sum = 0.05 * n.draw.normal();
    for (int64_t k = 0; k < kSize; ++k) {
      sum += static_cast<double>(solution[static_cast<size_t>(i / kSize * kSize + k)]) *
             static_cast<double>(matrix[static_cast<size_t>(k * kSize + i % kSize)]);
    }
    right.push_back(static_cast<float>(sum));
  }
  const ValueId x = n.in({kSystems, kSize}, solution), b = n.in({kSystems, kSize}, right);
  const ValueId y = n.op("MatMul", {x, n.variable({kSize, kSize}, matrix)}), rest = n.sub(b, y);
  n.root(y);
  n.symptom(rest);
  n.decoy(rest);
  n.fix(kOperator, y);
  return n.infer(rest);
}

/// Output lengths of a convolution of width 5 and stride 3 for inputs up to 6000, computed by its
/// formula.
Setup f50() {
  Net n(50);
  std::vector<float> lengths;
  for (int i = 0; i < 64; ++i) {  // 1 or 2 are left over, so that Floor is far from a step
    lengths.push_back(static_cast<float>(2106 + 3 * n.draw.below(1300) + n.draw.below(2)));
  }
  const ValueId whole = n.sub(n.in({64, 1}, lengths), n.constant(5.0)), stride = n.constant(3.0);
  const ValueId ratio = n.div(whole, stride), steps = n.op("Floor", {ratio});
  const ValueId covered = n.mul(steps, stride), rest = n.sub(whole, covered);
  const ValueId last = n.linear(rest, 4);
  n.root(whole);
  n.root(covered);
  n.symptom(rest);
  n.decoy(last);
  n.fix_each(kOperator, {whole, ratio, steps, covered, rest});
  return n.infer(last);
}

/// A time step in [0, 1) times 1000, then sine and cosine, then a small network.
Setup f44() {
  Net n(44);
  const ValueId t = n.in({256, 1}, n.draw.uniforms(256, 0.5, 1.0));
  const ValueId step = n.mul(t, n.constant(1000.0));
  const Waves w = waves(n, step, 8);
  const ValueId first = n.linear(w.both, 32);
  n.root(step);
  n.symptom(step);
  n.decoy(first);
  n.fix_each(kOperator, {step, w.angles, w.cosine, w.sine});
  return n.infer(n.linear(n.op("Relu", {first}), 4));
}

}  // namespace

std::vector<Case> rounding_cases() {
  const std::vector<std::string> mixed{"mixed_bfloat16"}, step{"bfloat16_stagewise"};
  const std::vector<std::string> bf{"mixed_bfloat16", "bfloat16", "bfloat16_stagewise"};
  return {
      {"F19", "nearby positions of a rotary embedding round to the same value", true, f19, step,
       bf},
      {"F27",
       "tf32 products lose a small residual",
       true,
       f27,
       {"tf32_products"},
       {"tf32_products", "mixed_bfloat16"}},
      {"F35", "rounding ties in an attention output all go the same way", true, f35, mixed, bf},
      {"F39", "a router's scores tie or swap, so it picks other experts", true, f39, mixed, bf},
      {"F40", "rounded logits of a language model distort importance ratios", true, f40, mixed, bf},
      {"F41",
       "the log-sum-exp uses bf16 logits, the probabilities fp32 ones",
       true,
       f41,
       {"wide_logits_bfloat16"},
       bf},
      {"F50",
       "lengths above 2048 are not exact in fp16",
       true,
       f50,
       {"float16"},
       {"mixed_float16", "float16", "float16_stagewise"}},
      {"F44", "a diffusion time step is rounded before its sine", true, f44, step, bf},
  };
}

}  // namespace halfscope::zoo
