// SPDX-License-Identifier: MIT
// Constants in a plan's formats, against numbers from numpy's float16 and ml_dtypes' bfloat16.
#include "analysis/audit/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/audit/rows.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using Row = AuditedConstant;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// y = x w with a mean of squares as its loss, and x [2, 2].
Model tiny_network() {
  Model model;
  model.name = "tiny";
  Graph& g = model.graph;
  const ValueId x = g.add_input("x", {2, 2}), w = g.add_variable("w", {2, 2}, {0.5});
  const ValueId y = g.add1("MatMul", "y", {x, w});
  model.loss =
      g.add1("ReduceMean", "loss", {g.add1("Mul", "square", {y, y})}, {{"keepdims", int64_t{0}}});
  model.outputs.push_back({"y", y});
  return model;
}

Plan pure_plan(const char* name, const std::optional<FloatFormat>& compute = std::nullopt) {
  Plan plan = preset_plan(name).value();
  plan.update_compute = compute.value_or(kFp32);
  return plan;
}

TrainConfig training_with(const std::string& optimizer, const std::string& schedule = "constant") {
  TrainConfig config;
  config.optimizer = parse_optimizer(optimizer);
  config.schedule = parse_schedule(schedule);
  config.steps = 100;
  return config;
}

Row row_of(const std::vector<Row>& rows, const std::string& name) {
  for (const Row& row : rows) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return {};
}

Row training_row(const Plan& plan, const TrainConfig& config, const std::string& name) {
  return row_of(audit_constants(tiny_network(), plan, &config), name);
}

TEST(Audit, RoundsAsNumpyDoes) {
  EXPECT_EQ(audit::in_format(1e-8, kFp16), 0.0);
  EXPECT_EQ(audit::in_format(1e-7, kFp16), 1.1920928955078125e-07);
  EXPECT_EQ(audit::in_format(-1e9, kFp16), -kInfinity);
  EXPECT_EQ(audit::in_format(1.0 - 0.9999, kBf16), 0.00010013580322265625);
  EXPECT_EQ(audit::in_format(1.0 - 0.9999, kFp16), 0.00010001659393310547);
  EXPECT_EQ(audit::in_format(1.0 - 1e-3 * 0.01, kBf16), 1.0);
  EXPECT_EQ(audit::in_format(1.0 - 1e-3 * 0.01, kFp16), 1.0);
  EXPECT_EQ(audit::in_format(0.999, kBf16), 1.0);
  EXPECT_EQ(audit::in_format(0.999, kFp16), 0.9990234375);
  EXPECT_EQ(audit::in_format(1e-8, kBf16), 1.0011717677116394e-08);
}

TEST(Audit, EpsThatIsZeroDoesHarmAndTheSafeOneFollowsFromTheSquares) {
  const TrainConfig adam = training_with("adam");
  const Row eps = training_row(pure_plan("float16", kFp16), adam, "eps");
  EXPECT_EQ(eps.value, 1e-8);
  EXPECT_EQ(eps.becomes, 0.0);
  EXPECT_EQ(eps.relative_error, 1.0);
  EXPECT_EQ(eps.severity, Severity::error);
  EXPECT_EQ(eps.safe, 0x1p-24);
  // sqrt(2^-25 / (1 - 0.999)): (1 - beta2) g^2 rounds to 0 below it.
  ASSERT_TRUE(eps.safe_for_gradients);
  EXPECT_NEAR(*eps.safe_for_gradients, 0.005459150335692846, 1e-12);
  // In bf16 it is a number, and in fp32 updates, too.
  EXPECT_FALSE(training_row(pure_plan("bfloat16", kBf16), adam, "eps").is_harmful());
  EXPECT_FALSE(training_row(pure_plan("float16"), adam, "eps").is_harmful());
  // An eps that fp16 has.
  const TrainConfig larger = training_with("adam:eps=1e-7");
  const Row fine = training_row(pure_plan("float16", kFp16), larger, "eps");
  EXPECT_EQ(fine.becomes, 1.1920928955078125e-07);
  EXPECT_FALSE(fine.is_harmful());
}

