// SPDX-License-Identifier: MIT
// The parts of an operator that all backends share (core/bodies, core/ops/movement.h), compared
// with values written by hand and definitions evaluated element by element: comparing backends
// cannot show a mistake that both have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/bodies/elements.h"
#include "core/bodies/indices.h"
#include "core/bodies/pooling.h"
#include "core/bodies/scaling.h"
#include "core/ops/movement.h"
#include "core/ops/ops.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using Int32s = std::vector<int32_t>;
using Reals = std::vector<float>;

TEST(Bodies, Arithmetic) {
  EXPECT_EQ(AddOp{}(1.5f, 2.0f), 3.5f);
  EXPECT_EQ(SubOp{}(1.5f, 2.0f), -0.5f);
  EXPECT_EQ(MulOp{}(1.5f, -2.0f), -3.0f);
  EXPECT_EQ(DivOp{}(3.0f, -2.0f), -1.5f);
  EXPECT_EQ(NegOp{}(3.0f), -3.0f);
  EXPECT_EQ(SqrtOp{}(2.25f), 1.5f);
  EXPECT_EQ(ReluOp{}(2.0f), 2.0f);
  EXPECT_EQ(ReluOp{}(-2.0f), 0.0f);
  EXPECT_FALSE(std::signbit(ReluOp{}(-0.0f)));
  EXPECT_TRUE(std::isnan(ReluOp{}(kNan)));
  EXPECT_EQ(ReluGradOp{}(5.0f, 0.5f), 5.0f);
  EXPECT_EQ(ReluGradOp{}(5.0f, 0.0f), 0.0f);
  EXPECT_EQ(ReluGradOp{}(5.0f, kNan), 5.0f);
}

TEST(Bodies, DeliveredResultsRoundOnce) {
  // Just above the middle of 1 and the next number of fp16: rounded to fp32 first it is a tie.
  const double above = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_GT(delivered<float>(above, kFp16), static_cast<float>(1.0 + 0x1p-11));
  EXPECT_EQ(delivered<float>(above, kFp32), static_cast<float>(above));
  EXPECT_EQ(delivered<double>(above, kFp16), above);
}

// With 32 random bits, 2^24 + 1 goes to 2^24 + 2^17 in bf16 if the draw is at least 2^32 - 2^15. An
// fp32 number next to it has a fraction of 0 or 2^-16.
TEST(Bodies, DeliveredResultsAreDrawnOnce) {
  const auto stochastic = [](double x, uint64_t draw, int bits) {
    const Rounding rounding{.mode = RoundingMode::stochastic, .random = draw, .random_bits = bits};
    return round_to_format(delivered<float>(x, kBf16, rounding), kBf16, rounding).value;
  };
  constexpr uint64_t kFirst = (uint64_t{1} << 32) - (uint64_t{1} << 15);
  for (const double sign : {1.0, -1.0}) {
    EXPECT_EQ(stochastic(sign * 16777217.0, kFirst, 32), static_cast<float>(sign * 16908288.0));
    EXPECT_EQ(stochastic(sign * 16777217.0, kFirst - 1, 32), static_cast<float>(sign * 16777216.0));
    // Far beyond the largest number no draw stays there.
    EXPECT_EQ(stochastic(sign * 1e60, 0, 8), static_cast<float>(sign) * kInf);
    // A quarter of the smallest subnormal number of bf16, 2^-133, and 2^-22 of it.
    EXPECT_EQ(stochastic(sign * 0x1p-135, 6, 3), static_cast<float>(sign * 0x1p-133));
    EXPECT_EQ(stochastic(sign * 0x1p-135, 5, 3), 0.0f);
    EXPECT_EQ(stochastic(sign * 0x1p-155, (uint64_t{1} << 32) - 1024, 32),
              static_cast<float>(sign * 0x1p-133));
    EXPECT_EQ(stochastic(sign * 0x1p-155, (uint64_t{1} << 32) - 1025, 32), 0.0f);
  }
  const Rounding up{.mode = RoundingMode::up};
  EXPECT_EQ(delivered<double>(0.1, kBf16, up), 0.1);
  EXPECT_EQ(delivered<float>(0x1p40 + 1, FloatFormat{8, 22, 127}, up), 0x1.000002p40f);
}

