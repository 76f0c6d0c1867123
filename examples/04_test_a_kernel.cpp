// SPDX-License-Identifier: MIT
// Unit test for a kernel's precision. The same template runs in half, in bfloat16, and in half with
// an fp32 accumulator. A FloatEventScope reports what overflowed and in which operation. Exits with
// 1 if the fp32 accumulator is not safe.
//   04_test_a_kernel [LENGTH]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "halfscope/core/numeric/formats/rng.h"
#include "halfscope/core/numeric/types/float_types.h"

using halfscope::bfloat16;
using halfscope::half;

/// The kernel under test: a dot product with products and sum in `Sum`.
template <class Sum, class T>
Sum dot(const std::vector<T>& a, const std::vector<T>& b) {
  Sum sum{};
  for (size_t i = 0; i < a.size(); ++i) sum += Sum(a[i]) * Sum(b[i]);
  return sum;
}

/// Returns random numbers from 0 to 16, the same ones for every type.
template <class T>
std::vector<T> numbers(int length, uint64_t seed) {
  std::vector<T> result;
  for (int i = 0; i < length; ++i) {
    const uint64_t word = halfscope::random_word(seed, static_cast<uint64_t>(i));
    result.push_back(T(static_cast<double>(word >> 40) * 0x1p-20));
  }
  return result;
}

template <class Sum, class T>
bool check(const char* name, int length) {
  const std::vector<T> a = numbers<T>(length, 1), b = numbers<T>(length, 2);
  double exact = 0;
  for (size_t i = 0; i < a.size(); ++i)
    exact += static_cast<double>(a[i]) * static_cast<double>(b[i]);

  halfscope::FloatEventScope scope;
  const Sum result = dot<Sum>(a, b);
  const double error = std::fabs(static_cast<double>(result) / exact - 1);
  std::printf("%-24s %-8s exact %.0f, relative error %.1e, %llu operations, %llu overflows\n", name,
              to_string(result).c_str(), exact, error,
              static_cast<unsigned long long>(scope.counts().operations),
              static_cast<unsigned long long>(scope.counts().overflows));
  if (const auto first = scope.first(halfscope::kOverflow)) {
    std::printf("  overflow in operation %llu: %s(%g, %g)\n",
                static_cast<unsigned long long>(first->index),
                std::string(float_operation_name(first->operation)).c_str(), first->operands[0],
                first->operands[1]);
  }
  return scope.counts().overflows == 0 && error < 0.01;
}

int main(int argc, char** argv) {
  const int length = argc > 1 ? std::atoi(argv[1]) : 2000;
  check<half, half>("half", length);
  check<bfloat16, bfloat16>("bfloat16", length);
  const bool safe = check<halfscope::Float<halfscope::kFp32>, half>("half, summed in fp32", length);
  std::printf("%s\n", safe ? "safe" : "not safe");
  return safe ? 0 : 1;
}
