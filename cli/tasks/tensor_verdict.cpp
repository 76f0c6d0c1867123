// SPDX-License-Identifier: MIT
#include "cli/tasks/tensor_verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal/output.h"
#include "core/data/stored_array.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

std::string tensors_text(size_t count) {
  return fmt::format("{} tensor{}", count, count == 1 ? "" : "s");
}

std::string share_text(int64_t part, int64_t whole) {
  const double share = 100.0 * share_of(part, whole);
  return share < 0.01 ? "less than 0.01%" : fmt::format("{:.2g}%", share);
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

std::string remedy_text(const std::vector<const TensorLosses*>& lossy, const TargetFormat& main,
                        bool files) {
  int64_t scaled = 0, bf16 = 0;
  const TensorLosses* unscalable = nullptr;
  for (const TensorLosses* each : lossy) {
    scaled += each->lost_scaled;
    bf16 += each->lost_bf16;
    if (each->lost_scaled > 0 && unscalable == nullptr) unscalable = each;
  }
  const TensorLosses& first = *lossy[0];
  if (scaled == 0) {
    std::string text = fmt::format(
        "A power-of-two scale for each tensor is the better answer: nothing overflows or "
        "underflows in {} then. Multiply {} by 2^{}.",
        main.name, first.shown(files), first.shift);
    if (bf16 == 0 && main.format != kBf16) {
      text += fmt::format(" bf16 needs no scale, but it keeps 8 significant bits instead of {}.",
                          main.format.mantissa_bits + 1);
    }
    return text;
  }
  if (main.format != kBf16 && bf16 == 0) {
    return fmt::format(
        "bf16 is the better answer: nothing overflows or underflows in it. A power-of-two scale "
        "is not enough, because the values of {} span too many powers of two for {}.",
        unscalable->shown(files), main.name);
  }
  if (main.format != kBf16 && bf16 < scaled) {
    return fmt::format(
        "bf16 loses fewer values: at most {} of these tensors, against up to {} in {} with the "
        "best power-of-two scales. Keep these tensors in fp32 if the small values matter.",
        bf16, scaled, main.name);
  }
  return fmt::format(
      "A power-of-two scale for each tensor helps most, but up to {} values still overflow or "
      "underflow. Keep these tensors in fp32 if the small values matter.",
      scaled);
}

}  // namespace

std::string TensorLosses::shown(bool with_file) const {
  return (with_file ? visible_name(file) + ":" : "") + visible_name(name);
}

std::array<double, 4> TensorLosses::badness() const {
  const FormatLoss& loss = formats.at(0);
  return {share_of(nan + infinite, n), share_of(loss.overflow, n),
          share_of(loss.underflow, non_zero), share_of(loss.subnormal, non_zero)};
}

std::vector<std::string> tensor_verdict(const std::vector<TensorLosses>& worst_first,
                                        const TargetFormat* main, bool several_files) {
  std::vector<std::string> lines;
  std::vector<const TensorLosses*> lossy, bad;
  size_t empty = 0, subnormal = 0;
  for (const TensorLosses& each : worst_first) {
    if (each.main.overflow + each.main.underflow > 0) lossy.push_back(&each);
    if (each.nan + each.infinite > 0) bad.push_back(&each);
    empty += each.n == 0;
    subnormal += each.main.subnormal > 0;
  }
  if (worst_first.empty()) return {"No tensors found: the files are empty."};
  if (!bad.empty()) {
    lines.push_back(fmt::format("{} {} NaN or infinity: {} has {} NaN and {} infinite values.",
                                tensors_text(bad.size()), bad.size() == 1 ? "contains" : "contain",
                                bad[0]->shown(several_files), bad[0]->nan, bad[0]->infinite));
  }
  if (empty > 0) {
    lines.push_back(fmt::format("{} {} empty.", tensors_text(empty), empty == 1 ? "is" : "are"));
  }
  if (main == nullptr) return lines;
  if (lossy.empty()) {
    lines.push_back(fmt::format("{} is enough: nothing overflows or underflows in {}.", main->name,
                                tensors_text(worst_first.size())));
  } else {
    lines.push_back(losses_text(lossy, worst_first.size(), *main, several_files));
    lines.push_back(remedy_text(lossy, *main, several_files));
  }
  if (subnormal > 0) {
    lines.push_back(fmt::format("{} {} subnormal {} values, which keep fewer bits.",
                                tensors_text(subnormal), subnormal == 1 ? "has" : "have",
                                main->name));
  }
  return lines;
}

}  // namespace halfscope
