// SPDX-License-Identifier: MIT
// Logits with an odd number of classes, and their gradients. Rows of 16-bit values that do not
// begin on 16 bytes cannot be multiplied in place, so a product would copy them in every step. In
// plain steps such values have padded rows instead: a product writes the logits so, the loss reads
// them, its gradient is written in the same form, and products read that. Recorded steps make the
// same calls of the library on padded copies.
#pragma once

#include <cstdint>
#include <map>

#include "core/lower/lower.h"
#include "gpu/engine/layout.h"

namespace halfscope::gpu {

/// Elements from one row of a value to the next, by value.
using RowPitches = std::map<ValueId, int64_t>;

/// Returns the values of an entry that have padded rows if a library can write them so.
RowPitches find_padded_rows(const Executable& executable, Entry entry, const Layout& layout);

/// A value's padded rows; without memory: it has none.
struct PaddedRows {
  void* memory = nullptr;
  int64_t pitch = 0;
};

}  // namespace halfscope::gpu
