// SPDX-License-Identifier: MIT
// Boxes: overlaps against counted pixels, average precision against its definition, and the data
// set of shapes against what it says of itself.
#include "core/data/boxes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "core/data/shapes.h"

namespace halfscope {
namespace {

Box box(int left, int top, int right, int bottom) {
  return {static_cast<float>(left), static_cast<float>(top), static_cast<float>(right),
          static_cast<float>(bottom)};
}

TEST(Boxes, OverlapIsThatOfThePixels) {
  std::mt19937 random(1);
  const auto any = [&] {
    const int left = static_cast<int>(random() % 10), top = static_cast<int>(random() % 10);
    return box(left, top, left + static_cast<int>(random() % 8),
               top + static_cast<int>(random() % 8));
  };
  for (int i = 0; i < 500; ++i) {
    const Box a = any(), b = any();
    int both = 0, either = 0;
    for (int y = 0; y < 20; ++y) {
      for (int x = 0; x < 20; ++x) {
        const auto inside = [&](const Box& of) {
          return static_cast<float>(x) >= of.left && static_cast<float>(x) < of.right &&
                 static_cast<float>(y) >= of.top && static_cast<float>(y) < of.bottom;
        };
        both += inside(a) && inside(b);
        either += inside(a) || inside(b);
      }
    }
    const double expected = either == 0 ? 0.0 : static_cast<double>(both) / either;
    ASSERT_NEAR(intersection_over_union(a, b), expected, 1e-12);
  }
}

TEST(Boxes, CodesComeBack) {
  const Box anchor = box(8, 8, 24, 24);
  EXPECT_EQ(box_code(anchor, anchor), (std::array<float, 4>{0, 0, 0, 0}));
  const std::array<float, 4> code = box_code(box(10, 4, 42, 20), anchor);
  EXPECT_FLOAT_EQ(code[0], 10.0f / 16.0f);
  EXPECT_FLOAT_EQ(code[1], -4.0f / 16.0f);
  EXPECT_FLOAT_EQ(code[2], std::log(2.0f));
  const Box back = box_of(code, anchor);
  EXPECT_NEAR(back.left, 10.0f, 1e-5f);
  EXPECT_NEAR(back.bottom, 20.0f, 1e-5f);
  const std::array<float, 4> huge{0, 0, 50, 0};
  EXPECT_NEAR(box_of(huge, anchor).width(), 1000.0f, 1e-3f);
}

TEST(Boxes, AnchorsCoverTheImageByLevel) {
  const std::vector<Box> anchors = make_anchors(64);
  ASSERT_EQ(anchors.size(), 2u * (64 + 16 + 4));
  EXPECT_EQ(anchors[0], box(-4, -4, 12, 12));
  EXPECT_EQ(anchors[2], box(4, -4, 20, 12));  // the next column
  EXPECT_EQ(anchors[2 * 64], box(-8, -8, 24, 24));
  EXPECT_EQ(anchors[2 * 80], box(-16, -16, 48, 48));
  EXPECT_NEAR(anchors[1].width(), 16 * std::sqrt(2.0f), 1e-5f);
}

TEST(Boxes, AnchorsTakeTheObjectThatTheyOverlapMost) {
  const std::vector<Box> anchors{box(0, 0, 10, 10), box(0, 0, 10, 15), box(30, 30, 40, 40),
                                 box(2, 0, 12, 10), box(0, 0, 10, 22)};
  const std::vector<LabelledBox> objects{{2, box(0, 0, 10, 10)}, {1, box(60, 60, 80, 80)}};
  const AnchorTargets targets = anchor_targets(anchors, objects);
  // IoU 1, 2/3, 0 (but the second object's best of equals is the first anchor), 2/3, 10/22.
  EXPECT_EQ(targets.labels[1], 2);
  EXPECT_EQ(targets.labels[2], 0);
  EXPECT_EQ(targets.labels[3], 2);
  EXPECT_EQ(targets.labels[4], -1);
  EXPECT_EQ(targets.codes[1], box_code(objects[0].box, anchors[1]));
  const AnchorTargets none = anchor_targets(anchors, {});
  EXPECT_EQ(none.labels, std::vector<int32_t>(5, 0));
}

TEST(Boxes, OnlyTheBestOfSeveralIsFound) {
  const std::vector<Box> anchors{box(0, 0, 10, 10), box(1, 0, 11, 10), box(20, 20, 30, 30),
                                 box(0, 1, 10, 11)};
  const std::vector<float> codes(16, 0.0f);
  // Two labels: the fourth anchor has the second, so that it stays.
  const std::vector<float> logits{1, -9, 2, -9, 0, -9, -9, 3};
  const std::vector<FoundBox> found = found_boxes(7, logits, codes, anchors);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].label, 2);
  EXPECT_EQ(found[1].box, anchors[1]);
  EXPECT_EQ(found[2].box, anchors[2]);
  EXPECT_EQ(found[0].sample, 7);
  EXPECT_FLOAT_EQ(found[2].score, 0.5f);
  const std::vector<float> nan(8, std::nanf(""));
  EXPECT_TRUE(found_boxes(0, nan, codes, anchors).empty());
}

