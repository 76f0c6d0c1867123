// SPDX-License-Identifier: MIT
// A checkpoint: everything that a run needs to continue bit for bit. On disk it is a .npz of
// float64 arrays: "step", "stale_evaluations", "setup,KEY", and for each lane "lane,NAME,scale" ...
// and "lane,NAME,variable,PATH".
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
  /// Settings that must be the same when the run resumes: "batch", "seed" ... with their values;
  /// texts are hashed.
  std::map<std::string, double> setup;
  int64_t stale_evaluations = 0;
  std::map<std::string, LaneCheckpoint> lanes;  ///< by name
};

/// Replaces the file atomically: a reader or a crash never sees half a checkpoint. Throws Error.
void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);
/// Reads a checkpoint. Throws Error if the file cannot be read, is damaged or is not a checkpoint.
Checkpoint load_checkpoint(const std::filesystem::path& file);

}  // namespace halfscope
