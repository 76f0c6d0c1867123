// SPDX-License-Identifier: MIT
// Proofs of forward passes: a network whose one layer overflows fp16, and what cures it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/memory_sink.h"
#include "analysis/proof/proof.h"
#include "analysis/rules/rules.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::atomic<bool> kNotNow{false};

Dataset rows_of_numbers(int64_t samples) {
  Dataset set{.name = "numbers", .sample_shape = {}, .train = {}, .test = {}};
  SampleArray array{.name = "input", .sample_shape = {6}, .samples = samples};
  for (int64_t i = 0; i < samples * 6; ++i) {
    array.reals.push_back(0.5f + static_cast<float>(splitmix64(static_cast<uint64_t>(i)) >> 40) *
                                     0x1p-24f);
  }
  set.test.arrays.push_back(std::move(array));
  return set;
}

Tensor filled(Shape shape, float value) {
  const size_t count = static_cast<size_t>(element_count(shape));
  return {std::move(shape), std::vector<float>(count, value)};
}

/// fc2 gives 3e5 and more, which fc3 brings down to about 1 again.
RunnerConfig hot_network() {
  RunnerConfig config;
  config.init = {{"fc1.weight", filled({8, 6}, 0.5f)},
                 {"fc2.weight", filled({8, 8}, 3e4f)},
                 {"fc3.weight", filled({3, 8}, 3e-7f)}};
  return config;
}

InferenceProofRequest request_of(const RunnerConfig& run, const std::string& plan,
                                 const std::vector<std::string>& layers) {
  InferenceProofRequest request{.run = run,
                                .network = [] { return build_network("mlp:6-8-8-3", 4, {6}, 3); },
                                .original = preset_plan(plan).value(),
                                .advice = {},
                                .backend = &emulation_backend()};
  Plan advised = request.original;
  for (const std::string& layer : layers) keep_fp32(advised, layer);
  advised.name += "+fp32";
  request.advice.edit.add(PlanEdit::in_fp32(layers));
  request.advice.plan_json = plan_to_json(advised);
  return request;
}

Proof proof_of(const InferenceProofRequest& request) {
  static const Dataset samples = rows_of_numbers(10);
  return prove(request, samples, {}, kNotNow).value();
}

TEST(InferenceProof, OfLayersThatOverflowHolds) {
  // fc3 would read what fc2 gives in fp16; fc1 can be spared.
  const Proof proof = proof_of(request_of(hot_network(), "mixed_float16", {"fc1", "fc2", "fc3"}));
  EXPECT_TRUE(proof.holds) << proof.text;
  EXPECT_THAT(proof.edit.fp32_layers(), ElementsAre("fc2", "fc3"));
  EXPECT_THAT(proof.dropped, ElementsAre("fc1"));
  ASSERT_EQ(proof.trials.size(), 4u);
  EXPECT_EQ(proof.trials[0].gap, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(proof.trials[0].passes);
  EXPECT_TRUE(proof.trials[1].passes);
  EXPECT_LE(proof.trials[1].gap, proof.tolerance);
  EXPECT_FALSE(proof.trials[2].passes);
  EXPECT_FALSE(proof.trials[3].passes);
  EXPECT_EQ(proof.steps, 3) << "batches of 4 of 10 samples";
  EXPECT_GE(proof.tolerance, kOutputFloor);
  EXPECT_THAT(proof.text,
              StartsWith("Tested by running it: with the change, the outputs are within "));
  EXPECT_THAT(proof.text,
              HasSubstr("Without it, outputs are NaN or infinite where fp32's are finite."));
  EXPECT_THAT(proof.text, testing::Not(HasSubstr("loss")));
  const std::optional<Proof> read = read_proof(proof_json(proof));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trials[1].gap, proof.trials[1].gap);
}

TEST(InferenceProof, OfTooLittleDoesNotHold) {
  const Proof proof = proof_of(request_of(hot_network(), "mixed_float16", {"fc1"}));
  EXPECT_FALSE(proof.holds);
  EXPECT_THAT(proof.text, StartsWith("Not proved: with the change, outputs are NaN or infinite"));
}

TEST(InferenceProof, ANetworkThatIsRightNeedsNone) {
  RunnerConfig cool = hot_network();
  cool.init["fc2.weight"] = filled({8, 8}, 0.25f);
  cool.init["fc3.weight"] = filled({3, 8}, 0.25f);
  const Proof proof = proof_of(request_of(cool, "mixed_float16", {"fc1"}));
  EXPECT_FALSE(proof.holds);
  EXPECT_TRUE(proof.trials[0].passes);
  EXPECT_THAT(proof.text,
              StartsWith("mixed_float16 matches fp32 without any change: the outputs "));
}

// Three outputs that are almost the same. In fp16 they are equal, so the first of them wins.
TEST(InferenceProof, AnAccuracyThatFallsIsAFault) {
  RunnerConfig run;
  Tensor scores = filled({3, 8}, 0.5f);
  std::fill(scores.data.begin() + 8, scores.data.begin() + 16, 0.50001f);
  run.init = {{"fc1.weight", filled({8, 6}, 0.1f)},
              {"fc2.weight", filled({8, 8}, 0.1f)},
              {"fc3.weight", scores},
              {"fc3.bias", filled({3}, 0.0f)}};
  run.labels.values.assign(10, 1);
  InferenceProofRequest request = request_of(run, "mixed_float16", {"fc3"});
  const Proof proof = proof_of(request);
  EXPECT_TRUE(proof.holds) << proof.text;
  EXPECT_FALSE(proof.trials[0].passes);
  EXPECT_LT(proof.trials[0].gap, proof.tolerance) << "its outputs are close enough";
  EXPECT_THAT(proof.text, HasSubstr("with an accuracy of 100% instead of 100%"));
  EXPECT_THAT(proof.text, HasSubstr("the accuracy is 0% instead of 100%"));
}

TEST(InferenceProof, RefusesARunThatDoesNotRepeat) {
  const Dataset samples = rows_of_numbers(10);
  InferenceProofRequest request = request_of(hot_network(), "mixed_float16", {"fc2", "fc3"});
  RunnerConfig run = request.run;
  run.errors.enabled = true;
  run.lanes = {lane(Plan{}, "none"), lane(request.original, "none")};
  Runner runner(request.network(), run, samples);
  MemorySink sink;
  sink.begin(runner.describe());
  runner.run(&sink, {}, kNotNow);
  for (const Deviation& each : sink.view().deviations(1)) request.recorded.push_back(each);
  ASSERT_FALSE(request.recorded.empty());
  EXPECT_TRUE(prove(request, samples, {}, kNotNow)->holds);

  request.recorded.front().broken -= 1;
  try {
    prove(request, samples, {}, kNotNow);
    ADD_FAILURE() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), StartsWith("the run is not repeatable: the error of output "));
  }
  const std::atomic<bool> now{true};
  EXPECT_FALSE(prove(request, samples, {}, now));
}

}  // namespace
}  // namespace halfscope::test
