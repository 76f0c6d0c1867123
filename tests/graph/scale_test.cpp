// SPDX-License-Identifier: MIT
// Scaled operands of products: the nodes that lower() adds for a plan's scales, and that a step
// computes the definition, evaluated here in double with codes found by search.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/scaling/block_format.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 6, kIn = 40, kHidden = 33, kClasses = 10;

/// fc1 [40 -> 33], relu1, fc2 [33 -> 10] and the loss.
Model small_model() {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {kBatch, kIn});
  model.labels = graph.add_input("labels", {kBatch}, ElementType::index);
  const auto layer = [&](ValueId x, const std::string& path, int64_t in, int64_t out) {
    const ValueId w = graph.add_variable(path + ".weight", {out, in}, {});
    const ValueId b = graph.add_variable(path + ".bias", {out}, {});
    return graph.add1("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
  };
  const ValueId hidden = layer(model.input, "fc1", kIn, kHidden);
  model.logits = layer(graph.add1("Relu", "relu1", {hidden}), "fc2", kHidden, kClasses);
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

Plan plan_with(const std::string& scale, const std::string& accumulation = "fp64") {
  Plan plan = preset_plan("fp8_current").value();
  for (PlanRule& rule : plan.rules) {
    if (rule.scale) rule.scale = parse_scale(scale).value();
  }
  plan.defaults.accumulation = parse_accumulation(accumulation).value();
  return plan;
}

/// One lane of the small model with values written, after its gradients were computed.
class Step {
 public:
  explicit Step(const Plan& plan) : exe_(lower(small_model(), plan, {})) {
    program_ = emulation_backend().compile(exe_);
    uint64_t seed = 1;
    for (const Variable& variable : exe_.graph.variables()) {
      if (variable.buffer) continue;
      program_->write(variable.value, noise(exe_.graph.value(variable.value).shape, ++seed));
    }
    program_->write(exe_.labels, std::vector<int32_t>{0, 1, 2, 3, 4, 9});
    program_->write_scalar(exe_.loss_scale, 1.0);
    run(1.0f);
  }

  /// A forward and backward pass on data of that size.
  void run(float size) {
    std::vector<float> x = noise({kBatch, kIn}, 77);
    for (float& each : x) each *= size;
    program_->write(exe_.input, x);
    program_->run(Entry::grad, {});
  }

  std::vector<float> site(const std::string& name) const {
    for (const Tap& tap : exe_.taps) {
      if (tap.site.name() == name) return program_->read(tap.value).data;
    }
    ADD_FAILURE() << "no site " << name;
    return {};
  }
  std::vector<float> variable(const std::string& path) const {
    for (const Variable& each : exe_.graph.variables()) {
      if (each.path == path) return program_->read(each.value).data;
    }
    ADD_FAILURE() << "no variable " << path;
    return {};
  }
  /// The first factor that the codes of a site are multiplied with.
  float factor_of(const std::string& name) const {
    for (const Tap& tap : exe_.taps) {
      if (tap.site.name() != name) continue;
      const Node& node = exe_.graph.node(exe_.graph.value(tap.value).producer);
      EXPECT_EQ(node.op, "Quantize");
      return program_->read(node.outputs.at(1)).data.at(0);
    }
    ADD_FAILURE() << "no site " << name;
    return 0;
  }
  const Executable& executable() const { return exe_; }
  Program& program() { return *program_; }

  static std::vector<float> noise(const Shape& shape, uint64_t seed) {
    std::vector<float> values;
    for (int64_t i = 0; i < element_count(shape); ++i) {
      const uint64_t word = splitmix64(seed * 1000003 + static_cast<uint64_t>(i));
      const float sign = word % 2 == 0 ? 1.0f : -1.0f;
      values.push_back(sign * static_cast<float>(word % 100003) * 1e-5f);
    }
    return values;
  }

 private:
  Executable exe_;
  std::unique_ptr<Program> program_;
};

/// Returns all finite values of an 8-bit fn or IEEE format, by definition.
std::vector<double> values_of(int exponent_bits, int mantissa_bits, double largest) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  std::vector<double> values;
  for (int e = 0; e < 1 << exponent_bits; ++e) {
    for (int m = 0; m < 1 << mantissa_bits; ++m) {
      const double fraction = std::ldexp(m, -mantissa_bits);
      const double value =
          e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, e - bias);
      if (value <= largest) values.push_back(value);
    }
  }
  return values;
}

