// SPDX-License-Identifier: MIT
// Where the scores of labels are in outputs of different shapes, and the mean intersection over
// union, with numbers counted by hand.
#include "core/train/label_layout.h"

#include <gtest/gtest.h>

#include <cmath>

namespace halfscope {
namespace {

/// Returns "classes stride first(1, 2)"; "" if the labels do not fit.
std::string layout(const Shape& output, int64_t batch, const Shape& labels) {
  const auto found = label_layout(output, batch, labels);
  if (!found) return "";
  return std::to_string(found->classes) + " " + std::to_string(found->stride()) + " " +
         std::to_string(found->first(1, 2));
}

TEST(LabelLayout, OneLabelForEachSample) {
  EXPECT_EQ(label_layout({8, 10}, 8, {})->classes, 10);
  EXPECT_EQ(label_layout({8, 10, 1, 1}, 8, {1})->classes, 10);
  EXPECT_EQ(label_layout({8}, 8, {})->classes, 1);
  EXPECT_EQ(label_layout({10}, 1, {})->classes, 10);
  EXPECT_FALSE(label_layout({8, 10, 4, 4}, 8, {})) << "scores of pixels";
  EXPECT_FALSE(label_layout({7, 10}, 8, {}));
}

TEST(LabelLayout, PixelsHaveTheirClassesFirst) {
  EXPECT_EQ(layout({8, 3, 4, 5}, 8, {4, 5}), "3 20 62");
  EXPECT_EQ(layout({8, 1, 4, 5}, 8, {4, 5}), "1 20 22") << "a single score";
  EXPECT_EQ(layout({8, 3, 4, 5}, 8, {1, 4, 5}), "3 20 62");
  EXPECT_EQ(layout({8, 3, 4, 5}, 8, {5, 4}), "") << "transposed";
  EXPECT_EQ(layout({8, 3, 4, 5}, 8, {20}), "") << "flattened";
}

TEST(LabelLayout, PositionsHaveTheirClassesLast) {
  EXPECT_EQ(layout({16, 6}, 2, {8}), "6 1 60") << "rows of all samples";
  EXPECT_EQ(layout({2, 8, 6}, 2, {8}), "6 1 60");
  EXPECT_EQ(layout({2, 6, 8}, 2, {8}), "6 8 50");
  EXPECT_EQ(layout({2, 5, 5}, 2, {5}), "5 1 35") << "either would fit";
  EXPECT_EQ(layout({2, 4, 4, 4}, 2, {4, 4}), "4 16 66");
}

TEST(LabelLayout, ThePredictedClassIsTheFirstLargest) {
  const LabelLayout pixels{.per_sample = 2, .classes = 3, .classes_first = true};
  const std::vector<float> scores{1, 5, 2, 5, 2, NAN};  // of two pixels
  EXPECT_EQ(predicted_class(scores, pixels, 0, 0.0f), 1);
  EXPECT_EQ(predicted_class(scores, pixels, 1, 0.0f), std::nullopt);
  const LabelLayout single{.per_sample = 2, .classes = 1, .classes_first = true};
  EXPECT_EQ(single.labels(), 2);
  EXPECT_EQ(predicted_class(scores, single, 0, 0.5f), 1);
  EXPECT_EQ(predicted_class(scores, single, 0, 1.0f), 0);
}

TEST(ClassCounts, MeanIoUIsOverTheClassesThatOccur) {
  ClassCounts counts(4);  // class 3 does not occur
  for (const auto& [label, predicted] : std::vector<std::pair<int64_t, std::optional<int64_t>>>{
           {0, 0}, {0, 0}, {0, 1}, {1, 1}, {1, 1}, {1, 2}, {2, 2}, {2, std::nullopt}}) {
    counts.add(label, predicted);
  }
  EXPECT_DOUBLE_EQ(counts.mean_iou(), (2.0 / 3.0 + 2.0 / 4.0 + 1.0 / 3.0) / 3.0);
  EXPECT_TRUE(std::isnan(ClassCounts(2).mean_iou()));
}

}  // namespace
}  // namespace halfscope
