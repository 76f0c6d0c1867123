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

namespace {

/// Returns the main input: the first one where all are indices.
const Value* main_input(const Executable& executable) {
  if (executable.input != kNone) return &executable.graph.value(executable.input);
  if (executable.inputs.empty()) return nullptr;
  return &executable.graph.value(executable.inputs.front().value);
}

}  // namespace

int64_t samples_of(const Executable& executable) {
  const Value* input = main_input(executable);
  return input == nullptr || input->shape.empty() ? 0 : input->shape[0];
}

std::string sample_text(const Executable& executable) {
  const Value* input = main_input(executable);
  if (input == nullptr || input->shape.size() < 2) return "";
  if (input->shape.size() == 2) {
    const char* of = input->type == ElementType::index ? "token" : "number";
    return std::to_string(input->shape[1]) + " " + of + (input->shape[1] == 1 ? "" : "s");
  }
  std::string text;
  for (size_t i = 1; i < input->shape.size(); ++i) {
    text += (i == 1 ? "" : "x") + std::to_string(input->shape[i]);
  }
  return text;
}

}  // namespace halfscope
