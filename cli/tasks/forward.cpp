// SPDX-License-Identifier: MIT
#include "cli/tasks/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/args/lanes.h"
#include "cli/args/zoo_case.h"
#include "cli/tasks/run_input.h"
#include "core/error.h"
#include "core/train/label_layout.h"

namespace halfscope {
namespace {

constexpr int64_t kUsualBatch = 128;

Samples read_samples(const Settings& settings, TrainPart train) {
  Samples samples;
  if (!settings.data.empty()) {
    samples.data = about({"data"}, [&] { return load_data(settings.data); });
    // A file of arrays without a test part has nothing that was set aside.
    const bool whole = samples.data.test.size() == 0 && !samples.data.train.arrays.empty();
    if (whole) samples.data.test = std::move(samples.data.train);
    if (whole || train == TrainPart::drop) samples.data.train = {};
    if (samples.data.test.size() == 0) {
      throw usage_error("--data '" + settings.data + "' has no test part", "use --input")
          .about({"data"});
    }
  } else {
    samples.data = about({"input"}, [&] { return read_inputs(settings.inputs); });
  }
  if (!settings.normalize.empty()) {
    about({"normalize"}, [&] { normalize_images(samples.data, settings.normalize); });
  }
  samples.labels = settings.labels.empty()
                       ? labels_of(samples.data.test)
                       : about({"labels"}, [&] { return read_labels(settings.labels); });
  const auto labels = static_cast<int64_t>(samples.labels.values.size());
  const int64_t per_sample = element_count(samples.labels.shape);
  if (labels != per_sample * samples.data.test.size() && labels > 0) {
    throw usage_error(fmt::format("labels {}: {} labels for {} samples", settings.labels, labels,
                                  samples.data.test.size()),
                      "give one label for each sample, or one for each of its pixels")
        .about({"labels"});
  }
  if (settings.limit > 0) {
    keep_first(samples.data.test, samples.data, settings.limit);
    if (labels > settings.limit * per_sample) {
      samples.labels.values.resize(static_cast<size_t>(settings.limit * per_sample));
    }
  }
  return samples;
}

/// Says which of several outputs the labels are compared with. Forgets labels that are stored with
/// the samples and fit no output: they may have another purpose.
void match_labels(Work& work, bool stored) {
  SampleLabels& labels = work.samples.labels;
  const std::vector<NamedValue>& outputs = work.network.outputs;
  if (labels.values.empty() || outputs.empty() || !labels.output.empty()) return;
  const std::vector<size_t> fitting =
      outputs_with_scores(work.network.graph, outputs, work.wanted.batch, labels);
  if (fitting.size() > 1) {
    fmt::print(stderr,
               "note: output {} is compared with the labels, the first of {} that may have class "
               "scores; --scores {} takes the next\n",
               outputs[fitting[0]].name, fitting.size(), outputs[fitting[1]].name);
  }
  if (!fitting.empty() || !stored) return;
  fmt::print(stderr, "note: {} does not fit any output, so there is no accuracy\n",
             labels.shape.empty() ? std::string("one label per sample")
                                  : "a label of shape " + to_string(labels.shape) + " per sample");
  labels = {};
}

}  // namespace

Work read_work(const Settings& settings, TrainPart train) {
  Work work;
  work.wanted = network_options(settings);
  if (!settings.random_input) {
    work.samples = read_samples(settings, train);
    describe_samples(work.samples.data, work.wanted);
  }
  const int64_t available =
      settings.random_input ? std::max<int64_t>(settings.limit, 1) : work.samples.data.test.size();
  work.wanted.batch = settings.batch > 0 ? settings.batch : std::min(kUsualBatch, available);
  OnnxImport imported;
  if (is_network_file(settings.model)) {
    imported = load_network_file(settings.model, work.wanted);
  } else {
    imported.model = load_network(settings.model, work.wanted);
    if (zoo::is_zoo(settings.model)) work.wanted.batch = samples_at_once(imported);
  }
  if (settings.random_input) {
    // A network of one sample at a time has a dimension of 1 for it, or none.
    const int64_t first = samples_at_once(imported);
    const int64_t batch = first == work.wanted.batch || first == 1 ? first : 0;
    work.samples.data = random_inputs(imported.model, batch, available, *settings.random_input);
  }
  work.network = std::move(imported.model);
  work.samples.labels.output = settings.scores;
  work.samples.labels.ignored = settings.ignore_label.value_or(work.samples.labels.ignored);
  match_labels(work, settings.labels.empty());
  return work;
}

std::string random_weights_note(const Settings& settings, const Model& network) {
  if (settings.quiet || !settings.init.empty() || zoo::is_zoo(settings.model)) return "";
  const std::vector<Variable>& variables = network.graph.variables();
  const bool random = std::any_of(variables.begin(), variables.end(), [&](const Variable& each) {
    return each.initializer.bound > 0.0 && !network.initial.contains(each.path);
  });
  if (!random) return "";
  return fmt::format("note: {} has random weights (seed {}); --init FILE reads trained ones\n",
                     settings.model, settings.seed);
}

RunnerConfig runner_config(const Settings& settings) {
  RunnerConfig config{.lanes = lanes_of(settings), .seed = settings.seed};
  const ErrorSampling errors = error_sampling(settings);
  if (!settings.record.empty()) {
    config.errors = errors;
    config.every = settings.every;
  }
  return config;
}

}  // namespace halfscope
