// SPDX-License-Identifier: MIT
// A folder of tensors that another program saved, as a run (docs/reference/tensors.md): the way in
// for frameworks that the Python package does not record.
#pragma once

#include <string>

namespace halfscope {

/// Measures the tensors of a folder and writes a run file. Returns a line that says what it
/// contains. Throws Error, and writes nothing, if it refuses a name, a type or a link.
std::string record_tensor_folder(const std::string& folder, const std::string& out, bool force);

}  // namespace halfscope
