// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "analysis/loss_gap.h"
#include "analysis/proof_file.h"
#include "analysis/rules/baseline.h"
#include "analysis/rules/harm.h"
#include "analysis/rules/harm_words.h"
#include "analysis/rules/optimizer_facts.h"
#include "analysis/rules/text.h"
#include "analysis/rules/tolerance.h"
#include "analysis/skipped_steps.h"
#include "core/observe/worst_slice.h"

namespace halfscope {
namespace {

using Of = Deviation::Of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Beyond these distances a result is useless.
constexpr double kSevereGradient = 0.5, kSevereLoss = 0.2, kSevereMovement = 0.5, kSevereDrop = 0.1;
/// The gradient of a bias in front of a normalization is 0 except for rounding: the lane's is this
/// many times as large as fp32's, and fp32's is this many times smaller than the unit of the error,
/// a tenth of the usual size.
constexpr double kAboveZero = 10.0, kUsualGradient = 10.0;
/// A gradient this far off before the first update is poor, even if the spread allows it.
constexpr double kPoorGradient = 0.3;
/// If gradients of correct results are this far apart, correct trainings take different paths.
constexpr double kVagueGradients = 0.2;
/// If more of the path than this was skipped, its length says little.
constexpr double kMuchSkipped = 0.05;
/// A path that only leads further to the side counts against a lane from this many times on.
constexpr double kFarTooLong = 3.0;
/// Trainings whose weights end further apart than this, relative to how far they moved, have taken
/// different paths. Then a single variable may move much less or further in one of them, though not
/// less by this much.
constexpr double kApart = 0.7, kHardlyBegan = 0.75;
/// If the search for a loss scale took more of a run than one part in this many, the run shows
/// little about what follows it.
constexpr int64_t kPartOfSearch = 4;

/// Up to here a distance needs no excuse; beyond it is one where something inside the lane is known
/// to go wrong. Rounding moves values by less than a third of an ulp on average.
double doubt_from(double floor, double spread) {
  constexpr double kLikely = 0.5;
  return spread >= 0.0 ? std::max(floor, kLikely * spread) : floor;
}

double upper_median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// All measurements of one result over the steps.
struct Series {
  std::vector<double> errors, spreads, ratios;
  int64_t broken = 0, n = 0, first_broken = -1, first = -1, first_error = -1;
};

class Judge {
 public:
  explicit Judge(const LaneFacts& lane)
      : lane_(lane),
        run_(lane.run()),
        reference_(reference_lane(run_, lane.lane())),
        sign_(loss_sign(run_.info())),
        floor_(harm_floor(lane.info())),
        gradient_floor_(gradient_floor(lane.info())),
        cap_(harm_cap(lane.info())) {}

  Harm run() {
    if (reference_ < 0) {
      harm_.inconclusive =
          lane_.captured()
              ? "It was recorded after rounding, and without a float32 run to compare with."
              : "This run has no float32 lane to compare with.";
      return std::move(harm_);
    }
    judge_outputs();
    if (!lane_.inference()) {
      judge_steps();
      judge_batches();
      judge_training();
      judge_movements();
    }
    judge_evaluations();
    withdraw_excuse();
    if (proof_clears(run_.proof(lane_.lane()))) believe_proof();
    // Another path is not a useless one.
    const bool parts = !lane_.inference() && harm_.probed && !harm_.in_batches() &&
                       parting_step(lane_.steps(), run_.steps(reference_)) >= 0;
    for (HarmItem& item : harm_.items) item.severe = item.severe && !(parts && is_finite(item));
    std::stable_sort(harm_.items.begin(), harm_.items.end(),
                     [](const HarmItem& a, const HarmItem& b) {
                       if (a.severe != b.severe) return a.severe;
                       return a.of < b.of;
                     });
    harm_.unlearned = unlearned_reference();
    if (harm_.items.empty()) harm_.inconclusive = why_inconclusive();
    return std::move(harm_);
  }

 private:
  std::span<const Deviation> deviations() const { return run_.deviations(lane_.lane()); }
  std::string reference_name() const { return run_.lane(reference_).name; }

  void add(HarmItem item) { harm_.items.push_back(std::move(item)); }

