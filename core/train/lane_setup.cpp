// SPDX-License-Identifier: MIT
#include "core/train/lane_setup.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/memory.h"
#include "core/models/models.h"
#include "core/near_miss.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/observe/deviation.h"
#include "core/policy/policy.h"
#include "core/train/probe.h"

namespace halfscope {
namespace {

/// Writes values to a variable of any format, rounded if it cannot represent them.
void write_values(Program& program, const Graph& graph, ValueId from, ValueId to,
                  const std::vector<double>& values) {
  if (graph.value(to).format.contains(graph.value(from).format)) {
    program.write_exact(to, values);
  } else {
    program.write(to, std::vector<float>(values.begin(), values.end()));
  }
}

}  // namespace

namespace {

/// Returns whether this is the counter that PyTorch keeps beside a batch normalization's running
/// statistics, which we have no use for.
bool counts_batches(const std::string& key, const std::map<std::string, std::string>& by_dots) {
  constexpr std::string_view kCounter = "num_batches_tracked";
  std::string dotted = key;
  std::replace(dotted.begin(), dotted.end(), '/', '.');
  return dotted.ends_with(kCounter) &&
         by_dots.contains(dotted.substr(0, dotted.size() - kCounter.size()) + "running_mean");
}

/// `weights` are initial values from the model; missing ones are drawn.
NamedTensors complete_weights(const Graph& graph, NamedTensors weights, uint64_t seed,
                              const NamedTensors& init) {
  weights.merge(initial_weights(graph, seed, weights));
  std::map<std::string, std::string> by_dots;
  std::vector<std::string> paths;
  for (const auto& [path, unused] : weights) {
    std::string dotted = path;
    std::replace(dotted.begin(), dotted.end(), '/', '.');
    by_dots[dotted] = path;
    paths.push_back(path);
  }
  NamedTensors averages;
  for (const auto& [given, tensor] : init) {
    const std::string suffix = average_path("");
    const bool average =
        given.ends_with(suffix) && !by_dots.contains(given) && !weights.contains(given);
    const std::string key = average ? given.substr(0, given.size() - suffix.size()) : given;
    const auto dotted = by_dots.find(key);
    const auto found = weights.find(dotted == by_dots.end() ? key : dotted->second);
    if (found == weights.end() && counts_batches(key, by_dots)) continue;
    if (found == weights.end()) {
      throw usage_error("initial weights: the model has no variable '" + key + "'",
                        did_you_mean(key, paths, "variables: " + comma_list(paths)))
          .about({"init"});
    }
    if (found->second.shape != tensor.shape) {
      throw usage_error("initial weights: '" + key + "' has shape " + to_string(tensor.shape) +
                        ", but the model needs " + to_string(found->second.shape))
          .about({"init"});
    }
    (average ? averages[average_path(found->first)] : found->second) = tensor;
  }
  weights.merge(averages);
  return weights;
}

}  // namespace

NamedTensors starting_weights(const Model& model, uint64_t seed, const NamedTensors& init) {
  return complete_weights(model.graph, model.initial, seed, init);
}

NamedTensors take_starting_weights(Model& model, uint64_t seed, const NamedTensors& init) {
  return complete_weights(model.graph, std::exchange(model.initial, {}), seed, init);
}

void free_tensors(NamedTensors& tensors) {
  size_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.data.size();
  tensors.clear();
  constexpr size_t kMany = 1 << 20;  // fewer are soon needed again
  if (elements >= kMany) give_back_memory();
}

namespace {

/// Changes an initial value as the lane asks: rounded once as by model.half(), moved by one ulp in
/// a twin. `index` is that of the variable in the graph.
void prepare(Tensor& value, const LaneConfig& lane, const Variable& variable, size_t index) {
  if (lane.plan.initial) {
    for (float& x : value.data) x = round_to_format(x, *lane.plan.initial).value;
  }
  if (lane.noise_seed == 0 || variable.buffer) return;
  const auto bits = lane.noise_bits.find(variable.path);
  move_by_ulp(value.data, bits == lane.noise_bits.end() ? kFp32.mantissa_bits : bits->second,
              splitmix64(lane.noise_seed) + (static_cast<uint64_t>(index) << 40));
}

bool prepares(const LaneConfig& lane) { return lane.plan.initial || lane.noise_seed != 0; }

}  // namespace

NamedTensors moved_start(const Graph& graph, NamedTensors start, const LaneConfig& lane) {
  for (size_t i = 0; prepares(lane) && i < graph.variables().size(); ++i) {
    const Variable& variable = graph.variables()[i];
    const auto found = start.find(variable.path);
    if (found != start.end()) prepare(found->second, lane, variable, i);
  }
  return start;
}

void leave_loss_unscaled(Graph& graph, ValueId loss_scale, int64_t micro_batches) {
  const ValueId start = graph.add_constant(1.0f / static_cast<float>(micro_batches));
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    for (ValueId& input : graph.node(id).inputs) input = input == loss_scale ? start : input;
  }
}

void write_weights(Program& program, const Graph& graph, const NamedTensors& weights,
                   const LaneConfig& lane) {
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const Variable& variable = graph.variables()[i];
    const auto found = weights.find(variable.path);
    if (found == weights.end()) continue;
    if (!prepares(lane)) {
      program.write(variable.value, found->second.data);
      continue;
    }
    Tensor tensor = found->second;
    prepare(tensor, lane, variable, i);
    program.write(variable.value, tensor.data);
  }
}

void write_averages(Program& program, const Executable& executable, const NamedTensors& weights) {
  for (const AveragedVariable& each : executable.averages) {
    const auto found = weights.find(average_path(each.path));
    if (found != weights.end()) {
      program.write(each.average, found->second.data);
    } else {
      write_values(program, executable.graph, each.variable, each.average,
                   program.read_exact(each.variable));
    }
  }
}

