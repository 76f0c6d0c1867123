// SPDX-License-Identifier: MIT
// Chooses how the kernels round to a format, and computes their constants.
#pragma once

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "emulation/measure/kernels.h"

namespace halfscope::measure_detail {

RoundSpec make_round_spec(const FloatFormat& format, const TensorRounding& rounding) noexcept;

}  // namespace halfscope::measure_detail
