// SPDX-License-Identifier: MIT
// NCCL as DeviceLink: only its messages from one device to another. Sums are computed by our own
// kernels, because ncclAllReduce leaves their order and their roundings open. The library is opened
// by name. Types of CUDA do not appear here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/exchange/exchange.h"
#include "gpu/libraries/device_link.h"
#include "gpu/libraries/libraries.h"

namespace halfscope::gpu {

/// Returns the version of the library, such as 22809 for 2.28.9; 0 if it was not found, or if this
/// program was built without its header.
int64_t nccl_version();

/// The longest that connecting may take, also for thousands of ranks.
inline constexpr std::chrono::seconds kNcclLimit{120};

/// Connects the current devices of all ranks, which call this together. Returns null on all of them
/// and sets `why` if it fails on one, or takes longer than `limit`. Links exist as long as the
/// result or one of them.
std::shared_ptr<void> connect_nccl(Exchange& exchange, std::string& why,
                                   std::chrono::milliseconds limit);

/// Returns a link whose messages run on this stream, or null if the ranks are not connected.
std::unique_ptr<DeviceLink> nccl_link(const Exchange& exchange, StreamPointer stream);

/// Sends bytes from the current device to itself, and returns those that arrive. Returns nothing
/// without the library.
std::optional<std::vector<std::byte>> nccl_echo(std::span<const std::byte> bytes);

}  // namespace halfscope::gpu
