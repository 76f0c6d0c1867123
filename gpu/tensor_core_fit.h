// SPDX-License-Identifier: MIT
// Which layers of a network have dimensions that tensor cores want. Nothing here needs a GPU.
//
// The rule is that of NVIDIA's guides: lines of operands are whole multiples of 16 bytes, and best
// of 128 bytes from A100 on. That is 8 (64) elements of fp16 and bf16, 4 (32) of tf32, 16 (128) of
// fp8. For fully connected layers it asks this of the batch and of the numbers of inputs and
// outputs, for convolutions of the numbers of channels alone, as these lie last in memory; the
// pixels may be any number. Since cuBLAS 11.0 and cuDNN 7.6.3 tensor cores are used for other sizes
// too, only less efficiently; before they were not. Products of fp8 and of what has a scale for
// every block are done in no other sizes: whoever calls cuBLASLt has to pad. The three products of
// a layer in training permute M, N and K, so one condition holds for all of them.
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
#include "gpu/device_info.h"

namespace halfscope {

/// What tensor cores take operands as.
struct TensorCoreInput {
  std::string_view name;  ///< as tensor_core_formats() lists it
  int64_t multiple = 0;   ///< elements, of the dimensions
  int64_t best = 0;       ///< the same from A100 on
  bool padded = false;    ///< other dimensions are refused, not only slower

  friend bool operator==(const TensorCoreInput&, const TensorCoreInput&) = default;
};

/// Nothing for formats that NVIDIA's tensor cores do not multiply; fp32 is one.
std::optional<TensorCoreInput> tensor_core_input(const FloatFormat& format,
                                                 const TensorScale& scale = {});

/// One of M, N, K.
struct ProductSize {
  std::string name;  ///< in the singular: "output", "input channel"
  int64_t size = 0;
  bool matters = true;  ///< has to be a multiple
};

/// How a layer's product suits tensor cores.
struct TensorCoreFit {
  std::string path, op;
  FloatFormat read;
  std::optional<TensorCoreInput> input;
  int64_t products = 1;  ///< side by side: matrices of a batch, groups of a convolution
  /// M, N, K of one of them in the forward pass. Convolutions have samples x pixels, channels out,
  /// channels in.
  std::array<ProductSize, 3> sizes;

  /// All sizes that matter are multiples; false where there is no input.
  bool fits() const;
  /// They are multiples of the best number.
  bool fits_best() const;
  /// What to do about every size that is none: "1 input channel: pad to 8".
  std::vector<std::string> advice() const;
};

/// Every node of the forward pass that sums products, in execution order.
std::vector<TensorCoreFit> tensor_core_fits(const Executable& executable);

/// Whether the device's tensor cores take that.
bool has_tensor_cores(const GpuDevice& device, const TensorCoreInput& input);

}  // namespace halfscope
