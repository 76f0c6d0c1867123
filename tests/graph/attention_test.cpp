// SPDX-License-Identifier: MIT
// Attention as a node that always expands: its primitives, the effect of a plan's rules on them,
// and that a training step equals that of the same primitives written one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/numeric/formats/rng.h"
#include "core/ops/ops.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Texts = std::vector<std::string>;

constexpr int64_t kBatch = 2, kRows = 3, kKeys = 4, kDepth = 5, kWidth = 3;
const Shape kMaskShape{kRows, kKeys};

/// How the scores are masked.
enum class Mask { none, added, keeps, fills };

struct Form {
  Mask mask = Mask::added;
  Attributes scale{{"scale", 0.3}};
  bool dropout = false;
};
const Attributes kDropout{{"ratio", 0.4}, {"training_mode", int64_t{1}}};

std::vector<Form> forms() {
  const Attributes times{{"scale", 0.3}}, divided{{"scale", 1.7}, {"divide", int64_t{1}}};
  return {{Mask::none, {}},       {Mask::none, times},       {Mask::none, divided},
          {Mask::added, {}},      {Mask::added, times},      {Mask::added, divided},
          {Mask::keeps, times},   {Mask::keeps, divided},    {Mask::fills, {}},
          {Mask::fills, divided}, {Mask::added, times, true}};
}

std::vector<float> thousandths(const Shape& shape, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < element_count(shape); ++i) {
    const uint64_t word = splitmix64(seed * 1000003 + static_cast<uint64_t>(i));
    values.push_back(static_cast<float>(static_cast<int64_t>(word % 4001) - 2000) / 1000.0f);
  }
  return values;
}

/// Adds the primitives of one attention as separate nodes.
ValueId written(Graph& graph, const std::vector<ValueId>& in, const Form& form) {
  ValueId x = graph.add1("MatMul", "attn/scores", {in[0], in[1]});
  if (form.scale.contains("scale")) {
    const auto scale = static_cast<float>(std::get<double>(form.scale.at("scale")));
    const ValueId constant = graph.add_constant(scale);
    x = graph.add1(form.scale.contains("divide") ? "Div" : "Mul", "attn/scale", {x, constant});
  }
  if (form.mask == Mask::added) x = graph.add1("Add", "attn/mask", {x, in[3]});
  if (form.mask == Mask::keeps) x = graph.add1("Where", "attn/mask", {in[3], x, in[4]});
  if (form.mask == Mask::fills) x = graph.add1("Where", "attn/mask", {in[3], in[4], x});
  x = graph.add1("Softmax", "attn/softmax", {x});
  if (form.dropout) x = graph.add1("Dropout", "attn/dropout", {x}, kDropout);
  return graph.add1("MatMul", "attn/mix", {x, in[2]});
}

/// Learnt q, k, v and mask; the loss is the mean square distance from a constant.
Model model_of(const Form& form, bool composite) {
  Model model;
  Graph& graph = model.graph;
  std::vector<ValueId> in{graph.add_variable("x.q", {kBatch, kRows, kDepth}, {}),
                          graph.add_variable("x.k", {kBatch, kDepth, kKeys}, {}),
                          graph.add_variable("x.v", {kBatch, kKeys, kWidth}, {})};
  if (form.mask == Mask::added) {
    in.push_back(graph.add_variable("x.mask", kMaskShape, {}));
  } else if (form.mask != Mask::none) {
    in.push_back(graph.add_index_constant(kMaskShape, {1, 0, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0}));
    in.push_back(graph.add_variable("x.fill", {kKeys}, {}));
  }
  Attributes attributes = form.scale;
  if (form.mask == Mask::fills) attributes["fill_where_true"] = int64_t{1};
  if (form.dropout) {
    attributes["dropout"] = kDropout.at("ratio");
    attributes["training_mode"] = kDropout.at("training_mode");
  }
  const ValueId y =
      composite ? graph.add1("Attention", "attn", in, attributes) : written(graph, in, form);
  const Shape shape = graph.value(y).shape;
  EXPECT_EQ(shape, (Shape{kBatch, kRows, kWidth}));
  const ValueId target = graph.add_constant(Tensor{shape, thousandths(shape, 9)});
  model.loss = graph.add1("MeanSquaredError", "loss", {y, target});
  model.outputs = {{"y", y}};
  return model;
}