/// The value nearest to x; of two the one with the even last bit, which has an even place.
double nearest(double x, const std::vector<double>& values) {
  size_t best = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double now = std::fabs(std::fabs(x) - values[i]);
    const double before = std::fabs(std::fabs(x) - values[best]);
    if (now < before || (now == before && i % 2 == 0)) best = i;
  }
  return std::copysign(values[best], x);
}

float to_bf16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

struct Codes {
  std::vector<double> codes;
  float factor;
};

Codes codes_of(const std::vector<float>& x, const std::vector<double>& values) {
  float amax = 0;
  for (const float each : x) amax = std::max(amax, std::fabs(each));
  const float scale = static_cast<float>(values.back()) / amax;
  Codes result{.codes = {}, .factor = 1 / scale};
  for (const float each : x) {
    result.codes.push_back(nearest(static_cast<double>(each * scale), values));
  }
  return result;
}

std::vector<double> as_double(const std::vector<float>& x) { return {x.begin(), x.end()}; }

TEST(ScaledOperands, AStepIsWhatItsDefinitionSays) {
  const std::vector<double> e4m3 = values_of(4, 3, 448.0), e5m2 = values_of(5, 2, 57344.0);
  ASSERT_EQ(e4m3.size(), 127u);
  ASSERT_EQ(e5m2.size(), 124u);
  const Step step(plan_with("current"));
  const Codes x = codes_of(Step::noise({kBatch, kIn}, 77), e4m3);
  const Codes w = codes_of(step.variable("fc1.weight"), e4m3);
  EXPECT_EQ(as_double(step.site("input.input")), x.codes);
  EXPECT_EQ(as_double(step.site("fc1.weight")), w.codes);
  EXPECT_EQ(step.factor_of("input.input"), x.factor);
  EXPECT_EQ(step.factor_of("fc1.weight"), w.factor);

  const std::vector<float> bias = step.variable("fc1.bias");
  const std::vector<float> y = step.site("fc1.activation");
  for (int64_t i = 0; i < kBatch; ++i) {
    for (int64_t j = 0; j < kHidden; ++j) {
      double sum = 0;  // exact: multiples of 2^-18 up to 2^23
      for (int64_t k = 0; k < kIn; ++k) {
        sum +=
            x.codes[static_cast<size_t>(i * kIn + k)] * w.codes[static_cast<size_t>(j * kIn + k)];
      }
      const float scaled = static_cast<float>(sum) * (x.factor * w.factor);
      const float expected = to_bf16(scaled + to_bf16(bias[static_cast<size_t>(j)]));
      ASSERT_EQ(y[static_cast<size_t>(i * kHidden + j)], expected) << i << ", " << j;
    }
  }

  // Backwards: the gradient of fc1's result in e5m2, with the codes of the forward pass.
  const std::vector<float> dy = step.site("fc1.activation_grad");
  const Codes g = codes_of(dy, e5m2);
  EXPECT_EQ(as_double(step.site("fc1.grad_operand")), g.codes);
  const std::vector<float> dw = step.site("fc1.weight_grad");
  for (int64_t j = 0; j < kHidden; ++j) {
    for (int64_t k = 0; k < kIn; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < kBatch; ++i) {
        sum += g.codes[static_cast<size_t>(i * kHidden + j)] *
               x.codes[static_cast<size_t>(i * kIn + k)];
      }
      ASSERT_EQ(dw[static_cast<size_t>(j * kIn + k)],
                to_bf16(static_cast<float>(sum) * (g.factor * x.factor)));
    }
  }
  // The bias's gradient sums the gradient as it was, not its codes.
  const std::vector<float> db = step.site("fc1.bias_grad");
  for (int64_t j = 0; j < kHidden; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < kBatch; ++i) {
      sum += static_cast<double>(dy[static_cast<size_t>(i * kHidden + j)]);
    }
    ASSERT_EQ(db[static_cast<size_t>(j)], to_bf16(static_cast<float>(sum)));
  }
}

