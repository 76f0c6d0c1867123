// SPDX-License-Identifier: MIT
// Finds the layers of a network whose dimensions suit tensor cores. Nothing here needs a GPU.
//
// The rule is from NVIDIA's guides: lines of operands should be multiples of 16 bytes, and from
// A100 on ideally of 128 bytes. That is 8 (64) elements of fp16 and bf16, 4 (32) of tf32, 16 (128)
// of fp8 and int8, 32 (256) of int4. For fully connected layers the rule applies to the batch size
// and the numbers of inputs and outputs. For convolutions it applies only to the numbers of
// channels, which are the last dimension in memory; any number of pixels will do. Since cuBLAS 11.0
// and cuDNN 7.6.3, tensor cores also process other sizes, but less efficiently; before, they did
// not. Products of fp8 and of operands with a scale per block need these sizes: callers of cuBLASLt
// have to pad. The three products of a layer in training permute M, N and K, so one condition
// covers all of them.
//
// Sources: NVIDIA, "Matrix Multiplication Background User's Guide", section 2.2, table 1 (multiples
// per type and library version); "Linear/Fully-Connected Layers User's Guide" and "Convolutional
// Layers User's Guide", quick start checklists; "cuBLAS", cublasLtMatmul(), requirements of FP8
// kernels; OCP, "Microscaling Formats (MX) Specification" 1.0 (blocks of 32).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/lower/lower.h"

namespace halfscope {

/// Requirements of tensor cores for one input format.
struct TensorCoreInput {
  std::string_view name;  ///< as in tensor_core_formats()
  int64_t multiple = 0;   ///< dimensions should be multiples of this many elements
  int64_t best = 0;       ///< same, for best speed from A100 on
  bool padded = false;    ///< other sizes are rejected, not just slower

  friend bool operator==(const TensorCoreInput&, const TensorCoreInput&) = default;
};

/// Returns nothing for formats that NVIDIA's tensor cores do not multiply, such as fp32.
std::optional<TensorCoreInput> tensor_core_input(const FloatFormat& format,
                                                 const TensorScale& scale = {});

/// One of M, N, K.
struct ProductSize {
  std::string name;  ///< in the singular: "output", "input channel"
  int64_t size = 0;
  bool matters = true;  ///< must be a multiple
};

/// How well a layer's product suits tensor cores.
struct TensorCoreFit {
  std::string path, op;
  FloatFormat read;
  std::optional<TensorCoreInput> input;
  int64_t products = 1;  ///< in the batch: matrices, or groups of a convolution
  /// M, N, K of one product in the forward pass. For convolutions: samples x pixels, output
  /// channels, input channels.
  std::array<ProductSize, 3> sizes;

  /// Returns whether all sizes that matter are multiples; false without an input format.
  bool fits() const;
  /// Returns whether they are multiples of the best number.
  bool fits_best() const;
  /// Returns what to do about every size that is not a multiple: "1 input channel: pad to 8".
  std::vector<std::string> advice() const;
};

/// Returns every node of the forward pass that sums products, in execution order.
std::vector<TensorCoreFit> tensor_core_fits(const Executable& executable);

}  // namespace halfscope
