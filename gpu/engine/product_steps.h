// SPDX-License-Identifier: MIT
// Steps of operators that sum products: Gemm, Conv and its gradients.
#pragma once

#include <type_traits>

#include "gpu/bodies/products.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// Throws Error for the sums that need tensor cores.
template <class X, class T>
ChainSpec product_chain(const NodeCall<X, T>& c, bool scaled) {
  SumSpec spec = c.sum_spec();
  if (tensor_core_of(spec)) throw no_such_sums(*c.node);
  // A sum that is scaled is not the result yet: it must not be made ready for its rounding.
  if (scaled && spec.accumulation.kind == Accumulation::fp64) spec.write = kFp32;
  return chain_spec(spec);
}

template <class X, class T, class Source>
Step sums_of_products(const NodeCall<X, T>& c, const Source& source) {
  Epilogue<T> epilogue;
  // Inputs beyond the bias are scales.
  epilogue.scaled = !c.unrounded && c.in.size() > kFirstScaleInput;
  if (epilogue.scaled) {
    epilogue.first_scale = c.optional_in(kFirstScaleInput);
    epilogue.second_scale = c.optional_in(kFirstScaleInput + 1);
  }
  epilogue.how = product_chain(c, epilogue.scaled);
  const bool has_bias = c.node->op == "Gemm" || c.node->op == "Conv";
  epilogue.bias = has_bias ? c.optional_in(2) : nullptr;
  X& executor = *c.executor;
  if constexpr (std::is_same_v<T, float>) {
    const bool fp32 =
        epilogue.how.kind == Accumulation::fp32 || epilogue.how.kind == Accumulation::tensor_core;
    if (fp32 && epilogue.how.is_single_chain()) {
      const ProductTile<Source> tile{source, epilogue};
      return [&executor, tile](const RunState&) { executor.blocks(tile); };
    }
  }
  return items_step(executor, source.m * source.n, ProductElement<T, Source>{source, epilogue});
}

template <class X, class T>
Step gemm_step(const NodeCall<X, T>& c) {
  const bool ta = int_attribute(*c.node, "transA", 0) != 0;
  const bool tb = int_attribute(*c.node, "transB", 0) != 0;
  const Shape& a = c.in_shape(0);
  const Shape& y = c.out_shape(0);
  const int64_t m = y[0], n = y[1], k = ta ? a[0] : a[1];
  return sums_of_products(c, GemmSource<T>{c.in[0], c.in[1], c.out[0], m, n, k, ta ? 1 : k,
                                           ta ? m : 1, tb ? 1 : n, tb ? k : 1});
}

inline ConvGeometry conv_geometry(const Node& node, const Shape& x, const Shape& w,
                                  const Shape& y) {
  const ConvWindow window = conv_window(node);
  return {.batch = x[0],
          .in = x[1],
          .height = x[2],
          .width = x[3],
          .out = w[0],
          .kernel_h = w[2],
          .kernel_w = w[3],
          .stride_h = window.stride_h,
          .stride_w = window.stride_w,
          .dilation_h = window.dilation_h,
          .dilation_w = window.dilation_w,
          .pad_top = window.pad_top,
          .pad_left = window.pad_left,
          .out_height = y[2],
          .out_width = y[3]};
}

/// Missing taps of an input gradient take part where a sum has a fixed shape (emulation/gemm).
inline bool zeros_take_part(const Accumulation& how) {
  return !how.is_single_chain() || how.kind == Accumulation::pairwise ||
         how.kind == Accumulation::kahan;
}

template <class X, class T>
Step product_step(const NodeCall<X, T>& c) {
  const std::string& op = c.node->op;
  if (op == "Gemm") return gemm_step(c);
  if (op == "Conv") {
    const ConvGeometry s = conv_geometry(*c.node, c.in_shape(0), c.in_shape(1), c.out_shape(0));
    return sums_of_products(c, ConvSource<T>{c.in[0], c.in[1], c.out[0], s.out,
                                             s.batch * s.pixels(), s.in * s.taps(), s});
  }
  if (op == "ConvGradInput") {  // (dy, w) -> dx
    const ConvGeometry s = conv_geometry(*c.node, c.out_shape(0), c.in_shape(1), c.in_shape(0));
    return sums_of_products(
        c, ConvGradInputSource<T>{c.in[0], c.in[1], c.out[0], s.in, s.batch * s.height * s.width,
                                  s.taps() * s.out, s, zeros_take_part(c.node->plan.accumulation)});
  }
  if (op == "ConvGradWeight") {  // (dy, x) -> dw
    const ConvGeometry s = conv_geometry(*c.node, c.in_shape(1), c.out_shape(0), c.in_shape(0));
    return sums_of_products(c, ConvGradWeightSource<T>{c.in[0], c.in[1], c.out[0], s.out,
                                                       s.in * s.taps(), s.batch * s.pixels(), s});
  }
  return {};
}

}  // namespace halfscope::gpu
