// SPDX-License-Identifier: MIT
// Every rounding mode on every instruction set compared with round_to_format and measure(), bit for
// bit, and the draws of stochastic rounding.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/numeric/formats/round.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "emulation/measure/measure.h"
#include "tests/measure/measure_data.h"

namespace halfscope {
namespace {

using testing::Data;
using testing::first_difference;
using testing::kAllData;
using testing::make_data;

constexpr const char* kFormats[] = {"fp32",
                                    "tf32",
                                    "bf16",
                                    "fp16",
                                    "e4m3fn",
                                    "e5m2",
                                    "e3m2",
                                    "e2m3",
                                    "e2m1",
                                    "int8",
                                    "int4",
                                    "e6m9",
                                    "e8m1",
                                    "e8m22",
                                    "e7m22",
                                    "e5m23",
                                    "e4m3fnuz",
                                    "e5m2fnuz",
                                    "e8m7fnuz",
                                    "e8m0",
                                    "e5m0",
                                    "e2m0",
                                    "e5m0fn",
                                    "e4m3b100",
                                    "e4m8b-100",
                                    "e8m3b147",
                                    "e8m0b140",
                                    "e6m10fnb120",
                                    "e3m4b143",
                                    "e2m23b127",
                                    "e8m7b128",
                                    "e8m7finiteb128",
                                    "e5m10finite",
                                    "fp16:sat",
                                    "bf16:sat",
                                    "e4m3fn:sat",
                                    "fp32:sat",
                                    "fp16:ftz",
                                    "bf16:ftz-out",
                                    "fp32:ftz-out",
                                    "tf32:ftz-in",
                                    "e5m2:sat:ftz",
                                    "e4m3fnuz:sat:ftz",
                                    "e8m3b147:ftz",
                                    "e8m0b140:sat",
                                    "e8m23b127:sat:ftz",
                                    "e4m0fnuz"};

std::vector<float> round_all(const std::vector<float>& exact, const FloatFormat& format,
                             const TensorRounding& rounding) {
  std::vector<float> result(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const Rounding element = rounding.element(static_cast<int64_t>(i));
    result[i] = round_to_format(exact[i], format, element).value;
  }
  return result;
}

class RoundingTest : public ::testing::TestWithParam<RoundingMode> {
 protected:
  TensorRounding rounding_{.mode = GetParam(), .key = 0x123456789abcdef0u, .random_bits = 32};
  testing::IsaGuard guard_;

