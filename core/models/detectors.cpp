// SPDX-License-Identifier: MIT
// Small one-stage detectors: a body of three stages with strides 8, 16 and 32, a pyramid that mixes
// them, and heads that use the same weights on every level. core/data/boxes.h has the anchors.
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/data/boxes.h"
#include "core/error.h"
#include "core/models/builders.h"
#include "core/models/detection_loss.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope {
namespace {

using Levels = std::array<ValueId, 3>;  // strides 8, 16 and 32

/// The parts that both detectors have.
class Detector {
 public:
  explicit Detector(const NetworkSize& size) : net_(size) {}
  virtual ~Detector() = default;

  Model build() {
    const int64_t width = 64;
    const Levels levels = pyramid(body(net_.samples(Layers::Labels::none)), width);
    // The score of an object is 1% at first (Lin et al. 2017).
    const int64_t labels = net_.size().classes;
    const ValueId classes =
        head("class_head", levels, labels, {.center = -elementary::log((1.0 - 0.01) / 0.01)});
    const ValueId codes = head("box_head", levels, 4, {});
    return net_.finish_detector(classes, codes);
  }

 protected:
  virtual Levels body(ValueId x) = 0;
  virtual Levels pyramid(const Levels& levels, int64_t width) = 0;
  /// Layers of a head before its last one, for one level; the first call adds their weights.
  virtual ValueId tower(const std::string& path, const std::string& level, ValueId x) = 0;

  /// Weights of kernel x kernel x in / groups x out, uniform, with deviation sqrt(2 / fan in).
  ValueId weight(const std::string& path, int64_t in, int64_t out, int64_t kernel,
                 int64_t groups = 1) {
    const double fan_in = static_cast<double>(in / groups * kernel * kernel);
    return net_.graph().add_variable(path + ".weight", {out, in / groups, kernel, kernel},
                                     {bound_of_deviation(std::sqrt(2.0 / fan_in))});
  }
  ValueId bias(const std::string& path, int64_t out, Initializer initial = {}) {
    return net_.graph().add_variable(path + ".bias", {out}, initial);
  }
  ValueId convolved(const std::string& path, ValueId x, ValueId w, ValueId b, Window window,
                    int64_t groups = 1) {
    Attributes attributes{{"strides", std::vector<int64_t>(2, window.stride)},
                          {"pads", std::vector<int64_t>(4, window.kernel / 2)}};
    if (groups != 1) attributes["group"] = groups;
    std::vector<ValueId> inputs{x, w};
    if (b != kNone) inputs.push_back(b);
    return net_.op("Conv", path, inputs, std::move(attributes));
  }
  /// A convolution with a bias.
  ValueId conv(const std::string& path, ValueId x, int64_t out, int64_t kernel) {
    const ValueId w = weight(path, net_.shape(x).at(1), out, kernel);
    return convolved(path, x, w, bias(path, out), {kernel, 1});
  }
  /// A convolution and a batch normalization.
  ValueId normalized(const std::string& path, ValueId x, int64_t out, int64_t kernel,
                     int64_t stride, int64_t groups = 1) {
    const ValueId w = weight(path + "conv", net_.shape(x).at(1), out, kernel, groups);
    return net_.batch_norm(path + "bn",
                           convolved(path + "conv", x, w, kNone, {kernel, stride}, groups));
  }

  /// Every pixel four times.
  ValueId doubled(const std::string& path, ValueId x) {
    const Shape s = net_.shape(x);
    ValueId y = net_.reshape(path + "/pixels", x, {s[0], s[1], s[2], 1, s[3], 1});
    y = net_.op("Expand", path + "/expand", {y}, {{"shape", Shape{s[0], s[1], s[2], 2, s[3], 2}}});
    return net_.reshape(path, y, {s[0], s[1], 2 * s[2], 2 * s[3]});
  }