TEST(Audit, SharesThatActAsOneDoHarmWhereTheUpdateHasTheFormat) {
  const TrainConfig adam = training_with("adam");
  const Row beta2 = training_row(pure_plan("bfloat16", kBf16), adam, "beta2");
  EXPECT_EQ(beta2.becomes, 1.0);
  EXPECT_TRUE(beta2.is_harmful());
  EXPECT_EQ(beta2.safe, 0.99609375);
  EXPECT_FALSE(training_row(pure_plan("bfloat16", kBf16), adam, "beta1").is_harmful());
  EXPECT_FALSE(training_row(pure_plan("float16", kFp16), adam, "beta2").is_harmful());
  // Rounded once with what is new: a note, no harm.
  const Row state = training_row(pure_plan("bfloat16"), adam, "beta2");
  EXPECT_FALSE(state.is_harmful());
  EXPECT_THAT(state.text, HasSubstr("cannot shrink in small steps"));
  // The value that it calls safe is safe.
  const TrainConfig safe = training_with("adam:beta2=0.99609375");
  EXPECT_FALSE(training_row(pure_plan("bfloat16", kBf16), safe, "beta2").is_harmful());
}

TEST(Audit, DecayThatIsAbsorbedDoesHarmAsAStepOfItsOwn) {
  const TrainConfig adamw = training_with("adamw:lr=1e-3,weight_decay=0.01");
  const char* const name = "1 - lr * weight_decay";
  for (const auto& [preset, format] : {std::pair("bfloat16", kBf16), std::pair("float16", kFp16)}) {
    const Row own_step = training_row(pure_plan(preset, format), adamw, name);
    EXPECT_NEAR(own_step.value, 0.99999, 1e-12);
    EXPECT_EQ(own_step.becomes, 1.0);
    EXPECT_EQ(own_step.severity, Severity::error) << preset;
    EXPECT_FALSE(training_row(pure_plan(preset), adamw, name).is_harmful()) << "one rounding";
  }
  // fp32 weights, and stochastic rounding, keep it.
  Plan master = pure_plan("bfloat16", kBf16);
  master.storage = kFp32;
  for (PlanRule& rule : master.rules) EXPECT_TRUE(rule.path.empty());
  EXPECT_FALSE(training_row(master, adamw, name).is_harmful());
  Plan stochastic = pure_plan("bfloat16", kBf16);
  stochastic.storage_rounding.mode = RoundingMode::stochastic;
  EXPECT_FALSE(training_row(stochastic, adamw, name).is_harmful());
  // Half an ulp of every weight.
  const TrainConfig enough = training_with("adamw:lr=1,weight_decay=0.00390625");
  EXPECT_EQ(training_row(pure_plan("bfloat16", kBf16), enough, name).becomes, 0.99609375);
  EXPECT_FALSE(training_row(pure_plan("bfloat16", kBf16), enough, name).is_harmful());
}

TEST(Audit, LearningRatesAreThoseOfTheSchedule) {
  const Plan plan = pure_plan("float16", kFp16);
  // 0.1 (100 - t) / 100 at t = 99 is the smallest.
  const TrainConfig linear = training_with("sgd:lr=0.1", "linear");
  EXPECT_NEAR(training_row(plan, linear, "smallest learning rate").value, 0.001, 1e-12);
  EXPECT_NEAR(training_row(plan, linear, "largest learning rate").value, 0.1, 1e-12);
  EXPECT_FALSE(training_row(plan, linear, "smallest learning rate").is_harmful());
  // The whole training is below fp16's smallest number.
  const TrainConfig lost = training_with("adam:lr=1e-9");
  const Row rate = training_row(plan, lost, "learning rate");
  EXPECT_EQ(rate.becomes, 0.0);
  EXPECT_TRUE(rate.is_harmful());
  EXPECT_THAT(rate.text, HasSubstr("100% of the total learning rate"));
  EXPECT_FALSE(training_row(pure_plan("float16"), lost, "learning rate").is_harmful())
      << "an fp32 update has it";
  // The last steps of a cosine are 0, and hardly anything of the way.
  TrainConfig cosine = training_with("adam:lr=1e-5", "cosine");
  cosine.steps = 1000;
  const Row end = training_row(plan, cosine, "smallest learning rate");
  EXPECT_EQ(end.becomes, 0.0);
  EXPECT_FALSE(end.is_harmful());
}

