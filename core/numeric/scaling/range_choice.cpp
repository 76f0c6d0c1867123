// SPDX-License-Identifier: MIT
#include "core/numeric/scaling/range_choice.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "core/number_text.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

FloatFormat saturating(FloatFormat format) {
  format.saturate = true;
  return format;
}

/// The range above which too few magnitudes are left.
float percentile_range(const MagnitudeHistogram& seen, double percentile) {
  const double wanted = percentile / 100.0 * static_cast<double>(seen.count());
  int64_t reached = seen.zeros();
  for (const MagnitudeHistogram::Bin& bin : seen.bins()) {
    reached += bin.count;
    if (static_cast<double>(reached) >= wanted) return std::min(bin.largest, seen.largest());
  }
  return seen.largest();
}

/// The sum of squared errors with this range.
double squared_error(std::span<const MagnitudeHistogram::Bin> bins, float range,
                     const FloatFormat& format) {
  const float scale = static_scale(range, format);
  double sum = 0.0;
  for (const MagnitudeHistogram::Bin& bin : bins) {
    const float code = round_to_format(bin.middle / scale, format).value;
    const double error =
        static_cast<double>(bin.middle) - static_cast<double>(code) * static_cast<double>(scale);
    sum += static_cast<double>(bin.count) * error * error;
  }
  return sum;
}

/// Looks at ranges down to 2^-12 of the largest magnitude, first an eighth of a binade apart, then
/// finer around the best of them.
float least_error_range(const MagnitudeHistogram& seen, const FloatFormat& format) {
  constexpr int kBinades = 12, kCoarse = 8, kFine = 64;
  const std::vector<MagnitudeHistogram::Bin> bins = seen.bins();
  float best = seen.largest();
  double least = kEndless;
  const auto look = [&](double binades) {
    const auto range =
        static_cast<float>(static_cast<double>(seen.largest()) * elementary::pow(2.0, -binades));
    if (!(range >= std::numeric_limits<float>::min())) return;
    const double error = squared_error(bins, range, format);
    if (error < least) {
      least = error;
      best = range;
    }
  };
  int coarse = 0;
  for (int i = 0; i <= kBinades * kCoarse; ++i) {
    const double before = least;
    look(static_cast<double>(i) / kCoarse);
    if (least < before) coarse = i;
  }
  for (int i = -kFine / kCoarse; i <= kFine / kCoarse; ++i) {
    const double binades = static_cast<double>(coarse) / kCoarse + static_cast<double>(i) / kFine;
    if (binades >= 0.0) look(binades);
  }
  return best;
}

constexpr size_t kEntropyBins = 2048, kLeastBins = 128;

/// Returns the Kullback-Leibler divergence of the codes from the tensor, over the first `kept` bins.
/// The tensor's last bin also counts everything that is clipped. Bins with the same code share its
/// magnitudes evenly.
double divergence(std::span<const double> counts, size_t kept, double clipped, double total,
                  const FloatFormat& format) {
  const float scale = static_scale(static_cast<float>(kept), format);
  double inside = 0.0, sum = 0.0;
  for (size_t i = 0; i < kept; ++i) inside += counts[i];
  for (size_t first = 0; first < kept;) {
    const auto code_of = [&](size_t i) {
      return round_to_format((static_cast<float>(i) + 0.5f) / scale, format).value;
    };
    const float code = code_of(first);
    size_t end = first;
    double magnitudes = 0.0, used = 0.0;
    for (; end < kept && code_of(end) == code; ++end) {
      magnitudes += counts[end];
      used += counts[end] > 0.0 ? 1.0 : 0.0;
    }
    for (size_t i = first; i < end; ++i) {
      const double p = (counts[i] + (i + 1 == kept ? clipped : 0.0)) / total;
      const double q = counts[i] > 0.0 ? magnitudes / used / inside : 0.0;
      if (p > 0.0 && q == 0.0) return kEndless;
      if (p > 0.0) sum += p * elementary::log(p / q);
    }
    first = end;
  }
  return sum;
}

