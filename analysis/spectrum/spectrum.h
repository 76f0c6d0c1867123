// SPDX-License-Identifier: MIT
// Spectrum: the exponents of all tensors of a lane, layer by layer, over a range of steps, and what
// they lose through a lens. The viewer and the HTML report draw it; nothing here draws.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/run_view.h"
#include "analysis/spectrum/lens.h"

namespace halfscope {

/// The charts of a spectrum, in the order in which a step computes their tensors.
enum class SpectrumChart : uint8_t { activations, gradients, weights, updates, state };
inline constexpr size_t kSpectrumCharts = 5;
inline constexpr std::array<SpectrumChart, kSpectrumCharts> kAllSpectrumCharts{
    SpectrumChart::activations, SpectrumChart::gradients, SpectrumChart::weights,
    SpectrumChart::updates, SpectrumChart::state};
const char* spectrum_chart_name(SpectrumChart chart) noexcept;  // "Activations"
/// Returns the chart that shows tensors of that role. Inputs are shown with activations.
SpectrumChart chart_of(Role role) noexcept;

struct SpectrumTensor {
  int site = -1;  ///< SiteInfo::order
  std::string name{};
  FloatFormat format{};
  bool update = false;  ///< an update, which is also lost if its variable did not change
  bool scaled = false;  ///< with the loss: a loss scale moves its values
  TensorStats stats{};  ///< merged over the steps
  /// Largest share in a window for each bin of the histogram; empty unless windows were merged.
  std::vector<float> envelope{};
};

struct SpectrumLayer {
  std::string path{};
  std::array<std::vector<SpectrumTensor>, kSpectrumCharts> charts{};
};

struct Spectrum {
  int64_t first = 0, last = -1;         ///< steps that were merged
  int64_t windows = 0, measured = 0;    ///< windows of statistics in that range, and those merged
  std::vector<SpectrumLayer> layers{};  ///< in the order given; also those without values
  bool any(SpectrumChart chart) const noexcept;
};

/// Most windows of a tensor that are merged; of a longer range, windows at equal distances.
inline constexpr size_t kSpectrumWindows = 32;

/// Collects the statistics of the tensors in these charts over the windows that begin in [first,
/// last], layer by layer as in `paths`. The totals of the whole run (first > last) take no longer
/// than a step, but have no envelope.
Spectrum make_spectrum(const RunView& run, int lane, std::span<const std::string> paths,
                       std::span<const SpectrumChart> charts, int64_t first, int64_t last);

/// One layer, or several folded into one, in one chart. Nothing in it hides: for every exponent it
/// has the largest share that one of its tensors has there in a step, and its loss is the worst
/// tensor's.
struct Ridge {
  int low = 0;                  ///< exponent of shares[0]
  std::vector<float> shares{};  ///< of a tensor's finite values that are not zero; empty: no values
  /// For each share the window of its tensor's format (or the lens's), as an index into `windows`.
  std::vector<uint8_t> window_of{};
  std::vector<ExponentWindow> windows{};  ///< of the tensors, each once
  LossCount lost{};                       ///< of the tensor that loses the largest share
  double non_finite = 0.0;                ///< largest share of NaN and infinities in a tensor
  int worst = -1;  ///< site of the tensor that loses most; -1: none was measured
  bool measured() const noexcept { return worst >= 0; }
};

/// Computes the ridge of these layers. With a lens that scales tensors, each has moved by its
/// lens_shift(). `shift` is log2 of the factor on the loss scale: it counts for tensors that the
/// loss scale reaches, and does not move the ridge.
Ridge make_ridge(const Spectrum& spectrum, std::span<const int> layers, SpectrumChart chart,
                 const Lens& lens, double shift);

/// Returns whether full precision has the NaN and infinities of a row, too: a causal mask's, for
/// instance. They are no fault of the format. `reference` is its row, null without one.
bool intended_non_finite(const Ridge& ridge, const Ridge* reference) noexcept;

/// Returns the losses of all tensors of a chart together.
LossCount total_loss(const Spectrum& spectrum, SpectrumChart chart, const Lens& lens, double shift);

/// The tensor of a spectrum that loses the largest share through a lens.
struct WorstTensor {
  int layer = -1;  ///< index into Spectrum::layers; -1 if nothing is lost
  std::string name{};
  LossCount lost{};
};
WorstTensor worst_tensor(const Spectrum& spectrum, std::span<const SpectrumChart> charts,
                         const Lens& lens, double shift);

/// Returns the format whose window stands behind a lane's spectrum: the narrowest one that holds at
/// least a tenth of its measured tensors, else the most frequent one.
FloatFormat main_format(const Spectrum& spectrum);

/// Returns the integer shift of the loss scale at which the gradients lose least; if several are
/// equal, the middle one.
int best_loss_scale_shift(const Spectrum& spectrum, const Lens& lens);

}  // namespace halfscope