// A group's rows are those that differ from the optimizer's.
TEST(Audit, GroupsHaveTheirOwnConstants) {
  TrainConfig config = training_with("adam:lr=0.01,eps=0.001");
  config.groups = {parse_parameter_group("w:eps=1e-9,lr=1e-9"),
                   parse_parameter_group("other:lr=1")};
  const Plan plan = pure_plan("float16", kFp16);
  const Row eps = training_row(plan, config, "eps");
  EXPECT_EQ(eps.path, "w");
  EXPECT_EQ(eps.value, 1e-9);
  EXPECT_EQ(eps.severity, Severity::error);
  EXPECT_EQ(training_row(plan, config, "learning rate").becomes, 0.0);
  Model two = tiny_network();
  const ValueId v = two.graph.add_variable("v", {2, 2}, {0.5});
  two.loss = two.graph.add1(
      "Add", "sum",
      {two.loss, two.graph.add1("ReduceMean", "mean", {v}, {{"keepdims", int64_t{0}}})});
  const std::vector<Row> both = audit_constants(two, plan, &config);
  const auto named = [&](const std::string& name, const std::string& path) {
    return std::count_if(both.begin(), both.end(),
                         [&](const Row& row) { return row.name == name && row.path == path; });
  };
  EXPECT_EQ(named("eps", ""), 1);
  EXPECT_EQ(named("eps", "w"), 1);
  EXPECT_EQ(named("beta2", ""), 1);
  EXPECT_EQ(named("beta2", "w"), 0) << "the same as the optimizer's";
}

TEST(Audit, AveragesStandStillWhereTheirDecayIsOne) {
  TrainConfig config = training_with("sgd");
  config.average = parse_weight_average("0.999");
  Plan plan = pure_plan("mixed_bfloat16");
  EXPECT_FALSE(training_row(plan, config, "decay").is_harmful()) << "kept in fp32";
  plan.average = kBf16;
  const Row decay = training_row(plan, config, "decay");
  EXPECT_EQ(decay.becomes, 1.0);
  EXPECT_TRUE(decay.is_harmful());
  // Half an ulp below 1 is 2^-9 = 0.00195, over 0.001.
  EXPECT_THAT(decay.text, HasSubstr("by 195%"));
  config.average = parse_weight_average("0.99");
  EXPECT_FALSE(training_row(plan, config, "decay").is_harmful());
}

TEST(Audit, WeightsOfInferenceAreConstants) {
  Model model = tiny_network();
  model.initial["w"] = Tensor{{2, 2}, {1.0f, 7e4f, 3e-8f, 2.0f}};
  const Row large = row_of(audit_constants(model, pure_plan("float16"), nullptr), "weight");
  EXPECT_EQ(large.value, 7e4f);
  EXPECT_EQ(large.becomes, kInfinity);
  EXPECT_EQ(large.infinities, 1);
  EXPECT_EQ(large.severity, Severity::error);
  // mixed_float16 stores them in fp32 and reads them in fp16.
  EXPECT_TRUE(
      std::ranges::any_of(audit_constants(model, pure_plan("mixed_float16"), nullptr),
                          [](const Row& row) { return row.infinities == 1 && row.is_harmful(); }));
  // 3e-8 rounds up to the smallest number; 2e-8 is 0, and nothing beside 2.
  model.initial["w"] = Tensor{{2, 2}, {1.0f, 1.0f, 2e-8f, 2.0f}};
  const Row small = row_of(audit_constants(model, pure_plan("float16"), nullptr), "weight");
  EXPECT_EQ(small.zeros, 1);
  EXPECT_FALSE(small.is_harmful());
  model.initial["w"] = Tensor{{2, 2}, {1e-8f, 2e-8f, 1e-8f, 2e-8f}};
  EXPECT_TRUE(row_of(audit_constants(model, pure_plan("float16"), nullptr), "weight").is_harmful());
  // The caller's tensors take precedence.
  const NamedTensors init{{"w", Tensor{{2, 2}, {1, 1, 1, 1}}}};
  EXPECT_EQ(row_of(audit_constants(model, pure_plan("float16"), nullptr, init), "weight").zeros, 0);
}

TEST(Audit, JsonHasEveryMember) {
  const TrainConfig adam = training_with("adam");
  const auto json = nlohmann::json::parse(
      audit_json(audit_constants(tiny_network(), pure_plan("float16", kFp16), &adam)));
  const auto eps = std::ranges::find_if(json, [](const auto& row) { return row["name"] == "eps"; });
  ASSERT_NE(eps, json.end());
  EXPECT_EQ(eps->at("of"), "optimizer");
  EXPECT_EQ(eps->at("value"), 1e-8);
  EXPECT_EQ(eps->at("becomes"), 0.0);
  EXPECT_EQ(eps->at("format"), "fp16");
  EXPECT_EQ(eps->at("harmful"), true);
  EXPECT_EQ(eps->at("severity"), "error");
  EXPECT_EQ(eps->at("safe"), 0x1p-24);
  EXPECT_EQ(eps->at("path"), nullptr);
}

}  // namespace
}  // namespace halfscope
