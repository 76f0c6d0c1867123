// SPDX-License-Identifier: MIT
// Networks that are trained here. Most stand in for much larger ones: rows marked "proxy" show the
// same mechanism with other data, so their numbers need not be the published ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/validation/networks.h"
#include "bench/validation/rows.h"
#include "core/data/shapes.h"
#include "core/models/zoo/net.h"
#include "core/numeric/formats/round.h"

namespace halfscope::validation {
namespace {

using zoo::Net;

/// Linear regression on noise: every step moves all weights.
zoo::Setup regression(int64_t weights, float start, const std::string& optimizer, int64_t steps) {
  constexpr int64_t kBatch = 16;
  Net n(85);
  const std::vector<float> rows = n.draw.normals(kBatch * steps * weights);
  const ValueId x = n.in({kBatch, weights}, rows);
  const ValueId y = n.linear(x, 1, std::vector<float>(static_cast<size_t>(weights), start));
  return n.train_squares(y, n.draw.normals(kBatch * steps, 30.0), optimizer, steps);
}

/// Weights of the matrix that differ from their start after they are rounded to `stored`.
int64_t moved_weights(const Training& training, const FloatFormat& stored) {
  int64_t moved = 0;
  for (const auto& [path, end] : training.end) {
    if (end.data.size() == 1) continue;  // the bias
    const std::vector<float>& start = training.start.at(path).data;
    for (size_t i = 0; i < end.data.size(); ++i) {
      moved += round_to_format(end.data[i], stored).value != start[i] ? 1 : 0;
    }
  }
  return moved;
}

void add_master_weights(std::vector<Row>& rows) {
  const zoo::Setup setup = regression(768, 1.0f, "adam:lr=6e-4", 100);
  const int64_t stored = moved_weights(train(setup, "bfloat16"), kBf16);
  const int64_t copied = moved_weights(train(setup, "mixed_bfloat16"), kBf16);
  const int64_t full = moved_weights(train(setup, "float32"), kFp32);
  rows.push_back({.what =
                      "weights of 768 that 100 steps of Adam (6e-4) move: in bf16; in bf16 with "
                      "fp32 master weights; in fp32",
                  .source = pull("workofart/ml-by-hand", 85),
                  .published = "0, 603, 768",
                  .ours = fmt::format("{}, {}, {}", stored, copied, full),
                  .accepted = "0, 300 to 767, 768",
                  .pass = stored == 0 && copied >= 300 && copied < 768 && full == 768,
                  .note = "The thread's network is not known. Ours is a linear regression on noise "
                          "whose weights all start at 1, like the thread's example. How many "
                          "weights move by a whole step of bf16 depends on the gradients.",
                  .zoo = "F16"});
}

void add_unscaled(std::vector<Row>& rows) {
  zoo::Setup setup = regression(16, 0.0f, "sgd:lr=0.01", 1);
  const auto norm = [&] {
    return train(setup, "mixed_bfloat16 scale=static:65536").run.steps(0).front().grad_norm;
  };
  const double right = norm();
  setup.train.unscale_only = true;
  rows.push_back(in_zoo(
      "F47", exact("factor by which gradients are too small if they are unscaled by 65536 "
                   "without having been scaled",
                   pull("deepspeedai/DeepSpeed", 7839), "65536", long_number(right / norm()))));
}

/// Returns the largest gradient of one step that is stored in fp16.
double largest_gradient(const RunView& run) {
  double largest = 0.0;
  const std::vector<SiteInfo>& sites = run.lane(0).sites;
  for (size_t i = 0; i < sites.size(); ++i) {
    const bool gradient =
        sites[i].role == Role::activation_grad || sites[i].role == Role::weight_grad;
    if (!gradient || sites[i].format != kFp16) continue;
    const TensorStats& stats = run.total(0, static_cast<int>(i));
    largest = std::max(largest, static_cast<double>(stats.max_abs));
  }
  return largest;
}

void add_largest_scale(std::vector<Row>& rows) {
  zoo::Setup setup = zoo::find_case("F48").make();
  setup.train.steps = 1;
  const double largest = largest_gradient(train(setup, "mixed_float16 scale=none").run);
  double scale = 1.0;
  while (2.0 * scale * largest < 65504.0) scale *= 2.0;
  const auto outcome = [&](double s) {
    const std::string plan = fmt::format("mixed_float16 scale=static:{}", s);
    return train(setup, plan).run.steps(0).front().skipped ? "skipped" : "runs";
  };
  rows.push_back(in_zoo(
      "F48", exact("proxy: a step with the largest loss scale S = 2^k for which S max|g| < "
                   "65504, and with 2 S",
                   paper("1710.03740", "section 3.2"), "runs, skipped",
                   fmt::format("{}, {}", outcome(scale), outcome(2.0 * scale)),
                   fmt::format("Case F48 of the zoo, 24 residual blocks: max|g| is {}, so S is "
                               "{}. The paper's networks used 8 to 32768.",
                               short_number(largest), long_number(scale)))));
  const auto survives = [](double g) { return round_to_format(8.0 * g, kFp16).value != 0.0; };
  double smallest = 1.0;
  while (survives(0.5 * smallest)) smallest *= 0.5;
  rows.push_back(exact("smallest power of two that a loss scale of 8 keeps in fp16",
                       paper("1710.03740", "section 3.2"), "2^-27", power(smallest)));
}

/// Exponents of all gradients of one role.
TensorStats gradients(const RunView& run, Role role) {
  TensorStats all;
  const std::vector<SiteInfo>& sites = run.lane(0).sites;
  for (size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].role == role) all.merge(run.total(0, static_cast<int>(i)));
  }
  return all;
}

