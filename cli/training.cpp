// SPDX-License-Identifier: MIT
#include "cli/training.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "cli/network.h"
#include "core/data/npz.h"
#include "core/error.h"
#include "core/models/loss.h"

namespace halfscope {
NamedTensors read_initial_weights(const std::string& file) {
  NamedTensors weights = read_npz(file);
  for (const auto& [path, tensor] : weights) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      if (std::isfinite(tensor.data[i])) continue;
      throw usage_error(fmt::format("initial weights {}: {}{} is {}", file, path,
                                    position_text(tensor.shape, i), tensor.data[i]),
                        "initial weights must be finite");
    }
  }
  return weights;
}

Dataset load_training_data(const TrainOptions& options) {
  Dataset data = load_dataset(options.data);
  if (!options.normalize.empty()) normalize_images(data, options.normalize);
  return data;
}

void attach_network(TrainConfig& config, const TrainOptions& options, const Dataset& data) {
  const bool file = is_network_file(options.model);
  NetworkOptions wanted;
  wanted.dimensions = parse_dimensions(options.dimensions);
  if (!file && options.loss.empty() && !data.sample_shape.empty() && wanted.dimensions.empty() &&
      options.running_variance.empty()) {
    return;
  }
  if (file && options.loss.empty()) {
    throw usage_error(options.model + " does not say what to train it for",
                      "add --loss cross-entropy, --loss mse or --loss OUTPUT");
  }
  describe_samples(data, wanted);
  const LossSpec loss = parse_loss(options.loss.empty() ? "cross-entropy" : options.loss);
  config.build = [model = options.model, wanted, loss,
                  variance = options.running_variance](int64_t batch) {
    NetworkOptions sized = wanted;
    sized.batch = batch;
    Model network = load_network(model, sized);
    add_loss(network, loss);
    if (!variance.empty()) {
      set_running_variance(
          network, variance == "sample" ? RunningVariance::sample : RunningVariance::population);
    }
    return network;
  };
}

std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init) {
  try {
    return std::make_unique<Trainer>(config, data);
  } catch (const Error& e) {
    const std::string start = "initial weights: ", what = e.what();
    if (init.empty() || !what.starts_with(start)) throw;
    throw Error(fmt::format("initial weights {}: {}", init, what.substr(start.size())), e.hint(),
                e.kind());
  }
}

}  // namespace halfscope
