// SPDX-License-Identifier: MIT
#include "cli/tasks/tensor_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "cli/terminal/output.h"
#include "core/data/stored_array.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

std::string tensors_text(size_t count) {
  return fmt::format("{} tensor{}", count, count == 1 ? "" : "s");
}

std::string share_text(int64_t part, int64_t whole) {
  const double share = share_of(part, whole);
  return share < 1e-4 ? "less than 0.01%" : percent(share);
}

/// Returns the tensor for which `share` is largest; null if it is 0 for all.
template <class Share>
const TensorLosses* worst(const std::vector<const TensorLosses*>& tensors, const Share& share) {
  const TensorLosses* found = nullptr;
  for (const TensorLosses* each : tensors) {
    if (share(*each) > (found != nullptr ? share(*found) : 0.0)) found = each;
  }
  return found;
}

/// Returns what the tensors lose in the format, and the smaller remedy: a scale, or bf16.
std::string losses_text(const std::vector<const TensorLosses*>& lossy, size_t all,
                        const TargetFormat& main, bool files) {
  std::string text =
      fmt::format("{} loses values in {} of {}.", main.name, lossy.size(), tensors_text(all));
  const TensorLosses* const over =
      worst(lossy, [](const TensorLosses& each) { return share_of(each.main.overflow, each.n); });
  const TensorLosses* const under = worst(
      lossy, [](const TensorLosses& each) { return share_of(each.main.underflow, each.non_zero); });
  if (over != nullptr) {
    text +=
        fmt::format(" {} overflows: {} of its values are larger than {}.", over->shown(files),
                    share_text(over->main.overflow, over->n), shortest(main.format.max_finite()));
  }
  if (under != nullptr) {
    text += fmt::format(" {} underflows: {} of its nonzero values become zero.",
                        under->shown(files), share_text(under->main.underflow, under->non_zero));
  }
  return text;
}

/// Losses of the lossy tensors that remain with a remedy, together.
struct Remedy {
  int64_t values = 0;                     ///< at most
  const TensorLosses* failing = nullptr;  ///< the first that it does not help enough

  bool works() const noexcept { return failing == nullptr; }
  /// Returns what is true of all tensors if it works.
  std::string text(const std::string& format) const {
    if (values == 0) return "nothing overflows or underflows in " + format;
    return fmt::format(
        "nothing overflows in {}, and less than {} of the values of any tensor underflow", format,
        percent(kLossyShare));
  }
};

Remedy remedy_of(const std::vector<const TensorLosses*>& lossy, ValueLoss TensorLosses::*loss,
                 const FloatFormat& format) {
  Remedy remedy;
  for (const TensorLosses* each : lossy) {
    remedy.values += (each->*loss).values();
    const bool fails = (each->*loss).matters(format, each->non_zero);
    if (fails && remedy.failing == nullptr) remedy.failing = each;
  }
  return remedy;
}

std::string remedy_text(const std::vector<const TensorLosses*>& lossy, const TargetFormat& main,
                        bool files) {
  const Remedy scaled = remedy_of(lossy, &TensorLosses::scaled, main.format);
  const Remedy bf16 = remedy_of(lossy, &TensorLosses::bf16, kBf16);
  const TensorLosses& first = *lossy[0];
  if (scaled.works()) {
    std::string text = fmt::format(
        "A power-of-two scale for each tensor is the better answer: {} then. Multiply {} by 2^{}.",
        scaled.text(main.name), first.shown(files), first.shift);
    if (bf16.works() && main.format != kBf16) {
      text += fmt::format(" bf16 needs no scale, but it keeps 8 significant bits instead of {}.",
                          main.format.mantissa_bits + 1);
    }
    return text;
  }
  if (main.format != kBf16 && bf16.works()) {
    return fmt::format(
        "bf16 is the better answer: {}. A power-of-two scale is not enough, because the values of "
        "{} span too many powers of two for {}.",
        bf16.text("bf16"), scaled.failing->shown(files), main.name);
  }
  if (main.format != kBf16 && bf16.values < scaled.values) {
    return fmt::format(
        "bf16 loses fewer values: at most {} of these tensors, against up to {} in {} with the "
        "best power-of-two scales. Keep these tensors in fp32 if the small values matter.",
        bf16.values, scaled.values, main.name);
  }
  return fmt::format(
      "A power-of-two scale for each tensor helps most, but up to {} values still overflow or "
      "underflow. Keep these tensors in fp32 if the small values matter.",
      scaled.values);
}

