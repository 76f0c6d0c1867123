// SPDX-License-Identifier: MIT
#include "core/models/models.h"

#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/data/shapes.h"
#include "core/data/tensor_file.h"
#include "core/error.h"
#include "core/models/builders.h"
#include "core/near_miss.h"
#include "core/numeric/formats/rng.h"

namespace halfscope {

void refuse_torch_network(const std::string& model) {
  if (!is_torch_name(model)) return;
  throw usage_error("'" + model + "' is a PyTorch file, which HalfScope does not read",
                    "export the network to ONNX; docs/onnx.md shows how");
}

namespace {

Model make_mlp(const NetworkSize& size) {
  const std::vector<int64_t> widths = mlp_widths(size.name);
  const int64_t inputs = element_count(size.sample);
  if (widths.front() != inputs || widths.back() != size.classes) {
    throw usage_error("model '" + size.name + "' does not fit the data",
                      "make the first width " + std::to_string(inputs) + " and the last " +
                          std::to_string(size.classes));
  }
  Layers net(size);
  ValueId x = net.samples();
  if (size.sample.size() != 1) x = net.flatten("flatten", x);
  for (size_t i = 1; i < widths.size(); ++i) {
    x = net.linear("fc" + std::to_string(i), x, widths[i]);
    if (i + 1 < widths.size()) x = net.relu("relu" + std::to_string(i), x);
  }
  return net.finish(x);
}

Model make_lenet(const NetworkSize& size, bool hot) {
  if (size.sample.size() != 3 || size.sample[1] < 16 || size.sample[2] < 16) {
    throw usage_error("model '" + size.name + "' needs images of at least 16x16 pixels");
  }
  // conv2's values are of order 0.1 to 1; behind this gain many lie beyond 65504, while the
  // weights themselves stay within fp16.
  constexpr float kGain = 0x1p19f;
  constexpr int64_t kKernel = 5;
  Layers net(size);
  const auto initial = [&](ValueId x) {
    return Initializer{fan_in_bound(net.shape(x).at(1) * kKernel * kKernel)};
  };
  const auto conv = [&](const std::string& path, ValueId x, int64_t out) {
    const ValueId weight = net.conv_weight(path, x, out, kKernel, initial(x));
    const ValueId bias = net.graph().add_variable(path + ".bias", {out}, initial(x));
    return net.op("Conv", path, {x, weight, bias});
  };
  ValueId x = net.max_pool("pool1", net.relu("relu1", conv("conv1", net.samples(), 32)), {2, 2});
  if (hot) {
    const ValueId weight = net.conv_weight("conv2", x, 64, kKernel, initial(x));
    x = net.op("Conv", "conv2", {x, net.scale("gain2", weight, kGain)});
    x = net.scale("rescale2", x, 1.0f / kGain);
  } else {
    x = conv("conv2", x, 64);
  }
  x = net.flatten("flatten", net.max_pool("pool2", net.relu("relu2", x), {2, 2}));
  x = net.relu("relu3", net.linear("fc1", x, 256));
  return net.finish(net.linear("fc2", x, size.classes));
}

/// To add a network, write a builder and add a row.
struct Row {
  const char* name;  ///< as in --model; in front of a colon, the kind of networks with sizes
  Model (*make)(const NetworkSize&);
  UsualSamples (*usual)(const std::string& name);
};

UsualSamples imagenet(const std::string&) { return {{3, 224, 224}, 1000}; }
UsualSamples cifar(const std::string&) { return {{3, 32, 32}, 10}; }
UsualSamples mnist(const std::string&) { return {{1, 28, 28}, 10}; }
UsualSamples gpt2_tokens(const std::string&) { return {{1024}, 50257}; }
UsualSamples of_widths(const std::string& name) {
  const std::vector<int64_t> widths = mlp_widths(name);
  return {{widths.front()}, widths.back()};
}

UsualSamples of_shapes(const std::string&) {
  return {{3, kShapesSide, kShapesSide}, kShapeClasses};
}

constexpr Row kRows[] = {
    {"efficientdet-small", make_efficientdet_small, of_shapes},
    {"efficientnet-lite0", make_efficientnet_lite0, imagenet},
    {"gpt:LxDxH[:...]",
     [](const NetworkSize& size) { return make_gpt(size, parse_gpt(size.name)); }, gpt2_tokens},
    {"lenet", [](const NetworkSize& size) { return make_lenet(size, false); }, mnist},
    {"lenet-hot", [](const NetworkSize& size) { return make_lenet(size, true); }, mnist},
    {"mlp:A-B-...-Z", make_mlp, of_widths},
    {"resnet18", [](const NetworkSize& size) { return make_resnet(size, kResNet18); }, imagenet},
    {"resnet20", make_resnet20, cifar},
    {"resnet50", [](const NetworkSize& size) { return make_resnet(size, kResNet50); }, imagenet},
    {"retinanet-small", make_retinanet_small, of_shapes},
};

const Row& row_of(const std::string& model) {
  for (const Row& row : kRows) {
    const std::string_view name = row.name;
    const size_t colon = name.find(':');
    const bool named =
        colon == name.npos ? model == name : model.starts_with(name.substr(0, colon + 1));
    if (named) return row;
  }
  refuse_torch_network(model);
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) {
    throw usage_error("'" + model + "' is a folder, not a network",
                      "name a file *.onnx in it, or a model: " + comma_list(model_names()));
  }
  throw usage_error("unknown model '" + model + "'",
                    did_you_mean(model, model_names(), "models: " + comma_list(model_names())));
}

Model make_model(const NetworkSize& size) { return row_of(size.name).make(size); }

}  // namespace

