// SPDX-License-Identifier: MIT
// cuda_backend() for builds with nvcc.
#include "gpu/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "gpu/backends.h"
#include "gpu/device_info.h"
#include "gpu/engine/device_cores.h"

namespace halfscope {
namespace {

/// Returns the device that this thread's lanes run on, or nothing without a usable one.
std::optional<GpuDevice> current_device(const GpuReport& report) {
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess) return std::nullopt;
  const auto at = static_cast<size_t>(index);
  return at < report.devices.size() ? std::optional(report.devices[at]) : std::nullopt;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(GpuProducts products) : products_(products) {}
  const char* name() const noexcept override { return gpu_backend_name(products_); }
  std::vector<Accumulation> known_orders() const override {
    const std::optional<GpuDevice> device = current_device(query_gpus());
    if (products_ == GpuProducts::own || !device) return {};
    return gpu::library_orders(device->major, device->minor);
  }
  std::string kernel_identity() const override {
    const GpuReport report = query_gpus();
    const std::optional<GpuDevice> device = current_device(report);
    if (!device) return "";
    return fmt::format(
        "{}, compute capability {}.{}, {} SMs; driver {}, runtime {}; cuBLASLt {}, "
        "cuDNN {}",
        device->name, device->major, device->minor, device->sm_count, report.driver.text(),
        report.runtime.text(), report.cublas_lt.text(), report.cudnn.text());
  }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return gpu::make_cuda_program(executable, products_);
  }

 private:
  GpuProducts products_;
};

}  // namespace

bool cuda_is_ready() { return query_gpus().state == GpuState::ready; }

const Backend& cuda_backend(GpuProducts products) {
  const GpuReport report = query_gpus();
  if (report.state != GpuState::ready) throw no_gpu_error(report);
  static const CudaBackend library(GpuProducts::library), own(GpuProducts::own),
      fast(GpuProducts::fast);
  return products == GpuProducts::library ? library : products == GpuProducts::own ? own : fast;
}

}  // namespace halfscope