TEST(Bodies, ComparisonsAndLogic) {
  struct Row {
    float a, b;
    std::vector<int32_t> results;  // ==, <, <=, >, >=
  };
  for (const Row& row : {Row{1, 2, {0, 1, 1, 0, 0}}, Row{2, 1, {0, 0, 0, 1, 1}},
                         Row{2, 2, {1, 0, 1, 0, 1}}, Row{-0.0f, 0.0f, {1, 0, 1, 0, 1}},
                         Row{kNan, 1, {0, 0, 0, 0, 0}}, Row{kNan, kNan, {0, 0, 0, 0, 0}}}) {
    const float a = row.a, b = row.b;
    EXPECT_EQ(row.results, (Int32s{EqualOp{}(a, b), LessOp{}(a, b), LessOrEqualOp{}(a, b),
                                   GreaterOp{}(a, b), GreaterOrEqualOp{}(a, b)}))
        << a << " " << b;
  }
  const auto of_both = [](const auto& op) {
    return Int32s{op(0, 0), op(0, -3), op(7, 0), op(-2, 1)};
  };
  EXPECT_THAT(of_both(AndOp{}), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(of_both(OrOp{}), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(NotOp{}(0), 1);
  EXPECT_EQ(NotOp{}(-2), 0);
}

TEST(Bodies, PositionsOfTheLargest) {
  // Lines along axis 1 of [2, 4, 2].
  const Reals x{1, kNan, 5, 2, 5, kNan, -1, 9, -3, 0, -2, -0.0f, -2, kInf, -9, kNan};
  const AxisLines lines{.count = 4, .size = 4, .stride = 2};
  for (const bool last : {false, true}) {
    Int32s y(4, -1);
    const ArgMax<const float*> body{x.data(), y.data(), lines, last};
    for (int64_t line = 0; line < 4; ++line) body(line);
    // 1 5 5 -1; NaN 2 NaN 9; -3 -2 -2 -9; 0 -0 inf NaN
    EXPECT_EQ(y, last ? (Int32s{2, 2, 2, 3}) : (Int32s{1, 0, 1, 3}));
  }
}

TEST(Bodies, PositionsInDescendingOrder) {
  // Lines along axis 1 of [2, 4, 2]: 1 5 5 -1; NaN 2 NaN 9; -3 -2 -2 -9; 0 -0 inf NaN
  const Reals x{1, kNan, 5, 2, 5, kNan, -1, 9, -3, 0, -2, -0.0f, -2, kInf, -9, kNan};
  const AxisLines lines{.count = 4, .size = 4, .stride = 2};
  const auto order = [&](int64_t count) {
    AxisLines places = lines;
    places.size = count;
    Int32s y(static_cast<size_t>(4 * count), -1);
    const ArgSort<const float*> body{x.data(), y.data(), lines, places};
    for (int64_t item = 0; item < 16; ++item) body(item);
    return y;
  };
  EXPECT_THAT(order(4), ElementsAre(1, 0, 2, 2, 0, 3, 3, 1, 1, 3, 2, 2, 0, 0, 3, 1));
  EXPECT_THAT(order(2), ElementsAre(1, 0, 2, 2, 1, 3, 2, 2));
}

TEST(Bodies, PrefixSumsOfIndicesWrap) {
  // Lines along axis 0 of [3, 2].
  const Int32s x{1, 10, 2, INT32_MAX, 3, 1};
  const AxisLines lines{.count = 2, .size = 3, .stride = 2};
  const auto sums = [&](bool exclusive, bool reverse) {
    Int32s y(6, -1);
    const CumulateIndices body{x.data(), y.data(), lines, exclusive, reverse};
    for (int64_t line = 0; line < 2; ++line) body(line);
    return y;
  };
  EXPECT_THAT(sums(false, false), ElementsAre(1, 10, 3, INT32_MIN + 9, 6, INT32_MIN + 10));
  EXPECT_THAT(sums(true, false), ElementsAre(0, 0, 1, 10, 3, INT32_MIN + 9));
  EXPECT_THAT(sums(false, true), ElementsAre(6, INT32_MIN + 10, 5, INT32_MIN, 3, 1));
  EXPECT_THAT(sums(true, true), ElementsAre(5, INT32_MIN, 3, 1, 0, 0));
}

TEST(Bodies, IndicesAndReals) {
  const Int32s indices{0, -7, 2049, (1 << 24) + 1};
  Reals reals(4);
  const IndexToReal<float, float*> to_real{indices.data(), reals.data(), kFp32};
  for (int64_t i = 0; i < 4; ++i) to_real(i);
  EXPECT_THAT(reals, ElementsAre(0.0f, -7.0f, 2049.0f, 16777216.0f));

  const Reals x{1.9f, -1.9f, -0.5f, 4e9f, -4e9f, kNan, kInf};
  Int32s y(7);
  const RealToIndex<const float*> to_index{x.data(), y.data()};
  for (int64_t i = 0; i < 7; ++i) to_index(i);
  EXPECT_THAT(y, ElementsAre(1, -1, 0, INT32_MAX, INT32_MIN, 0, INT32_MAX));
}

TEST(Bodies, GatheredLines) {
  const GatherShape<int64_t> s{.length = 4, .inner = 3, .count = 3};
  const Int32s index{2, -1, 0};
  Int32s lines;
  for (int64_t row = 0; row < 6; ++row) {
    lines.push_back(static_cast<int32_t>(s.line(index.data(), row)));
  }
  EXPECT_THAT(lines, ElementsAre(2, 3, 0, 6, 7, 4));

  const Reals x{1, 2, 3, 4, 5, 6};
  const Int32s labels{1, -1, 0};
  Reals y(3, -1);
  const GatherLabels<const float*, float*> body{x.data(), labels.data(), y.data(), 2};
  for (int64_t row = 0; row < 3; ++row) body(row);
  EXPECT_THAT(y, ElementsAre(2, 0, 5));
}

/// The plane as a window sees it: the places of its taps, -1 within the padding and -2 beyond.
std::vector<int64_t> taps(const PoolWindow& w, int64_t height, int64_t width, int64_t p,
                          int64_t q) {
  std::vector<int64_t> list;
  for (int64_t tap = 0; tap < w.kernel_h * w.kernel_w; ++tap) {
    const int64_t row = p * w.stride_h + tap / w.kernel_w * w.dilation_h;
    const int64_t column = q * w.stride_w + tap % w.kernel_w * w.dilation_w;  // in the padded plane
    const bool rows = row >= w.pad_top && row < w.pad_top + height;
    const bool columns = column >= w.pad_left && column < w.pad_left + width;
    const bool beyond =
        row >= w.pad_top + height + w.pad_bottom || column >= w.pad_left + width + w.pad_right;
    list.push_back(beyond            ? -2
                   : rows && columns ? (row - w.pad_top) * width + column - w.pad_left
                                     : -1);
  }
  return list;
}

TEST(Bodies, WindowsOfPools) {
  constexpr int64_t kHeight = 6, kWidth = 5, kOutHeight = 3, kOutWidth = 4;
  Reals plane;
  for (int i = 0; i < kHeight * kWidth; ++i) plane.push_back(static_cast<float>(i * 7 % 11 - 5));
  plane[8] = plane[9] = kNan;
  for (const PoolWindow& w :
       {PoolWindow{.kernel_h = 3, .kernel_w = 2}, PoolWindow{2, 3, 2, 1, 1, 2, 0, 1, 1, 2},
        PoolWindow{3, 3, 2, 2, 2, 1, 1, 2, 0, 1}, PoolWindow{1, 2, 3, 2, 1, 3, 0, 1, 0, 1},
        PoolWindow{2, 2, 4, 3, 1, 1, 1, 1, 1, 1}, PoolWindow{3, 2, 3, 2, 1, 1, 0, 2, 1, 0}}) {
    for (const bool counts : {false, true}) {
      PoolWindow window = w;
      window.counts_padding = counts;
      const PoolGeometry<int64_t> s(window, kHeight, kWidth, kOutHeight, kOutWidth);
      for (int64_t p = 0; p < kOutHeight; ++p) {
        for (int64_t q = 0; q < kOutWidth; ++q) {
          std::vector<int64_t> inside, visited;
          int64_t divisor = 0, largest = -1;
          for (const int64_t place : taps(window, kHeight, kWidth, p, q)) {
            divisor += place >= 0 || (place == -1 && window.counts_padding) ? 1 : 0;
            if (place < 0) continue;
            inside.push_back(place);
            const float x = plane[static_cast<size_t>(place)];
            const float best = largest < 0 ? -kInf : plane[static_cast<size_t>(largest)];
            if (largest < 0 || std::isnan(x) || x > best) largest = place;
          }
          s.for_window(p, q, [&](int64_t place) { visited.push_back(place); });
          EXPECT_EQ(visited, inside) << p << " " << q;
          EXPECT_EQ(s.divisor(p, q), divisor) << p << " " << q;
          EXPECT_EQ(place_of_largest(plane.data(), s, p, q), largest) << p << " " << q;
        }
      }
      EXPECT_EQ(s.plane, 30);
      EXPECT_EQ(s.out_plane, 12);
    }
  }
  // The last NaN wins, the first of equal elements does.
  const Reals row{3, kNan, kNan, 1, 4, 4};
  const PoolGeometry<int64_t> four({.kernel_w = 4}, 1, 6, 1, 3);
  EXPECT_EQ(place_of_largest(row.data(), four, 0, 0), 2);
  EXPECT_EQ(
      place_of_largest(row.data() + 3, PoolGeometry<int64_t>({.kernel_w = 3}, 1, 3, 1, 1), 0, 0),
      1);
}

TEST(Bodies, FactorsOfTensors) {
  TensorScale choice;
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 2.0f, 3.0f), 1.0f);
  choice = parse_scale("static:0.25").value();
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 2.0f, 3.0f), 0.25f);
  choice = parse_scale("current").value();
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 3.5f, 3.0f), 128.0f);
  choice = parse_scale("current:power-of-two").value();
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 3.0f, 3.0f), 128.0f);
  choice = parse_scale("current:unguarded").value();
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 3.5f, 0.0f), 128.0f);
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 0.0f, 0.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 1e-40f, 0.0f), std::numeric_limits<float>::infinity());
  choice = parse_scale("current:unguarded,amax-floor=3.5").value();
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 0.0f, 0.0f), 128.0f);
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 7.0f, 0.0f), 64.0f);
  choice = parse_scale("delayed").value();
  EXPECT_EQ(tensor_factor(choice, kE4m3fn, 2.0f, 3.0f), 3.0f);
  for (const float none : {0.0f, -1.0f, kNan}) {
    EXPECT_EQ(tensor_factor(choice, kE4m3fn, 2.0f, none), 1.0f);
  }
}

