// SPDX-License-Identifier: MIT
#include "gpu/backends.h"
#include "gpu/engine/executor.h"
#include "gpu/engine/program.h"
#include "gpu/engine/steps.h"
#include "gpu/host_program.h"

namespace halfscope {
namespace {

class HostBackend final : public Backend {
 public:
  HostBackend(const char* name, bool shuffled) : name_(name), shuffled_(shuffled) {}
  const char* name() const noexcept override { return name_; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return gpu::compile_on_host(executable, shuffled_, nullptr);
  }

 private:
  const char* name_;
  bool shuffled_;
};

}  // namespace

std::unique_ptr<Program> gpu::compile_on_host(const Executable& executable, bool shuffled,
                                              std::unique_ptr<ProductLibrary> library,
                                              const std::string& tensor_core) {
  const HostOrder order = shuffled ? HostOrder::shuffled : HostOrder::serial;
  return std::make_unique<DeviceProgram<HostExecutor>>(
      executable, std::make_unique<HostExecutor>(order, tensor_core), std::move(library));
}

const Backend& host_executor_backend() {
  static const HostBackend backend("host-executor", false);
  return backend;
}

const Backend& shuffled_executor_backend() {
  static const HostBackend backend("host-executor-shuffled", true);
  return backend;
}

}  // namespace halfscope