  /// Results of all levels as [samples, anchors, outputs].
  ValueId head(const std::string& path, const Levels& levels, int64_t outputs,
               const Initializer& initial) {
    std::vector<ValueId> parts;
    ValueId w = kNone, b = kNone;
    for (size_t i = 0; i < levels.size(); ++i) {
      const std::string level = std::to_string(i + 3);
      const ValueId x = tower(path, level, levels[i]);
      if (w == kNone) {
        w = weight(path + "/out", net_.shape(x).at(1), kAnchorSizes * outputs, 3);
        b = bias(path + "/out", kAnchorSizes * outputs, initial);
      }
      const ValueId y = convolved(path + "/" + level + "/out", x, w, b, {3, 1});
      const Shape s = net_.shape(y);
      const ValueId last = net_.transpose(path + "/" + level + "/last", y, {0, 2, 3, 1});
      parts.push_back(net_.reshape(path + "/" + level + "/rows", last,
                                   {s[0], s[2] * s[3] * kAnchorSizes, outputs}));
    }
    return net_.op("Concat", path, parts, {{"axis", int64_t{1}}});
  }

  Layers net_;
};

/// Residual blocks, a feature pyramid (Lin et al. 2017) and heads of 3x3 convolutions.
class RetinaNet final : public Detector {
 public:
  using Detector::Detector;

 private:
  Levels body(ValueId x) override {
    x = net_.relu("body/stem/relu", normalized("body/stem/", x, 32, 3, 2));
    x = block("body/0/", x, 48);
    const ValueId c3 = block("body/1/", x, 64), c4 = block("body/2/", c3, 96);
    return {c3, c4, block("body/3/", c4, 128)};
  }

  ValueId block(const std::string& path, ValueId x, int64_t out) {
    ValueId y = net_.relu(path + "relu1", normalized(path + "1/", x, out, 3, 2));
    y = normalized(path + "2/", y, out, 3, 1);
    return net_.relu(path + "relu2",
                     net_.add(path + "add", y, normalized(path + "shortcut/", x, out, 1, 2)));
  }

  Levels pyramid(const Levels& levels, int64_t width) override {
    const ValueId p5 = conv("fpn/lateral5", levels[2], width, 1);
    const ValueId p4 =
        net_.add("fpn/add4", conv("fpn/lateral4", levels[1], width, 1), doubled("fpn/up5", p5));
    const ValueId p3 =
        net_.add("fpn/add3", conv("fpn/lateral3", levels[0], width, 1), doubled("fpn/up4", p4));
    return {conv("fpn/out3", p3, width, 3), conv("fpn/out4", p4, width, 3),
            conv("fpn/out5", p5, width, 3)};
  }

  ValueId tower(const std::string& path, const std::string& level, ValueId x) override {
    std::vector<ValueId>& all = towers_[path];
    for (int i = 0; i < 2; ++i) {
      const std::string name = "/" + std::to_string(i);
      if (all.size() < 4) {
        const int64_t width = net_.shape(x).at(1);
        all.push_back(weight(path + name, width, width, 3));
        all.push_back(bias(path + name, width));
      }
      const auto at = static_cast<size_t>(2 * i);
      x = convolved(path + "/" + level + name, x, all[at], all[at + 1], {3, 1});
      x = net_.relu(path + "/" + level + "/relu" + std::to_string(i), x);
    }
    return x;
  }

  std::map<std::string, std::vector<ValueId>> towers_;  ///< weights and biases by head
};

/// Inverted residual blocks, two bidirectional pyramids (BiFPN) with weighted sums, and heads of
/// separable convolutions: Tan, Pang and Le 2020.
class EfficientDet final : public Detector {
 public:
  using Detector::Detector;

 private:
  Levels body(ValueId x) override {
    x = swish("body/stem/act", normalized("body/stem/", x, 24, 3, 2));
    x = block("body/0/", x, 32, 3, 2);
    const ValueId c3 = block("body/1/", x, 48, 5, 2);
    const ValueId c4 = block("body/3/", block("body/2/", c3, 80, 3, 2), 80, 3, 1);
    return {c3, c4, block("body/4/", c4, 112, 5, 2)};
  }

  ValueId swish(const std::string& path, ValueId x) { return net_.op("Swish", path, {x}); }

