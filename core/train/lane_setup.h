// SPDX-License-Identifier: MIT
// What lanes in lock step need before and beside their steps, whether they train or only infer:
// weights, pairs to compare, their description in a run file, comparisons.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/observe/kernel_check.h"
#include "core/train/trainer.h"

namespace halfscope {

/// What the variables of a model start from: drawn from `seed`, replaced by Model::initial,
/// replaced by `init`. A key of `init` may write the scopes of a path with dots, as PyTorch does:
/// "layer1.0.conv1.weight" for "layer1/0/conv1.weight". Moving averages ("fc1.weight.ema") come
/// along as they are. Throws Error (usage) for a key that does not fit.
NamedTensors starting_weights(const Model& model, uint64_t seed, const NamedTensors& init);

/// Writes those that the program has; a noise seed other than 0 moves each by one fp32 ulp.
void write_weights(Program& program, const Graph& graph, const NamedTensors& weights,
                   uint64_t noise_seed = 0);

/// Why a lane cannot begin.
struct SetupFailure {
  std::string why, hint;
};

/// Does `work`, which compiles the lane's program or writes to it, and returns what it failed over
/// where there is no memory for it or the device is lost: that is the end of this lane alone. Any
/// other Error is thrown on, with the lane's name.
std::optional<SetupFailure> set_up_lane(const LaneConfig& lane, const std::function<void()>& work);

/// "lane A: out of memory; lane B: ...", with the hint of the first. `Lost` has name, why and hint.
template <class Lost>
Error no_lane_left(const std::vector<Lost>& lanes) {
  std::string text;
  for (const Lost& lost : lanes) {
    text += (text.empty() ? "lane " : "; lane ") + lost.name + ": " + lost.why;
  }
  return Error(text, lanes.front().hint);
}

/// Starts the averages with those of `weights`, where it has none with the weights of the program.
void write_averages(Program& program, const Executable& executable, const NamedTensors& weights);

/// Puts the averages in place of the weights; returns these, for put_back().
std::vector<std::vector<double>> put_averages(Program& program, const Executable& executable);
void put_back(Program& program, const Executable& executable,
              const std::vector<std::vector<double>>& weights);

/// Which lanes are compared with which. Throws Error (usage) for pairs that cannot be.
std::vector<std::pair<size_t, size_t>> lane_pairs(const ErrorSampling& errors,
                                                  std::span<const LaneConfig> lanes);

/// What checks the lane's kernels; null if they are the emulator's or no checks are asked for.
std::unique_ptr<KernelChecker> kernel_checker(const ErrorSampling& errors, const LaneConfig& lane,
                                              const Executable& executable);

LaneInfo describe_lane(const LaneConfig& lane, const Executable& executable);

/// Order of the first site, states left aside, that overflowed or made a non-finite value; -1 if
/// there is none.
int first_bad_site(const Executable& executable, std::span<const TensorStats> stats);

/// What happened in the sums behind the taps of the last run.
std::vector<SiteSums> diagnosed_sums(const Executable& executable, const Program& program,
                                     int64_t step);

}  // namespace halfscope