Plan preset_named(const std::string& name) { return preset_plan(name).value(); }

PlanRule rule(std::string path, std::string op, const FloatFormat& format) {
  return {.path = std::move(path), .op = std::move(op), .read = format, .write = format};
}

/// "attn/scores MatMul fp16" for every layer of the attention.
Texts attention_layers(const Executable& exe) {
  Texts result;
  for (const LayerInfo& each : exe.layers) {
    if (each.path.starts_with("attn"))
      result.push_back(each.path + " " + each.op + " " + format_name(each.write));
  }
  return result;
}

Texts attention_layers(const Plan& plan, const Form& form = {}) {
  const Texts trained = attention_layers(lower(model_of(form, true), plan, {}));
  EXPECT_EQ(attention_layers(lower_inference(model_of(form, true), plan)), trained);
  return trained;
}

TEST(Attention, BecomesPrimitivesUnderEveryPlan) {
  EXPECT_THAT(attention_layers(preset_named("float32")),
              ElementsAre("attn/scores MatMul fp32", "attn/scale Mul fp32", "attn/mask Add fp32",
                          "attn/softmax Softmax fp32", "attn/mix MatMul fp32"));
  EXPECT_THAT(attention_layers(preset_named("float64"),
                               {Mask::fills, {{"scale", 2.0}, {"divide", int64_t{1}}}}),
              ElementsAre("attn/scores MatMul fp32", "attn/scale Div fp32", "attn/mask Where fp32",
                          "attn/softmax Softmax fp32", "attn/mix MatMul fp32"));
  EXPECT_THAT(
      attention_layers(preset_named("float32"), {Mask::none, {}}),
      ElementsAre("attn/scores MatMul fp32", "attn/softmax Softmax fp32", "attn/mix MatMul fp32"));
}

TEST(Attention, IsPlannedByItsPrimitives) {
  Plan plan = preset_named("mixed_float16");
  const Form form{Mask::keeps, {{"scale", 0.5}}};
  EXPECT_THAT(attention_layers(plan, form),
              ElementsAre("attn/scores MatMul fp16", "attn/scale Mul fp16", "attn/mask Where fp32",
                          "attn/softmax Softmax fp32", "attn/mix MatMul fp16"))
      << "the fill is an fp32 variable, which the mask follows";
  plan.rules.push_back(rule("", "MatMul", kBf16));
  EXPECT_EQ(attention_layers(plan, form)[0], "attn/scores MatMul bf16");
  EXPECT_EQ(attention_layers(plan, form)[4], "attn/mix MatMul bf16");
}

TEST(Attention, RulesThatSelectItReachAllOfIt) {
  const Texts all_bf16{"attn/scores MatMul bf16", "attn/scale Mul bf16", "attn/mask Add bf16",
                       "attn/softmax Softmax bf16", "attn/mix MatMul bf16"};
  for (const PlanRule& each :
       {rule("", "Attention", kBf16), rule("attn", "", kBf16), rule("at?n", "Attention", kBf16)}) {
    Plan plan = preset_named("mixed_float16");
    plan.rules.push_back(each);
    EXPECT_EQ(attention_layers(plan), all_bf16) << each.path << " " << each.op;
  }
  Plan plan = preset_named("mixed_float16");
  const Texts before = attention_layers(plan);
  plan.rules.push_back(rule("other*", "", kBf16));
  EXPECT_THROW(attention_layers(plan), Error) << "no such layer";
  plan.rules.back() = rule("attn", "Gemm", kBf16);
  EXPECT_EQ(attention_layers(plan), before) << "the path of another operator";
}