/// The mean over all recalls k / n of the best precision at a recall of at least k / n.
double by_definition(std::vector<FoundBox> found,
                     const std::vector<std::vector<LabelledBox>>& objects, double least) {
  std::stable_sort(found.begin(), found.end(),
                   [](const FoundBox& a, const FoundBox& b) { return a.score > b.score; });
  double sum = 0.0;
  std::set<int32_t> labels;
  for (const auto& sample : objects) {
    for (const LabelledBox& each : sample) labels.insert(each.label);
  }
  for (const int32_t label : labels) {
    int count = 0;
    for (const auto& sample : objects) {
      for (const LabelledBox& each : sample) count += each.label == label;
    }
    std::set<std::pair<int64_t, size_t>> taken;
    std::vector<std::pair<double, double>> points;  // recall, precision
    int hits = 0, tried = 0;
    for (const FoundBox& each : found) {
      if (each.label != label) continue;
      ++tried;
      const auto& sample = objects[static_cast<size_t>(each.sample)];
      int best = -1;
      for (size_t i = 0; i < sample.size(); ++i) {
        const double overlap = intersection_over_union(sample[i].box, each.box);
        const bool free = !taken.contains({each.sample, i}) && sample[i].label == label;
        if (!free || overlap < least) continue;
        if (best < 0 ||
            overlap >= intersection_over_union(sample[static_cast<size_t>(best)].box, each.box)) {
          best = static_cast<int>(i);
        }
      }
      if (best >= 0) taken.insert({each.sample, static_cast<size_t>(best)});
      hits += best >= 0;
      points.push_back({static_cast<double>(hits) / count, static_cast<double>(hits) / tried});
    }
    for (int k = 1; k <= count; ++k) {
      double precision = 0.0;
      for (const auto& [recall, here] : points) {
        if (recall >= static_cast<double>(k) / count - 1e-12) precision = std::max(precision, here);
      }
      sum += precision / count;
    }
  }
  return sum / static_cast<double>(labels.size());
}

TEST(Boxes, AveragePrecisionIsItsDefinition) {
  std::mt19937 random(5);
  const auto any = [&] {
    const int left = static_cast<int>(random() % 20), top = static_cast<int>(random() % 20);
    const int size = 6 + static_cast<int>(random() % 6);
    return box(left, top, left + size, top + size);
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<LabelledBox>> objects(6);
    std::vector<FoundBox> found;
    for (size_t i = 0; i < objects.size(); ++i) {
      for (unsigned k = 0; k < random() % 4; ++k) {
        objects[i].push_back({1 + static_cast<int32_t>(random() % 2), any()});
        Box near = objects[i].back().box;
        near.left += static_cast<float>(random() % 4);
        found.push_back({static_cast<int64_t>(i), objects[i].back().label,
                         static_cast<float>(random() % 100) / 100.0f, near});
      }
      found.push_back({static_cast<int64_t>(i), 1 + static_cast<int32_t>(random() % 2),
                       static_cast<float>(random() % 100) / 100.0f, any()});
    }
    for (const double least : {0.5, 0.75}) {
      ASSERT_NEAR(mean_average_precision(found, objects, least),
                  by_definition(found, objects, least), 1e-12);
    }
  }
  const std::vector<std::vector<LabelledBox>> one{{{1, box(0, 0, 9, 9)}}};
  EXPECT_EQ(mean_average_precision({{0, 1, 0.9f, box(0, 0, 9, 9)}}, one, 0.95), 1.0);
  EXPECT_EQ(mean_average_precision({}, one, 0.5), 0.0);
  EXPECT_EQ(mean_average_precision({{0, 2, 0.9f, box(0, 0, 9, 9)}}, one, 0.5), 0.0);
}

TEST(Shapes, AnswersOfAnchorsDescribeTheObjects) {
  const Dataset data = make_shapes();
  EXPECT_EQ(data.train.size(), 1024);
  EXPECT_EQ(data.test.size(), 192);
  const std::vector<Box> anchors = make_anchors(kShapesSide);
  const std::vector<std::vector<LabelledBox>> objects = objects_in(data.test.arrays.at(3));
  // Logits and boxes that say what the targets say find every object.
  const size_t count = anchors.size();
  Tensor classes{{data.test.size(), static_cast<int64_t>(count), kShapeClasses}, {}};
  Tensor boxes{{data.test.size(), static_cast<int64_t>(count), 4}, data.test.arrays.at(2).reals};
  std::set<int32_t> labels;
  for (const int32_t label : data.test.arrays.at(1).integers) {
    for (int32_t k = 1; k <= kShapeClasses; ++k) {
      classes.data.push_back(label == k ? 6.0f : -6.0f);
    }
    labels.insert(label);
  }
  EXPECT_EQ(labels, (std::set<int32_t>{-1, 0, 1, 2, 3}));
  const auto score = detection_score(data, {{"classes", classes}, {"boxes", boxes}});
  ASSERT_TRUE(score);
  EXPECT_GT(score->half, 0.99);
  EXPECT_GT(score->mean, 0.99);
  for (float& each : classes.data) each = -each;
  EXPECT_LT(detection_score(data, {{"classes", classes}, {"boxes", boxes}})->half, 0.2);
  EXPECT_FALSE(detection_score(data, {{"classes", boxes}}));
  EXPECT_FALSE(detection_score(make_digits(), {{"classes", classes}, {"boxes", boxes}}));
  for (const auto& sample : objects) {
    ASSERT_GE(sample.size(), 1u);
    for (const LabelledBox& each : sample) {
      EXPECT_GE(each.box.left, 0.0f);
      EXPECT_LE(each.box.right, static_cast<float>(kShapesSide));
    }
  }
}

}  // namespace
}  // namespace halfscope
