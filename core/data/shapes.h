// SPDX-License-Identifier: MIT
// The embedded data set for detectors, and how good a detector is on it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/data/boxes.h"
#include "core/data/dataset.h"

namespace halfscope {

inline constexpr int64_t kShapesSide = 64;   ///< pixels
inline constexpr int64_t kShapeClasses = 3;  ///< squares, discs and triangles
inline constexpr int64_t kMostShapes = 3;    ///< in an image

/// Draws 1,024 training and 192 test images [3, 64, 64] of one to three objects; the same on every
/// machine. Arrays: "input", the anchors' answers "class_targets" and "box_targets"
/// (core/models/detection_loss.h), and "objects" [3, 5]: label (0: none), left, top, right, bottom.
Dataset make_shapes();

/// Returns the objects of each sample. The array is [samples, objects, 5], as in make_shapes().
std::vector<std::vector<LabelledBox>> objects_in(const SampleArray& array);

/// Mean average precision.
struct DetectionScore {
  double half = 0.0;  ///< of boxes with an IoU of at least 0.5
  double mean = 0.0;  ///< mean over IoU 0.5, 0.55, ... 0.95, as COCO reports it
};
/// Returns whether data has objects, and outputs of these shapes (by name, with any number of
/// samples) fit its anchors.
bool has_detection_score(const Dataset& data, const std::map<std::string, Shape>& outputs);
/// Returns the score of a detector's outputs "classes" and "boxes" for the first samples of the
/// test part; nothing if the data has no objects or the outputs do not fit its anchors.
std::optional<DetectionScore> detection_score(const Dataset& data, const NamedTensors& outputs);

}  // namespace halfscope
