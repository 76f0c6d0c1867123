// SPDX-License-Identifier: MIT
// cuBLASLt on the simulated device: matrices are column-major, D = alpha op(A) op(B) + beta C, by
// the documentation of cublasLtMatmul(). Sums are chains of fp32 fused multiply-adds. What the
// library refuses, or calls undefined, ends the program.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "tests/gpu/simulated/device.h"
#include "tests/gpu/simulated/stored.h"

using namespace halfscope::simulated;  // NOLINT: the library's functions are in no namespace

namespace {

struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, leading;
};

struct Description {
  cublasComputeType_t compute;
  std::map<int, int32_t> set{};

  bool transposed(cublasLtMatmulDescAttributes_t which) const {
    const auto found = set.find(which);
    return found != set.end() && found->second == CUBLAS_OP_T;
  }
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::map<int, uint32_t> alignment{};
};

/// Data of a chosen algorithm.
struct Algorithm {
  int32_t id, split_k, reduction;
  uint32_t align_a, align_b, align_d;
  uint64_t workspace;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// Returns one of two algorithms; the first one splits k.
Algorithm algorithm(bool splits, const Preference& preference) {
  const auto alignment = [&](int which) {
    const auto found = preference.alignment.find(which);
    return found == preference.alignment.end() ? uint32_t{256} : found->second;
  };
  return {.id = splits ? 21 : 66,
          .split_k = splits ? 4 : 1,
          .reduction = splits ? CUBLASLT_REDUCTION_SCHEME_INPLACE : CUBLASLT_REDUCTION_SCHEME_NONE,
          .align_a = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
          .align_b = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
          .align_d = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES),
          .workspace = splits ? preference.workspace : 0};
}

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

/// The table of types and the list of demands for fp8 kernels under cublasLtMatmul().
bool supported(const Description& how, const Layout& a, const Layout& b, const Layout& d) {
  const bool ta = how.transposed(CUBLASLT_MATMUL_DESC_TRANSA);
  const bool tb = how.transposed(CUBLASLT_MATMUL_DESC_TRANSB);
  const bool sizes = (ta ? a.columns : a.rows) == d.rows &&
                     (tb ? b.rows : b.columns) == d.columns &&
                     (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows);
  if (!sizes) return false;
  if (is_fp8(a.type) != is_fp8(b.type)) return false;
  if (!is_fp8(a.type)) {
    const bool result = d.type == CUDA_R_32F || d.type == a.type;
    const bool tf32 = how.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || a.type == CUDA_R_32F;
    return a.type == b.type && result && tf32;
  }
  const auto sixteen = [](int64_t n) { return n % 16 == 0; };
  return ta && !tb && how.compute == CUBLAS_COMPUTE_32F &&
         !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) && sixteen(d.rows) &&
         sixteen(d.columns) && sixteen(a.rows) && sixteen(a.leading) && sixteen(b.leading) &&
         sixteen(d.leading * format_of(d.type)->bits() / 8) &&
         (d.type == CUDA_R_32F || d.type == CUDA_R_16F || d.type == CUDA_R_16BF);
}

void require(bool holds, const char* rule) {
  if (!holds) violated(std::string("cuBLASLt: ") + rule);
}

