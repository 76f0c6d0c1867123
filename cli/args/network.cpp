// SPDX-License-Identifier: MIT
#include "cli/args/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "cli/args/arguments.h"
#include "cli/args/zoo_case.h"
#include "cli/terminal/network_summary.h"
#include "core/error.h"
#include "core/lower/weight_average.h"
#include "core/models/models.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr uint64_t kLargestDimension = uint64_t{1} << 31;

bool is_answer(const SampleArray& array) {
  return array.name == "labels" || array.name == "targets" || array.name == "y";
}

/// The file's inputs that have a dimension for samples. Where that is not open, a vector is one
/// sample, except in the training of a network that takes nothing else: a number for each sample.
std::vector<const Input*> inputs_of_samples(const OnnxImport& import, bool trains = false) {
  const bool open = !import.open_batch.empty() || !import.given_batch.empty();
  std::vector<const Input*> inputs, vectors;
  for (const Input& input : import.model.graph.inputs()) {
    const size_t dimensions = import.model.graph.value(input.value).shape.size();
    if (dimensions > 1 || (dimensions == 1 && open)) inputs.push_back(&input);
    if (dimensions == 1) vectors.push_back(&input);
  }
  return inputs.empty() && trains ? vectors : inputs;
}

}  // namespace

bool takes_batch(const OnnxImport& import, int64_t batch, bool trains) {
  const std::vector<const Input*> inputs = inputs_of_samples(import, trains);
  if (inputs.empty()) return batch == 1;
  return std::any_of(inputs.begin(), inputs.end(), [&](const Input* input) {
    return import.model.graph.value(input->value).shape[0] == batch;
  });
}

int64_t samples_at_once(const OnnxImport& import, bool trains) {
  const std::vector<const Input*> inputs = inputs_of_samples(import, trains);
  return inputs.empty() ? 1 : import.model.graph.value(inputs.front()->value).shape[0];
}

Error batch_error(const std::string& file, const OnnxImport& import, int64_t batch, int64_t takes) {
  const std::string samples = takes == 1 ? "1 sample" : fmt::format("{} samples", takes);
  if (!import.given_batch.empty()) {
    return usage_error(fmt::format("--dimension {0}={2} lets {1} take {3} at once, not the {4} of "
                                   "--batch",
                                   import.given_batch, file, takes, samples, batch),
                       "leave out one of the two")
        .about({"dimension", "batch"});
  }
  std::string hint = "leave --batch out, or export the network again with a symbolic batch";
  if (const auto inputs = inputs_of_samples(import); !inputs.empty()) {
    hint +=
        fmt::format("; --dimension {}.0={} tries it with this file", inputs.front()->name, batch);
  }
  std::string what =
      fmt::format("{} takes {} at once, not the {} of --batch", file, samples, batch);
  if (!import.one_sample.empty()) what += ": " + import.one_sample;
  return usage_error(what, hint).about({"batch"});
}

NetworkOptions network_options(const Settings& settings) {
  return {.dimensions = settings.dimensions,
          .trainable = settings.trainable,
          .frozen = settings.frozen,
          .untied = settings.untied};
}

namespace {

Tensor transposed(const Tensor& from) {
  Tensor to{{from.shape[1], from.shape[0]}, std::vector<float>(from.data.size())};
  const auto rows = static_cast<size_t>(from.shape[0]),
             columns = static_cast<size_t>(from.shape[1]);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column)
      to.data[column * rows + row] = from.data[row * columns + column];
  }
  return to;
}

std::string with_dots(std::string name) {
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

}  // namespace

void turn_weights(NamedTensors& weights, const Settings& settings) {
  if (!is_network_file(settings.model) || weights.empty()) return;
  NetworkOptions options = network_options(settings);
  options.quiet = true;
  std::set<std::string> turned;
  for (const ImportParameter& parameter : load_network_file(settings.model, options).parameters) {
    if (!parameter.turned) continue;
    turned.insert(with_dots(parameter.name));
    turned.insert(with_dots(average_path(parameter.name)));
  }
  for (auto& [name, tensor] : weights) {
    if (tensor.shape.size() == 2 && turned.contains(with_dots(name))) tensor = transposed(tensor);
  }
}

void tell_once(const std::string& network, const std::string& note) {
  static std::set<std::string> told;  // a training reads the file several times
  if (told.insert(network + note).second) fmt::print(stderr, "note: {}: {}\n", network, note);
}

