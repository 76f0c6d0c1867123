// SPDX-License-Identifier: MIT
// Constants of optimizers, schedules, clipping and moving averages.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "analysis/audit/rows.h"
#include "analysis/rules/text.h"
#include "core/train/schedule.h"

namespace halfscope::audit {
namespace {

using Of = AuditedConstant::Of;

/// Steps without an update count as the end of a schedule if they make up less than this share of
/// the sum of all learning rates.
constexpr double kLeastWay = 0.01;

/// The trained weights of a parameter group, or of none.
struct Members {
  const Variable* first = nullptr;     ///< null: there are none
  std::vector<FloatFormat> formats{};  ///< that they are stored in, each once
};

Members members_of(const Executable& exe, const Model& model,
                   std::span<const ParameterGroup> groups, const ParameterGroup* group) {
  Members members;
  for (size_t i = 0; i < model.graph.variables().size(); ++i) {
    const Variable& variable = exe.graph.variables()[i];
    if (variable.buffer || variable.next == kNone) continue;
    if (group_of(groups, variable) != group) continue;
    if (members.first == nullptr) members.first = &variable;
    const FloatFormat& format = exe.graph.value(variable.value).format;
    if (std::find(members.formats.begin(), members.formats.end(), format) ==
        members.formats.end()) {
      members.formats.push_back(format);
    }
  }
  return members;
}

/// The largest number below 1, and half the way to it: what a factor must differ from 1 by.
double below_one(const FloatFormat& format) {
  return 1.0 - std::ldexp(1.0, -format.mantissa_bits - 1);
}

bool is_lost(const AuditedConstant& row) { return row.becomes == 0.0 && row.value != 0.0; }
bool acts_as_one(const AuditedConstant& row) { return row.becomes == 1.0 && row.value != 1.0; }

/// Audits the constants with which one parameter group is trained, or all weights outside of
/// groups.
class TrainingAudit {
 public:
  TrainingAudit(const Plan& plan, const TrainConfig& training, const ParameterGroup* group,
                const Optimizer& optimizer, std::vector<FloatFormat> stored)
      : plan_(plan),
        training_(training),
        group_(group),
        optimizer_(optimizer),
        compute_(plan.update_compute),
        fused_(plan.update_compute == kFp32),
        stochastic_(plan.storage_rounding.mode == RoundingMode::stochastic),
        stored_(std::move(stored)),
        series_(scheduled_at(scheduled_options(training.schedule), group, "lr")) {}

  std::vector<AuditedConstant> run() {
    find_rates();
    if (is_adam(optimizer_)) {
      share("beta1", optimizer_.beta1, "the first moment");
      share("beta2", optimizer_.beta2, "the second moment");
      eps(optimizer_.beta2);
    } else if (optimizer_.kind == Optimizer::Kind::rmsprop) {
      share("alpha", optimizer_.alpha, "the average of squares");
      eps(optimizer_.alpha);
    }
    if (optimizer_.momentum != 0.0) momentum();
    if (optimizer_.weight_decay != 0.0) {
      if (optimizer_.kind == Optimizer::Kind::adamw) {
        decoupled_decay();
      } else {
        weight_decay();
      }
    }
    schedule_rates();
    learning_rates();
    if (training_.clip_norm > 0.0) clipping();
    if (training_.average) average();
    if (group_ != nullptr) {
      for (AuditedConstant& each : rows_) {
        if (each.of == Of::optimizer || each.of == Of::schedule) each.path = group_->glob;
      }
    }
    return std::move(rows_);
  }

 private:
  AuditedConstant row(const std::string& name, double value) const {
    return number(Of::optimizer, name, value, compute_);
  }
  void add(AuditedConstant row) { rows_.push_back(std::move(row)); }
  std::string in_compute() const { return "in " + format_name(compute_); }

  void find_rates() {
    const int64_t steps = std::max<int64_t>(training_.steps, 1);
    constexpr int64_t kMost = 100000;  // schedules are smooth, so more steps add nothing
    const int64_t every = (steps + kMost - 1) / kMost;
    for (int64_t step = 0; step < steps; step += every) visit_rate(step, steps);
    if ((steps - 1) % every != 0) visit_rate(steps - 1, steps);
  }
  void visit_rate(int64_t step, int64_t steps) {
    const double rate = rate_of(step, steps, kFp32);
    visit_rounded_rate(step, steps, rate);
    least_rate_ = std::min(least_rate_, rate);
    most_rate_ = std::max(most_rate_, rate);
    way_ += rate;
    if (in_format(rate, compute_) == 0.0) lost_way_ += rate;
  }

