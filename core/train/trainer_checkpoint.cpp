// SPDX-License-Identifier: MIT
// Writing checkpoints of a training and resuming from them.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/near_miss.h"
#include "core/number_text.h"
#include "core/ops/ops.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"

namespace halfscope {
namespace {

/// Truncated to the bits that a double represents exactly, to compare set-ups of checkpoints.
double text_hash(const std::string& text) { return static_cast<double>(fnv1a(text) >> 12); }

/// Checks that the state of delayed scaling is one that it could have written.
void check_scale_states(const std::string& lane, const Graph& graph, const LaneCheckpoint& saved) {
  for (const Node& node : graph.nodes()) {
    if (node.op != "ScaleUpdate") continue;
    const Variable& variable = *graph.variable_of(node.inputs.at(1));
    const std::vector<double>& state = saved.variables.at(variable.path).data;
    const double places = static_cast<double>(state.size()) - kScaleStateHead;
    const bool good = std::isfinite(state[0]) && state[0] >= 0.0 && state[1] >= 0.0 &&
                      state[1] < places && state[1] == std::floor(state[1]) &&
                      std::none_of(state.begin() + kScaleStateHead, state.end(),
                                   [](double amax) { return amax < 0.0; });
    if (good) continue;
    throw Error("the checkpoint of lane " + lane + " is damaged: '" + variable.path +
                    "' is not a valid state of delayed scaling",
                "resume from another checkpoint");
  }
}

/// Returns whether a variable has gradients of ranks, which every step recomputes.
bool is_rank_stack(const Executable& executable, ValueId variable) {
  return std::any_of(
      executable.reduced.begin(), executable.reduced.end(),
      [&](const ReducedGradient& each) { return each.stack == variable || each.mean == variable; });
}

/// Returns the number of variables that a checkpoint contains.
size_t kept_variables(const Executable& executable) {
  const std::vector<Variable>& all = executable.graph.variables();
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Variable& variable) {
    return !is_rank_stack(executable, variable.value);
  }));
}

/// Returns the lane name under which a rank that diverged from rank 0 is stored.
std::string replica_name(const std::string& lane, size_t rank) {
  return lane + "#rank" + std::to_string(rank);
}

}  // namespace

std::map<std::string, double> Trainer::setup(int64_t done) const {
  std::map<std::string, double> setup{
      {"batch", static_cast<double>(config_.batch)},
      {"micro_batches", static_cast<double>(config_.micro_batches)},
      {"seed", static_cast<double>(config_.seed)},
      {"shuffle", config_.shuffle ? 1.0 : 0.0},
      {"training_samples", static_cast<double>(data_.train.size())}};
  setup["model"] = text_hash(config_.model);
  setup["data"] = text_hash(data_.name);
  setup["optimizer"] = text_hash(optimizer_text(config_.optimizer));
  std::string groups;
  for (const ParameterGroup& group : config_.groups) groups += parameter_group_text(group) + '\n';
  if (!groups.empty()) setup["param_group"] = text_hash(groups);
  std::string schedule = schedule_text(config_.schedule);
  if (config_.schedule.kind == Schedule::Kind::file) {  // the file may have moved, or become longer
    schedule.clear();
    for (int64_t step = 0; step < done; ++step) {
      schedule += number_text(config_.schedule.rates[static_cast<size_t>(step)]) + '\n';
    }
  }
  setup["schedule"] = text_hash(schedule);
  setup["clip_norm"] = config_.clip_norm;
  if (config_.clip_before_unscale) setup["clip_before_unscale"] = 1.0;
  if (config_.unscale_only) setup["unscale_only"] = 1.0;
  setup["accumulate_grads"] =
      config_.sum_format ? text_hash(format_name(*config_.sum_format)) : 0.0;
  if (!config_.loss.empty()) setup["loss"] = text_hash(config_.loss);
  if (!config_.running_variance.empty()) {
    setup["running_variance"] = text_hash(config_.running_variance);
  }
  if (config_.ranks > 1) {
    setup["ranks"] = static_cast<double>(config_.ranks);
    setup["reduce"] = text_hash(reduction_text(config_.reduction));
  }
  if (config_.average) setup["ema"] = text_hash(weight_average_text(*config_.average));
  if (config_.state_format) setup["state_format"] = text_hash(format_name(*config_.state_format));
  for (const auto& lane : lanes_) {
    const std::string& name = lane->config.name();
    setup["plan of " + name] = text_hash(plan_to_json(lane->config.plan));
    setup["loss scale of " + name] = text_hash(loss_scale_text(lane->config.scaler));
  }
  if (depends_on_length(config_.schedule)) setup["steps"] = static_cast<double>(config_.steps);
  return setup;
}

/// Writes a checkpoint, unless a lane has failed: training could not resume from it.
void Trainer::write_checkpoint() const {
  if (!config_.checkpoint.empty() && lanes_.lost().empty()) {
    save_checkpoint(config_.checkpoint, checkpoint());
  }
}

