// SPDX-License-Identifier: MIT
// The verdict of `halfscope inspect` on tensors: losses and remedy, in sentences.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/numeric/statistics/tensor_stats.h"
#include "core/tensor.h"
#include "emulation/measure/format_losses.h"

namespace halfscope {

/// A share of nonzero values that become zero counts as a loss above this.
inline constexpr double kLossyShare = 0.01;

/// Returns a lower bound of the energy (sum of squares) of the values that become zero, as a share
/// of the tensor's: the `flushed` smallest ones, each at the lower end of its bin.
double flushed_energy(const TensorStats& stats, int64_t flushed) noexcept;

/// Values that overflow and underflow in a format.
struct ValueLoss {
  int64_t overflow = 0, underflow = 0;
  double energy = 0.0;  ///< flushed_energy()

  int64_t values() const noexcept { return overflow + underflow; }
  /// Returns whether a tensor loses more than rounding costs anyway: a value overflows; more than
  /// kLossyShare of its `non_zero` values become zero; or the values that become zero have more
  /// than u^2 of the energy, where u is the format's largest relative rounding error.
  bool matters(const FloatFormat& format, int64_t non_zero) const noexcept;
};

struct TensorLosses {
  std::string file, name, type;
  Shape shape;
  bool integer = false;  ///< integers or bool
  bool judged = true;    ///< the verdict covers it
  int64_t n = 0, zero = 0, nan = 0, infinite = 0;
  double smallest = 0.0, largest = 0.0;  ///< magnitudes; infinity and 0 without nonzero values
  std::vector<FormatLoss> formats;       ///< for each target
  int64_t non_zero = 0;                  ///< finite values that are not 0
  // About the main format, the first one without blocks:
  FormatLoss main{};
  bool lossy = false;  ///< its loss in the main format matters
  int shift = 0;       ///< the scale 2^shift loses least
  ValueLoss scaled{};  ///< at most, with that scale
  ValueLoss bf16{};    ///< at most, in bf16

  /// Returns the name as texts show it, with the file if there are several.
  std::string shown(bool with_file) const;
  /// Returns what to sort by, the worst first: whether it is judged, then the share of NaN and
  /// infinities, then for each kind of loss the share in the first format.
  std::array<double, 5> badness() const;
};

/// Takes integers out of the verdict if there are floats, too: frameworks convert floats only, so
/// batch counters and indices stay what they are.
void judge_floats_first(std::vector<TensorLosses>& tensors);

/// Returns the verdict, a sentence or more per line. `main` is null if all targets have blocks.
std::vector<std::string> tensor_verdict(const std::vector<TensorLosses>& worst_first,
                                        const TargetFormat* main, bool several_files);

}  // namespace halfscope