TEST(Bodies, CodesAndTheirValues) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(code_by_power_of_two(3.0f, 0.5f), 6.0f);
  EXPECT_EQ(code_by_power_of_two(-kTiny, 4.0f), -kTiny);  // not zero
  EXPECT_EQ(code_by_power_of_two(0.0f, 4.0f), 0.0f);
  EXPECT_TRUE(std::isnan(code_by_power_of_two(1.0f, kNan)));

  EXPECT_EQ(code_by_two_scales(6.0f, 0.5f, 4.0f, kE2m1), 3.0f);
  EXPECT_EQ(code_by_two_scales(1.0, 3.0, 1.0, kE2m1), 1.0 / 3.0);
  EXPECT_EQ(code_by_two_scales(-1.0, 0.0, 1.0, kE2m1), -std::numeric_limits<double>::denorm_min());
  EXPECT_LT(code_by_two_scales(-1.0f, 0.0f, 1.0f, kE2m1), 0.0f);
  EXPECT_GT(code_by_two_scales(-1.0f, 0.0f, 1.0f, kE2m1), -1e-30f);
  EXPECT_TRUE(std::signbit(code_by_two_scales(-0.0f, 0.0f, 1.0f, kE2m1)));
  EXPECT_EQ(code_by_two_scales(-0.0f, 0.0f, 1.0f, kE2m1), 0.0f);
  EXPECT_EQ(code_by_two_scales(0.0f, kNan, 1.0f, kE2m1), 0.0f);
  EXPECT_TRUE(std::isnan(code_by_two_scales(1.0f, kNan, 1.0f, kE2m1)));

  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(value_of_code(3.0f, 0.5f, 4.0f), 6.0f);
  EXPECT_EQ(value_of_code(-448.0f, 0x1p126f, 1.0f), -kLargest);
  EXPECT_EQ(value_of_code(448.0f, 0x1p126f, 1.0f), kLargest);
  EXPECT_EQ(value_of_code(448.0, 0x1p126, 1.0), static_cast<double>(kLargest));
  EXPECT_EQ(value_of_code(0.125f, kLargest, 4.0f),
            kLargest / 2);  // the scales' product is no float
  EXPECT_TRUE(std::isnan(value_of_code(1.0f, kNan, 1.0f)));
}

