// SPDX-License-Identifier: MIT
// The table of tensor cores. Products per block follow one rule: W bytes of input, W = 8 on Volta,
// 16 on Turing, Ampere and Ada, 32 since Hopper (tf32 counts 4 bytes), except where fp6 and fp4
// count as bytes. Zero exponents are those of arXiv:2511.10909 (grade C).
#include <algorithm>
#include <array>

#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

using Aliases = std::span<const std::string_view>;

constexpr std::array<std::string_view, 2> kVolta{"volta", "sm70"};
constexpr std::array<std::string_view, 3> kTuring{"turing", "sm75", "rtx2080"};
constexpr std::array<std::string_view, 7> kAmpere{"ampere", "a2",      "a10", "a30",
                                                  "sm80",   "rtx3060", "sm86"};
constexpr std::array<std::string_view, 6> kAda{"l4", "l40", "l40s", "rtx4090", "rtx1000", "sm89"};
constexpr std::array<std::string_view, 3> kHopper{"h200", "hopper", "sm90"};
constexpr std::array<std::string_view, 2> kHopperWgmma{"h200-wgmma", "wgmma"};
constexpr std::array<std::string_view, 2> kBlackwell{"blackwell", "sm100"};
constexpr std::array<std::string_view, 2> kBlackwellTcgen05{"tcgen05", "blackwell-tcgen05"};
constexpr std::array<std::string_view, 3> kRtxBlackwell{"rtx5090", "rtxpro6000", "sm120"};

constexpr std::array<TensorCoreArch, 9> kArchs{{
    {"v100", "Volta, HMMA.884", Aliases(kVolta)},
    {"t4", "Turing, HMMA.1688", Aliases(kTuring)},
    {"a100", "Ampere, mma.sync", Aliases(kAmpere)},
    {"ada", "Ada Lovelace, mma.sync", Aliases(kAda)},
    {"h100", "Hopper, mma.sync (fp8 is unpacked to fp16)", Aliases(kHopper)},
    {"h100-wgmma", "Hopper, wgmma (what libraries use)", Aliases(kHopperWgmma)},
    {"b200", "Blackwell, mma.sync (fp8 is unpacked to fp16)", Aliases(kBlackwell)},
    {"b200-tcgen05", "Blackwell, tcgen05.mma (what libraries use)", Aliases(kBlackwellTcgen05)},
    {"rtx-blackwell", "RTX Blackwell, mma.sync", Aliases(kRtxBlackwell)},
}};

/// Input formats that share a row.
enum class Input : uint8_t { fp16, bf16, tf32, fp8, fp8_fp6_fp4, fp4 };

/// Ignores the encoding: it defines the top codes, not the finite values.
constexpr bool same_grid(const FloatFormat& x, const FloatFormat& y) noexcept {
  return x.exponent_bits == y.exponent_bits && x.mantissa_bits == y.mantissa_bits &&
         x.bias == y.bias;
}

constexpr FloatFormat kE3m2{3, 2, 3, Encoding::finite_nan};
constexpr FloatFormat kE2m3{2, 3, 1, Encoding::finite_nan};
constexpr FloatFormat kE2m1{2, 1, 1, Encoding::finite_nan};

constexpr bool holds(Input input, const FloatFormat& format) noexcept {
  const bool fp8 = same_grid(format, kE4m3fn) || same_grid(format, kE5m2);
  switch (input) {
    case Input::fp16:
      return same_grid(format, kFp16);
    case Input::bf16:
      return same_grid(format, kBf16);
    case Input::tf32:
      return same_grid(format, kTf32);
    case Input::fp8:
      return fp8;
    case Input::fp8_fp6_fp4:
      return fp8 || same_grid(format, kE3m2) || same_grid(format, kE2m3) ||
             same_grid(format, kE2m1);
    case Input::fp4:
      return same_grid(format, kE2m1);
  }
  return false;
}

struct Row {
  std::string_view arch;
  Input input;
  int products, fraction_bits;
  BlockOutput output;
  int zero_exponent;
  char grade;
  TensorCorePath path = TensorCorePath::native;
  BlockScale scale = BlockScale::none;
};

