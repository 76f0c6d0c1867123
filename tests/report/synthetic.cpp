// SPDX-License-Identifier: MIT
#include "tests/report/synthetic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <stdexcept>

namespace halfscope::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// splitmix64: the same numbers on every machine, unlike the standard distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double uniform() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
  }
  double normal() {
    return std::sqrt(-2.0 * std::log(uniform())) * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  uint64_t state_;
};

std::string plan_text(const LaneSpec& lane) {
  using Json = nlohmann::ordered_json;
  const std::string format = format_name(lane.format);
  Json plan;
  plan["schema"] = "halfscope.plan/1";
  plan["name"] = lane.name;
  plan["default"] =
      Json{{"read", format}, {"write", format}, {"accumulate", "fp32"}, {"mode", "fused"}};
  plan["variables"] = Json{{"storage", format_name(lane.storage)}};
  plan["rules"] = Json::array();
  for (const std::string& path : lane.keep_fp32) {
    plan["rules"].push_back(Json{{"path", path}, {"format", "fp32"}});
  }
  return plan.dump();
}

bool kept(const LaneSpec& lane, const LayerSpec& layer) {
  return layer.fp32 || std::find(lane.keep_fp32.begin(), lane.keep_fp32.end(), layer.path) !=
                           lane.keep_fp32.end();
}

FloatFormat format_of(const LaneSpec& lane, const LayerSpec& layer) {
  return kept(lane, layer) ? kFp32 : lane.format;
}

LaneInfo lane_info(const RunSpec& spec, const LaneSpec& lane) {
  LaneInfo info;
  info.name = lane.name;
  info.backend = lane.backend;
  info.plan_json = plan_text(lane);
  const Shape shape{spec.elements};
  const auto site = [&](const std::string& path, const std::string& tensor, Role role, Phase phase,
                        const std::string& op, const FloatFormat& format) {
    SiteInfo s{.path = path,
               .tensor = tensor,
               .role = role,
               .phase = phase,
               .op = op,
               .format = format,
               .shape = shape};
    s.order = static_cast<int>(info.sites.size());
    info.sites.push_back(s);
  };
  site("input", "input", Role::input, Phase::forward, "Input", lane.format);
  for (const LayerSpec& layer : spec.layers) {
    const FloatFormat format = format_of(lane, layer);
    info.layers.push_back({.path = layer.path,
                           .op = layer.op,
                           .inputs = layer.inputs,
                           .read = format,
                           .write = format,
                           .follows = layer.follows,
                           .parameters = layer.weights ? spec.elements : 0});
    if (layer.weights) {
      site(layer.path, "weight", Role::weight, Phase::forward, layer.op, format);
    }
    site(layer.path, "activation", Role::activation, Phase::forward, layer.op, format);
  }
  for (auto layer = spec.layers.rbegin(); layer != spec.layers.rend(); ++layer) {
    const FloatFormat format = format_of(lane, *layer);
    site(layer->path, "activation_grad", Role::activation_grad, Phase::backward, layer->op, format);
    if (layer->weights) {
      site(layer->path, "weight_grad", Role::weight_grad, Phase::backward, layer->op, format);
    }
  }
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.weights) continue;
    if (lane.state) {
      site(layer.path, "weight_adam_v", Role::state, Phase::update, layer.op, lane.storage);
    }
    site(layer.path, "weight_update", Role::update, Phase::update, layer.op, lane.storage);
  }
  return info;
}

const LayerSpec* find_layer(const RunSpec& spec, const std::string& path) {
  for (const LayerSpec& layer : spec.layers) {
    if (layer.path == path) return &layer;
  }
  return nullptr;
}

/// One lane, step by step.
class Lane {
 public:
  Lane(const RunSpec& spec, int lane, RunView& run)
      : spec_(spec),
        lane_(spec.lanes[static_cast<size_t>(lane)]),
        index_(lane),
        run_(run),
        scale_(lane_.loss_scale) {}

