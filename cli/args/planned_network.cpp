// SPDX-License-Identifier: MIT
#include "cli/args/planned_network.h"

#include "cli/args/network.h"
#include "cli/args/zoo_case.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/models/loss.h"

namespace halfscope {

Model planned_network(const Settings& settings) {
  NetworkOptions wanted = network_options(settings);
  wanted.batch = settings.batch > 0 ? settings.batch : kPlannedBatch;
  wanted.batch_given = settings.batch > 0;
  wanted.trains = !settings.loss.empty();
  const bool file = is_network_file(settings.model);
  if (zoo::is_zoo(settings.model)) return load_network(settings.model, wanted);
  const bool takes_images = !file && !settings.model.starts_with("mlp:");
  if (!settings.data.empty() || takes_images) {
    describe_samples(load_data(settings.data.empty() ? "digits" : settings.data), wanted);
  }
  if (file && settings.batch == 0) wanted.batch = 1;  // a file may be for one sample
  Model network = load_network(settings.model, wanted);
  if (!file || !settings.loss.empty()) {
    about({"loss"}, [&] {
      add_loss(network, parse_loss(settings.loss.empty() ? "cross-entropy" : settings.loss));
    });
  }
  return network;
}

}  // namespace halfscope
