// SPDX-License-Identifier: MIT
// Infinities of the forward pass that later operators absorb: harmless ones, silent ones, and those
// that fp32 has as well. Statistics are written by hand; the expected results follow from IEEE 754
// and from exp(x) = 0 in fp32 for x below -104.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct ChainOp {
  std::string path, op;
  std::vector<std::string> inputs;
  bool constant = false;  ///< it also reads a constant
};

/// A run of one or two lanes over a chain of operators: fp32 and fp16, inference or one step.
class HandMade {
 public:
  explicit HandMade(const std::vector<ChainOp>& ops, bool reference = true, bool inference = true) {
    RunInfo info;
    info.inference = inference;
    info.batch = 1;
    if (reference) info.lanes.push_back(lane("float32", kFp32, ops));
    info.lanes.push_back(lane("half", kFp16, ops));
    run_ = std::make_unique<RunView>(std::move(info), RunStatus::complete);
    half_ = reference ? 1 : 0;
    for (int each = 0; each <= half_; ++each) {
      run_->add_step(each, {.step = 0, .loss = inference ? NAN : 1.0});
      for (const SiteInfo& site : run_->lane(each).sites) set(each, site.name(), {.n = 8});
    }
  }

  /// Statistics of the fp16 lane.
  HandMade& half(const std::string& site, const TensorStats& stats) {
    set(half_, site, stats);
    return *this;
  }
  HandMade& fp32(const std::string& site, const TensorStats& stats) {
    set(0, site, stats);
    return *this;
  }
  /// Its relative difference from fp32.
  HandMade& differs(const std::string& site, double total) {
    run().add_error(half_, {.step = 0,
                            .site = run().find_site(half_, site).value(),
                            .other_lane = 0,
                            .other_site = run().find_site(0, site).value(),
                            .n = 8,
                            .total = total});
    return *this;
  }
  std::vector<Finding> findings() {
    RunView made(run_->info(), RunStatus::complete);
    for (int lane = 0; lane < made.lane_count(); ++lane) {
      for (const StepRow& row : run_->steps(lane)) made.add_step(lane, row);
      for (const SiteError& error : run_->errors(lane)) made.add_error(lane, error);
      for (const SiteInfo& site : made.lane(lane).sites) {
        made.add_window(lane, site.order, {.step = 0, .stats = stats_[{lane, site.name()}]});
      }
    }
    return run_rules(made);
  }
  RunView& run() { return *run_; }

 private:
  void set(int lane, const std::string& site, const TensorStats& stats) {
    stats_[{lane, site}] = stats;
  }
  static LaneInfo lane(const std::string& name, const FloatFormat& format,
                       const std::vector<ChainOp>& ops) {
    LaneInfo info;
    info.name = name;
    info.backend = "emulated";
    const auto site = [&](const std::string& path, const std::string& tensor, Role role,
                          const std::string& op) {
      SiteInfo made{
          .path = path, .tensor = tensor, .role = role, .op = op, .format = format, .shape = {8}};
      made.order = static_cast<int>(info.sites.size());
      info.sites.push_back(made);
    };
    site("input", "input", Role::input, "Input");
    for (const ChainOp& op : ops) {
      info.layers.push_back(
          {.path = op.path, .op = op.op, .inputs = op.inputs, .read = format, .write = format});
      if (op.constant) site(op.path, "constant", Role::input, op.op);
      site(op.path, "activation", Role::activation, op.op);
    }
    return info;
  }

  std::map<std::pair<int, std::string>, TensorStats> stats_;
  std::unique_ptr<RunView> run_;
  int half_ = 0;
};

constexpr TensorStats kMaskedValues{.n = 8, .neg_inf = 3, .max_abs = 5.0f};
constexpr TensorStats kBeyondRange{.n = 8, .overflow = 3, .max_abs = 1e10f};
constexpr TensorStats kAllInfinite{.n = 8, .pos_inf = 8};
constexpr TensorStats kSomeNan{.n = 8, .nan = 2};

Severity worst_found(const std::vector<Finding>& findings) {
  return worst_severity(findings).value_or(Severity::info);
}

const Finding* first_of(const std::vector<Finding>& findings, const std::string& rule) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& each) { return each.rule == rule; });
  return found == findings.end() ? nullptr : &*found;
}

/// mask = constant * flag, scores + mask, softmax, product: the names must not matter.
const std::vector<ChainOp> kChainOfMask{{"a", "Mul", {"input"}},
                                        {"b", "Add", {"input", "a"}},
                                        {"c", "Softmax", {"b"}},
                                        {"d", "Gemm", {"c"}}};

