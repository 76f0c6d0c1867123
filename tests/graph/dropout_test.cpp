// SPDX-License-Identifier: MIT
// Dropout: what it drops, that lanes drop the same, and that gradients follow.
#include "core/ops/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/lower/lower.h"
#include "core/numeric/formats/round.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

constexpr int64_t kMaskRows = 400, kMaskColumns = 250;
constexpr double kRatio = 0.3;

/// scaled = input * weight (of ones), two dropouts of it, and the mean of their sum as the loss.
Model model() {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {kMaskRows, kMaskColumns});
  const ValueId w = graph.add_variable("scaled.weight", {kMaskColumns}, {});
  const ValueId x = graph.add1("Mul", "scaled", {model.input, w});
  const auto drop = [&](const std::string& path) {
    return graph.add1("Dropout", path, {x}, {{"ratio", kRatio}, {"training_mode", int64_t{1}}});
  };
  const ValueId sum = graph.add1("Add", "sum", {drop("first"), drop("second")});
  model.outputs = {{"y", sum}};
  model.loss = graph.add1("ReduceMean", "loss", {sum}, {{"keepdims", int64_t{0}}});
  return model;
}

class Lane {
 public:
  explicit Lane(const Plan& plan, float x = 3.0f, Model network = model())
      : exe_(lower(network, plan, {})) {
    const Backend& backend = plan.double_precision ? float64_backend() : emulation_backend();
    program_ = backend.compile(exe_);
    program_->write(exe_.graph.variables()[0].value, std::vector<float>(kMaskColumns, 1.0f));
    program_->write(exe_.input, std::vector<float>(kMaskRows * kMaskColumns, x));
    program_->write_scalar(exe_.loss_scale, 1.0);
  }
  std::vector<float> site(const std::string& name, Entry entry = Entry::grad, uint64_t seed = 1,
                          uint64_t step = 0) {
    program_->set_random(seed, step);
    program_->run(entry, {});
    for (const Tap& tap : exe_.taps) {
      if (tap.site.name() == name || (name == "gradient" && tap.site.role == Role::weight_grad)) {
        return program_->read(tap.value).data;
      }
    }
    ADD_FAILURE() << "no site " << name;
    return {};
  }
  double loss(Entry entry) {
    program_->run(entry, {});
    return program_->read_scalar(entry == Entry::grad ? exe_.loss : exe_.eval_loss);
  }

 private:
  Executable exe_;
  std::unique_ptr<Program> program_;
};

std::vector<bool> dropped(const std::vector<float>& y) {
  std::vector<bool> result;
  for (const float each : y) result.push_back(each == 0.0f);
  return result;
}

double share(const std::vector<bool>& all) {
  return static_cast<double>(std::count(all.begin(), all.end(), true)) /
         static_cast<double>(all.size());
}

TEST(Dropout, DropsItsShareAndScalesTheRest) {
  Lane lane(Plan{});
  const std::vector<float> y = lane.site("first.activation");
  for (const float each : y) {
    ASSERT_TRUE(each == 0.0f || each == 3.0f * static_cast<float>(1.0 / 0.7)) << each;
  }
  // Five standard deviations of a binomial distribution.
  const double deviation = std::sqrt(0.3 * 0.7 / (kMaskRows * kMaskColumns));
  EXPECT_NEAR(share(dropped(y)), kRatio, 5 * deviation);
  // Neighbours are independent.
  const std::vector<bool> drops = dropped(y);
  int64_t both = 0;
  for (size_t i = 1; i < drops.size(); ++i) both += drops[i] && drops[i - 1] ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(both) / static_cast<double>(drops.size()), 0.09, 0.005);
}

TEST(Dropout, LanesDropTheSameElements) {
  const std::vector<bool> drops = dropped(Lane(Plan{}).site("first.activation"));
  for (const char* preset : {"mixed_float16", "float16_stagewise", "bfloat16", "float64"}) {
    EXPECT_EQ(dropped(Lane(preset_plan(preset).value()).site("first.activation")), drops) << preset;
  }
}

