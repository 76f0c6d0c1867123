// SPDX-License-Identifier: MIT
// The area under the ROC curve, against its definition: all pairs of samples.
#include "core/numeric/statistics/auc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace halfscope {
namespace {

double by_pairs(const std::vector<float>& scores, const std::vector<uint8_t>& belongs) {
  double sum = 0.0, pairs = 0.0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (belongs[i] == 0 || belongs[j] == 1) continue;
      pairs += 1.0;
      sum += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
    }
  }
  return sum / pairs;
}

TEST(Auc, IsTheShareOfPairsInTheRightOrder) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const bool ties : {false, true}) {
    std::vector<float> scores;
    std::vector<uint8_t> belongs;
    for (int i = 0; i < 300; ++i) {
      belongs.push_back(random() % 4 == 0 ? 1 : 0);
      const float score = normal(random) + 0.7f * static_cast<float>(belongs.back());
      scores.push_back(ties ? std::round(score) : score);
    }
    EXPECT_NEAR(area_under_curve(scores, belongs), by_pairs(scores, belongs), 1e-12);
    for (float& each : scores) each = -each;
    EXPECT_LT(area_under_curve(scores, belongs), 0.4);
  }
}

TEST(Auc, OfKnownCases) {
  const std::vector<uint8_t> belongs{0, 0, 1, 1};
  EXPECT_EQ(area_under_curve(std::vector{0.1f, 0.4f, 0.35f, 0.8f}, belongs), 0.75);
  EXPECT_EQ(area_under_curve(std::vector{1.0f, 2.0f, 3.0f, 4.0f}, belongs), 1.0);
  EXPECT_EQ(area_under_curve(std::vector{5.0f, 5.0f, 5.0f, 5.0f}, belongs), 0.5);
  EXPECT_TRUE(std::isnan(area_under_curve(std::vector{1.0f, 2.0f}, std::vector<uint8_t>{1, 1})));
  EXPECT_TRUE(
      std::isnan(area_under_curve(std::vector{1.0f, std::nanf("")}, std::vector<uint8_t>{0, 1})));
}

TEST(Auc, OfSeveralClassesIsTheMeanOfThoseThatOccur) {
  // Class 3 does not occur.
  const std::vector<int32_t> labels{0, 1, 2, 1, 0, 2};
  const std::vector<float> probabilities{0.7f, 0.1f, 0.1f, 0.1f, 0.3f, 0.4f, 0.2f, 0.1f,
                                         0.2f, 0.2f, 0.5f, 0.1f, 0.5f, 0.2f, 0.2f, 0.1f,
                                         0.4f, 0.3f, 0.2f, 0.1f, 0.1f, 0.1f, 0.1f, 0.7f};
  double sum = 0.0;
  for (int32_t c = 0; c < 3; ++c) {
    std::vector<float> scores;
    std::vector<uint8_t> belongs;
    for (size_t i = 0; i < labels.size(); ++i) {
      scores.push_back(probabilities[4 * i + static_cast<size_t>(c)]);
      belongs.push_back(labels[i] == c ? 1 : 0);
    }
    sum += by_pairs(scores, belongs);
  }
  EXPECT_NEAR(mean_area_under_curve(probabilities, 4, labels), sum / 3, 1e-12);
  // The same as logits, each row moved by a constant, which a softmax takes away.
  std::vector<float> logits;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    logits.push_back(std::log(probabilities[i]) + 3.0f * static_cast<float>(i / 4 % 3));
  }
  // Ties of equal probabilities may be broken by rounding.
  EXPECT_NEAR(mean_area_under_curve(logits, 4, labels), sum / 3, 0.1);
  // One score per sample.
  EXPECT_EQ(mean_area_under_curve(std::vector{-2.0f, 3.0f, 1.0f}, 1, std::vector<int32_t>{0, 1, 0}),
            1.0);
}

}  // namespace
}  // namespace halfscope
