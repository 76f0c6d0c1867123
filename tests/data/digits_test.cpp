// SPDX-License-Identifier: MIT
// The embedded data set must be the same bytes everywhere and behave like MNIST, so that learning
// rates carry over: as dark, learnable, not trivial.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "core/data/dataset.h"
#include "test_files.h"

namespace halfscope {
namespace {

constexpr size_t kPixels = 28 * 28;

const Dataset& digits() {
  static const Dataset dataset = make_digits();
  return dataset;
}

uint64_t fnv1a(uint64_t hash, std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  return hash;
}

std::span<const uint8_t> image(const Split& split, int64_t index) {
  return std::span(split.pixels).subspan(static_cast<size_t>(index) * kPixels, kPixels);
}

TEST(Digits, ShapeAndSizes) {
  EXPECT_EQ(digits().name, "digits");
  EXPECT_EQ(digits().sample_shape, (Shape{1, 28, 28}));
  EXPECT_EQ(digits().classes, 10);
  EXPECT_EQ(digits().train.size(), 12'000);
  EXPECT_EQ(digits().test.size(), 2'000);
  EXPECT_EQ(digits().train.pixels.size(), 12'000 * kPixels);
  EXPECT_EQ(digits().test.pixels.size(), 2'000 * kPixels);
}

TEST(Digits, AreTheSameBytesEverywhere) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const Split* split : {&digits().train, &digits().test}) {
    hash = fnv1a(hash, split->pixels);
    const std::vector<uint8_t> labels(split->labels.begin(), split->labels.end());
    hash = fnv1a(hash, labels);
  }
  // A new value here means that everybody's training results change.
  EXPECT_EQ(hash, 0x2E5C8C163513AE6D) << "0x" << std::hex << hash;
}

TEST(Digits, AreBuiltQuickly) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(make_digits().classes, 10);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", static_cast<int>(seconds.count() * 1000));
  EXPECT_LT(seconds.count(), 20.0);  // 0.1 s optimized; the slack is for sanitizers and debug
}

TEST(Digits, LabelsAreBalancedAndShuffled) {
  for (const Split* split : {&digits().train, &digits().test}) {
    std::array<int64_t, 10> counts{};
    int64_t same_as_before = 0;
    for (int64_t i = 0; i < split->size(); ++i) {
      const int32_t label = split->labels[static_cast<size_t>(i)];
      ASSERT_GE(label, 0);
      ASSERT_LT(label, 10);
      ++counts[static_cast<size_t>(label)];
      if (i > 0 && label == split->labels[static_cast<size_t>(i - 1)]) ++same_as_before;
    }
    for (const int64_t count : counts) EXPECT_EQ(count, split->size() / 10);
    // Sorted labels would repeat nearly always, labels in turn never.
    EXPECT_NEAR(static_cast<double>(same_as_before) / static_cast<double>(split->size()), 0.1,
                0.03);
  }
}

TEST(Digits, NoImageIsThereTwice) {
  std::set<uint64_t> hashes;
  for (const Split* split : {&digits().train, &digits().test}) {
    for (int64_t i = 0; i < split->size(); ++i) hashes.insert(fnv1a(1, image(*split, i)));
  }
  EXPECT_EQ(hashes.size(), 14'000u);
}

TEST(Digits, AreAsDarkAsMnist) {
  // MNIST: mean 0.1307, 80.9 % zero.
  for (const Split* split : {&digits().train, &digits().test}) {
    double sum = 0;
    int64_t zeros = 0;
    for (const uint8_t pixel : split->pixels) {
      sum += pixel / 255.0;
      zeros += pixel == 0 ? 1 : 0;
    }
    const double count = static_cast<double>(split->pixels.size());
    EXPECT_NEAR(sum / count, 0.13, 0.01);
    EXPECT_NEAR(static_cast<double>(zeros) / count, 0.80, 0.02);
  }
}

TEST(Digits, NearestCentroidIsRightOftenButNotAlways) {
  std::array<std::array<double, kPixels>, 10> centroids{};
  for (int64_t i = 0; i < digits().train.size(); ++i) {
    auto& centroid = centroids[static_cast<size_t>(digits().train.labels[static_cast<size_t>(i)])];
    const std::span<const uint8_t> pixels = image(digits().train, i);
    for (size_t p = 0; p < kPixels; ++p) centroid[p] += pixels[p] / 1200.0;
  }
  int64_t right = 0;
  for (int64_t i = 0; i < digits().test.size(); ++i) {
    const std::span<const uint8_t> pixels = image(digits().test, i);
    std::array<double, 10> distances{};
    for (size_t c = 0; c < 10; ++c) {
      for (size_t p = 0; p < kPixels; ++p) {
        const double difference = pixels[p] - centroids[c][p];
        distances[c] += difference * difference;
      }
    }
    const auto best = std::min_element(distances.begin(), distances.end()) - distances.begin();
    if (best == digits().test.labels[static_cast<size_t>(i)]) ++right;
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(digits().test.size());
  EXPECT_GT(accuracy, 0.7);  // 0.82 on MNIST
  EXPECT_LT(accuracy, 0.9);
}

TEST(LoadDataset, KnowsDigits) { EXPECT_EQ(load_dataset("digits").name, "digits"); }

TEST(LoadDataset, UnknownNameListsWhatThereIs) {
  for (const char* const spec : {"cifar", "", "digits:x", "mnist", "mnist:", "Digits"}) {
    test::expect_error([&] { load_dataset(spec); }, ErrorKind::usage,
                       {"'" + std::string(spec) + "'"});
    try {
      load_dataset(spec);
    } catch (const Error& error) {
      EXPECT_NE(error.hint().find("digits"), std::string::npos);
      EXPECT_NE(error.hint().find("mnist:DIR"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace halfscope
