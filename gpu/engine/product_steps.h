// SPDX-License-Identifier: MIT
// Steps of operators that sum products: Gemm, MatMul, Conv and its gradients.
#pragma once

#include <optional>
#include <type_traits>

#include "gpu/bodies/mma.h"
#include "gpu/bodies/products.h"
#include "gpu/engine/device_cores.h"
#include "gpu/engine/library_steps.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// Returns the factors and the bias that are applied after the sums of a product.
template <class X, class T>
Epilogue<T> epilogue_of(const NodeCall<X, T>& c, SumSpec spec) {
  Epilogue<T> epilogue;
  // Inputs beyond the bias are scales.
  epilogue.scaled = !c.unrounded && c.in.size() > kFirstScaleInput;
  if (epilogue.scaled) {
    epilogue.first_scale = c.optional_in(kFirstScaleInput);
    epilogue.second_scale = c.optional_in(kFirstScaleInput + 1);
  }
  const GemmBias outside = gemm_bias(*c.graph, *c.node);
  epilogue.alpha = static_cast<T>(outside.alpha);
  epilogue.beta = static_cast<T>(outside.beta);
  epilogue.scaled = epilogue.scaled || !outside.part_of_sums;
  // A scaled sum is not the output yet, so it must not be prepared for the output's rounding.
  if (epilogue.scaled && spec.accumulation.kind == Accumulation::fp64) spec.write = kFp32;
  epilogue.how = chain_spec(spec);
  epilogue.bias = c.optional_in(2);
  return epilogue;
}

/// Returns the instruction that sums like `spec` on a device with those tensor cores. Returns
/// nothing if there is none and the model has to compute it.
inline std::optional<MmaInput> mma_input(const DeviceCores& device, const SumSpec& spec) {
  const Accumulation& how = spec.accumulation;
  const bool one_chain = how.is_single_chain() && !how.half_accumulator;
  if (how.arch != device.arch || !one_chain) return std::nullopt;
  const FloatFormat a = spec.read.without_options(), b = spec.b_format().without_options();
  const bool a4 = a == kE4m3fn, a5 = a == kE5m2, b4 = b == kE4m3fn, b5 = b == kE5m2;
  if ((a4 || a5) && (b4 || b5) && device.fp8) {
    if (a4) return b4 ? MmaInput::e4m3_e4m3 : MmaInput::e4m3_e5m2;
    return b4 ? MmaInput::e5m2_e4m3 : MmaInput::e5m2_e5m2;
  }
  if (a != b) return std::nullopt;
  if (a == kFp16) return MmaInput::f16;
  if (a == kBf16) return MmaInput::bf16;
  return a == kTf32 ? std::optional(MmaInput::tf32) : std::nullopt;
}

/// Makes the step of the node's sums, with operands in the order of Source::a and Source::b.
template <class X, class T, class Source>
Step sums_of_products(const NodeCall<X, T>& c, const Source& source, const SumSpec& spec) {
  const Epilogue<T> epilogue = epilogue_of(c, spec);
  X& executor = *c.executor;
  const int64_t results = source.count * source.m * source.n;
  if (c.kernel != nullptr) c.kernel->text = "own kernel";
  if constexpr (std::is_same_v<T, float>) {
    if (c.libraries != nullptr) {
      if (Step step = library_step(c, source, spec, epilogue)) return step;
    }
    if (const std::optional<TensorCoreProfile> core = tensor_core_of(spec)) {
      if (const std::optional<MmaInput> input = mma_input(executor.tensor_core(), spec)) {
        if (c.kernel != nullptr) c.kernel->text = "own kernel on the tensor cores of this device";
        const MmaTile<Source> tile{source, epilogue, *core, *input};
        return blocks_step(executor, tile);
      }
      const CoreSpec how{*core, spec.accumulation.promote, spec.accumulation.split_k};
      return items_step(executor, results, CoreElement<Source>{source, epilogue, how});
    }
    const bool fp32 =
        epilogue.how.kind == Accumulation::fp32 || epilogue.how.kind == Accumulation::tensor_core;
    // With many products of few rows, a tile would be mostly empty.
    const bool fills_tiles = source.count == 1 || source.m >= ProductTile<Source>::kSide;
    if (fp32 && fills_tiles && epilogue.how.is_single_chain()) {
      const ProductTile<Source> tile{source, epilogue};
      return blocks_step(executor, tile);
    }
  }
  using Element = ProductElement<T, Source>;
  return sums_step(c, results, Element{source, epilogue},
                   [](Element& body) -> ChainSpec& { return body.epilogue.how; });
}

/// Makes the step of a product with these strides.
template <class X, class T>
Step product_of_matrices(const NodeCall<X, T>& c, const MatMulShape& s) {
  GemmSource<T> source{c.in[0], c.in[1], c.out[0],   s.m,     s.n,
                       s.k,     s.a_row, s.a_column, s.b_row, s.b_column};
  source.count = element_count(s.products);
  source.a_batch = strided(*c.node, s.products, s.a_batch);
  source.b_batch = strided(*c.node, s.products, s.b_batch);
  const GemmBias bias = gemm_bias(*c.graph, *c.node);
  source.bias_row = bias.row;
  source.bias_column = bias.column;
  if constexpr (std::is_same_v<T, float>) {
    if (c.out_rows.pitch > 0) {
      const SumSpec spec = c.sum_spec();
      if (Step step = padded_rows_step(c, source, spec, epilogue_of(c, spec))) return step;
      *c.cannot_pad = true;
      return in_turn({});
    }
  }
  return sums_of_products(c, source, c.sum_spec());
}

