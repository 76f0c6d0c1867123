// SPDX-License-Identifier: MIT
// Statistics of captured tensors, with the tap of the emulator: they equal measure() of
// core/numeric/statistics on the same numbers as fp32, bit for bit.
#pragma once

#include "core/numeric/formats/float_format.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "python/src/elements.h"

namespace halfscope::python {

/// Returns the statistics of a tensor under a format.
TensorStats measure_elements(const Elements& elements, const FloatFormat& format);

/// Returns the statistics of after - before. `before` has the bytes of the same tensor. An element
/// that did not change although its gradient is not zero counts as a lost update, whose size is
/// unknown: it is in `n` and `lost`, but not in `zero` and the histogram. `gradient` may be null.
TensorStats measure_update(const uint8_t* before, const Elements& after, const Elements* gradient,
                           const FloatFormat& format);

/// Returns the statistics of an optimizer state that is a mean of squares. A zero whose mean of
/// gradients (`mean`, same order) is not zero was flushed: it counts as underflow.
TensorStats measure_squares(const Elements& squares, const Elements& mean,
                            const FloatFormat& format);

}  // namespace halfscope::python
