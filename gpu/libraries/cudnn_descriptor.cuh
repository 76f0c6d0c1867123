// SPDX-License-Identifier: MIT
// cuDNN's functions, and its descriptors as objects; for cudnn.cpp.
#pragma once

#include <cudnn_backend.h>
#include <cudnn_graph.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpu/libraries/shared_library.h"

namespace halfscope::gpu::cudnn {

/// cuDNN's functions, found by name.
struct Functions {
  SharedLibrary library{"libcudnn.so.9"};
  decltype(cudnnCreate)* create = nullptr;
  decltype(cudnnDestroy)* destroy = nullptr;
  decltype(cudnnSetStream)* set_stream = nullptr;
  decltype(cudnnGetVersion)* version = nullptr;
  decltype(cudnnGetErrorString)* error_string = nullptr;
  decltype(cudnnGetLastErrorString)* last_error = nullptr;
  decltype(cudnnBackendCreateDescriptor)* create_descriptor = nullptr;
  decltype(cudnnBackendDestroyDescriptor)* destroy_descriptor = nullptr;
  decltype(cudnnBackendSetAttribute)* set_attribute = nullptr;
  decltype(cudnnBackendGetAttribute)* get_attribute = nullptr;
  decltype(cudnnBackendFinalize)* finalize = nullptr;
  decltype(cudnnBackendExecute)* execute = nullptr;

  Functions() {
    library.find(create, "cudnnCreate");
    library.find(destroy, "cudnnDestroy");
    library.find(set_stream, "cudnnSetStream");
    library.find(version, "cudnnGetVersion");
    library.find(error_string, "cudnnGetErrorString");
    library.find(last_error, "cudnnGetLastErrorString");
    library.find(create_descriptor, "cudnnBackendCreateDescriptor");
    library.find(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    library.find(set_attribute, "cudnnBackendSetAttribute");
    library.find(get_attribute, "cudnnBackendGetAttribute");
    library.find(finalize, "cudnnBackendFinalize");
    library.find(execute, "cudnnBackendExecute");
  }
};

inline const Functions& functions() {
  static const Functions all;
  return all;
}

/// Thrown for something that this cuDNN does not support; another engine or library may.
struct NotDone {
  std::string why;
};

inline std::string words_of(cudnnStatus_t status) {
  char details[256] = "";
  functions().last_error(details, sizeof details);
  std::string words = functions().error_string(status);
  if (details[0] != '\0') words += std::string(" (") + details + ")";
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
}

inline void require(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw NotDone{std::string(call) + ": " + words_of(status)};
}

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    require(functions().create_descriptor(type, &descriptor_), "descriptor");
  }
  Descriptor(Descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (descriptor_ != nullptr) static_cast<void>(functions().destroy_descriptor(descriptor_));
  }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
           int64_t count = 1) {
    require(functions().set_attribute(descriptor_, name, type, count, values),
            fmt::format("attribute {}", static_cast<int>(name)).c_str());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &other.descriptor_);
  }
  /// Returns the values that are set, at most `most`.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    int64_t count = 0;
    const cudnnStatus_t status =
        functions().get_attribute(descriptor_, name, type, most, &count, values.data());
    if (status != CUDNN_STATUS_SUCCESS) count = 0;
    values.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, most)));
    return values;
  }
  /// Fills `other`, which must have been created for this attribute.
  void get(cudnnBackendAttributeName_t name, Descriptor& other) const {
    int64_t count = 0;
    require(functions().get_attribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                      &other.descriptor_),
            "attribute");
  }
  void finalize(const char* what) { require(functions().finalize(descriptor_), what); }
  cudnnBackendDescriptor_t raw() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace halfscope::gpu::cudnn
