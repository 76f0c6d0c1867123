// SPDX-License-Identifier: MIT
// SpectrumRows: the rows of the Spectrum and their ridges, for the selected lane, the reference and
// the lane with the fix. They are worked out again only if their sources have changed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/spectrum/groups.h"
#include "analysis/spectrum/ridge_outline.h"
#include "analysis/spectrum/spectrum.h"
#include "gui/data/run_model.h"

namespace halfscope::gui {

/// A lane of a run over some steps; first > last: the totals of the whole run.
struct LaneSteps {
  std::shared_ptr<const RunView> run{};  ///< null: nothing
  int lane = -1;
  int64_t first = 0, last = -1;
  friend bool operator==(const LaneSteps&, const LaneSteps&) = default;
};

struct SpectrumRequest {
  LaneSteps steps{};                  ///< of the selected lane
  LaneSteps reference{};              ///< drawn into every ridge as an outline
  LaneSteps fixed{};                  ///< the same lane with the fix, on the other side of the wipe
  std::vector<std::string> layers{};  ///< paths, in order
  std::vector<SpectrumChart> charts{};
  Lens lens{};
  double shift = 0.0;    ///< log2 of the factor on the loss scale
  size_t most_rows = 1;  ///< that fit
  std::vector<std::string> opened{}, closed{};
  friend bool operator==(const SpectrumRequest&, const SpectrumRequest&) = default;
};

/// Ridges of one lane: by chart, then by row.
using RidgeTable = std::array<std::vector<Ridge>, kSpectrumCharts>;

class SpectrumRows {
 public:
  /// Brings everything up to date.
  void update(const SpectrumRequest& request);

  const Spectrum& spectrum() const noexcept { return steps_.spectrum; }
  const Spectrum& totals() const noexcept { return totals_.spectrum; }
  const std::vector<LayerRow>& rows() const noexcept { return rows_; }
  const std::vector<Ridge>& ridges(SpectrumChart chart) const { return of(ridges_, chart); }
  const std::vector<Ridge>& reference(SpectrumChart chart) const { return of(reference_, chart); }
  const std::vector<Ridge>& fixed(SpectrumChart chart) const { return of(fixed_, chart); }
  /// Returns all losses of a chart together, at the requested shift and at the recorded scale.
  const LossCount& total(SpectrumChart chart) const { return total_[index(chart)]; }
  const LossCount& recorded_total(SpectrumChart chart) const { return recorded_[index(chart)]; }
  /// Returns a range for all steps of the run, so that nothing jumps while it plays.
  const ExponentRange& range(SpectrumChart chart) const { return ranges_[index(chart)]; }
  /// Returns the format behind the charts: the lens's, or the lane's main one.
  const FloatFormat& format() const noexcept { return format_; }
  const FloatFormat& fixed_format() const noexcept { return fixed_format_; }  ///< of the other side
  /// Returns the loss scale's best integer shift; computed when first asked for.
  int best_shift();
  /// Returns the tensor of a row that loses the largest share; the first one if nothing is lost,
  /// and -1 without any.
  int worst_site() const;
  /// Returns the losses of the whole run in the requested charts through any lens, at the recorded
  /// loss scale, and the same in words. Kept for the next call.
  struct WholeRun {
    LossCount lost{};
    std::string text{};
  };
  const WholeRun& whole_run(const Lens& lens);

 private:
  struct Source {
    LaneSteps key{};
    std::vector<std::string> layers{};
    std::vector<SpectrumChart> charts{};
    Spectrum spectrum{};
    /// Returns true if it had to be collected again.
    bool update(const LaneSteps& steps, const SpectrumRequest& request);
  };
  static size_t index(SpectrumChart chart) noexcept { return static_cast<size_t>(chart); }
  static const std::vector<Ridge>& of(const RidgeTable& table, SpectrumChart chart) {
    return table[index(chart)];
  }
  RidgeTable ridges_of(const Spectrum& spectrum, const SpectrumRequest& request) const;
  void fit_ranges(const SpectrumRequest& request);

  std::optional<SpectrumRequest> last_{};
  Source steps_, totals_, reference_source_, fixed_source_;
  std::vector<LayerRow> rows_;
  RidgeTable ridges_, reference_, fixed_;
  std::array<LossCount, kSpectrumCharts> total_{}, recorded_{};
  std::array<ExponentRange, kSpectrumCharts> ranges_{};
  FloatFormat format_ = kFp16, fixed_format_ = kFp16;
  std::optional<int> best_shift_{};
  std::deque<std::pair<Lens, WholeRun>> whole_run_{};  ///< keeps references while it grows
};

}  // namespace halfscope::gui
