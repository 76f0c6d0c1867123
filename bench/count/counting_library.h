// SPDX-License-Identifier: MIT
// A ProductLibrary that only counts: cuBLASLt and cuDNN would compute every plan it is given.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/count/counting_executor.h"
#include "gpu/libraries/product_library.h"

namespace halfscope::count {

inline int bits_of(gpu::Storage storage) {
  return storage == gpu::Storage::tf32 ? 19 : static_cast<int>(8 * gpu::bytes_of(storage));
}

class CountedProduct final : public gpu::LibraryProduct {
 public:
  CountedProduct(std::vector<Launch>& launches, Launch launch, int extra)
      : launches_(launches), launch_(std::move(launch)), extra_(extra) {}
  void run(const void*, const void*, void*) override {
    launches_.push_back(launch_);
    // Conversions between layouts that the library launches around its kernel.
    for (int i = 0; i < extra_; ++i) {
      Launch launch;
      launch.name = "layout conversion of the library";
      launch.memory = launch.cache = 2.0 * launch_.memory / static_cast<double>(extra_);
      launches_.push_back(std::move(launch));
    }
  }
  std::string text() const override { return launch_.name; }

 private:
  std::vector<Launch>& launches_;
  Launch launch_;
  int extra_;
};

class CountingLibrary final : public gpu::ProductLibrary {
 public:
  CountingLibrary(std::vector<Launch>& launches, bool fast) : launches_(launches), fast_(fast) {}

  std::unique_ptr<gpu::LibraryProduct> matrix(const gpu::MatrixPlan& plan, std::string&) override {
    Launch launch;
    launch.kind = Launch::Kind::product;
    launch.bits = bits_of(plan.first.storage);
    launch.name = std::string("product of ") + gpu::name_of(plan.first.storage) + " to " +
                  gpu::name_of(plan.d.storage);
    const auto bytes = [](const gpu::LtMatrix& x) {
      return static_cast<double>(x.rows * x.columns * gpu::bytes_of(x.storage));
    };
    const double count = static_cast<double>(plan.count);
    launch.count = plan.count;
    launch.memory = count * (bytes(plan.first) + bytes(plan.second) + bytes(plan.d));
    launch.m = plan.m;
    launch.n = plan.n;
    launch.k = plan.k;
    launch.flop = 2.0 * count * static_cast<double>(plan.m) * static_cast<double>(plan.n) *
                  static_cast<double>(plan.k);
    return std::make_unique<CountedProduct>(launches_, std::move(launch), 0);
  }

  std::unique_ptr<gpu::LibraryProduct> convolution(const gpu::ConvPlan& plan,
                                                   std::string&) override {
    Launch launch;
    launch.kind = Launch::Kind::product;
    launch.convolution = true;
    const gpu::TensorPlan* const tensors[] = {&plan.x, &plan.w, &plan.y};
    const gpu::TensorPlan& made = *tensors[plan.product == gpu::ConvProduct::forward      ? 2
                                           : plan.product == gpu::ConvProduct::grad_input ? 0
                                                                                          : 1];
    for (const gpu::TensorPlan* tensor : tensors) {
      const auto& size = tensor->size;
      launch.memory += static_cast<double>(size[0] * size[1] * size[2] * size[3] *
                                           gpu::bytes_of(tensor->storage));
      if (tensor != &made) launch.bits = bits_of(tensor->storage);
    }
    launch.name = std::string("convolution of ") +
                  gpu::name_of(tensors[&made == &plan.x ? 2 : 0]->storage) + " to " +
                  gpu::name_of(made.storage);
    const auto& y = plan.y.size;
    const auto& w = plan.w.size;
    const int64_t pixels = y[0] * y[2] * y[3], taps = w[1] * w[2] * w[3];
    launch.flop =
        2.0 * static_cast<double>(pixels) * static_cast<double>(y[1]) * static_cast<double>(taps);
    const auto& x = plan.x.size;
    launch.m = plan.product == gpu::ConvProduct::forward      ? pixels
               : plan.product == gpu::ConvProduct::grad_input ? x[0] * x[2] * x[3]
                                                              : taps;
    launch.n = plan.product == gpu::ConvProduct::grad_input ? x[1] : y[1];
    launch.k = plan.product == gpu::ConvProduct::forward      ? taps
               : plan.product == gpu::ConvProduct::grad_input ? y[1] * w[2] * w[3]
                                                              : pixels;
    // Tensor cores read channels last. The library turns planar operands and results around.
    const bool planar = plan.x.stride[1] != 1;
    return std::make_unique<CountedProduct>(launches_, std::move(launch), planar ? 3 : 0);
  }

  bool fast() const override { return fast_; }

 private:
  std::vector<Launch>& launches_;
  bool fast_;
};

}  // namespace halfscope::count