// The codes of int8 are whole numbers, and their products are summed exactly, as by int32
// accumulators. x / s is rounded half to even, as ONNX QuantizeLinear does.
TEST(ScaledOperands, IntegersAreMultipliedExactly) {
  for (const auto& [format, largest] : {std::pair("int8", 127), std::pair("int4", 7)}) {
    Plan plan;
    plan.rules.push_back({.path = "",
                          .op = "Gemm",
                          .read = parse_format(format),
                          .accumulation = Accumulation::fp64,
                          .scale = parse_scale("current")});
    const Step step(plan);
    const auto quantized = [&](const std::vector<float>& x, float& factor) {
      float amax = 0;
      for (const float each : x) amax = std::max(amax, std::fabs(each));
      const float scale = static_cast<float>(largest) / amax;
      factor = 1 / scale;
      std::vector<int64_t> codes;
      for (const float each : x) codes.push_back(std::lrint(each * scale));
      return codes;
    };
    float of_x = 0, of_w = 0;
    const std::vector<int64_t> x = quantized(Step::noise({kBatch, kIn}, 77), of_x);
    const std::vector<int64_t> w = quantized(step.variable("fc1.weight"), of_w);
    const std::vector<float> codes = step.site("input.input");
    EXPECT_EQ(std::vector<int64_t>(codes.begin(), codes.end()), x);
    EXPECT_TRUE(
        std::any_of(x.begin(), x.end(), [&](int64_t code) { return std::abs(code) == largest; }));
    const std::vector<float> bias = step.variable("fc1.bias");
    const std::vector<float> y = step.site("fc1.activation");
    for (int64_t i = 0; i < kBatch; ++i) {
      for (int64_t j = 0; j < kHidden; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < kIn; ++k) {
          sum += x[static_cast<size_t>(i * kIn + k)] * w[static_cast<size_t>(j * kIn + k)];
        }
        const double scaled = static_cast<double>(sum) * static_cast<double>(of_x * of_w);
        const double exact = scaled + static_cast<double>(bias[static_cast<size_t>(j)]);
        ASSERT_NEAR(y[static_cast<size_t>(i * kHidden + j)], exact, 1e-6 * std::fabs(exact) + 1e-7)
            << format << " " << i << ", " << j;
      }
    }
  }
}

/// Sites of fc1 and fc2 with formats, and how they are scaled.
std::vector<std::string> scaled_sites(const Executable& exe) {
  std::vector<std::string> texts;
  for (const Tap& tap : exe.taps) {
    if (tap.site.scale.empty()) continue;
    texts.push_back(tap.site.name() + " " + format_name(tap.site.format) + " " + tap.site.scale);
  }
  return texts;
}

TEST(ScaledOperands, OneTensorOneScale) {
  const Executable exe = lower(small_model(), preset_plan("fp8_current").value(), {});
  EXPECT_THAT(
      scaled_sites(exe),
      ElementsAre("input.input e4m3fn:sat current", "fc1.weight e4m3fn:sat current",
                  "fc2.input e4m3fn:sat current", "fc2.weight e4m3fn:sat current",
                  "fc2.grad_operand e5m2:sat current", "fc1.grad_operand e5m2:sat current"));
  std::map<std::string, std::string> others;
  for (const Tap& tap : exe.taps) {
    if (tap.site.scale.empty()) others[tap.site.name()] = format_name(tap.site.format);
  }
  EXPECT_EQ(others["fc1.activation"], "bf16");
  EXPECT_EQ(others["fc1.bias"], "bf16") << "added to the scaled sums, not a code";
  EXPECT_EQ(others["fc1.weight_grad"], "bf16");
  EXPECT_EQ(others["fc1.bias_grad"], "bf16");
  EXPECT_EQ(others["relu1.activation_grad"], "bf16");
}

