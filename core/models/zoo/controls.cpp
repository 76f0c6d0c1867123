// SPDX-License-Identifier: MIT
// Healthy networks: every finding about them is a false alarm.
#include <limits>

#include "core/models/zoo/plans.h"
#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

struct Images {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
};

/// Noise with a bright bar whose position encodes the class.
Images bars(Net& n, int64_t count) {
  Images images;
  images.pixels = n.draw.normals(count * 144, 0.3);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t label = n.draw.below(4);
    images.labels.push_back(label);
    for (int64_t p = 0; p < 12; ++p) {
      const int64_t line = 2 + 2 * label + (p % 2);
      images.pixels[static_cast<size_t>(i * 144 + line * 12 + p)] += 1.0f;
    }
  }
  return images;
}

ValueId cnn(Net& n, ValueId x) {
  const Attributes pool{{"kernel_shape", std::vector<int64_t>{2, 2}},
                        {"strides", std::vector<int64_t>{2, 2}}};
  ValueId y = n.op("MaxPool", {n.op("Relu", {n.batch_norm(n.conv(x, 6, 3, 1.4))})}, pool);
  y = n.op("Relu", {n.batch_norm(n.conv(y, 8, 3, 1.4))});
  return n.linear(n.op("Flatten", {n.op("MaxPool", {y}, pool)}), 4);
}

Setup train_cnn() {
  Net n(101);
  const Images images = bars(n, 160);
  return n.train_classes(cnn(n, n.in({16, 1, 12, 12}, images.pixels)), images.labels,
                         "sgd:lr=0.05,momentum=0.9", 60);
}

Setup run_cnn() {
  Net n(102);
  const Images images = bars(n, 16);
  return n.infer(cnn(n, n.in({16, 1, 12, 12}, images.pixels)));
}

/// Four clouds of points.
Setup train_mlp(const std::string& optimizer) {
  Net n(103);
  const std::vector<float> centres = n.draw.normals(4 * 16);
  std::vector<float> rows = n.draw.normals(320 * 16, 0.7);
  std::vector<int32_t> labels;
  for (size_t i = 0; i < 320; ++i) {
    labels.push_back(n.draw.below(4));
    for (size_t j = 0; j < 16; ++j)
      rows[i * 16 + j] += centres[static_cast<size_t>(labels.back()) * 16 + j];
  }
  const ValueId x = n.in({32, 16}, rows);
  const ValueId h = n.op("Relu", {n.linear(x, 32, 1.4)});
  return n.train_classes(n.linear(n.op("Relu", {n.linear(h, 32, 1.4)}), 4), labels, optimizer, 100);
}

constexpr int64_t kBatch = 8, kTokens = 16, kWidth = 32, kWords = 24;

ValueId project(Net& n, ValueId x, int64_t out) {
  const int64_t in = n.shape(x).back();
  return n.op("MatMul", {x, n.variable({in, out}, n.draw.normals(in * out, 0.18))});
}

ValueId heads(Net& n, ValueId x, std::vector<int64_t> perm) {
  return n.op("Transpose", {n.reshape(x, {kBatch, kTokens, 2, kWidth / 2})}, {{"perm", perm}});
}

/// One decoder block with an additive causal mask, and its scores for every token.
ValueId decoder(Net& n, ValueId tokens, float mask_value) {
  std::vector<float> mask(kTokens * kTokens, 0.0f);
  for (int64_t i = 0; i < kTokens; ++i) {
    for (int64_t j = i + 1; j < kTokens; ++j)
      mask[static_cast<size_t>(i * kTokens + j)] = mask_value;
  }
  const ValueId table = n.variable({kWords, kWidth}, n.draw.normals(kWords * kWidth, 0.5));
  const ValueId places = n.variable({kTokens, kWidth}, n.draw.normals(kTokens * kWidth, 0.2));
  ValueId x = n.add(n.op("Gather", {table, tokens}), places);
  const ValueId h = n.layer_norm(x);
  const ValueId q = heads(n, project(n, h, kWidth), {0, 2, 1, 3});
  const ValueId k = heads(n, project(n, h, kWidth), {0, 2, 3, 1});
  const ValueId v = heads(n, project(n, h, kWidth), {0, 2, 1, 3});
  const ValueId mixed =
      n.op("Attention", {q, k, v, n.constant({kTokens, kTokens}, mask)}, {{"scale", 0.25}});
  const ValueId merged =
      n.reshape(n.op("Transpose", {mixed}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                {kBatch, kTokens, kWidth});
  x = n.add(x, project(n, merged, kWidth));
  const ValueId wide = n.op("Gelu", {project(n, n.layer_norm(x), 2 * kWidth)});
  x = n.add(x, project(n, wide, kWidth));
  return project(n, n.layer_norm(x), kWords);
}

/// Sequences in which each token follows from the previous one.
std::vector<int32_t> sequences(Net& n, int64_t count, int64_t length) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t step = 1 + 2 * n.draw.below(3);
    int32_t token = n.draw.below(kWords);
    for (int64_t t = 0; t < length; ++t) {
      tokens.push_back(token);
      token = (token + step) % static_cast<int32_t>(kWords);
    }
  }
  return tokens;
}

