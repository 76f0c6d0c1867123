// SPDX-License-Identifier: MIT
#include "analysis/proof/twins.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "analysis/loss_gap.h"
#include "core/error.h"
#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/observe/deviation.h"

namespace halfscope {
namespace {

using Of = Deviation::Of;

constexpr double kBoundless = std::numeric_limits<double>::infinity();
/// After this many steps in a row without a finite loss, float32 does not recover.
constexpr int64_t kHopeless = 64;

/// Returns whether two losses have the same bits. Any NaN equals any other.
bool same_loss(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Collects rows and movements of float32 (lane 0) and its twins.
class TwinSink final : public TapSink {
 public:
  TwinSink(const TwinRequest& request, size_t lanes, const ProofProgress& progress,
           const std::atomic<bool>& stop)
      : rows(lanes),
        check_(request.recorded_reference),
        progress_(progress),
        stop_(stop),
        last_step_(request.steps - 1) {}

  void begin(const RunInfo&) override {}
  void step(int lane, const StepRow& row, std::span<const TensorStats>) override {
    // A device may already be one step ahead when it is told to stop.
    if (last_step_ >= 0 && row.step > last_step_) return;
    rows[static_cast<size_t>(lane)].push_back(row);
    if (lane != 0) return;
    if (!check_.add(row) || stop_ || row.step == last_step_) give_up = true;
    lost_ = std::isfinite(row.loss) ? 0 : lost_ + 1;
    if (lost_ >= kHopeless) give_up = true;
    if (progress_) progress_(fmt::format("float32 and {} twins", rows.size() - 1), 1, row);
  }
  void eval(int, const EvalRow&) override {}
  void error(int, const SiteError&) override {}
  void sums(int, const SiteSums&) override {}
  void deviation(int, const Deviation& deviation) override {
    if (deviation.of == Of::weight || deviation.of == Of::average) found.push_back(deviation);
  }
  void end(RunEnd) override {}

  const std::optional<StepRow>& other() const { return check_.other(); }

  std::vector<std::vector<StepRow>> rows;
  std::vector<Deviation> found;
  std::atomic<bool> give_up{false};

 private:
  RepetitionCheck check_;
  const ProofProgress& progress_;
  const std::atomic<bool>& stop_;
  int64_t last_step_, lost_ = 0;
};

/// Returns how strongly twins are perturbed: significant bits per variable.
std::map<std::string, int> noise_bits(const TrainConfig& training, const Dataset& data,
                                      const Plan& plan) {
  const int64_t samples =
      std::max<int64_t>(1, training.batch / std::max<int64_t>(1, training.micro_batches));
  const Model model = training.build
                          ? training.build(samples)
                          : build_model(training.model, samples, data.sample_shape, data.classes);
  const TrainingSpec spec{.optimizer = training.optimizer};
  return read_precision(lower(model, plan, spec)).variables;
}

TrainConfig without_extras(const TrainConfig& training) {
  TrainConfig config = training;
  config.every = 0;
  config.evaluate = false;
  config.evaluate_every = config.patience = config.checkpoint_every = 0;
  config.checkpoint.clear();
  config.errors = {};
  return config;
}

/// Keeps the larger of two distances, which makes the tolerance wider.
void keep_further(Deviation& kept, const Deviation& other) {
  const double error = other.broken > 0 ? kBoundless : other.error;
  if (!(kept.error >= error)) kept.error = error;
  const auto from_one = [](double ratio) { return std::fabs(ratio - 1.0); };
  if (!(from_one(kept.ratio) >= from_one(other.ratio))) kept.ratio = other.ratio;
}

const Deviation* find_row(std::span<const Deviation> rows, Of of, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Deviation& each) {
    return each.of == of && each.name == name;
  });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<Deviation> furthest(std::span<const Deviation> found) {
  std::vector<Deviation> result;
  for (const Deviation& each : found) {
    const Deviation* before = find_row(result, each.of, each.name);
    if (before == nullptr) {
      result.push_back(each);
      if (each.broken > 0) result.back().error = kBoundless;
    } else {
      keep_further(result[static_cast<size_t>(before - result.data())], each);
    }
  }
  return result;
}

}  // namespace

bool RepetitionCheck::add(const StepRow& row) {
  while (!left_.empty() && left_.front().step < row.step) left_ = left_.subspan(1);
  const bool differs =
      !left_.empty() && left_.front().step == row.step && !same_loss(left_.front().loss, row.loss);
  if (differs && !other_) other_ = left_.front();
  return !other_;
}

void throw_not_repeated(const std::string& lane, const StepRow& now, const StepRow& recorded) {
  throw Error(
      fmt::format(
          "the training is not repeatable: at step {} the loss of {} is {}, but the run file "
          "has {}",
          now.step, lane, now.loss, recorded.loss),
      "record the run again; its data, its initial weights or the HalfScope version have changed");
}

std::optional<Twins> train_twins(const TwinRequest& request, const Dataset& data,
                                 const ProofProgress& progress, const std::atomic<bool>& stop) {
  if (stop) return std::nullopt;
  const auto start = std::chrono::steady_clock::now();
  TrainConfig config = without_extras(request.training);
  config.errors.enabled = true;
  config.errors.extent = ErrorSampling::Extent::movement;
  const std::map<std::string, int> bits = noise_bits(config, data, request.plan);
  const Plan plan = reference_of(request.plan);
  config.lanes = {{.plan = plan, .scaler = {}, .backend = request.backend, .own_name = "float32"}};
  const uint64_t end = request.first_seed + static_cast<uint64_t>(request.twins);
  for (uint64_t seed = request.first_seed; seed < end; ++seed) {
    config.lanes.push_back({.plan = plan,
                            .scaler = {},
                            .backend = request.backend,
                            .noise_seed = seed,
                            .noise_bits = bits,
                            .own_name = fmt::format("float32~{}", seed)});
  }
  if (!request.skips.empty()) {
    config.lanes.push_back({.plan = plan,
                            .scaler = {.kind = LossScalerConfig::Kind::constant},
                            .backend = request.backend,
                            .own_name = "float32~skips",
                            .skips = request.skips});
  }
  config.lanes.insert(config.lanes.end(), request.others.begin(), request.others.end());
  TwinSink sink(request, config.lanes.size(), progress, stop);
  Trainer trainer(config, data);
  trainer.run(&sink, {}, sink.give_up);
  if (sink.other()) throw_not_repeated("float32", sink.rows[0].back(), *sink.other());
  if (stop) return std::nullopt;
  if (!trainer.lost_lanes().empty()) {
    const FailedLane& lost = trainer.lost_lanes().front();
    throw Error(fmt::format("{} stopped at step {}: {}", lost.name, lost.step, lost.why),
                lost.hint);
  }
  Twins twins{.reference = std::move(sink.rows[0]),
              .movements = furthest(sink.found),
              .steps = static_cast<int64_t>(sink.rows[1].size())};
  for (size_t i = 1; i < sink.rows.size(); ++i) {
    twins.spread = std::max(twins.spread, loss_gap(sink.rows[i], twins.reference));
    twins.moved.push_back(std::move(sink.rows[i]));
  }
  twins.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return twins;
}

void add_twins(Twins& twins, Twins others) {
  twins.spread = std::max(twins.spread, others.spread);
  std::vector<Deviation> all = std::move(twins.movements);
  all.insert(all.end(), others.movements.begin(), others.movements.end());
  twins.movements = furthest(all);
  for (std::vector<StepRow>& rows : others.moved) twins.moved.push_back(std::move(rows));
  twins.seconds += others.seconds;
}

bool more_twins_may_matter(const RunView& run, int lane) {
  constexpr double kClearly = 5.0;
  const Harm harm = harm_of(LaneFacts(run, lane));
  return !harm.items.empty() &&
         std::all_of(harm.items.begin(), harm.items.end(), [](const HarmItem& item) {
           const bool of_end = item.of == HarmItem::Of::training || item.of == HarmItem::Of::weight;
           return of_end && item.tolerance > 0.0 && item.error < kClearly * item.tolerance;
         });
}

bool twins_may_matter(const RunView& run, int lane) {
  if (run.info().inference || reference_lane(run, lane) < 0 || run.lost(lane)) return false;
  if (run.status() == RunStatus::running) return false;
  if (find_row(run.deviations(lane), Of::training, "") != nullptr) return false;
  const Harm harm = harm_of(LaneFacts(run, lane));
  const bool all_unproven =
      std::all_of(harm.items.begin(), harm.items.end(),
                  [](const HarmItem& item) { return item.unproven && std::isfinite(item.error); });
  if (!harm.items.empty() && all_unproven) return true;
  return !harm.unchecked.empty() && !harm.severe();
}

std::vector<Deviation> rows_beside(const Twins& twins, std::span<const StepRow> lane,
                                   std::span<const StepRow> reference,
                                   std::span<const Deviation> recorded) {
  std::vector<Deviation> rows;
  if (!lane.empty()) {
    Deviation training{.step = lane.back().step + 1, .of = Of::training, .n = 1};
    training.error = loss_gap(lane, reference);
    training.spread = twins.spread;
    rows.push_back(std::move(training));
  }
  for (const Deviation& each : recorded) {
    const Deviation* moved = find_row(twins.movements, each.of, each.name);
    if (moved == nullptr) continue;
    rows.push_back(each);
    rows.back().spread = moved->error;
    rows.back().ratio_spread = moved->ratio;
  }
  return rows;
}

}  // namespace halfscope
