// SPDX-License-Identifier: MIT
// The lists of PyTorch's autocast: what it does with a function, by device.
//   source: PyTorch 2.15, aten/src/ATen/autocast_mode.h and .cpp. tests/policy compares the names
//   with those that PyTorch's dispatcher has kernels for under the keys AutocastCUDA and
//   AutocastCPU.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace halfscope {

/// The list of autocast that a function of PyTorch is on.
enum class TorchList : uint8_t {
  none,       ///< runs in the dtype of its inputs, the widest if they differ
  low,        ///< casts its inputs to the low dtype
  fp32,       ///< casts its inputs to float32
  set_dtype,  ///< is called with dtype=torch.float32
  promote,    ///< casts its inputs to the widest of their dtypes
  banned,     ///< raises an error
};

struct TorchListed {
  const char* name;  ///< "upsample_nearest2d", without overload
  TorchList cuda, cpu;
};

/// Returns the functions that are on a list of at least one device, by name in ascending order.
/// Functions of linear algebra and Fourier transforms are left out: no network here has them.
std::span<const TorchListed> torch_lists() noexcept;
/// Returns the function's row, or null if it is on no list.
const TorchListed* find_torch_listed(std::string_view name) noexcept;

/// Attribute of a node that an exporter of PyTorch wrote for one call: the function that was
/// called, as an index into torch_lists() plus 1, or 0 for a function on no list. A call may be
/// several nodes.
inline constexpr const char* kTorchFunction = "torch_function";
/// Its value for nodes whose call the file does not name, as without the attribute.
inline constexpr int64_t kUnknownFunction = -1;
/// Returns the attribute's value for a function.
int64_t torch_function_number(std::string_view name) noexcept;

/// Attribute of an Identity node where code of PyTorch casts under autocast, as .float() or
/// .to(x.dtype) does: two values of TorchCast, for CUDA and for the CPU.
inline constexpr const char* kTorchCast = "torch_cast";
enum class TorchCast : uint8_t {
  none,     ///< its input has the dtype already
  float32,  ///< casts to float32
  low,      ///< casts to the dtype given to autocast
};
/// Attribute of a node inside of torch.autocast(enabled=False): for CUDA and for the CPU, 1 where
/// autocast is off and 0 where it is not.
inline constexpr const char* kAutocastOff = "autocast_off";

}  // namespace halfscope