TEST(Bodies, StateOfDelayedScaling) {
  const auto moved = [](Reals state, float amax, AmaxChoice choice, int margin) {
    advance_scale_state(state.data(), 3, amax, kE4m3fn, choice, margin);
    return state;
  };
  const auto max = AmaxChoice::max, recent = AmaxChoice::most_recent;
  // 448 over the largest, or the last, of the history.
  EXPECT_THAT(moved({0, 0, 0, 0, 0}, 7, max, 0), ElementsAre(64, 1, 7, 0, 0));
  EXPECT_THAT(moved({64, 1, 7, 0, 0}, 3.5f, max, 0), ElementsAre(64, 2, 7, 3.5f, 0));
  EXPECT_THAT(moved({64, 1, 7, 0, 0}, 3.5f, recent, 0), ElementsAre(128, 2, 7, 3.5f, 0));
  EXPECT_THAT(moved({64, 1, 7, 0, 0}, 3.5f, recent, 2), ElementsAre(32, 2, 7, 3.5f, 0));
  // Round the ring: the oldest is written over.
  EXPECT_THAT(moved({64, 2, 7, 1, 1}, 14, max, 0), ElementsAre(32, 0, 7, 1, 14));
  EXPECT_THAT(moved({64, 0, 7, 1, 1}, 1, max, 0), ElementsAre(448, 1, 1, 1, 1));
  // An unusable amax leaves the scale unchanged, or at 1. An invalid position counts as the first.
  EXPECT_THAT(moved({64, 1, 0, 0, 0}, 0, max, 0), ElementsAre(64, 2, 0, 0, 0));
  EXPECT_THAT(moved({-1, 1, 0, 0, 0}, kInf, max, 0), ElementsAre(1, 2, 0, kInf, 0));
  EXPECT_THAT(moved({64, kNan, 0, 0, 0}, 7, max, 0), ElementsAre(64, 1, 7, 0, 0));
  EXPECT_THAT(moved({64, 3, 0, 0, 0}, 7, max, 0), ElementsAre(64, 1, 7, 0, 0));
}

