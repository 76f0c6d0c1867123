// SPDX-License-Identifier: MIT
// Activations that files have in primitives become one node, which computes the formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/onnx/composite_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::ElementsAre;
using testing::Not;

const std::vector<float> kNumbers{-4.0f,  -3.0f, -1.25f, -0.5f, 0.0f,
                                  0.375f, 1.0f,  2.5f,   3.0f,  5.0f};

struct Activation {
  const char* what;
  const char* op;
  std::function<void(FileBuilder&)> write;  ///< from x to y; the last node is "last"
  std::function<double(double)> formula;
};

double tanh_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

std::vector<Activation> activations() {
  return {{"quick GELU of CLIP", "Swish",
           [](FileBuilder& file) {
             file.floats("factor", {}, {1.702f});
             file.node("Mul", {"factor", "x"}, {"scaled"});
             file.node("Sigmoid", {"scaled"}, {"gate"});
             file.node("Mul", {"x", "gate"}, {"y"}, "last");
           },
           [](double x) { return x / (1 + std::exp(-static_cast<double>(1.702f) * x)); }},
          {"HardSwish", "HardSwish",
           [](FileBuilder& file) {
             ::onnx::AttributeProto& alpha =
                 *file.node("HardSigmoid", {"x"}, {"gate"}).add_attribute();
             alpha.set_name("alpha");
             alpha.set_type(::onnx::AttributeProto::FLOAT);
             alpha.set_f(1.0f / 6.0f);
             file.node("Mul", {"gate", "x"}, {"y"}, "last");
           },
           [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
          {"GELU of TensorFlow", "Gelu",
           [](FileBuilder& file) {
             file.floats("half", {}, {0.5f}).floats("root", {}, {0.70710677f});
             file.node("Mul", {"half", "x"}, {"halved"});
             file.node("Neg", {"x"}, {"minus"});
             file.node("Mul", {"minus", "root"}, {"scaled"});
             file.node("Erfc", {"scaled"}, {"gate"});
             file.node("Mul", {"halved", "gate"}, {"y"}, "last");
           },
           [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }},
          {"GELU of BLOOM", "Gelu",
           [](FileBuilder& file) {
             file.floats("half", {}, {0.5f}).floats("one", {}, {1.0f});
             file.floats("cubic", {}, {0.044715f}).floats("root", {}, {0.79788456f});
             file.node("Mul", {"x", "half"}, {"halved"});
             file.node("Mul", {"root", "x"}, {"scaled"});
             file.node("Mul", {"cubic", "x"}, {"small"});
             file.node("Mul", {"small", "x"}, {"square"});
             file.node("Add", {"square", "one"}, {"sum"});
             file.node("Mul", {"scaled", "sum"}, {"inner"});
             file.node("Tanh", {"inner"}, {"curve"});
             file.node("Add", {"curve", "one"}, {"gate"});
             file.node("Mul", {"halved", "gate"}, {"y"}, "last");
           },
           tanh_gelu},
          {"GELU of GPT-2", "Gelu",
           [](FileBuilder& file) {
             file.floats("half", {}, {0.5f}).floats("one", {}, {1.0f}).floats("three", {}, {3.0f});
             file.floats("cubic", {}, {0.044715f}).floats("root", {}, {0.79788456f});
             file.node("Mul", {"x", "half"}, {"halved"});
             file.node("Pow", {"x", "three"}, {"cube"});
             file.node("Mul", {"cube", "cubic"}, {"small"});
             file.node("Add", {"x", "small"}, {"sum"});
             file.node("Mul", {"sum", "root"}, {"inner"});
             file.node("Tanh", {"inner"}, {"curve"});
             file.node("Add", {"curve", "one"}, {"gate"});
             file.node("Mul", {"halved", "gate"}, {"y"}, "last");
           },
           tanh_gelu}};
}

TEST(OnnxActivations, BecomeOneNode) {
  for (const Activation& each : activations()) {
    SCOPED_TRACE(each.what);
    FileBuilder file;
    file.input("x", {10}).output("y");
    each.write(file);
    const Model model = file.import().model;
    EXPECT_THAT(test::node_list(model), ElementsAre(std::string("last ") + each.op));
    Tensor expected{{10}, {}};
    for (float x : kNumbers)
      expected.data.push_back(static_cast<float>(each.formula(static_cast<double>(x))));
    const std::vector<Tensor> in{{{10}, kNumbers}};
    for (const bool stagewise : {false, true}) {
      test::expect_close(test::run(test::start(model, test::float_plan(stagewise)), in).at(0),
                         expected, 5e-7);
    }
  }
}

// Other numbers make other functions: those stay as they are written.
TEST(OnnxActivations, StayAsWrittenWithOtherNumbers) {
  for (const Activation& each : activations()) {
    if (std::string(each.op) != "Gelu") continue;
    for (const char* name : {"half", "cubic", "root", "one"}) {
      FileBuilder file;
      file.input("x", {10}).output("y");
      each.write(file);
      bool changed = false;
      for (::onnx::TensorProto& tensor : *file.graph().mutable_initializer()) {
        if (tensor.name() != name) continue;
        tensor.set_float_data(0, tensor.float_data(0) * 1.0001f);
        changed = true;
      }
      if (!changed) continue;  // Erfc has the 1 in it
      EXPECT_THAT(test::node_list(file.import().model), Not(ElementsAre("last Gelu")))
          << each.what << ", " << name;
    }
  }
}

}  // namespace
}  // namespace halfscope
