// SPDX-License-Identifier: MIT
// The numbers of HalfScope for programs in C99 and for foreign-function interfaces: rounding to any
// format, distances in ulps, statistics, and matrix products under a named accumulation. The
// library is halfscope_c; it needs nothing but the C++ runtime.
//
// Every function that returns int returns HALFSCOPE_OK or an error code. After an error,
// halfscope_message() says what is wrong, and no output was written. Functions keep no state
// besides that message, which each thread has for itself, so any number of threads may call them at
// once.
//
// Formats are named as on the command line: "fp16", "bf16", "e4m3fn", "e5m2:sat", "e6m9" ... So are
// roundings ("nearest-even", "toward-zero", "stochastic:8" ...; NULL is "nearest-even") and
// accumulations ("fp32", "format",
// "tensor-core:h100" ...). docs/formats.md and docs/reference/plans.md list them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HALFSCOPE_API __attribute__((visibility("default")))
#else
#define HALFSCOPE_API
#endif

// Version of this interface. It grows by one when functions are added. Functions are never removed
// or changed within one version of the library's name (libhalfscope_c.so.0).
#define HALFSCOPE_API_VERSION 1
// Returns HALFSCOPE_API_VERSION of the library that runs; it may be newer than the header.
HALFSCOPE_API int halfscope_api_version(void);
// Returns the version of HalfScope, such as "0.1.0".
HALFSCOPE_API const char* halfscope_version(void);

// Error codes; the same numbers as the exit codes of the program.
enum {
  HALFSCOPE_OK = 0,
  HALFSCOPE_USAGE = 2,  // an argument is wrong: an unknown name, a null pointer
  HALFSCOPE_FAILED = 3  // memory ran out
};
// Returns one line that says why this thread's last failed call failed; "" if none has.
HALFSCOPE_API const char* halfscope_message(void);

// The layout and the range of a format.
typedef struct halfscope_format_info {
  int32_t bits, exponent_bits, mantissa_bits, bias;
  int32_t has_infinity, has_nan;
  double max_finite, min_normal, min_subnormal;
} halfscope_format_info;
HALFSCOPE_API int halfscope_describe_format(const char* format, halfscope_format_info* info);

// Effects of a rounding, as bits of `flags` below.
enum {
  HALFSCOPE_INEXACT = 1,    // the result differs from the value
  HALFSCOPE_OVERFLOW = 2,   // beyond the largest finite value
  HALFSCOPE_UNDERFLOW = 4,  // tiny and inexact
  HALFSCOPE_SUBNORMAL = 8,  // the result is not zero and below the smallest normal value
  HALFSCOPE_FLUSHED = 16,   // the value is not zero, but the result is
  HALFSCOPE_INVALID = 32    // a signalling NaN, or a NaN that the format cannot represent
};

// Rounds n values to a format, each once. `out` may be `in`. `flags` has n bytes, or is NULL.
// `seed` is used by the rounding "stochastic" only: element i depends on it and on i.
HALFSCOPE_API int halfscope_round(const char* format, const char* rounding, uint64_t seed, size_t n,
                                  const float* in, float* out, uint8_t* flags);
// The same for doubles. The results are values of the format, so floats represent them.
HALFSCOPE_API int halfscope_round_double(const char* format, const char* rounding, uint64_t seed,
                                         size_t n, const double* in, float* out, uint8_t* flags);

// Writes the bit pattern of each value, after rounding to nearest even, and back. Codes are in the
// lowest bits.
HALFSCOPE_API int halfscope_encode(const char* format, size_t n, const float* in, uint32_t* codes);
HALFSCOPE_API int halfscope_decode(const char* format, size_t n, const uint32_t* codes, float* out);

// Distance of a value and a NaN.
#define HALFSCOPE_ULP_UNORDERED INT64_MAX
// Writes the number of steps from a[i] to b[i] in the format, both rounded to it first. Infinity is
// one step beyond the largest finite value, +0 and -0 are at distance 0, and so are two NaNs.
HALFSCOPE_API int halfscope_ulp_distance(const char* format, size_t n, const float* a,
                                         const float* b, int64_t* distance);

// exponents[i] counts finite nonzero values with floor(log2 |x|) = HALFSCOPE_FIRST_EXPONENT + i.
#define HALFSCOPE_FIRST_EXPONENT (-149)
#define HALFSCOPE_EXPONENT_BINS 277

// Counts of the values before they are rounded, and of what rounding does to them.
typedef struct halfscope_statistics {
  size_t struct_size;  // set by the caller: sizeof(halfscope_statistics)
  int64_t n, zero, pos_inf, neg_inf, nan;
  int64_t overflow;    // finite before rounding, not after it, or saturated
  int64_t underflow;   // not zero before rounding, zero after it
  int64_t subnormal;   // subnormal after rounding
  double max_abs;      // largest finite magnitude; 0 if there is none
  double min_abs;      // smallest nonzero finite magnitude; infinite if there is none
  double sum, sum_sq;  // of the finite values
  int64_t exponents[HALFSCOPE_EXPONENT_BINS];
} halfscope_statistics;
HALFSCOPE_API int halfscope_measure(const char* format, const char* rounding, uint64_t seed,
                                    size_t n, const float* in, halfscope_statistics* statistics);

// Computes out[i * n + j] = sum over p of a[i * k + p] * b[p * n + j], as `accumulation` adds. The
// operands are rounded to `read` first (no change if they are its values already), the sums to
// `write`. `seed` is used by stochastic accumulations only. This is the reference implementation,
// term by term, on one thread.
HALFSCOPE_API int halfscope_matmul(const char* accumulation, const char* read, const char* write,
                                   uint64_t seed, size_t m, size_t n, size_t k, const float* a,
                                   const float* b, float* out);

// Writes a bound of |computed - exact| for one such sum of k products, a[p] * b[p], if nothing
// overflows: see AccumulationBound in core/numeric/sums/accumulation_bound.h.
HALFSCOPE_API int halfscope_sum_bound(const char* accumulation, const char* read, const char* write,
                                      size_t k, const float* a, const float* b, double* bound);

#ifdef __cplusplus
}
#endif
