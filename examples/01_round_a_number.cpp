// SPDX-License-Identifier: MIT
// Rounds numbers to fp16, bf16 and fp8 (e4m3fn) and prints each value with its flags: inexact,
// overflow, underflow, subnormal.
//   01_round_a_number [NUMBER...]
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "halfscope/core/numeric/formats/round.h"

int main(int argc, char** argv) {
  std::vector<float> numbers;
  for (int i = 1; i < argc; ++i) numbers.push_back(std::strtof(argv[i], nullptr));
  if (numbers.empty()) numbers = {0.1f, 65504.0f, 65520.0f, 448.0f, 470.0f, 6e-8f, 2e-8f, 2049.0f};

  const struct {
    const char* name;
    halfscope::FloatFormat format;
  } formats[] = {
      {"fp16", halfscope::kFp16}, {"bf16", halfscope::kBf16}, {"e4m3fn", halfscope::kE4m3fn}};

  for (const float number : numbers) {
    std::printf("%.9g\n", static_cast<double>(number));
    for (const auto& [name, format] : formats) {
      const auto [value, flags] = halfscope::round_to_format(number, format);
      std::printf("  %-7s %-14.9g%s%s%s%s%s\n", name, static_cast<double>(value),
                  flags & halfscope::kInexact ? " inexact" : "",
                  flags & halfscope::kOverflow ? " overflow" : "",
                  flags & halfscope::kUnderflow ? " underflow" : "",
                  flags & halfscope::kSubnormal ? " subnormal" : "",
                  flags & halfscope::kFlushed ? " flushed" : "");
    }
  }
}