HandMade masked(bool reference, bool inference = true) {
  HandMade made(kChainOfMask, reference, inference);
  made.half("a.activation", kBeyondRange).half("b.activation", kMaskedValues);
  return made;
}

// -1e10 is -infinity in fp16, and exp() of anything below -104 is 0 in fp32.
TEST(Absorbed, MasksThatASoftmaxReadsDoNoHarm) {
  for (const bool reference : {true, false}) {
    for (const bool inference : {true, false}) {
      HandMade made = masked(reference, inference);
      const std::vector<Finding> findings = made.findings();
      EXPECT_EQ(worst_found(findings), Severity::info);
      const Finding* remark = first_of(findings, "forward_overflow");
      ASSERT_NE(remark, nullptr);
      EXPECT_EQ(remark->site, "a.activation");
      EXPECT_TRUE(remark->action.edit.empty());
      EXPECT_THAT(remark->text, HasSubstr("This is harmless: c gives the same output"));
      EXPECT_THAT(remark->text, Not(HasSubstr("loss scale")));
      EXPECT_EQ(first_of(findings, "first_non_finite"), nullptr);
    }
  }
}

// tanh of infinity is 1, as of every large number; but fp32 has no large numbers there.
TEST(Absorbed, AComparisonOutweighsAnOperatorThatSaturates) {
  for (const double difference : {2e-4, 0.05, 0.9}) {
    HandMade made({{"a", "Gemm", {"input"}}, {"b", "Tanh", {"a"}}});
    made.half("a.activation", kBeyondRange).differs("b.activation", difference);
    EXPECT_EQ(worst_found(made.findings()), difference < 0.1 ? Severity::info : Severity::warning);
  }
}

// A row without an unmasked key is 0 / 0.
TEST(Absorbed, AFullyMaskedRowIsAFailure) {
  HandMade made = masked(true);
  made.half("c.activation", kSomeNan).half("d.activation", kSomeNan);
  const std::vector<Finding> findings = made.findings();
  const Finding* found = first_of(findings, "forward_overflow");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->severity, Severity::error);
  EXPECT_EQ(found->site, "a.activation");
  EXPECT_THAT(found->mechanism, testing::StartsWith("a overflows fp16: "));
  ASSERT_NE(first_of(findings, "first_non_finite"), nullptr);
  EXPECT_EQ(first_of(findings, "first_non_finite")->severity, Severity::error);
}

/// Returns a run whose mask of -1e9 is added to scores of which some are infinite or none; the
/// softmax gives NaN. In fp32 it gives `zeros` zeros, and the mask has three elements of eight.
std::vector<Finding> masked_among(bool infinite_scores, int64_t zeros) {
  HandMade made({{"a", "Mul", {"input"}},
                 {"b", "Add", {"a"}, true},
                 {"c", "Softmax", {"b"}},
                 {"d", "Gemm", {"c"}}});
  if (infinite_scores) made.half("a.activation", kBeyondRange);
  made.half("b.constant", {.n = 8, .zero = 5, .overflow = 3, .max_abs = 1e9f, .sum = -3e9});
  made.half("b.activation", infinite_scores ? kSomeNan : kMaskedValues);
  made.half("c.activation", kSomeNan).half("d.activation", kSomeNan);
  made.fp32("c.activation", {.n = 8, .zero = zeros, .max_abs = 1.0f});
  return made.findings();
}

// Infinite scores make every softmax NaN. The mask does no harm if fp32 gives 0 wherever it is.
TEST(Absorbed, MasksAreJudgedBesideOtherInfinities) {
  for (const bool infinite_scores : {true, false}) {
    for (const int64_t zeros : {2, 3}) {
      const std::vector<Finding> findings = masked_among(infinite_scores, zeros);
      const bool guarded = infinite_scores && zeros == 3;
      const auto mask = std::find_if(findings.begin(), findings.end(), [](const Finding& each) {
        return each.rule == "forward_overflow" && each.site == "b.constant";
      });
      ASSERT_NE(mask, findings.end());
      EXPECT_EQ(mask->severity, guarded ? Severity::info : Severity::error);
      if (guarded) {
        EXPECT_THAT(mask->text, HasSubstr("This is harmless: c gives the same output"));
      }
      const Finding* first = first_of(findings, "forward_overflow");
      EXPECT_EQ(first->site, infinite_scores ? "a.activation" : "b.constant");
      EXPECT_EQ(first->severity, Severity::error);
    }
  }
}