TEST(Attention, LaterRulesWinInsideToo) {
  const PlanRule softmax = rule("attn/softmax", "", kE5m2);
  Plan plan = preset_named("float32");
  plan.rules = {rule("", "Attention", kBf16), softmax};
  EXPECT_EQ(attention_layers(plan)[3], "attn/softmax Softmax e5m2");
  EXPECT_EQ(attention_layers(plan)[2], "attn/mask Add bf16");
  plan.rules = {softmax, rule("", "Attention", kBf16)};
  EXPECT_EQ(attention_layers(plan)[3], "attn/softmax Softmax bf16");
  plan.rules = {rule("attn", "", kBf16), rule("", "Softmax", kFp32)};
  EXPECT_EQ(attention_layers(plan)[3], "attn/softmax Softmax fp32");
  EXPECT_EQ(attention_layers(plan)[4], "attn/mix MatMul bf16");
}

TEST(Attention, CompositesInsideAreStagewiseAsThePlanWants) {
  Plan plan = preset_named("float32");
  plan.rules = {{.path = "", .op = "Softmax", .stagewise = true}};
  const Texts stagewise = attention_layers(plan, {Mask::none, {}});
  EXPECT_EQ(stagewise.front(), "attn/scores MatMul fp32");
  EXPECT_EQ(stagewise.back(), "attn/mix MatMul fp32");
  ASSERT_EQ(stagewise.size(), 8u);
  EXPECT_THAT(Texts(stagewise.begin() + 1, stagewise.end() - 1), Each(HasSubstr("attn/softmax/")));
  plan.rules.push_back({.path = "attn", .op = "", .stagewise = false});
  EXPECT_EQ(attention_layers(plan, {Mask::none, {}}).size(), 3u);
  plan.rules = {{.path = "attn", .op = "", .stagewise = true}, rule("*/Exp", "", kBf16)};
  EXPECT_EQ(attention_layers(plan, {Mask::none, {}})[4], "attn/softmax/Exp Exp bf16");
}

TEST(Attention, OneKernelKeepsFp32BetweenItsProducts) {
  Form form{Mask::added, {{"scale", 0.5}}};
  form.scale["one_kernel"] = int64_t{1};
  const Texts kernel{"attn/scores MatMul fp32", "attn/scale Mul fp32", "attn/mask Add fp32",
                     "attn/softmax Softmax fp32"};
  for (const char* name : {"float16", "mixed_float16", "fp8_current", "torch-autocast-fp16"}) {
    const Texts layers = attention_layers(preset_named(name), form);
    EXPECT_EQ(Texts(layers.begin(), layers.end() - 1), kernel) << name;
  }
  EXPECT_EQ(attention_layers(preset_named("float16"), form)[4], "attn/mix MatMul fp16");
  EXPECT_THAT(attention_layers(preset_named("float16_stagewise"), form), Each(HasSubstr(" fp16")));
  // The softmax has its gradient in fp32, too; q, k and v have theirs as planned.
  const Executable exe = lower(model_of(form, true), preset_named("bfloat16"), {});
  std::map<std::string, FloatFormat> formats;
  for (const Tap& tap : exe.taps) formats[tap.site.name()] = tap.site.format;
  EXPECT_EQ(formats.at("attn/softmax.activation_grad"), kFp32);
  EXPECT_EQ(formats.at("attn/scores.activation_grad"), kFp32);
  for (const char* planned : {"attn/mix.activation", "attn/mix.input", "attn/scores.grad_operand",
                              "x.q_grad", "x.k_grad", "x.v_grad"}) {
    EXPECT_EQ(formats.at(planned), kBf16) << planned;
  }
}

TEST(Attention, CanBeNamedInAPlan) {
  const auto plan = [](const std::string& rules) {
    return plan_from_json(R"({"schema": "halfscope.plan/1", "name": "x", "rules": [)" + rules +
                          "]}");
  };
  const Plan narrow = plan(R"({"op": "Attention", "format": "fp16"})");
  EXPECT_THAT(attention_layers(narrow), Each(HasSubstr(" fp16")));
  EXPECT_TRUE(needs_loss_scaling(narrow));
  EXPECT_FALSE(needs_loss_scaling(plan(R"({"op": "Attention", "format": "bf16"})")));
}

