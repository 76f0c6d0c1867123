// SPDX-License-Identifier: MIT
// Rounds 70000, which is larger than the largest fp16 number, and prints the result.
#include <cstdio>

#include "core/numeric/formats/round.h"

int main() {
  const auto rounded = halfscope::round_to_format(70000.0f, halfscope::kFp16);
  std::printf("70000 in fp16 is %g\n", static_cast<double>(rounded.value));
  return (rounded.flags & halfscope::kOverflow) != 0 ? 0 : 1;
}
