// SPDX-License-Identifier: MIT
// The verdict of `halfscope inspect` on tensors: losses and remedy, in sentences.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "emulation/measure/format_losses.h"

namespace halfscope {

struct TensorLosses {
  std::string file, name, type;
  Shape shape;
  int64_t n = 0, zero = 0, nan = 0, infinite = 0;
  double smallest = 0.0, largest = 0.0;  ///< magnitudes; infinity and 0 without nonzero values
  std::vector<FormatLoss> formats;       ///< for each target
  int64_t non_zero = 0;                  ///< finite values that are not 0
  // About the main format, the first one without blocks:
  FormatLoss main{};
  int shift = 0;            ///< the scale 2^shift loses least
  int64_t lost_scaled = 0;  ///< the most values that overflow or underflow at that scale
  int64_t lost_bf16 = 0;    ///< the most values that overflow or underflow in bf16

  /// Returns the name as texts show it, with the file if there are several.
  std::string shown(bool with_file) const;
  /// Returns shares to sort by, the worst first: NaN and infinities, then for each kind of loss the
  /// share in the first format.
  std::array<double, 4> badness() const;
};

/// Returns the verdict, a sentence or more per line. `main` is null if all targets have blocks.
std::vector<std::string> tensor_verdict(const std::vector<TensorLosses>& worst_first,
                                        const TargetFormat* main, bool several_files);

}  // namespace halfscope
