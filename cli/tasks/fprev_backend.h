// SPDX-License-Identifier: MIT
// A backend's matrix product as something that sums: what `halfscope fprev --backend` looks into.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/backend/backend.h"

namespace halfscope {

/// [rows x k] times the transposed of [columns x k], as a fully connected layer has it: fp32
/// results of operands in a format.
struct ProbedProduct {
  int64_t rows = 128, columns = 128, k = 0;
  FloatFormat input = kFp32;
  Accumulation accumulation = Accumulation::fp32;
};

class BackendProduct {
 public:
  BackendProduct(const Backend& backend, const ProbedProduct& product);

  /// out[r] = sum over j of a[r * k + j] * b[r * k + j]: the diagonals of as many products as it
  /// takes.
  void dot(std::span<const float> a, std::span<const float> b, std::span<float> out);
  /// Kernel of the product; "" if the backend has only one.
  std::string kernel() const;

 private:
  ProbedProduct product_;
  ValueId a_ = kNone, b_ = kNone, y_ = kNone;
  NodeId node_ = kNone;
  std::unique_ptr<Program> program_;
};

}  // namespace halfscope
