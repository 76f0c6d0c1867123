// SPDX-License-Identifier: MIT
// The C interface: names become values, exceptions become codes and a message.
#include "core/c_api/halfscope.h"

#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "core/numeric/statistics/ulp.h"
#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/accumulation_bound.h"

using namespace halfscope;

static_assert(HALFSCOPE_FIRST_EXPONENT == kMinExponentBin);
static_assert(HALFSCOPE_EXPONENT_BINS == kExponentBins);
static_assert(HALFSCOPE_ULP_UNORDERED == kUlpUnordered);
static_assert(int{HALFSCOPE_INEXACT} == int{kInexact} && int{HALFSCOPE_OVERFLOW} == int{kOverflow});
static_assert(int{HALFSCOPE_UNDERFLOW} == int{kUnderflow} &&
              int{HALFSCOPE_SUBNORMAL} == int{kSubnormal});
static_assert(int{HALFSCOPE_FLUSHED} == int{kFlushed} && int{HALFSCOPE_INVALID} == int{kInvalid});

namespace {

/// Fixed memory, so that a message can be stored when there is none left.
thread_local char last_message[512] = "";

int fail(int code, const char* text) noexcept {
  size_t length = 0;
  for (; text[length] != '\0' && length + 1 < sizeof(last_message); ++length) {
    last_message[length] = text[length];
  }
  last_message[length] = '\0';
  return code;
}

template <class Work>
int guarded(const Work& work) noexcept {
  try {
    work();
    return HALFSCOPE_OK;
  } catch (const Error& error) {
    return fail(error.kind() == ErrorKind::usage ? HALFSCOPE_USAGE : HALFSCOPE_FAILED,
                error.what());
  } catch (const std::bad_alloc&) {
    return fail(HALFSCOPE_FAILED, "out of memory");
  } catch (const std::exception& error) {
    return fail(HALFSCOPE_FAILED, error.what());
  } catch (...) {
    return fail(HALFSCOPE_FAILED, "unknown error");
  }
}

void require(const void* pointer, const char* name, size_t n = 1) {
  if (pointer == nullptr && n > 0) throw usage_error(std::string(name) + " is a null pointer");
}

FloatFormat format_named(const char* name) {
  require(name, "the name of the format");
  if (const std::optional<FloatFormat> format = parse_format(name)) return *format;
  throw usage_error("'" + std::string(name) + "' is not a format: " + format_problem(name));
}

TensorRounding rounding_named(const char* name, uint64_t seed) {
  if (name == nullptr) return {};
  const std::optional<RoundingChoice> choice = parse_rounding(name);
  if (!choice) throw usage_error("'" + std::string(name) + "' is not a rounding mode");
  return {.mode = choice->mode, .key = seed, .random_bits = choice->random_bits};
}

SumSpec sums_named(const char* accumulation, const char* read, const char* write, uint64_t seed) {
  require(accumulation, "the name of the accumulation");
  const std::optional<Accumulation> how = parse_accumulation(accumulation);
  if (!how) throw usage_error("'" + std::string(accumulation) + "' is not an accumulation");
  return {
      .accumulation = *how, .write = format_named(write), .read = format_named(read), .key = seed};
}

/// Returns the number of elements of a matrix. Throws Error if memory cannot hold it.
size_t area(size_t rows, size_t columns) {
  if (columns > 0 && rows > std::numeric_limits<size_t>::max() / sizeof(float) / columns) {
    throw usage_error("the matrices are too large");
  }
  return rows * columns;
}

template <class T>
void round_all(const char* format, const char* rounding, uint64_t seed, size_t n, const T* in,
               float* out, uint8_t* flags) {
  const FloatFormat to = format_named(format);
  const TensorRounding how = rounding_named(rounding, seed);
  require(in, "in", n);
  require(out, "out", n);
  for (size_t i = 0; i < n; ++i) {
    const Rounded<T> rounded = round_to_format(in[i], to, how.element(static_cast<int64_t>(i)));
    out[i] = static_cast<float>(rounded.value);
    if (flags != nullptr) flags[i] = rounded.flags;
  }
}

std::vector<float> rounded_to(const FloatFormat& format, const float* in, size_t n) {
  std::vector<float> result(n);
  for (size_t i = 0; i < n; ++i) result[i] = round_to_format(in[i], format).value;
  return result;
}

}  // namespace

int halfscope_api_version(void) { return HALFSCOPE_API_VERSION; }

const char* halfscope_version(void) { return HALFSCOPE_VERSION; }

const char* halfscope_message(void) { return last_message; }

