// SPDX-License-Identifier: MIT
// Speed of the products: GFLOP/s, and the time relative to OpenBLAS sgemm in the same run if a
// cblas was found ("to_sgemm", below 1 is faster). A convolution is compared with the sgemm of its
// size on ready-made patches. For low-precision products also the time with accumulator diagnostics
// relative to that without. Names are case / accumulation / threads.
// accumulators relative to that without. Name: case / accumulation / threads.
#include <benchmark/benchmark.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/numeric/formats/round.h"
#include "emulation/gemm/gemm.h"

#ifdef HALFSCOPE_CBLAS
#include <cblas.h>
#endif

namespace {

using namespace halfscope;

/// `both_halves`: only values that fp16 and bf16 can both represent.
std::vector<float> values(int64_t count, bool both_halves = false) {
  static std::mt19937 engine(1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) {
    x = static_cast<float>(engine()) / 4294967296.0f - 0.5f;
    if (both_halves) x = round_to_format(round_to_format(x, kFp16).value, kBf16).value;
  }
  return out;
}

struct Case {
  std::string name;
  int64_t m, n, k;  ///< the equivalent matrix product
  bool a_transposed, b_transposed;
  std::function<void(const SumSpec&, Diagnostics*)> run;
  bool diagnoses = false;  ///< also timed with diagnostics
};

/// Lets the spinning threads of the other library go to sleep, because they would share our cores.
[[maybe_unused]] void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }

/// Shortest of many runs; with one thread in processor time, because the machine may be shared.
class Stopwatch {
 public:
  explicit Stopwatch(int threads)
      : clock_(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC) {}
  template <class F>
  void time(F f) {
    const double start = now();
    f();
    const double spent = now() - start;
    best_ = std::min(best_, spent);
    total_ += spent;
  }
  double best() const { return best_; }
  double total() const { return total_; }

 private:
  double now() const {
    timespec time{};
    clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  clockid_t clock_;
  double best_ = 1e30, total_ = 0;
};

/// The sgemm of a case's size, one run at a time; does nothing without cblas.
class Sgemm {
 public:
#ifdef HALFSCOPE_CBLAS
  Sgemm(const Case& c, int threads)
      : c_(c), threads_(threads), a_(values(c.m * c.k)), b_(values(c.k * c.n)) {
    out_.resize(static_cast<size_t>(c.m * c.n));
  }
  void time(Stopwatch& watch) {
    openblas_set_num_threads(threads_);
    const auto size = [](int64_t x) { return static_cast<int>(x); };
    watch.time([&] {
      cblas_sgemm(CblasRowMajor, c_.a_transposed ? CblasTrans : CblasNoTrans,
                  c_.b_transposed ? CblasTrans : CblasNoTrans, size(c_.m), size(c_.n), size(c_.k),
                  1, a_.data(), size(c_.a_transposed ? c_.m : c_.k), b_.data(),
                  size(c_.b_transposed ? c_.k : c_.n), 0, out_.data(), size(c_.n));
    });
    if (threads_ > 1) settle();
  }
  static constexpr bool kExists = true;

 private:
  const Case& c_;
  int threads_;
  std::vector<float> a_, b_, out_;
#else
  Sgemm(const Case&, int) {}
  void time(Stopwatch&) {}
  static constexpr bool kExists = false;
#endif
};

/// Times both alternately, so that load on the machine affects both.
void measure(benchmark::State& state, const Case& c, const SumSpec& spec, int threads) {
  omp_set_num_threads(threads);
  Sgemm sgemm(c, threads);
  Stopwatch watch(threads), other(threads), warm(threads), noting(threads);
  const bool diagnoses = c.diagnoses && has_diagnostics(spec.accumulation);
  c.run(spec, nullptr);
  sgemm.time(warm);
  for (auto _ : state) {
    const double before = watch.total();
    sgemm.time(other);
    watch.time([&] { c.run(spec, nullptr); });
    Diagnostics seen;
    if (diagnoses) noting.time([&] { c.run(spec, &seen); });
    benchmark::ClobberMemory();
    state.SetIterationTime(watch.total() - before);
  }
  const double flops = 2.0 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k);
  state.counters["GFLOP/s"] = flops / watch.best() * 1e-9;
  if (diagnoses) state.counters["with diagnostics"] = noting.best() / watch.best();
  if (Sgemm::kExists) {
    state.counters["sgemm"] = flops / other.best() * 1e-9;
    state.counters["to_sgemm"] = watch.best() / other.best();
  }
}

Case product(const std::string& name, int64_t m, int64_t n, int64_t k, bool a_transposed,
             bool b_transposed, bool both_halves = false) {
  return {name,
          m,
          n,
          k,
          a_transposed,
          b_transposed,
          [=, a = values(m * k, both_halves), b = values(k * n, both_halves), c = values(m * n)](
              const SumSpec& spec, Diagnostics* seen) mutable {
            gemm(m, n, k, a_transposed ? MatrixView{a.data(), 1, m} : MatrixView{a.data(), k, 1},
                 b_transposed ? MatrixView{b.data(), 1, k} : MatrixView{b.data(), n, 1}, nullptr,
                 c.data(), spec, seen);
          }};
}

/// Adds the products y = x W^T, dx = dy W and dW = dy^T x of a layer.
void add_layer(std::vector<Case>& cases, const std::string& name, int64_t batch, int64_t in,
               int64_t out) {
  cases.push_back(product(name + "_y", batch, out, in, false, true));
  cases.push_back(product(name + "_dx", batch, in, out, false, false));
  cases.push_back(product(name + "_dw", out, in, batch, true, false));
}

