// SPDX-License-Identifier: MIT
#include "core/train/lane_setup.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/models/models.h"
#include "core/near_miss.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// Every weight that is not zero one ulp up or down.
void perturb(Tensor& tensor, uint64_t seed, uint64_t index) {
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    const uint64_t bits = splitmix64(splitmix64(seed) + (index << 40) + i);
    uint32_t code = std::bit_cast<uint32_t>(tensor.data[i]);
    if ((code & 0x7fffffffu) != 0) code += (bits & 1) != 0 ? 1u : ~0u;
    tensor.data[i] = std::bit_cast<float>(code);
  }
}

/// Into a variable of any format: as they are where it holds them, else rounded.
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

/// `weights` are those that the model starts from; the others are drawn.
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
    if (found == weights.end()) {
      throw usage_error("initial weights: the model has no variable " + key,
                        did_you_mean(key, paths, "variables: " + comma_list(paths)))
          .about({"init"});
    }
    if (found->second.shape != tensor.shape) {
      throw usage_error("initial weights: " + key + " has shape " + to_string(tensor.shape) +
                        ", the model needs " + to_string(found->second.shape))
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
  tensors.clear();
#if defined(__GLIBC__)
  malloc_trim(0);  // it keeps what was in use once, unless told
#endif
}

void write_weights(Program& program, const Graph& graph, const NamedTensors& weights,
                   uint64_t noise_seed) {
  uint64_t index = 0;
  for (const Variable& variable : graph.variables()) {
    const auto found = weights.find(variable.path);
    if (found == weights.end()) continue;
    if (noise_seed == 0 || variable.buffer) {
      program.write(variable.value, found->second.data);
      continue;
    }
    Tensor tensor = found->second;
    perturb(tensor, noise_seed, index++);
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

/// The lane's kernels are not the emulator's, and are checked by it.
bool checks_kernels(const ErrorSampling& errors, const LaneConfig& lane) {
  return errors.enabled && errors.emulator != nullptr && has_own_kernels(lane.backend->name());
}

}  // namespace

std::vector<std::pair<size_t, size_t>> lane_pairs(const ErrorSampling& errors,
                                                  std::span<const LaneConfig> lanes) {
  std::vector<std::pair<size_t, size_t>> pairs;
  if (!errors.enabled) return pairs;
  const auto lane_named = [&](const std::string& name) {
    std::vector<std::string> names;
    for (size_t i = 0; i < lanes.size(); ++i) {
      names.push_back(lanes[i].name());
      if (names.back() != name) continue;
      // Its tensors have no format to count distances in, and no sites in the run.
      if (lanes[i].plan.double_precision) {
        throw usage_error("lane " + name + " computes in double and cannot be compared",
                          "compare lanes of other plans, for example with float32")
            .about({"compare"});
      }
      return i;
    }
    throw usage_error("no lane is named " + name,
                      did_you_mean(name, names, "lanes: " + comma_list(names)))
        .about({"compare"});
  };
  for (const auto& [lane, other] : errors.pairs) {
    const size_t first = lane_named(lane);  // before the other, so that the message names it first
    pairs.emplace_back(first, lane_named(other));
  }
  if (!errors.pairs.empty()) return pairs;
  const auto reference = std::find_if(lanes.begin(), lanes.end(), [](const LaneConfig& lane) {
    return is_full_precision(lane.plan) && !lane.plan.double_precision;
  });
  for (size_t i = 0; i < lanes.size() && reference != lanes.end(); ++i) {
    const size_t other = static_cast<size_t>(reference - lanes.begin());
    if (i != other && !lanes[i].plan.double_precision) pairs.emplace_back(i, other);
  }
  const bool checks = std::any_of(lanes.begin(), lanes.end(), [&](const LaneConfig& lane) {
    return checks_kernels(errors, lane);
  });
  if (errors.every > 0 && pairs.empty() && !checks) {
    throw usage_error(
        "there is nothing to compare every " + std::to_string(errors.every) + " steps",
        "add a lane to compare with the reference, or name two with --compare")
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

}  // namespace halfscope