TEST(ScaledOperands, BlocksLieAlongWhatIsSummed) {
  const Executable exe = lower(small_model(), preset_plan("mxfp8").value(), {});
  // Products backward sum over other axes than the forward one, so they read other codes.
  EXPECT_THAT(scaled_sites(exe),
              ElementsAre("input.input e4m3fn:sat mx:up", "fc1.weight e4m3fn:sat mx:up",
                          "fc2.input e4m3fn:sat mx:up", "fc2.weight e4m3fn:sat mx:up",
                          "fc2.grad_operand e4m3fn:sat mx:up", "fc2.input_2 e4m3fn:sat mx:up",
                          "fc2.grad_operand_2 e4m3fn:sat mx:up", "fc2.weight_2 e4m3fn:sat mx:up",
                          "fc1.grad_operand e4m3fn:sat mx:up", "input.input_2 e4m3fn:sat mx:up"));
  const Executable squares = lower(small_model(), preset_plan("fp8_block").value(), {});
  EXPECT_THAT(scaled_sites(squares), ::testing::Not(::testing::Contains(HasSubstr("weight_2"))));
}

/// The values that a product reads, of the operand whose codes are the site.
std::vector<float> values_read(Step& step, const std::string& site) {
  const Executable& exe = step.executable();
  for (const Tap& tap : exe.taps) {
    if (tap.site.name() != site) continue;
    for (const Node& node : exe.graph.nodes()) {
      if (node.op == "Dequantize" && node.inputs[0] == tap.value) {
        return step.program().read(node.outputs[0]).data;
      }
    }
  }
  ADD_FAILURE() << site;
  return {};
}

TEST(ScaledOperands, BlocksAreTheLibrarys) {
  struct Case {
    const char* scale;
    FloatFormat read;
    BlockFormat format;
  };
  BlockFormat up = kMxfp8E4m3;
  up.rule = ScaleRule::up;
  for (const Case& each : {Case{"mx", kE4m3fn, kMxfp8E4m3}, Case{"mx:up", kE4m3fn, up},
                           Case{"mx", kE2m1, kMxfp4}, Case{"nvfp4", kE2m1, kNvfp4}}) {
    Plan plan = plan_with(each.scale, "fp32");
    for (PlanRule& rule : plan.rules) {
      if (rule.scale) rule.read = rule.grad_read = each.read;
    }
    Step step(plan);
    const std::vector<float> x = Step::noise({kBatch, kIn}, 77);
    const std::vector<float> w = step.variable("fc1.weight");
    const auto expected = [&](const std::vector<float>& in, const BlockShape& shape) {
      std::vector<float> out(in.size());
      std::vector<float> scales(static_cast<size_t>(block_count(shape, each.format)));
      quantize(in, shape, each.format, out, scales);
      return out;
    };
    EXPECT_EQ(values_read(step, "input.input"), expected(x, {kBatch, kIn, 1})) << each.scale;
    EXPECT_EQ(values_read(step, "fc1.weight"), expected(w, {kHidden, kIn, 1})) << each.scale;
    EXPECT_EQ(values_read(step, "input.input_2"), expected(x, {1, kBatch, kIn})) << each.scale;
  }
}

TEST(ScaledOperands, SquaresOfWeightsHaveOneScale) {
  Step step(plan_with("block:16,weights=square", "fp32"));
  const std::vector<float> w = step.variable("fc2.weight");  // [10, 33]: squares of 16
  const std::vector<float> read = values_read(step, "fc2.weight");
  const std::vector<double> e4m3 = values_of(4, 3, 448.0);
  for (int64_t i = 0; i < kClasses; ++i) {
    for (int64_t j = 0; j < kHidden; ++j) {
      double amax = 0;
      for (int64_t p = 0; p < kClasses; ++p) {
        for (int64_t q = j / 16 * 16; q < std::min(kHidden, j / 16 * 16 + 16); ++q) {
          amax = std::max(amax,
                          std::fabs(static_cast<double>(w[static_cast<size_t>(p * kHidden + q)])));
        }
      }
      const double scale = std::exp2(std::ceil(std::log2(amax / 448.0)));
      const size_t at = static_cast<size_t>(i * kHidden + j);
      ASSERT_EQ(static_cast<double>(read[at]),
                nearest(static_cast<double>(w[at]) / scale, e4m3) * scale);
    }
  }
}

