// SPDX-License-Identifier: MIT
// cuBLASLt on the simulated device: matrices are column-major, D = alpha op(A) op(B) + beta C, by
// the documentation of cublasLtMatmul(). Sums are chains of fused multiply-adds in the compute
// type: fp32; fp32 of operands that are narrowed first (FAST_16F, FAST_16BF, FAST_TF32); or fp16.
// With FAST_ACCUM, sums of fp8 keep 14 bits. The heuristics propose algorithms that split k or
// reduce between blocks, and one that does not run, before a good one. What the library refuses, or
// calls undefined, ends the program.
#include <cublasLt.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "core/numeric/formats/round.h"
#include "tests/gpu/simulated/device.h"
#include "tests/gpu/simulated/stored.h"

using namespace halfscope::simulated;  // NOLINT: the library's functions are in no namespace

namespace {

using halfscope::FloatFormat;

struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t stride = 0;

  int64_t bytes_of_element() const { return format_of(type)->bits() / 8; }
  int64_t elements() const { return (columns - 1) * leading + rows; }  ///< from first to last
  const std::byte* matrix(const void* first, int64_t p) const {
    return static_cast<const std::byte*>(first) + p * stride * bytes_of_element();
  }
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
  int8_t fast_accumulation = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;
  int64_t bias_stride = 0;

  bool adds_bias() const { return epilogue == CUBLASLT_EPILOGUE_BIAS; }
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

/// Data of a chosen algorithm.
struct Algorithm {
  int32_t id, split_k, reduction;
  uint32_t align_a, align_b, align_d;
  uint64_t workspace;
  uint64_t problem;  ///< that it was proposed for
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr int32_t kDoesNotRun = 7;

/// Returns what the heuristics propose, best first as far as they are concerned.
std::vector<Algorithm> proposals(const Preference& wanted, uint64_t problem) {
  struct Kind {
    int32_t id, split_k, reduction;
    uint64_t workspace;
  };
  // The third splits k although it names no reduction. A mask does not exclude it.
  const Kind kinds[] = {{kDoesNotRun, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
                        {21, 4, CUBLASLT_REDUCTION_SCHEME_INPLACE, wanted.workspace},
                        {22, 3, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
                        {23, 1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, wanted.workspace},
                        {66, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 1024}};
  std::vector<Algorithm> list;
  for (const Kind& kind : kinds) {
    const bool allowed =
        (kind.reduction & static_cast<int32_t>(wanted.reductions)) == kind.reduction;
    if (!allowed || kind.workspace > wanted.workspace) continue;
    list.push_back({kind.id, kind.split_k, kind.reduction, wanted.align_a, wanted.align_b,
                    wanted.align_d, kind.workspace, problem});
  }
  return list;
}

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

/// The table of types under cublasLtMatmul().
bool types_fit(const Description& how, const Layout& a, const Layout& b, const Layout& d) {
  const bool half = how.compute == CUBLAS_COMPUTE_16F || how.compute == CUBLAS_COMPUTE_16F_PEDANTIC;
  if (how.scale != (half ? CUDA_R_16F : CUDA_R_32F)) return false;
  if (is_fp8(a.type)) {
    return is_fp8(b.type) && how.compute == CUBLAS_COMPUTE_32F &&
           !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) &&
           (d.type == CUDA_R_32F || d.type == CUDA_R_16F || d.type == CUDA_R_16BF);
  }
  if (a.type != b.type) return false;
  switch (how.compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return a.type == CUDA_R_16F && d.type == CUDA_R_16F;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return d.type == CUDA_R_32F || d.type == a.type;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return a.type == CUDA_R_32F && d.type == CUDA_R_32F;
    default:
      return false;
  }
}

/// Looks into that table and the list of demands for fp8 kernels.
bool supported(const Description& how, const Layout& a, const Layout& b, const Layout& d) {
  const bool ta = how.transposed_a == CUBLAS_OP_T, tb = how.transposed_b == CUBLAS_OP_T;
  const bool sizes = (ta ? a.columns : a.rows) == d.rows &&
                     (tb ? b.rows : b.columns) == d.columns &&
                     (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows);
  if (!sizes || a.batch != d.batch || b.batch != d.batch || !types_fit(how, a, b, d)) return false;
  if (how.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !how.adds_bias()) return false;
  if (how.adds_bias()) {
    const bool type = how.bias_type == -1 || how.bias_type == static_cast<int32_t>(d.type);
    if (how.bias == nullptr || !type || is_fp8(a.type)) return false;
  }
  if (!is_fp8(a.type)) return true;
  const auto sixteen = [](int64_t n) { return n % 16 == 0; };
  return ta && !tb && sixteen(d.rows) && sixteen(d.columns) && sixteen(a.rows) &&
         sixteen(a.leading) && sixteen(b.leading) && sixteen(d.leading * d.bytes_of_element());
}

/// Returns a number that tells problems apart.
uint64_t problem_of(const Description& how, const Layout& a, const Layout& b, const Layout& d) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](int64_t number) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3u;
  };
  for (const Layout* each : {&a, &b, &d}) {
    for (const int64_t number : {static_cast<int64_t>(each->type), each->rows, each->columns,
                                 each->leading, int64_t{each->batch}, each->stride}) {
      add(number);
    }
  }
  for (const int64_t number :
       {static_cast<int64_t>(how.compute), static_cast<int64_t>(how.scale),
        int64_t{how.transposed_a}, int64_t{how.transposed_b}, int64_t{how.fast_accumulation},
        int64_t{how.epilogue}, static_cast<int64_t>(reinterpret_cast<uintptr_t>(how.bias) % 256)}) {
    add(number);
  }
  return hash;
}

