// SPDX-License-Identifier: MIT
// Diagnostics do not depend on who takes them: every instruction set, one to four threads and every
// repetition count what the reference counts element by element, over memory in which the product
// before has left numbers that would be noticed.
#include <limits>

#include "core/numeric/sums/sum_diagnostics.h"
#include "tests/gemm/oracles.h"

namespace halfscope::testing {
namespace {

using Floats = std::vector<float>;

struct Size {
  int64_t m, n, k;
};

/// The operands of one product, in the four possible memory layouts.
class Operands {
 public:
  Operands(const Size& size, uint32_t seed, const FloatFormat& read) : size_(size) {
    Values values(seed, true, read);
    a_ = values(size.m * size.k);
    b_ = values(size.k * size.n);
    for (size_t i = 0; i < b_.size(); i += 7) b_[i] = 0.0f;
    a_lines_ = transposed(a_, size.m, size.k);
    b_lines_ = transposed(b_, size.k, size.n);
  }
  MatrixView a(bool lines) const {
    return lines ? MatrixView{a_lines_.data(), 1, size_.m} : MatrixView{a_.data(), size_.k, 1};
  }
  MatrixView b(bool lines) const {
    return lines ? MatrixView{b_lines_.data(), 1, size_.k} : MatrixView{b_.data(), size_.n, 1};
  }
  SumDiagnostics expected(const SumSpec& spec) const {
    SumDiagnostics all;
    const size_t k = static_cast<size_t>(size_.k);
    for (int64_t i = 0; i < size_.m; ++i) {
      for (int64_t j = 0; j < size_.n; ++j) {
        const std::span row(a_.data() + i * size_.k, k), column(b_lines_.data() + j * size_.k, k);
        all.merge(diagnose_sum(spec, row, column).value());
      }
    }
    return all;
  }

 private:
  static Floats transposed(const Floats& from, int64_t rows, int64_t columns) {
    Floats to(from.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
    }
    return to;
  }

  Size size_;
  Floats a_, b_, a_lines_, b_lines_;  ///< lines: transposed
};

std::string text(const SumDiagnostics& d) {
  return std::to_string(d.sums) + " sums, " + std::to_string(d.products) + " products, " +
         std::to_string(d.swamped) + " swamped, largest " + std::to_string(d.largest) + ", " +
         std::to_string(d.overflowed) + " overflowed, first at " + std::to_string(d.first_overflow);
}

/// Leaves a number in the memory that products reuse.
void leave_traces(float trace) {
  constexpr int64_t kSide = 64;
  const Floats x(kSide * kSide, trace);
  Floats c(kSide * kSide);
  for (const SumSpec& spec : {SumSpec{Accumulation::fp32, kFp32}, {Accumulation::fp64, kFp32}}) {
    gemm(kSide, kSide, kSide, {x.data(), kSide, 1}, {x.data(), kSide, 1}, nullptr, c.data(), spec);
  }
}

void check(const std::vector<std::string>& kinds, const Size& size, const FloatFormat& format,
           uint32_t seed) {
  const Operands x(size, seed, format == kBf16 ? kBf16 : kFp16);
  const Floats bias(static_cast<size_t>(size.n), 0.5f);
  for (const std::string& kind : kinds) {
    const SumSpec spec{*parse_accumulation(kind), format, format == kBf16 ? kBf16 : kFp16};
    if (!has_diagnostics(spec.accumulation)) continue;
    const SumDiagnostics expected = x.expected(spec);
    EXPECT_GT(expected.swamped, 0) << kind;
    everywhere(
        [&](const std::string& where) {
          for (int layout = 0; layout < 4; ++layout) {
            leave_traces(layout % 2 == 0 ? 1.0f : std::numeric_limits<float>::quiet_NaN());
            Floats c(static_cast<size_t>(size.m * size.n));
            Diagnostics seen;
            gemm(size.m, size.n, size.k, x.a(layout / 2 != 0), x.b(layout % 2 != 0), bias.data(),
                 c.data(), spec, &seen);
            ASSERT_EQ(text(seen.value()), text(expected))
                << kind << ", " << where << ", layout " << layout << ", " << size.m << " x "
                << size.n << " x " << size.k;
          }
        },
        {1, 2, 3, 4});
  }
}

const std::vector<std::string> kChains{
    "fp32",          "fp64", "format", "format-mul-add", "fma32-then-round", "format:promote=24",
    "fp32:split-k=3"};

TEST(DiagnosticsOfThreads, AwkwardSizes) {
  uint32_t seed = 0;
  for (const Size& size : {Size{33, 37, 260}, Size{61, 10, 515}, Size{1, 67, 1100}}) {
    for (const FloatFormat& format : {kFp16, kBf16}) check(kChains, size, format, ++seed);
  }
}

TEST(DiagnosticsOfThreads, OneMoreThanWholeVectors) {
  uint32_t seed = 20;
  for (const int64_t n : {15, 17, 31, 33, 65}) check(kChains, {29, n, 230}, kFp16, ++seed);
}

TEST(DiagnosticsOfThreads, TensorCores) {
  check({"tensor-core:v100", "tensor-core:a100", "tensor-core:h100,acc=fp16"}, {33, 37, 260}, kFp16,
        30);
  check({"tensor-core:h100"}, {33, 37, 260}, kBf16, 31);
}

TEST(DiagnosticsOfThreads, MoreColumnsThanOneBlockOfPanels) {
  check({"fp32", "format", "fma32-then-round"}, {5, 1090, 513}, kFp16, 40);
}

TEST(DiagnosticsOfThreads, AgainAndAgain) {
  const Size size{64, 70, 300};
  const Operands x(size, 50, kFp16);
  for (const char* kind : {"fp32", "format", "fma32-then-round"}) {
    const SumSpec spec{*parse_accumulation(kind), kFp16, kFp16};
    const std::string expected = text(x.expected(spec));
    everywhere(
        [&](const std::string& where) {
          Floats c(static_cast<size_t>(size.m * size.n));
          for (int time = 0; time < 20; ++time) {
            Diagnostics seen;
            gemm(size.m, size.n, size.k, x.a(false), x.b(time % 2 != 0), nullptr, c.data(), spec,
                 &seen);
            ASSERT_EQ(text(seen.value()), expected) << kind << ", " << where << ", " << time;
          }
        },
        {2, 4});
  }
}

}  // namespace
}  // namespace halfscope::testing