void check_place(const void* memory, const Layout& layout, uint32_t alignment) {
  const auto bytes = static_cast<size_t>(((layout.columns - 1) * layout.leading + layout.rows) *
                                         format_of(layout.type)->bits() / 8);
  require(on_device(memory, bytes), "a matrix reaches over its memory");
  require(reinterpret_cast<uintptr_t>(memory) % alignment == 0,
          "a matrix does not begin where the preference said");
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_SIMULATED";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  if (!format_of(type) || leading < static_cast<int64_t>(rows) || rows == 0 || columns == 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* how, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *how = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t how) {
  delete reinterpret_cast<Description*>(how);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t how,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  auto& set = reinterpret_cast<Description*>(how)->set;
  if (which == CUBLASLT_MATMUL_DESC_FAST_ACCUM) {
    if (bytes != sizeof(int8_t)) return CUBLAS_STATUS_INVALID_VALUE;
    set[which] = *static_cast<const int8_t*>(value);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (bytes != sizeof(int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&set[which], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, size_t bytes) {
  auto& set = *reinterpret_cast<Preference*>(preference);
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof(uint64_t)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&set.workspace, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  uint32_t number;
  std::memcpy(&number, value, bytes);
  if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    set.reductions = number;
  } else {
    set.alignment[which] = number;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  const auto& wanted = *reinterpret_cast<const Preference*>(preference);
  *count = 0;
  if (!supported(*reinterpret_cast<const Description*>(how), *reinterpret_cast<const Layout*>(a),
                 *reinterpret_cast<const Layout*>(b), *reinterpret_cast<const Layout*>(d))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const bool splits : {true, false}) {
    const Algorithm one = algorithm(splits, wanted);
    if ((one.reduction & static_cast<int32_t>(wanted.reductions)) != one.reduction) continue;
    if (*count == most) break;
    cublasLtMatmulHeuristicResult_t& result = found[(*count)++];
    result = {};
    std::memcpy(&result.algo, &one, sizeof one);
    result.workspaceSize = one.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* chosen,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    void* value, size_t bytes, size_t* written) {
  Algorithm one;
  std::memcpy(&one, chosen, sizeof one);
  const bool is_short = which == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                        which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  *written = is_short ? sizeof(uint16_t) : sizeof(int32_t);
  if (bytes != *written) return CUBLAS_STATUS_INVALID_VALUE;
  const int32_t number = which == CUBLASLT_ALGO_CONFIG_ID                 ? one.id
                         : which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? one.split_k
                         : which == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? one.reduction
                                                                          : 0;
  std::memcpy(value, &number, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Description& description = *reinterpret_cast<const Description*>(how);
  const Layout at_a = *reinterpret_cast<const Layout*>(a_layout),
               at_b = *reinterpret_cast<const Layout*>(b_layout),
               at_d = *reinterpret_cast<const Layout*>(d_layout);
  Algorithm chosen;
  std::memcpy(&chosen, algo, sizeof chosen);
  const float factor = *static_cast<const float*>(alpha), added = *static_cast<const float*>(beta);
  require(handle != nullptr && supported(description, at_a, at_b, at_d), "not supported");
  require(c == d && c_layout == d_layout && added == 0.0f, "a product is added to something");
  require(workspace_bytes >= chosen.workspace && on_device(workspace, workspace_bytes),
          "the workspace is too small");
  check_place(a, at_a, chosen.align_a);
  check_place(b, at_b, chosen.align_b);
  check_place(d, at_d, chosen.align_d);
  const bool ta = description.transposed(CUBLASLT_MATMUL_DESC_TRANSA);
  const bool tb = description.transposed(CUBLASLT_MATMUL_DESC_TRANSB);
  const int64_t parts = chosen.split_k, all = ta ? at_a.rows : at_a.columns;
  const cudaError_t error = enqueue(stream, [=] {
    const auto element = [](const void* data, const Layout& at, bool transposed, int64_t row,
                            int64_t column) {
      if (transposed) std::swap(row, column);
      return load(data, column * at.leading + row, *format_of(at.type));
    };
    for (int64_t i = 0; i < at_d.rows; ++i) {
      for (int64_t j = 0; j < at_d.columns; ++j) {
        float sum = 0.0f;
        for (int64_t part = 0; part < parts; ++part) {
          float chain = 0.0f;
          for (int64_t l = part * all / parts; l < (part + 1) * all / parts; ++l) {
            chain = std::fma(element(b, at_b, tb, l, j), element(a, at_a, ta, i, l), chain);
          }
          sum += chain;
        }
        store(d, j * at_d.leading + i, *format_of(at_d.type), factor * sum);
      }
    }
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
