// SPDX-License-Identifier: MIT
// Losses for networks that come without one.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/model.h"

namespace halfscope {

struct LossSpec {
  enum class Kind : uint8_t {
    cross_entropy,  ///< of scores with labels
    mse,            ///< mean of squared differences from targets
    output          ///< an output of the graph is the loss
  };
  Kind kind = Kind::cross_entropy;
  std::string output{};  ///< which one; by default the first

  friend bool operator==(const LossSpec&, const LossSpec&) = default;
};

/// "cross-entropy", "mse", each with an output after a colon ("mse:reconstruction"), or the name of
/// a scalar output that is the loss itself.
LossSpec parse_loss(std::string_view text);

/// Gives the model this loss and has its batch normalizations work as in training, if their running
/// statistics are variables (momentum as they say it, the sample's variance, as PyTorch). Its nodes
/// are "loss" and "loss/...", in fp32 unless a plan names them.
///   cross_entropy  output [n, c] with a new input "labels" [n], or [n, t, c] with n * t labels
///                  (row-major), one for each row; where the output is a Softmax, of what it reads
///   mse            output of any shape with a new input "targets" of that shape
///   output         an output of one element
/// Throws Error (usage) if the model has no such output or it does not fit.
void add_loss(Model& model, const LossSpec& spec);

/// Which variance of a batch the running variances of batch normalizations in training take.
enum class RunningVariance : uint8_t {
  sample,      ///< n / (n - 1) of the population's, as PyTorch
  population,  ///< as ONNX
};
/// Throws Error (usage) if the model has no batch normalization in training.
void set_running_variance(Model& model, RunningVariance variance);

}  // namespace halfscope
