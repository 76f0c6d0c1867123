// SPDX-License-Identifier: MIT
// Processes of builds with nvcc.
#include "gpu/processes.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "gpu/device_info.h"
#include "gpu/libraries/cuda_error.cuh"
#include "gpu/libraries/nccl.h"

namespace halfscope {
namespace {

/// Returns where the current device is: the same text in two processes that share it.
std::string place_of_device() {
  int device = 0;
  cudaDeviceProp properties{};
  gpu::check_cuda(cudaGetDevice(&device), "device");
  gpu::check_cuda(cudaGetDeviceProperties(&properties, device), "device");
  std::string computer;  // differs between computers, and after each start of one
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), computer);
  return fmt::format("{} {}:{}:{}", computer, properties.pciDomainID, properties.pciBusID,
                     properties.pciDeviceID);
}

bool is_off() {
  const char* const wish = std::getenv("HALFSCOPE_NCCL");
  return wish != nullptr && std::string_view(wish) == "off";
}

/// The news of one process for the others.
struct Told {
  std::string version;  ///< of NCCL: "2.28.9", "off", or "not found"
  std::string place;    ///< of its device
};

/// Returns why NCCL cannot connect these processes, or "".
std::string objection(const std::vector<Told>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string& version = ranks[rank].version;
    if (version == "off") return fmt::format("rank {} has HALFSCOPE_NCCL=off", rank);
    if (version == GpuVersion{}.text()) return fmt::format("rank {} finds no NCCL", rank);
    if (version != ranks[0].version) {
      return fmt::format("rank 0 has NCCL {} and rank {} has {}", ranks[0].version, rank, version);
    }
    for (size_t other = 0; other < rank; ++other) {
      if (ranks[other].place != ranks[rank].place) continue;
      return fmt::format("ranks {} and {} share a GPU, which NCCL refuses", other, rank);
    }
  }
  return "";
}

}  // namespace

void choose_device(int local_rank) {
  if (local_rank == 0) return;  // device 0 is everyone's first
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());  // whoever needs a device will say what is missing
    return;
  }
  gpu::check_cuda(cudaSetDevice(local_rank % count), "device");
}

DeviceConnection connect_devices(Exchange& exchange, std::chrono::milliseconds limit) {
  const std::string version = is_off() ? "off" : decode_library_version(gpu::nccl_version()).text();
  std::vector<Told> ranks;
  for (const std::string& told : all_gather_texts(exchange, version + "\n" + place_of_device())) {
    const size_t end = told.find('\n');
    ranks.push_back({told.substr(0, end), told.substr(end + 1)});
  }
  DeviceConnection connection;
  std::string why = objection(ranks);
  if (why.empty()) connection.nccl = gpu::connect_nccl(exchange, why, limit);
  connection.text = connection.nccl != nullptr
                        ? fmt::format("gradients of lanes on GPUs are sent by NCCL {}", version)
                        : fmt::format("gradients of lanes on GPUs pass through the host: {}", why);
  return connection;
}

}  // namespace halfscope
