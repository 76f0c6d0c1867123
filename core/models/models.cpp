// SPDX-License-Identifier: MIT
#include "core/models/models.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/near_miss.h"
#include "core/numeric/formats/rng.h"

namespace halfscope {

std::vector<std::string> model_names() {
  return {"lenet", "lenet-hot", "mlp:A-B-...-Z", "resnet20"};
}

std::vector<int64_t> mlp_widths(const std::string& name) {
  std::vector<int64_t> widths;
  std::string_view rest = std::string_view(name).substr(4);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('-'));
    int64_t width = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), width);
    if (error != std::errc() || end != item.data() + item.size() || width < 1 || width > 1 << 20) {
      throw usage_error("model '" + name + "': '" + std::string(item) + "' is not a layer width",
                        "write, for example, mlp:784-512-512-10");
    }
    widths.push_back(width);
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
  if (widths.size() < 2 || name.back() == '-') {
    throw usage_error("model '" + name + "' needs at least two layer widths",
                      "write, for example, mlp:784-512-512-10");
  }
  return widths;
}

namespace {

/// Builds one network, layer after layer.
class Builder {
 public:
  Builder(std::string name, int64_t batch, const Shape& sample_shape, bool with_loss)
      : with_loss_(with_loss) {
    model_.name = std::move(name);
    Shape shape{batch};
    shape.insert(shape.end(), sample_shape.begin(), sample_shape.end());
    model_.input = model_.graph.add_input("input", shape);
    if (with_loss) {
      model_.labels = model_.graph.add_input("labels", {batch}, ElementType::index);
    }
  }

  ValueId input() const { return model_.input; }

