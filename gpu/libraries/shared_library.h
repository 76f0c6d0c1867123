// SPDX-License-Identifier: MIT
// A library that is opened by name when it is needed: the program starts on machines that have
// none of NVIDIA's, and uses the newest that the loader finds.
#pragma once

#include <dlfcn.h>

#include <string>

namespace halfscope::gpu {

class SharedLibrary {
 public:
  /// It stays open for good: closing one that has started threads or registered exit handlers is
  /// not safe.
  explicit SharedLibrary(const std::string& name)
      : handle_(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    if (handle_ == nullptr) missing_ = name + " is not there";
  }

  /// The function of that name, which has the type of `declared`; notes a missing one.
  template <class Function>
  void find(Function*& function, const char* name) {
    if (!missing_.empty()) return;
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr) missing_ = std::string("it has no ") + name;
  }

  /// What it lacks; empty if it is there with all that was asked for.
  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

}  // namespace halfscope::gpu