// Same, written out: max and shift, exp, sum. The maximum of a row selects finite values.
TEST(Absorbed, ASoftmaxInPrimitivesIsOneToo) {
  HandMade made({{"a", "Add", {"input"}},
                 {"b", "ReduceMax", {"a"}},
                 {"c", "Sub", {"a", "b"}},
                 {"d", "Exp", {"c"}},
                 {"e", "ReduceSum", {"d"}},
                 {"f", "Div", {"d", "e"}}},
                false);
  TensorStats sum{.n = 8, .overflow = 3, .max_abs = 1e10f};
  made.half("a.activation", sum).half("c.activation", kMaskedValues);
  EXPECT_EQ(worst_found(made.findings()), Severity::info);
}

const std::vector<ChainOp> kChainOfVariance{{"a", "Mul", {"input", "input"}},
                                            {"b", "ReduceMean", {"a"}},
                                            {"c", "Div", {"input", "b"}},
                                            {"d", "Gemm", {"c"}}};

HandMade variance(bool reference) {
  HandMade made(kChainOfVariance, reference);
  made.half("a.activation", kBeyondRange).half("b.activation", kAllInfinite);
  return made;
}

// x / infinity is 0, whatever x / variance is: finite and wrong.
TEST(Absorbed, WhatDisappearsInADivisionIsHarmlessOnlyIfValuesAgree) {
  HandMade unknown = variance(false);
  const std::vector<Finding> alone = unknown.findings();
  const Finding* silent = first_of(alone, "forward_overflow");
  ASSERT_NE(silent, nullptr);
  EXPECT_EQ(silent->severity, Severity::warning);
  EXPECT_THAT(silent->text, HasSubstr("c turns the infinities into finite values. No NaN"));
  EXPECT_THAT(silent->text, HasSubstr("Add a float32 lane"));
  EXPECT_THAT(silent->action.layers, testing::ElementsAre("a"));

  HandMade wrong = variance(true);
  wrong.differs("c.activation", 1.0).differs("d.activation", 0.54);
  const std::vector<Finding> differing = wrong.findings();
  ASSERT_NE(first_of(differing, "forward_overflow"), nullptr);
  EXPECT_EQ(first_of(differing, "forward_overflow")->severity, Severity::warning);
  EXPECT_THAT(first_of(differing, "forward_overflow")->text, Not(HasSubstr("Add the lane")));

  HandMade right = variance(true);
  right.differs("c.activation", 3e-4);
  EXPECT_EQ(worst_found(right.findings()), Severity::info);

  HandMade outputs = variance(true);
  outputs.differs("d.activation", 3e-4);
  EXPECT_EQ(worst_found(outputs.findings()), Severity::info) << "all results of the pass agree";
}

// log(0) represents the logarithm of anything that was flushed; a sigmoid of it is then wrong.
TEST(Absorbed, AnInfinityThatNoRangeMadeMustAgree) {
  for (const double difference : {2e-4, 0.3}) {
    HandMade made({{"a", "Log", {"input"}}, {"b", "Sigmoid", {"a"}}});
    made.half("a.activation", kMaskedValues).differs("b.activation", difference);
    EXPECT_EQ(worst_found(made.findings()), difference < 0.1 ? Severity::info : Severity::warning);
  }
}

TEST(Absorbed, ANetworksOwnInfinitiesAreNotTheFormats) {
  for (const int64_t theirs : {8, 7}) {
    HandMade made({{"a", "Log", {"input"}}, {"b", "Mul", {"a"}}});
    const TensorStats same{.n = 8, .neg_inf = theirs};
    for (const char* site : {"a.activation", "b.activation"}) {
      made.fp32(site, same).half(site, {.n = 8, .neg_inf = 8});
    }
    const std::vector<Finding> findings = made.findings();
    const bool of_lane = std::any_of(findings.begin(), findings.end(), [](const Finding& each) {
      return each.lane == 1 && each.severity > Severity::info;
    });
    EXPECT_EQ(of_lane, theirs == 7) << "one value more than fp32";
  }
}

TEST(Absorbed, ZerosThatOnlyTheFormatHasAreTheCauseOfNan) {
  HandMade made({{"a", "Clip", {"input"}}, {"b", "Expand", {"a"}}, {"c", "Div", {"input", "b"}}});
  made.half("a.activation", {.n = 8, .underflow = 1}).half("b.activation", {.n = 8, .zero = 1});
  made.half("c.activation", kSomeNan);
  const std::vector<Finding> findings = made.findings();
  const Finding* found = first_of(findings, "forward_overflow");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->severity, Severity::error);
  EXPECT_EQ(found->mechanism, "c becomes NaN or infinite: a underflows fp16 to 0");
  EXPECT_EQ(found->cause, Mechanism::forward_flush);
  EXPECT_THAT(found->action.layers, testing::ElementsAre("a", "b", "c"));

  HandMade both({{"a", "Clip", {"input"}}, {"c", "Div", {"input", "a"}}});  // fp32 has the zero too
  both.fp32("a.activation", {.n = 8, .zero = 1}).half("a.activation", {.n = 8, .zero = 1});
  both.half("c.activation", kSomeNan);
  const std::vector<Finding> other = both.findings();
  ASSERT_NE(first_of(other, "forward_overflow"), nullptr);
  EXPECT_EQ(first_of(other, "forward_overflow")->mechanism,
            "c produces NaN in fp16 from finite operands");
}

