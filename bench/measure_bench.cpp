// SPDX-License-Identifier: MIT
// Rounding and measuring compared with memcpy, one thread, data in L2 (64 KiB) and L3 (8 MiB per
// array). bytes_per_second counts input bytes. `memcpy_ratio` is the speed relative to memcpy of
// the same bytes, timed in the same run before each benchmark. HALFSCOPE_ISA selects the kernels.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "emulation/isa.h"
#include "emulation/measure/measure.h"

namespace {

using halfscope::FloatFormat;

enum class Data { normal, wide };

struct Arrays {
  std::vector<float> in, out;

  Arrays(int64_t bytes, Data data)
      : in(static_cast<size_t>(bytes) / sizeof(float)), out(in.size()) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> exponent(-30.0f, 18.0f);
    for (float& x : in) {
      x = normal(generator);
      if (data == Data::wide) x *= std::exp2(exponent(generator));
    }
  }
  int64_t size() const { return static_cast<int64_t>(in.size()); }
  double bytes() const { return static_cast<double>(in.size() * sizeof(float)); }
  void copy() {
    std::memcpy(out.data(), in.data(), in.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Returns the bytes per second of memcpy, the median of a few rounds.
double memcpy_speed(Arrays& arrays) {
  const int repeats = std::max(1, static_cast<int>(128e6 / arrays.bytes()));
  std::array<double, 15> speed;
  for (double& each : speed) {
    const double start = cpu_seconds();
    for (int i = 0; i < repeats; ++i) arrays.copy();
    each = repeats * arrays.bytes() / (cpu_seconds() - start);
  }
  std::nth_element(speed.begin(), speed.begin() + speed.size() / 2, speed.end());
  return speed[speed.size() / 2];
}

template <class Work>
void run(benchmark::State& state, int64_t bytes, Data data, Work work) {
  Arrays arrays(bytes, data);
  const double reference = memcpy_speed(arrays);
  const double start = cpu_seconds();
  for (auto _ : state) {
    work(arrays);
    benchmark::ClobberMemory();
  }
  const double seconds = cpu_seconds() - start;
  const double total = static_cast<double>(state.iterations()) * arrays.bytes();
  state.SetBytesProcessed(static_cast<int64_t>(total));
  state.counters["memcpy_ratio"] = total / seconds / reference;
}

void measure_array(Arrays& arrays, float* out, const FloatFormat& format) {
  halfscope::TensorStats stats;
  for (int64_t first = 0; first < arrays.size(); first += halfscope::kSumChunk) {
    double sum, sum_sq;
    halfscope::measure_chunk(arrays.in.data() + first, out == nullptr ? nullptr : out + first,
                             std::min(halfscope::kSumChunk, arrays.size() - first), format, stats,
                             &sum, &sum_sq);
  }
  benchmark::DoNotOptimize(stats);
}

void register_all() {
  for (const auto& [place, bytes] :
       {std::pair{"L2", int64_t{64} << 10}, {"L3", int64_t{8} << 20}}) {
    const auto add = [place = std::string(place), bytes = bytes](const std::string& what, Data data,
                                                                 auto work) {
      const std::string name = what + "/" + place;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { run(state, bytes, data, work); });
    };
    add("memcpy", Data::normal, [](Arrays& arrays) { arrays.copy(); });
    for (const char* name : {"fp16", "bf16", "e4m3fn"}) {
      const FloatFormat format = *halfscope::parse_format(name);
      const std::string suffix = std::string("/") + name;
      add("round" + suffix, Data::wide, [format](Arrays& arrays) {
        halfscope::round_array(arrays.in.data(), arrays.out.data(), arrays.size(), format);
      });
      for (const auto& [kind, data] : {std::pair{"/normal", Data::normal}, {"/wide", Data::wide}}) {
        add("measure" + suffix + kind, data,
            [format](Arrays& arrays) { measure_array(arrays, arrays.out.data(), format); });
        add("measure_only" + suffix + kind, data,
            [format](Arrays& arrays) { measure_array(arrays, nullptr, format); });
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("isa", halfscope::isa_name(halfscope::active_isa()));
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
