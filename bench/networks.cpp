// SPDX-License-Identifier: MIT
#include "bench/networks.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/models/builders.h"
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

}  // namespace

Workload workload(const std::string& name) {
  const std::string kind = name.substr(0, name.find(':'));
  if (kind == "resnet50") {
    const Sizes sizes =
        sizes_of(name, {{"image", 224}, {"classes", 1000}, {"width", 64}, {"depth", 6}});
    const int64_t image = sizes.at("image"), classes = sizes.at("classes");
    ResNetShape shape = kResNet50;
    shape.width = sizes.at("width");
    for (int64_t& blocks : shape.blocks) blocks = std::min(blocks, sizes.at("depth"));
    return {name,
            256,
            true,
            parse_optimizer("sgd:lr=0.1,momentum=0.9,weight_decay=1e-4"),
            [=](int64_t batch) {
              return make_resnet({name, batch, {3, image, image}, classes}, shape);
            },
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
    const GptShape shape{sizes.at("layers"), sizes.at("width"), sizes.at("heads")};
    return {name,
            8,
            true,
            parse_optimizer("adamw:lr=6e-4,weight_decay=0.1"),
            [=](int64_t batch) {
              return make_gpt({name, batch, {sequence}, vocabulary}, shape);
            },
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