/// Makes a product read an operand's padded rows if it has them. A recorded step pads the rows
/// first.
template <class X>
void read_padded_rows(NodeCall<X, float>& c, size_t i, int64_t& row, int64_t& column,
                      std::vector<Step>& steps) {
  if (i >= c.in_rows.size() || c.in_rows[i].pitch == 0) return;
  const PaddedRows rows = c.in_rows[i];
  const Shape& shape = c.in_shape(i);
  if (!c.is_plain) {
    const Storage storage = c.in[i].storage();
    const Destination to{rows.memory, storage, format_of(storage)};
    steps.push_back(
        items_step(*c.executor, shape[0] * rows.pitch, PadRows{c.in[i], to, shape[1], rows.pitch}));
    c.in[i] = In<float>(rows.memory, storage);
  }
  (row == shape[1] && column == 1 ? row : column) = rows.pitch;
}

/// Makes a product that sums along padded rows sum their zeros, too; see with_zero_rows().
template <class X>
void sum_padding(NodeCall<X, float>& c, MatMulShape& s, std::vector<Step>& steps) {
  const bool along = !c.in_rows.empty() && c.in_rows[0].pitch > 0 && s.a_column == 1;
  const bool lies = s.b_row == s.n && s.b_column == 1 && bytes_of(c.in[1].storage()) == 2;
  if (!along || !lies || element_count(s.products) != 1) return;
  steps.push_back(with_zero_rows(c, c.in[1], s.k, c.in_rows[0].pitch, s.n));
  s.k = c.in_rows[0].pitch;
}

/// Gemm and MatMul.
template <class X, class T>
Step matrix_step(const NodeCall<X, T>& c) {
  MatMulShape s = matmul_shape(*c.node, c.in_shape(0), c.in_shape(1));
  std::vector<Step> steps;
  NodeCall<X, T> call = c;
  if constexpr (std::is_same_v<T, float>) {
    read_padded_rows(call, 0, s.a_row, s.a_column, steps);
    read_padded_rows(call, 1, s.b_row, s.b_column, steps);
    sum_padding(call, s, steps);
  }
  if (!steps.empty()) {
    steps.push_back(product_of_matrices(call, s));
    return in_turn(std::move(steps));
  }
  return product_of_matrices(call, s);
}

inline ConvGeometry conv_geometry(const Node& node, const Shape& x, const Shape& w,
                                  const Shape& y) {
  const ConvWindow window = conv_window(node);
  return {.batch = x[0],
          .group = window.group,
          .in = w[1],
          .height = x[2],
          .width = x[3],
          .out = w[0] / window.group,
          .kernel_h = w[2],
          .kernel_w = w[3],
          .stride_h = window.stride_h,
          .stride_w = window.stride_w,
          .dilation_h = window.dilation_h,
          .dilation_w = window.dilation_w,
          .pad_top = window.pad_top,
          .pad_left = window.pad_left,
          .pad_bottom = window.pad_bottom,
          .pad_right = window.pad_right,
          .out_height = y[2],
          .out_width = y[3]};
}

/// Returns whether missing taps of an input gradient count as products with zero. They do where the
/// emulator stores all operands (emulation/gemm): for sums with a fixed shape, or without tiles.
inline bool zeros_take_part(const SumSpec& spec) {
  const Accumulation& how = spec.accumulation;
  if (!how.is_single_chain() || how.rounds_otherwise()) return true;
  const bool fixed_shape = how.kind == Accumulation::pairwise ||
                           how.kind == Accumulation::interleaved16 ||
                           how.kind == Accumulation::kahan;
  if (fixed_shape) return true;
  if (how.kind == Accumulation::tensor_core) return spec.read != kFp32;
  if (!how.sums_in_format()) return false;
  const FloatFormat& write = spec.write;
  const bool usual = write.encoding == Encoding::ieee || write.encoding == Encoding::finite_nan;
  return !usual || write.mantissa_bits == 0 || write.flush_in || write.flush_out;
}

template <class X, class T>
Step conv_step(const NodeCall<X, T>& c) {
  const ConvGeometry s = conv_geometry(*c.node, c.in_shape(0), c.in_shape(1), c.out_shape(0));
  return sums_of_products(c,
                          ConvSource<T>{c.in[0], c.in[1], c.out[0], s.out, s.batch * s.pixels,
                                        s.in * s.taps, s, s.group},
                          c.sum_spec().swapped());
}

template <class X, class T>
Step conv_grad_input_step(const NodeCall<X, T>& c) {  // (dy, w) -> dx
  const ConvGeometry s = conv_geometry(*c.node, c.out_shape(0), c.in_shape(1), c.in_shape(0));
  return sums_of_products(
      c,
      ConvGradInputSource<T>{c.in[0], c.in[1], c.out[0], s.in, s.batch * s.height * s.width,
                             s.taps * s.out, s, zeros_take_part(c.sum_spec()), s.group},
      c.sum_spec().swapped());
}

template <class X, class T>
Step conv_grad_weight_step(const NodeCall<X, T>& c) {  // (dy, x) -> dw
  const ConvGeometry s = conv_geometry(*c.node, c.in_shape(1), c.out_shape(0), c.in_shape(0));
  return sums_of_products(c,
                          ConvGradWeightSource<T>{c.in[0], c.in[1], c.out[0], s.out, s.in * s.taps,
                                                  s.batch * s.pixels, s, s.group},
                          c.sum_spec());
}

template <class X, class T>
Step product_step(const NodeCall<X, T>& c) {
  switch (find_op(c.node->op).product) {
    case ProductKind::none:
      return {};
    case ProductKind::matrix:
      return matrix_step(c);
    case ProductKind::conv:
      return conv_step(c);
    case ProductKind::conv_grad_input:
      return conv_grad_input_step(c);
    case ProductKind::conv_grad_weight:
      return conv_grad_weight_step(c);
  }
  return {};
}

}  // namespace halfscope::gpu
