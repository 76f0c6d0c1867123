// SPDX-License-Identifier: MIT
// The simulated cuDNN reads descriptors and computes convolutions here.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/simulated/device.h"
#include "tests/gpu/simulated/stored.h"

namespace halfscope::simulated {

inline void require(bool holds, const char* rule) {
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
  /// Returns another descriptor that was stored as a copy; number `i` of several.
  const Descriptor& other(int name, size_t i = 0) const {
    return *static_cast<const Descriptor*>(all<cudnnBackendDescriptor_t>(name).at(i));
  }
};

inline Descriptor& of(cudnnBackendDescriptor_t descriptor) {
  require(descriptor != nullptr, "a descriptor is null");
  return *static_cast<Descriptor*>(descriptor);
}

inline size_t size_of(cudnnBackendAttributeType_t type) {
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
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return sizeof(int32_t);
  }
}

struct Tensor {
  cudaDataType_t type;
  std::array<int64_t, 4> size, stride;
  int64_t name, alignment;
  bool is_virtual;

  int64_t place(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3];
  }
  int64_t elements() const { return place(size[0] - 1, size[1] - 1, size[2] - 1, size[3] - 1) + 1; }
  bool channels_last() const { return stride[1] == 1; }
};

inline cudaDataType_t type_of(cudnnDataType_t type) {
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

inline Tensor tensor_of(const Descriptor& descriptor) {
  const bool is_virtual = descriptor.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
                          descriptor.one<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
  Tensor tensor{type_of(descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                {},
                {},
                descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                is_virtual};
  const auto size = descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto stride = descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  require(size.size() == 4 && stride.size() == 4, "a tensor has not four dimensions");
  std::copy(size.begin(), size.end(), tensor.size.begin());
  std::copy(stride.begin(), stride.end(), tensor.stride.begin());
  return tensor;
}

/// The operations' constants for their common parts.
struct Names {
  int x, w, y, window, alpha, beta;
};
inline Names names_of(cudnnBackendDescriptorType_t type) {
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

struct Convolution {
  cudnnBackendDescriptorType_t type;
  Tensor x, w, y;
  std::vector<int64_t> pad, pad_after, stride, dilation;
  FloatFormat sums;  ///< every partial sum is rounded to it
  int64_t groups = 1;

  const Tensor& made() const {
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? y
           : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x
                                                                                  : w;
  }
  const Tensor& operand() const {
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? x : y;
  }
};

inline Convolution convolution_of(const Descriptor& operation) {
  const Names names = names_of(operation.type);
  const Descriptor& window = operation.other(names.window);
  require(operation.one<float>(names.alpha) == 1.0f && operation.one<float>(names.beta) == 0.0f,
          "a convolution is added to something");
  require(window.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
              CUDNN_CROSS_CORRELATION,
          "a convolution turns its filter round");
  require(window.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2, "not two dimensions");
  const auto compute = window.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  Convolution conv{operation.type,
                   tensor_of(operation.other(names.x)),
                   tensor_of(operation.other(names.w)),
                   tensor_of(operation.other(names.y)),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                   window.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
                   *format_of(type_of(compute))};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t covered = conv.dilation[i] * (conv.w.size[i + 2] - 1) + 1;
    const int64_t padded = conv.x.size[i + 2] + conv.pad[i] + conv.pad_after[i];
    require(conv.y.size[i + 2] == (padded - covered) / conv.stride[i] + 1, "sizes do not fit");
  }
  conv.groups = conv.x.size[1] / conv.w.size[1];
  require(conv.x.size[0] == conv.y.size[0] && conv.groups > 0 &&
              conv.x.size[1] == conv.groups * conv.w.size[1] && conv.w.size[0] % conv.groups == 0 &&
              conv.w.size[0] == conv.y.size[1],
          "sizes do not fit");
  return conv;
}

/// A graph: a convolution, and the tensor to which a second node copies its sums, or else its own.
struct Work {
  Convolution conv;
  Tensor written;
  bool copied;
};

inline Work work_of(const Descriptor& graph) {
  const size_t nodes = graph.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS).size();
  const Convolution conv = convolution_of(graph.other(CUDNN_ATTR_OPERATIONGRAPH_OPS));
  if (nodes == 1) {
    require(!conv.made().is_virtual, "nobody reads a virtual tensor");
    return {conv, conv.made(), false};
  }
  const Descriptor& copy = graph.other(CUDNN_ATTR_OPERATIONGRAPH_OPS, 1);
  require(nodes == 2 && copy.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
          "a graph that is not simulated");
  const Descriptor& how = copy.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  require(how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_IDENTITY,
          "a node that is not simulated");
  require(how.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_FLOAT,
          "a copy that is not in fp32");
  const Tensor from = tensor_of(copy.other(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  const Tensor to = tensor_of(copy.other(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  require(conv.made().is_virtual && from.name == conv.made().name && to.name != from.name &&
              !to.is_virtual,
          "two nodes that are not connected");
  require(from.size == to.size && from.stride == to.stride, "a copy changes the layout");
  return {conv, to, true};
}

/// An engine may do something to numbers that it should not.
enum class Flaw : uint8_t {
  none,
  one_ulp,           ///< every result is the next number
  every_second_run,  ///< same, but not in every run
  narrow_operands,   ///< which keep four bits
  narrow_sums,       ///< which keep eleven bits
  transformed,       ///< neighbours along lines are added and subtracted, and back
};

/// Calls f for every triple of elements that the convolution relates, each once.
template <class F>
void over(const Convolution& conv, const F& f) {
  const int64_t outs = conv.w.size[0] / conv.groups;
  for (int64_t n = 0; n < conv.y.size[0]; ++n) {
    for (int64_t k = 0; k < conv.y.size[1]; ++k) {
      const int64_t first = k / outs * conv.w.size[1];
      for (int64_t p = 0; p < conv.y.size[2]; ++p) {
        for (int64_t q = 0; q < conv.y.size[3]; ++q) {
          for (int64_t c = 0; c < conv.w.size[1]; ++c) {
            for (int64_t r = 0; r < conv.w.size[2]; ++r) {
              for (int64_t s = 0; s < conv.w.size[3]; ++s) {
                const int64_t h = p * conv.stride[0] + r * conv.dilation[0] - conv.pad[0];
                const int64_t w = q * conv.stride[1] + s * conv.dilation[1] - conv.pad[1];
                if (h < 0 || w < 0 || h >= conv.x.size[2] || w >= conv.x.size[3]) continue;
                f(conv.x.place(n, first + c, h, w), conv.w.place(k, c, r, s),
                  conv.y.place(n, k, p, q));
              }
            }
          }
        }
      }
    }
  }
}

/// Computes the sums as chains of fused multiply-adds, and writes them. Tensor cores read fp32 as
/// tf32.
inline void compute(const Work& work, bool tensor_cores, Flaw flaw, const void* x, const void* w,
                    const void* y, void* result) {
  static int64_t runs = 0;
  ++runs;
  const Convolution& conv = work.conv;
  const Tensor& made = conv.made();
  constexpr FloatFormat kFourBits{8, 3, 127, Encoding::ieee};
  const FloatFormat sums_in = flaw == Flaw::narrow_sums ? kTf32 : conv.sums;
  std::vector<float> sums(static_cast<size_t>(made.elements()));
  over(conv, [&](int64_t at_x, int64_t at_w, int64_t at_y) {
    const auto get = [&](const void* data, const Tensor& tensor, int64_t at) {
      float value = load(data, at, *format_of(tensor.type));
      if (tensor_cores && tensor.type == CUDA_R_32F) value = round_to_format(value, kTf32).value;
      return flaw == Flaw::narrow_operands ? round_to_format(value, kFourBits).value : value;
    };
    const auto sum = [&](int64_t at, float a, float b) {
      float& so_far = sums[static_cast<size_t>(at)];
      so_far = std::fma(a, b, so_far);
      if (sums_in != kFp32) so_far = round_to_format(so_far, sums_in).value;
    };
    if (&made == &conv.y) {
      sum(at_y, get(w, conv.w, at_w), get(x, conv.x, at_x));
    } else if (&made == &conv.x) {
      sum(at_x, get(y, conv.y, at_y), get(w, conv.w, at_w));
    } else {
      sum(at_w, get(y, conv.y, at_y), get(x, conv.x, at_x));
    }
  });
  const bool next = flaw == Flaw::one_ulp || (flaw == Flaw::every_second_run && runs % 2 == 0);
  for (int64_t n = 0; n < made.size[0]; ++n) {
    for (int64_t c = 0; c < made.size[1]; ++c) {
      for (int64_t h = 0; h < made.size[2]; ++h) {
        for (int64_t w_at = 0; w_at < made.size[3]; ++w_at) {
          const int64_t at = made.place(n, c, h, w_at);
          float sum = sums[static_cast<size_t>(at)];
          if (flaw == Flaw::transformed && made.size[3] > 1) {
            const int64_t beside = w_at + 1 < made.size[3] ? w_at + 1 : w_at - 1;
            const float other = sums[static_cast<size_t>(made.place(n, c, h, beside))];
            sum = ((sum + other) + (sum - other)) / 2.0f;
          }
          float value = round_to_format(sum, *format_of(made.type)).value;
          if (next) value = std::nextafter(value, std::numeric_limits<float>::infinity());
          store(result, at, *format_of(work.written.type), value);
        }
      }
    }
  }
}

}  // namespace halfscope::simulated
