// SPDX-License-Identifier: MIT
// Elementary functions and activations, computed as in kernels (map_values, with the instruction
// set of HALFSCOPE_ISA), next to the same formula with the C library's functions. Both are timed
// alternately on the same 4096 numbers: `ns` per element, `libm_ns`, and `ratio` of the two, as
// medians over all turns. One thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/numeric/elementary/functions.h"
#include "emulation/engine/map_values.h"

namespace {

namespace elementary = halfscope::elementary;
namespace fn = halfscope::fn;

constexpr int64_t kCount = 4096;

double median(std::vector<double>& x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Adds a function. `spread` is the deviation of its normally distributed arguments; `positive`
/// takes their magnitudes.
template <class Ours, class Libm>
void add(const char* name, Ours ours, Libm libm, double spread = 2.0, bool positive = false) {
  benchmark::RegisterBenchmark(
      name,
      [=](benchmark::State& state) {
        std::vector<double> x(kCount), y(kCount);
        std::mt19937 generator(1);
        std::normal_distribution<double> normal(0.0, spread);
        for (double& each : x) each = positive ? std::fabs(normal(generator)) : normal(generator);
        const halfscope::Isa isa = halfscope::active_isa();
        std::vector<double> our_seconds, libm_seconds;
        for (auto _ : state) {
          our_seconds.push_back(
              seconds([&] { halfscope::map_values(isa, ours, y.data(), kCount, x.data()); }));
          libm_seconds.push_back(seconds([&] {
            for (int64_t i = 0; i < kCount; ++i)
              y[static_cast<size_t>(i)] = libm(x[static_cast<size_t>(i)]);
          }));
          state.SetIterationTime(our_seconds.back());
        }
        const double ns = median(our_seconds) / kCount * 1e9,
                     other = median(libm_seconds) / kCount * 1e9;
        state.counters["ns"] = ns;
        state.counters["libm_ns"] = other;
        state.counters["ratio"] = ns / other;
      })
      ->UseManualTime()
      ->MinTime(0.05);
}

double libm_logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void register_all() {
  add(
      "exp", [](double x) { return elementary::exp(x); }, [](double x) { return std::exp(x); });
  add(
      "expm1", [](double x) { return elementary::expm1(x); },
      [](double x) { return std::expm1(x); });
  add(
      "log", [](double x) { return elementary::log(x); }, [](double x) { return std::log(x); }, 2.0,
      true);
  add(
      "log1p", [](double x) { return elementary::log1p(x); },
      [](double x) { return std::log1p(x); }, 2.0, true);
  add(
      "tanh", [](double x) { return elementary::tanh(x); }, [](double x) { return std::tanh(x); });
  add(
      "erf", [](double x) { return elementary::erf(x); }, [](double x) { return std::erf(x); });
  add(
      "erfc", [](double x) { return elementary::erfc(x); }, [](double x) { return std::erfc(x); });
  add(
      "sin", [](double x) { return elementary::sin(x); }, [](double x) { return std::sin(x); });
  add(
      "cos", [](double x) { return elementary::cos(x); }, [](double x) { return std::cos(x); });
  add(
      "pow", [](double x) { return elementary::pow(x, 1.7); },
      [](double x) { return std::pow(x, 1.7); }, 2.0, true);
  add("Sigmoid", fn::Sigmoid{}, [](double x) { return libm_logistic(x); });
  add("Swish", fn::Swish{}, [](double x) { return x * libm_logistic(x); });
  add("Softplus", fn::Softplus{},
      [](double x) { return (x > 0.0 ? x : 0.0) + std::log1p(std::exp(-std::fabs(x))); });
  add("Elu", fn::Elu{}, [](double x) { return x > 0.0 ? x : std::expm1(x); });
  add(
      "Gelu", [](double x) { return fn::Gelu{.tanh = false}(x); },
      [](double x) { return 0.5 * x * std::erfc(-x * fn::kSqrtHalf); });
  add(
      "Gelu_tanh", [](double x) { return fn::Gelu{.tanh = true}(x); },
      [](double x) {
        return 0.5 * x * (1.0 + std::tanh(fn::kSqrtTwoOverPi * (x + fn::kGeluCubic * x * x * x)));
      });
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
