// SPDX-License-Identifier: MIT
// Which vector instructions the kernels use. Results are the same bits for every choice.
#pragma once

#include <string>
#include <vector>

namespace halfscope {

enum class Isa { baseline, avx2, avx512 };

const char* isa_name(Isa isa) noexcept;

/// The instruction sets this processor has, weakest first; always starts with baseline.
/// avx2 means AVX2, FMA and F16C; avx512 means F, BW, DQ and VL on top of that.
std::vector<Isa> supported_isas();

/// The instruction set in use: HALFSCOPE_ISA if set, else the strongest supported one. Decided
/// once, at the first call. Throws Error for an unknown or unsupported HALFSCOPE_ISA.
Isa active_isa();

/// Tests only: uses another supported instruction set from now on.
void set_active_isa(Isa isa);

}  // namespace halfscope
