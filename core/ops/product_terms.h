// SPDX-License-Identifier: MIT
// Positions of the terms of sums of products in their operands, for the operators that sum
// products: MatMul, Gemm, Conv and its gradients. Terms are numbered in the reference's summation
// order: along k of matrices; (channel, row, column) of the kernel for Conv; (row, column, output
// channel) for ConvGradInput; (image, row, column) of the output for ConvGradWeight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/ops/ops.h"

namespace halfscope {

class ProductTerms {
 public:
  /// Returns nothing for a node of another operator.
  static std::optional<ProductTerms> of(const Graph& graph, const Node& node);

  bool of_convolution() const noexcept { return kind_ != ProductKind::matrix; }
  int64_t results() const noexcept { return results_; }
  /// Returns the number of terms in one result.
  int64_t terms() const noexcept { return terms_; }

  /// Element of operand 0 and of operand 1. Both are kNowhere for a tap outside the other operand,
  /// whose product is zero or is not summed.
  struct Place {
    int64_t first, second;
  };
  static constexpr int64_t kNowhere = -1;
  Place place(int64_t result, int64_t term) const;

  /// Returns the index of the bias element that is added to a result.
  int64_t bias(int64_t result) const;

  /// Results that have all their terms, and whose terms are all different elements of one operand:
  /// a single product can compute them with freely chosen values.
  struct Apart {
    size_t operand = 0;
    std::vector<int64_t> results;  ///< may be empty
  };
  Apart apart() const;

 private:
  ProductTerms() = default;

  ProductKind kind_ = ProductKind::matrix;
  int64_t results_ = 0, terms_ = 0;
  MatMulShape matrix_{};
  int64_t bias_row_ = 0, bias_column_ = 0;
  ConvWindow window_{};
  Shape x_, w_, y_;  ///< of a convolution
};

}  // namespace halfscope
