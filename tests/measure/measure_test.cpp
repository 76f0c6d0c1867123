// SPDX-License-Identifier: MIT
// Every instruction set and thread count compared with the reference measure(), bit for bit.
#include "emulation/measure/measure.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/numeric/formats/round.h"
#include "tests/measure/measure_data.h"

namespace halfscope {
namespace {

using testing::Data;
using testing::first_difference;
using testing::kAllData;
using testing::make_data;

constexpr int64_t kLengths[] = {0,  1,  15,  16,   17,   31,   32,   33,   63,
                                64, 65, 255, 1023, 1025, 2049, 4095, 4096, 4097};

/// A pointer with the given offset from vector alignment.
std::vector<float> shifted(const std::vector<float>& values, size_t offset) {
  std::vector<float> result(offset, 0.0f);
  result.insert(result.end(), values.begin(), values.end());
  return result;
}

class MeasureTest : public ::testing::TestWithParam<std::string> {
 protected:
  FloatFormat format_ = parse_format(GetParam()).value();
  testing::IsaGuard guard_;

  /// Out of place, in place, measuring only and rounding only, for every instruction set.
  void check(Data data, int64_t n, size_t offset) {
    const std::vector<float> exact = make_data(data, n, format_);
    std::vector<float> want(exact.size());
    const TensorStats want_stats = measure(exact, want, format_);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      SCOPED_TRACE(std::string(isa_name(isa)) + " data " + std::to_string(static_cast<int>(data)) +
                   " n " + std::to_string(n) + " offset " + std::to_string(offset));
      const std::vector<float> in = shifted(exact, offset);
      std::vector<float> out(exact.size() + offset + 1, 42.0f);
      const auto rounded = [&](const std::vector<float>& v) {
        return std::span<const float>(v).subspan(offset, exact.size());
      };
      testing::expect_same_stats(
          measure_tensor(in.data() + offset, out.data() + offset, n, format_), want_stats);
      ASSERT_EQ(first_difference(rounded(out), want), -1);
      ASSERT_EQ(out.back(), 42.0f) << "wrote past the end";

      testing::expect_same_stats(measure_tensor(in.data() + offset, nullptr, n, format_),
                                 want_stats);
      out = in;
      testing::expect_same_stats(
          measure_tensor(out.data() + offset, out.data() + offset, n, format_), want_stats);
      ASSERT_EQ(first_difference(rounded(out), want), -1);

      out.assign(in.size() + 1, 42.0f);
      round_array(in.data() + offset, out.data() + offset, n, format_);
      ASSERT_EQ(first_difference(rounded(out), want), -1);
      ASSERT_EQ(out.back(), 42.0f) << "wrote past the end";
      out = in;
      round_tensor(out.data() + offset, out.data() + offset, n, format_);
      ASSERT_EQ(first_difference(rounded(out), want), -1);
      if (HasFailure()) return;
    }
  }
};

TEST_P(MeasureTest, ShortArrays) {
  for (const Data data : kAllData) {
    for (const int64_t n : kLengths) {
      ASSERT_NO_FATAL_FAILURE(check(data, n, 0));
      ASSERT_NO_FATAL_FAILURE(check(data, n, 1));
    }
  }
}

TEST_P(MeasureTest, LongArrays) {
  for (const Data data : kAllData) ASSERT_NO_FATAL_FAILURE(check(data, 100003, 3));
}

TEST_P(MeasureTest, ThreadsDoNotChangeTheResult) {
  const int before = omp_get_max_threads();
  const std::vector<float> exact = make_data(Data::patterns, 100003, format_);
  std::vector<float> want(exact.size());
  const TensorStats want_stats = measure(exact, want, format_);
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      std::vector<float> out(exact.size());
      testing::expect_same_stats(measure_tensor(exact.data(), out.data(), 100003, format_),
                                 want_stats);
      EXPECT_EQ(first_difference(out, want), -1);
      out = exact;
      round_tensor(out.data(), out.data(), 100003, format_);
      EXPECT_EQ(first_difference(out, want), -1);
    }
  }
  omp_set_num_threads(before);
}

TEST_P(MeasureTest, ChunksAddUpInTheCallersStats) {
  const std::vector<float> exact = make_data(Data::patterns, kSumChunk + 700, format_);
  std::vector<float> out(exact.size());
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    TensorStats stats;
    double sum[2], sum_sq[2];
    measure_chunk(exact.data(), out.data(), kSumChunk, format_, stats, &sum[0], &sum_sq[0]);
    measure_chunk(exact.data() + kSumChunk, out.data() + kSumChunk, 700, format_, stats, &sum[1],
                  &sum_sq[1]);
    EXPECT_EQ(stats.sum, 0.0);
    stats.sum = sum[0] + sum[1];
    stats.sum_sq = sum_sq[0] + sum_sq[1];
    const TensorStats want = measure(exact, out, format_);
    testing::expect_same_stats(stats, want);
    const ChunkMeter meter(format_);
    TensorStats again;
    meter.measure(exact.data(), kSumChunk, again, &sum[0], &sum_sq[0]);
    meter.measure(exact.data() + kSumChunk, 700, again, &sum[1], &sum_sq[1]);
    again.sum = sum[0] + sum[1];
    again.sum_sq = sum_sq[0] + sum_sq[1];
    testing::expect_same_stats(again, want);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MeasureTest,
                         ::testing::Values("fp32", "tf32", "bf16", "fp16", "e4m3fn", "e5m2", "e3m2",
                                           "e6m9", "e2m1", "int8", "int4", "e8m1", "e8m22", "e7m21",
                                           "e7m22", "e5m23", "e4m3fnuz", "e4m3fn:sat"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

// Other biases, encodings and options: which of them have a kernel is not known here.
TEST(MeasureOtherFormatsTest, EveryEncodingAndOption) {
  const testing::IsaGuard guard;
  for (const char* name :
       {"e4m3b8",      "e5m2fn",         "e4m3b100",    "e6m10fnb120",      "e4m8b-100",
        "e7m1b20",     "e5m2fnuz",       "e5m10fnuz",   "e8m7fnuz",         "e2m3",
        "e5m10finite", "e8m7finiteb128", "e8m7fnb128",  "e8m3b147",         "e8m0",
        "e5m0",        "e5m0fn",         "e2m0",        "fp16:sat",         "bf16:sat",
        "fp32:sat",    "fp16:ftz",       "fp16:ftz-in", "bf16:ftz-out",     "fp32:ftz-out",
        "tf32:ftz",    "e5m2:sat:ftz",   "e2m1:ftz",    "e4m3fnuz:sat:ftz", "e8m7b128"}) {
    const FloatFormat format = parse_format(name).value();
    for (const Data data : kAllData) {
      const std::vector<float> exact = make_data(data, 5000, format);
      std::vector<float> want(exact.size());
      const TensorStats want_stats = measure(exact, want, format);
      for (const Isa isa : supported_isas()) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + format_name(format));
        set_active_isa(isa);
        std::vector<float> out(exact.size());
        testing::expect_same_stats(measure_tensor(exact.data(), out.data(), 5000, format),
                                   want_stats);
        ASSERT_EQ(first_difference(out, want), -1);
      }
    }
  }
}

}  // namespace
}  // namespace halfscope
