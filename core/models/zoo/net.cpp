// SPDX-License-Identifier: MIT
#include "core/models/zoo/net.h"

#include <cmath>
#include <stdexcept>

#include "core/models/layers.h"
#include "core/models/loss.h"
#include "core/models/zoo/shared_nets.h"

namespace halfscope::zoo {
namespace {

thread_local uint64_t other_data = 0;
/// Larger than any seed of a case, and small enough to fit in the upper half of a counter.
constexpr uint64_t kApart = 1 << 16;

}  // namespace

OtherData::OtherData(uint64_t seed) : before_(other_data) { other_data = seed; }
OtherData::~OtherData() { other_data = before_; }

Net::Net(uint64_t seed) : draw(seed + kApart * other_data), seed_(seed) {}

double Draw::normal() {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

std::vector<float> Draw::uniforms(int64_t count, double low, double high) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(low + uniform() * (high - low)));
  }
  return values;
}

std::vector<float> Draw::normals(int64_t count, double deviation, double mean) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(mean + deviation * normal()));
  }
  return values;
}

std::string Net::name() {
  constexpr std::string_view kFirst = "bdfgklmnprstvz", kSecond = "aeiou";
  std::string text;
  uint64_t word = splitmix64((seed_ << 20) + names_);
  for (int i = 0; i < 2; ++i) {
    text += kFirst[word % kFirst.size()];
    text += kSecond[word / 16 % kSecond.size()];
    word /= 256;
  }
  text += kFirst[word % kFirst.size()];
  return text + std::to_string(names_++);
}

void Net::add_array(const std::string& name, const Shape& shape, std::vector<float> reals,
                    std::vector<int32_t> integers) {
  SampleArray array;
  array.name = name;
  array.sample_shape = Shape(shape.begin() + 1, shape.end());
  const auto count = static_cast<int64_t>(reals.empty() ? integers.size() : reals.size());
  array.samples = count / element_count(array.sample_shape);
  array.reals = std::move(reals);
  array.integers = std::move(integers);
  if (array.samples % shape[0] != 0) throw std::logic_error("a zoo case has an incomplete batch");
  arrays_.push_back(std::move(array));
  batch_ = shape[0];
}

ValueId Net::in(const Shape& shape, std::vector<float> values, const std::string& named) {
  const std::string text = named.empty() ? name() : named;
  add_array(text, shape, std::move(values), {});
  const ValueId value = graph().add_input(text, shape);
  if (model_.input == kNone) model_.input = value;
  return value;
}

ValueId Net::index_in(const Shape& shape, std::vector<int32_t> values, const std::string& named) {
  const std::string text = named.empty() ? name() : named;
  add_array(text, shape, {}, std::move(values));
  return graph().add_input(text, shape, ElementType::index);
}

ValueId Net::variable(const Shape& shape, std::vector<float> values, const std::string& named) {
  const std::string text = named.empty() ? name() : named;
  model_.initial[text] = Tensor{shape, std::move(values)};
  return graph().add_variable(text, shape, {});
}

ValueId Net::buffer(const Shape& shape, std::vector<float> values) {
  const std::string text = name();
  model_.initial[text] = Tensor{shape, std::move(values)};
  return graph().add_buffer(text, shape, {});
}

ValueId Net::constant(const Shape& shape, std::vector<float> values) {
  return graph().add_constant(Tensor{shape, std::move(values)});
}

ValueId Net::op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) {
  return op_at(name(), op, std::move(inputs), std::move(attributes));
}

ValueId Net::op_at(const std::string& path, const std::string& op, std::vector<ValueId> inputs,
                   Attributes attributes) {
  return graph().add1(op, path, std::move(inputs), std::move(attributes));
}

std::string Net::path_of(ValueId value) const {
  const NodeId node = model_.graph.value(value).producer;
  if (node != kNone) return model_.graph.node(node).path;
  if (const Variable* variable = model_.graph.variable_of(value)) return variable->path;
  throw std::logic_error("a value of a zoo case has no path");
}

ValueId Net::mean_of_all(ValueId x) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < shape(x).size(); ++i) axes.push_back(static_cast<int64_t>(i));
  return mean(x, axes, false);
}

ValueId Net::columns(ValueId x, int64_t first, int64_t end) {
  return op("Slice", {x},
            {{"starts", std::vector<int64_t>{first}},
             {"ends", std::vector<int64_t>{end}},
             {"axes", std::vector<int64_t>{static_cast<int64_t>(shape(x).size()) - 1}}});
}

