// SPDX-License-Identifier: MIT
// Hashes of the samples and the network of a training, to tell two trainings apart whose settings
// name them alike. The same on every machine.
#pragma once

#include <cstdint>

#include "core/data/dataset.h"
#include "core/graph/graph.h"

namespace halfscope {

/// Returns `start` extended by the samples of a part: the hash of everything so far.
uint64_t hash_samples(const Split& split, uint64_t start) noexcept;

/// Returns the hash of a network's structure: its operators with their attributes, shapes, the
/// paths of its variables, and its constants. Weights are not part of it.
uint64_t hash_structure(const Graph& graph);

}  // namespace halfscope