  ValueId linear(const std::string& path, ValueId x, int64_t out) {
    const int64_t in = model_.graph.value(x).shape.at(1);
    const Initializer init{1.0 / std::sqrt(static_cast<double>(in))};
    const ValueId w = model_.graph.add_variable(path + ".weight", {out, in}, init);
    const ValueId b = model_.graph.add_variable(path + ".bias", {out}, init);
    return model_.graph.add1("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
  }

  ValueId conv(const std::string& path, ValueId x, int64_t out, int64_t kernel) {
    const ValueId w = conv_weight(path, x, out, kernel);
    const ValueId b = model_.graph.add_variable(path + ".bias", {out}, conv_initializer(x, kernel));
    return model_.graph.add1("Conv", path, {x, w, b});
  }

  /// A convolution whose weights stand behind a fixed factor; it has no bias.
  ValueId conv_with_gain(const std::string& path, const std::string& gain_path, ValueId x,
                         int64_t out, int64_t kernel, float gain) {
    const ValueId large = scale(gain_path, conv_weight(path, x, out, kernel), gain);
    return model_.graph.add1("Conv", path, {x, large});
  }

  /// Without a bias, for a batch normalization to follow; weights as by He et al. 2015, uniform.
  ValueId conv_he(const std::string& path, ValueId x, int64_t out, int64_t kernel, int64_t stride) {
    const int64_t in = model_.graph.value(x).shape.at(1);
    const Initializer init{std::sqrt(6.0 / static_cast<double>(in * kernel * kernel))};
    const ValueId w = model_.graph.add_variable(path + ".weight", {out, in, kernel, kernel}, init);
    const int64_t pad = kernel / 2;
    return model_.graph.add1("Conv", path, {x, w},
                             {{"strides", std::vector<int64_t>{stride, stride}},
                              {"pads", std::vector<int64_t>(4, pad)}});
  }

  /// With PyTorch's defaults: momentum 0.1 in its terms, the sample's variance kept.
  ValueId batch_norm(const std::string& path, ValueId x) {
    const Shape channels{model_.graph.value(x).shape.at(1)};
    const ValueId weight = model_.graph.add_variable(path + ".weight", channels, {.center = 1.0});
    const ValueId bias = model_.graph.add_variable(path + ".bias", channels, {});
    const ValueId mean = add_buffer(path + ".running_mean", channels, {});
    const ValueId var = add_buffer(path + ".running_var", channels, {.center = 1.0});
    const std::vector<ValueId> outputs =
        model_.graph.add("BatchNormalization", path, {x, weight, bias, mean, var},
                         {{"training_mode", int64_t{1}},
                          {"epsilon", 1e-5},
                          {"momentum", 0.9},
                          {"unbiased", int64_t{1}}});
    for (Variable& variable : model_.graph.variables()) {
      if (variable.value == mean) variable.next = outputs[1];
      if (variable.value == var) variable.next = outputs[2];
    }
    return outputs[0];
  }

  ValueId add(const std::string& path, ValueId a, ValueId b) {
    return model_.graph.add1("Add", path, {a, b});
  }

  /// Every other pixel, and zeros for the channels that are missing: "option A" of He et al. 2016.
  ValueId shortcut(const std::string& path, ValueId x, int64_t channels) {
    const int64_t missing = channels - model_.graph.value(x).shape.at(1);
    const Shape& shape = model_.graph.value(x).shape;
    const ValueId fewer =
        model_.graph.add1("Slice", path + "/slice", {x},
                          {{"starts", std::vector<int64_t>{0, 0}},
                           {"ends", std::vector<int64_t>{shape.at(2), shape.at(3)}},
                           {"axes", std::vector<int64_t>{2, 3}},
                           {"steps", std::vector<int64_t>{2, 2}}});
    const int64_t before = missing / 2;
    return model_.graph.add1(
        "Pad", path + "/pad", {fewer},
        {{"pads", std::vector<int64_t>{0, before, 0, 0, 0, missing - before, 0, 0}}});
  }

  ValueId global_average_pool(const std::string& path, ValueId x) {
    return model_.graph.add1("GlobalAveragePool", path, {x});
  }

  ValueId relu(const std::string& path, ValueId x) { return model_.graph.add1("Relu", path, {x}); }

  ValueId max_pool(const std::string& path, ValueId x, int64_t size) {
    return model_.graph.add1("MaxPool", path, {x},
                             {{"kernel_shape", std::vector<int64_t>{size, size}},
                              {"strides", std::vector<int64_t>{size, size}}});
  }

  ValueId flatten(const std::string& path, ValueId x) {
    return model_.graph.add1("Flatten", path, {x});
  }

  ValueId scale(const std::string& path, ValueId x, float factor) {
    return model_.graph.add1("Mul", path, {x, model_.graph.add_constant(factor)});
  }

  Model finish(ValueId logits) {
    model_.outputs.push_back({"logits", logits});
    if (!with_loss_) return std::move(model_);
    model_.logits = logits;
    model_.first_loss_node = static_cast<NodeId>(model_.graph.nodes().size());
    model_.loss = model_.graph.add1("SoftmaxCrossEntropyLoss", "loss", {logits, model_.labels});
    return std::move(model_);
  }

 private:
  ValueId add_buffer(const std::string& path, const Shape& shape, Initializer initializer) {
    return model_.graph.add_buffer(path, shape, initializer);
  }

  Initializer conv_initializer(ValueId x, int64_t kernel) const {
    const int64_t in = model_.graph.value(x).shape.at(1);
    return {1.0 / std::sqrt(static_cast<double>(in * kernel * kernel))};
  }

  ValueId conv_weight(const std::string& path, ValueId x, int64_t out, int64_t kernel) {
    const int64_t in = model_.graph.value(x).shape.at(1);
    return model_.graph.add_variable(path + ".weight", {out, in, kernel, kernel},
                                     conv_initializer(x, kernel));
  }

  Model model_;
  bool with_loss_;
};

Model make_mlp(const std::vector<int64_t>& widths, int64_t batch, const Shape& sample_shape,
               bool with_loss) {
  std::string name = "mlp:";
  for (size_t i = 0; i < widths.size(); ++i) name += (i > 0 ? "-" : "") + std::to_string(widths[i]);
  Builder b(name, batch, sample_shape, with_loss);
  ValueId x = sample_shape.size() == 1 ? b.input() : b.flatten("flatten", b.input());
  for (size_t i = 1; i < widths.size(); ++i) {
    x = b.linear("fc" + std::to_string(i), x, widths[i]);
    if (i + 1 < widths.size()) x = b.relu("relu" + std::to_string(i), x);
  }
  return b.finish(x);
}

Model make_lenet(int64_t batch, const Shape& sample_shape, int64_t classes, bool hot,
                 bool with_loss) {
  // conv2's values are of order 0.1 to 1; behind this gain many lie beyond 65504, while the
  // weights themselves stay within fp16.
  constexpr float kGain = 0x1p19f;
  Builder b(hot ? "lenet-hot" : "lenet", batch, sample_shape, with_loss);
  ValueId x = b.max_pool("pool1", b.relu("relu1", b.conv("conv1", b.input(), 32, 5)), 2);
  if (hot) {
    x = b.scale("rescale2", b.conv_with_gain("conv2", "gain2", x, 64, 5, kGain), 1.0f / kGain);
  } else {
    x = b.conv("conv2", x, 64, 5);
  }
  x = b.flatten("flatten", b.max_pool("pool2", b.relu("relu2", x), 2));
  x = b.relu("relu3", b.linear("fc1", x, 256));
  return b.finish(b.linear("fc2", x, classes));
}

Model make_resnet20(int64_t batch, const Shape& sample_shape, int64_t classes, bool with_loss) {
  Builder b("resnet20", batch, sample_shape, with_loss);
  ValueId x = b.relu("relu1", b.batch_norm("bn1", b.conv_he("conv1", b.input(), 16, 3, 1)));
  int64_t channels = 16;
  for (int stage = 1; stage <= 3; ++stage) {
    for (int block = 0; block < 3; ++block) {
      const std::string path = "layer" + std::to_string(stage) + "/" + std::to_string(block) + "/";
      const bool narrows = stage > 1 && block == 0;
      const int64_t wanted = narrows ? 2 * channels : channels;
      ValueId y =
          b.batch_norm(path + "bn1", b.conv_he(path + "conv1", x, wanted, 3, narrows ? 2 : 1));
      y = b.batch_norm(path + "bn2",
                       b.conv_he(path + "conv2", b.relu(path + "relu1", y), wanted, 3, 1));
      const ValueId kept = narrows ? b.shortcut(path + "shortcut", x, wanted) : x;
      x = b.relu(path + "relu2", b.add(path + "add", y, kept));
      channels = wanted;
    }
  }
  return b.finish(
      b.linear("linear", b.flatten("flatten", b.global_average_pool("pool", x)), classes));
}

Model make_model(const std::string& name, int64_t batch, const Shape& sample_shape, int64_t classes,
                 bool with_loss) {
  if (name.starts_with("mlp:")) {
    const std::vector<int64_t> widths = mlp_widths(name);
    if (widths.front() != element_count(sample_shape) || widths.back() != classes) {
      throw usage_error("model '" + name + "' does not fit the data",
                        "make the first width " + std::to_string(element_count(sample_shape)) +
                            " and the last " + std::to_string(classes));
    }
    return make_mlp(widths, batch, sample_shape, with_loss);
  }
  if (name == "lenet" || name == "lenet-hot") {
    if (sample_shape.size() != 3 || sample_shape[1] < 16 || sample_shape[2] < 16) {
      throw usage_error("model '" + name + "' needs images of at least 16x16 pixels");
    }
    return make_lenet(batch, sample_shape, classes, name == "lenet-hot", with_loss);
  }
  if (name == "resnet20") {
    if (sample_shape.size() != 3 || sample_shape[1] % 4 != 0 || sample_shape[2] % 4 != 0) {
      throw usage_error("model 'resnet20' needs images whose height and width are multiples of 4",
                        "use, for example, --data cifar10:DIR");
    }
    return make_resnet20(batch, sample_shape, classes, with_loss);
  }
  throw usage_error("unknown model '" + name + "'",
                    did_you_mean(name, model_names(), "models: " + comma_list(model_names())));
}

}  // namespace

Model build_mlp(const std::vector<int64_t>& widths, int64_t batch, const Shape& sample_shape) {
  return make_mlp(widths, batch, sample_shape, true);
}

Model build_lenet(int64_t batch, const Shape& sample_shape, int64_t classes, bool hot) {
  return make_lenet(batch, sample_shape, classes, hot, true);
}

Model build_model(const std::string& name, int64_t batch, const Shape& sample_shape,
                  int64_t classes) {
  return about({"model", "network"},
               [&] { return make_model(name, batch, sample_shape, classes, true); });
}

Model build_network(const std::string& name, int64_t batch, const Shape& sample_shape,
                    int64_t classes) {
  return about({"model", "network"},
               [&] { return make_model(name, batch, sample_shape, classes, false); });
}

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
    if (count > int64_t{1} << 26 || index >= 64) {  // the counters of two variables would overlap
      throw usage_error("the model is too large: '" + variable.path + "' has " +
                            std::to_string(count) + " elements",
                        "use at most 64 randomly initialized variables of at most 2^26 elements");
    }
    const uint64_t number = index++;
    if (given.contains(variable.path)) continue;
    tensor.data.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t counter = (seed << 32) + (number << 26) + static_cast<uint64_t>(i);
      const float unit = static_cast<float>(splitmix64(counter) >> 40) * 0x1p-23f - 1.0f;
      tensor.data.push_back(center + unit * bound);
    }
    weights[variable.path] = std::move(tensor);
  }
  return weights;
}

}  // namespace halfscope
