// SPDX-License-Identifier: MIT
// What lanes begin with: weights and averages, pairs to compare, what checks their kernels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/model.h"
#include "core/train/lane.h"

namespace halfscope {

/// What the variables of a model start from: drawn from `seed`, replaced by Model::initial,
/// replaced by `init`. A key of `init` may write the scopes of a path with dots, as PyTorch does:
/// "layer1.0.conv1.weight" for "layer1/0/conv1.weight". Moving averages ("fc1.weight.ema") come
/// along as they are. Throws Error (usage) for a key that does not fit.
NamedTensors starting_weights(const Model& model, uint64_t seed, const NamedTensors& init);

/// The same for a model that is told of its Model::initial here and needs it no longer.
NamedTensors take_starting_weights(Model& model, uint64_t seed, const NamedTensors& init);

/// Frees the memory of tensors that nobody needs any more, for the system to give to others.
void free_tensors(NamedTensors& tensors);

/// What write_weights() makes of the weights of `start`.
NamedTensors moved_start(const Graph& graph, NamedTensors start, const LaneConfig& lane);

/// Writes those that the program has, moved as the lane's noise seed says.
void write_weights(Program& program, const Graph& graph, const NamedTensors& weights,
                   const LaneConfig& lane = {});

/// Starts the averages with those of `weights`, where it has none with the weights of the program.
void write_averages(Program& program, const Executable& executable, const NamedTensors& weights);

/// Puts the averages in place of the weights; returns these, for put_back().
std::vector<std::vector<double>> put_averages(Program& program, const Executable& executable);
void put_back(Program& program, const Executable& executable,
              const std::vector<std::vector<double>>& weights);

/// Lowers a plain `float32` lane as the lanes that it is the reference of, and adds a reference,
/// `float32~LANE`, for every lane that is lowered in another way than all references there are.
/// Without a lane in fp32 there are no references, and the lanes stay as they are.
std::vector<LaneConfig> with_references(std::vector<LaneConfig> lanes);

/// Which lanes are compared with which. Throws Error (usage) for pairs that cannot be.
std::vector<std::pair<size_t, size_t>> lane_pairs(const ErrorSampling& errors,
                                                  std::span<const LaneConfig> lanes);

/// What checks the lane's kernels; null if they are the emulator's or no checks are asked for.
std::unique_ptr<KernelChecker> kernel_checker(const ErrorSampling& errors, const LaneConfig& lane,
                                              const Executable& executable);

}  // namespace halfscope