std::string usual_loss(const std::string& name) {
  return row_of(name).usual == of_shapes ? "detection" : "cross-entropy";
}

UsualSamples usual_samples(const std::string& name) {
  return about({"model", "network"}, [&] { return row_of(name).usual(name); });
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

std::vector<int64_t> mlp_widths(const std::string& name) {
  constexpr const char* kExample = "write, for example, mlp:784-512-512-10";
  std::vector<int64_t> widths;
  for (const std::string_view item : split_sizes(std::string_view(name).substr(4), '-')) {
    widths.push_back(size_in(item));
    if (widths.back() > 0) continue;
    throw usage_error("model '" + name + "': '" + std::string(item) + "' is not a layer width",
                      kExample);
  }
  if (widths.size() < 2)
    throw usage_error("model '" + name + "' needs at least two layer widths", kExample);
  return widths;
}

Model build_mlp(const std::vector<int64_t>& widths, int64_t batch, const Shape& sample_shape) {
  std::string name = "mlp:";
  for (size_t i = 0; i < widths.size(); ++i) name += (i > 0 ? "-" : "") + std::to_string(widths[i]);
  return make_mlp({name, batch, sample_shape, widths.back()});
}

Model build_lenet(int64_t batch, const Shape& sample_shape, int64_t classes, bool hot) {
  return make_lenet({hot ? "lenet-hot" : "lenet", batch, sample_shape, classes}, hot);
}

Model build_model(const std::string& name, int64_t batch, const Shape& sample_shape,
                  int64_t classes) {
  return about({"model", "network"}, [&] {
    return make_model({name, batch, sample_shape, classes, true});
  });
}

Model build_network(const std::string& name, int64_t batch, const Shape& sample_shape,
                    int64_t classes) {
  return about({"model", "network"}, [&] {
    return make_model({name, batch, sample_shape, classes, false});
  });
}

namespace {

/// Returns the counter of a variable's first element. The counters of the first 64 variables of all
/// seeds lie side by side; further variables begin anywhere.
uint64_t first_counter(uint64_t seed, uint64_t variable) {
  constexpr uint64_t kSideBySide = 64;
  const uint64_t counter = (seed << 32) + (variable << 26);
  return variable < kSideBySide ? counter : splitmix64(counter);
}

}  // namespace

NamedTensors initial_weights(const Graph& graph, uint64_t seed, const NamedTensors& given) {
  NamedTensors weights;
  uint64_t index = 0;
  for (const Variable& variable : graph.variables()) {
    Tensor tensor{graph.value(variable.value).shape, {}};
    const int64_t count = element_count(tensor.shape);
    const float bound = static_cast<float>(variable.initializer.bound);
    const float center = static_cast<float>(variable.initializer.center);
    if (bound == 0.0f) {
      if (given.contains(variable.path)) continue;
      tensor.data.assign(static_cast<size_t>(count), center);
      weights[variable.path] = std::move(tensor);
      continue;
    }
    if (count > int64_t{1} << 26) {  // the counters of two variables would overlap
      throw usage_error("the model is too large: '" + variable.path + "' has " +
                            std::to_string(count) + " elements",
                        "use variables of at most 2^26 elements");
    }
    const uint64_t first = first_counter(seed, index++);
    if (given.contains(variable.path)) continue;
    tensor.data.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t counter = first + static_cast<uint64_t>(i);
      const float unit = static_cast<float>(splitmix64(counter) >> 40) * 0x1p-23f - 1.0f;
      tensor.data.push_back(center + unit * bound);
    }
    weights[variable.path] = std::move(tensor);
  }
  return weights;
}

}  // namespace halfscope
