// SPDX-License-Identifier: MIT
// cuDNN 9 on the simulated device, through its backend interface. Descriptors store what they are
// given; an operation graph contains one convolution, which has one engine. As in the real library,
// no engine computes fp32 from 16-bit operands. Sums are chains of fp32 fused multiply-adds. Calls
// that the library rejects as a caller's mistake end the program.
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "tests/gpu/simulated/device.h"
#include "tests/gpu/simulated/stored.h"

using namespace halfscope::simulated;  // NOLINT: the library's functions are in no namespace

namespace {

void require(bool holds, const char* rule) {
  if (!holds) violated(std::string("cuDNN: ") + rule);
}

struct Value {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes{};
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool final = false;
  std::map<int, Value> values{};

  bool has(int name) const { return values.count(name) != 0; }
  template <class T>
  std::vector<T> all(int name) const {
    const auto found = values.find(name);
    require(found != values.end(), "an attribute is missing");
    std::vector<T> list(static_cast<size_t>(found->second.count));
    std::memcpy(list.data(), found->second.bytes.data(), found->second.bytes.size());
    return list;
  }
  template <class T>
  T one(int name) const {
    return all<T>(name).at(0);
  }
  /// Returns another descriptor that was stored as a copy.
  const Descriptor& other(int name) const {
    return *static_cast<const Descriptor*>(one<cudnnBackendDescriptor_t>(name));
  }
};

Descriptor& of(cudnnBackendDescriptor_t descriptor) {
  require(descriptor != nullptr, "a descriptor is null");
  return *static_cast<Descriptor*>(descriptor);
}

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return sizeof(void*);
    case CUDNN_TYPE_INT64:
      return sizeof(int64_t);
    case CUDNN_TYPE_DOUBLE:
      return sizeof(double);
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return sizeof(int32_t);
  }
}

struct Tensor {
  cudaDataType_t type;
  std::array<int64_t, 4> size, stride;
  int64_t name, alignment;

  int64_t place(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3];
  }
  int64_t elements() const { return place(size[0] - 1, size[1] - 1, size[2] - 1, size[3] - 1) + 1; }
};

cudaDataType_t type_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return CUDA_R_32F;
    case CUDNN_DATA_HALF:
      return CUDA_R_16F;
    case CUDNN_DATA_BFLOAT16:
      return CUDA_R_16BF;
    case CUDNN_DATA_FP8_E4M3:
      return CUDA_R_8F_E4M3;
    case CUDNN_DATA_FP8_E5M2:
      return CUDA_R_8F_E5M2;
    default:
      violated("cuDNN: a type that is not simulated");
  }
}

Tensor tensor_of(const Descriptor& descriptor) {
  Tensor tensor{type_of(descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                {},
                {},
                descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
  const auto size = descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto stride = descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  require(size.size() == 4 && stride.size() == 4, "a tensor has not four dimensions");
  std::copy(size.begin(), size.end(), tensor.size.begin());
  std::copy(stride.begin(), stride.end(), tensor.stride.begin());
  return tensor;
}

struct Convolution {
  cudnnBackendDescriptorType_t type;
  Tensor x, w, y;
  std::vector<int64_t> pad, pad_after, stride, dilation;
};

/// The three operations' constants for their common parts.
struct Names {
  int x, w, y, window, alpha, beta;
};
Names names_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      violated("cuDNN: an operation that is not simulated");
  }
}

