// SPDX-License-Identifier: MIT
// Dtype policies of Keras as plans: tf.keras (the package tf_keras) and Keras 3 with TensorFlow as
// its backend. docs/reference/keras.md describes them.
//   source: tf_keras 2.21 (engine/base_layer.py, mixed_precision, layers), Keras 3.15
//   (layers/layer.py, layers/normalization, backend/tensorflow/nn.py)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/model.h"
#include "core/plan/plan.h"

namespace halfscope {

struct KerasPolicy {
  bool keras3 = true;           ///< otherwise tf.keras
  FloatFormat compute = kFp16;  ///< the compute dtype; variables are float32
};

/// Returns the policy of a preset such as "keras3-mixed_float16"; nothing for other names.
std::optional<KerasPolicy> keras_policy(std::string_view preset);

/// Returns the mixed policy with the same rules for operators as the plan, whatever the plan's
/// name; nothing if there is none.
std::optional<KerasPolicy> keras_policy(const Plan& plan);

/// Returns the plan of the policy for any network: what each operator does in the Keras layer or
/// operation behind it.
Plan keras_plan(const KerasPolicy& policy);

/// Returns the same plan with rules for this network's structure: normalizations and attentions
/// that the network's file writes as primitives, embeddings, masks, and parts of normalizations
/// that round in between. These rules name exact paths.
Plan keras_plan(const KerasPolicy& policy, const Model& model);

/// A GPU as tf.config.experimental.get_device_details() describes it.
struct KerasDevice {
  std::string name{};  ///< "" if the details contain no name
  /// Major and minor compute capability; nothing if the device has none.
  std::optional<std::pair<int, int>> capability = std::nullopt;
};

/// The message that tf.keras logs once when a global policy is set.
struct KerasDeviceMessage {
  bool warns = false;  ///< logged as a warning, otherwise as information
  std::string text{};  ///< empty for every policy but mixed_float16
};

/// Returns the message for these GPUs, character by character that of tf.keras
/// (tf_keras/mixed_precision/device_compatibility_check.py). Keras 3 has none.
KerasDeviceMessage keras_device_message(std::string_view policy,
                                        const std::vector<KerasDevice>& gpus);

}  // namespace halfscope
