// SPDX-License-Identifier: MIT
// Answers to "would this run fit into that format?", in words.
#pragma once

#include <span>
#include <string>

#include "analysis/spectrum/spectrum.h"

namespace halfscope {

/// Returns the lens's name: "e4m3fn, a scale per tensor", "mxfp8_e4m3"; "as recorded" for the
/// default one.
std::string lens_name(const Lens& lens);

/// Returns one or two sentences: what the values of the spectrum lose through the lens, where most,
/// and whether a scale for each tensor would help.
std::string lens_answer(const Spectrum& spectrum, std::span<const SpectrumChart> charts,
                        const Lens& lens);

}  // namespace halfscope