  void step(int step) {
    StepRow row{.step = step, .loss_scale = scale_};
    bad_paths_.clear();
    first_bad_ = -1;
    grad_bad_ = false;
    const std::vector<SiteInfo>& sites = run_.lane(index_).sites;
    for (const SiteInfo& site : sites) {
      if (site.phase == Phase::forward) forward(site, step);
    }
    const bool loss_bad = bad_paths_[spec_.layers.back().path];
    row.loss = loss_bad ? kNaN : 2.3 * std::exp(-0.05 * step) + 0.1;
    for (const SiteInfo& site : sites) {
      if (site.phase == Phase::backward) backward(site, step, loss_bad);
    }
    row.grad_norm = grad_bad_ ? kNaN : 1.0 / (1.0 + step);
    row.skipped = lane_.dynamic && grad_bad_;
    row.accuracy = loss_bad ? 0.1 : 0.9;
    row.first_bad = first_bad_;
    if (!row.skipped) {
      for (const SiteInfo& site : sites) {
        if (site.phase == Phase::update) update(site, step);
      }
    }
    run_.add_step(index_, row);
    if (row.skipped) scale_ *= 0.5;
  }

 private:
  /// Magnitudes depend on step and site only, so that lanes see the same numbers.
  std::vector<float> sample(const SiteInfo& site, int step, double median_log2) {
    Random random(static_cast<uint64_t>(step) * 1000003u + static_cast<uint64_t>(site.order));
    std::vector<float> values(static_cast<size_t>(spec_.elements));
    for (float& value : values) {
      const double magnitude = std::exp2(median_log2 + spec_.spread * random.normal());
      value = static_cast<float>(random.uniform() < 0.5 ? -magnitude : magnitude);
    }
    return values;
  }

  TensorStats record(const SiteInfo& site, int step, const std::vector<float>& values) {
    std::vector<float> rounded(values.size());
    TensorStats stats = measure(values, rounded, site.format);
    if (first_bad_ < 0 && (stats.overflow > 0 || stats.non_finite() > 0)) first_bad_ = site.order;
    if (site.phase != Phase::update) {
      run_.add_window(index_, site.order, {.step = step, .step_count = 1, .stats = stats});
    }
    return stats;
  }

  void forward(const SiteInfo& site, int step) {
    const LayerSpec* layer = find_layer(spec_, site.path);
    bool spoiled = site.role == Role::input && spec_.nan_from_the_start;
    if (layer != nullptr && site.role == Role::activation) {
      spoiled = bad_paths_[site.path];  // its weight overflowed
      for (const std::string& input : layer->inputs) spoiled = spoiled || bad_paths_[input];
    }
    double median = 0.0;
    if (layer != nullptr && site.role == Role::activation) median = layer->activation;
    if (site.role == Role::weight) median = -3.0;
    const std::vector<float> values =
        spoiled ? std::vector<float>(static_cast<size_t>(spec_.elements), kNaN)
                : sample(site, step, median);
    const TensorStats stats = record(site, step, values);
    if (stats.overflow > 0 || stats.non_finite() > 0) bad_paths_[site.path] = true;
  }

  void backward(const SiteInfo& site, int step, bool loss_bad) {
    const LayerSpec& layer = *find_layer(spec_, site.path);
    const std::vector<float> values =
        loss_bad || grad_bad_ ? std::vector<float>(static_cast<size_t>(spec_.elements), kNaN)
                              : sample(site, step, layer.gradient + std::log2(scale_));
    const TensorStats stats = record(site, step, values);
    if (stats.overflow > 0 || stats.non_finite() > 0) grad_bad_ = true;
  }

