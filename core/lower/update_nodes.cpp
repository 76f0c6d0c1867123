// SPDX-License-Identifier: MIT
#include "core/lower/update_nodes.h"

#include <string>

#include "core/lower/rounded_steps.h"
#include "core/lower/weight_average.h"

namespace halfscope {
namespace {

/// Returns the input for the learning rate of a variable's optimizer.
ValueId rate_input(Executable& out, const Optimizer& base, const Optimizer& optimizer) {
  if (optimizer.learning_rate == base.learning_rate) return out.learning_rate;
  for (const GroupRate& each : out.group_rates) {
    if (each.rate == optimizer.learning_rate) return each.value;
  }
  const std::string name = "learning_rate_" + std::to_string(out.group_rates.size() + 1);
  out.group_rates.push_back({optimizer.learning_rate, out.graph.add_input(name, {})});
  return out.group_rates.back().value;
}

/// Returns the input for a scalar, which all updates that read it share.
ValueId step_input(Executable& out, const StepScalar& scalar) {
  for (const StepInput& each : out.step_scalars) {
    if (each.scalar == scalar) return each.value;
  }
  const std::string name = "step_scalar_" + std::to_string(out.step_scalars.size() + 1);
  out.step_scalars.push_back({scalar, out.graph.add_input(name, {})});
  return out.step_scalars.back().value;
}

/// Sets the scalars that the update of a variable by `optimizer` reads.
void set_scalars(Executable& out, const Optimizer& base, const Optimizer& optimizer,
                 UpdateScalars& used) {
  used.learning_rate = rate_input(out, base, optimizer);
  if (is_adam(optimizer)) {
    used.correction_1 = step_input(out, {StepScalar::Kind::correction, optimizer.beta1});
    used.correction_2 = step_input(out, {StepScalar::Kind::correction, optimizer.beta2});
  }
  const bool dampens = optimizer.momentum != 0.0 && optimizer.dampening != 0.0;
  used.share = dampens ? step_input(out, {StepScalar::Kind::share, optimizer.dampening}) : kNone;
}

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
    set_scalars(out, spec.optimizer, optimizer, used);
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
