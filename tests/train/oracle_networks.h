// SPDX-License-Identifier: MIT
// The networks that tests/oracle/any_network.py trains, and what it found.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "core/models/loss.h"
#include "tests/train/small_training.h"

namespace halfscope::test {

using Json = nlohmann::json;

inline const Json& oracle() {
  static const Json cases = [] {
    std::ifstream file(HALFSCOPE_SOURCE_DIR "/tests/oracle/vectors/any_network.json");
    return Json::parse(file);
  }();
  return cases;
}

inline ValueId linear(Graph& graph, const std::string& path, ValueId x, int64_t out) {
  const int64_t in = graph.value(x).shape.back();
  const ValueId w = graph.add_variable(path + ".weight", {out, in}, {});
  const ValueId b = graph.add_variable(path + ".bias", {out}, {});
  return graph.add1("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
}

inline Model regression(int64_t batch) {
  Model model;
  model.name = "regression";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("input", {batch, 3});
  const ValueId hidden = graph.add1("Relu", "relu1", {linear(graph, "fc1", x, 8)});
  model.outputs = {{"y", linear(graph, "fc2", hidden, 2)}};
  return model;
}

inline Model two_inputs(int64_t batch) {
  Model model;
  model.name = "two_inputs";
  Graph& graph = model.graph;
  const ValueId a = graph.add_input("a", {batch, 3}), b = graph.add_input("b", {batch, 5});
  const ValueId sum =
      graph.add1("Add", "add", {linear(graph, "fc_a", a, 6), linear(graph, "fc_b", b, 6)});
  const ValueId relu = graph.add1("Relu", "relu", {sum});
  model.outputs = {{"hidden", relu}, {"scores", linear(graph, "fc_out", relu, 4)}};
  return model;
}

inline Model sequence(int64_t batch) {
  Model model;
  model.name = "sequence";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {batch, 5, 3});
  const ValueId rows = graph.add1("Reshape", "rows", {x}, {{"shape", Shape{-1, 3}}});
  model.outputs = {{"scores", graph.add1("Reshape", "scores", {linear(graph, "head", rows, 4)},
                                         {{"shape", Shape{batch, 5, 4}}})}};
  return model;
}

inline Model own_loss(int64_t batch) {
  Model model;
  model.name = "own_loss";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {batch, 3});
  const ValueId difference = graph.add1("Sub", "sub", {linear(graph, "fc", x, 3), x});
  const ValueId square = graph.add1("Mul", "square", {difference, difference});
  const ValueId fourth = graph.add1("Mul", "fourth", {square, square});
  const ValueId mean = graph.add1("ReduceMean", "mean", {fourth},
                                  {{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{1}}});
  model.outputs = {{"difference", difference}, {"mean", mean}};
  return model;
}

struct OracleCase {
  const char* name;
  Model (*build)(int64_t);
  const char* loss;
};

inline void PrintTo(const OracleCase& each, std::ostream* out) { *out << each.name; }

inline ModelBuilder builder(const OracleCase& each) {
  return [each](int64_t batch) {
    Model model = each.build(batch);
    add_loss(model, parse_loss(each.loss));
    return model;
  };
}

inline Dataset data_of(const Json& json) {
  Dataset data{.name = "oracle", .sample_shape = {}, .train = {}, .test = {}};
  for (const auto& [name, array] : json.at("arrays").items()) {
    const DoubleTensor tensor{array.at("shape").get<Shape>(),
                              array.at("data").get<std::vector<double>>()};
    data.train.arrays.push_back(sample_array(name, tensor, "oracle"));
  }
  return data;
}

inline NamedTensors tensors_of(const Json& json) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : json.items()) {
    tensors[name] = {tensor.at("shape").get<Shape>(), tensor.at("data").get<std::vector<float>>()};
  }
  return tensors;
}

inline TrainConfig config_of(const OracleCase& each, const std::string& plan) {
  const Json& json = oracle().at(each.name);
  TrainConfig config = test::config("unused", plan, "none");
  config.build = builder(each);
  config.optimizer = parse_optimizer(json.at("optimizer").get<std::string>());
  for (const std::string& text : json.value("groups", std::vector<std::string>{})) {
    config.groups.push_back(parse_parameter_group(text));
  }
  if (json.contains("schedule")) {
    config.schedule.kind = Schedule::Kind::file;
    config.schedule.file = "the oracle's";
    for (const auto& [name, values] : json["schedule"].items()) {
      if (name == "lr") {
        values.get_to(config.schedule.rates);
      } else {
        config.schedule.series.push_back(
            {parse_scheduled_option(name).value(), values.get<std::vector<double>>()});
      }
    }
  }
  config.batch = json.at("batch");
  config.steps = json.at("steps");
  config.shuffle = false;
  config.init = tensors_of(json.at("weights"));
  return config;
}

}  // namespace halfscope::test
