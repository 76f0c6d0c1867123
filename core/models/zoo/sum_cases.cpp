// SPDX-License-Identifier: MIT
// Failures of sums whose running total has too few bits. With sums in fp32 that are rounded once,
// as in common libraries, the same networks are healthy.
#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

/// A softmax over equal logits: its denominator stalls at 256 (bf16) or 2048 (fp16).
Setup softmax_of_equals(int64_t count) {
  Net n(80 + static_cast<uint64_t>(count));
  std::vector<float> rows;
  for (int i = 0; i < 4; ++i)
    rows.insert(rows.end(), static_cast<size_t>(count), 0.5f * static_cast<float>(i));
  const ValueId y = n.op("Softmax", {n.in({4, count}, rows)}, {{"axis", int64_t{-1}}});
  n.root(y);
  n.symptom(y);
  n.fix(kSums, y);
  return n.infer(y);
}

/// A global average over 64 x 64 pixels of about 1.
Setup f9() {
  Net n(9);
  const ValueId x = n.in({2, 3, 64, 64}, n.draw.uniforms(2 * 3 * 4096, 0.9, 1.1));
  const ValueId w = n.variable({4, 3, 1, 1}, n.draw.uniforms(12, 0.2, 0.38));
  const ValueId y = n.op("GlobalAveragePool", {n.op("Conv", {x, w})});
  const ValueId last = n.linear(n.op("Flatten", {y}), 4);
  n.root(y);
  n.symptom(y);
  n.decoy(last);
  n.fix(kSums, y);
  return n.infer(last);
}

/// A mean of 256 x 256 pixels of about 2 that divides after summing; with `first`, before summing.
Setup f9o(bool first) {
  Net n(90);
  const ValueId x = n.in({2, 1, 256, 256}, n.draw.uniforms(2 * 65536, 1.9, 2.1));
  const ValueId share = n.constant(1.0 / 65536.0);
  const ValueId all = first ? n.mul(x, share) : n.sum(x, {2, 3});
  const ValueId y = first ? n.sum(all, {2, 3}) : n.mul(all, share);
  const ValueId last = n.linear(n.op("Flatten", {y}), 4);
  n.root(all);
  n.symptom(all);
  n.decoy(last);
  n.fix(kStore, all);
  n.fix(kOperator, y);
  return n.infer(last);
}

/// The focal loss of 9000 x 80 scores at p = 0.01. Terms of 7.5e-7 soon become too small to change
/// the sum.
Setup f13c() {
  Net n(130);
  const ValueId x = n.in({1, 9000 * 80}, n.draw.normals(9000 * 80, 0.01, -4.595));
  const FocalLoss loss = focal(n, x, n.constant({1}, {0.0f}));
  const ValueId all = n.sum(loss.each, {1});
  n.root(all);
  n.symptom(all);
  n.decoy(loss.each);
  n.fix(kSums, all);
  return n.infer(all);
}

/// A running count.
Setup count_of(int64_t length) {
  Net n(200 + static_cast<uint64_t>(length));
  const ValueId x = n.in({2, length}, std::vector<float>(static_cast<size_t>(2 * length), 1.0f));
  const ValueId y = n.op("CumSum", {x}, {{"axis", int64_t{1}}});
  const ValueId share = n.mul(y, n.constant(1.0 / static_cast<double>(length)));
  n.root(y);
  n.symptom(y);
  n.decoy(share);
  n.fix(kSums, y);
  return n.infer(share);
}

/// The gradient of an embedding row that nearly every token picks: 12,500 terms of 0.01.
Setup f21() {
  Net n(21);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 200 * 125; ++i)
    tokens.push_back(n.draw.uniform() < 0.02 ? 1 + n.draw.below(3) : 0);
  const ValueId x = n.index_in({100, 125}, tokens);
  const ValueId rows = n.op("Gather", {n.variable({4, 2}, n.draw.normals(8)), x});
  const ValueId terms = n.mul(rows, n.constant(0.01));
  n.root(rows);
  n.symptom(rows);
  n.decoy(terms);
  n.fix(kSums, rows);
  return n.train_loss(n.sum(terms, {0, 1, 2}, false), "sgd:lr=1e-3", 50);
}

/// A step's gradient, summed from 1024 parts of about 1 / 1024.
Setup f22() {
  constexpr int64_t kParts = 1024;
  Net n(220 + kParts);
  const ValueId x = n.in({1, 4}, n.draw.normals(kParts * 4, 0.02, 1.0));
  const ValueId w = n.variable({4, 1}, {0.9f, 1.1f, 1.0f, 0.8f}), y = n.op("MatMul", {x, w});
  n.symptom(w);
  n.decoy(y);
  n.fix(FixKind::gradient_sum_fp32);
  Setup setup = n.train_loss(n.mean_of_all(y), "sgd:lr=0.01", 50);
  setup.train.batch = setup.train.micro_batches = kParts;
  setup.train.shuffle = false;
  return setup;
}

/// An RMS normalization over 3072 values.
Setup f30() {
  Net n(30);
  const ValueId x = n.in({4, 3072}, n.draw.normals(4 * 3072));
  const ValueId y =
      n.op("RMSNormalization", {x, n.variable({3072}, n.draw.normals(3072, 0.1, 1.0))},
           {{"epsilon", 1e-6}});
  n.root(y);
  n.symptom(y);
  n.fix(kSums, y);
  return n.infer(y);
}

}  // namespace

std::vector<Case> sum_cases() {
  const std::vector<std::string> bf{"bfloat16", "bfloat16_stagewise",
                                    "bfloat16_stagewise accumulate=format"};
  const std::vector<std::string> half{"float16", "float16_stagewise",
                                      "float16_stagewise accumulate=format"};
  std::vector<Case> cases{
      {"F8",
       "a softmax denominator stalls at 256",
       true,
       [] { return softmax_of_equals(512); },
       {"naive_bfloat16"},
       bf},
      {"F8h",
       "a softmax denominator stalls at 2048",
       true,
       [] { return softmax_of_equals(4096); },
       {"naive_float16"},
       half},
      {"F9", "the sum in a global average pool stalls", true, f9, {"naive_float16"}, half},
      {"F9o",
       "a mean overflows because it sums before it divides",
       true,
       [] { return f9o(false); },
       {"float16_stagewise"},
       {"mixed_float16", "float16", "float16_stagewise"}},
      {"F13c",
       "small terms of a focal loss no longer change its sum",
       true,
       f13c,
       {"naive_float16"},
       half},
      {"F20",
       "a running count stalls at 256",
       true,
       [] { return count_of(1024); },
       {"naive_bfloat16"},
       bf},
      {"F20h",
       "a running count stalls at 2048",
       true,
       [] { return count_of(8192); },
       {"naive_float16"},
       half},
      {"F21",
       "the gradient of an embedding stalls at 32",
       true,
       f21,
       {"scatter_float16 scale=none"},
       {"mixed_float16 scale=none", "float16 accumulate=format scale=none",
        "float16_stagewise accumulate=format scale=none"},
       Measure::weights},
      {"F22",
       "the gradient sum of 1024 micro-batches stalls halfway",
       true,
       f22,
       {"mixed_bfloat16 sum=bf16"},
       {"mixed_bfloat16", "mixed_bfloat16 sum=bf16"},
       Measure::weights},
      {"F30",
       "the sum of 3072 squares in an RMS normalization stalls",
       true,
       f30,
       {"naive_bfloat16"},
       bf},
  };
  repair(cases, "F9o", [] { return f9o(true); });
  return cases;
}

}  // namespace halfscope::zoo
