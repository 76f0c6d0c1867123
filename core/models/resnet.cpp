// SPDX-License-Identifier: MIT
#include <cmath>

#include "core/error.h"
#include "core/models/builders.h"

namespace halfscope {
namespace {

void check_images(const NetworkSize& size, int64_t channels, int64_t multiple) {
  const Shape& image = size.sample;
  const bool fits = image.size() == 3 && (channels == 0 || image[0] == channels) &&
                    image[1] % multiple == 0 && image[2] % multiple == 0;
  if (fits) return;
  throw usage_error("model '" + size.name + "' needs images" +
                        (channels == 3 ? " with three channels" : "") +
                        " whose height and width are multiples of " + std::to_string(multiple),
                    "use, for example, --data cifar10:DIR");
}

/// Every other pixel, and zeros for the channels that are missing: "option A" of He et al. 2016.
ValueId padded_shortcut(Layers& net, const std::string& path, ValueId x, int64_t channels) {
  const Shape shape = net.shape(x);
  const int64_t missing = channels - shape.at(1), before = missing / 2;
  const ValueId fewer = net.op("Slice", path + "/slice", {x},
                               {{"starts", std::vector<int64_t>{0, 0}},
                                {"ends", std::vector<int64_t>{shape.at(2), shape.at(3)}},
                                {"axes", std::vector<int64_t>{2, 3}},
                                {"steps", std::vector<int64_t>{2, 2}}});
  return net.op("Pad", path + "/pad", {fewer},
                {{"pads", std::vector<int64_t>{0, before, 0, 0, 0, missing - before, 0, 0}}});
}

/// The blocks of torchvision's ResNets; weights as its kaiming_normal_(mode="fan_out"), uniform.
class ResNet {
 public:
  ResNet(const NetworkSize& size, const ResNetShape& shape) : net_(size), shape_(shape) {}

  Model build() {
    ValueId x = stem(net_.samples());
    int64_t width = shape_.width;
    for (size_t stage = 0; stage < shape_.blocks.size(); ++stage, width *= 2) {
      for (int64_t i = 0; i < shape_.blocks[stage]; ++i) {
        const std::string path =
            "layer" + std::to_string(stage + 1) + "/" + std::to_string(i) + "/";
        x = block(path, x, width, stage > 0 && i == 0 ? 2 : 1);
      }
    }
    x = net_.flatten("flatten", net_.op("GlobalAveragePool", "avgpool", {x}));
    return net_.finish(net_.linear("fc", x, net_.size().classes));
  }

 private:
  ValueId normalized(const std::string& conv, const std::string& norm, ValueId x, int64_t out,
                     int64_t kernel, int64_t stride) {
    const double fan_out = static_cast<double>(out * kernel * kernel);
    const ValueId weight =
        net_.conv_weight(conv, x, out, kernel, {bound_of_deviation(std::sqrt(2.0 / fan_out))});
    return net_.batch_norm(norm, net_.conv(conv, x, weight, {kernel, stride, kernel / 2}));
  }

  ValueId stem(ValueId x) {
    constexpr int64_t kSmallImage = 64;
    const bool small = std::min(net_.shape(x).at(2), net_.shape(x).at(3)) < kSmallImage;
    x = normalized("conv1", "bn1", x, shape_.width, small ? 3 : 7, small ? 1 : 2);
    x = net_.relu("relu", x);
    return small ? x : net_.max_pool("maxpool", x, {3, 2, 1});
  }

  ValueId block(const std::string& path, ValueId x, int64_t width, int64_t stride) {
    const int64_t out = shape_.bottleneck ? 4 * width : width;
    ValueId y = kNone;
    if (shape_.bottleneck) {
      y = net_.relu(path + "relu1", normalized(path + "conv1", path + "bn1", x, width, 1, 1));
      y = net_.relu(path + "relu2", normalized(path + "conv2", path + "bn2", y, width, 3, stride));
      y = normalized(path + "conv3", path + "bn3", y, out, 1, 1);
    } else {
      y = net_.relu(path + "relu1", normalized(path + "conv1", path + "bn1", x, width, 3, stride));
      y = normalized(path + "conv2", path + "bn2", y, out, 3, 1);
    }
    const bool changes = stride != 1 || net_.shape(x).at(1) != out;
    const ValueId kept =
        changes ? normalized(path + "downsample/0", path + "downsample/1", x, out, 1, stride) : x;
    return net_.relu(path + (shape_.bottleneck ? "relu3" : "relu2"),
                     net_.add(path + "add", y, kept));
  }

  Layers net_;
  ResNetShape shape_;
};

}  // namespace

Model make_resnet20(const NetworkSize& size) {
  check_images(size, 0, 4);
  Layers net(size);
  // Weights by He et al. 2015, uniform; a batch normalization follows.
  const auto conv = [&](const std::string& path, ValueId x, int64_t out, int64_t stride) {
    const double fan_in = static_cast<double>(net.shape(x).at(1) * 9);
    const ValueId weight = net.conv_weight(path, x, out, 3, {std::sqrt(6.0 / fan_in)});
    return net.conv(path, x, weight, {3, stride, 1});
  };
  ValueId x = net.relu("relu1", net.batch_norm("bn1", conv("conv1", net.samples(), 16, 1)));
  int64_t channels = 16;
  for (int stage = 1; stage <= 3; ++stage) {
    for (int block = 0; block < 3; ++block) {
      const std::string path = "layer" + std::to_string(stage) + "/" + std::to_string(block) + "/";
      const bool narrows = stage > 1 && block == 0;
      const int64_t wanted = narrows ? 2 * channels : channels;
      ValueId y = net.batch_norm(path + "bn1", conv(path + "conv1", x, wanted, narrows ? 2 : 1));
      y = net.batch_norm(path + "bn2",
                         conv(path + "conv2", net.relu(path + "relu1", y), wanted, 1));
      const ValueId kept = narrows ? padded_shortcut(net, path + "shortcut", x, wanted) : x;
      x = net.relu(path + "relu2", net.add(path + "add", y, kept));
      channels = wanted;
    }
  }
  x = net.flatten("flatten", net.op("GlobalAveragePool", "pool", {x}));
  return net.finish(net.linear("linear", x, size.classes));
}

Model make_resnet(const NetworkSize& size, const ResNetShape& shape) {
  check_images(size, 3, 8);
  return ResNet(size, shape).build();
}

}  // namespace halfscope
