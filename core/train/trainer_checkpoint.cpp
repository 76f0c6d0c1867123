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
#include "core/train/content_hash.h"
#include "core/train/trainer.h"

namespace halfscope {
namespace {

// Keys of Checkpoint::setup that are not settings: of a lane, and what --model and --data stand
// for.
constexpr const char* kPlanOf = "plan of ";
constexpr const char* kScaleOf = "loss scale of ";
constexpr const char* kNetwork = "network";
constexpr const char* kSamples = "samples";

/// Truncated to the bits that a double represents exactly, to compare set-ups of checkpoints.
double kept_hash(uint64_t hash) { return static_cast<double>(hash >> 12); }
double text_hash(const std::string& text) { return kept_hash(fnv1a(text)); }

bool is_of_lane(const std::string& key) {
  return key.starts_with(kPlanOf) || key.starts_with(kScaleOf);
}

/// "--clip-norm"
std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

/// Compares the settings of a checkpoint with the ones that the training has now. Throws Error
/// (usage) that names all differences. Lanes of the checkpoint may be missing.
void check_setup(const std::map<std::string, double>& saved,
                 const std::map<std::string, double>& wanted) {
  std::vector<std::string> texts, keys, contents;
  const auto compare = [&](const std::string& key) {
    const auto before = saved.find(key), now = wanted.find(key);
    if (before != saved.end() && now != wanted.end() && before->second == now->second) return;
    if (key == kNetwork || key == kSamples) {
      contents.push_back(key == kNetwork ? "with another network in --model"
                                         : "with other samples in --data");
    } else if (is_of_lane(key)) {
      texts.push_back("with another " + key);
    } else {
      keys.push_back(key);
      texts.push_back(now == wanted.end()     ? "with " + flag_of(key) + " (missing here)"
                      : before == saved.end() ? "without " + flag_of(key)
                                              : "with another " + flag_of(key));
    }
  };
  for (const auto& [key, unused] : wanted) compare(key);
  for (const auto& [key, unused] : saved) {
    if (!wanted.contains(key) && !is_of_lane(key)) compare(key);
  }
  // Settings say more than the contents that follow from them.
  const std::vector<std::string>& differences = texts.empty() ? contents : texts;
  if (differences.empty()) return;
  throw usage_error("the checkpoint was made " + comma_list(differences),
                    "resume with the arguments of the run that wrote it")
      .about(keys);
}

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

/// Settings at their default are left out, so that a new setting fits old checkpoints.
std::map<std::string, double> Trainer::setup(int64_t done) const {
  std::map<std::string, double> setup{{"batch", static_cast<double>(config_.batch)},
                                      {"seed", static_cast<double>(config_.seed)}};
  const auto put = [&](const std::string& key, const std::string& text) {
    if (!text.empty()) setup[key] = text_hash(text);
  };
  const auto put_number = [&](const std::string& key, double value, double usual) {
    if (value != usual) setup[key] = value;
  };
  put("model", config_.model);
  for (const auto& [key, text] : config_.network) put(key, text);
  put("data", data_.name);
  put_number("no_shuffle", config_.shuffle ? 0.0 : 1.0, 0.0);
  put_number("micro_batches", static_cast<double>(config_.micro_batches), 1.0);
  put("accumulate_grads", config_.sum_format ? format_name(*config_.sum_format) : "");
  put("optimizer", optimizer_text(config_.optimizer));
  put("optimizer_state", config_.state_format ? format_name(*config_.state_format) : "");
  std::string groups;
  for (const ParameterGroup& group : config_.groups) groups += parameter_group_text(group) + '\n';
  put("param_group", groups);
  put("schedule", schedule_text(config_.schedule));
  if (config_.schedule.kind == Schedule::Kind::file) {  // the file may have moved, or become longer
    std::string rates = "file ";
    const auto add = [&](const std::vector<double>& values) {
      for (int64_t step = 0; step < done; ++step) {
        rates += number_text(values[static_cast<size_t>(step)]) + '\n';
      }
    };
    add(config_.schedule.rates);
    for (const OptionSeries& each : config_.schedule.series) {
      rates += scheduled_option_text(each.option) + '\n';
      add(each.values);
    }
    put("schedule", rates);
  }
  if (depends_on_length(config_.schedule)) setup["steps"] = static_cast<double>(config_.steps);
  put_number("clip_norm", config_.clip_norm, 0.0);
  put_number("clip_before_unscale", config_.clip_before_unscale ? 1.0 : 0.0, 0.0);
  put_number("unscale_only", config_.unscale_only ? 1.0 : 0.0, 0.0);
  put("ema", config_.average ? weight_average_text(*config_.average) : "");
  if (config_.ranks > 1) {
    setup["ranks"] = static_cast<double>(config_.ranks);
    put("reduce", reduction_text(config_.reduction));
  }
  for (const auto& lane : lanes_) {
    const std::string& name = lane->config.name();
    put(kPlanOf + name, plan_to_json(lane->config.plan));
    put(kScaleOf + name, loss_scale_text(lane->config.scaler));
  }
  const auto put_contents = [&](const char* key, uint64_t hash) { setup[key] = kept_hash(hash); };
  put_contents(kNetwork, fnv1a(std::to_string(model_.loss), hash_structure(model_.graph)));
  if (!samples_hash_) {
    std::string scaling;
    for (const std::vector<double>* list : {&data_.mean, &data_.deviation}) {
      for (const double value : *list) scaling += number_text(value) + ' ';
    }
    samples_hash_ = hash_samples(data_.train, fnv1a(scaling));
  }
  put_contents(kSamples, *samples_hash_);
  return setup;
}

/// Writes a checkpoint, unless a lane has failed: training could not resume from it.
void Trainer::write_checkpoint() const {
  if (!config_.checkpoint.empty() && lanes_.lost().empty()) {
    save_checkpoint(config_.checkpoint, checkpoint());
  }
}

NamedDoubleTensors Trainer::variables(int lane) const {
  const Lane& which = whole_lane(lane);
  const Graph& graph = which.executable.graph;
  NamedDoubleTensors variables;
  for (const Variable& variable : graph.variables()) {
    if (is_rank_stack(which.executable, variable.value)) continue;
    variables[variable.path] = {graph.value(variable.value).shape,
                                which.program->read_exact(variable.value)};
  }
  return variables;
}

void Trainer::write_variables(Lane& lane, const NamedDoubleTensors& variables) {
  for (const Variable& variable : lane.executable.graph.variables()) {
    if (is_rank_stack(lane.executable, variable.value)) continue;
    lane.program->write_exact(variable.value, variables.at(variable.path).data);
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
    saved.variables = variables(static_cast<int>(i));
    const Graph& graph = lane.executable.graph;
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
  check_setup(checkpoint.setup, setup(checkpoint.step));
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
    lanes_.set_up(*lane, step_, [&] { write_variables(*lane, saved.variables); });
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
