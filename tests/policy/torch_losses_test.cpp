// SPDX-License-Identifier: MIT
// Training under "torch-autocast-cpu-bf16" against PyTorch's own, from the same weights on the same
// batches: tests/oracle/torch_autocast_losses.py ran torch.autocast("cpu", bfloat16), once as it is
// and several times with sums in another order. Those runs say how far a loss may be away. And what
// a plan's "weights": "as-read" does to numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/npy.h"
#include "core/data/npz.h"
#include "core/models/loss.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"
#include "core/policy/torch.h"
#include "tests/onnx/network_support.h"
#include "tests/onnx/zip_members.h"
#include "tests/policy/normalization.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;

struct LossArchive {
  std::map<std::string, std::vector<uint8_t>> members;
  Json cases;
};

const LossArchive& losses() {
  static const LossArchive all = [] {
    LossArchive result;
    const std::string file = HALFSCOPE_SOURCE_DIR "/tests/policy/files/torch_losses.zip";
    result.members = test::zip_members(file);
    result.cases = Json::parse(result.members.at("losses.json"))["cases"];
    return result;
  }();
  return all;
}

Dataset samples_of(const std::string& name) {
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  for (const char* input : {"x", "labels"}) {
    const std::string file = name + "." + input + ".npy";
    MemorySource source(losses().members.at(file));
    data.train.arrays.push_back(sample_array(input, read_npy_double_array(source, file), file));
  }
  return data;
}

std::vector<double> train(const std::string& name, const Plan& plan) {
  const Json& given = losses().cases[name];
  TrainConfig config = test::config("unused", "float32", "none");
  config.lanes = {test::lane(plan, "none")};
  config.build = [&](int64_t batch) {
    const std::string file = name + ".onnx";
    Model model = parse_onnx(losses().members.at(file), file, ".", {.batch = batch}).model;
    add_loss(model, parse_loss("cross-entropy"));
    return model;
  };
  config.optimizer = parse_optimizer(fmt::format("sgd:lr={}", given["rate"].get<double>()));
  config.batch = given["batch"];
  config.steps = static_cast<int64_t>(given["losses"].size());
  config.shuffle = false;
  config.every = 0;
  const Dataset data = samples_of(name);
  std::vector<double> result;
  for (const StepRow& row : test::train(config, data).seen.rows) result.push_back(row.loss);
  return result;
}

/// Returns the largest distance from PyTorch's losses in units of what is allowed: four times the
/// noise, which is that of five other orders.
double distance(const std::string& name, const std::vector<double>& ours) {
  const Json& given = losses().cases[name];
  const std::vector<double> theirs = given["losses"], noise = given["noise"];
  if (ours.size() != theirs.size()) return INFINITY;
  double worst = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double allowed = 4.0 * noise[i] + 1e-6;
    const double gap = std::fabs(ours[i] - theirs[i]) / theirs[i] / allowed;
    fmt::print("{} step {}: {:.7f}, PyTorch {:.7f}, {:.2f} of what is allowed\n", name, i, ours[i],
               theirs[i], gap);
    worst = std::isnan(gap) ? INFINITY : std::max(worst, gap);
  }
  return worst;
}

class TorchLosses : public testing::TestWithParam<const char*> {};

TEST_P(TorchLosses, FollowPyTorch) {
  const std::string name = GetParam();
  EXPECT_LE(distance(name, train(name, *preset_plan("torch-autocast-cpu-bf16"))), 1.0);
}

INSTANTIATE_TEST_SUITE_P(All, TorchLosses, testing::Values("mlp", "cnn", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

// The comparison tells plans apart.
TEST(TorchLosses, OtherPlansDoNotFollow) {
  EXPECT_GT(distance("mlp", train("mlp", *preset_plan("float32"))), 10.0);
  EXPECT_GT(distance("cnn", train("cnn", *preset_plan("float32"))), 10.0);
}

// In O2 the scale is an fp16 copy of a master weight: 1 + 2^-12 becomes 1. Its result 1 + 2^-12
// would round to 1, too, so the plan writes fp32.
TEST(ApexO2, WeightsAreReadInTheFormatOfTheNode) {
  Plan plan = preset_plan("apex-O2").value();
  plan.initial.reset();
  plan.rules.push_back({.path = "norm", .op = "", .write = kFp32});
  const Tensor x{{1, 4}, {-1.0f, -1.0f, 1.0f, 1.0f}};
  EXPECT_EQ(test::run(test::start(test::normalization(), plan), {{x}})[0].data[3], 1.0f + 0x1p-12f)
      << "the shift 2^-12 is an fp16 number";
  plan.rules.push_back({.path = "norm", .op = "", .rounds_weights = false});
  EXPECT_EQ(test::run(test::start(test::normalization(), plan), {{x}})[0].data[3], 1.0f + 0x1p-11f);
}

}  // namespace
}  // namespace halfscope
