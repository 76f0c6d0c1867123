// SPDX-License-Identifier: MIT
#include "bench/networks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"

namespace halfscope {
namespace {

using Sizes = std::map<std::string, int64_t>;

/// Parses "NAME:width=32:depth=1" over the usual sizes of a network.
Sizes sizes_of(const std::string& text, Sizes sizes) {
  size_t at = text.find(':');
  while (at != std::string::npos) {
    const size_t next = text.find(':', at + 1);
    const std::string part = text.substr(at + 1, next - at - 1);
    const size_t equals = part.find('=');
    const auto found = sizes.find(part.substr(0, equals));
    const int64_t value = equals == std::string::npos ? 0 : std::atoll(part.c_str() + equals + 1);
    if (found == sizes.end() || value < 1) {
      throw usage_error("model '" + text + "': '" + part + "' is not a size of it",
                        "write, for example, :width=64");
    }
    found->second = value;
    at = next;
  }
  return sizes;
}

/// Returns a number below `end`.
uint64_t draw(uint64_t seed, uint64_t index, uint64_t end) {
  return splitmix64((seed << 40) + index) % end;
}

Dataset images(int64_t samples, const Shape& shape, int64_t classes) {
  Dataset data;
  data.name = "random images";
  data.sample_shape = shape;
  data.classes = classes;
  data.train.pixels.resize(static_cast<size_t>(samples * element_count(shape)));
  for (size_t i = 0; i < data.train.pixels.size(); ++i) {
    data.train.pixels[i] = static_cast<uint8_t>(draw(1, i, 256));
  }
  for (int64_t i = 0; i < samples; ++i) {
    data.train.labels.push_back(
        static_cast<int32_t>(draw(2, static_cast<uint64_t>(i), static_cast<uint64_t>(classes))));
  }
  return data;
}

Dataset texts(int64_t samples, int64_t sequence, int64_t vocabulary) {
  Dataset data;
  data.name = "random tokens";
  for (const char* name : {"tokens", "labels"}) {
    SampleArray array{.name = name, .sample_shape = {sequence}, .samples = samples};
    for (int64_t i = 0; i < samples * sequence; ++i) {
      const uint64_t seed = name[0] == 't' ? 3 : 4;
      array.integers.push_back(static_cast<int32_t>(
          draw(seed, static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary))));
    }
    data.train.arrays.push_back(std::move(array));
  }
  return data;
}

/// Adds layers to a model.
class Layers {
 public:
  explicit Layers(std::string name) { model.name = std::move(name); }

  Model model;

  Graph& graph() { return model.graph; }
  const Shape& shape(ValueId value) const { return model.graph.value(value).shape; }
  ValueId op(const std::string& op, const std::string& path, std::vector<ValueId> inputs,
             Attributes attributes = {}) {
    return graph().add1(op, path, std::move(inputs), std::move(attributes));
  }
  ValueId reshape(const std::string& path, ValueId x, Shape to) {
    return op("Reshape", path, {x}, {{"shape", std::move(to)}});
  }
  ValueId linear(const std::string& path, ValueId x, int64_t out, double bound, double bias_bound) {
    const ValueId w = graph().add_variable(path + ".weight", {out, shape(x).at(1)}, {bound});
    const ValueId b = graph().add_variable(path + ".bias", {out}, {bias_bound});
    return op("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
  }
  Model finish(ValueId logits) {
    model.logits = logits;
    model.outputs.push_back({"logits", logits});
    model.first_loss_node = static_cast<NodeId>(graph().nodes().size());
    model.loss = op("SoftmaxCrossEntropyLoss", "loss", {logits, model.labels});
    return std::move(model);
  }
};

class ResNet : public Layers {
 public:
  ResNet(const std::string& name, const Sizes& sizes) : Layers(name), sizes_(sizes) {}

  Model build(int64_t batch) {
    const int64_t image = sizes_.at("image");
    model.input = graph().add_input("input", {batch, 3, image, image});
    model.labels = graph().add_input("labels", {batch}, ElementType::index);
    ValueId x = relu("relu", normalized("conv1", "bn1", model.input, sizes_.at("width"), 7, 2));
    x = op("MaxPool", "maxpool", {x},
           {{"kernel_shape", std::vector<int64_t>{3, 3}},
            {"strides", std::vector<int64_t>{2, 2}},
            {"pads", std::vector<int64_t>(4, 1)}});
    const int64_t blocks[] = {3, 4, 6, 3};
    int64_t width = sizes_.at("width");
    for (int64_t stage = 0; stage < 4; ++stage, width *= 2) {
      for (int64_t i = 0; i < std::min(blocks[stage], sizes_.at("depth")); ++i) {
        const std::string path =
            "layer" + std::to_string(stage + 1) + "/" + std::to_string(i) + "/";
        x = block(path, x, width, stage > 0 && i == 0 ? 2 : 1);
      }
    }
    x = op("Flatten", "flatten", {op("GlobalAveragePool", "avgpool", {x})});
    const double bound = 1.0 / std::sqrt(static_cast<double>(shape(x).at(1)));
    return finish(linear("fc", x, sizes_.at("classes"), bound, bound));
  }

