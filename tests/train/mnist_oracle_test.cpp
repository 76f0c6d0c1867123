// SPDX-License-Identifier: MIT
// 200 steps of an MLP 784-512-512-10 on MNIST, batches of 128 in file order, SGD with rate 0.1,
// against the programs of tests/oracle: counts of mixed fp16 equal at every step and site, its
// losses and those of the double lane within 1e-6, and the float32 lane within 1e-6 of the double
// lane until the first ReLU takes another branch (tests/oracle/README.md says why no longer).
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

constexpr int64_t kSteps = 200, kBatch = 128;
constexpr double kRate = 0.1;

std::filesystem::path mnist_folder() {
  const char* const folder = std::getenv("HALFSCOPE_TEST_DATA");
  const std::filesystem::path base =
      folder != nullptr ? std::filesystem::path(folder)
                        : std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "../shared/data";
  return base / "mnist";
}

bool have_mnist() {
  return std::filesystem::exists(mnist_folder() / "train-images-idx3-ubyte.gz") ||
         std::filesystem::exists(mnist_folder() / "train-images-idx3-ubyte");
}

#define SKIP_WITHOUT_MNIST() \
  if (!have_mnist()) GTEST_SKIP() << "no MNIST in " << mnist_folder() << "; set HALFSCOPE_TEST_DATA"

const Dataset& mnist() {
  static const Dataset data = load_mnist(mnist_folder());
  return data;
}

Model model() { return build_mlp({784, 512, 512, 10}, kBatch, mnist().sample_shape); }

