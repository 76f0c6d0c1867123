// SPDX-License-Identifier: MIT
// Devices of a training whose ranks are processes: which one each process uses, and how gradients
// travel between them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/exchange/exchange.h"
#include "gpu/libraries/nccl.h"

namespace halfscope {

/// Makes programs that this thread compiles from now on run on the device whose number is
/// `local_rank` modulo the number of devices. Does nothing without a device.
void choose_device(int local_rank);

/// How lanes on devices exchange gradients, with the same bits either way.
struct DeviceConnection {
  /// One line: "gradients of lanes on GPUs are sent by NCCL 2.28.9", or why they pass through the
  /// host.
  std::string text;
  std::shared_ptr<void> nccl{};  ///< keeps the connection; null: through the host
};

/// Connects the devices of all processes, each of which has chosen its own. All call this together,
/// before lanes exchange gradients. With HALFSCOPE_NCCL=off in one of them, and if NCCL is missing,
/// refuses their devices, or does not connect them within `limit`, gradients pass through the host.
DeviceConnection connect_devices(Exchange& exchange,
                                 std::chrono::milliseconds limit = gpu::kNcclLimit);

}  // namespace halfscope