constexpr BlockOutput kRz = BlockOutput::rz_fp32, kRz13 = BlockOutput::rz_e8m13,
                      kRne = BlockOutput::rne_fp16;
constexpr TensorCorePath kNative = TensorCorePath::native, kSplit = TensorCorePath::fp16_split;

// A row with rne_fp16 has fp16 accumulators, the others fp32.
constexpr Row kRows[] = {
    {"v100", Input::fp16, 4, 23, kRz, -131, 'A'},
    {"v100", Input::fp16, 4, 23, kRne, -20, 'A'},
    // No vectors from Turing; one publication, and tests for an extra bit agree.
    {"t4", Input::fp16, 8, 24, kRz, -132, 'B'},
    {"t4", Input::fp16, 8, 24, kRne, -21, 'B'},
    {"a100", Input::fp16, 8, 24, kRz, -132, 'A'},
    {"a100", Input::fp16, 8, 24, kRne, -21, 'A'},
    {"a100", Input::bf16, 8, 24, kRz, -132, 'A'},
    {"a100", Input::tf32, 4, 24, kRz, -132, 'A'},
    {"ada", Input::fp16, 8, 24, kRz, -132, 'A'},
    {"ada", Input::fp16, 8, 24, kRne, -21, 'A'},
    {"ada", Input::bf16, 8, 24, kRz, -132, 'A'},
    {"ada", Input::tf32, 4, 24, kRz, -132, 'A'},
    {"ada", Input::fp8, 16, 13, kRz13, -132, 'A'},
    {"ada", Input::fp8, 16, 13, kRne, -21, 'A'},
    // tf32 since Hopper: blocks of 8 with mma.m16n8k8; the WMMA C++ interface compiles to k4
    // instructions, for which dot.products is 4. The vectors have k = 4 and cannot distinguish
    // them.
    {"h100", Input::fp16, 16, 25, kRz, -133, 'A'},
    {"h100", Input::fp16, 16, 25, kRne, -22, 'A'},
    {"h100", Input::bf16, 16, 25, kRz, -133, 'A'},
    {"h100", Input::tf32, 8, 25, kRz, -133, 'B'},
    {"h100", Input::fp8, 16, 25, kRz, -133, 'A', kSplit},
    {"h100", Input::fp8, 16, 25, kRne, -22, 'A', kSplit},
    {"h100-wgmma", Input::fp16, 16, 25, kRz, -133, 'B'},
    {"h100-wgmma", Input::fp16, 16, 25, kRne, -133, 'B'},
    {"h100-wgmma", Input::bf16, 16, 25, kRz, -133, 'B'},
    {"h100-wgmma", Input::tf32, 8, 25, kRz, -133, 'B'},
    {"h100-wgmma", Input::fp8, 32, 13, kRz13, -133, 'A'},
    {"h100-wgmma", Input::fp8, 32, 13, kRne, -133, 'B'},
    {"b200", Input::fp16, 16, 25, kRz, -133, 'A'},
    {"b200", Input::fp16, 16, 25, kRne, -22, 'A'},
    {"b200", Input::bf16, 16, 25, kRz, -133, 'A'},
    {"b200", Input::tf32, 8, 25, kRz, -133, 'B'},
    {"b200", Input::fp8, 16, 25, kRz, -133, 'A', kSplit},
    {"b200", Input::fp8, 16, 25, kRne, -22, 'A', kSplit},
    {"b200-tcgen05", Input::fp16, 16, 25, kRz, -133, 'B'},
    {"b200-tcgen05", Input::fp16, 16, 25, kRne, -133, 'B'},
    {"b200-tcgen05", Input::bf16, 16, 25, kRz, -133, 'B'},
    {"b200-tcgen05", Input::tf32, 8, 25, kRz, -133, 'B'},
    {"b200-tcgen05", Input::fp8_fp6_fp4, 32, 25, kRz, -133, 'B'},
    {"b200-tcgen05", Input::fp8_fp6_fp4, 32, 25, kRne, -133, 'B'},
    {"b200-tcgen05", Input::fp8_fp6_fp4, 32, 25, kRz, -133, 'B', kNative, BlockScale::mxf8f6f4},
    // F = 35 from one publication; an independent measurement found 34 to 37.
    {"b200-tcgen05", Input::fp4, 64, 35, kRz, -139, 'B', kNative, BlockScale::mxf4},
    {"b200-tcgen05", Input::fp4, 64, 35, kRz, -139, 'B', kNative, BlockScale::nvf4},
    {"rtx-blackwell", Input::fp16, 16, 25, kRz, -133, 'B'},
    {"rtx-blackwell", Input::fp16, 16, 25, kRne, -22, 'B'},
    {"rtx-blackwell", Input::bf16, 16, 25, kRz, -133, 'B'},
    {"rtx-blackwell", Input::tf32, 8, 25, kRz, -133, 'B'},
    {"rtx-blackwell", Input::fp8_fp6_fp4, 32, 25, kRz, -133, 'B'},
    {"rtx-blackwell", Input::fp8_fp6_fp4, 32, 25, kRne, -133, 'B'},
    {"rtx-blackwell", Input::fp8_fp6_fp4, 32, 25, kRz, -133, 'B', kNative, BlockScale::mxf8f6f4},
    {"rtx-blackwell", Input::fp4, 64, 35, kRz, -139, 'B', kNative, BlockScale::mxf4},
    {"rtx-blackwell", Input::fp4, 64, 35, kRz, -139, 'B', kNative, BlockScale::nvf4},
};

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_name(std::string_view x, std::string_view y) noexcept {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](char p, char q) { return lower(p) == lower(q); });
}

}  // namespace

