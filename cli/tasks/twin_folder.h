// SPDX-License-Identifier: MIT
// Twins that halfscope.save_twin() of the Python package wrote: a PyTorch training as a folder of
// files (docs/reference/pytorch.md, "Twin"). Before HalfScope judges plans on a twin, it repeats
// the fp32 losses that PyTorch recorded.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/args/settings.h"
#include "cli/terminal/output.h"

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

struct TwinFolder {
  std::string folder{};
  /// Flags of `train` and their values; "" of switches. Files are paths in the folder.
  std::vector<std::pair<std::string, std::string>> settings{};
  std::vector<double> losses{};       ///< of PyTorch's fp32 training, one for each step
  std::vector<TwinOutput> outputs{};  ///< in the order in which modules ran

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

/// Result of the repetition.
struct TwinMatch {
  int64_t steps = 0;
  bool bitwise = true;
  double largest = 0.0;  ///< largest |loss - PyTorch's loss| / |PyTorch's loss|
  double allowed = 0.0;  ///< largest difference that rounding explains, in the same units
  /// Places where the network drops elements. PyTorch drops others, so its losses are those without
  /// dropout, and so are HalfScope's here.
  int64_t dropouts = 0;

  /// Returns a sentence for a person.
  std::string text() const;
  Json json() const;
};

/// Trains float32 without dropout, and twice with weights moved by one fp32 ulp, and compares each
/// loss with PyTorch's. Throws Error that names the first step whose difference rounding does not
/// explain.
TwinMatch repeat_twin(const TwinFolder& twin, bool quiet);

}  // namespace halfscope
