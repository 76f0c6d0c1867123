// SPDX-License-Identifier: MIT
// The part of the GPU report that needs no CUDA: decoding versions, the tensor-core table and the
// texts. query_gpus() is in query_cuda.cpp or, without the toolkit, in query_none.cpp.
#include "gpu/device_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace halfscope {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

void describe_device(size_t index, const GpuDevice& device, std::vector<std::string>& lines) {
  lines.push_back(fmt::format("device {}: {}, compute capability {}.{}, {:.1f} GiB, {} SMs", index,
                              device.name, device.major, device.minor,
                              static_cast<double>(device.memory_bytes) / kGibibyte,
                              device.sm_count));
  const std::vector<std::string> formats = tensor_core_formats(device.major, device.minor);
  lines.push_back(formats.empty()
                      ? "  no tensor cores: 16-bit formats save memory but no time"
                      : fmt::format("  tensor cores multiply {}", fmt::join(formats, ", ")));
  lines.push_back(
      keras_mixed_float16_is_fast(device.major, device.minor)
          ? "  Keras mixed_float16: fast here (Keras recommends 7.0 or newer)"
          : "  Keras mixed_float16: works here, but slowly (Keras recommends 7.0 or newer)");
}

/// Adds what is wrong and what to do about it; nothing for a usable device.
void describe_state(const GpuReport& report, std::vector<std::string>& lines) {
  const std::string details = report.problem.empty() ? "" : fmt::format(" ({})", report.problem);
  switch (report.state) {
    case GpuState::not_built:
      lines.push_back("this build has no GPU code");
      lines.push_back(
          "to do: nothing, everything runs on the CPU; to use a GPU, install the CUDA "
          "toolkit and build with scripts/run --gpu (-DHALFSCOPE_CUDA=ON)");
      return;
    case GpuState::no_driver:
      lines.push_back("no NVIDIA driver is loaded");
      lines.push_back(
          "to do: nothing if this machine has no NVIDIA GPU; otherwise install the NVIDIA driver, "
          "or "
          "start the container with its GPUs (docker run --gpus all)");
      return;
    case GpuState::old_driver:
      lines.push_back(fmt::format("the NVIDIA driver is too old for the CUDA runtime {}{}",
                                  report.runtime.text(), details));
      lines.push_back(
          fmt::format("to do: install a newer driver, or build with a CUDA toolkit of at most {}",
                      report.driver.text()));
      return;
    case GpuState::no_device:
      lines.push_back("the NVIDIA driver is loaded, but no device is usable" + details);
      lines.push_back(
          "to do: check that CUDA_VISIBLE_DEVICES does not hide the device, and run nvidia-smi");
      return;
    case GpuState::failed:
      lines.push_back("the CUDA runtime cannot query every device" + details);
      lines.push_back("to do: check the driver and the device with nvidia-smi");
      return;
    case GpuState::ready:
      return;
  }
}

}  // namespace

std::string GpuVersion::text() const {
  if (!found()) return "not found";
  return patch != 0 ? fmt::format("{}.{}.{}", major, minor, patch)
                    : fmt::format("{}.{}", major, minor);
}

GpuVersion decode_cuda_version(int64_t code) noexcept {
  return {static_cast<int>(code / 1000), static_cast<int>(code % 1000 / 10), 0};
}

GpuVersion decode_library_version(int64_t code) noexcept {
  return {static_cast<int>(code / 10000), static_cast<int>(code % 10000 / 100),
          static_cast<int>(code % 100)};
}

std::vector<std::string> tensor_core_formats(int major, int minor) {
  const int capability = major * 10 + minor;
  std::vector<std::string> formats;
  if (capability >= 70) formats.push_back("fp16");
  if (capability >= 80) {
    formats.push_back("bf16");
    formats.push_back("tf32");
  }
  if (capability >= 89) formats.push_back("fp8");
  if (capability >= 100) {
    formats.push_back("mxfp8");
    formats.push_back("fp4");
  }
  return formats;
}

bool has_tensor_cores(const GpuDevice& device, std::string_view format) {
  const std::vector<std::string> formats = tensor_core_formats(device.major, device.minor);
  return std::find(formats.begin(), formats.end(), format) != formats.end();
}

std::vector<std::string> describe(const GpuReport& report) {
  std::vector<std::string> lines;
  if (report.built) {
    const std::string driver = report.driver.found()
                                   ? fmt::format("driver for CUDA up to {}", report.driver.text())
                                   : "no driver";
    lines.push_back(fmt::format("CUDA toolkit {}, runtime {}, {}", report.toolkit.text(),
                                report.runtime.text(), driver));
    lines.push_back(fmt::format("cuBLASLt {}, cuDNN {}, NCCL {}", report.cublas_lt.text(),
                                report.cudnn.text(), report.nccl.text()));
  }
  for (size_t i = 0; i < report.devices.size(); ++i) {
    describe_device(i, report.devices[i], lines);
  }
  describe_state(report, lines);
  return lines;
}

Error no_gpu_error(const GpuReport& report) {
  std::vector<std::string> lines;
  describe_state(report, lines);
  std::string hint = "use --backend emulated, which needs no GPU";
  // Advice for users who have a GPU.
  for (const std::string_view start : {"otherwise ", "to use a GPU, "}) {
    const size_t at = lines.back().find(start);
    if (at != std::string::npos) hint += "; or " + lines.back().substr(at + start.size());
  }
  if (report.state == GpuState::old_driver || report.state == GpuState::no_device ||
      report.state == GpuState::failed) {
    hint += "; or " + lines.back().substr(std::string_view("to do: ").size());
  }
  return usage_error("cannot use backend 'cuda': " + lines.front(), std::move(hint));
}

}  // namespace halfscope