float least_divergence_range(const MagnitudeHistogram& seen, const FloatFormat& format) {
  std::vector<double> counts(kEntropyBins, 0.0);
  const double width = static_cast<double>(seen.largest()) / static_cast<double>(kEntropyBins);
  double total = 0.0;
  for (const MagnitudeHistogram::Bin& bin : seen.bins()) {
    const double place = std::min(static_cast<double>(bin.middle) / width, kEntropyBins - 1.0);
    counts[static_cast<size_t>(place)] += static_cast<double>(bin.count);
    total += static_cast<double>(bin.count);
  }
  size_t best = kEntropyBins;
  double least = kEndless, clipped = 0.0;
  for (size_t kept = kEntropyBins; kept >= kLeastBins; --kept) {
    const double here = divergence(counts, kept, clipped, total, format);
    if (here < least) {
      least = here;
      best = kept;
    }
    clipped += counts[kept - 1];
  }
  return static_cast<float>(width * static_cast<double>(best));
}

}  // namespace

void MagnitudeHistogram::add(std::span<const float> values) {
  constexpr int kMantissaBits = 23;
  for (const float value : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(value) & ~detail::kSignBit;
    if (bits >= detail::kInfinityBits) {
      ++not_finite_;
      continue;
    }
    ++count_;
    if (bits == 0) {
      ++zeros_;
      continue;
    }
    std::vector<int64_t>& bins = binades_[bits >> kMantissaBits];
    if (bins.empty()) bins.resize(kBins);
    ++bins[(bits >> (kMantissaBits - kBinBits)) & (kBins - 1)];
    largest_ = std::max(largest_, std::bit_cast<float>(bits));
  }
}

std::vector<MagnitudeHistogram::Bin> MagnitudeHistogram::bins() const {
  constexpr uint32_t kWidth = uint32_t{1} << (23 - kBinBits);
  std::vector<Bin> result;
  for (size_t exponent = 0; exponent < binades_.size(); ++exponent) {
    for (size_t i = 0; i < binades_[exponent].size(); ++i) {
      if (binades_[exponent][i] == 0) continue;
      const uint32_t first = static_cast<uint32_t>(exponent * kBins + i) * kWidth;
      result.push_back({.smallest = std::bit_cast<float>(first),
                        .middle = std::bit_cast<float>(first + kWidth / 2),
                        .largest = std::bit_cast<float>(first + kWidth - 1),
                        .count = binades_[exponent][i]});
    }
  }
  return result;
}

double MagnitudeHistogram::share_above(float range) const {
  int64_t above = 0;
  for (const Bin& bin : bins()) above += bin.smallest > range ? bin.count : 0;
  return count_ == 0 ? 0.0 : static_cast<double>(above) / static_cast<double>(count_);
}

std::string range_method_name(const RangeMethod& method) {
  switch (method.kind) {
    case RangeMethod::Kind::max:
      return "max";
    case RangeMethod::Kind::percentile:
      return "percentile:" + number_text(method.percentile);
    case RangeMethod::Kind::mse:
      return "mse";
    case RangeMethod::Kind::entropy:
      return "entropy";
  }
  return "";
}

std::optional<RangeMethod> parse_range_method(std::string_view text) {
  RangeMethod method;
  const std::string_view kind = text.substr(0, text.find(':'));
  if (kind == "percentile") {
    method.kind = RangeMethod::Kind::percentile;
    if (kind.size() == text.size()) return method;
    const std::string_view number = text.substr(kind.size() + 1);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), method.percentile);
    const bool whole = error == std::errc() && end == number.data() + number.size();
    if (!whole || !(method.percentile > 0.0 && method.percentile <= 100.0)) return std::nullopt;
    return method;
  }
  if (text == "mse") {
    method.kind = RangeMethod::Kind::mse;
  } else if (text == "entropy") {
    method.kind = RangeMethod::Kind::entropy;
  } else if (text != "max") {
    return std::nullopt;
  }
  return method;
}

float chosen_range(const MagnitudeHistogram& seen, const RangeMethod& method,
                   const FloatFormat& format) {
  if (seen.largest() == 0.0f) return 0.0f;
  switch (method.kind) {
    case RangeMethod::Kind::percentile:
      return percentile_range(seen, method.percentile);
    case RangeMethod::Kind::mse:
      return least_error_range(seen, saturating(format));
    case RangeMethod::Kind::entropy:
      return least_divergence_range(seen, saturating(format));
    default:
      return seen.largest();
  }
}

float static_scale(float range, const FloatFormat& format) noexcept {
  if (range == 0.0f) return 1.0f;
  return std::max(range / static_cast<float>(format.max_finite()),
                  std::numeric_limits<float>::min());
}

}  // namespace halfscope
