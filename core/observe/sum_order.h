// SPDX-License-Identifier: MIT
// In which order a kernel that is not ours sums products, found from what it returns: among the
// accumulations that the hardware is known for, else by FPRev on the kernel itself. What an order
// explains is told on elements of a real result: each is summed again in that order, element by
// element, and compared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "core/numeric/sum_orders/summation_value.h"
#include "core/ops/product_terms.h"

namespace halfscope {

/// An accumulation, or a summation tree that none has.
struct SumOrder {
  Accumulation accumulation{};
  std::shared_ptr<const TreeSum> tree{};
  /// Format that the operands are multiplied in, if it is another one that holds their values.
  std::optional<FloatFormat> read{};

  /// "tensor-core:h100", "tensor-core:h100 on tf32", or the structure of the tree in words.
  std::string text() const;
};

/// Elements of a product's result as they were read, with all that they are made of.
class ProductSample {
 public:
  /// Of a node that sums products, after `program` ran it: elements spread over the result,
  /// kMostTerms terms of products in all. Nothing where elements cannot be made again one by one:
  /// another operator, results that are rounded other than to nearest, sums in a format.
  static std::optional<ProductSample> of(const Graph& graph, NodeId node, const Program& program);

  int64_t size() const noexcept { return static_cast<int64_t>(elements_.size()); }
  /// How many of the elements the order explains to the last bit (+0 and -0 count as equal).
  int64_t explained_by(const SumOrder& order) const;

 private:
  static constexpr int64_t kMostTerms = int64_t{1} << 22, kMostElements = 1 << 14;

  struct Element {
    float value;   ///< as it was read
    size_t first;  ///< of its terms in a_ and b_
    float bias;
  };
  ProductSample() = default;
  float finished(float sum, float bias) const;

  size_t terms_ = 0;
  SumSpec spec_;
  FloatFormat format_;
  bool has_bias_ = false, scaled_ = false;
  float factor_ = 1.0f, beta_ = 1.0f;
  std::vector<float> a_, b_;  ///< terms_ of each element
  std::vector<Element> elements_;
};

/// What FPRev finds in a kernel.
struct ProbedOrder {
  std::optional<SummationTree> tree{};
  /// There is none: formats too narrow to mark summands, too many of them, results that follow no
  /// tree, another kernel than the one asked for.
  std::string why{};
  bool of_kernel = false;  ///< the kernel itself was asked
};

/// FPRev on the node's product as `backend` computes it, with operands and results of its shapes.
ProbedOrder probe_order(const Graph& graph, NodeId node, const Backend& backend,
                        const std::string& kernel);

/// Keeps what was found, under keys that hold all that decides it. Nothing fails here: what cannot
/// be kept is found anew.
class SumOrderCache {
 public:
  virtual ~SumOrderCache() = default;
  virtual std::optional<ProbedOrder> find(const std::string& key) = 0;
  virtual void store(const std::string& key, const ProbedOrder& order) = 0;
};

}  // namespace halfscope
