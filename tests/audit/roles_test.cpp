// SPDX-License-Identifier: MIT
// Constants of networks: what they are there for decides whether 0 or infinity does harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "analysis/audit/audit.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

/// Audits the only constant of a network of x [4, 4] under a preset.
AuditedConstant constant_of(const std::function<ValueId(Graph&, ValueId)>& build,
                            const char* preset = "float16_stagewise") {
  Model model;
  model.name = "network";
  const ValueId x = model.graph.add_input("x", {4, 4});
  model.outputs.push_back({"y", build(model.graph, x)});
  for (const AuditedConstant& row : audit_constants(model, preset_plan(preset).value(), nullptr)) {
    if (row.name == "constant") return row;
  }
  ADD_FAILURE() << "no constant";
  return {};
}

TEST(AuditGuard, ZeroInFrontOfADivisionDoesHarm) {
  const auto guarded = [](const char* op, float eps) {
    return [=](Graph& g, ValueId x) {
      const ValueId norm = g.add1("Sqrt", "root", {g.add1("Mul", "square", {x, x})});
      const ValueId guard = g.add1(op, "guard", {norm, g.add_constant(eps)});
      return g.add1("Div", "quotient", {x, guard});
    };
  };
  for (const char* op : {"Add", "Max"}) {
    const AuditedConstant lost = constant_of(guarded(op, 1e-8f));
    EXPECT_EQ(lost.becomes, 0.0);
    EXPECT_EQ(lost.severity, Severity::error);
    EXPECT_THAT(lost.text, HasSubstr("quotient (Div) from dividing by 0"));
    EXPECT_EQ(lost.safe, 0x1p-24);
    EXPECT_EQ(lost.safe_for_gradients, 0x1p-14);
    EXPECT_FALSE(constant_of(guarded(op, 1e-7f)).is_harmful());
    EXPECT_FALSE(constant_of(guarded(op, 1e-8f), "bfloat16_stagewise").is_harmful());
    // The number is read in fp32, but where the norm is 0 its own value is written in fp16.
    const AuditedConstant written = constant_of(guarded(op, 1e-8f), "float16");
    EXPECT_EQ(written.becomes, 0.0);
    EXPECT_TRUE(written.is_harmful());
    EXPECT_FALSE(constant_of(guarded(op, 1e-8f), "float32").is_harmful());
  }
}

TEST(AuditGuard, PowersOnTheWayDecideWhatGradientsNeed) {
  const auto behind = [](bool square) {
    return constant_of([=](Graph& g, ValueId x) {
      const ValueId guard = g.add1("Add", "guard", {x, g.add_constant(1e-9f)});
      const ValueId power =
          square ? g.add1("Mul", "power", {guard, guard}) : g.add1("Sqrt", "power", {guard});
      return g.add1("Div", "quotient", {x, power});
    });
  };
  // The square of 2^-7 is fp16's smallest normal number, 2^-14.
  EXPECT_EQ(behind(true).safe_for_gradients, 0x1p-7);
  EXPECT_THAT(behind(true).advice, HasSubstr("to the power of 2"));
  EXPECT_EQ(behind(false).safe_for_gradients, 0x1p-14);
}

TEST(AuditGuard, ZeroThatGuardsNothingIsPlainRounding) {
  const AuditedConstant added = constant_of([](Graph& g, ValueId x) {
    return g.add1("Relu", "y", {g.add1("Add", "sum", {x, g.add_constant(1e-9f)})});
  });
  EXPECT_EQ(added.becomes, 0.0);
  EXPECT_FALSE(added.is_harmful());
  // After another sum it is no longer the guard.
  const AuditedConstant covered = constant_of([](Graph& g, ValueId x) {
    const ValueId sum = g.add1("Add", "sum", {x, g.add_constant(1e-9f)});
    return g.add1("Div", "y", {x, g.add1("Add", "other", {sum, x})});
  });
  EXPECT_FALSE(covered.is_harmful());
}

TEST(AuditGuard, LogarithmsAndFactors) {
  const AuditedConstant log = constant_of([](Graph& g, ValueId x) {
    return g.add1("Log", "y", {g.add1("Add", "sum", {x, g.add_constant(1e-10f)})});
  });
  EXPECT_THAT(log.text, HasSubstr("y (Log) from taking the logarithm of 0"));
  const AuditedConstant factor = constant_of([](Graph& g, ValueId x) {
    return g.add1("Mul", "y", {x, g.add_constant(1e-9f)});
  });
  EXPECT_EQ(factor.severity, Severity::error);
  const AuditedConstant divisor = constant_of([](Graph& g, ValueId x) {
    return g.add1("Div", "y", {x, g.add_constant(-1e-9f)});
  });
  EXPECT_THAT(divisor.text, HasSubstr("it divides by 0"));
  EXPECT_EQ(divisor.safe, -0x1p-24);
}

/// softmax(x + mask) along `axis`; `mask` is 0 or -1e9.
AuditedConstant masked(const Shape& shape, std::vector<float> ones, int64_t axis = -1,
                       const char* preset = "float16_stagewise") {
  for (float& x : ones) x *= -1e9f;
  return constant_of(
      [&](Graph& g, ValueId x) {
        const ValueId sum = g.add1("Add", "masked", {x, g.add_constant(Tensor{shape, ones})});
        return g.add1("Softmax", "softmax", {sum}, {{"axis", axis}});
      },
      preset);
}

TEST(AuditMask, MinusInfinityDoesHarmOnlyWhereALineHasNothingElse) {
  const AuditedConstant whole = masked({4, 4}, {0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0});
  EXPECT_EQ(whole.becomes, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(whole.infinities, 6);
  EXPECT_EQ(whole.severity, Severity::error);
  EXPECT_EQ(whole.safe, -32752.0);
  const AuditedConstant causal = masked({4, 4}, {0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0});
  EXPECT_FALSE(causal.is_harmful());
  EXPECT_THAT(causal.text, HasSubstr("the mask works as before"));
  // Along the other axis the last column has nothing else.
  EXPECT_TRUE(masked({4, 4}, {0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}, 0).is_harmful());
  EXPECT_FALSE(masked({4, 4}, {0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}, 0).is_harmful());
  // Broadcast: one number for a line, or one line for all.
  EXPECT_TRUE(masked({4, 1}, {0, 1, 0, 0}).is_harmful());
  EXPECT_FALSE(masked({4, 1}, {0, 1, 0, 0}, 0).is_harmful());
  EXPECT_FALSE(masked({4}, {0, 1, 0, 0}).is_harmful());
  EXPECT_TRUE(masked({4}, {1, 1, 1, 1}).is_harmful());
  EXPECT_FALSE(masked({4}, {1, 1, 1, 1}, -1, "bfloat16_stagewise").is_harmful());
  EXPECT_TRUE(masked({4}, {1, 1, 1, 1}, -1, "float16").is_harmful());
}

TEST(AuditMask, InfinityElsewhereDoesHarm) {
  const AuditedConstant large = constant_of([](Graph& g, ValueId x) {
    return g.add1("Mul", "y", {x, g.add_constant(1e6f)});
  });
  EXPECT_EQ(large.severity, Severity::error);
  EXPECT_EQ(large.safe, 65504.0);
  const AuditedConstant own = constant_of([](Graph& g, ValueId x) {
    const float none = -std::numeric_limits<float>::infinity();
    return g.add1("Add", "y", {x, g.add_constant(Tensor{{4}, {none, 0, 0, 0}})});
  });
  EXPECT_FALSE(own.is_harmful()) << "the network's own infinity";
  EXPECT_EQ(own.infinities, 0);
}

}  // namespace
}  // namespace halfscope
