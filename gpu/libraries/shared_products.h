// SPDX-License-Identifier: MIT
// A library that prepares equal products once. A node's recorded and plain steps thus run the same
// algorithm, and layers of equal shape wait for the library's choice only once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

class SharedProducts final : public ProductLibrary {
 public:
  explicit SharedProducts(std::unique_ptr<ProductLibrary> library) : library_(std::move(library)) {}

  std::unique_ptr<LibraryProduct> matrix(const MatrixPlan& plan, std::string& why) override {
    return find(matrices_, plan, why,
                [&](std::string& reason) { return library_->matrix(plan, reason); });
  }
  std::unique_ptr<LibraryProduct> convolution(const ConvPlan& plan, std::string& why) override {
    return find(convolutions_, plan, why,
                [&](std::string& reason) { return library_->convolution(plan, reason); });
  }
  bool fast() const override { return library_->fast(); }
  int64_t most_copied() const override { return library_->most_copied(); }
  int64_t device_bytes() const override { return library_->device_bytes(); }

 private:
  template <class Plan>
  struct Known {
    Plan plan;
    std::shared_ptr<LibraryProduct> product;  ///< null: the library cannot compute it
    std::string why;
  };
  class Shared final : public LibraryProduct {
   public:
    explicit Shared(std::shared_ptr<LibraryProduct> of) : of_(std::move(of)) {}
    void run(const void* a, const void* b, void* result) override { of_->run(a, b, result); }
    std::string text() const override { return of_->text(); }

   private:
    std::shared_ptr<LibraryProduct> of_;
  };

  template <class Plan, class Prepare>
  static std::unique_ptr<LibraryProduct> find(std::vector<Known<Plan>>& known, const Plan& plan,
                                              std::string& why, const Prepare& prepare) {
    for (const Known<Plan>& each : known) {
      if (!(each.plan == plan)) continue;
      if (each.product != nullptr) return std::make_unique<Shared>(each.product);
      why = each.why;
      return nullptr;
    }
    std::string reason = why;
    std::shared_ptr<LibraryProduct> product = prepare(reason);
    known.push_back({plan, product, reason});
    if (product != nullptr) return std::make_unique<Shared>(std::move(product));
    why = reason;
    return nullptr;
  }

  std::unique_ptr<ProductLibrary> library_;
  std::vector<Known<MatrixPlan>> matrices_;
  std::vector<Known<ConvPlan>> convolutions_;
};

}  // namespace halfscope::gpu
