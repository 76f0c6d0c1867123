// SPDX-License-Identifier: MIT
#include "emulation/gemm/driver.h"

#include <limits>

namespace halfscope::gemm_detail {

const KernelSet& active_kernels() {
  switch (active_isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return avx2_kernels();
    case Isa::avx512:
      return avx512_kernels();
#endif
    default:
      return baseline_kernels();
  }
}

FormatRounding format_rounding(const FloatFormat& format) noexcept {
  return {.min_normal = FloatFormat::power_of_two(format.min_exponent()),
          .above_max = FloatFormat::power_of_two(format.max_exponent() + 1),
          .magic = 1.5 * FloatFormat::power_of_two(52 - format.mantissa_bits),
          .max_finite = format.max_finite(),
          .overflow = format.saturates()      ? format.max_finite()
                      : format.has_infinity() ? std::numeric_limits<double>::infinity()
                                              : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace halfscope::gemm_detail
