// SPDX-License-Identifier: MIT
// Plot arithmetic: every result is checked against its documented properties.
#include "gui/widgets/plot_math.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/number_text.h"

namespace halfscope::gui {
namespace {

std::vector<double> values(const std::vector<Tick>& ticks) {
  std::vector<double> out;
  for (const Tick& tick : ticks) out.push_back(tick.value);
  return out;
}
std::vector<std::string> texts(const std::vector<Tick>& ticks) {
  std::vector<std::string> out;
  for (const Tick& tick : ticks) out.push_back(tick.text);
  return out;
}

TEST(Axis, GoesToPixelsAndBack) {
  for (const AxisScale scale : {AxisScale::linear, AxisScale::log2, AxisScale::log10}) {
    const Axis axis{.scale = scale, .low = 0.5, .high = 4096.0, .from = 200.0f, .to = 20.0f};
    EXPECT_FLOAT_EQ(axis.pixel(0.5), 200.0f);
    EXPECT_FLOAT_EQ(axis.pixel(4096.0), 20.0f);
    for (const double value : {0.6, 3.0, 700.0}) {
      EXPECT_NEAR(axis.value(axis.pixel(value)) / value, 1.0,
                  scale == AxisScale::linear ? 1e-2 : 1e-5);
    }
  }
  const Axis log{.scale = AxisScale::log2, .low = 1.0, .high = 16.0, .from = 0.0f, .to = 100.0f};
  EXPECT_FLOAT_EQ(log.pixel(4.0), 50.0f);
  EXPECT_TRUE(std::isnan(log.pixel(0.0)));
  EXPECT_TRUE(std::isnan(log.pixel(-1.0)));
}

TEST(Ticks, AreRoundAndFarEnoughApart) {
  EXPECT_EQ(nice_stride(0.7), 1.0);
  EXPECT_EQ(nice_stride(1.0), 1.0);
  EXPECT_EQ(nice_stride(13.0), 20.0);
  EXPECT_EQ(nice_stride(6e-4), 1e-3);
  for (const double high : {0.037, 1.0, 13.0, 9.9e5}) {
    const Axis axis{.low = 0.0, .high = high, .from = 100.0f, .to = 0.0f};
    const std::vector<Tick> ticks = ticks_of(axis, 24.0);
    ASSERT_GE(ticks.size(), 2u) << high;
    for (size_t i = 1; i < ticks.size(); ++i) {
      EXPECT_GE(axis.pixel(ticks[i - 1].value) - axis.pixel(ticks[i].value), 23.99f) << high;
    }
  }
  const Axis axis{.low = -0.1, .high = 0.52, .from = 100.0f, .to = 0.0f};
  EXPECT_EQ(texts(ticks_of(axis, 20.0)), (std::vector<std::string>{"0", "0.2", "0.4"}));
}

TEST(Ticks, OfLogarithms) {
  const Axis log2{.scale = AxisScale::log2, .low = 200.0, .high = 70000.0, .from = 90, .to = 0};
  EXPECT_EQ(texts(ticks_of(log2, 20.0)),
            (std::vector<std::string>{"2^8", "2^10", "2^12", "2^14", "2^16"}));
  EXPECT_EQ(ticks_of(log2, 20.0, true).front().text, "2\u2078");
  EXPECT_EQ(power_of_two_text(-24, true), "2\u207b\u00b2\u2074");
  const Axis log10{.scale = AxisScale::log10, .low = 0.008, .high = 3.0, .from = 60, .to = 0};
  EXPECT_EQ(texts(ticks_of(log10, 20.0)), (std::vector<std::string>{"0.01", "0.1", "1"}));
  const Axis roomy{.scale = AxisScale::log10, .low = 0.5, .high = 12.0, .from = 300, .to = 0};
  EXPECT_EQ(texts(ticks_of(roomy, 20.0)), (std::vector<std::string>{"0.5", "1", "2", "5", "10"}));
}

TEST(Ticks, OfStepsAreWholeAndInTheMiddle) {
  const Axis few{.scale = AxisScale::steps, .low = 0.0, .high = 3.0, .from = 0, .to = 900};
  EXPECT_EQ(values(ticks_of(few, 60.0)), (std::vector<double>{0.5, 1.5, 2.5}));
  const Axis many{.scale = AxisScale::steps, .low = 0.0, .high = 3000.0, .from = 0, .to = 300};
  EXPECT_EQ(texts(ticks_of(many, 60.0)), (std::vector<std::string>{"0", "1,000", "2,000"}));
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(999), "999");
}

TEST(Ticks, OfAnAxisWithoutExtentAreNone) {
  for (const double high : {1.0, 0.0, std::nan("")}) {
    EXPECT_TRUE(ticks_of({.low = 1.0, .high = high, .from = 0, .to = 100}, 20.0).empty());
  }
  EXPECT_TRUE(ticks_of({.low = 0.0, .high = 1.0, .from = 5, .to = 5}, 20.0).empty());
}

TEST(Steps, ZoomKeepsThePlaceAndStaysInside) {
  constexpr int64_t kCount = 1000;
  const StepRange in = zoomed({}, kCount, 300.0, 0.5);
  const StepSpan span = span_of(in, kCount);
  EXPECT_DOUBLE_EQ(span.width(), 500.0);
  EXPECT_DOUBLE_EQ((300.0 - span.from) / span.width(), 0.3);
  EXPECT_TRUE(zoomed(in, kCount, 300.0, 8.0).all()) << "out of everything is everything";
  StepRange most{};
  for (int i = 0; i < 100; ++i) most = zoomed(most, kCount, 999.5, 0.5);
  EXPECT_DOUBLE_EQ(span_of(most, kCount).width(), kFewestSteps);
  EXPECT_LE(span_of(most, kCount).to, 1000.0);
  EXPECT_GT(span_of(most, kCount).to, 999.5);
  EXPECT_TRUE(zoomed({}, 1, 0.5, 0.5).all());
  EXPECT_TRUE(zoomed({}, 0, 0.5, 0.5).all());
}

TEST(Steps, PanStopsAtTheEnds) {
  const StepRange range{100.0, 199.0};
  EXPECT_EQ(panned(range, 1000, 25.0), (StepRange{125.0, 224.0}));
  EXPECT_EQ(panned(range, 1000, -500.0), (StepRange{0.0, 99.0}));
  EXPECT_EQ(panned(range, 1000, 5000.0), (StepRange{900.0, 999.0}));
  EXPECT_TRUE(panned({}, 1000, 50.0).all());
  // A range of another run, or of one that was longer, is moved into this one.
  EXPECT_DOUBLE_EQ(span_of({500.0, 599.0}, 200).to, 200.0);
}

Axis pixels(double low, double high, float count) {
  return {.scale = AxisScale::steps, .low = low, .high = high, .from = 0.0f, .to = count};
}

TEST(Reduce, NeverLosesAnExtremeAndNeverHasMoreThanTwoPointsAColumn) {
  constexpr size_t kCount = 100'000;
  std::vector<double> y(kCount);
  for (size_t i = 0; i < kCount; ++i) y[i] = std::sin(static_cast<double>(i) * 0.37);
  y[54'321] = 9.0;
  y[777] = -7.0;
  const auto at = [&](size_t i) { return PlotPoint{static_cast<double>(i) + 0.5, y[i]}; };
  const Axis axis = pixels(0.0, kCount, 800.0f);
  const Trace trace = reduce(axis, kCount, at);
  EXPECT_EQ(trace.low, -7.0);
  EXPECT_EQ(trace.high, 9.0);
  std::vector<int> in_column(801);
  double before = -1.0;
  bool spike = false;
  for (const PlotPoint& point : trace.points) {
    EXPECT_LT(before, point.x);
    before = point.x;
    ++in_column[static_cast<size_t>(axis.pixel(point.x))];
    spike |= point.y == 9.0 && point.x == 54'321.5;
  }
  EXPECT_TRUE(spike);
  EXPECT_LE(*std::max_element(in_column.begin(), in_column.end()), 2);
  EXPECT_GT(trace.points.size(), 1500u);
}

TEST(Reduce, KeepsOneNeighbourOnEitherSide) {
  const auto at = [](size_t i) {
    return PlotPoint{static_cast<double>(i) + 0.5, static_cast<double>(i)};
  };
  const Trace trace = reduce(pixels(10.0, 14.0, 400.0f), 100, at);
  ASSERT_EQ(trace.points.size(), 6u);
  EXPECT_EQ(trace.points.front().x, 9.5);
  EXPECT_EQ(trace.points.back().x, 14.5);
  EXPECT_EQ(trace.low, 10.0) << "neighbours do not widen what is in sight";
  EXPECT_EQ(trace.high, 13.0);
}

TEST(Reduce, BreaksWhereAValueIsNotFinite) {
  const std::vector<double> y{1.0, 2.0, std::nan(""), 3.0, HUGE_VAL, 4.0};
  const auto at = [&](size_t i) { return PlotPoint{static_cast<double>(i) + 0.5, y[i]}; };
  const Trace wide = reduce(pixels(0.0, 6.0, 600.0f), y.size(), at);
  EXPECT_EQ(wide.gaps, (std::vector<double>{2.5, 4.5}));
  EXPECT_EQ(wide.points.size(), 6u);
  EXPECT_TRUE(std::isnan(wide.points[2].y));
  EXPECT_EQ(wide.high, 4.0);
  const Trace narrow = reduce(pixels(0.0, 6.0, 1.0f), y.size(), at);
  EXPECT_EQ(narrow.gaps.size(), 1u) << "one mark a column";
}

TEST(Reduce, OfNothing) {
  const auto never = [](size_t) -> PlotPoint { throw std::logic_error("no such point"); };
  EXPECT_TRUE(reduce(pixels(0.0, 6.0, 600.0f), 0, never).empty());
  const auto nan = [](size_t i) { return PlotPoint{static_cast<double>(i), std::nan("")}; };
  const Trace trace = reduce(pixels(0.0, 6.0, 600.0f), 5, nan);
  EXPECT_TRUE(trace.empty());
  EXPECT_EQ(trace.gaps.size(), 5u);
}

TEST(Padded, AlwaysGivesAnAxis) {
  for (const AxisScale scale :
       {AxisScale::linear, AxisScale::log2, AxisScale::log10, AxisScale::exponent}) {
    for (const auto& [low, high] : std::vector<std::pair<double, double>>{
             {0.25, 3.0}, {2.0, 2.0}, {1.0, 0.0}, {HUGE_VAL, -HUGE_VAL}, {-1.0, 0.0}}) {
      const ValueRange range = padded(scale, low, high, 0.05);
      EXPECT_TRUE(std::isfinite(Axis::along(scale, range.low)));
      EXPECT_LT(Axis::along(scale, range.low), Axis::along(scale, range.high));
    }
    const ValueRange range = padded(scale, 0.25, 3.0, 0.05);
    EXPECT_LT(range.low, 0.25);
    EXPECT_GT(range.high, 3.0);
  }
}

}  // namespace
}  // namespace halfscope::gui