 private:
  static constexpr int64_t kExpansion = 4;

  ValueId relu(const std::string& path, ValueId x) { return op("Relu", path, {x}); }

  ValueId normalized(const std::string& conv, const std::string& norm, ValueId x, int64_t out,
                     int64_t kernel, int64_t stride) {
    const int64_t in = shape(x).at(1);
    const double bound = std::sqrt(6.0 / static_cast<double>(out * kernel * kernel));
    const ValueId w = graph().add_variable(conv + ".weight", {out, in, kernel, kernel}, {bound});
    const ValueId y = op("Conv", conv, {x, w},
                         {{"strides", std::vector<int64_t>{stride, stride}},
                          {"pads", std::vector<int64_t>(4, kernel / 2)}});
    const ValueId scale = graph().add_variable(norm + ".weight", {out}, {.center = 1.0});
    const ValueId bias = graph().add_variable(norm + ".bias", {out}, {});
    const ValueId mean = graph().add_buffer(norm + ".running_mean", {out}, {});
    const ValueId var = graph().add_buffer(norm + ".running_var", {out}, {.center = 1.0});
    const std::vector<ValueId> outputs =
        graph().add("BatchNormalization", norm, {y, scale, bias, mean, var},
                    {{"training_mode", int64_t{1}},
                     {"epsilon", 1e-5},
                     {"momentum", 0.9},
                     {"unbiased", int64_t{1}}});
    for (Variable& variable : graph().variables()) {
      if (variable.value == mean) variable.next = outputs[1];
      if (variable.value == var) variable.next = outputs[2];
    }
    return outputs[0];
  }

  ValueId block(const std::string& path, ValueId x, int64_t width, int64_t stride) {
    ValueId y = relu(path + "relu1", normalized(path + "conv1", path + "bn1", x, width, 1, 1));
    y = relu(path + "relu2", normalized(path + "conv2", path + "bn2", y, width, 3, stride));
    y = normalized(path + "conv3", path + "bn3", y, kExpansion * width, 1, 1);
    const bool changes = shape(x).at(1) != kExpansion * width;
    const ValueId kept = changes ? normalized(path + "downsample/conv", path + "downsample/bn", x,
                                              kExpansion * width, 1, stride)
                                 : x;
    return relu(path + "relu3", op("Add", path + "add", {y, kept}));
  }

  Sizes sizes_;
};

class Gpt2 : public Layers {
 public:
  Gpt2(const std::string& name, const Sizes& sizes) : Layers(name), sizes_(sizes) {}

  Model build(int64_t batch) {
    const int64_t width = sizes_.at("width"), sequence = sizes_.at("sequence");
    const int64_t vocabulary = sizes_.at("vocabulary");
    batch_ = batch;
    const ValueId tokens = graph().add_input("tokens", {batch, sequence}, ElementType::index);
    model.labels = graph().add_input("labels", {batch * sequence}, ElementType::index);
    const ValueId table = graph().add_variable("wte.weight", {vocabulary, width}, {kBound});
    const ValueId places = graph().add_variable("wpe.weight", {sequence, width}, {kBound});
    add_mask(sequence);
    ValueId x = op("Add", "embed", {op("Gather", "wte", {table, tokens}), places});
    x = reshape("rows", x, {batch * sequence, width});
    for (int64_t i = 0; i < sizes_.at("layers"); ++i) x = block("h/" + std::to_string(i) + "/", x);
    x = normalized("ln_f", x);
    return finish(op("Gemm", "head", {x, table}, {{"transB", int64_t{1}}}));
  }

 private:
  /// A uniform distribution with GPT-2's deviation of 0.02.
  static constexpr double kBound = 0.02 * 1.7320508075688772;

  /// 1 where a position may see another one: the same or an earlier one.
  void add_mask(int64_t sequence) {
    std::vector<int32_t> seen(static_cast<size_t>(sequence * sequence), 0);
    for (int64_t i = 0; i < sequence; ++i) {
      for (int64_t j = 0; j <= i; ++j) seen[static_cast<size_t>(i * sequence + j)] = 1;
    }
    mask_ = graph().add_index_constant({sequence, sequence}, std::move(seen));
    fill_ = graph().add_constant(-INFINITY);
  }