/// Gradients and results of a convolution with a bias, as its plan says; one step.
std::map<std::string, std::vector<float>> conv_step(const Plan& plan) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {2, 3, 6, 5});
  model.labels = graph.add_input("labels", {2}, ElementType::index);
  const ValueId w = graph.add_variable("conv.weight", {4, 3, 3, 3}, {});
  const ValueId b = graph.add_variable("conv.bias", {4}, {});
  const ValueId w2 = graph.add_variable("last.weight", {10, 4, 3, 3}, {});
  const ValueId hidden = graph.add1("Conv", "conv", {model.input, w, b});
  const ValueId last = graph.add1(
      "Conv", "last", {hidden, w2},
      {{"pads", std::vector<int64_t>{0, 0, 0, 0}}, {"strides", std::vector<int64_t>{2, 1}}});
  model.logits = graph.add1("Flatten", "flatten", {last});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  const Executable exe = lower(model, plan, {});
  const auto program = emulation_backend().compile(exe);
  uint64_t seed = 10;
  const auto some = [&](ValueId value, float size) {
    std::vector<float> values = Step::noise(exe.graph.value(value).shape, ++seed);
    for (float& x : values) x = size * std::copysign(1.0f + std::fabs(x), x);
    return values;
  };
  program->write(exe.input, some(exe.input, 16.0f));
  for (const Variable& variable : exe.graph.variables()) {
    program->write(variable.value, some(variable.value, 0.0625f));
    if (variable.path == "conv.bias") {  // read in another format under scales: the same in all
      program->write(variable.value, std::vector<float>{1.0f, -0.5f, 4.0f, 0.25f});
    }
  }
  program->write(exe.labels, std::vector<int32_t>{3, 7});
  program->write_scalar(exe.loss_scale, 16.0);
  program->run(Entry::grad, {});
  std::map<std::string, std::vector<float>> sites;
  for (const Tap& tap : exe.taps) {
    if (tap.site.phase != Phase::update && tap.site.scale.empty()) {
      sites[tap.site.name()] = program->read(tap.value).data;
    }
  }
  return sites;
}

TEST(ScaledOperands, PowersOfTwoChangeNothingInsideTheRange) {
  const auto step = [](const std::string& scale) {
    Plan plan = plan_with(scale, "fp32");
    for (PlanRule& rule : plan.rules) {  // with room for all exponents
      if (rule.scale) rule.read = parse_format("e8m3").value();
      if (rule.scale) rule.grad_read = parse_format("e8m2").value();
    }
    return conv_step(plan);
  };
  const auto plain = step("none");
  ASSERT_TRUE(plain.contains("conv.activation"));
  for (const char* scale : {"static:1", "static:4", "static:0.5"}) {
    const auto scaled = step(scale);
    for (const char* name : {"conv.activation", "last.activation", "loss.activation"}) {
      EXPECT_EQ(scaled.at(name), plain.at(name)) << name << ", " << scale;
    }
    for (const auto& [name, values] : scaled) {
      EXPECT_EQ(values, step("static:1").at(name)) << name << ", " << scale;
    }
  }
  EXPECT_NE(step("static:3").at("conv.activation"), plain.at("conv.activation"));
}

