/* SPDX-License-Identifier: MIT
 * The C interface against values written by hand and against ldexp(): rounding, codes, distances,
 * statistics, products, errors, threads. Exits with 1 after printing each failure. */
#include <float.h>
#include <halfscope/halfscope.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)
#define CHECK_OK(call) CHECK((call) == HALFSCOPE_OK)

/* IEEE 754-2019, 3.4: 1 sign, 5 exponent and 10 mantissa bits, bias 15. */
static double fp16_value(uint32_t code) {
  const int exponent = (int)(code >> 10 & 31), mantissa = (int)(code & 1023);
  const double sign = code >> 15 != 0 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

static void test_versions(void) {
  CHECK(halfscope_api_version() == HALFSCOPE_API_VERSION);
  CHECK(strcmp(halfscope_version(), "0.1.0") == 0);
}

static void test_formats(void) {
  halfscope_format_info info;
  CHECK_OK(halfscope_describe_format("fp16", &info));
  CHECK(info.bits == 16 && info.exponent_bits == 5 && info.mantissa_bits == 10 && info.bias == 15);
  CHECK(info.has_infinity && info.has_nan && info.max_finite == 65504.0);
  CHECK(info.min_normal == ldexp(1, -14) && info.min_subnormal == ldexp(1, -24));
  CHECK_OK(halfscope_describe_format("e4m3fn", &info));
  CHECK(info.bits == 8 && !info.has_infinity && info.has_nan && info.max_finite == 448.0);
}

static void test_codes(void) {
  for (uint32_t code = 0; code < 65536; ++code) {
    float value;
    uint32_t back;
    CHECK_OK(halfscope_decode("fp16", 1, &code, &value));
    const double expected = fp16_value(code);
    CHECK(isnan(expected) ? isnan(value)
                          : value == expected && !signbit(value) == !signbit(expected));
    CHECK_OK(halfscope_encode("fp16", 1, &value, &back));
    CHECK(back == code);
    if (isnan(expected) || code % 32768 >= 31743) continue;
    /* Between two neighbours: the even one wins a tie. */
    const double next = fp16_value(code + 1), middle = (expected + next) / 2;
    float rounded[3];
    const double near[3] = {middle, middle + (expected - next) / 1024,
                            middle + (next - expected) / 1024};
    CHECK_OK(halfscope_round_double("fp16", NULL, 0, 3, near, rounded, NULL));
    CHECK(rounded[0] == (code % 2 == 0 ? expected : next));
    CHECK(rounded[1] == expected && rounded[2] == next);
    if (failures > 20) return;
  }
}

static void test_rounding(void) {
  const float in[] = {65519.0f, 65520.0f, -1e9f, 1e-9f, 0.1f, NAN};
  float out[6];
  uint8_t flags[6];
  CHECK_OK(halfscope_round("fp16", "nearest-even", 0, 6, in, out, flags));
  CHECK(out[0] == 65504.0f && out[1] == INFINITY && out[2] == -INFINITY && out[3] == 0.0f &&
        isnan(out[5]));
  CHECK(out[4] == 0.0999755859375f);
  CHECK(flags[0] == HALFSCOPE_INEXACT && flags[1] == (HALFSCOPE_INEXACT | HALFSCOPE_OVERFLOW));
  CHECK(flags[3] == (HALFSCOPE_INEXACT | HALFSCOPE_UNDERFLOW | HALFSCOPE_FLUSHED) && flags[5] == 0);
  CHECK_OK(halfscope_round("fp16", "toward-zero", 0, 2, in, out, NULL));
  CHECK(out[0] == 65504.0f && out[1] == 65504.0f);
  CHECK_OK(
      halfscope_round_double("fp16", "toward-zero", 0, 1, (const double[]){65503.9}, out, NULL));
  CHECK(out[0] == 65472.0f);
  CHECK_OK(halfscope_round("e4m3fn:sat", NULL, 0, 1, in, out, NULL));
  CHECK(out[0] == 448.0f);

  /* Stochastic: the same seed gives the same values, and their mean is right. 1.25 is a quarter of
   * the way from 1 to 2 in e5m0. */
  enum { kCount = 20000 };
  float* quarter = malloc(3 * kCount * sizeof(float));
  CHECK(quarter != NULL);
  if (quarter == NULL) return;
  float *first = quarter + kCount, *second = first + kCount;
  double sum = 0.0;
  for (int i = 0; i < kCount; ++i) quarter[i] = 1.25f;
  CHECK_OK(halfscope_round("e5m0", "stochastic", 7, kCount, quarter, first, NULL));
  CHECK_OK(halfscope_round("e5m0", "stochastic", 7, kCount, quarter, second, NULL));
  CHECK(memcmp(first, second, kCount * sizeof(float)) == 0);
  CHECK_OK(halfscope_round("e5m0", "stochastic", 8, kCount, quarter, second, NULL));
  CHECK(memcmp(first, second, kCount * sizeof(float)) != 0);
  for (int i = 0; i < kCount; ++i) sum += first[i];
  CHECK(fabs(sum / kCount - 1.25) < 0.02);
  free(quarter);
}

static void test_distances(void) {
  const float a[] = {1.0f, -0.0f, 65504.0f, NAN, NAN, 1.0f};
  const float b[] = {2.0f, 0.0f, INFINITY, NAN, 1.0f, 1.0009765625f};
  int64_t distance[6];
  CHECK_OK(halfscope_ulp_distance("fp16", 6, a, b, distance));
  CHECK(distance[0] == 1024 && distance[1] == 0 && distance[2] == 1 && distance[3] == 0);
  CHECK(distance[4] == HALFSCOPE_ULP_UNORDERED && distance[5] == 1);
}

static void test_statistics(void) {
  const float in[] = {0.0f, -0.0f, 1.0f, -3.0f, 1e6f, 1e-9f, 3e-7f, INFINITY, -INFINITY, NAN};
  halfscope_statistics s;
  memset(&s, 0, sizeof(s));
  s.struct_size = sizeof(s);
  CHECK_OK(halfscope_measure("fp16", NULL, 0, 10, in, &s));
  CHECK(s.n == 10 && s.zero == 2 && s.pos_inf == 1 && s.neg_inf == 1 && s.nan == 1);
  CHECK(s.overflow == 1 && s.underflow == 1 && s.subnormal == 1);
  CHECK(s.max_abs == 1e6 && s.min_abs == (double)1e-9f);
  CHECK(fabs(s.sum - (1e6 - 2)) < 1e-5 && fabs(s.sum_sq - (1e12 + 10)) < 1e-3);
  int64_t total = 0;
  for (int i = 0; i < HALFSCOPE_EXPONENT_BINS; ++i) total += s.exponents[i];
  CHECK(total == 5);
  CHECK(s.exponents[0 - HALFSCOPE_FIRST_EXPONENT] == 1);  /* 1 */
  CHECK(s.exponents[1 - HALFSCOPE_FIRST_EXPONENT] == 1);  /* -3 */
  CHECK(s.exponents[19 - HALFSCOPE_FIRST_EXPONENT] == 1); /* 1e6 */
}

static void test_products(void) {
  /* Small integers are exact under every accumulation. */
  const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
  const float expected[] = {74, 80, 86, 92, 173, 188, 203, 218};
  const char* ways[] = {"fp32",          "fp64", "pairwise", "kahan", "format", "tensor-core:h100",
                        "fp32:split-k=2"};
  for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); ++w) {
    float out[8];
    CHECK_OK(halfscope_matmul(ways[w], "fp16", "fp16", 0, 2, 4, 3, a, b, out));
    CHECK(memcmp(out, expected, sizeof(out)) == 0);
  }
  /* 2048 + 1 is a tie in fp16, so the ones are lost; fp32 keeps them. */
  float ones[101], column[101], sum;
  for (int k = 0; k < 101; ++k) ones[k] = 1.0f, column[k] = k == 0 ? 2048.0f : 1.0f;
  CHECK_OK(halfscope_matmul("format", "fp16", "fp16", 0, 1, 1, 101, ones, column, &sum));
  CHECK(sum == 2048.0f);
  CHECK_OK(halfscope_matmul("fp32", "fp16", "fp16", 0, 1, 1, 101, ones, column, &sum));
  CHECK(sum == 2148.0f);
  /* Operands are rounded first: 0.1 in fp16 is 0.0999755859375. */
  const float tenth = 0.1f, one = 1.0f;
  CHECK_OK(halfscope_matmul("fp32", "fp16", "fp32", 0, 1, 1, 1, &tenth, &one, &sum));
  CHECK(sum == 0.0999755859375f);
  CHECK_OK(halfscope_matmul("fp32", "fp16", "fp16", 0, 1, 1, 0, NULL, NULL, &sum));
  CHECK(sum == 0.0f);

  double bound;
  CHECK_OK(halfscope_sum_bound("format", "fp16", "fp16", 101, ones, column, &bound));
  CHECK(bound > 100.0 && bound < 200.0); /* about 101 * 2^-11 * 2148 */
}

