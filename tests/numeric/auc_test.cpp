// SPDX-License-Identifier: MIT
// The area under the ROC curve, against its definition: all pairs of samples.
#include "core/numeric/statistics/auc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace halfscope {
namespace {

double by_pairs(const std::vector<double>& scores, const std::vector<uint8_t>& belongs) {
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
  std::normal_distribution<double> normal;
  for (const bool ties : {false, true}) {
    std::vector<double> scores;
    std::vector<uint8_t> belongs;
    for (int i = 0; i < 300; ++i) {
      belongs.push_back(random() % 4 == 0 ? 1 : 0);
      const double score = normal(random) + 0.7 * belongs.back();
      scores.push_back(ties ? std::round(score) : score);
    }
    EXPECT_NEAR(area_under_curve(scores, belongs), by_pairs(scores, belongs), 1e-12);
    for (double& each : scores) each = -each;
    EXPECT_LT(area_under_curve(scores, belongs), 0.4);
  }
}

TEST(Auc, OfKnownCases) {
  const std::vector<uint8_t> belongs{0, 0, 1, 1};
  EXPECT_EQ(area_under_curve(std::vector{0.1, 0.4, 0.35, 0.8}, belongs), 0.75);
  EXPECT_EQ(area_under_curve(std::vector{1.0, 2.0, 3.0, 4.0}, belongs), 1.0);
  EXPECT_EQ(area_under_curve(std::vector{5.0, 5.0, 5.0, 5.0}, belongs), 0.5);
  EXPECT_TRUE(std::isnan(area_under_curve(std::vector{1.0, 2.0}, std::vector<uint8_t>{1, 1})));
  EXPECT_TRUE(
      std::isnan(area_under_curve(std::vector{1.0, std::nan("")}, std::vector<uint8_t>{0, 1})));
}

TEST(Auc, OfSeveralClassesIsTheMeanOfThoseThatOccur) {
  // Class 3 does not occur.
  const std::vector<int32_t> labels{0, 1, 2, 1, 0, 2};
  const std::vector<float> probabilities{0.7f, 0.1f, 0.1f, 0.1f, 0.3f, 0.4f, 0.2f, 0.1f,
                                         0.2f, 0.2f, 0.5f, 0.1f, 0.5f, 0.2f, 0.2f, 0.1f,
                                         0.4f, 0.3f, 0.2f, 0.1f, 0.1f, 0.1f, 0.1f, 0.7f};
  double sum = 0.0;
  for (int32_t c = 0; c < 3; ++c) {
    std::vector<double> scores;
    std::vector<uint8_t> belongs;
    for (size_t i = 0; i < labels.size(); ++i) {
      scores.push_back(static_cast<double>(probabilities[4 * i + static_cast<size_t>(c)]));
      belongs.push_back(labels[i] == c ? 1 : 0);
    }
    sum += by_pairs(scores, belongs);
  }
  EXPECT_NEAR(mean_area_under_curve(probabilities, 4, labels, score_kind(probabilities, 4)),
              sum / 3, 1e-12);
  // The same as logits, each row moved by a constant, which a softmax takes away.
  std::vector<float> logits;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    logits.push_back(std::log(probabilities[i]) + 3.0f * static_cast<float>(i / 4 % 3));
  }
  // Ties of equal probabilities may be broken by rounding.
  EXPECT_NEAR(mean_area_under_curve(logits, 4, labels, score_kind(logits, 4)), sum / 3, 0.1);
  // One score per sample.
  EXPECT_EQ(mean_area_under_curve(std::vector{-2.0f, 3.0f, 1.0f}, 1, std::vector<int32_t>{0, 1, 0},
                                  ScoreKind::logits),
            1.0);
}

// Probabilities of confident networks are 0 and 1 in fp32 and fp64, but their order is known.
TEST(Auc, LogitsAreOrderedByExactProbabilities) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const int64_t classes : {2, 5}) {
    std::vector<float> logits;
    std::vector<int32_t> labels;
    for (int i = 0; i < 200; ++i) {
      labels.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(classes)));
      for (int64_t c = 0; c < classes; ++c) {
        logits.push_back(300.0f * (normal(random) + (labels.back() == c ? 0.5f : 0.0f)));
      }
    }
    double sum = 0.0;
    for (int64_t c = 0; c < classes; ++c) {
      std::vector<double> scores;
      std::vector<uint8_t> belongs;
      for (size_t i = 0; i < labels.size(); ++i) {
        const float* row = logits.data() + static_cast<int64_t>(i) * classes;
        long double others = 0.0L;  // its range holds exp(-3000)
        for (int64_t j = 0; j < classes; ++j) {
          if (j != c) others += expl(static_cast<long double>(row[j]) - row[c]);
        }
        scores.push_back(static_cast<double>(-logl(others)));
        belongs.push_back(labels[i] == c ? 1 : 0);
      }
      sum += by_pairs(scores, belongs);
    }
    EXPECT_NEAR(mean_area_under_curve(logits, classes, labels, score_kind(logits, classes)),
                sum / static_cast<double>(classes), 1e-12)
        << classes;
  }
  // A class that is masked out is never the likelier one.
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(mean_area_under_curve(std::vector{2.0f, none, 1.0f, 3.0f, 0.0f, 1.0f}, 2,
                                  std::vector<int32_t>{0, 1, 1}, ScoreKind::logits),
            1.0);
}

}  // namespace
}  // namespace halfscope