/// Rows of a gzipped CSV below its header, by column name.
using Row = std::map<std::string, std::string>;
std::vector<Row> read_table(const std::string& name) {
  const std::string path = std::string(HALFSCOPE_SOURCE_DIR) + "/tests/oracle/vectors/" + name;
  const gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  std::string text;
  char buffer[1 << 16];
  for (int n = 0; (n = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  const auto split = [](const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> header = split(line);
  std::vector<Row> rows;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = split(line);
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = cells.at(i);
  }
  return rows;
}

std::vector<double> column(const std::vector<Row>& rows, const std::string& name) {
  std::vector<double> values;
  for (const Row& row : rows) values.push_back(std::stod(row.at(name)));
  return values;
}

double relative(double a, double b) { return std::fabs(a - b) / std::fabs(b); }

class Collector final : public TapSink {
 public:
  void begin(const RunInfo&) override {}
  void step(int, const StepRow& row, std::span<const TensorStats> s) override {
    rows.push_back(row);
    stats.emplace_back(s.begin(), s.end());
  }
  void eval(int, const EvalRow&) override {}
  void error(int, const SiteError&) override {}
  void sums(int, const SiteSums&) override {}
  void end(RunEnd) override {}

  std::vector<StepRow> rows;
  std::vector<std::vector<TensorStats>> stats;
};

TEST(MnistOracle, InitialWeightsAreTheOracles) {
  // oracle_data.make_init(1): fc1.weight[0, 0], fc1.weight[511, 783], fc2.bias[3], fc3.weight[9,
  // 511]
  const NamedTensors weights = initial_weights(build_mlp({784, 512, 512, 10}, 1, {784}).graph, 1);
  EXPECT_EQ(weights.at("fc1.weight").data.front(), 0x1.37a62ep-6f);
  EXPECT_EQ(weights.at("fc1.weight").data.back(), 0x1.0251ccp-5f);
  EXPECT_EQ(weights.at("fc2.bias").data[3], 0x1.a4efb6p-8f);
  EXPECT_EQ(weights.at("fc3.weight").data.back(), 0x1.d06a4ep-6f);
}

TEST(MnistOracle, MixedFloat16WithStaticScale) {
  SKIP_WITHOUT_MNIST();
  const std::vector<Row> losses = read_table("mixed_fp16_static1024_seed1_losses.csv.gz");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  Plan plan = preset_plan("mixed_float16").value();
  accumulate_in(plan, Accumulation::fp64);
  TrainConfig config;
  config.model = "mlp:784-512-512-10";
  config.shuffle = false;
  config.evaluate = false;
  config.optimizer.learning_rate = kRate;
  config.lanes = {{plan, parse_loss_scale("static:1024"), &emulation_backend()}};
  ASSERT_EQ(config.steps, kSteps);
  ASSERT_EQ(config.batch, kBatch);
  ASSERT_EQ(config.seed, 1u);
  Trainer trainer(config, mnist());
  Collector seen;
  trainer.run(&seen, {}, std::atomic<bool>{false});

  double worst = 0.0;
  for (size_t step = 0; step < losses.size(); ++step) {
    const double difference = relative(seen.rows[step].loss, std::stod(losses[step].at("loss")));
    worst = std::max(worst, difference);
    EXPECT_LE(difference, 1e-6) << "step " << step;
    EXPECT_EQ(seen.rows[step].skipped, losses[step].at("skipped") == "1") << "step " << step;
  }
  std::map<std::string, size_t> order;
  const RunInfo info = trainer.describe();
  for (const SiteInfo& site : info.lanes[0].sites)
    order[site.name()] = static_cast<size_t>(site.order);
  int64_t different = 0, compared = 0, events = 0;
  for (const Row& row : read_table("mixed_fp16_static1024_seed1_counts.csv.gz")) {
    const TensorStats& ours =
        seen.stats.at(std::stoul(row.at("step"))).at(order.at(row.at("site")));
    const std::pair<const char*, int64_t> counters[] = {{"n", ours.n},
                                                        {"underflow", ours.underflow},
                                                        {"subnormal", ours.subnormal},
                                                        {"overflow", ours.overflow}};
    for (const auto& [name, value] : counters) {
      ++compared;
      events += std::string(name) == "n" ? 0 : value;
      if (value == std::stoll(row.at(name))) continue;
      if (++different <= 10) {
        ADD_FAILURE() << "step " << row.at("step") << ", " << row.at("site") << ", " << name << ": "
                      << value << ", oracle " << row.at(name);
      }
    }
  }
  EXPECT_EQ(different, 0);
  EXPECT_EQ(compared, kSteps * 23 * 4);
  EXPECT_GT(events, 100000);
  RecordProperty("largest_relative_loss_difference", std::to_string(worst));
  std::printf("largest relative loss difference %.3g; %lld counters, %lld events\n", worst,
              static_cast<long long>(compared), static_cast<long long>(events));
}

/// One lane driven by hand, so that values inside a step can be read.
class HandDriven {
 public:
  HandDriven(const char* plan, const Backend& backend) {
    Optimizer optimizer;
    optimizer.learning_rate = kRate;
    const Model source = model();
    exe_ = lower(source, preset_plan(plan).value(), {optimizer});
    program_ = backend.compile(exe_);
    const NamedTensors weights = initial_weights(source.graph, 1);
    for (const Variable& variable : exe_.graph.variables()) {
      program_->write(variable.value, weights.at(variable.path).data);
    }
    program_->write_scalar(exe_.loss_scale, 1.0);
    program_->write_scalar(exe_.inverse_scale, 1.0);
    program_->write_scalar(exe_.clip, 1.0);
    program_->write_scalar(exe_.learning_rate, kRate);
    for (const Node& node : exe_.graph.nodes()) {
      if (node.phase == Phase::forward && (node.path == "fc1" || node.path == "fc2")) {
        pre_activations_.push_back(node.outputs[0]);
      }
    }
  }

  double step(std::span<const float> pixels, std::span<const int32_t> labels) {
    program_->write(exe_.input, pixels);
    program_->write(exe_.labels, labels);
    program_->run(Entry::grad, {});
    return program_->read_scalar(exe_.loss);
  }
  void update() { program_->run(Entry::update, {}); }

  /// For every hidden unit and sample: whether its ReLU passes.
  std::vector<bool> branches() const {
    std::vector<bool> result;
    for (ValueId value : pre_activations_) {
      for (float x : program_->read(value).data) result.push_back(x > 0.0f);
    }
    return result;
  }

 private:
  Executable exe_;
  std::unique_ptr<Program> program_;
  std::vector<ValueId> pre_activations_;
};

TEST(MnistOracle, Float64AndFloat32) {
  SKIP_WITHOUT_MNIST();
  const std::vector<Row> table = read_table("mlp_torch_seed1.csv.gz");
  ASSERT_EQ(table.size(), static_cast<size_t>(kSteps));
  const std::vector<double> torch32 = column(table, "loss32"), torch64 = column(table, "loss64");
  HandDriven single("float32", emulation_backend()), twice("float64", float64_backend());
  const Split& train = mnist().train;
  int64_t first_flip = -1;
  double worst64 = 0.0, worst32_before_flip = 0.0, ours = 0.0, torchs = 0.0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t first = step * kBatch;
    std::vector<float> pixels;
    for (int64_t i = first * 784; i < (first + kBatch) * 784; ++i) {
      pixels.push_back(static_cast<float>(train.pixels[static_cast<size_t>(i)]) / 255.0f);
    }
    const std::span<const int32_t> labels =
        std::span(train.labels).subspan(static_cast<size_t>(first), kBatch);
    const double loss32 = single.step(pixels, labels), loss64 = twice.step(pixels, labels);
    const size_t s = static_cast<size_t>(step);
    worst64 = std::max(worst64, relative(loss64, torch64[s]));
    EXPECT_LE(relative(loss64, torch64[s]), 1e-12) << "step " << step;
    if (first_flip < 0) {
      // A flip acts on the weights, hence on the losses of later steps.
      EXPECT_LE(relative(loss32, loss64), 1e-6) << "step " << step;
      worst32_before_flip = std::max(worst32_before_flip, relative(loss32, loss64));
      const std::vector<bool> a = single.branches(), b = twice.branches();
      ASSERT_EQ(a.size(), static_cast<size_t>(2 * 512 * kBatch));
      if (a != b) first_flip = step;
    }
    ours = std::max(ours, std::fabs(loss32 - torch64[s]));
    torchs = std::max(torchs, std::fabs(torch32[s] - torch64[s]));
    single.update();
    twice.update();
  }
  EXPECT_TRUE(first_flip < 0 || first_flip > 50) << first_flip;
  EXPECT_LE(ours, 2.0 * torchs);
  std::printf("float64: largest relative difference to PyTorch's %.3g\n", worst64);
  std::printf(
      "float32: first ReLU on another branch at step %lld; until then %.3g from float64, "
      "relative\n",
      static_cast<long long>(first_flip), worst32_before_flip);
  std::printf("float32: at most %.3g from PyTorch's float64 loss, PyTorch's own float32 %.3g\n",
              ours, torchs);
}

}  // namespace
}  // namespace halfscope
