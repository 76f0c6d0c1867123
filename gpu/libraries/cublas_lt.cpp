// SPDX-License-Identifier: MIT
// cuBLASLt. One algorithm per product, chosen by its heuristics when the product is prepared and
// then kept. It must not split k or reduce between blocks, so that two runs give the same bits; in
// fast mode, the first proposal is used. fp32 is multiplied as fp32 (PEDANTIC, never TF32) unless
// the plan reads tf32. fp8 operands are codes; the caller applies their scales to the sums. Their
// narrow accumulators are promoted (no FAST_ACCUM), except in fast mode.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "core/backend/backend.h"
#include "gpu/libraries/cuda_error.cuh"
#include "gpu/libraries/libraries.h"
#include "gpu/libraries/shared_library.h"

namespace halfscope::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's recommendation for Hopper
constexpr int kCandidates = 16;                       // requested from the heuristics

struct Functions {
  SharedLibrary library{"libcublasLt.so." + std::to_string(CUDART_VERSION / 1000)};
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtDestroy)* destroy = nullptr;
  decltype(cublasLtGetStatusName)* status_name = nullptr;
  decltype(cublasLtGetVersion)* version = nullptr;
  decltype(cublasLtMatmul)* matmul = nullptr;
  decltype(cublasLtMatmulDescCreate)* desc_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = nullptr;
  decltype(cublasLtMatmulAlgoConfigGetAttribute)* config_get = nullptr;

  Functions() {
    library.find(create, "cublasLtCreate");
    library.find(destroy, "cublasLtDestroy");
    library.find(status_name, "cublasLtGetStatusName");
    library.find(version, "cublasLtGetVersion");
    library.find(matmul, "cublasLtMatmul");
    library.find(desc_create, "cublasLtMatmulDescCreate");
    library.find(desc_destroy, "cublasLtMatmulDescDestroy");
    library.find(desc_set, "cublasLtMatmulDescSetAttribute");
    library.find(layout_create, "cublasLtMatrixLayoutCreate");
    library.find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    library.find(layout_set, "cublasLtMatrixLayoutSetAttribute");
    library.find(preference_create, "cublasLtMatmulPreferenceCreate");
    library.find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    library.find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    library.find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.find(config_get, "cublasLtMatmulAlgoConfigGetAttribute");
  }
};

const Functions& functions() {
  static const Functions all;
  return all;
}

/// Returns [m x n x k], in a batch after the number of products, and the formats.
std::string shape_of(const MatrixPlan& plan) {
  const std::string batch = plan.count > 1 ? fmt::format("{} x ", plan.count) : "";
  return fmt::format("[{}{} x {} x {}] of {} and {}{}", batch, plan.d.columns, plan.d.rows, plan.k,
                     name_of(plan.second.storage), name_of(plan.first.storage),
                     plan.bias != nullptr ? " with bias" : "");
}

void check(cublasStatus_t status, const char* call, const MatrixPlan& plan) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string what = fmt::format("cuBLASLt: {} for the product {}: {}", call, shape_of(plan),
                                       functions().status_name(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw DeviceError(what, "lower --batch, or train fewer lanes on the device");
  }
  throw Error(
      what,
      "train the lane as cuda-own:PLAN, which needs no library; check the device with nvidia-smi");
}