  void judge_outputs() {
    for (const Deviation& each : deviations()) {
      if (each.of != Of::output) continue;
      if (each.noise > kNoise) {
        harm_.unchecked.push_back(
            fmt::format("Its output {} was not compared, because float32's is only rounding noise.",
                        each.name));
        continue;
      }
      if (std::isnan(each.error) && each.broken == 0) continue;
      harm_.measured = harm_.probed = true;
      if (each.error > doubt_from(floor_, each.spread)) harm_.doubtful = true;
    }
    for (HarmItem& item : wrong_outputs(lane_.info(), deviations())) add(std::move(item));
  }

  /// A lane that never updates learns nothing.
  void judge_steps() {
    const std::span<const StepRow> rows = lane_.steps();
    const auto skipped =
        std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
    // Shorter runs may end while the scale comes down.
    if (static_cast<int64_t>(rows.size()) < kLeastSteps ||
        skipped < static_cast<int64_t>(rows.size())) {
      return;
    }
    harm_.measured = true;
    add({.of = HarmItem::Of::steps,
         .error = kInfinity,
         .severe = true,
         .text =
             fmt::format("all {} of its updates were skipped, so it never learned", rows.size())});
  }

  /// Judges loss and gradients at the lane's own weights.
  void judge_batches() {
    std::map<std::pair<Of, std::string>, Series> all;
    for (const Deviation& each : deviations()) {
      if (each.of != Of::loss && each.of != Of::gradient) continue;
      harm_.measured = harm_.probed = true;
      Series& series = all[{each.of, each.name}];
      if (series.first < 0) series.first = each.step;
      if (each.broken > 0 && series.first_broken < 0) series.first_broken = each.step;
      series.broken += each.broken;
      series.n += each.n;
      if (std::isnan(each.error)) continue;
      if (series.first_error < 0) series.first_error = each.step;
      series.errors.push_back(each.error);
      series.spreads.push_back(each.spread);
      series.ratios.push_back(std::isnan(each.ratio) ? 1.0 : each.ratio);
    }
    std::vector<HarmItem> gradients;
    const int64_t untrained = lane_.first_update();
    for (const auto& [key, series] : all) {
      const bool loss = key.first == Of::loss;
      if (series.broken > 0) {
        const bool from_start = series.first_broken <= untrained;
        if (loss) {
          const int64_t step = lost_from(lane_.steps(), series.first_broken);
          add({.of = HarmItem::Of::loss,
               .step = step,
               .error = kInfinity,
               .severe = true,
               .from_start = from_start,
               .text = fmt::format("its loss is {} {}, but float32's is finite",
                                   non_finite_word(loss_at(lane_.steps(), step)),
                                   since_text(lane_.steps(), step))});
        } else {
          gradients.push_back({.of = HarmItem::Of::gradient,
                               .name = key.second,
                               .step = series.first_broken,
                               .error = kInfinity,
                               .severe = true,
                               .from_start = from_start});
        }
        continue;
      }
      if (series.errors.empty()) continue;
      const double error = upper_median_of(series.errors);
      const double spread = upper_median_of(series.spreads);
      const bool whole = loss || key.second.empty();
      const double ratio = upper_median_of(series.ratios);
      const bool of_zero = !whole && ratio > kAboveZero * std::max(1.0, error);
      const double floor = loss      ? floor_
                           : whole   ? gradient_floor_
                           : of_zero ? kUsualGradient
                                     : std::max({kGradientFloor, 2.0 * floor_, gradient_floor_});
      const double tolerance = tolerance_of(floor, spread, loss ? cap_ : kInfinity);
      if (whole && error > doubt_from(floor, spread)) harm_.doubtful = true;
      if (!loss && key.second.empty()) gradient_spread_ = spread;
      if (error <= tolerance && !loss) right_gradients_.insert(key.second);
      if (!loss && key.second.empty() && error <= tolerance && error >= kSevereGradient &&
          series.first_error <= untrained && series.errors.front() >= kPoorGradient) {
        excused_ = HarmItem{
            .of = HarmItem::Of::gradient,
            .step = series.first,
            .error = error,
            .tolerance = gradient_floor_,
            .severe = true,
            .from_start = true,
            .text = fmt::format("the gradient of all weights differs from float32's by {} for "
                                "equal weights",
                                difference_by(error))};
      }
      if (error <= tolerance) continue;
      HarmItem item{
          .of = loss ? HarmItem::Of::loss : HarmItem::Of::gradient,
          .name = key.second,
          .step = series.first,
          .error = error,
          .tolerance = tolerance,
          .severe = error >= (loss ? kSevereLoss : kSevereGradient),
          .from_start = series.first_error <= untrained && series.errors.front() > tolerance,
          .text = ""};
      if (loss) {
        item.text =
            "its loss on the same batch with the same weights " + difference_text(error, tolerance);
        add(std::move(item));
      } else {
        gradients.push_back(std::move(item));
      }
    }
    if (!gradients.empty()) add(worst_gradient(gradients));
  }

