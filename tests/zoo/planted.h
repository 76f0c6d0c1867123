// SPDX-License-Identifier: MIT
// ResNet-20 with planted faults, each of which is enough to corrupt the results, and a search for
// them that counts its cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/plan/plan_edit.h"

namespace halfscope::zoo {

/// A convolution whose outputs fp16 corrupts, and the node that undoes the change made to them: in
/// exact arithmetic the network computes the same as without both.
struct Fault {
  enum class Kind : uint8_t {
    overflow,  ///< weights times a power of two; results beyond 65504
    offset,    ///< a large number is added and taken away: small results lose their last bits
    flush,     ///< weights times a small power of two: most results are 0
  };
  Kind kind = Kind::overflow;
  std::string at;  ///< "layer1/1/conv1"
};

struct PlantedNet {
  Model model;
  Dataset data;  ///< images of random numbers
};
PlantedNet planted_resnet20(const std::vector<Fault>& faults);
/// Returns the path of the node after it.
std::string undo_path(const Fault& fault);

struct Hunt {
  bool fails = false;  ///< the lane as it is
  int64_t nodes = 0;   ///< in the lane
  /// Runs of the lane, recorded ones included, after that of the lane as it is: until the first
  /// edit that cures, and until the search ends.
  int64_t to_cure = 0, all = 0;
  int64_t first_size = 0;  ///< changes of the first edit that cures
  std::optional<PlanEdit> cure{};
};
/// Runs it under that preset, and searches if it fails and `searches` is true.
Hunt hunt(const PlantedNet& net, const std::string& plan, bool searches = true);

std::string hunt_text(const Hunt& hunt);

}  // namespace halfscope::zoo