cudaDataType_t type_of(Storage storage) {
  switch (storage) {
    case Storage::fp16:
      return CUDA_R_16F;
    case Storage::bf16:
      return CUDA_R_16BF;
    case Storage::e4m3fn:
      return CUDA_R_8F_E4M3;
    case Storage::e5m2:
      return CUDA_R_8F_E5M2;
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(Storage storage) {
  if (storage == Storage::tf32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return storage == Storage::fp32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
}

/// The library's handle, and working memory that all products use, one after another.
struct Context {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
  std::string version;

  explicit Context(StreamPointer on) : stream(static_cast<cudaStream_t>(on)) {
    const size_t number = functions().version();
    version = fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    if (handle != nullptr) static_cast<void>(functions().destroy(handle));
    static_cast<void>(cudaFree(workspace));
  }
};

class Layout {
 public:
  Layout(const LtMatrix& matrix, const MatrixPlan& plan) {
    check(functions().layout_create(&layout_, type_of(matrix.storage),
                                    static_cast<uint64_t>(matrix.rows),
                                    static_cast<uint64_t>(matrix.columns), matrix.leading),
          "cublasLtMatrixLayoutCreate", plan);
    if (plan.count == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(plan.count), plan);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.stride, plan);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { static_cast<void>(functions().layout_destroy(layout_)); }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value, const MatrixPlan& plan) {
    const cublasStatus_t status = functions().layout_set(layout_, attribute, &value, sizeof value);
    if (status != CUBLAS_STATUS_SUCCESS) static_cast<void>(functions().layout_destroy(layout_));
    check(status, "cublasLtMatrixLayoutSetAttribute", plan);
  }

  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  Description(const MatrixPlan& plan, bool fast) {
    const Storage storage = plan.first.storage;
    check(functions().desc_create(&desc_, compute_type(storage), CUDA_R_32F),
          "cublasLtMatmulDescCreate", plan);
    const auto op = [](const LtMatrix& matrix) -> int32_t {
      return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, op(plan.first), plan);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op(plan.second), plan);
    if (bytes_of(storage) == 1) {
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(fast ? 1 : 0), plan);
    }
    if (plan.bias != nullptr) {
      // The heuristics look at the pointer's alignment, so it is known before they are asked.
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS), plan);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, plan.bias, plan);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(plan.d.storage)), plan);
    }
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() { static_cast<void>(functions().desc_destroy(desc_)); }
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value, const MatrixPlan& plan) {
    const cublasStatus_t status = functions().desc_set(desc_, attribute, &value, sizeof value);
    if (status != CUBLAS_STATUS_SUCCESS) static_cast<void>(functions().desc_destroy(desc_));
    check(status, "cublasLtMatmulDescSetAttribute", plan);
  }

  cublasLtMatmulDesc_t desc_ = nullptr;
};

class Preference {
 public:
  Preference(const MatrixPlan& plan, uint32_t reductions) {
    check(functions().preference_create(&preference_), "cublasLtMatmulPreferenceCreate", plan);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes}, plan);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions, plan);
    const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t which, const LtMatrix& matrix) {
      set(which, static_cast<uint32_t>(matrix.alignment), plan);
    };
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan.first);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan.second);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plan.d);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plan.d);
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { static_cast<void>(functions().preference_destroy(preference_)); }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value, const MatrixPlan& plan) {
    const cublasStatus_t status =
        functions().preference_set(preference_, attribute, &value, sizeof value);
    if (status != CUBLAS_STATUS_SUCCESS)
      static_cast<void>(functions().preference_destroy(preference_));
    check(status, "cublasLtMatmulPreferenceSetAttribute", plan);
  }

  cublasLtMatmulPreference_t preference_ = nullptr;
};