  ValueId block(const std::string& path, ValueId x, int64_t out, int64_t kernel, int64_t stride) {
    const int64_t in = net_.shape(x).at(1), inside = 4 * in;
    ValueId y = swish(path + "act1", normalized(path + "expand/", x, inside, 1, 1));
    y = swish(path + "act2", normalized(path + "depthwise/", y, inside, kernel, stride, inside));
    y = normalized(path + "project/", y, out, 1, 1);
    return stride == 1 && in == out ? net_.add(path + "add", y, x) : y;
  }

  Levels pyramid(const Levels& levels, int64_t width) override {
    Levels p;
    for (size_t i = 0; i < p.size(); ++i) {
      const std::string path = "bifpn/in" + std::to_string(i + 3) + "/";
      p[i] = normalized(path, levels[i], width, 1, 1);
    }
    for (int layer = 0; layer < 2; ++layer) {
      const std::string path = "bifpn/" + std::to_string(layer) + "/";
      const ValueId inner4 = fused(path + "inner4", {p[1], doubled(path + "up5", p[2])});
      const ValueId out3 = fused(path + "out3", {p[0], doubled(path + "up4", inner4)});
      const ValueId down3 = net_.max_pool(path + "down3", out3, {3, 2, 1});
      const ValueId out4 = fused(path + "out4", {p[1], inner4, down3});
      const ValueId down4 = net_.max_pool(path + "down4", out4, {3, 2, 1});
      p = {out3, out4, fused(path + "out5", {p[2], down4})};
    }
    return p;
  }

  /// A sum with weights that are learned, not negative, and add up to 1 ("fast normalized fusion"),
  /// and a separable convolution.
  ValueId fused(const std::string& path, const std::vector<ValueId>& inputs) {
    std::vector<ValueId> shares;
    ValueId total = net_.graph().add_constant(1e-4f);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = path + "/share" + std::to_string(i);
      const ValueId w = net_.graph().add_variable(name + ".weight", {1}, {.center = 1.0});
      shares.push_back(net_.relu(name, w));
      total = net_.add(path + "/total" + std::to_string(i), shares.back(), total);
    }
    ValueId sum = kNone;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = path + "/part" + std::to_string(i);
      const ValueId share = net_.op("Div", name + "/share", {shares[i], total});
      const ValueId part = net_.op("Mul", name, {inputs[i], share});
      sum = i == 0 ? part : net_.add(path + "/sum" + std::to_string(i), sum, part);
    }
    const int64_t width = net_.shape(sum).at(1);
    ValueId y = swish(path + "/act", sum);
    const ValueId w = weight(path + "/depthwise", width, width, 3, width);
    y = convolved(path + "/depthwise", y, w, kNone, {3, 1}, width);
    return normalized(path + "/", y, width, 1, 1);
  }

  ValueId tower(const std::string& path, const std::string& level, ValueId x) override {
    std::vector<ValueId>& all = towers_[path];
    const int64_t width = net_.shape(x).at(1);
    if (all.empty()) {
      all = {weight(path + "/depthwise", width, width, 3, width),
             weight(path + "/pointwise", width, width, 1), bias(path + "/pointwise", width)};
    }
    const std::string at = path + "/" + level;
    x = convolved(at + "/depthwise", x, all[0], kNone, {3, 1}, width);
    return swish(at + "/act", convolved(at + "/pointwise", x, all[1], all[2], {1, 1}));
  }

  std::map<std::string, std::vector<ValueId>> towers_;  ///< weights and biases by head
};

void check_size(const NetworkSize& size) {
  constexpr int64_t kMultiple = 32;
  const bool fits = size.sample.size() == 3 && size.sample[1] == size.sample[2] &&
                    size.sample[1] % kMultiple == 0;
  if (fits) return;
  throw usage_error("model '" + size.name + "' needs square images whose sides are multiples of 32",
                    "use, for example, --data shapes");
}

}  // namespace

Model make_retinanet_small(const NetworkSize& size) {
  check_size(size);
  return RetinaNet(size).build();
}

Model make_efficientdet_small(const NetworkSize& size) {
  check_size(size);
  return EfficientDet(size).build();
}

}  // namespace halfscope