ValueId Net::linear(ValueId x, int64_t out, double gain) {
  const int64_t inputs = shape(x).back();
  return linear(x, out, draw.normals(inputs * out, gain / std::sqrt(static_cast<double>(inputs))));
}

ValueId Net::linear(ValueId x, int64_t out, std::vector<float> weights) {
  const int64_t inputs = shape(x).back();
  const ValueId w = variable({out, inputs}, std::move(weights));
  const ValueId b = variable({out}, std::vector<float>(static_cast<size_t>(out), 0.0f));
  return op("Gemm", {x, w, b}, {{"transB", int64_t{1}}});
}

ValueId Net::conv(ValueId x, int64_t out, int64_t kernel, double gain) {
  const int64_t inputs = shape(x).at(1) * kernel * kernel;
  const ValueId w =
      variable({out, shape(x).at(1), kernel, kernel},
               draw.normals(out * inputs, gain / std::sqrt(static_cast<double>(inputs))));
  return op("Conv", {x, w}, {{"pads", std::vector<int64_t>(4, kernel / 2)}});
}

ValueId Net::layer_norm(ValueId x, double scale) {
  const int64_t size = shape(x).back();
  const auto count = static_cast<size_t>(size);
  const ValueId w = variable({size}, std::vector<float>(count, static_cast<float>(scale)));
  const ValueId b = variable({size}, std::vector<float>(count, 0.0f));
  return op("LayerNormalization", {x, w, b}, {{"epsilon", 1e-5}});
}

ValueId Net::batch_norm(ValueId x) {
  const Shape channels{shape(x).at(1)};
  const auto count = static_cast<size_t>(channels[0]);
  const ValueId weight = variable(channels, std::vector<float>(count, 1.0f));
  const ValueId bias = variable(channels, std::vector<float>(count, 0.0f));
  const ValueId mean = buffer(channels, std::vector<float>(count, 0.0f));
  const ValueId var = buffer(channels, std::vector<float>(count, 1.0f));
  return add_batch_norm(graph(), name(), {x, weight, bias, mean, var});
}

void repair(std::vector<Case>& cases, const std::string& id, std::function<Setup()> repaired) {
  for (Case& each : cases) {
    if (each.id == id) each.repaired = std::move(repaired);
  }
}

Setup Net::infer(ValueId output) {
  Setup setup;
  model_.outputs.push_back({name(), output});
  setup.model = std::move(model_);
  setup.model.name = "network";
  setup.data.name = "arrays";
  setup.data.test.arrays = std::move(arrays_);
  setup.labels = std::move(labels_);
  return setup;
}

Setup Net::training(const std::string& optimizer, int64_t steps) {
  Setup setup;
  setup.trains = true;
  setup.model = std::move(model_);
  setup.model.name = "network";
  setup.data.name = "arrays";
  setup.data.train.arrays = std::move(arrays_);
  setup.labels = std::move(labels_);
  setup.train.optimizer = parse_optimizer(optimizer);
  setup.train.batch = batch_;
  setup.train.steps = steps;
  return setup;
}

Setup Net::train_loss(ValueId loss, const std::string& optimizer, int64_t steps) {
  model_.loss = loss;
  model_.outputs.push_back({name(), loss});
  return training(optimizer, steps);
}

Setup Net::train_classes(ValueId scores, std::vector<int32_t> labels, const std::string& optimizer,
                         int64_t steps) {
  const int64_t samples = arrays_.front().samples, batch = batch_;
  model_.outputs.push_back({name(), scores});
  add_loss(model_, parse_loss("cross-entropy"));
  const auto each = static_cast<int64_t>(labels.size()) / samples;
  add_array("labels", each == 1 ? Shape{batch} : Shape{batch, each}, {}, std::move(labels));
  return training(optimizer, steps);
}

Setup Net::train_squares(ValueId prediction, std::vector<float> targets,
                         const std::string& optimizer, int64_t steps) {
  const Shape shape_of_targets = shape(prediction);
  model_.outputs.push_back({name(), prediction});
  add_loss(model_, parse_loss("mse"));
  add_array("targets", shape_of_targets, std::move(targets), {});
  return training(optimizer, steps);
}

}  // namespace halfscope::zoo
