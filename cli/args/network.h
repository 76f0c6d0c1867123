// SPDX-License-Identifier: MIT
// Networks by name or file. The only place that calls importers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/args/settings.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/lower/lower.h"
#include "core/onnx/import.h"
#include "core/plan/plan.h"

namespace halfscope {

struct NetworkOptions {
  int64_t batch = 1;         ///< samples at once, where the network leaves it open
  bool batch_given = false;  ///< given by the user: a file with another number is an error
  /// For built-in networks; see describe_samples().
  Shape sample_shape{};
  int64_t classes = 0;
  bool images = false;                 ///< the data are images, whose classes are known
  std::optional<Shape> label_shape{};  ///< of one sample's labels, if the data are known
  /// Other dimensions that a file leaves open, by name.
  std::map<std::string, int64_t> dimensions{};
  /// As in ImportOptions.
  std::vector<std::string> trainable{}, frozen{}, untied{};
  bool quiet = false;   ///< print neither notes nor doubts
  bool trains = false;  ///< print doubts about what trains

  /// Returns whether an option is set that only files support.
  bool asks_for_file() const {
    return !dimensions.empty() || !trainable.empty() || !frozen.empty() || !untied.empty();
  }
};

/// Returns the options that the settings give for the network's file.
NetworkOptions network_options(const Settings& settings);

/// Returns words for completing --plan: presets, kAsExported and plans of the zoo.
std::vector<std::string> plan_words();

/// Returns the list of networks for help texts: "lenet, ..., zoo:ID or FILE.onnx".
std::string known_networks();

/// Returns words for completing --model: "lenet", "mlp:" ...
std::vector<std::string> network_words();

/// Returns whether the text names a file rather than a built-in network.
bool is_network_file(const std::string& spec);
/// Throws Error if the text names a network file that does not exist.
void check_network_exists(const std::string& spec);

/// Loads the network without a loss, except for cases of the zoo that have one. `spec` is a
/// built-in name, "zoo:ID" or a file *.onnx. Throws Error, of kind usage for anything else.
Model load_network(const std::string& spec, const NetworkOptions& options);

/// Name of the plan for the formats of an ONNX file's own tensors.
inline constexpr const char* kAsExported = "as_exported";

/// Prints a note about a network to standard error, once.
void tell_once(const std::string& network, const std::string& note);

/// Loads a network file with all its details, and prints its notes once. Throws Error, of kind
/// usage if no input's first dimension is the given batch.
OnnxImport load_network_file(const std::filesystem::path& file, const NetworkOptions& options);

/// Transposes the weights that the network's file has the other way round than the framework it
/// comes from (ImportParameter::turned): from the framework's form to the file's, and back. Names
/// may separate scopes by dots or slashes, and may belong to averages.
void turn_weights(NamedTensors& weights, const Settings& settings);

/// Returns the error for a --batch other than the number of samples that the file takes at once:
/// says whether the file or --dimension fixes it, and what to do.
Error batch_error(const std::string& file, const OnnxImport& import, int64_t batch, int64_t takes);

/// Returns whether `batch` is the first dimension of an input. Inputs without dimensions and
/// vectors of a fixed length take one sample. A network that trains on nothing else takes a number
/// for each sample.
bool takes_batch(const OnnxImport& import, int64_t batch, bool trains = false);

/// Returns the first dimension of the first input that has one for samples, or 1.
int64_t samples_at_once(const OnnxImport& import, bool trains = false);

/// Loads a preset, a file, a plan of the zoo, or kAsExported of that network. Throws Error, of kind
/// usage for what cannot be a plan.
Plan network_plan(const std::string& plan, const std::string& network,
                  const NetworkOptions& options);

/// Fills in what built-in networks need from the data: the shape of a sample and the number of
/// classes.
void describe_samples(const Dataset& data, NetworkOptions& options);

/// Reads "sequence=64" of --dimension as name and size. Throws Error (usage).
std::pair<std::string, int64_t> parse_dimension(const std::string& text);
int64_t parse_dimension_size(const std::string& text);

}  // namespace halfscope