void require(bool holds, const char* rule) {
  if (!holds) violated(std::string("cuBLASLt: ") + rule);
}

/// Checks every matrix of a batch.
void check_places(const void* first, const Layout& layout, uint32_t alignment) {
  for (int64_t p = 0; p < layout.batch; ++p) {
    const std::byte* const memory = layout.matrix(first, p);
    require(on_device(memory, static_cast<size_t>(layout.elements() * layout.bytes_of_element())),
            "a matrix reaches over its memory");
    require(reinterpret_cast<uintptr_t>(memory) % alignment == 0,
            "a matrix does not begin where the preference said");
  }
}

/// Checks that what is written is apart: each matrix of d, and d from an operand.
void check_apart(const void* d, const Layout& at_d, const void* other, const Layout& at_other) {
  require(at_d.batch == 1 || at_d.stride >= at_d.elements(), "matrices of the output overlap");
  const auto begin = [](const void* memory) { return reinterpret_cast<uintptr_t>(memory); };
  const auto end = [&](const void* memory, const Layout& at) {
    return begin(at.matrix(memory, at.batch - 1)) +
           static_cast<uintptr_t>(at.elements() * at.bytes_of_element());
  };
  require(end(d, at_d) <= begin(other) || end(other, at_other) <= begin(d),
          "a product overwrites its operands");
}

/// The effect of a compute type on operands and sums.
class Arithmetic {
 public:
  Arithmetic(const Description& how, const Layout& a)
      : halves_(how.scale == CUDA_R_16F),
        short_sums_(is_fp8(a.type) && how.fast_accumulation != 0),
        operands_(how.compute == CUBLAS_COMPUTE_32F_FAST_16F    ? halfscope::kFp16
                  : how.compute == CUBLAS_COMPUTE_32F_FAST_16BF ? halfscope::kBf16
                  : how.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? halfscope::kTf32
                                                                : halfscope::kFp32) {}

  float operand(float x) const {
    return operands_ == halfscope::kFp32 ? x : halfscope::round_to_format(x, operands_).value;
  }
  float multiply_add(float a, float b, float sum) const { return kept(std::fma(a, b, sum)); }
  float add(float a, float b) const { return kept(a + b); }

 private:
  float kept(float sum) const {
    if (halves_) return halfscope::round_to_format(sum, halfscope::kFp16).value;
    constexpr uint32_t kDropped = (1u << 10) - 1;  // of 24 bits 14 are kept
    return short_sums_ ? std::bit_cast<float>(std::bit_cast<uint32_t>(sum) & ~kDropped) : sum;
  }

  bool halves_, short_sums_;
  FloatFormat operands_;
};