/// Returns a 32-bit attribute of an algorithm, or -1 if it has none.
int64_t config_of(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t which) {
  int32_t value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      functions().config_get(&algo, which, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : -1;
}

class Product final : public LibraryProduct {
 public:
  Product(std::shared_ptr<Context> context, const MatrixPlan& plan, bool fast)
      : context_(std::move(context)),
        plan_(plan),
        description_(plan, fast),
        first_(plan.first, plan),
        second_(plan.second, plan),
        d_(plan.d, plan) {}

  /// Chooses an algorithm. Returns false if the heuristics know no suitable one.
  bool choose(bool fast) {
    constexpr uint32_t kNone = CUBLASLT_REDUCTION_SCHEME_NONE,
                       kAny = CUBLASLT_REDUCTION_SCHEME_MASK;
    // The mask excludes algorithms before the best ones are listed; listed ones are checked again.
    return (!fast && choose_among(kNone, fast)) || choose_among(kAny, fast);
  }

  void run(const void* a, const void* b, void* result) override {
    const float one = 1.0f, zero = 0.0f;
    check(functions().matmul(context_->handle, description_.get(), &one, b, first_.get(), a,
                             second_.get(), &zero, result, d_.get(), result, d_.get(), &algo_,
                             context_->workspace, workspace_bytes_, context_->stream),
          "cublasLtMatmul", plan_);
  }

  std::string text() const override {
    const auto config = [&](cublasLtMatmulAlgoConfigAttributes_t which) {
      return config_of(algo_, which);
    };
    return fmt::format(
        "cuBLASLt {}, {}: algorithm {}, tile {}, stages {}, split-k {}, reduction {}, swizzle {}, "
        "option {}, inner shape {}, cluster {}, workspace {}, writes {}",
        context_->version, shape_of(plan_), config(CUBLASLT_ALGO_CONFIG_ID),
        config(CUBLASLT_ALGO_CONFIG_TILE_ID), config(CUBLASLT_ALGO_CONFIG_STAGES_ID),
        config(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), config(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
        config(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), config(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
        short_config(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
        short_config(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), workspace_bytes_,
        name_of(plan_.d.storage));
  }

 private:
  /// Returns a 16-bit attribute of the algorithm.
  int64_t short_config(cublasLtMatmulAlgoConfigAttributes_t which) const {
    uint16_t value = 0;
    size_t written = 0;
    const cublasStatus_t status =
        functions().config_get(&algo_, which, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : -1;
  }

  bool choose_among(uint32_t reductions, bool fast) {
    const Preference preference(plan_, reductions);
    cublasLtMatmulHeuristicResult_t found[kCandidates] = {};
    int count = 0;
    const cublasStatus_t status =
        functions().heuristic(context_->handle, description_.get(), first_.get(), second_.get(),
                              d_.get(), d_.get(), preference.get(), kCandidates, found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
      return false;
    check(status, "cublasLtMatmulAlgoGetHeuristic", plan_);
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t& algo = found[i].algo;
      const bool splits =
          config_of(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1 ||
          config_of(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) > CUBLASLT_REDUCTION_SCHEME_NONE;
      if (found[i].state != CUBLAS_STATUS_SUCCESS || (splits && !fast)) continue;
      algo_ = algo;
      workspace_bytes_ = found[i].workspaceSize;
      return true;
    }
    return false;
  }

  std::shared_ptr<Context> context_;
  const MatrixPlan plan_;
  Description description_;
  Layout first_, second_, d_;
  cublasLtMatmulAlgo_t algo_{};
  size_t workspace_bytes_ = 0;
};

class CublasLt final : public ProductLibrary {
 public:
  CublasLt(std::shared_ptr<Context> context, bool fast)
      : context_(std::move(context)), fast_(fast) {}

  std::unique_ptr<LibraryProduct> matrix(const MatrixPlan& plan, std::string& why) override {
    auto product = std::make_unique<Product>(context_, plan, fast_);
    if (product->choose(fast_)) return product;
    why = "cuBLASLt has no algorithm for " + shape_of(plan);
    return nullptr;
  }
  std::unique_ptr<LibraryProduct> convolution(const ConvPlan&, std::string& why) override {
    why = "cuBLASLt does not compute convolutions";
    return nullptr;
  }
  bool fast() const override { return fast_; }
  int64_t device_bytes() const override { return static_cast<int64_t>(kWorkspaceBytes); }

 private:
  std::shared_ptr<Context> context_;
  bool fast_;
};

}  // namespace

std::optional<std::string> cublas_lt_objection(const MatrixPlan& plan) {
  if (!functions().library.missing().empty()) return std::nullopt;
  try {
    const Description description(plan, false);
    const Preference preference(plan, CUBLASLT_REDUCTION_SCHEME_NONE);
    const Layout first(plan.first, plan), second(plan.second, plan), d(plan.d, plan);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::unique_ptr<ProductLibrary> open_cublas_lt(StreamPointer stream, bool fast, std::string& why) {
  if (!functions().library.missing().empty()) {
    why = "cannot use cuBLASLt: " + functions().library.missing();
    return nullptr;
  }
  auto context = std::make_shared<Context>(stream);
  const cublasStatus_t status = functions().create(&context->handle);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw DeviceError("cannot start cuBLASLt: out of memory", "train fewer lanes on the device");
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    why = fmt::format("cannot start cuBLASLt: {}", functions().status_name(status));
    return nullptr;
  }
  check_cuda(cudaMalloc(&context->workspace, kWorkspaceBytes), "workspace allocation (cuBLASLt)",
             kWorkspaceBytes);
  return std::make_unique<CublasLt>(std::move(context), fast);
}

}  // namespace halfscope::gpu