Checkpoint Trainer::checkpoint() const {
  Checkpoint result;
  result.step = step_;
  result.stale_evaluations = stale_evaluations_;
  result.setup = setup(step_);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = whole_lane(static_cast<int>(i));
    LaneCheckpoint& saved = result.lanes[lane.config.name()];
    saved.scaler = lane.state.scaler;
    saved.updates = lane.state.updates;
    saved.best_loss = lane.best_loss;
    const Graph& graph = lane.executable.graph;
    for (const Variable& variable : graph.variables()) {
      if (is_rank_stack(lane.executable, variable.value)) continue;
      saved.variables[variable.path] = {graph.value(variable.value).shape,
                                        lane.program->read_exact(variable.value)};
    }
    const std::vector<Replica> replicas =
        lane.ranks != nullptr ? lane.ranks->replicas() : std::vector<Replica>{};
    for (size_t rank = 0; rank < replicas.size(); ++rank) {
      LaneCheckpoint& copy = result.lanes[replica_name(lane.config.name(), rank)];
      copy.scaler = replicas[rank].state.scaler;
      copy.updates = replicas[rank].state.updates;
      for (const Variable& variable : graph.variables()) {
        if (is_rank_stack(lane.executable, variable.value)) continue;
        copy.variables[variable.path] = {graph.value(variable.value).shape,
                                         replicas[rank].variables.at(variable.value)};
      }
    }
  }
  return result;
}

void Trainer::resume(const Checkpoint& checkpoint) {
  if (checkpoint.step > config_.steps) {
    throw usage_error("the checkpoint was taken after step " + std::to_string(checkpoint.step) +
                          ", but only " + std::to_string(config_.steps) + " steps are requested",
                      "request more steps with --steps");
  }
  for (const auto& lane : lanes_) {
    const std::string& name = lane->config.name();
    if (checkpoint.lanes.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [known, unused] : checkpoint.lanes) names.push_back(known);
    throw usage_error("the checkpoint has no lane '" + name + "'",
                      "use its lanes: " + comma_list(names));
  }
  std::map<std::string, double> wanted = setup(checkpoint.step);
  for (const char* key : {"ranks", "reduce", "param_group"}) {  // kept only where there are any
    if (checkpoint.setup.contains(key)) wanted.try_emplace(key, 0.0);
  }
  for (const auto& [key, value] : wanted) {
    const auto found = checkpoint.setup.find(key);
    if (found == checkpoint.setup.end() || found->second != value) {
      throw usage_error("the checkpoint was made with another value of " + key,
                        "resume with the arguments of the run that wrote it")
          .about({key});
    }
  }
  for (const auto& lane : lanes_) {
    const std::string& name = lane->config.name();
    const LaneCheckpoint& saved = checkpoint.lanes.at(name);
    const Graph& graph = lane->executable.graph;
    for (const Variable& variable : graph.variables()) {
      if (is_rank_stack(lane->executable, variable.value)) continue;
      const auto tensor = saved.variables.find(variable.path);
      if (tensor == saved.variables.end() ||
          tensor->second.shape != graph.value(variable.value).shape) {
        throw usage_error(
            "the checkpoint of lane " + name + " does not fit: '" + variable.path +
                (tensor == saved.variables.end() ? "' is missing" : "' has another shape"),
            "resume with the model and optimizer of the run that wrote it");
      }
    }
    if (saved.variables.size() != kept_variables(lane->executable)) {
      throw usage_error(
          "the checkpoint of lane " + name + " contains variables that the run does not have",
          "resume with the model and optimizer of the run that wrote it");
    }
  }
  for (const auto& lane : lanes_) {
    const std::string& name = lane->config.name();
    check_scale_states(name, lane->executable.graph, checkpoint.lanes.at(name));
  }
  step_ = checkpoint.step;
  start_.clear();  // how far the weights have moved since the start is unknown
  lanes_.move_lost(step_);
  for (const auto& lane : lanes_) {
    if (lane->lost) continue;
    const LaneCheckpoint& saved = checkpoint.lanes.at(lane->config.name());
    lanes_.set_up(*lane, step_, [&] {
      for (const Variable& variable : lane->executable.graph.variables()) {
        if (is_rank_stack(lane->executable, variable.value)) continue;
        lane->program->write_exact(variable.value, saved.variables.at(variable.path).data);
      }
    });
    lane->state = {saved.scaler, saved.updates};
    lane->best_loss = saved.best_loss;
    if (lane->ranks != nullptr) resume_replicas(*lane, checkpoint);
  }
  lanes_.check_any();
  stale_evaluations_ = checkpoint.stale_evaluations;
}

void Trainer::resume_replicas(Lane& lane, const Checkpoint& checkpoint) const {
  const std::string& name = lane.config.name();
  std::vector<Replica> replicas;
  for (size_t rank = 0; rank < static_cast<size_t>(config_.ranks); ++rank) {
    const auto saved = checkpoint.lanes.find(replica_name(name, rank));
    if (saved == checkpoint.lanes.end()) break;
    Replica& replica = replicas.emplace_back();
    replica.state = {saved->second.scaler, saved->second.updates};
    for (const Variable& variable : lane.executable.graph.variables()) {
      if (is_rank_stack(lane.executable, variable.value)) continue;
      const auto tensor = saved->second.variables.find(variable.path);
      if (tensor == saved->second.variables.end() ||
          tensor->second.shape != lane.executable.graph.value(variable.value).shape) {
        throw Error("the checkpoint of lane " + name + " is damaged: rank " + std::to_string(rank) +
                        " has no valid '" + variable.path + "'",
                    "resume from another checkpoint");
      }
      replica.variables[variable.value] = tensor->second.data;
    }
  }
  if (!replicas.empty() && replicas.size() != static_cast<size_t>(config_.ranks)) {
    throw Error("the checkpoint of lane " + name + " is damaged: a rank is missing",
                "resume from another checkpoint");
  }
  lane.ranks->set_replicas(std::move(replicas));
}

}  // namespace halfscope