  /// Rounding and measuring, out of place and in place, for every instruction set.
  void check(const std::vector<float>& exact, const FloatFormat& format, size_t offset) {
    const int64_t n = static_cast<int64_t>(exact.size());
    std::vector<float> want(exact.size());
    const TensorStats want_stats = measure(exact, want, format, rounding_);
    ASSERT_EQ(first_difference(round_all(exact, format, rounding_), want), -1);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      SCOPED_TRACE(std::string(isa_name(isa)) + " " + format_name(format) + " n " +
                   std::to_string(n));
      std::vector<float> in(offset, 0.0f);
      in.insert(in.end(), exact.begin(), exact.end());
      std::vector<float> out(in.size() + 1, 42.0f);
      const auto rounded = [&] {
        return std::span<const float>(out).subspan(offset, exact.size());
      };
      const auto expect_rounded = [&] {
        const int64_t at = first_difference(rounded(), want);
        ASSERT_EQ(at, -1) << std::hexfloat << exact[static_cast<size_t>(at)] << " gave "
                          << rounded()[static_cast<size_t>(at)] << ", not "
                          << want[static_cast<size_t>(at)];
      };
      round_array(in.data() + offset, out.data() + offset, n, format, rounding_);
      ASSERT_NO_FATAL_FAILURE(expect_rounded());
      ASSERT_EQ(out.back(), 42.0f) << "wrote past the end";
      std::copy(in.begin(), in.end(), out.begin());
      round_tensor(out.data() + offset, out.data() + offset, n, format, rounding_);
      ASSERT_NO_FATAL_FAILURE(expect_rounded());

      testing::expect_same_stats(measure_tensor(in.data() + offset, nullptr, n, format, rounding_),
                                 want_stats);
      std::copy(in.begin(), in.end(), out.begin());
      testing::expect_same_stats(
          measure_tensor(out.data() + offset, out.data() + offset, n, format, rounding_),
          want_stats);
      ASSERT_NO_FATAL_FAILURE(expect_rounded());
      ASSERT_EQ(out.back(), 42.0f) << "wrote past the end";
      if (HasFailure()) return;
    }
  }
};

TEST_P(RoundingTest, EveryFormat) {
  for (const char* name : kFormats) {
    const FloatFormat format = parse_format(name).value();
    for (const Data data : kAllData) {
      ASSERT_NO_FATAL_FAILURE(check(make_data(data, 5000, format), format, 1));
    }
  }
}

TEST_P(RoundingTest, LengthsAroundVectorsAndChunks) {
  for (const char* name : {"fp16", "bf16", "e4m3fnuz:ftz", "e8m3b147"}) {
    const FloatFormat format = parse_format(name).value();
    for (const int64_t n : {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 4095, 4096, 4097, 40001}) {
      for (const size_t offset : {size_t{0}, size_t{1}, size_t{5}}) {
        ASSERT_NO_FATAL_FAILURE(check(make_data(Data::patterns, n, format), format, offset));
      }
    }
  }
}

// Every value of formats with codes of 16 bits or less, the points half way to the next, and the
// neighbours of both, with both signs.
TEST_P(RoundingTest, NeighboursOfEveryBoundary) {
  for (const char* name : {"fp16", "bf16", "e4m3fn", "e5m2fnuz", "e8m7b128", "e6m9:ftz"}) {
    const FloatFormat format = parse_format(name).value();
    std::vector<float> exact;
    const uint32_t step = 1u << (22 - format.mantissa_bits);  // half of the last place
    for (uint64_t bits = 0; bits < 0x7f800000u; bits += step) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (x > 0 && (x < format.min_subnormal() / 4 || x > format.max_finite() * 4)) continue;
      for (const int32_t by : {-1, 0, 1}) {
        const uint32_t near = static_cast<uint32_t>(bits) + static_cast<uint32_t>(by);
        exact.push_back(std::bit_cast<float>(near & 0x7fffffffu));
        exact.push_back(-exact.back());
      }
    }
    ASSERT_NO_FATAL_FAILURE(check(exact, format, 0));
  }
}

