// SPDX-License-Identifier: MIT
// NVIDIA's libraries as ProductLibrary, each behind a file of its own, which is built where its
// headers are. Types of CUDA stay out of here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

/// A cudaStream_t.
using StreamPointer = void*;

/// The library; null, and why, where it is not there. In fast mode it chooses freely, else only
/// among what gives the same bits in every run.
std::unique_ptr<ProductLibrary> open_cublas_lt(StreamPointer stream, bool fast, std::string& why);
std::unique_ptr<ProductLibrary> open_cudnn(StreamPointer stream, bool fast, std::string& why);

/// What the library has against the description of a plan, as far as it can tell without a device;
/// empty if nothing. Nothing where there is no library.
std::optional<std::string> cublas_lt_objection(const MatrixPlan& plan);
std::optional<std::string> cudnn_objection(const ConvPlan& plan);

/// What cuDNN would compute a plan with on a device that is described in its own words, as
/// LibraryProduct::text() says it: nothing runs, and no device is needed. "none: ..." where it has
/// no engine that will do; nothing where there is no library.
std::optional<std::string> cudnn_choice(const ConvPlan& plan, bool fast,
                                        const std::string& device_json);

/// What cuDNN says about a convolution on the current device.
struct CudnnEngines {
  /// Engines that its heuristics propose, best first, with what reproducible mode has against them:
  /// "engine 7", "engine 3 (Winograd, not deterministic)".
  std::vector<std::string> proposed;
  std::string chosen;    ///< LibraryProduct::text() of the first that will do; "" if there is none,
  std::string why_none;  ///< and why
};
/// Asks cuDNN, as compiling a program does. Nothing runs. Returns nothing where there is no
/// library.
std::optional<CudnnEngines> cudnn_engines(const ConvPlan& plan, bool fast);

/// Both as one: matrices by cuBLASLt, convolutions by cuDNN.
std::unique_ptr<ProductLibrary> open_libraries(StreamPointer stream, bool fast);

}  // namespace halfscope::gpu
