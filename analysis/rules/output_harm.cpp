// SPDX-License-Identifier: MIT
// Harm done to the outputs of inference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "analysis/rules/harm.h"
#include "analysis/rules/text.h"
#include "analysis/rules/tolerance.h"
#include "core/observe/worst_slice.h"

namespace halfscope {
namespace {

/// Beyond these distances an output, or one of its samples, is useless.
constexpr double kSevereSample = 0.5, kSevereOutput = 0.2;

}  // namespace

double accuracy_tolerance(double right, int64_t samples) {
  constexpr double kLeast = 0.02;
  constexpr double kChance = 3.0;  // standard deviations of a difference
  const double n = static_cast<double>(std::max<int64_t>(samples, 1));
  const double p = std::clamp(right, 0.5 / n, 1.0 - 0.5 / n);
  return std::max(kLeast, kChance * std::sqrt(2.0 * p * (1.0 - p) / n));
}

double chance_of_length(int64_t numbers, bool shorter) {
  constexpr double kUnlikely = 1e-3;
  if (numbers < 1) return 0.0;
  const double ratio = std::pow(kUnlikely, 1.0 / static_cast<double>(numbers));
  return shorter ? 1.0 - ratio : 1.0 / ratio - 1.0;
}

double tolerance_of(double floor, double spread, double cap) {
  if (!(spread >= 0.0)) return floor;
  return std::max(floor, std::min(kHarmFactor * spread, cap));
}

std::string difference_text(double error, double tolerance) {
  if (std::isinf(error)) return "cannot be compared, because float32's is 0";
  return fmt::format("differs from float32's by {} ({} is allowed)", difference_by(error),
                     percent(tolerance));
}

double harm_floor(const LaneInfo& lane) {
  int written = kFp32.mantissa_bits, read = kFp32.mantissa_bits;
  for (const LayerInfo& layer : lane.layers) {
    written = std::min(written, layer.write.mantissa_bits);
    read = std::min(read, layer.read.mantissa_bits);
  }
  const double of_results = 4.0 * std::ldexp(1.0, -written - 1);
  const double of_operands = 0.5 * std::ldexp(1.0, -read - 1);
  return std::max({kOutputFloor, of_results, of_operands});
}

double gradient_floor(const LaneInfo& lane) {
  int bits = kFp32.mantissa_bits;
  for (const SiteInfo& site : lane.sites) {
    if (site.phase == Phase::backward) bits = std::min(bits, site.format.mantissa_bits);
  }
  return std::max(harm_floor(lane), 2.0 * std::ldexp(1.0, -bits - 1));
}

double harm_cap(const LaneInfo& lane) {
  constexpr int kWorkingBits = 7;  // bf16's
  int bits = kFp32.mantissa_bits;
  for (const LayerInfo& layer : lane.layers) bits = std::min(bits, layer.read.mantissa_bits);
  return bits >= kWorkingBits ? kOutputCap : kNarrowOutputCap;
}

namespace {

/// Outputs that are indices have no size; their error is the square root of the share that differs.
bool is_of_decisions(const Deviation& output) {
  return std::isnan(output.ratio) && !std::isnan(output.error);
}

double slice_tolerance(double spread) {
  return spread >= 0.0 ? std::max(kSliceFloor, kSliceFactor * spread) : kSliceFloor;
}

/// Returns the sample, channel or differences that are wrong in an output whose norm is right.
std::optional<HarmItem> wrong_part(const Deviation& output) {
  std::optional<HarmItem> worst;
  const auto judge = [&](double error, double spread, const auto& text) {
    const double tolerance = slice_tolerance(spread);
    if (!(error > tolerance)) return;
    if (worst && error / tolerance <= worst->error / worst->tolerance) return;
    worst = HarmItem{.of = HarmItem::Of::output,
                     .name = output.name,
                     .error = error,
                     .tolerance = tolerance,
                     .severe = error >= kSevereSample,
                     .text = text(difference_text(error, tolerance))};
  };
  judge(output.worst, output.worst_spread, [&](const std::string& off) {
    return fmt::format("the worst sample of its output {} {}", output.name, off);
  });
  judge(output.worst_channel, output.worst_channel_spread, [&](const std::string& off) {
    return fmt::format("channel {} (axis {}) of its output {} {}", output.channel,
                       output.channel_axis, output.name, off);
  });
  judge(output.differences, output.differences_spread, [&](const std::string& off) {
    return fmt::format("in each sample of its output {}, the spread of the values {}", output.name,
                       off);
  });
  return worst;
}

}  // namespace

double output_tolerance(const LaneInfo& lane, const Deviation& output) {
  // For decisions: one in a hundred may change, three at most.
  if (is_of_decisions(output)) {
    return tolerance_of(std::sqrt(kDecisionFloor), std::sqrt(2.0) / kHarmFactor * output.spread,
                        std::sqrt(kDecisionCap));
  }
  return tolerance_of(harm_floor(lane), output.spread, harm_cap(lane));
}

std::vector<HarmItem> wrong_outputs(const LaneInfo& lane, std::span<const Deviation> deviations) {
  std::vector<HarmItem> wrong;
  for (const Deviation& each : deviations) {
    if (each.of != Deviation::Of::output) continue;
    HarmItem item{.of = HarmItem::Of::output, .name = each.name};
    if (each.broken > 0) {
      item.error = INFINITY;
      item.severe = true;
      item.text =
          fmt::format("{} of the {} values of its output {} are NaN or infinite, unlike float32's",
                      each.broken, each.n, each.name);
      wrong.push_back(std::move(item));
      continue;
    }
    const double tolerance = output_tolerance(lane, each);
    if (each.error > tolerance) {
      item.error = each.error;
      item.tolerance = tolerance;
      item.severe = each.error >= kSevereOutput;
      item.text =
          fmt::format("its output {} {}", each.name, difference_text(each.error, tolerance));
      if (is_of_decisions(each)) {
        item.severe = each.error * each.error >= kSevereOutput;
        item.text = fmt::format("{} of the {} values of its output {} differ from float32's",
                                percent(each.error * each.error), each.n, each.name);
      }
      // A part of it may be useless although the whole is not.
      std::optional<HarmItem> part = wrong_part(each);
      wrong.push_back(part && part->severe && !item.severe ? std::move(*part) : std::move(item));
    } else if (std::optional<HarmItem> part = wrong_part(each)) {
      wrong.push_back(std::move(*part));
    }
  }
  return wrong;
}

}  // namespace halfscope
