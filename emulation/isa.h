// SPDX-License-Identifier: MIT
// Selects the vector instructions of the kernels. The bits are the same for every choice.
#pragma once

#include <string>
#include <vector>

namespace halfscope {

enum class Isa { baseline, avx2, avx512 };

const char* isa_name(Isa isa) noexcept;

/// Returns the instruction sets of this processor, weakest first; the first is always baseline.
/// avx2 means AVX2, FMA and F16C; avx512 means F, BW, DQ and VL in addition.
std::vector<Isa> supported_isas();

/// Returns the instruction set in use: HALFSCOPE_ISA if set, otherwise the strongest supported one.
/// Decided once, at the first call. Throws Error if HALFSCOPE_ISA is unknown or unsupported.
Isa active_isa();

/// Switches to another supported instruction set. For tests only.
void set_active_isa(Isa isa);

}  // namespace halfscope
