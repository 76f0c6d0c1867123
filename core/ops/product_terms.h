// SPDX-License-Identifier: MIT
// Where the terms of sums of products lie in their operands, for the operators that sum products:
// MatMul, Gemm, Conv and its gradients. Terms count as the reference sums them: along k of
// matrices; (channel, row, column) of the kernel for Conv; (row, column, output channel) for
// ConvGradInput; (image, row, column) of the output for ConvGradWeight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/ops/ops.h"

namespace halfscope {

class ProductTerms {
 public:
  /// Nothing for a node of another operator.
  static std::optional<ProductTerms> of(const Graph& graph, const Node& node);

  bool of_convolution() const noexcept { return kind_ != ProductKind::matrix; }
  int64_t results() const noexcept { return results_; }
  /// Of one result.
  int64_t terms() const noexcept { return terms_; }

  /// Element of operand 0 and of operand 1; both kNowhere for a tap that lies beside the other
  /// operand, whose product is zero or takes no part.
  struct Place {
    int64_t first, second;
  };
  static constexpr int64_t kNowhere = -1;
  Place place(int64_t result, int64_t term) const;

  /// The bias' element that is added to a result.
  int64_t bias(int64_t result) const;

  /// Results whose terms are all there, and of one operand are all different elements: sums that
  /// one product takes of values that are chosen freely.
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
