// SPDX-License-Identifier: MIT
#include "cli/tasks/fprev_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/args/backends.h"
#include "cli/tasks/fprev_backend.h"
#include "cli/tasks/mma_formats.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"
#include "emulation/gemm/gemm.h"

namespace halfscope {
namespace {

using Rows = std::span<const float>;

/// One function call per row.
template <class Dot>
DotProducts row_by_row(Dot dot) {
  return [dot](Rows a, Rows b, int64_t rows, int64_t n, std::span<float> out) {
    const size_t length = static_cast<size_t>(n);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      out[r] = dot(a.subspan(r * length, length), b.subspan(r * length, length));
    }
  };
}

/// One matrix product for all rows. All its columns are the same, and so must their results be.
DotProducts one_product(const SumSpec& spec) {
  return [spec](Rows a, Rows b, int64_t rows, int64_t n, std::span<float> out) {
    constexpr int64_t kColumns = 16;  // enough for whole tiles of the kernels
    std::vector<float> right(static_cast<size_t>(n * kColumns)),
        c(static_cast<size_t>(rows * kColumns));
    for (size_t k = 0; k < right.size(); ++k) right[k] = b[k / kColumns];
    gemm(rows, kColumns, n, {a.data(), n, 1}, {right.data(), kColumns, 1}, nullptr, c.data(), spec);
    for (size_t r = 0; r < out.size(); ++r) {
      const auto row = c.begin() + static_cast<std::ptrdiff_t>(r * kColumns);
      const bool equal = std::all_of(row, row + kColumns, [&row](float x) { return x == *row; });
      out[r] = equal ? *row : std::numeric_limits<float>::quiet_NaN();
    }
  };
}

/// Accumulations without tensor cores, as our product kernel does them.
FprevModel product_model(const Accumulation& accumulation) {
  constexpr int kFloats = 1 << 24, kHalves = 1 << 11;  // counts that are exact
  const bool narrow = accumulation.sums_in_format();
  const FprevValues fp16{.big_a = 0x1p15f, .big_b = 1.0f, .small_a = 0x1p-24f, .small_b = 1.0f};
  FprevValues wide;  // 2^60 and 1
  // A double holds 53 bits, so that many more lie between the marker and the summands.
  if (accumulation.kind == Accumulation::fp64) wide.big_a = 0x1p120f;
  const char* sums = narrow ? "fp16" : accumulation.kind == Accumulation::fp64 ? "fp64" : "fp32";
  return {one_product({.accumulation = accumulation, .write = narrow ? kFp16 : kFp32}),
          narrow ? fp16 : wide,
          narrow ? "fp16" : "fp32",
          sums,
          narrow ? kHalves : kFloats,
          {},
          {.slices = accumulation.split_k, .promote_every = accumulation.promote}};
}

/// M and u of operands, and of an accumulator in fp16 or fp32; nothing where the range is too
/// narrow.
std::optional<FprevValues> values_of(const FloatFormat& input, bool to_fp16) {
  if (input.max_exponent() >= 60) return FprevValues{};
  // In fp16 M has to fit, and u.
  if (input.max_exponent() >= 15) {  // fp16, e5m2: products of normal numbers
    if (to_fp16) return FprevValues{0x1p15f, 1.0f, 0x1p-12f, 0x1p-12f};
    return FprevValues{0x1p15f, 0x1p15f, 0x1p-14f, 0x1p-14f};
  }
  if (input.max_exponent() >= 8) {  // e4m3: the largest power of two and the smallest number
    return FprevValues{0x1p8f, to_fp16 ? 0x1p7f : 0x1p8f, 0x1p-9f, 0x1p-9f};
  }
  return std::nullopt;
}

/// Between M and u, as a power of two.
int gap_of(const FprevValues& values) {
  return std::ilogb(values.big_a) + std::ilogb(values.big_b) - std::ilogb(values.small_a) -
         std::ilogb(values.small_b);
}

/// n * u must be counted exactly by the accumulator and be lost beside M everywhere.
int tensor_core_most(const TensorCoreProfile& profile, const FprevValues& values, bool adds) {
  const int count = profile.dot.output == BlockOutput::rz_fp32    ? 24
                    : profile.dot.output == BlockOutput::rz_e8m13 ? 14
                                                                  : 11;
  // A block drops what is below 2^-F of M; an addition in fp32 half an ulp, 2^-25.
  const int kept = std::max(profile.dot.fraction_bits, adds ? 25 : 0);
  return 1 << std::clamp(gap_of(values) - kept, 1, count);
}

FprevModel tensor_core_model(const TensorCoreArch& arch, const FprevChoice& choice) {
  const FloatFormat input = mma_format("--input", choice.input.empty() ? "fp16" : choice.input);
  const FloatFormat output = mma_format("--output", choice.output.empty() ? "fp32" : choice.output);
  const TensorCoreProfile profile = mma_profile("--model", arch, input, output);
  const std::optional<FprevValues> values = values_of(input, profile.accumulator == kFp16);
  if (!values) {
    throw usage_error(
        fmt::format("--input {}: its range is too narrow to mark a summand", format_name(input)),
        "the order is that of --input e5m2");
  }
  const TensorCorePlan plan = choice.plan;
  const bool adds = plan != TensorCorePlan{} || profile.path == TensorCorePath::fp16_split;
  return {row_by_row([profile, plan](Rows a, Rows b) {
            return tensor_core_dot(profile, a, b, 0.0f, plan);
          }),
          *values,
          format_name(input),
          format_name(output),
          tensor_core_most(profile, *values, adds),
          {},
          plan};
}

/// A black box as far as its order goes: what its sums hold is taken to be as narrow as that of the
/// tensor cores that keep least.
FprevModel backend_model(const FprevChoice& choice, int n) {
  if (choice.has_plan || !choice.output.empty()) {
    throw usage_error("--output and the flags of tensor-core plans do not work with --backend",
                      "remove them; use --model with options instead, for example fp32:split-k=2");
  }
  const std::optional<Accumulation> accumulation = parse_accumulation(choice.model);
  if (!accumulation || accumulation->sums_in_format() || accumulation->half_accumulator ||
      accumulation->rounds_otherwise() || accumulation->kind == Accumulation::fp64) {
    throw usage_error("--backend cannot show the order of '" + choice.model + "'",
                      "use an accumulation in fp32: fp32, pairwise or tensor-core:h100");
  }
  const FloatFormat input = mma_format("--input", choice.input.empty() ? "fp32" : choice.input);
  const std::optional<FprevValues> values = values_of(input, false);
  if (!values) {
    throw usage_error(
        fmt::format("--input {}: its range is too narrow to mark a summand", format_name(input)),
        "the order is that of --input e5m2");
  }
  check_backend_name(choice.backend);
  const ProbedProduct product{choice.rows, choice.columns, n, input, *accumulation};
  const Backend& backend = backend_for(preset_plan("float32").value(), choice.backend);
  const auto runs = std::make_shared<BackendProduct>(backend, product);
  constexpr int kCounted = 14;  // bits of the narrowest accumulator, Hopper's for fp8
  constexpr int kKept = 26;     // of a block of the widest
  const bool narrow = input.bits() == 8;
  return {[runs](Rows a, Rows b, int64_t, int64_t, std::span<float> out) { runs->dot(a, b, out); },
          *values,
          format_name(input),
          "fp32",
          1 << std::clamp(gap_of(*values) - kKept, 1, narrow ? kCounted : 24),
          runs->kernel()};
}

}  // namespace

