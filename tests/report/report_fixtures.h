// SPDX-License-Identifier: MIT
// Runs for the tests and the bench of the reports: what synthetic.h makes, with errors against
// another lane, a proof, and other ways for a run to end.
#pragma once

#include <string>

#include "tests/report/synthetic.h"

namespace halfscope::test {

/// Two sampled steps of errors of lane 1 against lane 0: conv1.activation is the first to differ
/// (in step 4), `adder` adds most.
void add_errors(RunView& run, const std::string& adder = "conv2");

/// Returns a successful proof for conv2 and fc1 of mixed_float16; fc2 proved unnecessary.
std::string proof_json();

/// hot_spec with the advised lane beside it, errors and a proof: everything a report can show.
RunView full_run();

/// A chain of `layers` Gemms in fp32 and mixed_float16, one step, with errors.
RunView large_run(int layers);

/// Returns the same run with another status, as if `planned` steps had been planned.
RunView with_status(const RunView& run, RunStatus status, int64_t planned);

}  // namespace halfscope::test
