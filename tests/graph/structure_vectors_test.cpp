// SPDX-License-Identifier: MIT
// PyTorch's results and gradients of operators that move, choose, multiply and pool
// (tests/oracle/structure_ops.py) through the emulator in fp32: equal where every order of
// summation gives the same numbers, else within a small multiple of PyTorch's own rounding error.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "emulation/backends.h"
#include "tests/graph/same_as_torch.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;
using test::expect_same;
using test::Operand;
using test::OpProgram;

const Json& structure_vectors() {
  static const Json all = [] {
    std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) +
                       "/tests/oracle/vectors/structure_ops.json");
    return Json::parse(file).at("cases");
  }();
  return all;
}

Tensor tensor(const Json& each, const std::string& name) {
  const Json& stored = each.at("tensors").at(name);
  Tensor result{stored.at("shape").get<Shape>(), {}};
  for (const Json& x : stored.at("data")) {
    result.data.push_back(x.is_null() ? std::numeric_limits<float>::quiet_NaN() : x.get<float>());
  }
  return result;
}

Attributes attributes(const Json& each) {
  Attributes result;
  for (const auto& [name, value] : each.at("attributes").items()) {
    if (value.is_number_integer()) {
      result[name] = value.get<int64_t>();
    } else if (value.is_number_float()) {
      result[name] = value.get<double>();
    } else {
      result[name] = value.get<std::vector<int64_t>>();
    }
  }
  return result;
}

std::vector<Operand> operands(const Json& each) {
  std::vector<Operand> list;
  for (const std::string name : each.at("inputs")) {
    const Tensor data = tensor(each, name);
    if (name.starts_with("at") || name.starts_with("if")) {
      list.push_back(
          {Tensor{}, std::vector<int32_t>(data.data.begin(), data.data.end()), data.shape});
    } else {
      list.push_back({data});
    }
  }
  return list;
}

TEST(StructureVectors, ResultsAndGradientsArePyTorchs) {
  int compared = 0;
  for (const Json& each : structure_vectors()) {
    if (!each.contains("gradients")) continue;
    const std::string name = each["case"];
    SCOPED_TRACE(name);
    const auto error_of = [&](const std::string& what) {
      return each["exact"].get<bool>() ? -1.0 : each["error"].at(what).get<double>();
    };
    const std::vector<Operand> list = operands(each);
    OpProgram program(emulation_backend(), {name, each["op"], list, attributes(each)},
                      tensor(each, "dy"));
    program.run();
    expect_same(program.output(), tensor(each, "y"), error_of("y"), "y");
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].labels) continue;
      const std::string what = "d" + each["inputs"][i].get<std::string>();
      const std::optional<Tensor> gradient = program.gradient(i);
      ASSERT_TRUE(gradient) << what;
      expect_same(*gradient, tensor(each, what), error_of(what), what);
    }
    ++compared;
  }
  EXPECT_GE(compared, 50);
}

// Read as elements of 0, 1, 2, ...
TEST(StructureVectors, IndicesArePyTorchs) {
  int compared = 0;
  for (const Json& each : structure_vectors()) {
    if (each.contains("gradients")) continue;
    const std::string name = each["case"];
    SCOPED_TRACE(name);
    Tensor numbers{{100}, {}};
    for (int i = 0; i < 100; ++i) numbers.data.push_back(static_cast<float>(i));
    const auto build = [&](Graph& graph, const std::vector<ValueId>& inputs) {
      const ValueId y = graph.add1(each["op"], name, inputs, attributes(each));
      return graph.add1("Gather", "read", {graph.add_constant(numbers), y});
    };
    OpProgram program(emulation_backend(), operands(each), build);
    program.run();
    expect_same(program.output(), tensor(each, "y"), -1.0, "y");
    EXPECT_FALSE(program.gradient(0));
    ++compared;
  }
  EXPECT_GE(compared, 12);
}

}  // namespace
}  // namespace halfscope
