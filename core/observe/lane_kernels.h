// SPDX-License-Identifier: MIT
// Descriptions of a GPU lane's kernels: what computes each product, and whether the work of an
// entry is launched as a CUDA graph. There are none for lanes on the CPU.
#pragma once

#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace halfscope {

struct ProductKernel {
  std::string lane, node, op, kernel;
};

struct EntryLaunch {
  std::string lane;
  std::string entry;  ///< "grad"
  std::string how;    ///< from Program::launches_of()
};

/// Returns the entry's name: "begin", "grad" ...
const char* entry_name(Entry entry);

/// Appends the kernels of a lane's products, in the order of the nodes.
void add_product_kernels(std::vector<ProductKernel>& kernels, const std::string& lane,
                         const Executable& executable, const Program& program);

/// Appends how those entries of a lane that have already run are launched.
void add_entry_launches(std::vector<EntryLaunch>& launches, const std::string& lane,
                        const Program& program);

}  // namespace halfscope
