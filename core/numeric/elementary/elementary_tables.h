// SPDX-License-Identifier: MIT
// Written by scripts/elementary-tables, which says how: the numbers behind elementary.h.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace halfscope::elementary {

// clang-format off
/// ln 2; times a whole number below 2^11 it is exact
inline constexpr double kLn2High = 0x1.62e42fefa3800p-1;
inline constexpr double kLn2Low = 0x1.ef35793c76730p-45;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
/// 1/3
inline constexpr double kThirdHigh = 0x1.5555555555555p-2;
inline constexpr double kThirdLow = 0x1.5555555555555p-56;
/// 2 / sqrt(pi)
inline constexpr double kTwoOverRootPiHigh = 0x1.20dd750429b6dp+0;
inline constexpr double kTwoOverRootPiLow = 0x1.1ae3a914fed80p-56;
/// pi / 2
inline constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
inline constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
/// pi / 2 in parts of 33 bits and a last one. Times a whole number below 2^20
/// the first three are exact.
inline constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
inline constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
inline constexpr double kHalfPi3 = 0x1.3198a2e000000p-69;
inline constexpr double kHalfPi4 = 0x1.b839a252049c1p-104;
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
/// atan(1/2)
inline constexpr double kAtanHalfHigh = 0x1.dac670561bb4fp-2;
inline constexpr double kAtanHalfLow = 0x1.a2b7f222f65e2p-56;
/// atan(2)
inline constexpr double kAtanTwoHigh = 0x1.1b6e192ebbe44p+0;
inline constexpr double kAtanTwoLow = 0x1.b1b466a88828ep-54;

/// (e^r - 1 - r - r^2 / 2) / r^3 for |r| <= ln 2 / 2;
/// error 2^-59.6 of the result.
struct ExpTail {
  static constexpr double c[] = {
      0x1.5555555555556p-3, 0x1.5555555555555p-5, 0x1.11111111109b5p-7, 0x1.6c16c16c167e2p-10,
      0x1.a01a01a7c2f2cp-13, 0x1.a01a01a47a5abp-16, 0x1.71de0db2eb873p-19, 0x1.27e4e1f71bcbbp-22,
      0x1.af389eea54156p-26, 0x1.1f66d957d0ef0p-29,
  };
};
/// (atanh(s) / s - 1 - z / 3) / z^2 with z = s^2 for
/// |s| <= (sqrt 2 - 1) / (sqrt 2 + 1);
/// error 2^-66.3 of the result.
struct AtanhTail {
  static constexpr double c[] = {
      0x1.999999999999ap-3, 0x1.2492492492521p-3, 0x1.c71c71c6eaa8dp-4, 0x1.745d177a8f200p-4,
      0x1.3b1395d4f9e5fp-4, 0x1.1118c74823a2ep-4, 0x1.df7ce9a6bcccbp-5, 0x1.e02d197c00c78p-5,
  };
};
/// (atan(s) / s - 1 + z / 3) / z^2 with z = s^2 for
/// |s| <= tan(atan(1/2) / 2);
/// error 2^-64.3 of the result.
struct AtanTail {
  static constexpr double c[] = {
      0x1.999999999999ap-3, -0x1.24924924923fep-3, 0x1.c71c71c6f9eacp-4, -0x1.745d172cfdc5fp-4,
      0x1.3b13a845701ccp-4, -0x1.110f3ecabbc19p-4, 0x1.e171fe143f6fdp-5, -0x1.a742cb060bd07p-5,
      0x1.3762729cf83d8p-5,
  };
};
/// (sin(r) / r - 1) / z with z = r^2, |r| <= pi / 4;
/// error 2^-57.3 of the result.
struct SinTail {
  static constexpr double c[] = {
      -0x1.5555555555555p-3, 0x1.1111111111110p-7, -0x1.a01a01a019938p-13, 0x1.71de3a5460957p-19,
      -0x1.ae645412c4ecap-26, 0x1.61217f0b24037p-33, -0x1.ab17d3ce9d15bp-41,
  };
};
/// (cos(r) - 1 + z / 2) / z^2 with z = r^2, |r| <= pi / 4;
/// error 2^-59.5 of the result.
struct CosTail {
  static constexpr double c[] = {
      0x1.5555555555555p-5, -0x1.6c16c16c16c16p-10, 0x1.a01a01a019d0ap-16, -0x1.27e4fb7712d63p-22,
      0x1.1eed8deb9775dp-29, -0x1.9394ba0c850d7p-37, 0x1.ab785ad070e68p-45,
  };
};
/// (erf(x) / x - 2 / sqrt(pi)) / z with z = x^2, |x| <= 0.5;
/// error 2^-57.8 of the result.
struct ErfTail {
  static constexpr double c[] = {
      -0x1.812746b0379e7p-2, 0x1.ce2f21a042bcfp-4, -0x1.b82ce31286cbcp-6, 0x1.565bcd0d2ff6ep-8,
      -0x1.c02db335c071dp-11, 0x1.f9a2dd9e25187p-14, -0x1.f4c2b861c2c9cp-17, 0x1.b7f36af42c55ep-20,
      -0x1.3d8e8315e4ddep-23,
  };
};
/// (1 + 3 x / 2) e^(x^2) erfc(x) for x = 3.5
inline constexpr double kErfcMiddleHigh = 0x1.f0f0900b74c2fp-1;
inline constexpr double kErfcMiddleLow = 0x1.63ae8848d9a83p-56;
/// ((1 + 3 x / 2) e^(x^2) erfc(x) - kErfcMiddle) / t with
/// t = (x - 3.5) / (x + 3.5) for 0.5 <= x <= 27.3;
/// error 2^-56.4 of the result.
struct ErfcTail {
  static constexpr double c[] = {
      -0x1.6b2865d1d9bafp-3, 0x1.9c98ff1882bffp-5, 0x1.0cbc6bee7660ap-5, -0x1.00dc75b876469p-4,
      0x1.bf83962c17691p-5, -0x1.0933bd51282afp-5, 0x1.b2a1fb2772a54p-7, -0x1.959775e0b67dcp-9,
      -0x1.4423e4d96b79fp-13, 0x1.9f8424a9308ecp-12, -0x1.832558274360bp-14,
      -0x1.e258e63b9d6b9p-16, 0x1.2a71b62a6c5cdp-16, 0x1.6ed1aa813c529p-20, -0x1.739626ba50f65p-19,
      0x1.f84e30dc23308p-27, 0x1.d34a432eefcb2p-22, -0x1.b93b9a691875ap-27, -0x1.241765b683faep-24,
      0x1.8a8550fd65e93p-30, 0x1.0a0027765f4adp-27, -0x1.fddfbe884bc78p-34,
  };
};
/// The binary digits of 2 / pi behind 64 zeros, 64 at a time. In a function, as
/// devices do not have the arrays of hosts.
HS_HD inline uint64_t two_over_pi_word(uint64_t at) noexcept {
  static constexpr uint64_t words[] = {
      0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
      0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
      0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
      0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
      0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
      0xf0cfbc209af4361d,
  };
  return words[at];
}
// clang-format on

}  // namespace halfscope::elementary