Setup train_decoder() {
  Net n(104);
  const std::vector<int32_t> all = sequences(n, 80, kTokens + 1);
  std::vector<int32_t> tokens, next;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t place = i % (kTokens + 1);
    if (place < kTokens) tokens.push_back(all[i]);
    if (place > 0) next.push_back(all[i]);
  }
  const ValueId x = n.index_in({kBatch, kTokens}, tokens);
  return n.train_classes(decoder(n, x, -1e9f), next, "adam:lr=3e-3", 60);
}

Setup run_decoder(float mask_value) {
  Net n(105);
  const ValueId x = n.index_in({kBatch, kTokens}, sequences(n, kBatch, kTokens));
  return n.infer(decoder(n, x, mask_value));
}

/// An additive mask that leaves at least one key unmasked in every row.
Setup partly_masked(float value) {
  Net n(106);
  const ValueId x = n.in({8, 4, 4}, n.draw.normals(8 * 4 * 4));
  const ValueId v = n.in({8, 4, 6}, n.draw.normals(8 * 4 * 6));
  std::vector<float> mask(16, 0.0f);
  for (const size_t i : {1u, 2u, 3u, 6u, 7u, 8u, 11u, 13u}) mask[i] = value;
  const ValueId p = n.op("Softmax", {n.add(x, n.constant({4, 4}, mask))}, {{"axis", int64_t{-1}}});
  return n.infer(n.op("MatMul", {p, v}));
}

/// An embedding normalized by sqrt(3072) and weights of 1 + w. The model's own reference rounds
/// them too.
Setup f29() {
  Net n(29);
  ValueId x = n.in({16, 64}, n.draw.normals(16 * 64, 0.02));
  x = n.mul(x, n.constant(55.42562584220407));
  const ValueId w = n.add(n.variable({64}, n.draw.normals(64, 0.05)), n.constant(1.0));
  const ValueId square = n.mean(n.mul(x, x), {1});
  const ValueId normal = n.div(x, n.op("Sqrt", {n.add(square, n.constant(1e-6))}));
  return n.infer(n.linear(n.mul(normal, w), 32));
}

/// Twelve layers, whose sums may be split.
Setup f46() {
  Net n(46);
  ValueId x = n.in({16, 64}, n.draw.normals(16 * 64));
  for (int i = 0; i < 12; ++i) x = n.op("Tanh", {n.linear(x, 64, 1.1)});
  return n.infer(x);
}

/// Rows of zeros with one scale per tensor or per block.
Setup zero_rows() {
  Net n(138);
  std::vector<float> rows = n.draw.normals(32 * 64);
  std::fill_n(rows.begin() + 64 * 6, 64 * 3, 0.0f);
  return n.infer(n.linear(n.in({32, 64}, rows), 8));
}

/// Gradients that overflow at a loss scale of 65536 and fit after a few halvings.
Setup calibration() {
  constexpr int64_t kBatch = 16, kSamples = 64;
  Net n(125);
  const ValueId x = n.in({kBatch, 4}, n.draw.normals(kSamples * 4));
  const std::vector<float> wanted = n.draw.normals(kSamples, 2.0, 2.5);
  return n.train_squares(n.linear(x, 1), wanted, "sgd:lr=0.1", 200);
}

