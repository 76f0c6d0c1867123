// SPDX-License-Identifier: MIT
// Set-up of lanes: initial weights and averages, pairs to compare, checkers of kernels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/model.h"
#include "core/train/lane.h"

namespace halfscope {

/// Returns the initial values of a model's variables: drawn from `seed`, replaced by
/// Model::initial, replaced by `init`. A key of `init` may separate the scopes of a path by dots,
/// as PyTorch does: "layer1.0.conv1.weight" for "layer1/0/conv1.weight". Moving averages
/// ("fc1.weight.ema") are included unchanged. Throws Error (usage) for a key that does not fit.
NamedTensors starting_weights(const Model& model, uint64_t seed, const NamedTensors& init);

/// Returns the same and frees Model::initial, which the model no longer needs.
NamedTensors take_starting_weights(Model& model, uint64_t seed, const NamedTensors& init);

/// Frees the memory of tensors that are no longer needed; if they are large, the system gets it
/// back.
void free_tensors(NamedTensors& tensors);

/// Returns the weights that write_weights() would write for `start`.
NamedTensors moved_start(const Graph& graph, NamedTensors start, const LaneConfig& lane);

/// Makes the backward pass start from 1 / micro_batches instead of the loss scale, as if the loss
/// had not been scaled.
void leave_loss_unscaled(Graph& graph, ValueId loss_scale, int64_t micro_batches);

/// Writes the weights that the program has: rounded to Plan::initial, and moved by one ulp if the
/// lane has a noise seed.
void write_weights(Program& program, const Graph& graph, const NamedTensors& weights,
                   const LaneConfig& lane = {});

/// Initializes the averages from `weights`; averages that it lacks start from the program's
/// weights.
void write_averages(Program& program, const Executable& executable, const NamedTensors& weights);

/// Replaces the weights by the averages; returns the weights, for put_back().
std::vector<std::vector<double>> put_averages(Program& program, const Executable& executable);
void put_back(Program& program, const Executable& executable,
              const std::vector<std::vector<double>>& weights);

/// Lowers a plain `float32` lane like the lanes that it is the reference of. Adds a reference,
/// `float32~LANE`, for every lane that is lowered differently from all existing references. Without
/// a lane in fp32 there are no references, and the lanes are returned unchanged.
std::vector<LaneConfig> with_references(std::vector<LaneConfig> lanes);

/// Returns the pairs of lanes to compare. Throws Error (usage) for pairs that cannot be compared.
std::vector<std::pair<size_t, size_t>> lane_pairs(const ErrorSampling& errors,
                                                  std::span<const LaneConfig> lanes);

/// Returns the description of a lane for a run file.
LaneInfo describe_lane(const LaneConfig& lane, const Executable& executable);

/// Returns the checker of the lane's kernels; null if they are the emulator's or no checks are
/// requested.
std::unique_ptr<KernelChecker> kernel_checker(const ErrorSampling& errors, const LaneConfig& lane,
                                              const Executable& executable);

}  // namespace halfscope
