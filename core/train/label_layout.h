// SPDX-License-Identifier: MIT
// Labels beside the class scores of an output: one for each sample, or one for each pixel or
// position of a sample, and how well the scores predict them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/model.h"
#include "core/tensor.h"

namespace halfscope {

/// Counts how often each class is a label, a prediction, and both in the same place.
class ClassCounts {
 public:
  explicit ClassCounts(int64_t classes = 0) : counts_(static_cast<size_t>(3 * classes), 0) {}

  /// Counts a label; without a prediction, because a score is NaN, it is missed.
  void add(int64_t label, std::optional<int64_t> predicted) {
    ++counts_[static_cast<size_t>(3 * label)];
    if (predicted) ++counts_[static_cast<size_t>(3 * *predicted + 1)];
    if (predicted == label) ++counts_[static_cast<size_t>(3 * label + 2)];
  }
  /// Adds the counts of other places, as values() returns them.
  void add(std::span<const int64_t> values);
  /// Returns three counts for each class: of labels, of predictions, of places with both.
  std::span<const int64_t> values() const noexcept { return counts_; }

  /// Returns the mean over all classes that occur of the intersection over union: labels of the
  /// class that are predicted, divided by places that have the label or the prediction (Jaccard
  /// 1912; PASCAL VOC's measure of segmentation). NaN if no class occurs.
  double mean_iou() const;
  /// Returns the share of labels that are predicted; NaN without labels.
  double accuracy() const;

 private:
  std::vector<int64_t> counts_;
};

/// Where the scores of a label are in an output.
struct LabelLayout {
  int64_t per_sample = 1;      ///< labels of a sample
  int64_t classes = 0;         ///< 1: a single score, for labels 0 and 1
  bool classes_first = false;  ///< the scores of one class lie together: [samples, classes, places]

  int64_t labels() const noexcept { return classes == 1 ? 2 : classes; }
  /// Returns the first score of a label, and the distance to the next class's.
  int64_t first(int64_t sample, int64_t place) const noexcept {
    return classes_first ? sample * classes * per_sample + place
                         : (sample * per_sample + place) * classes;
  }
  int64_t stride() const noexcept { return classes_first ? per_sample : 1; }
};

/// Returns the layout of an output for `batch` samples whose labels have a shape each: [batch,
/// classes] for one label per sample; for several, [batch, classes, places ...] or [batch, places
/// ..., classes], in which the places may be one dimension. Where both fit, labels of more than one
/// dimension are of pixels, whose classes come first. Dimensions of 1 do not count. Nothing if the
/// shape is none of these.
std::optional<LabelLayout> label_layout(const Shape& output, int64_t batch, const Shape& labels);

/// Labels of samples, and where the network has scores for them.
struct SampleLabels {
  std::vector<int32_t> values{};
  Shape shape{};         ///< of one sample's: [] for one label, [height, width] for pixels
  std::string output{};  ///< name of the output with their scores; "": the first that fits
  int32_t ignored = -1;  ///< label that does not count
};

/// Returns the indices of the outputs for `batch` samples that may have the scores of these labels;
/// at most the one that they name, if they name one.
std::vector<size_t> outputs_with_scores(const Graph& graph, std::span<const NamedValue> outputs,
                                        int64_t batch, const SampleLabels& labels);

/// Returns whether labels of this shape belong to the pixels of a sample: two dimensions or more.
/// Labels of one dimension belong to tokens or positions.
bool is_of_pixels(const Shape& labels);

/// Returns the class with the first largest score; nothing if a score is NaN. A single score means
/// class 1 if it is above `threshold`.
std::optional<int64_t> predicted_class(std::span<const float> scores, const LabelLayout& layout,
                                       int64_t first, float threshold);

/// How many labels there are, and how many of them are predicted.
struct LabelCount {
  int64_t right = 0, scored = 0;
};

/// Compares a batch's scores with the labels of its first samples; negative labels do not count.
/// Also adds them to `classes` if that is not null. `threshold`: see predicted_class().
LabelCount count_labels(std::span<const float> scores, std::span<const int32_t> labels,
                        const LabelLayout& layout, float threshold, ClassCounts* classes);

}  // namespace halfscope