  static bool is_finite(const HarmItem& item) { return std::isfinite(item.error); }

  double error_of(Of of, const std::string& name) const {
    for (const Deviation& each : deviations()) {
      if (each.of == of && each.name == name) return each.error;
    }
    return std::nan("");
  }

  const Deviation* find(Of of) const {
    for (const Deviation& each : deviations()) {
      if (each.of == of) return &each;
    }
    return nullptr;
  }

  void judge_training() {
    const std::span<const StepRow> rows = lane_.steps();
    const std::span<const StepRow> theirs = run_.steps(reference_);
    if (rows.empty() || theirs.size() != rows.size()) return;
    if (!all_losses_finite(last_losses(theirs))) return;  // the reference fails itself
    harm_.measured = true;
    if (!all_losses_finite(last_losses(rows))) {
      add({.of = HarmItem::Of::training,
           .error = kInfinity,
           .severe = true,
           .text = fmt::format("its loss is {} at the end, but float32's is finite",
                               non_finite_word(rows.back().loss))});
      return;
    }
    if (static_cast<int64_t>(rows.size()) < kLeastSteps) return;
    // Where the reference learns nothing, it ends somewhere by chance. One that diverges is worse.
    if (!has_learned(theirs, sign_) && !has_diverged(rows, sign_)) return;
    const Deviation* twins = find(Of::training);
    const double spread = twins != nullptr ? twins->spread : std::nan("");
    const bool proven = !std::isnan(spread);
    if (std::isinf(spread)) {
      twins_part_ = true;
      return;
    }
    // Where there are twins, they and the lane are measured in the same way.
    const bool measured = proven && std::isfinite(twins->error);
    const double gap = measured ? twins->error : loss_gap(rows, theirs);
    // If losses jump about, their medians do, too.
    const double usual = proven ? std::max(kLossFloor, kHarmFactor * spread)
                                : std::max(kUnprovenGap, 2.0 * loss_scatter(theirs));
    const double tolerance = usual + calibration_gap(rows, theirs);
    const double first = sign_ * theirs.front().loss;
    const double target = sign_ * end_loss(theirs), end = sign_ * end_loss(rows);
    // A better loss harms nobody, unless it is only computed wrongly.
    if (is_better(rows, theirs, sign_) && harm_.probed && !harm_.in_batches()) return;
    const bool stalled =
        end > first - 0.05 * std::fabs(first) && target < first - 0.2 * std::fabs(first);
    // Steps that only looked for a loss scale lead to another path. Twins show how far.
    if (proven && gap > kLossFloor && gap <= tolerance) harm_.drift = spread;
    const int64_t searched = skipped_steps(rows).calibration;
    const bool worse = end > target && gap > kUnprovenGap;
    const bool long_search = kPartOfSearch * searched > static_cast<int64_t>(rows.size());
    if (worse && gap <= tolerance && long_search) lag_ = gap;
    const bool excused = !proven && !stalled && !normal_skips(rows).empty() && harm_.probed &&
                         !harm_.in_batches() && std::isfinite(gap);
    if (gap > tolerance && !excused) {
      add({.of = HarmItem::Of::training,
           .error = gap,
           .tolerance = tolerance,
           .severe = stalled || gap >= kSevereLoss,
           .unproven = !proven,
           .text = stalled ? fmt::format("its loss stays at {}, while float32's {} to {}",
                                         short_number(sign_ * end), sign_ > 0.0 ? "falls" : "rises",
                                         short_number(sign_ * target))
                           : fmt::format("its loss over the last fifth of the steps {}",
                                         difference_text(gap, tolerance))});
    } else if (!proven && gap > kLossFloor) {
      harm_.lags = true;
      if (gap > usual || (gap > kUnprovenGap && tolerance > usual)) {
        lag_ = gap;
      } else if (gap > kUnprovenGap) {
        noisy_gap_ = gap;
      }
      harm_.unchecked.push_back(fmt::format(
          "Its loss over the last fifth of the steps differs from float32's by {}. This run cannot "
          "show whether two correct runs differ as much.",
          difference_by(gap)));
    }
  }

