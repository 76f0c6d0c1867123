// SPDX-License-Identifier: MIT
// Names of TensorFlow's devices (tensorflow/core/util/device_name_utils.cc).
#pragma once

#include <string>
#include <string_view>

namespace halfscope::grappler {

/// Returns the type in lower case: "gpu" for "/job:worker/replica:0/task:0/device:GPU:0" or
/// "/GPU:0"; "" if the name is not valid or has no type.
std::string device_type(std::string_view name);

/// Returns whether a node with this device ("" for none) runs on devices of this type. A node
/// without a device runs on the `usual` type.
bool is_on_device(std::string_view name, std::string_view type, std::string_view usual);

}  // namespace halfscope::grappler
