// SPDX-License-Identifier: MIT
// Operators of the emulator that choose, move, gather, pool and scale, one node at a time, relative
// to memcpy of as many bytes as they read and write. Tensors have 1,024 elements (which shows the
// cost of a call) and 65,536; one thread. memcpy is timed again before every operator. Each number
// is the median over the rounds of the ratio of the two times, so load and clock changes cancel
// out. To compare two versions, alternate their programs and compare the ratios.
//   bodies_bench [ROUNDS [FILTER]]
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/lower/lower.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/scaling/tensor_scale.h"
#include "emulation/backends.h"

namespace {

using namespace halfscope;  // NOLINT: a program of its own

enum class Kind { real, index };

/// Indices are in [0, below).
struct Input {
  Kind kind;
  Shape shape;
  int32_t below = 2;
};

struct Variant {
  std::string name, op;
  std::vector<Input> inputs;
  Attributes attributes = {};
  std::string scale = "none";
};

Input real(Shape shape) { return {Kind::real, std::move(shape)}; }
Input index(Shape shape, int64_t below) {
  return {Kind::index, std::move(shape), static_cast<int32_t>(below)};
}

/// Returns the operators with tensors of n * n elements; n is a multiple of 32.
std::vector<Variant> variants(int64_t n) {
  using Ints = std::vector<int64_t>;
  const Shape square{n, n}, planes{4, 4, n / 4, n / 4};
  const auto pool = [](int64_t kernel, int64_t stride, int64_t pad) {
    return Attributes{{"kernel_shape", Ints{kernel, kernel}},
                      {"strides", Ints{stride, stride}},
                      {"pads", Ints(4, pad)}};
  };
  const auto with = [](Attributes attributes, const char* name, Attribute value) {
    attributes[name] = std::move(value);
    return attributes;
  };
  const Attributes block32{{"axis", int64_t{1}}, {"block", int64_t{32}}};
  const Attributes block16{{"axis", int64_t{0}}, {"block", int64_t{16}}};
  const Attributes slice{
      {"starts", Ints{1, 0}}, {"ends", Ints{n, n}}, {"axes", Ints{0, 1}}, {"steps", Ints{1, 2}}};
  return {
      {"Add", "Add", {real(square), real(square)}},
      {"Add row", "Add", {real(square), real({n})}},
      {"Relu", "Relu", {real(square)}},
      {"Equal", "Equal", {real(square), real(square)}},
      {"Less row", "Less", {real(square), real({n})}},
      {"And", "And", {index(square, 2), index(square, 2)}},
      {"Not", "Not", {index(square, 2)}},
      {"ArgMax lines", "ArgMax", {real(square)}, {{"axis", int64_t{1}}}},
      {"ArgMax columns", "ArgMax", {real(square)}, {{"axis", int64_t{0}}}},
      {"Where", "Where", {index(square, 2), real(square), real(square)}},
      {"Where row", "Where", {index({n, 1}, 2), real(square), real({n})}},
      {"Where of indices", "Where", {index(square, 2), index(square, 9), index(square, 9)}},
      {"Add of indices", "Add", {index(square, 99), index(square, 99)}},
      {"ReduceSum of indices", "ReduceSum", {index(square, 99)}, {{"axes", Ints{0}}}},
      {"CumSum of indices", "CumSum", {index(square, 99)}, {{"axis", int64_t{1}}}},
      {"IndexToReal", "IndexToReal", {index(square, 99)}},
      {"RealToIndex", "RealToIndex", {real(square)}},
      {"Expand", "Expand", {real({n, 1})}, {{"shape", Ints{n, n}}}},
      {"Transpose", "Transpose", {real(square)}, {{"perm", Ints{1, 0}}}},
      {"Transpose planes", "Transpose", {real(planes)}, {{"perm", Ints{0, 2, 1, 3}}}},
      {"Concat", "Concat", {real({n, n / 2}), real({n, n / 2})}, {{"axis", int64_t{1}}}},
      {"Concat rows", "Concat", {real({n / 2, n}), real({n / 2, n})}, {{"axis", int64_t{0}}}},
      {"Split", "Split", {real(square)}, {{"axis", int64_t{1}}, {"split", Ints{n / 2, n / 2}}}},
      {"Slice", "Slice", {real(square)}, slice},
      {"SliceGrad", "SliceGrad", {real({n - 1, n / 2})}, with(slice, "shape", Ints{n, n})},
      {"Pad", "Pad", {real(planes)}, {{"pads", Ints{0, 0, 1, 1, 0, 0, 1, 1}}}},
      {"Gather rows", "Gather", {real(square), index({n}, n)}},
      {"Gather columns", "Gather", {real(square), index({n}, n)}, {{"axis", int64_t{1}}}},
      {"GatherElements", "GatherElements", {real(square), index(square, n)}},
      {"GatherElements lines",
       "GatherElements",
       {real(square), index(square, n)},
       {{"axis", int64_t{1}}}},
      {"GatherElements labels",
       "GatherElements",
       {real({n * n / 16, 16}), index({n * n / 16}, 16)},
       {{"labels", int64_t{1}}}},
      {"GatherElementsGrad labels",
       "GatherElementsGrad",
       {real({n * n / 16}), index({n * n / 16}, 16)},
       {{"labels", int64_t{1}}, {"shape", Ints{n * n / 16, 16}}}},
      {"GatherGrad rows", "GatherGrad", {real(square), index({n}, n)}, {{"shape", Ints{n, n}}}},
      {"MaxPool 2x2", "MaxPool", {real(planes)}, pool(2, 2, 0)},
      {"MaxPool 3x3", "MaxPool", {real(planes)}, pool(3, 2, 1)},
      {"MaxPoolGrad 3x3",
       "MaxPoolGrad",
       {real({4, 4, n / 8, n / 8}), index({4, 4, n / 8, n / 8}, n * n / 16)},
       with(pool(3, 2, 1), "shape", planes)},
      {"AveragePool 3x3", "AveragePool", {real(planes)}, pool(3, 2, 1)},
      {"AveragePoolGrad 3x3",
       "AveragePoolGrad",
       {real({4, 4, n / 8, n / 8})},
       with(pool(3, 2, 1), "shape", planes)},
      {"Quantize current", "Quantize", {real(square)}, {}, "current"},
      {"Quantize delayed", "Quantize", {real(square), real({18})}, {}, "delayed:history=16"},
      {"Quantize mx", "Quantize", {real(square)}, block32, "mx"},
      {"Quantize nvfp4", "Quantize", {real(square)}, block16, "nvfp4"},
      {"Dequantize mx", "Dequantize", {real(square), real({n * n / 32}), real({})}, block32, "mx"},
      {"ScaleUpdate", "ScaleUpdate", {real(square), real({18})}, {}, "delayed:history=16"},
  };
}

/// One node with filled operands.
class Operator {
 public:
  explicit Operator(const Variant& variant) {
    Executable executable;
    Graph& graph = executable.graph;
    std::vector<ValueId> values;
    for (const Input& input : variant.inputs) {
      const std::string name = "x" + std::to_string(values.size());
      values.push_back(input.kind == Kind::index
                           ? graph.add_input(name, input.shape, ElementType::index)
                           : graph.add_variable(name, input.shape, {}));
    }
    const std::vector<ValueId> results = graph.add(variant.op, "node", values, variant.attributes);
    NodePlan& plan = graph.node(0).plan;
    plan.scale = parse_scale(variant.scale).value();
    if (plan.scale.any()) plan.read = plan.write = kE4m3fn;
    executable.entries[static_cast<size_t>(Entry::grad)].push_back(0);
    program_ = emulation_backend().compile(executable);
    for (size_t i = 0; i < values.size(); ++i) fill(values[i], variant.inputs[i], i + 1);
    for (const ValueId value : values) elements_ += element_count(graph.value(value).shape);
    for (const ValueId value : results) elements_ += element_count(graph.value(value).shape);
  }

