// SPDX-License-Identifier: MIT
// DeviceLink: messages between the memories of devices, one device per rank of a data-parallel
// training.
#pragma once

#include <cstddef>
#include <span>

#include "core/exchange/exchange_plan.h"

namespace halfscope::gpu {

class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  /// Puts these messages on the stream, after earlier work and before later work. Positions are in
  /// `mailbox`, which is memory of the device.
  virtual void transfer(std::span<const Mail> sends, std::span<const Mail> receives,
                        std::byte* mailbox) = 0;
};

}  // namespace halfscope::gpu