  double rate_of(int64_t step, int64_t steps, const FloatFormat& format) const {
    if (series_) return series_rate(training_.schedule, *series_, step, format);
    return learning_rate(training_.schedule, optimizer_.learning_rate, step, steps, format,
                         training_.optimizer.learning_rate);
  }

  /// Takes the rate from a schedule that is computed in its own format.
  void visit_rounded_rate(int64_t step, int64_t steps, double rate) {
    if (plan_.schedule == kFp32) return;
    const double rounded = rate_of(step, steps, plan_.schedule);
    if (std::isfinite(rounded)) {
      if (rounded == 0.0) flushed_way_ += rate;
      return;
    }
    if (!lost_rate_) lost_rate_ = {step, rate, rounded};
  }

  /// Adds the losses of a schedule that is computed in few bits: the first learning rate that is
  /// NaN or infinite, or the rates that become 0.
  void schedule_rates() {
    if (plan_.schedule == kFp32) return;
    const std::string format = format_name(plan_.schedule);
    if (lost_rate_) {
      AuditedConstant each =
          number(Of::schedule, fmt::format("learning rate of step {}", lost_rate_->step),
                 lost_rate_->exact, plan_.schedule);
      each.becomes = lost_rate_->rounded;
      each.relative_error = INFINITY;
      each.severity = Severity::error;
      each.text = fmt::format(
          "the learning rate is {} from step {} on, because the schedule is computed "
          "in {}",
          std::isnan(each.becomes) ? "NaN" : "infinite", lost_rate_->step, format);
      each.advice = "compute the schedule in fp32";
      return add(std::move(each));
    }
    const double share = way_ > 0.0 ? flushed_way_ / way_ : 0.0;
    if (share <= kLeastWay) return;
    AuditedConstant each =
        number(Of::schedule, "smallest learning rate", least_rate_, plan_.schedule);
    each.becomes = 0.0;
    each.severity = Severity::error;
    each.text = fmt::format(
        "some learning rates become 0, because the schedule is computed in {}. These steps make up "
        "{} of the total learning rate",
        format, percent(share));
    each.advice = "compute the schedule in fp32";
    add(std::move(each));
  }

  /// Adds the factor by which a state shrinks in each step, and the one for what is new.
  void share(const std::string& name, double value, const std::string& state) {
    AuditedConstant kept = row(name, value), fresh = row("1 - " + name, 1.0 - value);
    if (acts_as_one(kept)) {
      kept.severity = Severity::error;
      kept.text = fmt::format("{} acts as 1 {}, so {} never shrinks", name, in_compute(), state);
      kept.safe = below_one(compute_);
      kept.advice =
          fmt::format("use at most {}, or compute the update in fp32", short_number(*kept.safe));
    } else if (fused_) {
      note_stuck(kept, state);
    }
    if (is_lost(fresh)) {
      fresh.severity = Severity::error;
      fresh.text =
          fmt::format("1 - {} acts as 0 {}, so {} never changes", name, in_compute(), state);
      fresh.safe = least_number(compute_);
      fresh.advice = "compute the update in fp32";
    }
    add(std::move(kept));
    add(std::move(fresh));
  }

  /// It is rounded once, with what is new: whether it has to shrink depends on the gradients.
  void note_stuck(AuditedConstant& kept, const std::string& state) const {
    for (const FloatFormat& stored : stored_) {
      const FloatFormat format = state_format(stored);
      if (in_format(kept.value, format) != 1.0) continue;
      kept.text = fmt::format("{} cannot shrink in small steps in {}, because {} is 1 there", state,
                              format_name(format), kept.name);
      return;
    }
  }

  FloatFormat state_format(const FloatFormat& stored) const {
    const FloatFormat state = plan_.state.value_or(training_.state_format.value_or(stored));
    return !fused_ && state.contains(compute_) ? compute_ : state;
  }

