// SPDX-License-Identifier: MIT
// Networks by what is typed: a built-in name or a file. The one place where importers are called.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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
  bool batch_given = false;  ///< somebody wants that number: a file that has another is an error
  /// Of built-in networks; see describe_samples().
  Shape sample_shape{};
  int64_t classes = 0;
  bool images = false;  ///< the data are images, whose classes are known
  /// Other dimensions that a file leaves open, by name.
  std::map<std::string, int64_t> dimensions{};
  /// As in ImportOptions.
  std::vector<std::string> trainable{}, frozen{}, untied{};
  bool quiet = false;   ///< print neither notes nor doubts
  bool trains = false;  ///< what trains matters: doubts are printed

  /// Whether something is asked for that only files have.
  bool asks_for_file() const {
    return !dimensions.empty() || !trainable.empty() || !frozen.empty() || !untied.empty();
  }
};

/// What the settings say of the network's file.
NetworkOptions network_options(const Settings& settings);

/// What a shell can begin --plan with: the presets and kAsExported.
std::vector<std::string> plan_words();

/// What a shell can begin --model with: "lenet", "mlp:" ...
std::vector<std::string> network_words();

/// Whether the text names a file rather than a built-in network.
bool is_network_file(const std::string& spec);

/// The network without a loss, but for cases of the zoo that have one. `spec` is a built-in name,
/// "zoo:ID" or a file *.onnx. Throws Error, of kind
/// usage for what cannot be a network.
Model load_network(const std::string& spec, const NetworkOptions& options);

/// The plan that stands for the formats of an ONNX file's own tensors.
inline constexpr const char* kAsExported = "as_exported";

/// The same of a file, with all that is known of it. Tells its notes once. Throws Error, of kind
/// usage where no input's first dimension is the batch that was given.
OnnxImport load_network_file(const std::filesystem::path& file, const NetworkOptions& options);

/// A --batch that does not agree with how many samples the network of a file takes at once: says
/// who fixes that, the file or --dimension, and what can be done.
Error batch_error(const std::string& file, const OnnxImport& import, int64_t batch, int64_t takes);

/// Whether that is the first dimension of one of its inputs. One sample is what inputs without any
/// dimension take, and vectors whose length the file fixes.
bool takes_batch(const OnnxImport& import, int64_t batch);

/// The first dimension of the first input that has one for samples; 1 if none has.
int64_t samples_at_once(const OnnxImport& import);

/// A preset, a file, a plan of the zoo, or kAsExported of that network. Throws Error, of kind usage
/// for what cannot be a plan.
Plan network_plan(const std::string& plan, const std::string& network,
                  const NetworkOptions& options);

/// Fills in what built-in networks want to know of the data: the shape of a sample of the network's
/// input, and the number of classes.
void describe_samples(const Dataset& data, NetworkOptions& options);

/// "sequence=64" of --dimension: the name and the size. Throws Error (usage).
std::pair<std::string, int64_t> parse_dimension(const std::string& text);
int64_t parse_dimension_size(const std::string& text);

}  // namespace halfscope