TEST(Absorbed, FullPrecisionLanesGetNoFindingAboutPrecision) {
  HandMade made(kChainOfMask);
  made.fp32("a.activation", kBeyondRange).fp32("b.activation", kMaskedValues);
  made.half("a.activation", kBeyondRange).half("b.activation", kMaskedValues);
  EXPECT_TRUE(made.findings().empty());
}

// Outside of the forward pass nothing is absorbed: an infinite gradient ends the step.
TEST(Absorbed, AMaskIsNotBlamedForASkippedStep) {
  RunInfo info = masked(true, false).run().info();
  for (LaneInfo& lane : info.lanes) {
    SiteInfo gradient{.path = "d",
                      .tensor = "weight_grad",
                      .role = Role::weight_grad,
                      .phase = Phase::backward,
                      .op = "Gemm",
                      .format = lane.sites[0].format,
                      .shape = {8}};
    gradient.order = static_cast<int>(lane.sites.size());
    lane.sites.push_back(gradient);
  }
  for (const bool overflows : {true, false}) {
    RunView run(info, RunStatus::complete);
    const int gradient = run.find_site(1, "d.weight_grad").value();
    for (int64_t step = 0; step < 20; ++step) {
      const bool skipped = overflows ? step < 3 : true;
      run.add_step(1, {.step = step,
                       .loss = 1.0,
                       .loss_scale = std::ldexp(1.0, 16 - static_cast<int>(step)),
                       .skipped = skipped});
      run.add_window(1, 1, {.step = step, .stats = kBeyondRange});
      run.add_window(1, 2, {.step = step, .stats = kMaskedValues});
      const TensorStats bad{.n = 8, .nan = overflows ? 0 : 8, .overflow = overflows ? 1 : 0};
      run.add_window(1, gradient, {.step = step, .stats = skipped ? bad : TensorStats{.n = 8}});
    }
    const std::vector<Finding> findings = run_rules(run);
    // A NaN without a preceding overflow comes from the infinities of the forward pass.
    EXPECT_EQ(worst_found(findings), overflows ? Severity::info : Severity::error);
    ASSERT_NE(first_of(findings, "first_non_finite"), nullptr);
    EXPECT_EQ(first_of(findings, "first_non_finite")->site,
              overflows ? "d.weight_grad" : "a.activation");
  }
}

// The network writes -inf into the scores itself, in fp32 as well. Another layer makes the NaN.
TEST(Absorbed, AnInfiniteConstantOfTheNetworkIsNotBlamedForALaterNan) {
  HandMade made({{"mask", "Where", {"input"}, true},
                 {"weights", "Softmax", {"mask"}},
                 {"wide", "Gemm", {"weights"}}},
                true, false);
  RunInfo info = made.run().info();
  for (LaneInfo& lane : info.lanes) {
    SiteInfo gradient = lane.sites[1];
    gradient.path = "wide";
    gradient.tensor = "weight_grad";
    gradient.role = Role::weight_grad;
    gradient.phase = Phase::backward;
    gradient.order = static_cast<int>(lane.sites.size());
    lane.sites.push_back(gradient);
  }
  RunView run(info, RunStatus::complete);
  for (const int lane : {0, 1}) {
    run.add_step(lane, {.step = 0, .loss = lane == 0 ? 1.0 : NAN, .skipped = lane == 1});
    for (const SiteInfo& site : run.lane(lane).sites) {
      const bool of_mask = site.name() == "mask.constant" || site.name() == "mask.activation";
      const bool is_lost = lane == 1 && site.path == "wide";
      const TensorStats own = is_lost ? TensorStats{.n = 8, .nan = 8} : TensorStats{.n = 8};
      run.add_window(lane, site.order, {.step = 0, .stats = of_mask ? kMaskedValues : own});
    }
  }
  const std::vector<Finding> findings = run_rules(run);
  const Finding* found = first_of(findings, "first_non_finite");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(found->site, "mask.constant") << found->text;
}

}  // namespace
}  // namespace halfscope::test
