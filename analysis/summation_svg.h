// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "core/numeric/summation_tree.h"

namespace halfscope {

/// The tree as a picture, SVG 1.1, the same bytes for the same tree.
std::string draw_svg(const SummationTree& tree, const std::string& title);

}  // namespace halfscope
