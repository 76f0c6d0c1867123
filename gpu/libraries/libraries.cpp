// SPDX-License-Identifier: MIT
#include "gpu/libraries/libraries.h"

namespace halfscope::gpu {
namespace {

class BothLibraries final : public ProductLibrary {
 public:
  BothLibraries(StreamPointer stream, bool fast)
      : fast_(fast),
        matrices_(open_cublas_lt(stream, fast, no_matrices_)),
        convolutions_(open_cudnn(stream, fast, no_convolutions_)) {}

  std::unique_ptr<LibraryProduct> matrix(const MatrixPlan& plan, std::string& why) override {
    if (matrices_ != nullptr) return matrices_->matrix(plan, why);
    why = no_matrices_;
    return nullptr;
  }
  std::unique_ptr<LibraryProduct> convolution(const ConvPlan& plan, std::string& why) override {
    if (convolutions_ != nullptr) return convolutions_->convolution(plan, why);
    why = no_convolutions_;
    return nullptr;
  }
  bool fast() const override { return fast_; }
  int64_t device_bytes() const override {
    return (matrices_ != nullptr ? matrices_->device_bytes() : 0) +
           (convolutions_ != nullptr ? convolutions_->device_bytes() : 0);
  }

 private:
  bool fast_;
  std::string no_matrices_, no_convolutions_;
  std::unique_ptr<ProductLibrary> matrices_, convolutions_;
};

}  // namespace

std::unique_ptr<ProductLibrary> open_libraries(StreamPointer stream, bool fast) {
  return std::make_unique<BothLibraries>(stream, fast);
}

}  // namespace halfscope::gpu