void add_conv(std::vector<Case>& cases, const std::string& name, const ConvShape& s) {
  const int64_t pixels = s.out_height() * s.out_width(), taps = s.in * s.kernel_h * s.kernel_w;
  const auto x = values(s.batch * s.in * s.height * s.width, true), w = values(s.out * taps, true);
  const auto dy = values(s.batch * s.out * pixels, true), bias = values(s.out);
  cases.push_back({name + "_y", s.batch * pixels, s.out, taps, false, true,
                   [=, y = dy](const SumSpec& spec, Diagnostics* seen) mutable {
                     conv_forward(s, x.data(), w.data(), bias.data(), y.data(), spec, seen);
                   }});
  cases.push_back({name + "_dx", s.batch * pixels, taps, s.out, false, false,
                   [=, dx = x](const SumSpec& spec, Diagnostics* seen) mutable {
                     conv_grad_input(s, dy.data(), w.data(), dx.data(), spec, seen);
                   }});
  cases.push_back({name + "_dw", s.out, taps, s.batch * pixels, true, false,
                   [=, dw = w](const SumSpec& spec, Diagnostics* seen) mutable {
                     conv_grad_weight(s, x.data(), dy.data(), dw.data(), spec, seen);
                   }});
  cases.push_back({name + "_db", s.out, 1, s.batch * pixels, false, false,
                   [=, db = bias](const SumSpec& spec, Diagnostics*) mutable {
                     sum_except(s.batch, s.out, pixels, dy.data(), db.data(), spec);
                   }});
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Case> cases;
  cases.push_back(product("square512", 512, 512, 512, false, false));
  cases.push_back(product("square1024", 1024, 1024, 1024, false, false));
  std::vector<Case> low_precision{product("low512", 512, 512, 512, false, false, true),
                                  product("low1024", 1024, 1024, 1024, false, false, true)};
  for (Case& c : low_precision) c.diagnoses = true;
  add_layer(cases, "mlp784x512", 128, 784, 512);
  add_layer(cases, "mlp512x512", 128, 512, 512);
  add_layer(cases, "mlp512x10", 128, 512, 10);
  add_layer(cases, "lenet1024x256", 128, 1024, 256);
  add_conv(
      cases, "lenet_conv1",
      {.batch = 128, .in = 1, .height = 28, .width = 28, .out = 32, .kernel_h = 5, .kernel_w = 5});
  add_conv(
      cases, "lenet_conv2",
      {.batch = 128, .in = 32, .height = 12, .width = 12, .out = 64, .kernel_h = 5, .kernel_w = 5});
  add_conv(cases, "resnet_conv",
           {.batch = 16,
            .in = 64,
            .height = 32,
            .width = 32,
            .out = 64,
            .kernel_h = 3,
            .kernel_w = 3,
            .pad_top = 1,
            .pad_left = 1,
            .pad_bottom = 1,
            .pad_right = 1});
  add_conv(cases, "resnet_down",
           {.batch = 16,
            .in = 64,
            .height = 32,
            .width = 32,
            .out = 128,
            .kernel_h = 3,
            .kernel_w = 3,
            .stride_h = 2,
            .stride_w = 2,
            .pad_top = 1,
            .pad_left = 1,
            .pad_bottom = 1,
            .pad_right = 1});
  const auto add = [](const Case& c, const std::string& accumulation, const SumSpec& spec) {
    for (const int threads : {1, 2}) {
      const std::string name = c.name + "/" + accumulation + "/" + std::to_string(threads);
      benchmark::RegisterBenchmark(
          name.c_str(),
          [c, spec, threads](benchmark::State& state) { measure(state, c, spec, threads); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  };
  const std::pair<const char*, SumSpec> specs[] = {{"fp32", {Accumulation::fp32, kFp32}},
                                                   {"fp64", {Accumulation::fp64, kFp16}},
                                                   {"format-fp16", {Accumulation::format, kFp16}}};
  for (const Case& c : cases) {
    for (const auto& [accumulation, spec] : specs) add(c, accumulation, spec);
  }
  for (const Case& c : cases) {
    if (c.name.starts_with("resnet_conv") || c.name.starts_with("lenet_conv2")) {
      for (const char* kind : {"tensor-core:h100", "kahan"}) {
        add(c, kind, {*parse_accumulation(kind), kFp16, kFp16});
      }
    }
  }
  for (const Case& c : low_precision) {
    add(c, "fp64-fp16", {Accumulation::fp64, kFp16, kFp16});
    for (const auto& [name, format] : {std::pair{"fp16", kFp16}, std::pair{"bf16", kBf16}}) {
      for (const char* kind : {"fp32", "format", "format-mul-add", "fma32-then-round"}) {
        add(c, std::string(kind) + "-" + name, {*parse_accumulation(kind), format, format});
      }
    }
    for (const char* kind :
         {"tensor-core:v100", "tensor-core:a100", "tensor-core:h100", "tensor-core:h100,acc=fp16",
          "tensor-core:h100,promote=128", "fp32:promote=128", "fp32:split-k=4",
          "format:promote=128", "pairwise", "interleaved16", "kahan", "format:rounding=toward-zero",
          "format:rounding=up", "format:rounding=odd", "format:rounding=stochastic",
          "format-mul-add:rounding=toward-zero", "format-mul-add:rounding=stochastic"}) {
      add(c, kind, {*parse_accumulation(kind), kFp16, kFp16});
    }
    add(c, "tensor-core:a100-bf16", {*parse_accumulation("tensor-core:a100"), kBf16, kBf16});
    add(c, "tensor-core:h100-bf16", {*parse_accumulation("tensor-core:h100"), kBf16, kBf16});
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
