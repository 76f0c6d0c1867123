// SPDX-License-Identifier: MIT
#include "gui/lab/microscope_desk.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/lab/number_text.h"
#include "emulation/backends.h"
#include "emulation/threads.h"

namespace halfscope::gui {
namespace {

#if defined(__EMSCRIPTEN__)
constexpr bool kHasThreads = false;
#else
constexpr bool kHasThreads = true;
#endif
/// Trainings up to this long run in the frame that asks for them.
constexpr double kQuickMs = 50.0;

/// The fp16 training that all presets change: its loss has a small weight, as auxiliary losses
/// have, so that gradients are small.
SmallTraining small_gradients() {
  SmallTraining training;
  training.loss_weight = -16;
  training.learning_rate = 0.02;
  training.steps = 150;
  return training;
}

}  // namespace

MicroscopeStudy::MicroscopeStudy(bool waits) : waits_(waits || !kHasThreads) {}

MicroscopeStudy::Result MicroscopeStudy::train(const SmallTraining& training, int64_t step,
                                               const Result& curves) {
  const OneThread one;
  const auto start = std::chrono::steady_clock::now();
  auto trained = std::make_shared<Trained>();
  trained->training = training;
  trained->step = step;
  SmallTraining part = training;
  // The losses are known: only the way to the step is missing.
  if (curves) part.steps = std::min(training.steps, step + 1);
  trained->run = train_small(part, step, emulation_backend());
  if (curves) {
    trained->run.lane.steps = curves->run.lane.steps;
    trained->run.twin.steps = curves->run.twin.steps;
  }
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  trained->ms_per_step =
      spent.count() / static_cast<double>(std::max<int64_t>(1, part.steps * part.ranks));
  return trained;
}

void MicroscopeStudy::take(Result result) {
  trained_ = std::move(result);
  ms_per_step_ = trained_->ms_per_step;
  shown_.reset();
}

const Microscope* MicroscopeStudy::of(const SmallTraining& training, const MicroscopePlace& place) {
  if (busy() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    take(pending_.get());
  const bool known = trained_ && trained_->training == training;
  if (!busy() && !(known && trained_->step == place.step)) {
    const Result curves = known && trained_->run.problem.empty() ? trained_ : nullptr;
    const int64_t steps = curves ? std::min(training.steps, place.step + 1) : training.steps;
    const double expected = ms_per_step_ * static_cast<double>(steps * training.ranks);
    if (waits_ || expected <= kQuickMs) {
      take(train(training, place.step, curves));
    } else {
      pending_ = std::async(std::launch::async, [training, step = place.step, curves] {
        return train(training, step, curves);
      });
    }
  }
  if (!trained_) return nullptr;
  if (shown_ != place) {
    microscope_ = follow(trained_->run, place);
    shown_ = place;
  }
  return &microscope_;
}

MicroscopeDesk::MicroscopeDesk() { microscope_presets().front().apply(*this); }

void MicroscopeDesk::edited() {
  if (const std::optional<FloatFormat> parsed = parse_format(format)) training.format = *parsed;
  const std::optional<double> rate = read_double(learning_rate);
  if (rate && std::isfinite(*rate) && *rate >= 0.0) training.learning_rate = *rate;
  LossScalerConfig scaler;
  if (scales) {
    scaler.kind = dynamic ? LossScalerConfig::Kind::dynamic : LossScalerConfig::Kind::constant;
    scaler.initial = std::exp2(std::round(scale_log2));
    scaler.growth_interval = 50;  // the whole run is shorter than the usual 2,000
  }
  training.scaler = scaler;
}

void MicroscopeDesk::set(const SmallTraining& to) {
  training = to;
  format = format_name(to.format);
  learning_rate = value_text(static_cast<float>(to.learning_rate), kFp32);
  scales = to.scaler.kind != LossScalerConfig::Kind::none;
  dynamic = to.scaler.kind == LossScalerConfig::Kind::dynamic;
  if (scales) scale_log2 = std::log2(to.scaler.initial);
  edited();
}

void MicroscopeDesk::clamp_place() {
  const bool first = place.layer == 1;
  place.row = std::clamp<int64_t>(place.row, 0, (first ? kSmallHidden : kSmallClasses) - 1);
  place.column = std::clamp<int64_t>(place.column, 0, (first ? kSmallInputs : kSmallHidden) - 1);
  place.step = std::clamp<int64_t>(place.step, 0, training.steps - 1);
}

std::span<const MicroscopePreset> microscope_presets() {
  static constexpr std::array<MicroscopePreset, 6> kPresets{
      MicroscopePreset{
          "fp16 without a loss scale", "Gradients underflow, and the loss stays where it is.",
          [](MicroscopeDesk& desk) {
            desk.set(small_gradients());
            desk.place = {.layer = 1, .row = 5, .column = 13, .step = 20};
            desk.selected = "output gradient";
            desk.note =
                "The loss has a weight of 2^-16, so gradients are about 1e-7. fp16 has only a few "
                "numbers there, the smallest is 6e-8. Gradients keep one or two bits or become 0, "
                "and the loss does not fall. fp32 learns without trouble.";
          }},
      MicroscopePreset{
          "fp16 with 2^16", "The same training with a loss scale.",
          [](MicroscopeDesk& desk) {
            SmallTraining training = small_gradients();
            training.scaler = parse_loss_scale("static:65536");
            desk.set(training);
            desk.place = {.layer = 1, .row = 5, .column = 13, .step = 20};
            desk.selected = "scaled loss";
            desk.note =
                "The loss is multiplied by 2^16, and so is every gradient. They move up to where "
                "fp16 has all its bits. Before the update they are divided by 2^16 again, in fp32. "
                "Now the loss curve is that of fp32.";
          }},
      MicroscopePreset{"bf16 needs none", "The range of fp32, with fewer bits.",
                       [](MicroscopeDesk& desk) {
                         SmallTraining training = small_gradients();
                         training.format = kBf16;
                         desk.set(training);
                         desk.place = {.layer = 1, .row = 5, .column = 13, .step = 20};
                         desk.selected = "output gradient";
                         desk.note =
                             "bf16 has the exponent bits of fp32, so 1e-7 is an ordinary number. "
                             "It throws away more bits at every station, but no gradient "
                             "underflows, and the training needs no loss scale.";
                       }},
      MicroscopePreset{
          "Update lost without master weights", "Weights in bf16 do not move.",
          [](MicroscopeDesk& desk) {
            SmallTraining training;
            training.format = kBf16;
            training.master_weights = false;
            training.learning_rate = 0.0005;
            training.steps = 400;
            desk.set(training);
            desk.place = {.layer = 2, .row = 9, .column = 24, .step = 60};
            desk.selected = "new weight";
            desk.note =
                "The weights are stored in bf16. An update of 0.0005 is less than half the "
                "distance "
                "to the next bf16 number of most weights, so they stay where they are. Switch on "
                "master weights, or stochastic rounding, and the loss falls again.";
          }},
      MicroscopePreset{
          "8 ranks reduce in bf16", "An all-reduce, hop by hop.",
          [](MicroscopeDesk& desk) {
            SmallTraining training = small_gradients();
            training.scaler = parse_loss_scale("static:65536");
            training.ranks = 8;
            training.reduction = parse_reduction("ring:format=bf16");
            desk.set(training);
            desk.place = {.layer = 1, .row = 5, .column = 13, .step = 20};
            desk.selected = "hop 4";
            desk.note =
                "Each of 8 ranks has an eighth of the batch. Their gradients travel around a ring "
                "and are added one by one, and every hop rounds the sum to bf16. The loss hardly "
                "notices: eight roundings of 8 bits are still small.";
          }},
      MicroscopePreset{
          "mxfp8 blocks", "Eight bits per number, one scale for 32.", [](MicroscopeDesk& desk) {
            SmallTraining training;
            training.format = kBf16;
            training.blocks = kMxfp8E4m3;
            training.learning_rate = 0.02;
            training.steps = 150;
            desk.set(training);
            desk.place = {.layer = 1, .row = 5, .column = 13, .step = 20};
            desk.selected = "read weight";
            desk.note =
                "Products read their operands in e4m3fn, 8 bits. 32 neighbors share a scale that "
                "is a power of two, so that the largest of them just fits. Everything else stays "
                "in bf16.";
          }}};
  return kPresets;
}

}  // namespace halfscope::gui
