// SPDX-License-Identifier: MIT
// Results of real GPUs (Khattak and Mikaitis, arXiv:2512.07004): the model gives the same bits,
// and models that are wrong in one rule do not. Skipped where the vectors are not.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/data/mma_vectors.h"
#include "tests/tensor_core/variants.h"

namespace halfscope {
namespace {

using test::Variant;

std::filesystem::path folder() {
  const char* const data = std::getenv("HALFSCOPE_TEST_DATA");
  const std::filesystem::path base =
      data != nullptr ? std::filesystem::path(data)
                      : std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "../shared/data";
  return base / "mma-vectors";
}

#define SKIP_WITHOUT_VECTORS()                                                       \
  if (!std::filesystem::is_directory(folder())) {                                    \
    GTEST_SKIP() << "no GPU results in " << folder() << "; set HALFSCOPE_TEST_DATA"; \
  }

struct Sample {
  std::string name;
  TensorCoreProfile profile;
  std::vector<MmaVector> vectors;
};

Sample read(const std::filesystem::path& path) {
  MmaVectorReader reader(path);
  const std::map<std::string, FloatFormat> formats{{"fp16", kFp16},   {"bf16", kBf16},
                                                   {"tf32", kTf32},   {"fp32", kFp32},
                                                   {"E4M3", kE4m3fn}, {"E5M2", kE5m2}};
  // These ran through wgmma, and with c = 0 whatever the file lists.
  const bool wgmma =
      reader.gpu() == "H100" && reader.input().starts_with('E') && reader.output() == "fp32";
  const auto profile = tensor_core_profile(wgmma ? "h100-wgmma" : reader.gpu(),
                                           formats.at(reader.input()), formats.at(reader.output()));
  Sample sample{path.filename().string(), profile.value(), {}};
  MmaVector vector;
  while (reader.next(vector)) {
    if (wgmma) vector.c = 0.0f;
    sample.vectors.push_back(vector);
  }
  return sample;
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = [] {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      if (entry.path().string().ends_with(".txt.gz")) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<Sample> read_samples;
    for (const auto& path : paths) read_samples.push_back(read(path));
    return read_samples;
  }();
  return all;
}

template <class Dot>
int mismatches(const Sample& sample, Dot dot) {
  int count = 0;
  for (const MmaVector& each : sample.vectors) {
    count += std::bit_cast<uint32_t>(dot(each)) != std::bit_cast<uint32_t>(each.d) ? 1 : 0;
  }
  return count;
}

TEST(GpuVectors, TheModelGivesTheSameBits) {
  SKIP_WITHOUT_VECTORS();
  EXPECT_GE(samples().size(), 22u);
  for (const Sample& sample : samples()) {
    EXPECT_GE(sample.vectors.size(), 1500u) << sample.name;
    EXPECT_EQ(mismatches(sample,
                         [&](const MmaVector& x) {
                           return tensor_core_dot(sample.profile, x.a, x.b, x.c, {.fill = false});
                         }),
              0)
        << sample.name;
    if (sample.profile.path != TensorCorePath::native) continue;
    EXPECT_EQ(mismatches(sample,
                         [&](const MmaVector& x) {
                           return test::variant_dot(sample.profile, x.a, x.b, x.c, {});
                         }),
              0)
        << sample.name << ", in doubles";
  }
}

TEST(GpuVectors, WrongRulesAreNoticed) {
  SKIP_WITHOUT_VECTORS();
  struct Wrong {
    const char* name;
    Variant variant;
    bool fp16_too;  ///< fp16 results are useful, too
  };
  const Wrong wrong[] = {
      {"F - 1", {.more_bits = -1}, false},
      {"F + 1", {.more_bits = 1}, false},
      {"G / 2", {.half_block = true}, false},
      {"normalised products", {.normalised = true}, false},
      {"c after the block", {.late_c = true}, true},
      {"floor of the terms", {.floor_terms = true}, false},
      {"floor of the result", {.floor_output = true}, false},
      {"result to nearest", {.nearest_output = true}, false},
  };
  for (const Sample& sample : samples()) {
    if (sample.profile.path != TensorCorePath::native) continue;
    const bool fp16 = sample.profile.accumulator == kFp16;
    for (const Wrong& each : wrong) {
      if (fp16 && !each.fp16_too) continue;
      if (each.variant.late_c && sample.name.find("H100_E") == 0) continue;  // c = 0
      const bool fits =
          sample.vectors[0].a.size() <= static_cast<size_t>(sample.profile.dot.products) / 2;
      if (each.variant.half_block && fits) continue;  // tf32 of Hopper: k = 4
      EXPECT_GT(mismatches(sample,
                           [&](const MmaVector& x) {
                             return test::variant_dot(sample.profile, x.a, x.b, x.c, each.variant);
                           }),
                0)
          << sample.name << ": " << each.name;
    }
  }
}

// fp8 through mma.sync on Hopper is not an fp8 instruction.
TEST(GpuVectors, HoppersSplitOfFp8IsNoticed) {
  SKIP_WITHOUT_VECTORS();
  for (const Sample& sample : samples()) {
    if (sample.profile.path != TensorCorePath::fp16_split) continue;
    TensorCoreProfile native = sample.profile;
    native.path = TensorCorePath::native;
    native.dot.products = 32;
    EXPECT_GT(
        mismatches(sample,
                   [&](const MmaVector& x) { return tensor_core_dot(native, x.a, x.b, x.c); }),
        0)
        << sample.name;
    native.dot.products = 16;
    EXPECT_GT(
        mismatches(sample,
                   [&](const MmaVector& x) { return tensor_core_dot(native, x.a, x.b, x.c); }),
        0)
        << sample.name;
  }
}

}  // namespace
}  // namespace halfscope