/// 448 / 0 is infinite, and 0 times that is NaN; rows have 0 / 0.
TEST(ScaledOperands, ZerosWithoutAGuardBecomeNan) {
  for (const char* scale : {"current", "block:64,scales=fp32"}) {
    const std::string option = std::string(scale) == "current" ? ":" : ",";
    Step guarded(plan_with(scale));
    guarded.run(0.0f);
    EXPECT_EQ(guarded.site("input.input"), std::vector<float>(kBatch * kIn, 0.0f)) << scale;
    Step bare(plan_with(scale + option + "unguarded"));
    EXPECT_TRUE(std::isfinite(bare.site("fc1.activation").front())) << scale;
    EXPECT_EQ(bare.site("fc1.activation"), Step(plan_with(scale)).site("fc1.activation"));
    bare.run(0.0f);
    for (const float x : bare.site("fc1.activation")) EXPECT_TRUE(std::isnan(x)) << scale;
    Step floored(plan_with(scale + option + "unguarded,amax-floor=1e-12"));
    floored.run(0.0f);
    EXPECT_EQ(floored.site("fc1.activation"), guarded.site("fc1.activation")) << scale;
  }
}

TEST(ScaledOperands, DelayedScalesComeFromEarlierSteps) {
  Step step(plan_with("delayed:history=2"));
  const auto amax = [](float size) {
    float largest = 0;
    for (const float x : Step::noise({kBatch, kIn}, 77)) {
      largest = std::max(largest, std::fabs(x * size));
    }
    return largest;
  };
  EXPECT_EQ(step.factor_of("input.input"), 1.0f) << "nothing is known at first";
  step.run(8.0f);
  EXPECT_EQ(step.factor_of("input.input"), 1 / (448.0f / amax(1.0f)));
  step.run(1.0f);
  EXPECT_EQ(step.factor_of("input.input"), 1 / (448.0f / amax(8.0f)));
  step.run(1.0f);
  EXPECT_EQ(step.factor_of("input.input"), 1 / (448.0f / amax(8.0f))) << "two steps back";
  step.run(1.0f);
  EXPECT_EQ(step.factor_of("input.input"), 1 / (448.0f / amax(1.0f)));
  // An evaluation uses the scale and leaves it alone.
  const std::vector<float> before = step.variable("fc1.input_scale");
  step.program().run(Entry::eval, {});
  EXPECT_EQ(step.variable("fc1.input_scale"), before);
}

TEST(ScaledOperands, InferenceHasTheScalesOfTraining) {
  // Batch normalization duplicates the rest of the network in the graph.
  const Executable exe =
      lower(build_model("resnet20", 2, {3, 8, 8}, 10), preset_plan("fp8_delayed").value(), {});
  std::map<ValueId, int> readers;
  for (const Node& node : exe.graph.nodes()) {
    if (node.op == "Quantize") ++readers[node.inputs.at(1)];
  }
  int shared = 0;
  for (const auto& [state, count] : readers) {
    const Variable* variable = exe.graph.variable_of(state);
    ASSERT_NE(variable, nullptr);
    EXPECT_NE(variable->next, kNone) << variable->path << " never moves on";
    shared += count == 2;
  }
  EXPECT_EQ(shared, 19) << "inputs of all products behind the first normalization";
}

TEST(ScaledOperands, TensorCoresTakeWhatTheyCan) {
  const Step step(plan_with("current", "tensor-core:h100-wgmma,promote=128"));
  EXPECT_TRUE(std::isfinite(step.site("fc1.weight_grad").front()));
  const auto error = [](const Plan& plan) {
    try {
      lower(small_model(), plan, {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(error(plan_with("mx", "tensor-core:h100-wgmma")),
              HasSubstr("operands scaled by block"));
  EXPECT_THAT(error(plan_with("current", "tensor-core:a100")), HasSubstr("e4m3fn"));
  EXPECT_THAT(error(plan_with("nvfp4")), HasSubstr("e2m1"));
  Plan mixed = preset_plan("nvfp4").value();
  for (PlanRule& rule : mixed.rules) {
    if (rule.scale) rule.grad_read = kE5m2;
  }
  EXPECT_THAT(error(mixed), HasSubstr("not e5m2"));
}

TEST(ScaledOperands, KeepingALayerInFp32EndsItsScaling) {
  Plan plan = preset_plan("fp8_delayed").value();
  keep_fp32(plan, "fc1");
  for (const std::string& site : scaled_sites(lower(small_model(), plan, {}))) {
    EXPECT_THAT(site, HasSubstr("fc2."));
  }
}

}  // namespace
}  // namespace halfscope