  /// Returns whether a variable's gradients are right wherever they were compared, and its updates
  /// are computed and stored in full precision. Then it moves otherwise because the others do, or
  /// because its gradient is only rounding noise: a bias in front of a normalization or a softmax.
  bool moves_rightly(const std::string& name) const {
    return right_gradients_.contains(name) && updates_in_full_precision(lane_, name);
  }

  void judge_movements() {
    std::vector<HarmItem> found;
    std::vector<std::string> buffers;
    // While the loss scale comes down nothing moves, and a short run has hardly done anything else.
    // Twins skip nothing, so they do not show how far a correct run gets.
    const double skipped = skipped_share(lane_.steps(), run_.steps(reference_));
    const bool apart = error_of(Of::weight, "") > kApart;
    const std::span<const StepRow> theirs = run_.steps(reference_);
    const bool is_short = static_cast<int64_t>(theirs.size()) < kLeastSteps;
    const bool searches = skipped > 0.0 && is_short;
    // The way of a reference that only gets worse is no measure.
    const bool astray = !is_short && has_risen(theirs, sign_);
    for (const Deviation& each : deviations()) {
      if (each.of == Of::buffer) {
        if (each.broken == 0) continue;
        buffers.push_back(each.name);
        continue;
      }
      if (each.of != Of::weight && each.of != Of::average) continue;
      const bool average = each.of == Of::average;
      const auto item = [&](double error, double tolerance, bool severe, std::string text) {
        return HarmItem{.of = average ? HarmItem::Of::average : HarmItem::Of::weight,
                        .name = each.name,
                        .error = error,
                        .tolerance = tolerance,
                        .severe = severe,
                        .text = std::move(text)};
      };
      const bool whole = each.name.empty();
      const std::string what = whole     ? (average ? "the moving averages" : "the weights")
                               : average ? "the moving average of " + each.name
                                         : "the variable " + each.name;
      if (each.broken > 0) {
        if (whole) continue;
        found.push_back(
            item(kInfinity, 0.0, true, what + " contains NaN or infinity, unlike in float32"));
        continue;
      }
      if (searches || astray || std::isnan(each.error) || std::isnan(each.ratio)) continue;
      const bool began = each.ratio > 1.0 - kHardlyBegan;
      if (!whole && !average && began && moves_rightly(each.name)) continue;
      // An average follows its variable: it may differ as much as that does.
      const double variable = average ? error_of(Of::weight, each.name) : std::nan("");
      const bool proven = !std::isnan(each.spread) || !std::isnan(variable);
      const double spread = std::fmax(each.spread, variable);
      // If gradients depend on every ulp, or much of the path was skipped in search of a loss
      // scale, only a path that hardly began says something.
      const bool vague = gradient_spread_ > kVagueGradients || skipped > kMuchSkipped;
      const bool own_path = !whole && apart;
      const double usual =
          own_path && each.ratio < 1.0 ? kHardlyBegan
          : vague                      ? kSevereMovement
                  : (whole && !apart ? 1.0 : 2.0) * (kUnprovenMovement + 2.0 * skipped);
      const double unproven =
          own_path ? std::max(usual, chance_of_length(each.n, each.ratio < 1.0)) : usual;
      const double floor = average ? kUnprovenMovement : kMovementFloor;
      const double tolerance = proven ? std::max(floor, kHarmFactor * spread) : unproven;
      const double length = std::fabs(each.ratio - 1.0);
      // How far the lane came along float32's path, a projection. Movement in other directions does
      // not count: where a gradient is only rounding noise, as for a bias in front of a softmax,
      // Adam still takes steps of full length.
      const double along = 0.5 * (1.0 + each.ratio * each.ratio - each.error * each.error);
      // As far in another direction may be another path to the same end; a shorter path is not.
      const bool far_too_long = each.ratio >= kFarTooLong;
      const bool elsewhere = vague || (apart && !whole);
      const double by_length =
          elsewhere && each.ratio > 1.0 && !far_too_long ? 0.0 : std::min(length, each.error);
      const double error = !proven        ? by_length
                           : average      ? each.error
                           : far_too_long ? std::max(std::fabs(along - 1.0), by_length)
                                          : std::fabs(along - 1.0);
      if (error <= tolerance) continue;
      found.push_back(item(
          error, tolerance, each.ratio < 1.0 - kSevereMovement || each.ratio > 2.0 || error > 1.0,
          length > tolerance
              ? movement_text(what, each.ratio)
              : fmt::format("{} ended {} away from float32's", what, percent(each.error))));
      found.back().unproven = !proven;
    }
    add_broken_buffers(buffers);
    for (const HarmItem::Of of : {HarmItem::Of::weight, HarmItem::Of::average}) {
      add_worst_movement(found, of);
    }
  }

