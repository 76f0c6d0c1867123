// SPDX-License-Identifier: MIT
#include "gpu/backends.h"
#include "gpu/engine/executor.h"
#include "gpu/engine/program.h"

namespace halfscope {
namespace {

class HostBackend final : public Backend {
 public:
  HostBackend(const char* name, gpu::HostOrder order) : name_(name), order_(order) {}
  const char* name() const noexcept override { return name_; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return std::make_unique<gpu::DeviceProgram<gpu::HostExecutor>>(
        executable, std::make_unique<gpu::HostExecutor>(order_));
  }

 private:
  const char* name_;
  gpu::HostOrder order_;
};

}  // namespace

const Backend& host_executor_backend() {
  static const HostBackend backend("host-executor", gpu::HostOrder::serial);
  return backend;
}

const Backend& shuffled_executor_backend() {
  static const HostBackend backend("host-executor-shuffled", gpu::HostOrder::shuffled);
  return backend;
}

}  // namespace halfscope
