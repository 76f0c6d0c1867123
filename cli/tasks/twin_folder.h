// SPDX-License-Identifier: MIT
// Twins that halfscope.save_twin() of the Python package wrote: a PyTorch training as a folder of
// files (docs/reference/pytorch.md, "Twin").
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/args/settings.h"

namespace CLI {
class App;
}

namespace halfscope {

/// The outputs of a module of PyTorch's model in the first forward pass, in fp32.
struct TwinOutput {
  std::string module{}, node{};
  int64_t n = 0;
  double norm = 0.0;  ///< 2-norm
  double max_abs = 0.0;
};

/// The gradient of a parameter in PyTorch's first step, in fp32.
struct TwinGradient {
  std::string parameter{};
  double norm = 0.0;   ///< 2-norm
  double moved = 0.0;  ///< 2-norm of its change if each weight moves by one ulp
};

struct TwinFolder {
  std::string folder{};
  /// Flags of `train` and their values; "" of switches. Files are paths in the folder.
  std::vector<std::pair<std::string, std::string>> settings{};
  std::vector<double> losses{};           ///< of PyTorch's fp32 training, one for each step
  std::vector<TwinOutput> outputs{};      ///< in the order in which modules ran
  std::vector<TwinGradient> gradients{};  ///< in the order of the model's parameters
  /// Losses of PyTorch's training from weights that are moved by one ulp, up or down at random. NaN
  /// where they are not finite.
  std::vector<std::vector<double>> moved_losses{};
  /// Paths of modules with casts that change nothing in fp32, which the network therefore lacks; ""
  /// for the model itself.
  std::vector<std::string> lost_casts{};
  /// Paths of modules that switch autocast off, which the network does not say.
  std::vector<std::string> autocast_off{};

  /// Returns the name of the file that says all this.
  std::string file() const;
};

/// Returns whether the argument names a folder.
bool is_twin_folder(const std::string& name);

/// Reads twin.json. Throws Error if it is missing, invalid, or names files outside the folder.
TwinFolder read_twin(const std::string& folder);

/// Returns the settings that train the twin: its own, and flags of the command line for what the
/// twin leaves open. Throws Error (usage) for flags that would make it another training.
Settings twin_settings(const CLI::App& app, const TwinFolder& twin);

/// Returns the settings of PyTorch's training, at most its first `steps` steps.
Settings own_settings(const TwinFolder& twin, int64_t steps);

}  // namespace halfscope
