// SPDX-License-Identifier: MIT
// Inputs of `run`: arrays from files, the test part of a data set, or random numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/lower/lower.h"
#include "core/train/label_layout.h"

namespace halfscope {

/// Reads the arrays of --input: "x.npy" (for the only input), "x.npz" (by name) or "NAME=x.npy", as
/// the test part of a data set. Throws Error.
Dataset read_inputs(const std::vector<std::string>& texts);
/// Returns their files.
std::vector<std::string> input_array_files(const std::vector<std::string>& texts);

/// Returns uniform numbers in [-1, 1) for every real input of the network, positions below the
/// number of rows that are picked from for the others: the same for the same seed on every machine.
/// Inputs whose first dimension is `batch` have it for samples; samples of others have the input's
/// shape.
Dataset random_inputs(const Model& network, int64_t batch, int64_t samples, uint64_t seed);

/// Reads labels: the only array of a .npy or .npz, or its "labels" or "y". Throws Error.
SampleLabels read_labels(const std::string& file);
/// Returns the labels stored with the samples, if any.
SampleLabels labels_of(const Split& split);

/// Drops all samples after the first `count`.
void keep_first(Split& split, const Dataset& data, int64_t count);

}  // namespace halfscope
