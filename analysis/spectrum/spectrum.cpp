// SPDX-License-Identifier: MIT
#include "analysis/spectrum/spectrum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

constexpr int kMostShift = 48;  ///< powers of two by which a loss scale is moved at most

/// Returns the index of a tensor's window in the list, which it joins if it is new.
uint8_t place_of(const FloatFormat& format, std::vector<ExponentWindow>& windows) {
  const ExponentWindow window = exponent_window(format);
  const auto found = std::find(windows.begin(), windows.end(), window);
  const auto place = static_cast<uint8_t>(found - windows.begin());
  if (found == windows.end()) windows.push_back(window);
  return place;
}

/// Returns the index of the first window that begins at `step` or later.
size_t first_from(const WindowRange& windows, int64_t step) {
  size_t low = 0, high = windows.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (windows[middle].step < step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Merges the windows of a tensor in [first, last]. Returns how many there are and were merged.
std::pair<int64_t, int64_t> merge_windows(const WindowRange& windows, int64_t first, int64_t last,
                                          SpectrumTensor& tensor) {
  const size_t low = first_from(windows, first), end = first_from(windows, last + 1);
  const size_t count = end - low, merged = std::min(count, kSpectrumWindows);
  if (merged > 1) tensor.envelope.resize(kExponentBins);
  for (size_t i = 0; i < merged; ++i) {
    const TensorStats stats =
        windows[low + (merged < 2 ? 0 : i * (count - 1) / (merged - 1))].stats();
    tensor.stats.merge(stats);
    const auto values = static_cast<float>(non_zero_values(stats));
    for (size_t bin = 0; bin < tensor.envelope.size(); ++bin) {
      // Most bins are empty, and converting and dividing takes most of the time.
      if (stats.exponents[bin] == 0) continue;
      tensor.envelope[bin] =
          std::max(tensor.envelope[bin], static_cast<float>(stats.exponents[bin]) / values);
    }
  }
  return {static_cast<int64_t>(count), static_cast<int64_t>(merged)};
}

LossCount loss_of(const SpectrumTensor& tensor, const Lens& lens, double shift) noexcept {
  LossCount lost = lens_loss(tensor.stats, tensor.format, lens, tensor.scaled ? shift : 0.0);
  // Whether an update changes its variable was counted in the variable's own format only.
  if (tensor.update && (!lens.format || *lens.format == tensor.format)) {
    const double unchanged = static_cast<double>(tensor.stats.lost);
    lost.low = std::max(lost.low, unchanged);
    lost.high = std::max(lost.high, unchanged);
  }
  return lost;
}

template <class Visit>
void each_tensor(const Spectrum& spectrum, SpectrumChart chart, Visit visit) {
  for (size_t layer = 0; layer < spectrum.layers.size(); ++layer) {
    for (const SpectrumTensor& tensor : spectrum.layers[layer].charts[static_cast<size_t>(chart)]) {
      if (tensor.stats.n > 0) visit(static_cast<int>(layer), tensor);
    }
  }
}

}  // namespace

const char* spectrum_chart_name(SpectrumChart chart) noexcept {
  constexpr std::array<const char*, kSpectrumCharts> kNames{"Activations", "Gradients", "Weights",
                                                            "Updates", "Optimizer state"};
  return kNames[static_cast<size_t>(chart)];
}

SpectrumChart chart_of(Role role) noexcept {
  switch (role) {
    case Role::input:
    case Role::activation:
      return SpectrumChart::activations;
    case Role::weight:
      return SpectrumChart::weights;
    case Role::activation_grad:
    case Role::weight_grad:
      return SpectrumChart::gradients;
    case Role::update:
      return SpectrumChart::updates;
    case Role::state:
      break;
  }
  return SpectrumChart::state;
}

bool Spectrum::any(SpectrumChart chart) const noexcept {
  bool found = false;
  each_tensor(*this, chart, [&](int, const SpectrumTensor&) { found = true; });
  return found;
}

Spectrum make_spectrum(const RunView& run, int lane, std::span<const std::string> paths,
                       std::span<const SpectrumChart> charts, int64_t first, int64_t last) {
  Spectrum spectrum{.first = first, .last = last};
  spectrum.layers.reserve(paths.size());
  std::unordered_map<std::string_view, size_t> place;
  for (const std::string& path : paths) {
    place.emplace(path, spectrum.layers.size());
    spectrum.layers.push_back({.path = path});
  }
  for (const SiteInfo& site : run.lane(lane).sites) {
    const auto found = place.find(site.path);
    const SpectrumChart chart = chart_of(site.role);
    if (found == place.end() || std::find(charts.begin(), charts.end(), chart) == charts.end()) {
      continue;
    }
    SpectrumTensor tensor{.site = site.order,
                          .name = site.name(),
                          .format = site.format,
                          .update = site.role == Role::update,
                          .scaled = loss_scale_reaches(run.info(), site)};
    if (first > last) {
      tensor.stats = run.total(lane, site.order);
    } else {
      const auto [windows, merged] =
          merge_windows(run.windows(lane, site.order), first, last, tensor);
      spectrum.windows = std::max(spectrum.windows, windows);
      spectrum.measured = std::max(spectrum.measured, merged);
    }
    spectrum.layers[found->second].charts[static_cast<size_t>(chart)].push_back(std::move(tensor));
  }
  return spectrum;
}

Ridge make_ridge(const Spectrum& spectrum, std::span<const int> layers, SpectrumChart chart,
                 const Lens& lens, double shift) {
  // A shift by a lens may leave the range of the bins.
  constexpr int kRoom = 320;
  std::array<float, kExponentBins + 2 * kRoom> shares{};
  std::array<uint8_t, kExponentBins + 2 * kRoom> window_of{};
  Ridge ridge;
  int low = static_cast<int>(shares.size()), high = -1;
  for (const int layer : layers) {
    for (const SpectrumTensor& tensor :
         spectrum.layers[static_cast<size_t>(layer)].charts[static_cast<size_t>(chart)]) {
      const TensorStats& stats = tensor.stats;
      if (stats.n == 0) continue;
      const LossCount lost = loss_of(tensor, lens, shift);
      if (ridge.worst < 0 || lost.share() > ridge.lost.share()) {
        ridge.lost = lost;
        ridge.worst = tensor.site;
      }
      ridge.non_finite = std::max(ridge.non_finite, share_of(stats.non_finite(), stats.n));
      const auto values = static_cast<float>(non_zero_values(stats));
      const uint8_t window = place_of(lens.format ? *lens.format : tensor.format, ridge.windows);
      const int moved = std::clamp(lens_shift(stats, tensor.format, lens), -kRoom, kRoom) + kRoom;
      for (int bin = 0; bin < kExponentBins; ++bin) {
        const int64_t count = stats.exponents[static_cast<size_t>(bin)];
        if (count == 0) continue;
        const float share = tensor.envelope.empty() ? static_cast<float>(count) / values
                                                    : tensor.envelope[static_cast<size_t>(bin)];
        const auto at = static_cast<size_t>(bin + moved);
        if (share > shares[at]) {
          shares[at] = share;
          window_of[at] = window;
        }
        low = std::min(low, bin + moved);
        high = std::max(high, bin + moved);
      }
    }
  }
  if (high < low) return ridge;
  ridge.low = low - kRoom + kMinExponentBin;
  ridge.shares.assign(shares.begin() + low, shares.begin() + high + 1);
  ridge.window_of.assign(window_of.begin() + low, window_of.begin() + high + 1);
  return ridge;
}

bool intended_non_finite(const Ridge& ridge, const Ridge* reference) noexcept {
  return reference != nullptr && reference->measured() &&
         ridge.non_finite <= 1.01 * reference->non_finite;
}

LossCount total_loss(const Spectrum& spectrum, SpectrumChart chart, const Lens& lens,
                     double shift) {
  LossCount total;
  each_tensor(spectrum, chart,
              [&](int, const SpectrumTensor& tensor) { total.add(loss_of(tensor, lens, shift)); });
  return total;
}

WorstTensor worst_tensor(const Spectrum& spectrum, std::span<const SpectrumChart> charts,
                         const Lens& lens, double shift) {
  WorstTensor worst;
  for (const SpectrumChart chart : charts) {
    each_tensor(spectrum, chart, [&](int layer, const SpectrumTensor& tensor) {
      const LossCount lost = loss_of(tensor, lens, shift);
      if (lost.share() > worst.lost.share()) worst = {layer, tensor.name, lost};
    });
  }
  return worst;
}

FloatFormat main_format(const Spectrum& spectrum) {
  std::vector<std::pair<FloatFormat, int64_t>> formats;
  int64_t all = 0;
  for (const SpectrumChart chart : {SpectrumChart::activations, SpectrumChart::gradients}) {
    each_tensor(spectrum, chart, [&](int, const SpectrumTensor& tensor) {
      ++all;
      const auto found = std::find_if(formats.begin(), formats.end(), [&](const auto& each) {
        return each.first == tensor.format;
      });
      if (found == formats.end()) {
        formats.emplace_back(tensor.format, 1);
      } else {
        ++found->second;
      }
    });
  }
  if (formats.empty()) return kFp32;
  const auto narrower = [](const auto& a, const auto& b) {
    return a.first.max_exponent() - a.first.min_exponent() + a.first.mantissa_bits <
           b.first.max_exponent() - b.first.min_exponent() + b.first.mantissa_bits;
  };
  const auto frequent =
      std::max_element(formats.begin(), formats.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  std::erase_if(formats, [all](const auto& each) { return 10 * each.second < all; });
  if (formats.empty()) return frequent;
  return std::min_element(formats.begin(), formats.end(), narrower)->first;
}

int best_loss_scale_shift(const Spectrum& spectrum, const Lens& lens) {
  double least = std::numeric_limits<double>::infinity();
  int first = 0, last = 0;
  for (int shift = -kMostShift; shift <= kMostShift; ++shift) {
    const double lost = total_loss(spectrum, SpectrumChart::gradients, lens, shift).high;
    if (lost > least) continue;
    if (lost < least) first = shift;
    least = lost;
    last = shift;
  }
  return first + (last - first) / 2;
}

}  // namespace halfscope