std::span<const TensorCoreArch> tensor_core_archs() noexcept { return kArchs; }

const TensorCoreArch* find_tensor_core_arch(std::string_view name) noexcept {
  for (const TensorCoreArch& arch : kArchs) {
    if (same_name(arch.name, name)) return &arch;
    for (const std::string_view alias : arch.aliases) {
      if (same_name(alias, name)) return &arch;
    }
  }
  return nullptr;
}

std::optional<TensorCoreProfile> tensor_core_profile(std::string_view arch,
                                                     const FloatFormat& input,
                                                     const FloatFormat& accumulator,
                                                     BlockScale scale) noexcept {
  const TensorCoreArch* const found = find_tensor_core_arch(arch);
  const bool to_fp16 = accumulator == kFp16;
  if (found == nullptr || (!to_fp16 && accumulator != kFp32)) return std::nullopt;
  for (const Row& row : kRows) {
    if (row.arch != found->name || row.scale != scale || !holds(row.input, input)) continue;
    if ((row.output == BlockOutput::rne_fp16) != to_fp16) continue;
    return TensorCoreProfile{.dot = {.products = row.products,
                                     .fraction_bits = row.fraction_bits,
                                     .output = row.output,
                                     .zero_rule = ZeroRule::zero_terms,
                                     .zero_exponent = row.zero_exponent,
                                     .negative_zero = true},
                             .path = row.path,
                             .scale = row.scale,
                             .a_format = input,
                             .b_format = input,
                             .accumulator = accumulator,
                             .grade = row.grade};
  }
  return std::nullopt;
}

std::optional<TensorCoreProfile> tensor_core_profile(std::string_view arch, const FloatFormat& a,
                                                     const FloatFormat& b,
                                                     const FloatFormat& accumulator) noexcept {
  std::optional<TensorCoreProfile> profile = tensor_core_profile(arch, a, accumulator);
  if (!profile || a == b) return profile;
  // An instruction accepts any pair of formats of at most 8 bits.
  const bool narrow = a.bits() <= 8 && b.bits() <= 8;
  if (!narrow || !tensor_core_profile(arch, b, accumulator)) return std::nullopt;
  profile->b_format = b;
  return profile;
}

}  // namespace halfscope
