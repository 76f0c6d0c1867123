// SPDX-License-Identifier: MIT
// PyTorch's results and gradients of single operators (tests/oracle/op_gradients.py,
// function_ops.py) through the emulator in fp32: equal where every order of summation gives the
// same numbers, else within a small multiple of PyTorch's own rounding error. Signs of zeros and
// NaN payloads are not compared.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/data/npz.h"
#include "core/error.h"
#include "core/lower/optimizer.h"
#include "emulation/backends.h"
#include "tests/graph/same_as_torch.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;
using test::expect_same;
using test::OpCase;
using test::OpProgram;

struct Vectors {
  Json cases;
  NamedTensors tensors;
};

const Vectors& vectors() {
  static const Vectors all = [] {
    Vectors result;
    result.cases = Json::array();
    for (const char* name : {"op_gradients", "function_ops"}) {
      const std::string base = std::string(HALFSCOPE_SOURCE_DIR) + "/tests/oracle/vectors/" + name;
      std::ifstream file(base + ".json");
      const Json index = Json::parse(file);
      for (const Json& each : index.at("cases")) result.cases.push_back(each);
      result.tensors.merge(read_npz(base + ".npz"));
    }
    return result;
  }();
  return all;
}

const Tensor& tensor(const std::string& test_case, const std::string& what) {
  return vectors().tensors.at(test_case + "/" + what);
}

bool is_optimizer(const Json& each) { return each["inputs"][0] == "param0"; }

OpCase op_case(const Json& each) {
  OpCase op{each["case"], each["op"], {}, {}};
  for (const auto& [name, value] : each["attributes"].items()) {
    if (value.is_number_integer())
      op.attributes[name] = value.get<int64_t>();
    else if (value.is_number_float())
      op.attributes[name] = value.get<double>();
    else if (value.is_array())
      op.attributes[name] = value.get<std::vector<int64_t>>();
    else if (value != "mean")
      throw Error("attribute " + name + " is not supported");  // reduction
  }
  for (const Json& input : each["inputs"]) {
    const Tensor& data = tensor(op.name, input);
    if (input == "labels") {
      op.operands.push_back({Tensor{}, std::vector<int32_t>(data.data.begin(), data.data.end())});
    } else {
      op.operands.push_back({data});
    }
  }
  return op;
}

double error_of(const Json& each, const std::string& what) {
  return each["exact"].get<bool>() ? -1.0 : each["error"].at(what).get<double>();
}

TEST(TorchVectors, OperatorsAndGradients) {
  size_t compared = 0;
  for (const Json& each : vectors().cases) {
    if (is_optimizer(each)) continue;
    const std::string name = each["case"], output = each["outputs"][0];
    SCOPED_TRACE(name);
    const OpCase op = op_case(each);
    OpProgram program(emulation_backend(), op, tensor(name, "d" + output));
    program.run();
    expect_same(program.output(), tensor(name, output), error_of(each, output), output);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const std::string gradient = "d" + each["inputs"][i].get<std::string>();
      const Json& gradients = each["gradients"];  // labels and running statistics have none
      if (std::find(gradients.begin(), gradients.end(), gradient) == gradients.end()) continue;
      const std::optional<Tensor> ours = program.gradient(i);
      ASSERT_TRUE(ours) << gradient;
      expect_same(*ours, tensor(name, gradient), error_of(each, gradient), gradient);
    }
    ++compared;
  }
  size_t operators = 0;
  for (const Json& each : vectors().cases) operators += is_optimizer(each) ? 0 : 1;
  EXPECT_EQ(compared, operators);
}

