// SPDX-License-Identifier: MIT
// Make-believe runs as if another framework had trained them.
#pragma once

#include "tests/report/synthetic.h"

namespace halfscope::test {

/// Returns the narrow lane of a run as if it had been recorded in PyTorch: without a reference, and
/// measured after rounding, so that overflows are infinities and underflows zeros.
RunView captured(const RunSpec& spec);

}  // namespace halfscope::test
