// SPDX-License-Identifier: MIT
// The engines that cuDNN's heuristics propose for a convolution, what cuDNN says about them, and
// the order in which we try them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpu/libraries/cudnn_descriptor.cuh"
#include "gpu/libraries/product_plan.h"

#if CUDNN_VERSION >= 90800
#define HALFSCOPE_CUDNN_DESCRIBES_DEVICES  // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
#endif

namespace halfscope::gpu::cudnn {

/// An engine and its knobs.
struct Choice {
  int64_t engine = -1;
  std::vector<std::string> knobs{}, against{};  ///< against: why reproducible mode rejects it
  bool tensor_cores = false, compiled_now = false;
};

inline Choice look_at(const Descriptor& config) {
  Choice choice;
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  for (const int64_t index :
       engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1)) {
    choice.engine = index;
  }
  for (const cudnnBackendNumericalNote_t note : engine.get<cudnnBackendNumericalNote_t>(
           CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
           CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
    if (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) choice.tensor_cores = true;
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
      choice.against.push_back("not deterministic");
    if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
      choice.against.push_back("narrows operands");
    if (note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) {
      choice.against.push_back("sums in less than fp32");
    }
    if (note == CUDNN_NUMERICAL_NOTE_FFT) choice.against.push_back("FFT");
    if (note == CUDNN_NUMERICAL_NOTE_WINOGRAD) choice.against.push_back("Winograd");
  }
  for (const cudnnBackendBehaviorNote_t note : engine.get<cudnnBackendBehaviorNote_t>(
           CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT)) {
    if (note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) choice.compiled_now = true;
  }
  return choice;
}

/// Reads a configuration's knobs as "type=value". Knobs that split sums are allowed: cuDNN
/// marks engines that add the parts in any order as not deterministic.
inline void look_at_knobs(const Descriptor& config, Choice& choice) {
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    raw.push_back(knobs.back().raw());
  }
  int64_t count = 0;
  const cudnnStatus_t status = functions().get_attribute(
      config.raw(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      CUDNN_KNOB_TYPE_COUNTS, &count, raw.data());
  if (status != CUDNN_STATUS_SUCCESS) return;
  for (size_t i = 0; i < knobs.size() && static_cast<int64_t>(i) < count; ++i) {
    const auto type = knobs[i].get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                           CUDNN_TYPE_KNOB_TYPE, 1);
    const auto value =
        knobs[i].get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1);
    if (type.empty() || value.empty()) continue;
    choice.knobs.push_back(fmt::format("{}={}", static_cast<int>(type[0]), value[0]));
  }
}

/// The device for which engines are chosen: that of a handle, or one that is described.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;  ///< null: the handle's
};

inline std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                              const Target& target) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
#ifdef HALFSCOPE_CUDNN_DESCRIBES_DEVICES
  if (target.device != nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  }
#endif
  heuristics.finalize("heuristics");
  int64_t count = 0;
  require(functions().get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
          "heuristics");
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(found.back().raw());
  }
  if (count == 0) return found;
  int64_t written = 0;
  require(functions().get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &written, raw.data()),
          "heuristics");
  while (static_cast<int64_t>(found.size()) > std::max<int64_t>(written, 0)) found.pop_back();
  return found;
}

/// An engine that heuristics propose, for one of the graphs that describe the convolution.
struct Candidate {
  Descriptor config;
  Choice choice;
  size_t graph = 0;
  bool fallback = false;  ///< from the list of engines that always work
};

/// Sorts candidates, the best first. Heuristics list the fastest first, but not for our purpose:
/// tf32 could also be multiplied without tensor cores, and engines that need no compiler start
/// sooner. Tensor cores do not pay for grouped convolutions, whose groups they pad.
inline void sort(std::vector<Candidate>& all, const ConvPlan& plan) {
  const bool dense = plan.groups() == 1;
  const auto rank = [&](const Candidate& each) {
    return std::tuple(dense && !each.choice.tensor_cores, each.fallback,
                      dense && each.choice.compiled_now, each.graph);
  };
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank(all[a]) < rank(all[b]); });
  std::vector<Candidate> sorted;
  for (const size_t i : order) sorted.push_back(std::move(all[i]));
  all = std::move(sorted);
}

}  // namespace halfscope::gpu::cudnn
