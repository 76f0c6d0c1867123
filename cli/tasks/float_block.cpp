// SPDX-License-Identifier: MIT
#include "cli/tasks/float_pages.h"
namespace halfscope::lab {
void show_block(const std::string&, const std::string&, const std::vector<std::string>&,
                const FloatChoice&) {}
}  // namespace halfscope::lab
