// SPDX-License-Identifier: MIT
#include "core/lower/update_nodes.h"

#include <string>

#include "core/lower/rounded_steps.h"
#include "core/lower/weight_average.h"

namespace halfscope {
namespace {

/// Finds the inputs that the update of a variable reads, and adds those that nobody has read yet.
class UpdateInputs {
 public:
  UpdateInputs(Executable& out, const TrainingSpec& spec, const Variable& variable,
               const Optimizer& optimizer)
      : out_(out), spec_(spec), group_(group_of(spec.groups, variable)), optimizer_(optimizer) {}

  void set(UpdateScalars& used) {
    used.learning_rate = rate();
    used.momentum = used.beta1 = used.rest_1 = used.share = kNone;
    if (is_adam(optimizer_)) {
      const std::optional<size_t> beta1 = place("beta1");
      used.correction_1 = scalar(Kind::correction, optimizer_.beta1, beta1);
      used.correction_2 = scalar(Kind::correction, optimizer_.beta2);
      if (!beta1) return;
      used.beta1 = scalar(Kind::value, 0.0, beta1);
      used.rest_1 = scalar(Kind::rest, 0.0, beta1);
      return;
    }
    if (const std::optional<size_t> momentum = place("momentum")) {
      used.momentum = scalar(Kind::value, 0.0, momentum);
    }
    if (has_momentum(optimizer_, used) && optimizer_.dampening != 0.0) {
      used.share = scalar(Kind::share, optimizer_.dampening);
    }
  }

 private:
  using Kind = StepScalar::Kind;

  std::optional<size_t> place(std::string_view key) const {
    return scheduled_at(spec_.scheduled, group_, key);
  }

  /// Returns the input for the learning rate.
  ValueId rate() {
    const std::optional<size_t> scheduled = place("lr");
    const double own = optimizer_.learning_rate;
    if (!scheduled && own == spec_.optimizer.learning_rate) return out_.learning_rate;
    for (const GroupRate& each : out_.group_rates) {
      if (each.scheduled == scheduled && (scheduled || each.rate == own)) return each.value;
    }
    const std::string name = "learning_rate_" + std::to_string(out_.group_rates.size() + 1);
    out_.group_rates.push_back({own, out_.graph.add_input(name, {}), scheduled});
    return out_.group_rates.back().value;
  }

  /// Returns the input for a scalar, which all updates that read it share.
  ValueId scalar(Kind kind, double parameter, const std::optional<size_t>& scheduled = {}) {
    const StepScalar wanted{kind, scheduled ? 0.0 : parameter};  // the caller writes the others
    for (const StepInput& each : out_.step_scalars) {
      if (each.scalar == wanted && each.scheduled == scheduled) return each.value;
    }
    const std::string name = "step_scalar_" + std::to_string(out_.step_scalars.size() + 1);
    out_.step_scalars.push_back({wanted, out_.graph.add_input(name, {}), scheduled});
    return out_.step_scalars.back().value;
  }

  Executable& out_;
  const TrainingSpec& spec_;
  const ParameterGroup* group_;
  const Optimizer& optimizer_;
};

}  // namespace

void add_steps(Executable& out, const Plan& plan, const TrainingSpec& spec, UpdateScalars used,
               const std::vector<size_t>& trained, std::vector<ValueId> gradients, SiteNames& names,
               std::vector<ValueId>& targets) {
  Graph& graph = out.graph;
  const bool clips = spec.clips && plan.clip != kFp32;
  std::vector<std::string> paths;
  for (const size_t i : trained) paths.push_back(graph.variables()[i].path);
  if (spec.divides_by_scale) divide_by_scale(graph, gradients, paths, used);
  if (clips) {
    out.clip_limit = graph.add_input("clip_limit", {});
    const ClippedGradients all =
        add_clipping(graph, gradients, paths, used.inverse_scale, out.clip_limit, plan);
    for (size_t i = 0; i < trained.size(); ++i) {
      names[all.unscaled[i]] = {paths[i], "_grad_unscaled", Role::weight_grad, Phase::update};
      names[all.clipped[i]] = {paths[i], "_grad_clipped", Role::weight_grad, Phase::update};
    }
    names[all.norm] = {"clipping.norm", "", Role::weight_grad, Phase::update};
    gradients = all.clipped;
  }
  if (clips) used.inverse_scale = used.clip = graph.add_constant(1.0f);
  for (size_t i = 0; i < trained.size(); ++i) {
    const Variable variable = graph.variables()[trained[i]];
    const FloatFormat stored = graph.value(variable.value).format;
    const FloatFormat state = plan.state.value_or(spec.state_format.value_or(stored));
    const Optimizer optimizer = optimizer_of(spec.optimizer, spec.groups, variable);
    UpdateInputs(out, spec, variable, optimizer).set(used);
    const Update update = plan.update_compute == kFp32
                              ? add_update(graph, trained[i], gradients[i], optimizer, used, state)
                              : add_rounded_update(graph, trained[i], gradients[i], optimizer, used,
                                                   state, plan.update_compute, clips, spec.clips);
    names[update.value] = {variable.path, "_update", Role::update, Phase::update};
    for (const auto& [value, suffix] : update.states) {
      names[value] = {variable.path, "_" + suffix, Role::state, Phase::update};
    }
    if (update.unscaled != kNone) {
      names[update.unscaled] = {variable.path, "_grad_unscaled", Role::weight_grad, Phase::update};
    }
    if (update.decay != kNone) {
      graph.value(graph.node(graph.value(update.decay).producer).outputs[0]).rounding =
          plan.storage_rounding;
      names[update.decay] = {variable.path, "_decay_update", Role::update, Phase::update};
    }
    targets.push_back(update.value);
    if (!spec.average) continue;
    const AverageValues average = add_weight_average(
        graph, trained[i], *spec.average, plan.average.value_or(stored), plan.average_compute);
    names[average.next] = {variable.path, "_ema", Role::state, Phase::update};
    names[average.update] = {variable.path, "_ema_update", Role::update, Phase::update};
    targets.push_back(average.update);
    out.averages.push_back({variable.path, variable.value, average.average});
  }
}

}  // namespace halfscope