  void run() { program_->run(Entry::grad, {}); }
  /// Returns the bytes that a call reads and writes.
  int64_t bytes() const { return elements_ * 4; }

 private:
  void fill(ValueId value, const Input& input, uint64_t seed) {
    std::vector<float> reals;
    std::vector<int32_t> indices;
    for (int64_t i = 0; i < element_count(input.shape); ++i) {
      const uint64_t word = splitmix64(seed * 1000003 + static_cast<uint64_t>(i));
      indices.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(input.below)));
      reals.push_back(static_cast<float>(static_cast<int64_t>(word % 2001) - 1000) * 0x1p-6f);
    }
    if (input.kind == Kind::index) {
      program_->write(value, std::span<const int32_t>(indices));
    } else {
      program_->write(value, std::span<const float>(reals));
    }
  }

  std::unique_ptr<Program> program_;
  int64_t elements_ = 0;
};

double seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns the time of one call, measured in a run of about `length` seconds.
template <class Work>
double time_of(const Work& work, double length) {
  int64_t calls = 1;
  for (;;) {
    const double start = seconds();
    for (int64_t i = 0; i < calls; ++i) {
      work();
      asm volatile("" : : : "memory");
    }
    const double passed = seconds() - start;
    if (passed > length / 2) return passed / static_cast<double>(calls);
    calls *= 2;
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::string_view filter = argc > 2 ? argv[2] : "";
  omp_set_num_threads(1);
  std::printf("%-28s %9s %12s %12s\n", "operator", "elements", "x memcpy", "us");
  for (const int64_t n : {32, 256}) {
    for (const Variant& variant : variants(n)) {
      if (variant.name.find(filter) == std::string::npos) continue;
      Operator node(variant);
      const size_t half = static_cast<size_t>(node.bytes()) / 2;
      const std::vector<char> from(half, 1);
      std::vector<char> to(half);
      std::vector<double> ratios, times;
      for (int i = 0; i < rounds; ++i) {
        const double copy = time_of([&] { std::memcpy(to.data(), from.data(), half); }, 1e-3);
        times.push_back(time_of([&] { node.run(); }, 2e-3));
        ratios.push_back(times.back() / copy);
      }
      std::printf("%-28s %9ld %12.3f %12.3f\n", variant.name.c_str(), static_cast<long>(n * n),
                  median(ratios), median(times) * 1e6);
      std::fflush(stdout);
    }
  }
  return 0;
}
