// SPDX-License-Identifier: MIT
// Losses for networks without one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/model.h"

namespace halfscope {

struct LossSpec {
  enum class Kind : uint8_t {
    cross_entropy,  ///< of scores with labels
    mse,            ///< mean of squared differences from targets
    bce,            ///< binary cross-entropy of a sigmoid with targets
    detection,      ///< focal loss and smooth L1 of a detector's scores and boxes
    output          ///< an output of the graph is the loss
  };
  Kind kind = Kind::cross_entropy;
  std::string output{};                ///< which one; by default the first
  double smoothing = 0.0;              ///< of the labels, for cross_entropy
  std::vector<float> class_weights{};  ///< one for each class, for cross_entropy; may be empty
  /// Dimension of the scores that counts classes, for cross_entropy; negative: from the last.
  std::optional<int64_t> axis{};
  int32_t ignored = kIgnoredLabel;  ///< label of rows that do not count, for cross_entropy
  /// The output contains scores, even if it is a Softmax or a Sigmoid.
  bool scores = false;
  std::optional<Shape> label_shape{};  ///< of one sample's labels, if the data are known

  friend bool operator==(const LossSpec&, const LossSpec&) = default;
};

/// Parses "cross-entropy", "mse", "bce" or "detection", each optionally with an output after a
/// colon ("mse:reconstruction") and with options at the end: ",smoothing=0.1", ",weights=0.5/1/2",
/// ",axis=1", ",ignore=255" of cross-entropy and ",logits" of cross-entropy and bce; or the name of
/// a scalar output that is the loss. Throws Error (usage).
LossSpec parse_loss(std::string_view text);

/// Adds this loss to the model and switches batch normalizations whose running statistics are
/// variables to training mode (their own momentum, the sample's variance, as PyTorch). The nodes of
/// the loss are "loss" and "loss/...", in fp32 unless a plan names them.
///   cross_entropy  output [n, c] with a new input "labels" [n]. With more dimensions, one of them
///                  counts classes and the others, in their order, make rows with a label each:
///                  `axis`, else the one that leaves the shape of the labels, else dimension 1, or
///                  2 of three. If the output is a Softmax over it, its input is used.
///                  Smoothing and weights of classes: see add_class_losses()
///   mse            output of any shape with a new input "targets" of that shape
///   bce            the same; the mean of (1 - t) x - log(sigmoid(x)), as PyTorch's
///                  binary_cross_entropy_with_logits. If the output is a Sigmoid, its input is used
///   detection      outputs [n, anchors, classes] and [n, anchors, 4], logits and codes of boxes,
///                  with new inputs; see add_detection_loss()
///   output         an output of one element
/// Throws Error (usage) if the model has no such output or it does not fit. Returns notes for the
/// user where another loss may be meant.
std::vector<std::string> add_loss(Model& model, const LossSpec& spec);

/// Variance of a batch that running variances of batch normalizations are updated with.
enum class RunningVariance : uint8_t {
  sample,      ///< n / (n - 1) times the population's, as PyTorch
  population,  ///< as ONNX
};
/// Sets the variance of all batch normalizations in training mode. Throws Error (usage) if there is
/// none.
void set_running_variance(Model& model, RunningVariance variance);

}  // namespace halfscope
