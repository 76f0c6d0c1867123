// SPDX-License-Identifier: MIT
// Describes a product for a library in plain numbers: formats in memory, sizes padded for tensor
// cores, cuBLASLt's column-major view of row-major matrices, the tensors of a convolution for
// cuDNN. Nothing here needs CUDA, so tests on any machine can interpret a plan by the library's
// rules and compare.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "gpu/bodies/products.h"

namespace halfscope::gpu {

/// Returns the storage in which a library multiplies operands of this format, or nothing if none
/// can.
std::optional<Storage> storage_of(const FloatFormat& format);
const char* name_of(Storage storage);

/// Alignment of allocations in bytes, and cuBLASLt's default assumption.
inline constexpr int64_t kMostAlignment = 256;

/// A matrix as cuBLASLt sees it: column-major, `rows` x `columns`, columns `leading` elements
/// apart. `transposed` is its op.
struct LtMatrix {
  Storage storage = Storage::fp32;
  int64_t rows = 0, columns = 0, leading = 0;
  bool transposed = false;
  int64_t alignment = kMostAlignment;  ///< bytes, a power of two; all starts are multiples of it
  int64_t stride = 0;                  ///< elements between the matrices of a batch

  friend bool operator==(const LtMatrix&, const LtMatrix&) = default;
};

/// d = op(first) * op(second), m x n x k in the library's terms. It sees our row-major m x n output
/// as its transpose, so `first` is our b and `second` our a.
struct MatrixPlan {
  int64_t m = 0, n = 0, k = 0;
  LtMatrix first, second, d;
  int64_t count = 1;  ///< products of one call, each with the next matrices
  /// A value for each of the m rows of d, stored like d, that is added before results are rounded;
  /// null: none.
  const void* bias = nullptr;

  friend bool operator==(const MatrixPlan&, const MatrixPlan&) = default;
};

/// Strides of a matrix product's operands in elements: a(i, l) is a[i * a_row + l * a_column].
struct MatrixStrides {
  int64_t a_row, a_column, b_row, b_column;
};

/// One level of a batch: `size` products, and how many elements their operands and outputs are
/// apart.
struct BatchLevel {
  int64_t size = 1, a = 0, b = 0, d = 0;
};

/// Positions in elements at which a call's operands and outputs begin.
struct BatchOffset {
  int64_t a = 0, b = 0, d = 0;
};

/// Returns where calls begin that each take one product of every level.
std::vector<BatchOffset> offsets_of(const std::vector<BatchLevel>& levels);

/// Lines of operands with fewer than 32 bits start on a multiple of this many bytes.
inline constexpr int64_t kLineBytes = 16;

/// Returns a plan with operands and output in place. Returns nothing if an operand has no unit
/// stride, if a narrow one has lines that do not start on kLineBytes, or if an fp8 one has a layout
/// other than plan_packed()'s. The output is fp32 if lines of `d` would not start on kLineBytes;
/// they are `d_pitch` elements apart, or n if that is 0.
std::optional<MatrixPlan> plan_in_place(int64_t m, int64_t n, int64_t k, const MatrixStrides& at,
                                        Storage a, Storage b, Storage d, int64_t d_pitch = 0);

/// Operands and outputs in place, in one call or several.
struct InPlacePlan {
  MatrixPlan matrix;
  std::vector<BatchOffset> calls;
};

/// Returns plan_in_place() for a batch of products, innermost level first. One call takes all
/// products of the largest level. Products that read the same b and adjacent rows of a become one.
/// Returns nothing if the matrices of narrow operands do not all start on kLineBytes.
std::optional<InPlacePlan> plan_batch_in_place(int64_t m, int64_t n, int64_t k,
                                               const MatrixStrides& at,
                                               std::vector<BatchLevel> levels, Storage a, Storage b,
                                               Storage d, int64_t d_pitch = 0);

/// A plan with a packed as [m][k] and b as [n][k]: the layout that fp8 needs ("TN"). Sizes are
/// padded with zeros so that lines start on 16 bytes; for fp8, all three sizes. `count` products
/// are packed one after another.
struct PackedPlan {
  MatrixPlan matrix;
  int64_t a_lines, b_lines, pitch;  ///< lines of `pitch` elements
  int64_t d_pitch;                  ///< elements between rows of the output

  /// Returns the memory for the operands of all products, and for their sums.
  int64_t operand_bytes() const;
  int64_t sum_bytes() const;
};
PackedPlan plan_packed(int64_t m, int64_t n, int64_t k, Storage a, Storage b, Storage d,
                       int64_t count = 1);

/// Returns how many of `count` products one call takes so that calls are few, about equal, and need
/// at most `most` bytes; at least one.
int64_t products_of_a_call(int64_t count, int64_t bytes_of_one, int64_t most);

/// Returns why no library multiplies operands stored like this, or "" if one may.
std::string cannot_multiply(std::optional<Storage> a, std::optional<Storage> b);

enum class ConvProduct : uint8_t { forward, grad_input, grad_weight };

/// A tensor with sizes in cuDNN's order (batch or output channel, channel, height, width) and
/// strides in elements.
struct TensorPlan {
  Storage storage = Storage::fp32;
  std::array<int64_t, 4> size{}, stride{};

  friend bool operator==(const TensorPlan&, const TensorPlan&) = default;
};

/// y is the convolution of x with w; `product` selects which of the three is computed. With groups,
/// x has several times the channels of w.
struct ConvPlan {
  ConvProduct product = ConvProduct::forward;
  TensorPlan x, w, y;
  std::array<int64_t, 2> strides{}, dilations{}, pad_before{}, pad_after{};
  bool channels_last = false;  ///< all three tensors; otherwise they have the layout of ONNX

  const TensorPlan& made() const {
    return product == ConvProduct::forward ? y : product == ConvProduct::grad_input ? x : w;
  }
  int64_t groups() const { return w.size[1] > 0 ? x.size[1] / w.size[1] : 1; }
  friend bool operator==(const ConvPlan&, const ConvPlan&) = default;
};

/// Returns the plan of a convolution in one layout. 16-bit tensors need channels last.
ConvPlan plan_convolution(ConvProduct product, const ConvGeometry& s, Storage operands,
                          Storage result, bool channels_last);

/// Returns the plans of a convolution in the order in which to try them. Operands of 16 bits are
/// multiplied as they are or, if the library cannot sum their products in fp32, as tf32, which can
/// represent them. Tensor cores want channels last, so tf32 has them, too, if an operand is
/// `copied` anyway. Engines for fp32 want the layout of ONNX and would convert any other.
std::vector<ConvPlan> plans_of_convolution(ConvProduct product, const ConvGeometry& s,
                                           Storage operands, Storage result, bool copied);

}  // namespace halfscope::gpu
