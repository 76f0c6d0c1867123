// SPDX-License-Identifier: MIT
// A convolution as an operation graph for cuDNN: of one node or, so that products of 16 bits are
// summed and written in fp32, of two. The second copies the first one's sums, which are virtual:
// they stay in registers. cuDNN 9 has engines for that, but hardly any that write fp32 at once.
// cuDNN checks all of it without a device.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/libraries/cudnn_descriptor.cuh"
#include "gpu/libraries/product_plan.h"

namespace halfscope::gpu::cudnn {

inline cudnnDataType_t type_of(Storage storage) {
  switch (storage) {
    case Storage::fp16:
      return CUDNN_DATA_HALF;
    case Storage::bf16:
      return CUDNN_DATA_BFLOAT16;
    case Storage::e4m3fn:
      return CUDNN_DATA_FP8_E4M3;
    case Storage::e5m2:
      return CUDNN_DATA_FP8_E5M2;
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return CUDNN_DATA_FLOAT;
}

constexpr int64_t kX = 1, kW = 2, kY = 3;  ///< unique ids of the tensors
constexpr int64_t kSums = 4;               ///< id of the virtual one
constexpr int64_t kAlignment = 16;         ///< bytes, of every tensor

inline Descriptor tensor(int64_t name, const TensorPlan& plan, bool is_virtual = false) {
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t type = type_of(plan.storage);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &name);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &kAlignment);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, plan.size.data(), 4);
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, plan.stride.data(), 4);
  if (is_virtual) {
    descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
  }
  descriptor.finalize("tensor");
  return descriptor;
}

inline Descriptor window(const ConvPlan& plan) {
  Descriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t dimensions = 2;
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, &dimensions);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, plan.pad_before.data(), 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, plan.pad_after.data(), 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, plan.dilations.data(), 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, plan.strides.data(), 2);
  descriptor.finalize("convolution");
  return descriptor;
}

/// The three operations' constants for their common parts.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
};

constexpr OperationNames names_of(ConvProduct product) {
  switch (product) {
    case ConvProduct::grad_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvProduct::grad_weight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case ConvProduct::forward:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

/// The nodes of a graph and all that they refer to.
class Nodes {
 public:
  Nodes(const ConvPlan& plan, bool two) {
    const OperationNames names = names_of(plan.product);
    const TensorPlan* const made = &plan.made();
    Descriptor node(names.type);
    int64_t made_id = 0;
    const auto add = [&](cudnnBackendAttributeName_t name, int64_t id, const TensorPlan& each) {
      const bool is_made = &each == made;
      if (is_made) made_id = id;
      const bool is_virtual = two && is_made;
      node.set(name, keep(tensor(is_virtual ? kSums : id, each, is_virtual)));
    };
    add(names.x, kX, plan.x);
    add(names.w, kW, plan.w);
    add(names.y, kY, plan.y);
    const float one = 1.0f, zero = 0.0f;
    node.set(names.window, keep(window(plan)));
    node.set(names.alpha, CUDNN_TYPE_FLOAT, &one);
    node.set(names.beta, CUDNN_TYPE_FLOAT, &zero);
    node.finalize("operation");
    nodes_.push_back(keep(std::move(node)).raw());
    if (two) add_copy(tensor(kSums, *made, true), tensor(made_id, *made));
  }

  /// Returns the finished graph, for the device of a handle or, with null, one that is described.
  Descriptor graph(cudnnHandle_t handle) const {
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle != nullptr) {
      graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    }
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, nodes_.data(),
              static_cast<int64_t>(nodes_.size()));
    graph.finalize("operation graph");
    return graph;
  }

 private:
  const Descriptor& keep(Descriptor descriptor) {
    kept_.push_back(std::move(descriptor));
    return kept_.back();
  }
  void add_copy(Descriptor from, Descriptor to) {
    Descriptor identity(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    identity.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
    identity.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &compute);
    identity.finalize("copy");
    Descriptor node(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    node.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(identity)));
    node.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, keep(std::move(from)));
    node.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, keep(std::move(to)));
    node.finalize("copy");
    nodes_.push_back(keep(std::move(node)).raw());
  }

  std::vector<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> nodes_;  ///< of kept_
};

}  // namespace halfscope::gpu::cudnn
