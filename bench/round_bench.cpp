// SPDX-License-Identifier: MIT
// Rounding and measuring compared with memcpy of the same bytes: arrays of 64 KiB (L2), 8 MiB (L3)
// and 256 MiB (DRAM), one thread and two. memcpy is timed again before every variant. Each number
// is the median over the rounds of the ratio of the two speeds, so load and clock changes cancel
// out.
//   round_bench [ROUNDS [FILTER]]; HALFSCOPE_ISA selects the kernels.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/tensor_rounding.h"
#include "emulation/isa.h"
#include "emulation/measure/measure.h"

namespace {

using halfscope::FloatFormat;
using halfscope::RoundingMode;
using halfscope::TensorRounding;

enum class Data { normal, wide, sparse };

constexpr const char* kDataNames[] = {"N(0,1)", "wide", "zeros"};

/// wide: N(0,1) * 2^U(-30,18); zeros: half zeros, a quarter fp32 subnormals, a quarter tiny.
void fill(std::vector<float>& values, Data data) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-30.0f, 18.0f);
  const size_t distinct = std::min<size_t>(values.size(), size_t{1} << 20);
  for (size_t i = 0; i < distinct; ++i) {
    float x = normal(generator);
    if (data == Data::wide) x *= std::exp2(exponent(generator));
    if (data == Data::sparse) {
      const unsigned kind = generator() % 4;
      x *= kind < 2 ? 0.0f : kind == 2 ? 0x1p-130f : 0x1p-16f;
    }
    values[i] = x;
  }
  for (size_t i = distinct; i < values.size(); ++i) values[i] = values[i - distinct];
}

struct Arrays {
  std::vector<float> in, out;
  int64_t size() const { return static_cast<int64_t>(in.size()); }
};

using Work = std::function<void(Arrays&, int threads)>;

struct Variant {
  std::string name;
  Data data;
  Work work;
};

void copy(Arrays& arrays, int threads) {
  const size_t bytes = arrays.in.size() * sizeof(float);
  if (threads == 1) {
    std::memcpy(arrays.out.data(), arrays.in.data(), bytes);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const size_t part = bytes / static_cast<size_t>(threads);
    const size_t first = part * static_cast<size_t>(omp_get_thread_num());
    std::memcpy(reinterpret_cast<char*>(arrays.out.data()) + first,
                reinterpret_cast<const char*>(arrays.in.data()) + first, part);
  }
}

