// SPDX-License-Identifier: MIT
// A checkpoint: all that a run needs to go on with the same bits. On disk it is a .npz of float64
// arrays: "step", "stale_evaluations", "setup,KEY", and for each lane "lane,NAME,scale" and the
// like and "lane,NAME,variable,PATH".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/backend/loss_scaler.h"
#include "core/tensor.h"

namespace halfscope {

struct LaneCheckpoint {
  LossScalerState scaler;
  int64_t updates = 0;           ///< optimizer steps done
  double best_loss = 0.0;        ///< of the evaluations, for early stopping
  NamedDoubleTensors variables;  ///< weights, optimizer state and buffers by path
};

struct Checkpoint {
  int64_t step = 0;  ///< steps done
  /// What must be the same when the run goes on: "batch", "seed" ... and its value; of texts a
  /// hash.
  std::map<std::string, double> setup;
  int64_t stale_evaluations = 0;
  std::map<std::string, LaneCheckpoint> lanes;  ///< by name
};

/// Replaces the file in one go: a reader or a crash never sees half a checkpoint. Throws Error.
void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);
/// Throws Error if the file cannot be read, is damaged or is no checkpoint.
Checkpoint load_checkpoint(const std::filesystem::path& file);

}  // namespace halfscope