/// Returns an operator's results on inputs of these shapes, with elements 1, 2, 3 ... throughout.
std::vector<Int32s> moved(const std::string& op, const std::vector<Shape>& shapes,
                          const Attributes& attributes) {
  Graph graph;
  std::vector<ValueId> inputs;
  std::vector<Int32s> from;
  int32_t next = 1;
  for (const Shape& shape : shapes) {
    inputs.push_back(graph.add_input("x" + std::to_string(inputs.size()), shape));
    from.emplace_back();
    for (int64_t i = 0; i < element_count(shape); ++i) from.back().push_back(next++);
  }
  std::vector<Int32s> to;
  for (const ValueId value : graph.add(op, "node", inputs, attributes)) {
    to.emplace_back(static_cast<size_t>(element_count(graph.value(value).shape)), -1);
  }
  const Movement movement = movement_of(graph, graph.node(0));
  if (movement.fill) to[0].assign(to[0].size(), static_cast<int32_t>(*movement.fill));
  for (const BoxCopy& box : movement.boxes) {
    for (int64_t i = 0; i < element_count(box.sizes); ++i) {
      int64_t rest = i, source = box.first_from, target = box.first_to;
      for (size_t d = box.sizes.size(); d-- > 0;) {
        source += rest % box.sizes[d] * box.from[d];
        target += rest % box.sizes[d] * box.to[d];
        rest /= box.sizes[d];
      }
      to[box.output].at(static_cast<size_t>(target)) =
          from[box.input].at(static_cast<size_t>(source));
    }
  }
  return to;
}

