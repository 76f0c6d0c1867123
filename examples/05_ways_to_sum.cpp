// SPDX-License-Identifier: MIT
// Computes one dot product of fp16 numbers under every named accumulation. Shows how the result
// differs between a kernel that accumulates in fp16, a tensor core, and a sum that is split along
// k.
//   05_ways_to_sum [TERMS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "halfscope/core/numeric/formats/round.h"
#include "halfscope/core/numeric/sums/accumulate.h"

int main(int argc, char** argv) {
  using halfscope::kFp16;
  const int terms = std::clamp(argc > 1 ? std::atoi(argv[1]) : 4096, 1, 1 << 20);
  std::mt19937 random(1);
  std::vector<float> a, b;
  double exact = 0.0;
  for (int i = 0; i < terms; ++i) {
    const auto draw = [&random] {
      const float unit = static_cast<float>(random()) * 0x1p-32f;
      return halfscope::round_to_format(unit, kFp16).value;
    };
    a.push_back(draw());
    b.push_back(draw());
    exact += static_cast<double>(a.back()) * static_cast<double>(b.back());
  }
  std::printf("%d products of fp16 numbers in [0, 1): %.6f\n", terms, exact);

  std::vector<std::string> ways(halfscope::accumulation_names().begin(),
                                halfscope::accumulation_names().end());
  for (const char* more : {"format:promote=128", "fp32:split-k=4", "tensor-core:h100,acc=fp16"}) {
    ways.emplace_back(more);
  }
  for (const std::string& way : ways) {
    const halfscope::SumSpec spec{
        .accumulation = halfscope::parse_accumulation(way).value(), .write = kFp16, .read = kFp16};
    const float sum = halfscope::sum_of_products(spec, a, b);
    const double error = std::fabs(static_cast<double>(sum) - exact) / exact;
    std::printf("  %-28s %-12.9g error %.1e\n", way.c_str(), static_cast<double>(sum), error);
  }
}