/// One variable "p.w" with its update node, alone in the entry `update`.
class UpdateProgram {
 public:
  UpdateProgram(const Shape& shape, const Optimizer& optimizer) {
    Graph& graph = executable_.graph;
    weight_ = graph.add_variable("p.w", shape, {});
    gradient_ = graph.add_input("gradient", shape);
    scalars_ = {graph.add_input("inverse_scale", {}), graph.add_input("clip", {}),
                graph.add_input("learning_rate", {}), graph.add_input("correction_1", {}),
                graph.add_input("correction_2", {})};
    add_update(graph, 0, gradient_, optimizer, scalars_, kFp32);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      executable_.entries[static_cast<size_t>(Entry::update)].push_back(id);
    }
    program_ = emulation_backend().compile(executable_);
  }

  void start(const Tensor& weight) { program_->write(weight_, weight.data); }

  void step(std::span<const float> gradient, const Optimizer& optimizer, int t) {
    program_->write(gradient_, gradient);
    program_->write_scalar(scalars_.inverse_scale, 1.0);
    program_->write_scalar(scalars_.clip, 1.0);
    program_->write_scalar(scalars_.learning_rate, optimizer.learning_rate);
    program_->write_scalar(scalars_.correction_1, 1.0 - std::pow(optimizer.beta1, t));
    program_->write_scalar(scalars_.correction_2, 1.0 - std::pow(optimizer.beta2, t));
    program_->run(Entry::update, {});
  }

  Tensor weight() const { return program_->read(weight_); }
  Tensor state(size_t i) const {
    return program_->read(executable_.graph.variables().at(1 + i).value);
  }

 private:
  Executable executable_;
  ValueId weight_ = kNone, gradient_ = kNone;
  UpdateScalars scalars_{};
  std::unique_ptr<Program> program_;
};

TEST(TorchVectors, OptimizerTrajectories) {
  int compared = 0;
  for (const Json& each : vectors().cases) {
    if (!is_optimizer(each)) continue;
    const std::string name = each["case"];
    SCOPED_TRACE(name);
    const Json& options = each["attributes"];
    Optimizer optimizer;
    const std::map<std::string, Optimizer::Kind> kinds{{"Adam", Optimizer::Kind::adam},
                                                       {"AdamW", Optimizer::Kind::adamw},
                                                       {"RMSprop", Optimizer::Kind::rmsprop},
                                                       {"SGD", Optimizer::Kind::sgd}};
    optimizer.kind = kinds.at(each["op"]);
    optimizer.learning_rate = options["lr"];
    optimizer.momentum = options.value("momentum", 0.0);
    optimizer.weight_decay = options.value("weight_decay", 0.0);
    if (options.contains("betas")) {
      optimizer.beta1 = options["betas"][0];
      optimizer.beta2 = options["betas"][1];
    }
    optimizer.eps = options.value("eps", optimizer.eps);
    optimizer.alpha = options.value("alpha", optimizer.alpha);
    const Tensor& start = tensor(name, "param0");
    const Tensor& gradients = tensor(name, "grads");
    const size_t n = start.data.size();
    UpdateProgram program(start.shape, optimizer);
    program.start(start);
    const auto row = [&](const char* what, size_t step) {
      const Tensor& all = tensor(name, what);
      const auto first = all.data.begin() + static_cast<std::ptrdiff_t>(step * n);
      return Tensor{start.shape, std::vector<float>(first, first + static_cast<std::ptrdiff_t>(n))};
    };
    for (size_t step = 0; step < 5; ++step) {
      SCOPED_TRACE(step);
      program.step(std::span(gradients.data).subspan(step * n, n), optimizer,
                   static_cast<int>(step) + 1);
      expect_same(program.weight(), row("params", step), error_of(each, "params"), "params");
      // RMSprop's states are added the other way round.
      const bool rms = optimizer.kind == Optimizer::Kind::rmsprop;
      const char* const states[] = {rms ? "v" : "m", rms ? "m" : "v"};
      for (size_t i = 0; i < 2; ++i) {
        if (!each["error"].contains(states[i])) continue;
        expect_same(program.state(i), row(states[i], step), error_of(each, states[i]), states[i]);
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

}  // namespace
}  // namespace halfscope
