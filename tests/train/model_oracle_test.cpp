// SPDX-License-Identifier: MIT
// The built-in networks against other implementations of them in PyTorch: the same weights and
// data, trained in double precision by SGD with momentum 0.9. tests/oracle/model_losses.py printed
// the losses.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/data/boxes.h"
#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

struct Training {
  std::string model, loss;
  int64_t batch = 0;
  Shape sample;
  int64_t classes = 0;
  double rate = 0.0;
  std::vector<double> losses{};
};

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> items;
  std::istringstream stream(line);
  for (std::string item; std::getline(stream, item, separator);) items.push_back(item);
  return items;
}

std::vector<Training> trainings() {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/tests/oracle/vectors/model_losses.csv");
  std::vector<Training> all;
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = split(line, ',');
    if (std::stoi(cells.at(6)) == 0) {
      Training next{.model = cells[0],
                    .loss = cells[1],
                    .batch = std::stoll(cells[2]),
                    .sample = {},
                    .classes = std::stoll(cells[4]),
                    .rate = std::stod(cells[5])};
      std::replace(next.loss.begin(), next.loss.end(), '+', ',');  // columns have commas
      for (const std::string& size : split(cells[3], 'x')) next.sample.push_back(std::stoll(size));
      all.push_back(next);
    }
    all.back().losses.push_back(std::stod(cells.at(7)));
  }
  return all;
}

std::vector<int32_t> draw(uint64_t seed, int64_t count, int64_t end) {
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = splitmix64((seed << 40) + static_cast<uint64_t>(i));
    numbers.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(end)));
  }
  return numbers;
}

Dataset data_for(const Training& training) {
  Dataset data{.name = "drawn", .sample_shape = {}, .train = {}, .test = {}};
  data.classes = training.classes;
  const int64_t count = training.batch * element_count(training.sample);
  if (training.sample.size() == 1) {
    for (const auto& [name, seed] : {std::pair("tokens", 3), std::pair("labels", 4)}) {
      SampleArray array{.name = name, .sample_shape = training.sample, .samples = training.batch};
      array.integers = draw(static_cast<uint64_t>(seed), count, training.classes);
      data.train.arrays.push_back(array);
    }
    return data;
  }
  if (training.loss == "bce") {  // images have labels, not targets
    SampleArray input{.name = "input", .sample_shape = training.sample, .samples = training.batch};
    for (const int32_t byte : draw(1, count, 256))
      input.reals.push_back(static_cast<float>(byte) / 255.0f);
    SampleArray targets{
        .name = "targets", .sample_shape = {training.classes}, .samples = training.batch};
    targets.integers = draw(5, training.batch * training.classes, 2);
    data.train.arrays = {input, targets};
    return data;
  }
  if (training.loss == "detection") {
    const int64_t batch = training.batch;
    const auto anchors = static_cast<int64_t>(make_anchors(training.sample[1]).size());
    SampleArray input{.name = "input", .sample_shape = training.sample, .samples = batch};
    for (const int32_t byte : draw(1, count, 256))
      input.reals.push_back(static_cast<float>(byte) / 255.0f);
    SampleArray labels{.name = "class_targets", .sample_shape = {anchors}, .samples = batch};
    for (const int32_t number : draw(6, batch * anchors, 20)) {
      labels.integers.push_back(number - 1 > training.classes ? 0 : number - 1);
    }
    SampleArray codes{.name = "box_targets", .sample_shape = {anchors, 4}, .samples = batch};
    for (const int32_t number : draw(7, batch * anchors * 4, 201)) {
      codes.reals.push_back(static_cast<float>(number - 100) / 64.0f);
    }
    data.train.arrays = {input, labels, codes};
    return data;
  }
  data.sample_shape = training.sample;
  for (const int32_t byte : draw(1, count, 256)) {
    data.train.pixels.push_back(static_cast<uint8_t>(byte));
  }
  data.train.labels = draw(2, training.batch, training.classes);
  return data;
}

std::vector<double> losses_of(const Training& training, int64_t steps) {
  TrainConfig config;
  config.build = [&](int64_t batch) {
    Model model = build_network(training.model, batch, training.sample, training.classes);
    add_loss(model, parse_loss(training.loss));
    return model;
  };
  config.optimizer = parse_optimizer("sgd:momentum=0.9");
  config.optimizer.learning_rate = training.rate;
  config.batch = training.batch;
  config.steps = steps;
  config.shuffle = false;
  config.every = 0;
  config.evaluate = false;
  config.lanes = {LaneConfig{*preset_plan("float64"), {}, &float64_backend()}};
  const Dataset data = data_for(training);
  Trainer trainer(config, data);
  std::vector<double> losses;
  const std::atomic<bool> stop{false};
  trainer.run(
      nullptr, [&](const std::vector<StepRow>& rows) { losses.push_back(rows[0].loss); }, stop);
  return losses;
}

void expect_losses(int64_t steps) {
  const std::vector<Training> all = trainings();
  ASSERT_EQ(all.size(), 11u);
  for (const Training& training : all) {
    SCOPED_TRACE(training.model + " " + training.loss + " " + to_string(training.sample));
    const std::vector<double> losses = losses_of(training, steps);
    ASSERT_EQ(losses.size(), static_cast<size_t>(steps));
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], training.losses.at(step), 1e-9 * training.losses[step])
          << "step " << step;
    }
  }
}

TEST(ModelOracle, NetworksStartAsInPyTorch) { expect_losses(3); }
TEST(ModelOracle, NetworksTrainAsInPyTorch) { expect_losses(20); }

}  // namespace
}  // namespace halfscope