FprevModel make_fprev_model(const FprevChoice& choice, int n) {
  if (!choice.backend.empty()) return backend_model(choice, n);
  if (const TensorCoreArch* arch = find_tensor_core_arch(choice.model)) {
    return tensor_core_model(*arch, choice);
  }
  const std::optional<Accumulation> accumulation = parse_accumulation(choice.model);
  if (!accumulation) {
    throw usage_error(
        "unknown model '" + choice.model + "'",
        did_you_mean(choice.model, fprev_model_names(),
                     "see halfscope help accumulation, or use a tensor core such as h100"));
  }
  if (choice.has_plan || !choice.output.empty()) {
    throw usage_error(
        "--output and the plan's flags are for tensor cores, not for '" + choice.model + "'",
        "use --model h100, or an option, for example fp32:promote=16");
  }
  if (accumulation->rounds_otherwise()) {
    throw usage_error("the rounding option does not change the order of '" + choice.model + "'",
                      "remove the option");
  }
  if (accumulation->kind != Accumulation::tensor_core) {
    if (choice.input.empty()) return product_model(*accumulation);
    throw usage_error("--input is for tensor cores, not for '" + choice.model + "'",
                      "use --model h100, or remove --input");
  }
  // The values are those of the model; the sums are our product kernel's.
  FprevChoice same = choice;
  same.model = accumulation->arch;
  same.output = accumulation->half_accumulator ? "fp16" : "fp32";
  same.plan = {.slices = accumulation->split_k, .promote_every = accumulation->promote};
  FprevModel model = tensor_core_model(*find_tensor_core_arch(same.model), same);
  // Both factors are marked, so each row has a product of its own.
  const DotProducts product = one_product({.accumulation = *accumulation,
                                           .write = accumulation->half_accumulator ? kFp16 : kFp32,
                                           .read = parse_format(model.input).value()});
  model.dot = row_by_row([product](Rows a, Rows b) {
    float out = 0.0f;
    product(a, b, 1, static_cast<int64_t>(a.size()), {&out, 1});
    return out;
  });
  return model;
}

std::vector<std::string> fprev_model_names() {
  std::vector<std::string> names(accumulation_names().begin(), accumulation_names().end());
  for (const std::string& arch : mma_arch_names()) names.push_back(arch);
  return names;
}

}  // namespace halfscope
