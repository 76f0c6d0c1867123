// SPDX-License-Identifier: MIT
// Chooses how a format is rounded to, and its constants.
#pragma once

#include "core/numeric/float_format.h"
#include "emulation/measure/kernels.h"

namespace halfscope::measure_detail {

RoundSpec make_round_spec(const FloatFormat& format) noexcept;

}  // namespace halfscope::measure_detail
