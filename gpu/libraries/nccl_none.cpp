// SPDX-License-Identifier: MIT
// NCCL in builds without its header.
#include "gpu/libraries/nccl.h"

namespace halfscope::gpu {

int64_t nccl_version() { return 0; }
std::shared_ptr<void> connect_nccl(Exchange&, std::string& why, std::chrono::milliseconds) {
  why = "this program was built without NCCL";
  return nullptr;
}
std::unique_ptr<DeviceLink> nccl_link(const Exchange&, StreamPointer) { return nullptr; }
std::optional<std::vector<std::byte>> nccl_echo(std::span<const std::byte>) { return std::nullopt; }

}  // namespace halfscope::gpu