  ValueId normalized(const std::string& path, ValueId x) {
    const Shape channels{shape(x).at(1)};
    const ValueId scale = graph().add_variable(path + ".weight", channels, {.center = 1.0});
    const ValueId bias = graph().add_variable(path + ".bias", channels, {});
    return graph().add("LayerNormalization", path, {x, scale, bias}, {{"epsilon", 1e-5}}).front();
  }

  ValueId layer(const std::string& path, ValueId x, int64_t out) {
    return linear(path, x, out, kBound, 0.0);
  }

  ValueId attention(const std::string& path, ValueId x) {
    const int64_t width = sizes_.at("width"), heads = sizes_.at("heads"), size = width / heads;
    const int64_t sequence = sizes_.at("sequence");
    const ValueId all = layer(path + "c_attn", x, 3 * width);
    const std::vector<ValueId> parts =
        graph().add("Split", path + "split", {all},
                    {{"axis", int64_t{1}}, {"split", std::vector<int64_t>{width, width, width}}});
    const auto by_head = [&](const char* name, ValueId part, std::vector<int64_t> axes) {
      const ValueId view = reshape(path + name + "/heads", part, {batch_, sequence, heads, size});
      return op("Transpose", path + name, {view}, {{"perm", std::move(axes)}});
    };
    const ValueId q = by_head("q", parts[0], {0, 2, 1, 3});
    const ValueId k = by_head("k", parts[1], {0, 2, 3, 1});
    const ValueId v = by_head("v", parts[2], {0, 2, 1, 3});
    const ValueId y = op("Attention", path + "attention", {q, k, v, mask_, fill_},
                         {{"scale", 1.0 / std::sqrt(static_cast<double>(size))}});
    const ValueId joined =
        op("Transpose", path + "join", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return layer(path + "c_proj", reshape(path + "joined", joined, {batch_ * sequence, width}),
                 width);
  }

  ValueId block(const std::string& path, ValueId x) {
    x = op("Add", path + "add1", {x, attention(path + "attn/", normalized(path + "ln_1", x))});
    ValueId y = layer(path + "mlp/c_fc", normalized(path + "ln_2", x), 4 * sizes_.at("width"));
    y = op("Gelu", path + "mlp/gelu", {y}, {{"tanh", int64_t{1}}});
    return op("Add", path + "add2", {x, layer(path + "mlp/c_proj", y, sizes_.at("width"))});
  }

  Sizes sizes_;
  int64_t batch_ = 0;
  ValueId mask_ = kNone, fill_ = kNone;
};

}  // namespace

Workload workload(const std::string& name) {
  const std::string kind = name.substr(0, name.find(':'));
  if (kind == "resnet50") {
    const Sizes sizes =
        sizes_of(name, {{"image", 224}, {"classes", 1000}, {"width", 64}, {"depth", 6}});
    const int64_t image = sizes.at("image"), classes = sizes.at("classes");
    return {name,
            256,
            true,
            parse_optimizer("sgd:lr=0.1,momentum=0.9,weight_decay=1e-4"),
            [=](int64_t batch) { return ResNet(name, sizes).build(batch); },
            [=](int64_t samples) {
              return images(samples, {3, image, image}, classes);
            }};
  }
  if (kind == "gpt2") {
    const Sizes sizes = sizes_of(
        name,
        {{"layers", 12}, {"width", 768}, {"heads", 12}, {"sequence", 1024}, {"vocabulary", 50257}});
    if (sizes.at("width") % sizes.at("heads") != 0) {
      throw usage_error("model '" + name + "': the width is not a multiple of the heads");
    }
    const int64_t sequence = sizes.at("sequence"), vocabulary = sizes.at("vocabulary");
    return {name,
            8,
            true,
            parse_optimizer("adamw:lr=6e-4,weight_decay=0.1"),
            [=](int64_t batch) { return Gpt2(name, sizes).build(batch); },
            [=](int64_t samples) { return texts(samples, sequence, vocabulary); }};
  }
  const Shape shape{1, 28, 28};
  build_model(name, 1, shape, 10);  // throws if there is no such network
  return {name,
          512,
          false,
          parse_optimizer("sgd:lr=0.1"),
          [=](int64_t batch) { return build_model(name, batch, shape, 10); },
          [](int64_t) { return make_digits(); }};
}

}  // namespace halfscope