  /// Weights are around 1, where half the spacing of an m-bit format is 2^-(m+1).
  void update(const SiteInfo& site, int step) {
    if (site.role == Role::state) {
      const TensorStats state = record(site, step, sample(site, step, *lane_.state));
      run_.add_window(index_, site.order, {.step = step, .step_count = 1, .stats = state});
      return;
    }
    const double median = 2 * step < spec_.steps ? lane_.update : lane_.late_update;
    const std::vector<float> values = sample(site, step, median);
    TensorStats stats = record(site, step, values);
    const float half = std::ldexp(1.0f, -(lane_.storage.mantissa_bits + 1));
    for (float value : values) stats.lost += value != 0.0f && std::fabs(value) < half ? 1 : 0;
    run_.add_window(index_, site.order, {.step = step, .step_count = 1, .stats = stats});
  }

  const RunSpec& spec_;
  const LaneSpec& lane_;
  int index_;
  RunView& run_;
  double scale_;
  std::map<std::string, bool> bad_paths_;
  int first_bad_ = -1;
  bool grad_bad_ = false;
};

}  // namespace

std::vector<LayerSpec> lenet_layers() {
  return {
      {.path = "conv1", .op = "Conv", .inputs = {"input"}, .weights = true},
      {.path = "relu1", .op = "Relu", .inputs = {"conv1"}, .follows = true},
      {.path = "pool1", .op = "MaxPool", .inputs = {"relu1"}, .follows = true},
      {.path = "conv2", .op = "Conv", .inputs = {"pool1"}, .weights = true},
      {.path = "rescale2", .op = "Mul", .inputs = {"conv2"}, .follows = true},
      {.path = "relu2", .op = "Relu", .inputs = {"rescale2"}, .follows = true},
      {.path = "fc1", .op = "Gemm", .inputs = {"relu2"}, .weights = true},
      {.path = "relu3", .op = "Relu", .inputs = {"fc1"}, .follows = true},
      {.path = "fc2", .op = "Gemm", .inputs = {"relu3"}, .weights = true},
      {.path = "loss", .op = "SoftmaxCrossEntropyLoss", .inputs = {"fc2"}, .fp32 = true},
  };
}

LayerSpec& layer_of(RunSpec& spec, const std::string& path) {
  for (LayerSpec& layer : spec.layers) {
    if (layer.path == path) return layer;
  }
  throw std::out_of_range("no layer " + path);
}

RunSpec healthy_spec() {
  RunSpec spec;
  spec.layers = lenet_layers();
  spec.lanes = {{.name = "float32", .format = kFp32, .loss_scale = 1.0, .dynamic = false},
                {.name = "mixed_float16", .loss_scale = 16384.0}};
  return spec;
}

RunSpec hot_spec() {
  RunSpec spec = healthy_spec();
  layer_of(spec, "conv2").activation = 17.0;
  spec.lanes[1].loss_scale = 65536.0;
  return spec;
}

RunSpec no_scale_spec() {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc2").gradient = 6.0;
  layer_of(spec, "conv1").gradient = -34.0;
  spec.lanes[1].loss_scale = 64.0;
  spec.spread = 1.0;
  return spec;
}

RunView make_run(const RunSpec& spec) {
  RunInfo info;
  info.model = "lenet";
  info.data = "digits";
  info.optimizer = "sgd lr=0.1";
  info.command = "halfscope train --model lenet --data digits --lanes float32,mixed_float16";
  info.batch = 128;
  info.steps_planned = spec.steps;
  info.classes = 10;
  info.train_samples = 1437;
  info.test_samples = 360;
  info.seed = 1;
  info.threads = 2;
  info.isa = "avx2";
  info.version = "0.1.0";
  for (const LaneSpec& lane : spec.lanes) info.lanes.push_back(lane_info(spec, lane));
  RunView run(std::move(info), RunStatus::complete);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    Lane simulated(spec, lane, run);
    for (int step = 0; step < spec.steps; ++step) simulated.step(step);
    if (spec.evaluate && spec.steps > 0) {
      run.add_eval(lane, {.step = spec.steps, .loss = 0.2, .accuracy = 0.95});
    }
  }
  return run;
}

}  // namespace halfscope::test