/// A layer whose units are all dead: all gradients are 0, so the loss scale grows to its own limit.
Setup zero_gradients() {
  Net n(126);
  const ValueId x = n.in({4, 4}, n.draw.uniforms(16 * 4, 0.5, 1.5));
  const ValueId y = n.op("Relu", {n.linear(x, 2, n.draw.uniforms(8, -1.0, -0.5))});
  return n.train_squares(y, n.draw.uniforms(16 * 2, 0.01, 0.02), "sgd:lr=0.01", 2100);
}

/// Returns the case with this id as a control, with plans under which it is healthy.
Case healthy_variant(const std::vector<Case>& cases, const std::string& id, const std::string& name,
                     const std::string& why, std::vector<std::string> plans) {
  for (const Case& each : cases) {
    if (each.id != id) continue;
    Case control = each;
    control.id = name;
    control.what = why;
    control.fails = false;
    control.right = {};
    control.repaired = {};
    control.plain = std::move(plans);
    return control;
  }
  return {};
}

}  // namespace

std::vector<Case> controls() {
  const float none = -std::numeric_limits<float>::infinity();
  const auto inference = [](const char* id, const char* why, std::function<Setup()> make) {
    return Case{.id = id,
                .what = why,
                .fails = false,
                .make = std::move(make),
                .right = {},
                .plain = six_plans()};
  };
  const auto training = [](const char* id, const char* why, std::function<Setup()> make) {
    return Case{.id = id,
                .what = why,
                .fails = false,
                .make = std::move(make),
                .right = {},
                .plain = six_plans(),
                .measure = Measure::loss};
  };
  const std::vector<std::string> bf{"mixed_bfloat16", "bfloat16", "bfloat16_stagewise"};
  const std::vector<Case> range = range_cases();
  std::vector<Case> cases{
      training("OKcnn", "convolutional network with batch normalization, SGD", train_cnn),
      training("OKsgd", "multilayer perceptron, SGD", [] { return train_mlp("sgd:lr=0.1"); }),
      training("OKadam", "multilayer perceptron, Adam", [] { return train_mlp("adam:lr=3e-3"); }),
      training("OKadamw", "multilayer perceptron, AdamW",
               [] { return train_mlp("adamw:lr=3e-3,weight_decay=0.01"); }),
      training("OKgpt", "decoder block, Adam", train_decoder),
      inference("OKcnnrun", "inference: convolutional network with batch normalization", run_cnn),
      inference("OKgptrun", "inference: decoder block with a mask of -1e9",
                [] { return run_decoder(-1e9f); }),
      inference("OKgptinf", "inference: decoder block with a mask of -inf",
                [none] { return run_decoder(none); }),
      inference("F6ok", "a mask of -1e9 that leaves a key in every row",
                [] { return partly_masked(-1e9f); }),
      inference("F6inf", "a mask of -inf that leaves a key in every row",
                [none] { return partly_masked(none); }),
      inference("F11ok", "the areas of 150-pixel boxes, which fit fp16",
                [] { return box_overlap(150.0); }),
      inference("F29", "constants that the reference model rounds too", f29),
      inference("F46", "twelve layers that sum in a different order", f46),
      healthy_variant(range, "F1", "F1b", "F1 in bf16, which has enough range", bf),
      healthy_variant(range, "F5", "F5b", "F5 in bf16, which has enough range", bf),
  };
  cases[12].plain.push_back("mixed_bfloat16 accumulate=fp32:split-k=4");
  cases[12].plain.push_back("mixed_bfloat16 accumulate=pairwise");
  Case zeros = inference("F38ok", "rows of zeros with guarded fp8 scales", zero_rows);
  zeros.plain = {"fp8_current", "fp8_block", "mxfp8"};
  zeros.ok = 0.06;
  zeros.harm = 0.08;
  cases[13].ok = 0.04;  // the last normalization takes a mean away that is most of its input
  cases.push_back(zeros);
  Case calibrated = training("F25ok", "the loss scale falls until the gradients fit", calibration);
  calibrated.plain = {"mixed_float16", "mixed_float16 scale=dynamic:16777216"};
  cases.push_back(calibrated);
  Case grown = training("F26", "zero gradients at a loss scale of 2^127", zero_gradients);
  grown.plain = {"mixed_bfloat16 scale=dynamic:1.7014118346046923e38"};
  cases.push_back(grown);
  return cases;
}

}  // namespace halfscope::zoo
