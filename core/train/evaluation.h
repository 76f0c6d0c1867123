// SPDX-License-Identifier: MIT
// Evaluation of a lane on the test part of the data: loss, and how well the network classifies or
// finds objects.
#pragma once

#include <cstdint>

#include "core/data/dataset.h"
#include "core/exchange/exchange.h"
#include "core/graph/model.h"
#include "core/observe/recording.h"
#include "core/train/feed.h"
#include "core/train/lane.h"

namespace halfscope {

/// Returns whether evaluations of a network for this many samples at once may compare scores with
/// labels: one label for each sample, one for each pixel of two dimensions or more, or the targets
/// of a binary cross-entropy.
bool has_label_scores(const Model& model, const Dataset& data, int64_t batch);

class Evaluation {
 public:
  /// Evaluates the first `samples` samples. Processes of `exchange`, if it is not null, divide the
  /// batches among them, unless all outputs are needed; each returns the same row.
  Evaluation(const Dataset& data, Feed& feed, int64_t samples, Exchange* exchange)
      : data_(data), feed_(feed), samples_(samples), exchange_(exchange) {}

  /// Runs the lane's network. The row's accuracy is EvalRow::accuracy, or mAP50 of a detector.
  EvalRow run(const Lane& lane, int64_t step) const;

 private:
  const Dataset& data_;
  Feed& feed_;
  int64_t samples_;
  Exchange* exchange_;
};

}  // namespace halfscope
