// SPDX-License-Identifier: MIT
// The matrix products of one training step, each as a separate program. They are timed to find the
// layers that a format makes faster.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace halfscope {

/// A product of one layer of the network.
struct LayerProduct {
  std::string layer;    ///< path of the first layer that has it
  std::string product;  ///< "forward", "grad_input", "grad_weight"
  std::vector<Shape> operands{};
  NodeId node = kNone;  ///< in the lane's graph
  int count = 1;        ///< layers with the same product
};

/// Returns the products of the entry `grad` in execution order; equal ones (operator, attributes,
/// shapes) appear once.
std::vector<LayerProduct> layer_products(const Executable& executable);

/// Returns a program with that node only: its operands are inputs in their formats. Throws Error
/// for operands with scales, which only a network computes.
Executable alone(const Executable& executable, NodeId node);

/// Returns the bytes of operands and output as stored on a GPU.
int64_t product_bytes(const Executable& product);

/// A product on a backend, with operands that every format can represent: multiples of 1/4 up to 1.
class ProductTimer {
 public:
  ProductTimer(const Backend& backend, Executable product);

  /// Returns the milliseconds of one product, the mean over at least `least_ms`.
  double milliseconds(double least_ms);
  const Program& program() const { return *program_; }

 private:
  /// Returns the milliseconds of `runs` products, until all of them are done.
  double elapsed(int64_t runs);

  Executable product_;
  std::unique_ptr<Program> program_;
  int64_t runs_ = 0;  ///< number of runs that takes long enough; 0: not known yet
};

/// Returns element `i` of operand `which`.
float product_operand(size_t which, int64_t i);

}  // namespace halfscope