  /// Adds one item that stands for all running statistics that are not finite.
  void add_broken_buffers(const std::vector<std::string>& names) {
    if (names.empty()) return;
    const bool several = names.size() > 1;
    add({.of = HarmItem::Of::buffer,
         .name = names.front(),
         .error = kInfinity,
         .severe = true,
         .text = fmt::format("the running statistic{} {} contain{} NaN or infinity",
                             several ? "s" : "", name_list(names, 2), several ? "" : "s")});
  }

  void add_worst_movement(const std::vector<HarmItem>& found, HarmItem::Of of) {
    const HarmItem* worst = nullptr;
    int64_t single = 0;
    for (const HarmItem& each : found) {
      if (each.of != of) continue;
      if (!each.name.empty()) ++single;
      if (worst == nullptr || each.error > worst->error) worst = &each;
    }
    if (worst == nullptr) return;
    HarmItem item = *worst;
    item.unproven = std::all_of(found.begin(), found.end(), [of](const HarmItem& each) {
      return each.of != of || each.unproven;
    });
    const int64_t others = item.name.empty() ? 0 : single - 1;
    if (others > 0) {
      item.text += others == 1 ? "; 1 other variable is wrong, too"
                               : fmt::format("; {} other variables are wrong, too", others);
    }
    add(std::move(item));
  }

  /// A proof has shown that the lane is right, so accusations for lack of twins are dropped. A
  /// proof by the loss says nothing about averages.
  void believe_proof() {
    std::erase_if(harm_.items, [](const HarmItem& item) {
      return item.unproven && item.of != HarmItem::Of::average && std::isfinite(item.error);
    });
    harm_.unchecked.clear();
    harm_.doubtful = false;
  }

  void judge_evaluations() {
    if (run_.evals(lane_.lane()).empty() || run_.evals(reference_).empty()) return;
    const EvalRow& own = run_.evals(lane_.lane()).back();
    const EvalRow& other = run_.evals(reference_).back();
    if (own.step != other.step || (!lane_.inference() && !std::isfinite(other.loss))) return;
    harm_.measured = true;
    if (!lane_.inference() && !std::isfinite(own.loss)) {
      add({.of = HarmItem::Of::test_loss,
           .step = own.step,
           .error = kInfinity,
           .severe = true,
           .text = "its test loss is NaN or infinite, but float32's is finite"});
      return;
    }
    if (!std::isfinite(own.accuracy) || !std::isfinite(other.accuracy)) return;
    const std::span<const StepRow> theirs = run_.steps(reference_);
    const bool trained = !lane_.inference() && static_cast<int64_t>(theirs.size()) >= kLeastSteps;
    if (trained && !has_learned(theirs, sign_)) return;  // what it can do, it can by chance
    // On different paths, correct trainings end further apart.
    const bool apart = !lane_.inference() && error_of(Of::weight, "") > kApart;
    const double tolerance = std::max(apart ? kSevereDrop : 0.0,
                                      accuracy_tolerance(other.accuracy, run_.info().test_samples));
    const double drop = other.accuracy - own.accuracy;
    if (drop <= tolerance) return;
    add({.of = HarmItem::Of::accuracy,
         .step = own.step,
         .error = drop,
         .tolerance = tolerance,
         .severe = drop >= kSevereDrop,
         .text = fmt::format("its {}{} is {}, but float32's is {}",
                             lane_.inference() ? "" : "test ", quality_name(run_.info()),
                             percent(own.accuracy), percent(other.accuracy))});
  }

