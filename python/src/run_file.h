// SPDX-License-Identifier: MIT
// RunFile: a run file as Python sees it: rows, statistics by site and what the rules say.
#pragma once

#include <nanobind/nanobind.h>

namespace halfscope::python {

/// Adds the class RunFile to the module.
void bind_run_file(nanobind::module_& module);
/// Adds the class Recording and functions that measure and round to the module.
void bind_recording(nanobind::module_& module);

}  // namespace halfscope::python