/// All sites and weight gradients after one forward and backward pass, by name.
std::map<std::string, Tensor> step(const Model& model, const Plan& plan) {
  const Executable exe = lower(model, plan, {});
  const auto program =
      (plan.double_precision ? float64_backend() : emulation_backend()).compile(exe);
  uint64_t seed = 0;
  for (const Variable& variable : exe.graph.variables())
    program->write(variable.value, thousandths(exe.graph.value(variable.value).shape, ++seed));
  program->write_scalar(exe.loss_scale, 64.0);
  program->run(Entry::grad, {});
  std::map<std::string, Tensor> result;
  for (const Tap& tap : exe.taps) {
    if (tap.site.phase == Phase::update) continue;
    Tensor tensor = program->read(tap.value);
    EXPECT_TRUE(std::all_of(tensor.data.begin(), tensor.data.end(), [](float x) {
      return std::isfinite(x);
    })) << tap.site.name();
    result.emplace(tap.site.name(), std::move(tensor));
  }
  return result;
}

TEST(Attention, TrainsAsItsPrimitivesDoBitForBit) {
  for (const Form& form : forms()) {
    for (const char* name : {"float32", "float64", "mixed_float16", "bfloat16", "fp8_current"}) {
      SCOPED_TRACE(std::string(name) + " mask " + std::to_string(static_cast<int>(form.mask)));
      const auto one = step(model_of(form, true), preset_named(name));
      const auto many = step(model_of(form, false), preset_named(name));
      ASSERT_EQ(one.size(), many.size());
      for (const auto& [site, tensor] : many) {
        ASSERT_TRUE(one.contains(site)) << site;
        ASSERT_EQ(one.at(site).shape, tensor.shape) << site;
        for (size_t i = 0; i < tensor.data.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(one.at(site).data[i]),
                    std::bit_cast<uint32_t>(tensor.data[i]))
              << site << " " << i;
        }
      }
      for (const char* variable : {"q", "k", "v"}) {
        const std::string site = std::string("x.") + variable + "_grad";
        ASSERT_TRUE(one.contains(site)) << site;
        EXPECT_TRUE(std::any_of(one.at(site).data.begin(), one.at(site).data.end(),
                                [](float x) { return x != 0.0f; }));
      }
    }
  }
}

TEST(Attention, ShapesThatDoNotFitAreRefused) {
  const auto refusal = [](const std::vector<Shape>& shapes, bool condition = false) {
    Graph graph;
    std::vector<ValueId> in;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const bool index = condition && i == 3;
      in.push_back(graph.add_input("x", shapes[i], index ? ElementType::index : ElementType::real));
    }
    try {
      graph.add("Attention", "attn", in);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({{2, 3}, {3, 4}, {4, 5}}), "accepted");
  EXPECT_EQ(refusal({{2, 3}, {3, 4}, {4, 5}, {2, 4}, {}}, true), "accepted");
  EXPECT_EQ(refusal({{2, 3}, {3, 4}}),
            "attn (Attention): needs q, k and v, then masks or conditions and fills");
  EXPECT_EQ(refusal({{3}, {3, 4}, {4, 5}}),
            "attn (Attention): q, k and v need at least two dimensions");
  EXPECT_EQ(refusal({{2, 3}, {4, 3}, {4, 5}}),
            "attn (Attention): inner dimensions differ: [2, 3] and [4, 3]");
  EXPECT_EQ(refusal({{2, 3}, {3, 4}, {5, 4}}),
            "attn (Attention): inner dimensions differ: [2, 4] and [5, 4]");
  EXPECT_EQ(refusal({{2, 3}, {3, 4}, {4, 5}, {3}}),
            "attn (Attention): shapes [2, 4] and [3] do not broadcast");
  EXPECT_EQ(refusal({{2, 3}, {3, 4}, {4, 5}, {2, 4}, {4}}), "accepted") << "two masks";
  EXPECT_EQ(refusal({{2, 3}, {3, 4}, {4, 5}, {2, 4}}, true),
            "attn (Attention): a condition needs a fill");
}

}  // namespace
}  // namespace halfscope
