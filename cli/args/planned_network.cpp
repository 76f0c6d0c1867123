// SPDX-License-Identifier: MIT
#include "cli/args/planned_network.h"

#include "cli/args/network.h"
#include "cli/args/zoo_case.h"
#include "core/error.h"
#include "core/models/loss.h"
#include "core/models/models.h"

namespace halfscope {

Model planned_network(const Settings& settings) {
  NetworkOptions wanted = network_options(settings);
  wanted.batch = settings.batch > 0 ? settings.batch : kPlannedBatch;
  wanted.batch_given = settings.batch > 0;
  wanted.trains = !settings.loss.empty();
  const bool file = is_network_file(settings.model);
  if (zoo::is_zoo(settings.model)) return load_network(settings.model, wanted);
  const bool sized = !settings.sample_shape.empty() || settings.classes > 0;
  if (sized && (file || !settings.data.empty())) {
    throw usage_error("--shape and --classes are for built-in networks without --data",
                      file ? "set open dimensions of the file with --dimension NAME=N"
                           : "leave out --data or these two")
        .about({"shape", "classes"});
  }
  if (!settings.data.empty()) {
    describe_samples(load_data(settings.data), wanted);
  } else if (!file) {
    const UsualSamples usual = usual_samples(settings.model);
    wanted.sample_shape = settings.sample_shape.empty() ? usual.sample : settings.sample_shape;
    wanted.classes = settings.classes > 0 ? settings.classes : usual.classes;
  }
  if (file && settings.batch == 0) wanted.batch = 1;  // a file may be for one sample
  Model network = load_network(settings.model, wanted);
  if (!file || !settings.loss.empty()) {
    about({"loss"}, [&] {
      LossSpec loss =
          parse_loss(settings.loss.empty() ? usual_loss(settings.model) : settings.loss);
      loss.label_shape = wanted.label_shape;
      for (const std::string& note : add_loss(network, loss)) tell_once(settings.model, note);
    });
  }
  return network;
}

}  // namespace halfscope