  /// Squares below half of the smallest number are 0: there the update is divided by eps alone. A
  /// step is no longer than for other gradients if eps is at least as large as the largest of
  /// these.
  void eps(double kept) {
    AuditedConstant guard = row("eps", optimizer_.eps);
    double least_seen = 0.0;
    for (const FloatFormat& stored : stored_) {
      const FloatFormat format = state_format(stored);
      least_seen = std::max(least_seen, std::sqrt(least_number(format) / 2.0 / (1.0 - kept)));
    }
    const bool narrow = std::any_of(stored_.begin(), stored_.end(), [&](const FloatFormat& each) {
      return state_format(each).exponent_bits < kFp32.exponent_bits;
    });
    if (is_lost(guard)) {
      guard.severity = Severity::error;
      guard.text = fmt::format(
          "eps is 0 {}, so the update is 0 / 0 wherever a squared gradient is 0", in_compute());
      guard.safe = least_number(compute_);
      guard.safe_for_gradients = std::max(least_seen, compute_.min_normal());
      guard.advice = fmt::format(
          "use at least {}; squares of gradients below {} become 0, and an eps of that size limits "
          "their updates",
          short_number(*guard.safe), short_number(*guard.safe_for_gradients));
    } else if (narrow && optimizer_.eps < least_seen) {
      guard.text = fmt::format(
          "squares of gradients below {} become 0 in the state, so only eps divides those updates",
          short_number(least_seen));
    }
    add(std::move(guard));
  }

  void momentum() {
    AuditedConstant kept = row("momentum", optimizer_.momentum);
    if (acts_as_one(kept)) {
      kept.severity = Severity::error;
      kept.text = fmt::format("momentum acts as 1 {}, so it never shrinks", in_compute());
      kept.safe = below_one(compute_);
      kept.advice =
          fmt::format("use at most {}, or compute the update in fp32", short_number(*kept.safe));
    }
    add(std::move(kept));
  }

  void weight_decay() {
    AuditedConstant decay = row("weight_decay", optimizer_.weight_decay);
    if (is_lost(decay)) {
      decay.severity = Severity::error;
      decay.text = fmt::format("weight_decay acts as 0 {}", in_compute());
      decay.safe = least_number(compute_);
      decay.advice = "compute the update in fp32, or use more weight decay";
    }
    add(std::move(decay));
  }

  /// Adds AdamW's decay, a separate step where the update is not computed in fp32.
  void decoupled_decay() {
    const double rate = most_rate_ * optimizer_.weight_decay;
    AuditedConstant product = row("lr * weight_decay", rate);
    if (is_lost(product)) {
      product.severity = Severity::error;
      product.text = fmt::format("lr * weight_decay acts as 0 {}", in_compute());
      product.safe = least_number(compute_);
      product.advice = "compute the update in fp32, or use more weight decay";
    }
    add(std::move(product));
    for (const FloatFormat& format : stored_) {
      AuditedConstant factor = number(Of::optimizer, "1 - lr * weight_decay", 1.0 - rate, format);
      if (acts_as_one(factor)) decay_is_one(factor, format);
      add(std::move(factor));
    }
  }

  void decay_is_one(AuditedConstant& factor, const FloatFormat& format) const {
    const std::string name = format_name(format);
    if (stochastic_) {
      factor.text = fmt::format("{} is 1 in {}, but stochastic rounding of the weights compensates",
                                factor.name, name);
    } else if (fused_) {
      factor.text = fmt::format(
          "{} is 1 in {}, so weights decay only together with a larger update", factor.name, name);
    } else {
      factor.severity = Severity::error;
      factor.text = fmt::format("1 - lr * weight_decay is 1 in {}, so no weight ever decays", name);
      // Half an ulp of any weight.
      factor.safe = below_one(format);
      factor.advice = fmt::format(
          "keep weights in fp32 or round them stochastically; lr * weight_decay would have to be "
          "{}",
          short_number(1.0 - *factor.safe));
    }
  }

  void learning_rates() {
    const auto rate_row = [&](const std::string& name, double rate) {
      AuditedConstant each = number(Of::schedule, name, rate, compute_);
      if (is_lost(each)) {
        const double share = way_ > 0.0 ? lost_way_ / way_ : 0.0;
        const bool matters = share > kLeastWay;
        each.severity = matters ? Severity::error : Severity::info;
        each.text = fmt::format(
            "{} {} acts as 0 {}, so these steps change nothing. They make up {} of the total "
            "learning rate",
            name, short_number(rate), in_compute(), percent(share));
        if (matters) {
          each.safe = least_number(compute_);
          each.advice = "compute the update in fp32, or use a larger learning rate";
        }
      }
      add(std::move(each));
    };
    if (least_rate_ == most_rate_) return rate_row("learning rate", most_rate_);
    rate_row("smallest learning rate", least_rate_);
    rate_row("largest learning rate", most_rate_);
  }

