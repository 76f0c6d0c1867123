// SPDX-License-Identifier: MIT
// Libraries that compute products instead of our kernels: cuBLASLt and cuDNN on a device, and in
// tests a library that interprets plans on the CPU. A product is prepared once and then runs
// whenever its node does, on the executor's stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/libraries/product_plan.h"

namespace halfscope::gpu {

class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;
  /// Computes the product, or the products of a batch that begins at these addresses. For a matrix
  /// product, `a` and `b` are the plan's `second` and `first`; for a convolution, the operands in
  /// the order of the node's inputs: (x, w), (dy, w) or (dy, x).
  virtual void run(const void* a, const void* b, void* result) = 0;
  /// Returns the library, its version and its choice.
  virtual std::string text() const = 0;
};

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  /// Prepares a product. Returns null if the library cannot compute it, and sets `why`.
  virtual std::unique_ptr<LibraryProduct> matrix(const MatrixPlan& plan, std::string& why) = 0;
  virtual std::unique_ptr<LibraryProduct> convolution(const ConvPlan& plan, std::string& why) = 0;
  /// Returns whether the library chooses freely and may write 16 bits.
  virtual bool fast() const = 0;
  /// Returns the most device memory that copies of operands may take.
  virtual int64_t most_copied() const { return int64_t{1} << 30; }
  /// Returns the device memory that the library uses.
  virtual int64_t device_bytes() const { return 0; }
};

}  // namespace halfscope::gpu