Convolution convolution_of(const Descriptor& operation) {
  const Names names = names_of(operation.type);
  const Descriptor& window = operation.other(names.window);
  require(operation.one<float>(names.alpha) == 1.0f && operation.one<float>(names.beta) == 0.0f,
          "a convolution is added to something");
  require(window.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
              CUDNN_CROSS_CORRELATION,
          "a convolution turns its filter round");
  require(window.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2, "not two dimensions");
  Convolution conv{operation.type,
                   tensor_of(operation.other(names.x)),
                   tensor_of(operation.other(names.w)),
                   tensor_of(operation.other(names.y)),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS)};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t covered = conv.dilation[i] * (conv.w.size[i + 2] - 1) + 1;
    const int64_t padded = conv.x.size[i + 2] + conv.pad[i] + conv.pad_after[i];
    require(conv.y.size[i + 2] == (padded - covered) / conv.stride[i] + 1, "sizes do not fit");
  }
  require(conv.x.size[0] == conv.y.size[0] && conv.x.size[1] == conv.w.size[1] &&
              conv.w.size[0] == conv.y.size[1],
          "sizes do not fit");
  return conv;
}

const Tensor& result_of(const Convolution& conv) {
  return conv.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? conv.y
         : conv.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? conv.x
                                                                                     : conv.w;
}

bool has_engine(const Convolution& conv) {
  return conv.x.type == conv.w.type && conv.w.type == conv.y.type &&
         (conv.x.type == CUDA_R_32F || conv.x.type == CUDA_R_16F || conv.x.type == CUDA_R_16BF);
}

/// Calls f for every triple of elements that the convolution relates, each once.
template <class F>
void over(const Convolution& conv, const F& f) {
  for (int64_t n = 0; n < conv.y.size[0]; ++n) {
    for (int64_t k = 0; k < conv.y.size[1]; ++k) {
      for (int64_t p = 0; p < conv.y.size[2]; ++p) {
        for (int64_t q = 0; q < conv.y.size[3]; ++q) {
          for (int64_t c = 0; c < conv.w.size[1]; ++c) {
            for (int64_t r = 0; r < conv.w.size[2]; ++r) {
              for (int64_t s = 0; s < conv.w.size[3]; ++s) {
                const int64_t h = p * conv.stride[0] + r * conv.dilation[0] - conv.pad[0];
                const int64_t w = q * conv.stride[1] + s * conv.dilation[1] - conv.pad[1];
                if (h < 0 || w < 0 || h >= conv.x.size[2] || w >= conv.x.size[3]) continue;
                f(conv.x.place(n, c, h, w), conv.w.place(k, c, r, s), conv.y.place(n, k, p, q));
              }
            }
          }
        }
      }
    }
  }
}

void compute(const Convolution& conv, const void* x, const void* w, const void* y, void* result) {
  const Tensor& made = result_of(conv);
  std::vector<float> sums(static_cast<size_t>(made.elements()));
  over(conv, [&](int64_t at_x, int64_t at_w, int64_t at_y) {
    const auto sum = [&](int64_t at, float a, float b) {
      float& so_far = sums[static_cast<size_t>(at)];
      so_far = std::fma(a, b, so_far);
    };
    const auto get = [](const void* data, const Tensor& tensor, int64_t at) {
      return load(data, at, *format_of(tensor.type));
    };
    if (&made == &conv.y) {
      sum(at_y, get(w, conv.w, at_w), get(x, conv.x, at_x));
    } else if (&made == &conv.x) {
      sum(at_x, get(y, conv.y, at_y), get(w, conv.w, at_w));
    } else {
      sum(at_w, get(y, conv.y, at_y), get(x, conv.x, at_x));
    }
  });
  for (int64_t n = 0; n < made.size[0]; ++n) {
    for (int64_t c = 0; c < made.size[1]; ++c) {
      for (int64_t h = 0; h < made.size[2]; ++h) {
        for (int64_t w_at = 0; w_at < made.size[3]; ++w_at) {
          const int64_t at = made.place(n, c, h, w_at);
          store(result, at, *format_of(made.type), sums[static_cast<size_t>(at)]);
        }
      }
    }
  }
}

constexpr int64_t kWorkspace = 4096;
cudaStream_t stream_of(cudnnHandle_t handle) { return *reinterpret_cast<cudaStream_t*>(handle); }