OnnxImport load_network_file(const std::filesystem::path& file, const NetworkOptions& options) {
  check_network_exists(file.string());
  OnnxImport import = about({"model", "network", "dimension"}, [&] {
    return read_onnx(file, {.batch = options.batch,
                            .dimensions = options.dimensions,
                            .trainable = options.trainable,
                            .frozen = options.frozen,
                            .untied = options.untied});
  });
  if (options.batch_given && !takes_batch(import, options.batch, options.trains)) {
    throw batch_error(file.string(), import, options.batch,
                      samples_at_once(import, options.trains));
  }
  if (options.quiet) return import;
  for (const std::string& note : import.notes) tell_once(file.string(), note);
  if (!options.trains) return import;
  static std::set<std::string> told;
  bool doubtful = false;
  for (const ImportDoubt& doubt : import.doubts) {
    if (!told.insert(doubt.name + doubt.why).second) continue;
    fmt::print(stderr, "warning: {}: {}: {}\n", file.string(), doubt.name, doubt.why);
    doubtful = true;
  }
  if (doubtful) fmt::print(stderr, "hint: {}\n", kDoubtHint);
  return import;
}

std::string known_networks() { return comma_list(model_names()) + ", zoo:ID or FILE.onnx"; }

std::vector<std::string> network_words() {
  std::vector<std::string> names = model_names();
  for (std::string& name : names) {
    if (const size_t colon = name.find(':'); colon != std::string::npos) name.resize(colon + 1);
  }
  names.emplace_back(zoo::kPrefix);
  return names;
}

std::vector<std::string> plan_words() {
  std::vector<std::string> words;
  for (const PresetInfo& preset : presets()) words.push_back(preset.name);
  words.emplace_back(kAsExported);
  for (const std::string& name : zoo::zoo_plan_names()) words.push_back("zoo:" + name);
  return words;
}

bool is_network_file(const std::string& spec) { return spec.ends_with(".onnx"); }

void check_network_exists(const std::string& spec) {
  std::error_code failed;
  if (!is_network_file(spec) || std::filesystem::exists(spec, failed)) return;
  throw Error("cannot open '" + spec + "': file not found", "check the path")
      .about({"model", "network"});
}

constexpr int64_t kUsualClasses = 10;  // of MNIST and CIFAR-10, which the built-in ones are for

Model load_network(const std::string& spec, const NetworkOptions& options) {
  if (is_network_file(spec)) return load_network_file(spec, options).model;
  if (!options.dimensions.empty()) {
    throw usage_error("--dimension is for network files, but '" + spec + "' is built in",
                      "leave it out")
        .about({"model", "network", "dimension"});
  }
  if (options.asks_for_file()) {
    throw usage_error(
        "--trainable, --frozen and --untie are for ONNX files, but '" + spec + "' is built in",
        "leave them out")
        .about({"model", "network", "trainable", "frozen", "untie"});
  }
  if (zoo::is_zoo(spec)) return zoo_network(spec);
  Shape shape = options.sample_shape;
  int64_t classes = options.classes;
  if (spec.starts_with("mlp:") && !options.images) {
    // Nothing but its name has to be known: other samples are vectors of the first width.
    const std::vector<int64_t> widths = mlp_widths(spec);
    if (element_count(shape) != widths.front()) shape = {widths.front()};
    classes = widths.back();
  }
  // Where there is no data, or none with labels, nothing says otherwise.
  const UsualSamples usual = usual_samples(spec);
  if (shape.empty()) {
    shape = usual.sample;
    if (classes == 0) classes = usual.classes;
  }
  if (classes == 0) classes = kUsualClasses;
  return build_network(spec, options.batch, shape, classes);
}

Plan network_plan(const std::string& plan, const std::string& network,
                  const NetworkOptions& options) {
  if (zoo::is_zoo(plan)) return zoo_plan_of(plan);
  if (plan != kAsExported) return load_plan(plan);
  if (network.empty()) {
    throw usage_error("as_exported is the plan of an ONNX file and needs one",
                      "add --model FILE.onnx");
  }
  if (!is_network_file(network)) {
    throw usage_error("as_exported is the plan of an ONNX file, but '" + network + "' is built in",
                      "name another plan");
  }
  return load_network_file(network, options).types;
}

void describe_samples(const Dataset& data, NetworkOptions& options) {
  options.sample_shape = data.sample_shape;
  options.classes = data.classes;
  options.images = !data.sample_shape.empty();
  if (options.images) return;  // arrays beside them are answers
  // A text says how many tokens there are; other arrays only show which labels occur.
  const bool counted = data.classes > 0;
  const std::vector<SampleArray>& arrays =
      data.train.arrays.empty() ? data.test.arrays : data.train.arrays;
  for (const SampleArray& array : arrays) {
    if (!is_answer(array)) {
      options.sample_shape = array.sample_shape;
    } else if (!array.integers.empty()) {
      if (array.name != "targets") options.label_shape = array.sample_shape;
      if (counted) continue;
      options.classes =
          int64_t{*std::max_element(array.integers.begin(), array.integers.end())} + 1;
    }
  }
}

std::pair<std::string, int64_t> parse_dimension(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw usage_error("--dimension '" + text + "': no name in front of '='",
                      "write for example --dimension sequence=64");
  }
  return {text.substr(0, equals), parse_dimension_size(text.substr(equals + 1))};
}

int64_t parse_dimension_size(const std::string& text) {
  return static_cast<int64_t>(parse_integer("--dimension", text, 1, kLargestDimension));
}

}  // namespace halfscope
