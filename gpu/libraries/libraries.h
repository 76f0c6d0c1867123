// SPDX-License-Identifier: MIT
// NVIDIA's libraries as ProductLibrary, each in its own file, which is built if its headers are
// found. Types of CUDA do not appear here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

/// A cudaStream_t.
using StreamPointer = void*;

/// Opens the library, or returns null and sets `why`. In fast mode the library chooses freely;
/// otherwise only among algorithms that give the same bits in every run.
std::unique_ptr<ProductLibrary> open_cublas_lt(StreamPointer stream, bool fast, std::string& why);
std::unique_ptr<ProductLibrary> open_cudnn(StreamPointer stream, bool fast, std::string& why);

/// Returns the library's objection to a plan's description, as far as it can tell without a device;
/// "" if there is none. Returns nothing if the library was not found.
std::optional<std::string> cublas_lt_objection(const MatrixPlan& plan);
std::optional<std::string> cudnn_objection(const ConvPlan& plan);

/// The engine that cuDNN would choose for a convolution.
struct CudnnChoice {
  std::string text;        ///< LibraryProduct::text(); "" if no engine is suitable
  std::string why_none{};  ///< reason if there is none
  int64_t engine = -1;
  bool tensor_cores = false;
  bool compiled_now = false;  ///< compiled at run time, not part of the library
  bool sums_copied = false;   ///< a second node of its graph writes the sums
  int64_t workspace_bytes = 0;
};
/// Asks for the choice on a device described by cuDNN's JSON, with the most workspace. Nothing runs
/// and no device is needed; but cuDNN hides engines that are compiled at run time if it finds no
/// driver. Returns nothing if the library was not found or is too old to describe devices.
std::optional<CudnnChoice> cudnn_choice(const ConvPlan& plan, bool fast,
                                        const std::string& device_json);

/// cuDNN's proposals for a convolution on the current device.
struct CudnnEngines {
  /// Engines that its heuristics propose, best first, with the reasons why reproducible mode
  /// rejects them: "engine 7", "engine 3 (Winograd, not deterministic)".
  std::vector<std::string> proposed;
  std::string chosen;    ///< LibraryProduct::text() of the first suitable one; "" if there is none
  std::string why_none;  ///< reason if there is none
};
/// Asks cuDNN for its engines, as compiling a program does. Nothing runs. Returns nothing if the
/// library was not found.
std::optional<CudnnEngines> cudnn_engines(const ConvPlan& plan, bool fast);

/// Opens both as one library: matrices by cuBLASLt, convolutions by cuDNN.
std::unique_ptr<ProductLibrary> open_libraries(StreamPointer stream, bool fast);

}  // namespace halfscope::gpu