/// Sets `to` if the value has its size.
template <class T>
cublasStatus_t set_number(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
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
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t bytes) {
  Layout& set = *reinterpret_cast<Layout*>(layout);
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    const cublasStatus_t status = set_number(set.batch, value, bytes);
    return set.batch < 1 ? CUBLAS_STATUS_INVALID_VALUE : status;
  }
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
    return set_number(set.stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* how, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *how = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t how) {
  delete reinterpret_cast<Description*>(how);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t how,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  Description& set = *reinterpret_cast<Description*>(how);
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set_number(set.transposed_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set_number(set.transposed_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set_number(set.fast_accumulation, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set_number(set.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set_number(set.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set_number(set.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return set_number(set.bias_stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
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
  Preference& set = *reinterpret_cast<Preference*>(preference);
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set_number(set.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set_number(set.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set_number(set.align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set_number(set.align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set_number(set.align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set_number(set.align_d, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a_layout,
                                              cublasLtMatrixLayout_t b_layout,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d_layout,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  const auto& wanted = *reinterpret_cast<const Preference*>(preference);
  const auto& description = *reinterpret_cast<const Description*>(how);
  const auto& a = *reinterpret_cast<const Layout*>(a_layout);
  const auto& b = *reinterpret_cast<const Layout*>(b_layout);
  const auto& d = *reinterpret_cast<const Layout*>(d_layout);
  *count = 0;
  const bool begins = !is_fp8(a.type) || (wanted.align_a % 16 == 0 && wanted.align_b % 16 == 0 &&
                                          wanted.align_d % 16 == 0);
  if (!begins || !supported(description, a, b, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Algorithm& one : proposals(wanted, problem_of(description, a, b, d))) {
    if (*count == most) break;
    cublasLtMatmulHeuristicResult_t& result = found[(*count)++];
    result = {};
    std::memcpy(&result.algo, &one, sizeof one);
    result.workspaceSize = one.workspace;
    result.state = one.id == kDoesNotRun ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
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
  const Description description = *reinterpret_cast<const Description*>(how);
  const Layout at_a = *reinterpret_cast<const Layout*>(a_layout),
               at_b = *reinterpret_cast<const Layout*>(b_layout),
               at_d = *reinterpret_cast<const Layout*>(d_layout);
  Algorithm chosen;
  std::memcpy(&chosen, algo, sizeof chosen);
  require(handle != nullptr && supported(description, at_a, at_b, at_d), "not supported");
  require(chosen.id != kDoesNotRun, "an algorithm that does not run was chosen");
  require(chosen.problem == problem_of(description, at_a, at_b, at_d),
          "an algorithm runs a problem that it was not proposed for");
  const FloatFormat factors = *format_of(description.scale);
  const float factor = load(alpha, 0, factors), added = load(beta, 0, factors);
  require(c == d && c_layout == d_layout && added == 0.0f, "a product is added to something");
  require(workspace_bytes >= chosen.workspace && on_device(workspace, workspace_bytes) &&
              reinterpret_cast<uintptr_t>(workspace) % 256 == 0,
          "the workspace is too small");
  check_places(a, at_a, chosen.align_a);
  check_places(b, at_b, chosen.align_b);
  check_places(d, at_d, chosen.align_d);
  check_apart(d, at_d, a, at_a);
  check_apart(d, at_d, b, at_b);
  if (description.adds_bias()) {
    const Layout vector{at_d.type, at_d.rows, 1, at_d.rows, at_d.batch, description.bias_stride};
    check_places(description.bias, vector, 1);
    check_apart(d, at_d, description.bias, vector);
  }
  const cudaError_t error = enqueue(stream, [=] {
    std::memset(workspace, 0xff, chosen.workspace);
    const Arithmetic arithmetic(description, at_a);
    const bool ta = description.transposed_a == CUBLAS_OP_T;
    const bool tb = description.transposed_b == CUBLAS_OP_T;
    // Blocks that reduce what they have summed split k, too.
    const bool reduces = chosen.reduction != CUBLASLT_REDUCTION_SCHEME_NONE;
    const int64_t parts = reduces && chosen.split_k == 1 ? 2 : chosen.split_k;
    const int64_t all = ta ? at_a.rows : at_a.columns;
    const auto element = [&](const void* data, const Layout& at, bool transposed, int64_t row,
                             int64_t column) {
      if (transposed) std::swap(row, column);
      return arithmetic.operand(load(data, column * at.leading + row, *format_of(at.type)));
    };
    for (int64_t p = 0; p < at_d.batch; ++p) {
      const void* const x = at_a.matrix(a, p);
      const void* const w = at_b.matrix(b, p);
      for (int64_t i = 0; i < at_d.rows; ++i) {
        for (int64_t j = 0; j < at_d.columns; ++j) {
          float sum = 0.0f;
          for (int64_t part = 0; part < parts; ++part) {
            float chain = 0.0f;
            for (int64_t l = part * all / parts; l < (part + 1) * all / parts; ++l) {
              chain = arithmetic.multiply_add(element(w, at_b, tb, l, j),
                                              element(x, at_a, ta, i, l), chain);
            }
            sum = arithmetic.add(sum, chain);
          }
          float result = factor * sum;
          if (description.adds_bias()) {
            result +=
                load(description.bias, p * description.bias_stride + i, *format_of(at_d.type));
          }
          store(const_cast<std::byte*>(at_d.matrix(d, p)), j * at_d.leading + i,
                *format_of(at_d.type), result);
        }
      }
    }
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
