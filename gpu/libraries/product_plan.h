// SPDX-License-Identifier: MIT
// How a product is put to a library, in plain numbers: formats in memory, sizes padded to what
// tensor cores want, the column-major view that cuBLASLt has of row-major matrices, the tensors of
// a convolution for cuDNN. Nothing here needs CUDA, so that tests on any machine can interpret a
// plan by the library's rules and compare.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/numeric/formats/float_format.h"
#include "gpu/bodies/products.h"

namespace halfscope::gpu {

/// As which a library multiplies operands of this format; nothing if it does not.
std::optional<Storage> storage_of(const FloatFormat& format);
const char* name_of(Storage storage);

/// What allocations begin on, in bytes, and what cuBLASLt counts on unless it is told.
inline constexpr int64_t kMostAlignment = 256;

/// A matrix as cuBLASLt sees it: column-major, `rows` x `columns`, columns `leading` elements
/// apart; op transposes it.
struct LtMatrix {
  Storage storage = Storage::fp32;
  int64_t rows = 0, columns = 0, leading = 0;
  bool transposed = false;
  int64_t alignment = kMostAlignment;  ///< bytes, a power of two, that it begins on a multiple of
};

/// d = op(first) * op(second), m x n x k in the library's terms. A row-major result of our m rows
/// and n columns is the transposed of it, so `first` is our b and `second` our a.
struct MatrixPlan {
  int64_t m = 0, n = 0, k = 0;
  LtMatrix first, second, d;
};

/// Strides of a matrix product's operands in elements: a(i, l) is a[i * a_row + l * a_column].
struct MatrixStrides {
  int64_t a_row, a_column, b_row, b_column;
};

/// Lines of operands of less than 32 bits begin on so many bytes.
inline constexpr int64_t kLineBytes = 16;

/// Operands and result as they lie there; nothing if an operand has no unit stride, or, of narrow
/// ones, lines that do not begin on kLineBytes or, of fp8, a layout other than plan_packed()'s. The
/// result is fp32 where lines of `d` would not begin so.
std::optional<MatrixPlan> plan_in_place(int64_t m, int64_t n, int64_t k, const MatrixStrides& at,
                                        Storage a, Storage b, Storage d);

/// a packed as [m][k], b as [n][k]: the layout that fp8 needs ("TN"). Sizes are rounded up, with
/// zeros, so that lines begin on 16 bytes; of fp8 all three of them.
struct PackedPlan {
  MatrixPlan matrix;
  int64_t a_lines, b_lines, pitch;  ///< lines of `pitch` elements
  int64_t d_pitch;                  ///< elements between rows of the result
};
PackedPlan plan_packed(int64_t m, int64_t n, int64_t k, Storage a, Storage b, Storage d);

/// Why no library multiplies operands stored like this; empty if one may.
std::string cannot_multiply(std::optional<Storage> a, std::optional<Storage> b);

enum class ConvProduct : uint8_t { forward, grad_input, grad_weight };

/// Sizes in the order that cuDNN has them in (batch or output channel, channel, height, width),
/// and distances in elements.
struct TensorPlan {
  Storage storage = Storage::fp32;
  std::array<int64_t, 4> size{}, stride{};
};

/// y is the convolution of x with w; `product` says which of the three is computed.
struct ConvPlan {
  ConvProduct product = ConvProduct::forward;
  TensorPlan x, w, y;
  std::array<int64_t, 2> strides{}, dilations{}, pad_before{}, pad_after{};
};

/// Tensors of 16 bits lie with channels last, which tensor cores want, those of fp32 as in ONNX.
/// The result lies like the operands.
ConvPlan plan_convolution(ConvProduct product, const ConvGeometry& s, Storage operands,
                          Storage result);

}  // namespace halfscope::gpu
