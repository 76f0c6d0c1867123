// SPDX-License-Identifier: MIT
#include <cmath>

#include "core/error.h"
#include "core/models/builders.h"

namespace halfscope {
namespace {

/// A stage of inverted residual blocks (Sandler et al. 2018).
struct Stage {
  int64_t blocks, expansion, kernel, stride, channels;
};
// Tan and Le 2019, Table 1; Lite0 leaves out squeeze-and-excitation and uses ReLU6.
constexpr Stage kStages[] = {{1, 1, 3, 1, 16}, {2, 6, 3, 2, 24},  {2, 6, 5, 2, 40},
                             {3, 6, 3, 2, 80}, {3, 6, 5, 1, 112}, {4, 6, 5, 2, 192},
                             {1, 6, 3, 1, 320}};

class EfficientNet {
 public:
  explicit EfficientNet(const NetworkSize& size) : net_(size) {}

  Model build() {
    ValueId x = relu6("act1", normalized("conv_stem", "bn1", net_.samples(), 32, {3, 2, 1}));
    int number = 0;
    for (const Stage& stage : kStages) {
      for (int64_t i = 0; i < stage.blocks; ++i) {
        const std::string path = "blocks/" + std::to_string(number) + "/" + std::to_string(i) + "/";
        x = block(path, x, stage, i == 0 ? stage.stride : 1);
      }
      ++number;
    }
    x = relu6("act2", normalized("conv_head", "bn2", x, 1280, {}));
    x = net_.flatten("flatten", net_.op("GlobalAveragePool", "global_pool", {x}));
    return net_.finish(net_.linear("classifier", x, net_.size().classes));
  }

 private:
  ValueId relu6(const std::string& path, ValueId x) {
    return net_.op("Clip", path, {x}, {{"min", 0.0}, {"max", 6.0}});
  }

  /// Weights with the deviation sqrt(2 / fan out), uniform.
  ValueId normalized(const std::string& conv, const std::string& norm, ValueId x, int64_t out,
                     Window window, int64_t groups = 1) {
    const double fan_out = static_cast<double>(window.kernel * window.kernel * out / groups);
    const ValueId weight = net_.conv_weight(conv, x, out, window.kernel,
                                            {bound_of_deviation(std::sqrt(2.0 / fan_out))}, groups);
    return net_.batch_norm(norm, net_.conv(conv, x, weight, window, groups));
  }

  ValueId depthwise(const std::string& path, const std::string& norm, ValueId x, int64_t kernel,
                    int64_t stride) {
    const int64_t channels = net_.shape(x).at(1);
    return normalized(path + "conv_dw", path + norm, x, channels, {kernel, stride, kernel / 2},
                      channels);
  }

  ValueId block(const std::string& path, ValueId x, const Stage& stage, int64_t stride) {
    const int64_t in = net_.shape(x).at(1);
    ValueId y = x;
    if (stage.expansion == 1) {
      y = relu6(path + "act1", depthwise(path, "bn1", y, stage.kernel, stride));
      y = normalized(path + "conv_pw", path + "bn2", y, stage.channels, {});
    } else {
      y = normalized(path + "conv_pw", path + "bn1", y, in * stage.expansion, {});
      y = depthwise(path, "bn2", relu6(path + "act1", y), stage.kernel, stride);
      y = normalized(path + "conv_pwl", path + "bn3", relu6(path + "act2", y), stage.channels, {});
    }
    return stride == 1 && in == stage.channels ? net_.add(path + "add", y, x) : y;
  }

  Layers net_;
};

}  // namespace

Model make_efficientnet_lite0(const NetworkSize& size) {
  constexpr int64_t kLeast = 32;
  if (size.sample.size() != 3 || size.sample[1] < kLeast || size.sample[2] < kLeast) {
    throw usage_error("model '" + size.name + "' needs images of at least 32x32 pixels",
                      "use, for example, --data cifar10:DIR");
  }
  return EfficientNet(size).build();
}

}  // namespace halfscope