  void clipping() {
    add(number(Of::clipping, "clip norm", training_.clip_norm, kFp32));
    if (plan_.clip == kFp32) return;
    AuditedConstant guard = number(Of::clipping, "1e-6 beside the norm", 1e-6, plan_.clip);
    if (is_lost(guard)) {
      guard.text = "the 1e-6 that is added to the norm becomes 0, which is harmless";
    }
    add(std::move(guard));
  }

  void average() {
    const WeightAverage& how = *training_.average;
    for (const FloatFormat& stored : stored_) {
      const FloatFormat format = plan_.average.value_or(stored);
      AuditedConstant kept = number(Of::average, "decay", how.decay, format);
      if (acts_as_one(kept)) {
        const double far = std::ldexp(1.0, -format.mantissa_bits - 2) / (1.0 - how.decay);
        kept.safe = below_one(format);
        kept.severity = stochastic_ ? Severity::info : Severity::error;
        kept.text =
            stochastic_
                ? fmt::format(
                      "decay is 1 in {}, but stochastic rounding of the averages compensates",
                      format_name(format))
                : fmt::format(
                      "decay is 1 in {}, so an average changes only if the weight differs from it "
                      "by "
                      "{} or more",
                      format_name(format), percent(far));
        if (stochastic_) kept.safe.reset();
        if (!stochastic_) {
          kept.advice = fmt::format("keep averages in fp32, or use a decay of at most {}",
                                    short_number(*kept.safe));
        }
      }
      add(std::move(kept));
      if (plan_.average) break;  // the same for all
    }
    AuditedConstant fresh =
        number(Of::average, "1 - decay", 1.0 - how.decay, plan_.average_compute);
    if (is_lost(fresh)) {
      fresh.severity = Severity::error;
      fresh.text = fmt::format("1 - decay acts as 0 in {}, so averages never change",
                               format_name(plan_.average_compute));
      fresh.safe = least_number(plan_.average_compute);
      fresh.advice = "compute averages in fp32";
    }
    add(std::move(fresh));
  }

  const Plan& plan_;
  const TrainConfig& training_;
  const ParameterGroup* group_;
  Optimizer optimizer_;
  FloatFormat compute_;
  bool fused_, stochastic_;
  std::vector<FloatFormat> stored_;
  std::optional<size_t> series_;  ///< Schedule::series with the learning rates, if not the usual
  std::vector<AuditedConstant> rows_;
  double least_rate_ = std::numeric_limits<double>::infinity(), most_rate_ = 0.0;
  /// Sums of all learning rates, of those that are 0 as the update reads them, and of those that
  /// are 0 as the schedule computes them.
  double way_ = 0.0, lost_way_ = 0.0, flushed_way_ = 0.0;
  struct LostRate {
    int64_t step;
    double exact, rounded;
  };
  std::optional<LostRate> lost_rate_;
};

}  // namespace

void add_training(const Executable& exe, const Model& model, const Plan& plan,
                  const TrainConfig& training, std::vector<AuditedConstant>& rows) {
  std::vector<const ParameterGroup*> groups{nullptr};
  for (const ParameterGroup& each : training.groups) groups.push_back(&each);
  std::vector<AuditedConstant> before;
  for (const ParameterGroup* const group : groups) {
    Members members = members_of(exe, model, training.groups, group);
    if (members.first == nullptr) continue;
    const Optimizer optimizer = optimizer_of(training.optimizer, training.groups, *members.first);
    for (AuditedConstant& row :
         TrainingAudit(plan, training, group, optimizer, std::move(members.formats)).run()) {
      const bool known = std::any_of(before.begin(), before.end(), [&](const auto& other) {
        return std::tie(row.name, row.value, row.format, row.text) ==
               std::tie(other.name, other.value, other.format, other.text);
      });
      if (!known) before.push_back(std::move(row));
    }
  }
  std::move(before.begin(), before.end(), std::back_inserter(rows));
}

}  // namespace halfscope::audit