int halfscope_describe_format(const char* format, halfscope_format_info* info) {
  return guarded([&] {
    const FloatFormat f = format_named(format);
    require(info, "info");
    *info = {.bits = f.bits(),
             .exponent_bits = f.exponent_bits,
             .mantissa_bits = f.mantissa_bits,
             .bias = f.bias,
             .has_infinity = f.has_infinity() ? 1 : 0,
             .has_nan = f.has_nan() ? 1 : 0,
             .max_finite = f.max_finite(),
             .min_normal = f.min_normal(),
             .min_subnormal = f.min_subnormal()};
  });
}

int halfscope_round(const char* format, const char* rounding, uint64_t seed, size_t n,
                    const float* in, float* out, uint8_t* flags) {
  return guarded([&] { round_all(format, rounding, seed, n, in, out, flags); });
}

int halfscope_round_double(const char* format, const char* rounding, uint64_t seed, size_t n,
                           const double* in, float* out, uint8_t* flags) {
  return guarded([&] { round_all(format, rounding, seed, n, in, out, flags); });
}

int halfscope_encode(const char* format, size_t n, const float* in, uint32_t* codes) {
  return guarded([&] {
    const FloatFormat f = format_named(format);
    require(in, "in", n);
    require(codes, "codes", n);
    for (size_t i = 0; i < n; ++i) codes[i] = encode(in[i], f);
  });
}

int halfscope_decode(const char* format, size_t n, const uint32_t* codes, float* out) {
  return guarded([&] {
    const FloatFormat f = format_named(format);
    require(codes, "codes", n);
    require(out, "out", n);
    for (size_t i = 0; i < n; ++i) out[i] = decode(codes[i], f);
  });
}

int halfscope_ulp_distance(const char* format, size_t n, const float* a, const float* b,
                           int64_t* distance) {
  return guarded([&] {
    const FloatFormat f = format_named(format);
    require(a, "a", n);
    require(b, "b", n);
    require(distance, "distance", n);
    for (size_t i = 0; i < n; ++i) distance[i] = ulp_distance(a[i], b[i], f);
  });
}

int halfscope_measure(const char* format, const char* rounding, uint64_t seed, size_t n,
                      const float* in, halfscope_statistics* statistics) {
  return guarded([&] {
    const FloatFormat f = format_named(format);
    const TensorRounding how = rounding_named(rounding, seed);
    require(in, "in", n);
    require(statistics, "statistics");
    if (statistics->struct_size != sizeof(halfscope_statistics)) {
      throw usage_error("struct_size is not sizeof(halfscope_statistics)");
    }
    std::vector<float> rounded(n);
    const TensorStats stats = measure({in, n}, rounded, f, how);
    *statistics = {.struct_size = sizeof(halfscope_statistics),
                   .n = stats.n,
                   .zero = stats.zero,
                   .pos_inf = stats.pos_inf,
                   .neg_inf = stats.neg_inf,
                   .nan = stats.nan,
                   .overflow = stats.overflow,
                   .underflow = stats.underflow,
                   .subnormal = stats.subnormal,
                   .max_abs = static_cast<double>(stats.max_abs),
                   .min_abs = static_cast<double>(stats.min_abs),
                   .sum = stats.sum,
                   .sum_sq = stats.sum_sq,
                   .exponents = {}};
    for (size_t i = 0; i < stats.exponents.size(); ++i) {
      statistics->exponents[i] = stats.exponents[i];
    }
  });
}

int halfscope_matmul(const char* accumulation, const char* read, const char* write, uint64_t seed,
                     size_t m, size_t n, size_t k, const float* a, const float* b, float* out) {
  return guarded([&] {
    const SumSpec spec = sums_named(accumulation, read, write, seed);
    const size_t a_size = area(m, k), b_size = area(k, n), out_size = area(m, n);
    require(a, "a", a_size);
    require(b, "b", b_size);
    require(out, "out", out_size);
    const std::vector<float> rows = rounded_to(spec.read, a, a_size);
    std::vector<float> columns(b_size);  // b transposed
    for (size_t p = 0; p < k; ++p) {
      for (size_t j = 0; j < n; ++j) {
        columns[j * k + p] = round_to_format(b[p * n + j], spec.read).value;
      }
    }
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const float sum = sum_of_products(spec, std::span(rows).subspan(i * k, k),
                                          std::span(columns).subspan(j * k, k), nullptr,
                                          static_cast<int64_t>(i * n + j));
        out[i * n + j] = round_to_format(sum, spec.write).value;
      }
    }
  });
}

int halfscope_sum_bound(const char* accumulation, const char* read, const char* write, size_t k,
                        const float* a, const float* b, double* bound) {
  return guarded([&] {
    const SumSpec spec = sums_named(accumulation, read, write, 0);
    require(a, "a", k);
    require(b, "b", k);
    require(bound, "bound");
    const std::vector<float> x = rounded_to(spec.read, a, k), y = rounded_to(spec.read, b, k);
    *bound = accumulation_bound(spec, x, y).error;
  });
}