std::vector<std::vector<double>> put_averages(Program& program, const Executable& executable) {
  std::vector<std::vector<double>> weights;
  for (const AveragedVariable& each : executable.averages) {
    weights.push_back(program.read_exact(each.variable));
    write_values(program, executable.graph, each.average, each.variable,
                 program.read_exact(each.average));
  }
  return weights;
}

void put_back(Program& program, const Executable& executable,
              const std::vector<std::vector<double>>& weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    program.write_exact(executable.averages[i].variable, weights[i]);
  }
}

namespace {

/// Returns whether the emulator checks the lane's kernels, because they are not its own.
bool checks_kernels(const ErrorSampling& errors, const LaneConfig& lane) {
  return errors.enabled && errors.emulator != nullptr && has_own_kernels(lane.backend->name());
}

}  // namespace

std::vector<LaneConfig> with_references(std::vector<LaneConfig> lanes) {
  const auto is_plain = [](const LaneConfig& lane) {
    return plan_to_json(lane.plan) == plan_to_json(Plan{});
  };
  const auto first = std::find_if(lanes.begin(), lanes.end(), [](const LaneConfig& lane) {
    return is_full_precision(lane.plan) && !lane.plan.double_precision;
  });
  if (first == lanes.end()) return lanes;
  const auto lowering = [](const LaneConfig& lane) {
    return plan_to_json(reference_of(lane.plan));
  };
  std::vector<LaneConfig> added;
  bool plain_is_wanted = false;
  for (const LaneConfig& lane : lanes) {
    plain_is_wanted =
        plain_is_wanted || (!is_full_precision(lane.plan) && lowering(lane) == lowering({}));
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (is_full_precision(lanes[i].plan)) continue;
    const auto serves = [&](const LaneConfig& lane) {
      return is_full_precision(lane.plan) && !lane.plan.double_precision &&
             lowering(lane) == lowering(lanes[i]);
    };
    if (std::any_of(lanes.begin(), lanes.end(), serves) ||
        std::any_of(added.begin(), added.end(), serves)) {
      continue;
    }
    if (is_plain(*first) && !plain_is_wanted) {
      const std::string name = first->plan.name;
      first->plan = reference_of(lanes[i].plan);
      first->plan.name = name;
      plain_is_wanted = true;  // it has its use
      continue;
    }
    LaneConfig reference{
        .plan = reference_of(lanes[i].plan), .scaler = {}, .backend = first->backend};
    reference.plan.name = "float32~" + lanes[i].name();
    added.push_back(std::move(reference));
  }
  // Next to the first one, so that the last lane is still the user's.
  lanes.insert(first + 1 == lanes.end() ? first : first + 1, added.begin(), added.end());
  return lanes;
}

std::vector<std::pair<size_t, size_t>> lane_pairs(const ErrorSampling& errors,
                                                  std::span<const LaneConfig> lanes) {
  std::vector<std::pair<size_t, size_t>> pairs;
  if (!errors.enabled) return pairs;
  const auto lane_named = [&](const std::string& name) {
    std::vector<std::string> names;
    for (size_t i = 0; i < lanes.size(); ++i) {
      names.push_back(lanes[i].name());
      if (names.back() != name) continue;
      // Its tensors have no format to measure distances in, and no sites in the run.
      if (lanes[i].plan.double_precision) {
        throw usage_error("lane '" + name + "' runs in double precision and cannot be compared",
                          "compare other lanes, for example with float32")
            .about({"compare"});
      }
      return i;
    }
    throw usage_error("there is no lane '" + name + "'",
                      did_you_mean(name, names, "lanes: " + comma_list(names)))
        .about({"compare"});
  };
  for (const auto& [lane, other] : errors.pairs) {
    const size_t first = lane_named(lane);  // before the other, so that the message names it first
    pairs.emplace_back(first, lane_named(other));
  }
  if (!errors.pairs.empty()) return pairs;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const int other = reference_for(lanes, i);
    if (other < 0 || lanes[i].plan.double_precision) continue;
    if (lanes[static_cast<size_t>(other)].plan.double_precision) continue;
    pairs.emplace_back(i, static_cast<size_t>(other));
  }
  const bool checks = std::any_of(lanes.begin(), lanes.end(), [&](const LaneConfig& lane) {
    return checks_kernels(errors, lane);
  });
  if (errors.every > 0 && pairs.empty() && !checks) {
    throw usage_error("no two lanes to compare every " + std::to_string(errors.every) + " steps",
                      "add a lane to compare with the reference, or name two lanes with --compare")
        .about({"errors_every"});
  }
  return pairs;
}

std::unique_ptr<KernelChecker> kernel_checker(const ErrorSampling& errors, const LaneConfig& lane,
                                              const Executable& executable) {
  if (!checks_kernels(errors, lane)) return nullptr;
  return std::make_unique<KernelChecker>(executable, *lane.backend, *errors.emulator,
                                         errors.orders);
}

LaneInfo describe_lane(const LaneConfig& lane, const Executable& executable) {
  LaneInfo info;
  info.name = lane.name();
  info.backend = lane.backend->name();
  info.plan_json = plan_to_json(lane.plan);
  info.loss_scale = loss_scale_text(lane.scaler);
  info.layers = executable.layers;
  // A program that computes in double has no formats and therefore no sites.
  if (!lane.plan.double_precision) {
    for (const Tap& tap : executable.taps) info.sites.push_back(tap.site);
  }
  return info;
}

}  // namespace halfscope