/// Returns a sentence: the format is enough, and this is the little that it loses.
std::string enough_text(const std::vector<const TensorLosses*>& tensors, const TargetFormat& main,
                        bool files) {
  std::vector<const TensorLosses*> flushed;
  for (const TensorLosses* each : tensors) {
    if (each->main.underflow > 0) flushed.push_back(each);
  }
  const std::string all = tensors_text(tensors.size());
  if (flushed.empty()) {
    return fmt::format("{} is enough: nothing overflows or underflows in {}.", main.name, all);
  }
  const TensorLosses& most = *worst(flushed, [](const TensorLosses& each) {
    return share_of(each.main.underflow, each.non_zero);
  });
  const std::string share = share_text(most.main.underflow, most.non_zero);
  return fmt::format(
      "{} is enough: nothing overflows in {}. Few values underflow: {}{} of the nonzero "
      "values of a tensor ({}) become zero, and these are too small to matter.",
      main.name, all, share.starts_with("less") ? "" : "at most ", share, most.shown(files));
}

}  // namespace

double flushed_energy(const TensorStats& stats, int64_t flushed) noexcept {
  double energy = 0.0;
  for (int bin = 0; bin < kExponentBins && flushed > 0; ++bin) {
    const int64_t count = std::min(flushed, stats.exponents[static_cast<size_t>(bin)]);
    energy += static_cast<double>(count) * std::ldexp(1.0, 2 * (bin + kMinExponentBin));
    flushed -= count;
  }
  return stats.sum_sq > 0.0 ? energy / stats.sum_sq : 0.0;
}

bool ValueLoss::matters(const FloatFormat& format, int64_t non_zero) const noexcept {
  const double unit = std::ldexp(1.0, -(format.mantissa_bits + 1));
  return overflow > 0 || share_of(underflow, non_zero) > kLossyShare || energy > unit * unit;
}

std::string TensorLosses::shown(bool with_file) const {
  return (with_file ? visible_name(file) + ":" : "") + visible_name(name);
}

std::array<double, 5> TensorLosses::badness() const {
  const FormatLoss& loss = formats.at(0);
  return {judged ? 1.0 : 0.0, share_of(nan + infinite, n), share_of(loss.overflow, n),
          share_of(loss.underflow, non_zero), share_of(loss.subnormal, non_zero)};
}

void judge_floats_first(std::vector<TensorLosses>& tensors) {
  const bool floats = std::any_of(tensors.begin(), tensors.end(),
                                  [](const TensorLosses& each) { return !each.integer; });
  for (TensorLosses& each : tensors) each.judged = !floats || !each.integer;
}

std::vector<std::string> tensor_verdict(const std::vector<TensorLosses>& worst_first,
                                        const TargetFormat* main, bool several_files) {
  std::vector<std::string> lines;
  std::vector<const TensorLosses*> judged, lossy, bad;
  size_t empty = 0, subnormal = 0;
  for (const TensorLosses& each : worst_first) {
    if (each.nan + each.infinite > 0) bad.push_back(&each);
    empty += each.n == 0;
    if (!each.judged) continue;
    judged.push_back(&each);
    if (each.lossy) lossy.push_back(&each);
    subnormal += share_of(each.main.subnormal, each.non_zero) > kLossyShare;
  }
  if (worst_first.empty()) return {"No tensors found: the files are empty."};
  if (!bad.empty()) {
    std::vector<std::string> counts;
    if (bad[0]->nan > 0) counts.push_back(fmt::format("{} NaN", bad[0]->nan));
    if (bad[0]->infinite > 0) counts.push_back(counted(bad[0]->infinite, "infinite value"));
    lines.push_back(fmt::format("{} {} NaN or infinity: {} has {}.", tensors_text(bad.size()),
                                bad.size() == 1 ? "contains" : "contain",
                                bad[0]->shown(several_files), name_list(counts)));
  }
  if (empty > 0) {
    lines.push_back(fmt::format("{} {} empty.", tensors_text(empty), empty == 1 ? "is" : "are"));
  }
  if (main == nullptr) return lines;
  if (lossy.empty()) {
    lines.push_back(enough_text(judged, *main, several_files));
  } else {
    lines.push_back(losses_text(lossy, judged.size(), *main, several_files));
    lines.push_back(remedy_text(lossy, *main, several_files));
  }
  if (subnormal > 0) {
    lines.push_back(
        fmt::format("In {}, more than {} of the values are subnormal in {}, so they keep "
                    "fewer bits.",
                    tensors_text(subnormal), percent(kLossyShare), main->name));
  }
  if (const size_t others = worst_first.size() - judged.size(); others > 0) {
    lines.push_back(fmt::format(
        "{} integer tensor{} not judged, because frameworks convert only floating-point tensors.",
        others, others == 1 ? " is" : "s are"));
  }
  return lines;
}

}  // namespace halfscope