  /// Inputs that lose too much to rounding give gradients as wrong as the lane's. Where such
  /// gradients come to a bad end, that is no excuse for them.
  void withdraw_excuse() {
    const bool fails =
        std::any_of(harm_.items.begin(), harm_.items.end(), [](const HarmItem& item) {
          return item.severe &&
                 (item.of == HarmItem::Of::training || item.of == HarmItem::Of::accuracy);
        });
    if (fails && excused_ && harm_.probed && !harm_.in_batches()) add(*excused_);
  }

  bool nothing_narrowed() const {
    if (!full_precision_lane(lane_.info())) return false;
    const auto differs = [](const Deviation& each) { return each.error != 0.0 || each.broken > 0; };
    if (std::any_of(deviations().begin(), deviations().end(), differs)) return false;
    const std::span<const StepRow> rows = lane_.steps(), theirs = run_.steps(reference_);
    return std::equal(rows.begin(), rows.end(), theirs.begin(), theirs.end(),
                      [](const StepRow& a, const StepRow& b) {
                        return a.loss == b.loss || (std::isnan(a.loss) && std::isnan(b.loss));
                      });
  }

  std::string why_inconclusive() const {
    const int64_t steps = static_cast<int64_t>(lane_.steps().size());
    if (steps == 0) return "";
    if (!harm_.measured) {
      return harm_.unchecked.empty() ? "This run did not compare its results with float32's."
                                     : harm_.unchecked.front();
    }
    if (nothing_narrowed() && !full_precision_plan(lane_.info())) {
      return "Its plan rounds nothing in this network: every layer runs in fp32, and such layers "
             "keep their weights in fp32.";
    }
    if (lane_.inference()) return "";
    if (twins_part_) {
      return "Even two float32 runs that start one ulp apart diverge completely, so losses prove "
             "nothing here.";
    }
    if (lag_ > 0.0) {
      const auto rows = lane_.steps();
      const auto skipped =
          std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.skipped; });
      return fmt::format(
          "It skipped {} of {} while its loss scale came down from {}, and its loss is {} behind "
          "float32's at the end. Start with a lower scale or train longer.",
          skipped, counted(steps, "step"), scale_text(rows.front().loss_scale), percent(lag_));
    }
    if (noisy_gap_ > 0.0) {
      return fmt::format(
          "Its loss over the last fifth of the steps differs from float32's by {}. The loss of "
          "float32 itself varies too much to tell whether that is harmful.",
          percent(noisy_gap_));
    }
    if (run_.status() == RunStatus::running) return "";
    if (steps < kLeastSteps) {
      return fmt::format("{} {} too few. Train at least {}.", counted(steps, "step"),
                         steps == 1 ? "is" : "are", kFewSteps);
    }
    return harm_.unlearned;
  }

  std::string unlearned_reference() const {
    const std::span<const StepRow> theirs = run_.steps(reference_);
    if (lane_.inference() || run_.status() == RunStatus::running) return "";
    if (static_cast<int64_t>(theirs.size()) < kLeastSteps || has_learned(theirs, sign_)) return "";
    return fmt::format(
        "{} itself did not learn: its loss went from {} to {}. Fix that before comparing formats.",
        reference_name(), short_number(theirs.front().loss), short_number(end_loss(theirs)));
  }

  const LaneFacts& lane_;
  const RunView& run_;
  int reference_;
  double sign_;  ///< see loss_sign()
  double floor_, gradient_floor_, cap_;
  bool twins_part_ = false;
  double noisy_gap_ = 0.0;  ///< of the losses at the end, where the reference's jump about
  double lag_ = 0.0;        ///< the same, where only steps are missing that looked for a loss scale
  double gradient_spread_ = 0.0;  ///< of all gradients, if measured
  /// Variables whose gradients were compared at equal weights and are right.
  std::set<std::string> right_gradients_;
  /// The gradient of all weights, useless from the start, if the spread allows that.
  std::optional<HarmItem> excused_;
  Harm harm_;
};

}  // namespace

Harm harm_of(const LaneFacts& lane) {
  if (is_reference(lane.run(), lane.lane())) return {};
  return Judge(lane).run();
}

}  // namespace halfscope