const Descriptor& operation_of(const Descriptor& plan) {
  return plan.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
      .other(CUDNN_ATTR_ENGINECFG_ENGINE)
      .other(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
      .other(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

/// Descriptors are stored as copies that are never destroyed, because the library also keeps its
/// own.
template <class T>
void keep(Descriptor& descriptor, int name, cudnnBackendAttributeType_t type, const T& value) {
  Value kept{type, 1, std::vector<std::byte>(sizeof value)};
  std::memcpy(kept.bytes.data(), &value, sizeof value);
  descriptor.values[name] = std::move(kept);
}
void keep_copy(Descriptor& descriptor, int name, const Descriptor& other) {
  auto* const copy = static_cast<cudnnBackendDescriptor_t>(new Descriptor(other));
  keep(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, copy);
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_SIMULATED";
}
void cudnnGetLastErrorString(char* message, size_t most) {
  if (most > 0) message[0] = '\0';
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new cudaStream_t{});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<cudaStream_t*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *reinterpret_cast<cudaStream_t*>(handle) = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  require(!of(descriptor).final, "a descriptor is changed after it is final");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const Descriptor& other = of(*static_cast<const cudnnBackendDescriptor_t*>(values));
    require(count == 1 && other.final, "a descriptor that is not final is used");
    keep_copy(of(descriptor), name, other);
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* const begin = static_cast<const std::byte*>(values);
  const size_t bytes = static_cast<size_t>(count) * size_of(type);
  of(descriptor).values[name] = {type, count, std::vector<std::byte>(begin, begin + bytes)};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& one = of(descriptor);
  require(!one.final, "a descriptor is made final twice");
  switch (one.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      static_cast<void>(tensor_of(one));
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      static_cast<void>(convolution_of(one));
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      require(one.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), "a graph without a handle");
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      require(one.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), "a plan without a handle");
      keep(one, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, kWorkspace);
      break;
    default:
      break;
  }
  one.final = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t* count, void* values) {
  const Descriptor& one = of(descriptor);
  require(one.final, "a descriptor that is not final is read");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    const Descriptor& graph = one.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *count = has_engine(convolution_of(graph.other(CUDNN_ATTR_OPERATIONGRAPH_OPS))) ? 1 : 0;
    if (most == 0 || *count == 0) return CUDNN_STATUS_SUCCESS;
    Descriptor engine{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true};
    keep_copy(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    keep(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, int64_t{7});
    Descriptor& config = of(*static_cast<cudnnBackendDescriptor_t*>(values));
    keep_copy(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    config.final = true;
    return CUDNN_STATUS_SUCCESS;
  }
  const auto found = one.values.find(name);
  *count = found == one.values.end() ? 0 : found->second.count;
  if (*count == 0 || most == 0) return CUDNN_STATUS_SUCCESS;
  require(found->second.type == type && *count <= most, "an attribute is read as what it is not");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    of(*static_cast<cudnnBackendDescriptor_t*>(values)) = one.other(name);
  } else {
    std::memcpy(values, found->second.bytes.data(), found->second.bytes.size());
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  require(of(plan).final && of(pack).final, "what is executed is not final");
  const Convolution conv = convolution_of(operation_of(of(plan)));
  const auto names = of(pack).all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = of(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  require(on_device(of(pack).one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), kWorkspace),
          "the workspace is too small");
  const auto pointer = [&](const Tensor& tensor) {
    const auto at = std::find(names.begin(), names.end(), tensor.name) - names.begin();
    void* const data = pointers.at(static_cast<size_t>(at));
    const auto bytes = static_cast<size_t>(tensor.elements() * format_of(tensor.type)->bits() / 8);
    require(on_device(data, bytes), "a tensor reaches over its memory");
    require(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(tensor.alignment) == 0,
            "a tensor does not begin where its descriptor says");
    return data;
  };
  void *const x = pointer(conv.x), *const w = pointer(conv.w), *const y = pointer(conv.y);
  const Tensor& made = result_of(conv);
  void* const result = &made == &conv.y ? y : &made == &conv.x ? x : w;
  const cudaError_t error = enqueue(stream_of(handle), [=] { compute(conv, x, w, y, result); });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
