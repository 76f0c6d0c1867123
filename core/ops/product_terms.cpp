// SPDX-License-Identifier: MIT
#include "core/ops/product_terms.h"

namespace halfscope {
namespace {

/// Returns the offset of product p in an array of products with these `sizes` and distances.
int64_t batch_offset(const Shape& sizes, const std::vector<int64_t>& distances, int64_t p) {
  int64_t offset = 0;
  for (size_t d = sizes.size(); d-- > 0;) {
    offset += p % sizes[d] * distances[d];
    p /= sizes[d];
  }
  return offset;
}

struct Place4 {
  int64_t n, c, h, w;
};

/// Converts an element's position in a four-dimensional tensor to row-major indices, and back.
Place4 unpacked(const Shape& shape, int64_t at) {
  return {at / (shape[1] * shape[2] * shape[3]), at / (shape[2] * shape[3]) % shape[1],
          at / shape[3] % shape[2], at % shape[3]};
}
int64_t packed(const Shape& shape, const Place4& at) {
  return ((at.n * shape[1] + at.c) * shape[2] + at.h) * shape[3] + at.w;
}

}  // namespace

std::optional<ProductTerms> ProductTerms::of(const Graph& graph, const Node& node) {
  const auto shape = [&](ValueId value) { return graph.value(value).shape; };
  ProductTerms terms;
  terms.results_ = element_count(shape(node.outputs[0]));
  terms.kind_ = find_op(node.op).product;
  switch (terms.kind_) {
    case ProductKind::none:
      return std::nullopt;
    case ProductKind::matrix: {
      const GemmBias bias = gemm_bias(graph, node);
      terms.matrix_ = matmul_shape(node, shape(node.inputs[0]), shape(node.inputs[1]));
      terms.terms_ = terms.matrix_.k;
      terms.bias_row_ = bias.row;
      terms.bias_column_ = bias.column;
      return terms;
    }
    case ProductKind::conv:
      terms.x_ = shape(node.inputs[0]);
      terms.w_ = shape(node.inputs[1]);
      terms.y_ = shape(node.outputs[0]);
      terms.terms_ = terms.w_[1] * terms.w_[2] * terms.w_[3];
      break;
    case ProductKind::conv_grad_input:  // (dy, w) -> dx
      terms.x_ = shape(node.outputs[0]);
      terms.w_ = shape(node.inputs[1]);
      terms.y_ = shape(node.inputs[0]);
      terms.terms_ = terms.w_[2] * terms.w_[3] * (terms.w_[0] / conv_window(node).group);
      break;
    case ProductKind::conv_grad_weight:  // (dy, x) -> dw
      terms.x_ = shape(node.inputs[1]);
      terms.w_ = shape(node.outputs[0]);
      terms.y_ = shape(node.inputs[0]);
      terms.terms_ = terms.y_[0] * terms.y_[2] * terms.y_[3];
      break;
  }
  terms.window_ = conv_window(node);
  return terms;
}

ProductTerms::Place ProductTerms::place(int64_t result, int64_t term) const {
  if (kind_ == ProductKind::matrix) {
    const int64_t one = matrix_.m * matrix_.n, p = result / one;
    const int64_t i = result % one / matrix_.n, j = result % matrix_.n;
    return {batch_offset(matrix_.products, matrix_.a_batch, p) + i * matrix_.a_row +
                term * matrix_.a_column,
            batch_offset(matrix_.products, matrix_.b_batch, p) + term * matrix_.b_row +
                j * matrix_.b_column};
  }
  const ConvWindow& s = window_;
  const int64_t in = w_[1], out = w_[0] / s.group;  // per group
  // One tap: element `w` of the weights brings x to y.
  Place4 x{}, w{}, y{};
  if (kind_ == ProductKind::conv) {
    y = unpacked(y_, result);
    w = unpacked(w_, y.c * terms_ + term);
  } else if (kind_ == ProductKind::conv_grad_weight) {
    w = unpacked(w_, result);
    y = {term / (y_[2] * y_[3]), w.n, term / y_[3] % y_[2], term % y_[3]};
  } else {
    x = unpacked(x_, result);
    const int64_t tap = term / out;
    w = {x.c / in * out + term % out, x.c % in, tap / w_[3], tap % w_[3]};
    const int64_t row = x.h + s.pad_top - w.h * s.dilation_h;
    const int64_t column = x.w + s.pad_left - w.w * s.dilation_w;
    y = {x.n, w.n, row / s.stride_h, column / s.stride_w};
    const bool there = row >= 0 && column >= 0 && row % s.stride_h == 0 &&
                       column % s.stride_w == 0 && y.h < y_[2] && y.w < y_[3];
    if (!there) return {kNowhere, kNowhere};
    return {packed(y_, y), packed(w_, w)};
  }
  x = {y.n, w.n / out * in + w.c, y.h * s.stride_h - s.pad_top + w.h * s.dilation_h,
       y.w * s.stride_w - s.pad_left + w.w * s.dilation_w};
  if (x.h < 0 || x.w < 0 || x.h >= x_[2] || x.w >= x_[3]) return {kNowhere, kNowhere};
  if (kind_ == ProductKind::conv) return {packed(x_, x), packed(w_, w)};
  return {packed(y_, y), packed(x_, x)};
}

int64_t ProductTerms::bias(int64_t result) const {
  if (kind_ == ProductKind::conv) return result / (y_[2] * y_[3]) % y_[1];
  return result / matrix_.n * bias_row_ + result % matrix_.n * bias_column_;
}

ProductTerms::Apart ProductTerms::apart() const {
  const auto is_whole = [this](int64_t result) {
    for (int64_t term = 0; term < terms_; ++term) {
      if (place(result, term).first == kNowhere) return false;
    }
    return true;
  };
  Apart apart;
  if (kind_ == ProductKind::matrix) {  // the first column of the first product
    for (int64_t i = 0; i < matrix_.m && terms_ > 0; ++i) apart.results.push_back(i * matrix_.n);
    return apart;
  }
  // One image, or one tap: a result per channel, at the first position with all terms.
  const Shape& shape = kind_ == ProductKind::conv              ? y_
                       : kind_ == ProductKind::conv_grad_input ? x_
                                                               : w_;
  const bool of_weights = kind_ == ProductKind::conv_grad_weight;
  apart.operand = of_weights ? 0 : 1;
  const int64_t channels = of_weights ? shape[0] : shape[1];
  for (int64_t pixel = 0; pixel < shape[2] * shape[3]; ++pixel) {
    if (terms_ == 0 || results_ == 0 || !is_whole(pixel)) continue;
    const int64_t distance = (of_weights ? shape[1] : 1) * shape[2] * shape[3];
    for (int64_t c = 0; c < channels; ++c) apart.results.push_back(c * distance + pixel);
    break;
  }
  return apart;
}

}  // namespace halfscope
