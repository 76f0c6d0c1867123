// SPDX-License-Identifier: MIT
#include "core/train/optimizer.h"

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace halfscope {
namespace {

double parse_number(std::string_view text, std::string_view what) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0) ||
      !std::isfinite(value)) {
    throw usage_error("optimizer: " + std::string(what) + "=" + std::string(text) + " is not a number >= 0");
  }
  return value;
}

std::string number_text(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, result.ptr);
}

ValueId add_state(Graph& graph, const std::string& path, const Shape& shape, const FloatFormat& storage) {
  const ValueId state = graph.add_variable(path, shape, Initializer{});
  graph.value(state).format = storage;
  return state;
}

}  // namespace

Optimizer parse_optimizer(std::string_view text) {
  Optimizer optimizer;
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (name == "adam") {
    optimizer.kind = Optimizer::Kind::adam;
    optimizer.learning_rate = 0.001;
  } else if (name != "sgd") {
    throw usage_error("unknown optimizer " + std::string(name), "use sgd or adam");
  }
  const bool sgd = optimizer.kind == Optimizer::Kind::sgd;
  for (size_t next = colon; next != std::string_view::npos;) {
    const size_t end = text.find(',', next + 1);
    const std::string_view item = text.substr(next + 1, end - next - 1);
    next = end;
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw usage_error("optimizer: \"" + std::string(item) + "\" is not KEY=VALUE");
    }
    const std::string_view key = item.substr(0, equals);
    const double value = parse_number(item.substr(equals + 1), key);
    if (key == "lr") optimizer.learning_rate = value;
    else if (sgd && key == "momentum") optimizer.momentum = value;
    else if (key == "weight_decay") optimizer.weight_decay = value;
    else if (!sgd && key == "beta1" && value < 1.0) optimizer.beta1 = value;
    else if (!sgd && key == "beta2" && value < 1.0) optimizer.beta2 = value;
    else if (!sgd && key == "eps") optimizer.eps = value;
    else {
      throw usage_error("optimizer: " + std::string(item) + " does not fit " + std::string(name),
                        sgd ? "sgd knows lr, momentum and weight_decay"
                            : "adam knows lr, beta1 and beta2 below 1, eps and weight_decay");
    }
  }
  return optimizer;
}

std::string optimizer_text(const Optimizer& optimizer) {
  const Optimizer defaults;
  std::string options = ":lr=" + number_text(optimizer.learning_rate);
  const auto option = [&](const char* key, double value, double fallback) {
    if (value != fallback) options += "," + std::string(key) + "=" + number_text(value);
  };
  const bool sgd = optimizer.kind == Optimizer::Kind::sgd;
  if (sgd) option("momentum", optimizer.momentum, defaults.momentum);
  if (!sgd) {
    option("beta1", optimizer.beta1, defaults.beta1);
    option("beta2", optimizer.beta2, defaults.beta2);
    option("eps", optimizer.eps, defaults.eps);
  }
  option("weight_decay", optimizer.weight_decay, defaults.weight_decay);
  return (sgd ? "sgd" : "adam") + options;
}

ValueId add_update(Graph& graph, size_t variable, ValueId gradient, const Optimizer& optimizer,
                   const UpdateScalars& scalars, const FloatFormat& storage) {
  const Variable target = graph.variables()[variable];
  const Shape shape = graph.value(target.value).shape;
  const std::string node_path = target.path.substr(0, target.path.rfind('.'));
  std::vector<ValueId> inputs{target.value, gradient, scalars.inverse_scale, scalars.learning_rate};
  Attributes attributes{{"weight_decay", optimizer.weight_decay}};
  std::vector<size_t> states;
  const auto state = [&](const char* suffix) {
    states.push_back(graph.variables().size());
    inputs.push_back(add_state(graph, target.path + suffix, shape, storage));
  };
  std::vector<ValueId> outputs;
  if (optimizer.kind == Optimizer::Kind::sgd) {
    attributes["momentum"] = optimizer.momentum;
    if (optimizer.momentum != 0.0) state(".momentum");
    outputs = graph.add("SgdUpdate", node_path, inputs, attributes);
  } else {
    attributes["beta1"] = optimizer.beta1;
    attributes["beta2"] = optimizer.beta2;
    attributes["eps"] = optimizer.eps;
    inputs.push_back(scalars.correction_1);
    inputs.push_back(scalars.correction_2);
    state(".adam_m");
    state(".adam_v");
    outputs = graph.add("AdamUpdate", node_path, inputs, attributes);
  }
  graph.node(graph.value(outputs[0]).producer).phase = Phase::update;
  graph.value(outputs[0]).format = graph.value(target.value).format;
  graph.value(outputs[1]).format = graph.value(target.value).format;
  graph.variables()[variable].next = outputs[0];
  for (size_t i = 0; i < states.size(); ++i) {
    graph.value(outputs[2 + i]).format = storage;
    graph.variables()[states[i]].next = outputs[2 + i];
  }
  return outputs[1];
}

}  // namespace halfscope