/// Returns CPU time for one thread, so that other programs count less, and wall time for more.
double seconds(int threads) {
  if (threads == 1) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double time_of(const Work& work, Arrays& arrays, int threads) {
  const int64_t repeats = std::max<int64_t>(1, (int64_t{4} << 20) / arrays.size());
  const double start = seconds(threads);
  for (int64_t i = 0; i < repeats; ++i) {
    work(arrays, threads);
    asm volatile("" : : : "memory");
  }
  return (seconds(threads) - start) / static_cast<double>(repeats);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Result {
  double ratio, speed;
};

Result compare(const Work& work, Arrays& arrays, int threads, int rounds) {
  std::vector<double> ratios, speeds;
  for (int i = 0; i < rounds; ++i) {
    const double reference = time_of(copy, arrays, threads);
    const double time = time_of(work, arrays, threads);
    ratios.push_back(reference / time);
    speeds.push_back(static_cast<double>(arrays.size()) * 4e-9 / time);
  }
  return {median(ratios), median(speeds)};
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  const auto add_round = [&all](const char* name, RoundingMode mode, Data data) {
    const FloatFormat format = halfscope::parse_format(name).value();
    const TensorRounding how{.mode = mode, .key = 1};
    all.push_back({std::string("round ") + name + " " + std::string(rounding_mode_name(mode)), data,
                   [=](Arrays& arrays, int) {
                     halfscope::round_tensor(arrays.in.data(), arrays.out.data(), arrays.size(),
                                             format, how);
                   }});
  };
  for (const Data data : {Data::normal, Data::wide, Data::sparse}) {
    for (const char* name : {"fp16", "bf16", "e4m3fn", "e5m2"}) {
      add_round(name, RoundingMode::nearest_even, data);
    }
  }
  for (const char* name : {"e6m9", "e8m0", "e3m2", "e4m3fnuz", "e4m3fn:sat", "fp16:ftz", "bf16:ftz",
                           "e7m22", "e8m3b147"}) {
    add_round(name, RoundingMode::nearest_even, Data::wide);
  }
  for (const char* name : {"fp16", "bf16", "e4m3fnuz:ftz"}) {
    for (const RoundingMode mode : halfscope::kAllRoundingModes) {
      if (mode != RoundingMode::nearest_even) add_round(name, mode, Data::wide);
    }
  }
  add_round("fp16", RoundingMode::up, Data::normal);
  add_round("fp16", RoundingMode::up, Data::sparse);
  for (const char* name : {"fp16", "bf16", "e4m3fn", "e4m3fnuz"}) {
    const FloatFormat format = halfscope::parse_format(name).value();
    for (const Data data : {Data::normal, Data::wide, Data::sparse}) {
      all.push_back({std::string("measure ") + name, data, [=](Arrays& arrays, int) {
                       halfscope::measure_tensor(arrays.in.data(), arrays.out.data(), arrays.size(),
                                                 format);
                     }});
    }
  }
  all.push_back({"measure fp16 stochastic", Data::wide, [](Arrays& arrays, int) {
                   halfscope::measure_tensor(arrays.in.data(), arrays.out.data(), arrays.size(),
                                             halfscope::kFp16,
                                             {.mode = RoundingMode::stochastic, .key = 1});
                 }});
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::string_view filter = argc > 2 ? argv[2] : "";
  const int threads = omp_get_max_threads();
  struct Column {
    const char* name;
    int64_t bytes;
    int threads;
  };
  const Column columns[] = {{"L2", int64_t{64} << 10, 1},
                            {"L3", int64_t{8} << 20, 1},
                            {"DRAM", int64_t{256} << 20, 1},
                            {"L3 2T", int64_t{8} << 20, 2},
                            {"DRAM 2T", int64_t{256} << 20, 2}};
  std::printf("%s, %d rounds: speed relative to memcpy (GB/s of input)\n%-34s %-7s",
              halfscope::isa_name(halfscope::active_isa()), rounds, "", "data");
  for (const Column& column : columns) std::printf(" %14s", column.name);
  std::printf("\n");
  std::vector<Variant> all = variants();
  all.insert(all.begin(), {"memcpy", Data::normal, copy});
  std::stable_sort(all.begin(), all.end(), [](const Variant& a, const Variant& b) {
    return static_cast<int>(a.data) < static_cast<int>(b.data);
  });
  std::vector<Arrays> arrays(3);
  int filled = -1;
  for (const Variant& variant : all) {
    if (variant.name.find(filter) == std::string::npos) continue;
    if (filled != static_cast<int>(variant.data)) {
      for (int i = 0; i < 3; ++i) {
        Arrays& each = arrays[static_cast<size_t>(i)];
        each.in.resize(static_cast<size_t>(columns[i].bytes / 4));
        each.out.resize(each.in.size());
        fill(each.in, variant.data);
      }
      filled = static_cast<int>(variant.data);
    }
    std::printf("%-34s %-7s", variant.name.c_str(), kDataNames[filled]);
    for (size_t i = 0; i < std::size(columns); ++i) {
      if (columns[i].threads > threads) continue;
      omp_set_num_threads(columns[i].threads);
      const bool large = columns[i].bytes > int64_t{64} << 20;
      const Result result = compare(variant.work, arrays[i < 3 ? i : i - 2], columns[i].threads,
                                    large ? (rounds + 2) / 3 : rounds);
      std::printf("  %5.2f (%5.1f)", result.ratio, result.speed);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  double load[3] = {};
  if (getloadavg(load, 3) == 3) std::printf("load %.1f %.1f %.1f\n", load[0], load[1], load[2]);
  return 0;
}
