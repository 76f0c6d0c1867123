// SPDX-License-Identifier: MIT
// What computes products in the place of our kernels: cuBLASLt and cuDNN on a device, and in tests
// a library that interprets plans here. A product is prepared once and then runs whenever its node
// does, on the stream of the executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/libraries/product_plan.h"

namespace halfscope::gpu {

class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;
  /// Of a matrix product `a` and `b` are the plan's `second` and `first`; of a convolution the
  /// operands in the order of the node's inputs: (x, w), (dy, w) or (dy, x).
  virtual void run(const void* a, const void* b, void* result) = 0;
  /// Library, version and what it chose.
  virtual std::string text() const = 0;
};

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  /// Null if it has no way to do it; `why` then says so.
  virtual std::unique_ptr<LibraryProduct> matrix(const MatrixPlan& plan, std::string& why) = 0;
  virtual std::unique_ptr<LibraryProduct> convolution(const ConvPlan& plan, std::string& why) = 0;
  /// It chooses freely, and may write 16 bits.
  virtual bool fast() const = 0;
  /// Memory that it takes on the device.
  virtual int64_t device_bytes() const { return 0; }
};

}  // namespace halfscope::gpu
