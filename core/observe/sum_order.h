// SPDX-License-Identifier: MIT
// Finds the order in which a kernel that is not ours sums products, from what it returns: first
// among the known accumulations of the hardware, then by FPRev on the kernel itself. An order is
// tested on elements of a real result: each is summed again in that order and compared.
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

/// An accumulation, or a summation tree that no accumulation describes.
struct SumOrder {
  Accumulation accumulation{};
  std::shared_ptr<const TreeSum> tree{};
  /// Format in which the operands are multiplied, if it is a different one that represents their
  /// values.
  std::optional<FloatFormat> read{};

  /// Returns "tensor-core:h100", "tensor-core:h100 on tf32", or the structure of the tree in words.
  std::string text() const;
};

/// Sampled elements of a product's result, with all operands that they are computed from.
class ProductSample {
 public:
  /// Samples the result of a node that sums products, after `program` ran it: elements spread over
  /// the result, with kMostTerms terms of products in total. Returns nothing if elements cannot be
  /// recomputed one by one: another operator, rounding other than to nearest, sums in a reduced
  /// format.
  static std::optional<ProductSample> of(const Graph& graph, NodeId node, const Program& program);

  int64_t size() const noexcept { return static_cast<int64_t>(elements_.size()); }
  /// Returns how many elements the order explains to the last bit (+0 and -0 count as equal).
  int64_t explained_by(const SumOrder& order) const;

 private:
  static constexpr int64_t kMostTerms = int64_t{1} << 22, kMostElements = 1 << 14;

  struct Element {
    float value;   ///< as the program returned it
    size_t first;  ///< index of its first term in a_ and b_
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

/// The result of FPRev on a kernel.
struct ProbedOrder {
  std::optional<SummationTree> tree{};
  /// Why there is no tree: formats with too few bits to mark summands, too many summands, results
  /// that follow no tree, or a kernel other than the requested one.
  std::string why{};
  bool of_kernel = false;  ///< the kernel itself was probed
};

/// Runs FPRev on the node's product as `backend` computes it, with operands and results of its
/// shapes.
ProbedOrder probe_order(const Graph& graph, NodeId node, const Backend& backend,
                        const std::string& kernel);

/// Stores summation orders under keys that contain everything that decides them. Never fails: what
/// cannot be stored is searched again.
class SumOrderCache {
 public:
  virtual ~SumOrderCache() = default;
  virtual std::optional<ProbedOrder> find(const std::string& key) = 0;
  virtual void store(const std::string& key, const ProbedOrder& order) = 0;
};

}  // namespace halfscope