TEST(Dropout, LayersStepsAndSeedsDropDifferentOnes) {
  Lane lane(Plan{});
  const std::vector<bool> drops = dropped(lane.site("first.activation"));
  EXPECT_EQ(dropped(lane.site("first.activation")), drops);  // the same step again
  const auto independent = [&](const std::vector<bool>& other) {
    std::vector<bool> both;
    for (size_t i = 0; i < drops.size(); ++i) both.push_back(drops[i] && other[i]);
    return std::fabs(share(both) - kRatio * kRatio) < 0.005;
  };
  EXPECT_TRUE(independent(dropped(lane.site("second.activation"))));
  EXPECT_TRUE(independent(dropped(lane.site("first.activation", Entry::grad, 1, 1))));
  EXPECT_TRUE(independent(dropped(lane.site("first.activation", Entry::grad, 2, 0))));
}

TEST(Dropout, CanBeSwitchedOff) {
  Model network = model();
  Graph& graph = network.graph;
  const ValueId rows = graph.add_input("rows", {2, 3, 4}),
                columns = graph.add_input("c", {2, 4, 3});
  graph.add1("Attention", "attention", {rows, columns, rows},
             {{"dropout", 0.5}, {"training_mode", int64_t{1}}});
  graph.add1("Dropout", "in_inference", {rows}, {{"ratio", 0.5}});
  const ValueId kept =
      graph.add1("Dropout", "of_none", {rows}, {{"ratio", 0.0}, {"training_mode", int64_t{1}}});
  EXPECT_EQ(switch_dropout_off(graph), 3) << "the ratio 0 drops nothing";
  EXPECT_EQ(int_attribute(graph.node(graph.value(kept).producer), "training_mode", 1), 0);
  EXPECT_EQ(switch_dropout_off(graph), 0);

  Model off = model();
  EXPECT_EQ(switch_dropout_off(off.graph), 2);
  Lane lane(Plan{}, 3.0f, std::move(off));
  EXPECT_THAT(lane.site("first.activation"), testing::Each(3.0f));
  // The mean over rows x columns of first + second, each input * weight.
  EXPECT_THAT(lane.site("gradient"), testing::Each(testing::FloatNear(6.0f / kMaskColumns, 1e-5f)));
}

TEST(Dropout, GradientsGoWhereValuesWent) {
  Lane lane(Plan{});
  const std::vector<float> first = lane.site("first.activation"),
                           second = lane.site("second.activation");
  const std::vector<float> gradient = lane.site("gradient");
  // d loss / d weight[c] = sum over rows of input * (m1 + m2) / elements.
  for (int64_t c = 0; c < kMaskColumns; ++c) {
    double expected = 0.0;
    for (int64_t r = 0; r < kMaskRows; ++r) {
      const auto at = static_cast<size_t>(r * kMaskColumns + c);
      expected += static_cast<double>(first[at]) + static_cast<double>(second[at]);
    }
    expected /= kMaskRows * kMaskColumns;
    ASSERT_NEAR(static_cast<double>(gradient[static_cast<size_t>(c)]), expected, 1e-5 * expected);
  }
}

TEST(Dropout, InferenceDropsNothing) {
  Lane lane(Plan{});
  EXPECT_NEAR(lane.loss(Entry::eval), 6.0, 1e-6);
  const Executable exe = lower_inference(model(), Plan{});
  const auto program = emulation_backend().compile(exe);
  program->write(exe.graph.variables()[0].value, std::vector<float>(kMaskColumns, 1.0f));
  program->write(exe.inputs[0].value, std::vector<float>(kMaskRows * kMaskColumns, 3.0f));
  program->run(Entry::eval, {});
  for (const float each : program->read(exe.outputs[0].value).data) ASSERT_EQ(each, 6.0f);
}

TEST(Dropout, DroppedInfinitiesAreNan) {
  // As where a framework multiplies by a mask.
  const std::vector<float> y =
      Lane(Plan{}, std::numeric_limits<float>::infinity()).site("first.activation");
  const auto nan = std::count_if(y.begin(), y.end(), [](float x) { return std::isnan(x); });
  EXPECT_NEAR(static_cast<double>(nan) / static_cast<double>(y.size()), kRatio, 0.01);
}

TEST(Dropout, ResultsAreRoundedOnce) {
  Plan plan;
  plan.defaults.read = plan.defaults.write = kFp16;
  const float x = 1.0f + 0x1p-10f;
  for (const float each : Lane(plan, x).site("first.activation")) {
    const double exact = static_cast<double>(x) * static_cast<double>(static_cast<float>(1 / 0.7));
    ASSERT_TRUE(each == 0.0f || each == round_to_format(static_cast<float>(exact), kFp16).value);
  }
}

}  // namespace
}  // namespace halfscope
