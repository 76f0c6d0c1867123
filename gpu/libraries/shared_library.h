// SPDX-License-Identifier: MIT
// A library that is opened by name when needed. So the program starts on machines without NVIDIA's
// libraries, and uses the newest ones that the loader finds.
#pragma once

#include <dlfcn.h>

#include <string>

namespace halfscope::gpu {

class SharedLibrary {
 public:
  /// Opens the library. It is never closed: closing one that has started threads or registered exit
  /// handlers is not safe.
  explicit SharedLibrary(const std::string& name)
      : handle_(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    if (handle_ == nullptr) missing_ = "cannot load " + name;
  }

  /// Finds the function `name`, which has the type of `declared`; notes it if missing.
  template <class Function>
  void find(Function*& function, const char* name) {
    if (!missing_.empty()) return;
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr) missing_ = std::string("it has no function ") + name;
  }

  /// Returns what is missing, or "" if the library and all requested functions were found.
  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

}  // namespace halfscope::gpu