static void test_errors(void) {
  float x = 1.0f, y = 5.0f;
  CHECK(halfscope_round("fp17", NULL, 0, 1, &x, &y, NULL) == HALFSCOPE_USAGE);
  CHECK(strstr(halfscope_message(), "'fp17' is not a format") == halfscope_message());
  CHECK(y == 5.0f);
  CHECK(halfscope_round(NULL, NULL, 0, 1, &x, &y, NULL) == HALFSCOPE_USAGE);
  CHECK(strstr(halfscope_message(), "null") != NULL);
  CHECK(halfscope_round("fp16", "sideways", 0, 1, &x, &y, NULL) == HALFSCOPE_USAGE);
  CHECK(strcmp(halfscope_message(), "'sideways' is not a rounding mode") == 0);
  CHECK(halfscope_round("fp16", NULL, 0, 1, NULL, &y, NULL) == HALFSCOPE_USAGE);
  CHECK(halfscope_round("fp16", NULL, 0, 0, NULL, NULL, NULL) == HALFSCOPE_OK);
  CHECK(halfscope_matmul("fp33", "fp16", "fp16", 0, 1, 1, 1, &x, &x, &y) == HALFSCOPE_USAGE);
  CHECK(halfscope_matmul("fp32", "fp16", "fp16", 0, SIZE_MAX, 2, 1, &x, &x, &y) == HALFSCOPE_USAGE);
  CHECK(strcmp(halfscope_message(), "the matrices are too large") == 0);
#ifdef SANITIZED
  puts("skipped: too little memory, because sanitizers end the program then");
#else
  CHECK(halfscope_matmul("fp32", "fp16", "fp16", 0, 1, SIZE_MAX / 8, 1, &x, &x, &y) ==
        HALFSCOPE_FAILED);
  CHECK(strcmp(halfscope_message(), "out of memory") == 0);
#endif
  halfscope_statistics s;
  memset(&s, 0, sizeof(s));
  CHECK(halfscope_measure("fp16", NULL, 0, 1, &x, &s) == HALFSCOPE_USAGE);
  CHECK(strstr(halfscope_message(), "struct_size") != NULL);
  char name[2000];
  memset(name, 'x', sizeof(name));
  name[sizeof(name) - 1] = '\0';
  CHECK(halfscope_encode(name, 1, &x, (uint32_t*)&y) == HALFSCOPE_USAGE);
  CHECK(strlen(halfscope_message()) < 600);
}

static void* fail_in_thread(void* text) {
  CHECK(strcmp(halfscope_message(), "") == 0);
  CHECK(halfscope_describe_format((const char*)text, NULL) == HALFSCOPE_USAGE);
  CHECK(strstr(halfscope_message(), "thread") != NULL);
  return NULL;
}

static void test_threads(void) {
  CHECK(halfscope_describe_format("mine", NULL) == HALFSCOPE_USAGE);
  pthread_t thread;
  char name[] = "thread";
  CHECK(pthread_create(&thread, NULL, fail_in_thread, name) == 0);
  pthread_join(thread, NULL);
  CHECK(strstr(halfscope_message(), "'mine'") != NULL);
}

int main(void) {
  test_versions();
  test_formats();
  test_codes();
  test_rounding();
  test_distances();
  test_statistics();
  test_products();
  test_errors();
  test_threads();
  if (failures == 0) puts("all passed");
  return failures == 0 ? 0 : 1;
}