TEST(Bodies, ElementsGoWhereOnnxSays) {
  using Axes = std::vector<int64_t>;
  const int64_t one = 1;
  EXPECT_THAT(moved("Expand", {{2, 1}}, {{"shape", Axes{2, 2, 3}}}),
              ElementsAre(Int32s{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  EXPECT_THAT(moved("Transpose", {{2, 1, 3}}, {{"perm", Axes{2, 0, 1}}}),
              ElementsAre(Int32s{1, 4, 2, 5, 3, 6}));
  EXPECT_THAT(moved("Transpose", {{2, 3}}, {}), ElementsAre(Int32s{1, 4, 2, 5, 3, 6}));
  EXPECT_THAT(moved("Concat", {{2, 1}, {2, 0}, {2, 2}}, {{"axis", one}}),
              ElementsAre(Int32s{1, 3, 4, 2, 5, 6}));
  EXPECT_THAT(moved("Split", {{2, 3}}, {{"axis", one}, {"split", Axes{1, 2}}}),
              ElementsAre(Int32s{1, 4}, Int32s{2, 3, 5, 6}));
  const Attributes slice{
      {"starts", Axes{-1, 0}}, {"ends", Axes{-4, 3}}, {"axes", Axes{0, 1}}, {"steps", Axes{-1, 2}}};
  EXPECT_THAT(moved("Slice", {{2, 3}}, slice), ElementsAre(Int32s{4, 6, 1, 3}));
  Attributes gradient = slice;
  gradient["shape"] = Axes{2, 3};
  EXPECT_THAT(moved("SliceGrad", {{2, 2}}, gradient), ElementsAre(Int32s{3, 0, 4, 1, 0, 2}));
  EXPECT_THAT(moved("Pad", {{2, 3}}, {{"pads", Axes{1, -1, 0, 1}}, {"value", 9.0}}),
              ElementsAre(Int32s{9, 9, 9, 2, 3, 9, 5, 6, 9}));
  EXPECT_THAT(moved("Pad", {{1, 2}}, {{"pads", Axes{0, -2, 0, 1}}, {"value", 9.0}}),
              ElementsAre(Int32s{9}));
}

}  // namespace
}  // namespace halfscope