/// Returns the share of all values that have an exponent below `exponent` and are not zero.
double share_below(const TensorStats& stats, int exponent) {
  int64_t count = 0;
  for (int bin = kMinExponentBin; bin < exponent; ++bin) {
    count += stats.exponents[static_cast<size_t>(bin - kMinExponentBin)];
  }
  return static_cast<double>(count) / static_cast<double>(stats.n);
}

/// Gradients of a few steps in fp32.
struct Gradients {
  TensorStats activations, weights;
  double zeros() const {
    return static_cast<double>(activations.zero) / static_cast<double>(activations.n);
  }
};

Gradients gradients_of(const ModelBuilder& build, const std::string& optimizer,
                       const Dataset& data) {
  TrainConfig config;
  config.build = build;
  config.optimizer = parse_optimizer(optimizer);
  config.batch = 4;
  config.steps = 12;
  config.evaluate = false;
  const RunView run = train(config, data, "float32").run;
  return {gradients(run, Role::activation_grad), gradients(run, Role::weight_grad)};
}

void add_histograms(std::vector<Row>& rows, const Dataset& digits) {
  const Gradients lenet = gradients_of(
      [](int64_t batch) {
        return build_model("lenet", batch, {1, 28, 28}, 10);
      },
      "sgd:lr=0.1", digits);
  const Gradients retinanet = gradients_of(
      [](int64_t batch) {
        return build_model("retinanet-small", batch, {3, kShapesSide, kShapesSide}, kShapeClasses);
      },
      "adam:lr=1e-3", make_shapes());
  rows.push_back(within(
      "proxy: activation gradients that are exactly zero", paper("1710.03740", "figure 3"),
      "67% (Multibox SSD)", lenet.zeros(), {0.5, 0.85},
      fmt::format("LeNet on generated digits, 12 steps. It has what makes zeros in SSD's VGG-16: "
                  "ReLU, and max pooling, which gives three of four inputs no gradient. A network "
                  "without max pooling has fewer zeros: {} in a small RetinaNet.",
                  percent(retinanet.zeros())),
      Unit::percent));
  rows.push_back(within(
      "proxy: weight gradients with exponents below -24", paper("1710.03740", "section 3.1"),
      "about 5% (Mandarin speech)", share_below(retinanet.weights, -24), {0.005, 0.2},
      "The same small RetinaNet, on generated shapes. The share depends on the network and on the "
      "loss, so only its order of magnitude can agree.",
      Unit::percent));
}

void add_half_weights(std::vector<Row>& rows, const Dataset& digits) {
  TrainConfig config;
  config.model = "mlp:784-32-10";
  config.optimizer = parse_optimizer("sgd:lr=3e-4");
  config.batch = 32;
  config.steps = 4000;
  config.every = 0;
  const auto accuracy = [&](const std::string& plan) {
    return train(config, digits, plan).run.evals(0).back().accuracy;
  };
  const double full = accuracy("float32");
  const auto loss = [&](const std::string& plan) { return (full - accuracy(plan)) / full; };
  const std::string source = paper("1710.03740", "section 3.1");
  rows.push_back(in_zoo(
      "F16",
      within("proxy: relative loss of accuracy if weights are stored in fp16", source,
             "80% (Mandarin speech)", loss("float16"), {0.2, 0.95},
             fmt::format("An MLP with 32 hidden units on generated digits, 4000 steps of SGD "
                         "at 3e-4; accuracy in fp32: {}. The loss grows as the learning rate "
                         "falls, because more updates are lost, so its size is our choice.",
                         percent(full)),
             Unit::percent)));
  rows.push_back(in_zoo("F16", within("proxy: the same with fp32 master weights", source, "none",
                                      loss("mixed_float16"), {-0.02, 0.02}, "", Unit::percent)));
}

}  // namespace

Table trainings() {
  Table table{
      .letter = 'T',
      .title = "Trainings",
      .introduction =
          "Steps and short trainings on the emulated backend. A proxy is a small network "
          "with generated data in place of a large one. It shows the same mechanism, so its "
          "figure need not be the published one."};
  add_master_weights(table.rows);
  add_unscaled(table.rows);
  add_largest_scale(table.rows);
  const Dataset digits = make_digits();
  add_histograms(table.rows, digits);
  add_half_weights(table.rows, digits);
  return table;
}

}  // namespace halfscope::validation