TEST_P(RoundingTest, LargeArraysAndThreads) {  // large enough for streaming stores
  const int64_t n = (int64_t{6} << 20) + 4099;
  const int before = omp_get_max_threads();
  for (const char* name : {"fp16", "bf16:sat"}) {
    const FloatFormat format = parse_format(name).value();
    const std::vector<float> part = make_data(Data::wide, 1 << 16, format);
    std::vector<float> exact(static_cast<size_t>(n));
    for (size_t i = 0; i < exact.size(); ++i) exact[i] = part[i % part.size()];
    std::vector<float> want(exact.size()), out(exact.size() + 3);
    set_active_isa(Isa::baseline);
    omp_set_num_threads(1);
    const TensorStats stats = measure_tensor(exact.data(), want.data(), n, format, rounding_);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        const auto rounded = std::span<const float>(out).subspan(3);
        std::fill(out.begin(), out.end(), 42.0f);
        round_tensor(exact.data(), out.data() + 3, n, format, rounding_);
        ASSERT_EQ(first_difference(rounded, want), -1);
        std::fill(out.begin(), out.end(), 42.0f);
        testing::expect_same_stats(
            measure_tensor(exact.data(), out.data() + 3, n, format, rounding_), stats);
        ASSERT_EQ(first_difference(rounded, want), -1);
      }
    }
  }
  omp_set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Modes, RoundingTest, ::testing::ValuesIn(kAllRoundingModes),
                         [](const auto& info) {
                           std::string name(rounding_mode_name(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class StochasticTensorTest : public ::testing::Test {
 protected:
  testing::IsaGuard guard_;
  static TensorRounding stochastic(uint64_t key, int bits = 32) {
    return {.mode = RoundingMode::stochastic, .key = key, .random_bits = bits};
  }
};

TEST_F(StochasticTensorTest, PartsAreRoundedAsTheWhole) {
  const int64_t n = 9001;
  for (const char* name : {"fp16", "bf16", "e4m3fn", "e8m3b147"}) {
    const FloatFormat format = parse_format(name).value();
    const std::vector<float> exact = make_data(Data::wide, n, format);
    const TensorRounding rounding = stochastic(77);
    const std::vector<float> want = round_all(exact, format, rounding);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      for (const int64_t cut : {1, 2, 63, 64, 101, 4096, 8999}) {
        std::vector<float> out(exact.size());
        round_array(exact.data(), out.data(), cut, format, rounding);
        round_array(exact.data() + cut, out.data() + cut, n - cut, format, rounding.from(cut));
        EXPECT_EQ(first_difference(out, want), -1) << isa_name(isa) << " " << name << " " << cut;
      }
    }
  }
}

TEST_F(StochasticTensorTest, EveryNumberOfRandomBits) {
  const std::vector<float> exact = make_data(Data::wide, 3000, kFp16);
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (int bits = 0; bits <= 33; ++bits) {
      const TensorRounding rounding = stochastic(5, bits);
      std::vector<float> out(exact.size());
      for (const FloatFormat& format : {kFp16, kBf16, kE3m2}) {
        round_array(exact.data(), out.data(), 3000, format, rounding);
        EXPECT_EQ(first_difference(out, round_all(exact, format, rounding)), -1) << bits;
      }
    }
  }
}

// n draws that round up with probability p: the number is within 6 sigma, and so are the pairs of
// neighbours and of elements that share a word with the other key.
TEST_F(StochasticTensorTest, RoundsUpAtTheShareOfTheFraction) {
  const int64_t n = 1 << 20;
  std::vector<float> exact(static_cast<size_t>(n)), a(exact.size()), b(exact.size());
  for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn}) {
    for (const double p : {0x1p-10, 0.1, 0.25, 0.5, 0.75, 0.999}) {
      const double step = std::ldexp(1.0, -format.mantissa_bits);
      std::fill(exact.begin(), exact.end(), static_cast<float>(1.0 + p * step));
      const double share = (static_cast<double>(exact[0]) - 1.0) / step;
      round_tensor(exact.data(), a.data(), n, format, stochastic(1));
      round_tensor(exact.data(), b.data(), n, format, stochastic(2));
      int64_t up = 0, neighbours = 0, second = 0, keys = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        up += a[i] > 1;
        neighbours += i > 0 && a[i] > 1 && a[i - 1] > 1;
        second += i > 1 && a[i] > 1 && a[i - 2] > 1;
        keys += a[i] > 1 && b[i] > 1;
      }
      const auto expect_share = [n](int64_t count, double q, const char* what) {
        const double expected = static_cast<double>(n) * q;
        EXPECT_NEAR(static_cast<double>(count), expected, 6 * std::sqrt(2 * expected * (1 - q)) + 2)
            << what;
      };
      expect_share(up, share, "all");
      expect_share(neighbours, share * share, "neighbours");
      expect_share(second, share * share, "every other");
      expect_share(keys, share * share, "two keys");
    }
  }
}

// 65536 bins of the upper bits and of the lower: chi squared has mean 65535 and sigma 362.
TEST_F(StochasticTensorTest, DrawsAreUniform) {
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, random_key(1, 2, 3)}) {
    std::vector<int> upper(65536), lower(65536);
    const int n = 65536 * 32;
    for (uint64_t i = 0; i < n; ++i) {
      const uint32_t draw = random_draw(key, i);
      ++upper[draw >> 16];
      ++lower[draw & 0xffff];
    }
    for (const std::vector<int>* bins : {&upper, &lower}) {
      double chi = 0;
      for (const int count : *bins) chi += (count - 32.0) * (count - 32.0) / 32.0;
      EXPECT_NEAR(chi, 65535, 6 * 362);
    }
  }
}

}  // namespace
}  // namespace halfscope
