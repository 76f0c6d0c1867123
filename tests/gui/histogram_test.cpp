// SPDX-License-Identifier: MIT
// The histogram panel: drags the scale, chooses formats, and compares the numbers shown with the
// run and with what_if.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "core/number_text.h"
#include "gui/panels/histogram_plot.h"
#include "gui/widgets/labels.h"
#include "tests/gui/panel_fixture.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

/// Gradients that hang over the lower end of fp16.
class Histogram : public ::testing::Test {
 protected:
  Histogram() : panel_(test::make_run(test::no_scale_spec()), draw_histogram) {
    view().lane = "mixed_float16";
    view().site = "conv1.weight_grad";
    view().cursor = finite_step();
    ui().frame(3);
  }

  /// The last step at which the gradient is finite.
  int64_t finite_step() {
    const int lane = *panel_.run().view().find_lane("mixed_float16");
    const int site = *panel_.run().view().find_site(lane, "conv1.weight_grad");
    int64_t step = -1;
    for (const StatsWindow& window : panel_.run().view().windows(lane, site)) {
      if (window.stats.n > 0 && window.stats.non_finite() == 0) step = window.step;
    }
    EXPECT_GE(step, 0);
    return step;
  }

  UiDriver& ui() { return panel_.ui(); }
  ViewState& view() { return panel_.view(); }
  const SiteInfo& site() {
    const Selection at = panel_.at();
    return panel_.run().view().lane(at.lane).sites[static_cast<size_t>(at.site)];
  }
  TensorStats stats() {
    const Selection at = panel_.at();
    return panel_.run().stats(at.lane, at.site, at.column).value();
  }
  std::string expected_underflow(const FloatFormat& lens) {
    const WhatIf now = what_if(stats(), site().format, lens, 0.0);
    const WhatIf then = what_if(stats(), site().format, lens, view().scale_shift);
    return "underflow " + change_text(share_text(now.underflow, now.non_zero),
                                      share_text(then.underflow, then.non_zero),
                                      view().scale_shift != 0.0, ui().fonts());
  }

  PanelFixture panel_;
};

TEST_F(Histogram, ShowsWhatWasRecorded) {
  const TensorStats recorded = stats();
  ASSERT_GT(recorded.underflow, 0);
  EXPECT_NE(ui().text("values/title").find("conv1"), std::string::npos);
  EXPECT_NE(ui().text("values/title").find("step " + std::to_string(view().cursor)),
            std::string::npos);
  EXPECT_EQ(ui().text("values/underflow/label"), "underflow") << "no estimate: its own counters";
  const WhatIf own = what_if(recorded, kFp16, kFp16, 0.0);
  EXPECT_EQ(own.underflow.low, recorded.underflow);
  const double non_zero = static_cast<double>(recorded.n - recorded.zero);  // all are finite
  EXPECT_EQ(ui().text("values/underflow"),
            "underflow " + percent(static_cast<double>(recorded.underflow) / non_zero));
  EXPECT_NE(ui().text("values/counts").find(grouped(recorded.n) + " values"), std::string::npos);
  EXPECT_FALSE(ui().has("values/key"));
}

TEST_F(Histogram, DraggingTheSliderTriesAnotherScale) {
  ui().drag("values/scale", {80, 0});
  EXPECT_GT(view().scale_shift, 0.0);
  EXPECT_EQ(view().scale_shift, std::round(view().scale_shift));
  EXPECT_EQ(ui().text("values/underflow"), expected_underflow(kFp16));
  EXPECT_NE(ui().text("values/underflow").find(arrow(ui().fonts())), std::string::npos);
  EXPECT_EQ(ui().text("values/underflow/label"), "underflow, estimate");
  EXPECT_NE(ui().text("values/scale/text").find("what-if"), std::string::npos);
  EXPECT_TRUE(ui().has("values/key"));

  ui().click("values/reset");
  EXPECT_EQ(view().scale_shift, 0.0);
  EXPECT_EQ(ui().text("values/scale/text").find("what-if"), std::string::npos);
}

TEST_F(Histogram, DraggingTheBarsMovesThemWithThePointer) {
  const TrackedItem bars = ui().item("values/bars");
  const ExponentAxis axis = fit_exponents(stats(), 0.0);
  const float width = bars.max.x - bars.min.x;
  const float per_power = width / static_cast<float>(axis.high - axis.low);
  ui().drag("values/bars", {5 * per_power, 0});
  EXPECT_EQ(view().scale_shift, 5.0);
  EXPECT_EQ(ui().text("values/underflow"), expected_underflow(kFp16));
  const ExponentAxis after = fit_exponents(stats(), 5.0);
  ui().drag("values/bars", {-2.4f * width / static_cast<float>(after.high - after.low), 0},
            {.alt = true});
  EXPECT_NEAR(view().scale_shift, 2.6, 0.05) << "with Alt in between powers of two";
  EXPECT_NE(ui().text("values/underflow").find(" to "), std::string::npos) << "bounds";
  ui().frame(30);  // longer than a double click takes
  ui().double_click_at(ui().item("values/bars").center());
  EXPECT_EQ(view().scale_shift, 0.0);
}

TEST_F(Histogram, OneClickFitsTheScale) {
  ui().click("values/fit");
  EXPECT_EQ(view().scale_shift, fitting_shift(stats(), kFp16, kFp16, 32));
  EXPECT_GT(view().scale_shift, 0.0) << "the gradients hang over the lower end";
  EXPECT_EQ(ui().text("values/underflow"), expected_underflow(kFp16));
  EXPECT_TRUE(ui().text("values/underflow").ends_with(" 0"));
}

TEST_F(Histogram, TheScaleGoesIntoThePlan) {
  const Selection at = panel_.at();
  const StepRow* row = panel_.run().step_row(at.lane, at.step);
  ASSERT_NE(row, nullptr);
  view().scale_shift = 3.0;
  ui().frame(2);
  const std::string text = ui().text("values/scale/text");
  EXPECT_NE(text.find(power_text(std::log2(row->loss_scale))), std::string::npos) << text;
  EXPECT_NE(text.find(power_text(std::log2(row->loss_scale) + 3.0)), std::string::npos) << text;
  ui().click("values/use");
  EXPECT_EQ(view().edits.loss_scale(), row->loss_scale * 8.0);
  EXPECT_EQ(ui().text("values/use"), "in the plan");
}

TEST_F(Histogram, WhatNoLossScaleReachesIsShownAsRecorded) {
  view().site = "conv1.activation";
  view().scale_shift = 2.0;
  ui().frame(2);
  const TensorStats recorded = stats();
  EXPECT_EQ(ui().text("values/scale/text"), "The loss scale does not affect activations.");
  EXPECT_FALSE(ui().has("values/use"));
  EXPECT_FALSE(ui().has("values/scale"));
  EXPECT_FALSE(ui().has("values/fit"));
  const WhatIf now = what_if(recorded, site().format, site().format, 0.0);
  EXPECT_EQ(ui().text("values/overflow"), "overflow " + share_text(now.overflow, now.n));
  ui().drag("values/bars", {40, 0});
  EXPECT_EQ(view().scale_shift, 2.0) << "nothing is dragged";
}

TEST_F(Histogram, AStepsNumberStandsBesideThatOfTheRun) {
  const Selection at = panel_.at();
  const Rates run = run_rates(panel_.run().view(), at.lane, at.site);
  EXPECT_EQ(ui().text("values/underflow/of"),
            "of non-zero values (whole run: " + percent(run.underflow) + ")");
  EXPECT_EQ(ui().text("values/overflow/of"),
            "of all values (whole run: " + percent(run.overflow) + ")");
  view().whole_run = true;
  ui().frame(2);
  EXPECT_EQ(ui().text("values/underflow"), "underflow " + percent(run.underflow));
}

TEST(HistogramOfOverflow, ItIsCountedAsInfinite) {
  PanelFixture panel(test::make_run(test::hot_spec()), draw_histogram);
  panel.view().lane = "mixed_float16";
  panel.view().site = "conv2.activation";
  panel.view().cursor = 0;
  panel.ui().frame(3);
  const Selection at = panel.at();
  const TensorStats recorded = panel.run().stats(at.lane, at.site, at.column).value();
  ASSERT_GT(recorded.overflow, 0);
  ASSERT_EQ(recorded.non_finite(), 0);
  const std::string share =
      percent(static_cast<double>(recorded.overflow) / static_cast<double>(recorded.n));
  EXPECT_EQ(panel.ui().text("values/overflow"), "overflow " + share);
  EXPECT_NE(panel.ui().text("values/counts").find("after rounding: " + share + " Inf, no NaN"),
            std::string::npos)
      << panel.ui().text("values/counts");
  EXPECT_EQ(panel.ui().text("values/overflow/of").find("of all values"), 0u);
  EXPECT_EQ(panel.ui().text("values/underflow/of").find("of non-zero values"), 0u);
}

TEST_F(Histogram, FormatsAreChosenByBandTableListAndName) {
  ui().click("values/band/e4m3fn");
  EXPECT_EQ(view().lens, "e4m3fn");
  EXPECT_EQ(ui().text("values/underflow"), expected_underflow(kE4m3fn));
  ui().click("values/table/bf16");
  EXPECT_EQ(view().lens, "bf16");
  ui().click("values/band/fp16");
  EXPECT_EQ(view().lens, "") << "the tensor's own";
  ui().click("values/lens");
  ui().click("values/lens/e5m2");
  EXPECT_EQ(view().lens, "e5m2");

  ui().click("values/lens");
  view().lens.clear();
  ui().click("values/lens/any");
  ui().type("e6m9");
  EXPECT_EQ(view().lens, "e6m9");
  EXPECT_TRUE(ui().has("values/band/e6m9")) << "another format has a band of its own";
  EXPECT_TRUE(ui().has("values/table/e6m9"));
}

TEST_F(Histogram, BadFormatsAreTold) {
  view().lens = "e9m9";
  ui().frame(2);
  EXPECT_NE(ui().text("values/lens/problem/line").find("not 9"), std::string::npos);
  EXPECT_EQ(ui().text("values/underflow"), expected_underflow(kFp16)) << "judged by its own";
}

TEST_F(Histogram, TheTableSaysWhatWhatIfSays) {
  view().scale_shift = -3.0;
  ui().frame(2);
  for (const FloatFormat& format : {kFp16, kBf16, kE5m2, kE4m3fn}) {
    const WhatIf now = what_if(stats(), kFp16, format, 0.0);
    const WhatIf then = what_if(stats(), kFp16, format, -3.0);
    EXPECT_EQ(ui().text("values/table/" + format_name(format) + "/underflow"),
              change_text(share_text(now.underflow, now.non_zero),
                          share_text(then.underflow, then.non_zero), true, ui().fonts()));
  }
}

TEST_F(Histogram, TheWholeRunAndALogarithmicAxis) {
  ui().click("values/whole");
  EXPECT_TRUE(view().whole_run);
  const Selection at = panel_.at();
  const TensorStats& total = panel_.run().view().total(at.lane, at.site);
  EXPECT_NE(ui().text("values/counts").find(grouped(total.n) + " values"), std::string::npos);
  EXPECT_NE(ui().text("values/title").find("whole run"), std::string::npos);
  ui().click("values/log");
  EXPECT_TRUE(view().log_counts);
}

TEST_F(Histogram, AnotherLaneIsOutlined) {
  view().other_lane = "float32";
  ui().frame(2);
  EXPECT_NE(ui().text("values/key").find("float32"), std::string::npos);
}

TEST_F(Histogram, NothingIsCutAtTheNarrowest) {
  for (const float width : {360.0f, 430.0f}) {
    PanelFixture narrow(test::make_run(test::no_scale_spec()), draw_histogram, {width, 760});
    narrow.view().lane = "mixed_float16";
    narrow.view().site = "conv1.weight_grad";
    narrow.view().scale_shift = -3.0;
    narrow.ui().frame(4);
    for (const auto& [path, item] : narrow.ui().tracker().items()) {
      EXPECT_LE(item.max.x, width) << path;
      EXPECT_GE(item.min.x, 0.0f) << path;
    }
  }
}

/// One lane with one tensor per kind of emptiness.
RunView odd_run() {
  RunInfo info;
  LaneInfo lane{.name = "fp16",
                .backend = "emulated",
                .plan_json = "",
                .loss_scale = "none",
                .layers = {},
                .sites = {}};
  for (const char* path : {"nan", "zero", "never", "wide"}) {
    SiteInfo site{.path = path, .tensor = "activation", .op = "Gemm", .format = kFp16, .shape = {}};
    site.order = static_cast<int>(lane.sites.size());
    lane.sites.push_back(site);
  }
  info.lanes.push_back(lane);
  RunView run(info, RunStatus::complete);
  run.add_step(0, {.step = 0});
  TensorStats nan{
      .n = 5,
      .nan = 4,
  };
  nan.pos_inf = 1;
  TensorStats zero{.n = 5, .zero = 5};
  TensorStats wide{.n = kExponentBins};
  wide.exponents.fill(1);
  wide.min_abs = 0x1p-149f;
  wide.max_abs = std::numeric_limits<float>::max();
  run.add_window(0, 0, {.step = 0, .step_count = 1, .stats = nan});
  run.add_window(0, 1, {.step = 0, .step_count = 1, .stats = zero});
  run.add_window(0, 3, {.step = 0, .step_count = 1, .stats = wide});
  return run;
}

TEST(HistogramEmpty, EveryKindSaysSo) {
  PanelFixture panel(odd_run(), draw_histogram);
  UiDriver& ui = panel.ui();
  ui.frame(2);
  EXPECT_NE(ui.text("values/empty").find("Select"), std::string::npos);
  panel.view().site = "never.activation";
  ui.frame(2);
  EXPECT_NE(ui.text("values/empty").find("at this step"), std::string::npos);
  panel.view().whole_run = true;
  ui.frame(2);
  EXPECT_NE(ui.text("values/empty").find("whole run"), std::string::npos);
  for (const bool whole : {false, true}) {
    for (const bool log : {false, true}) {
      panel.view().whole_run = whole;
      panel.view().log_counts = log;
      panel.view().scale_shift = log ? 3.5 : 0.0;
      panel.view().site = "nan.activation";
      ui.frame(3);
      EXPECT_NE(ui.text("values/nothing").find("finite"), std::string::npos);
      EXPECT_NE(ui.text("values/counts").find(", 80% NaN"), std::string::npos);
      panel.view().site = "zero.activation";
      ui.frame(3);
      EXPECT_NE(ui.text("values/nothing").find("zero"), std::string::npos);
      panel.view().site = "wide.activation";
      ui.frame(3);
      EXPECT_FALSE(ui.has("values/nothing"));
    }
  }
}

TEST(HistogramEmpty, ARunWithoutTensors) {
  RunInfo info;
  info.lanes.push_back({.name = "a",
                        .backend = "emulated",
                        .plan_json = "",
                        .loss_scale = "none",
                        .layers = {},
                        .sites = {}});
  PanelFixture panel(RunView(info, RunStatus::running), draw_histogram);
  panel.ui().frame(3);
  EXPECT_NE(panel.ui().text("values/empty").find("no tensors"), std::string::npos);
}

TEST_F(Histogram, TheCountsAreCopiedByAMenu) {
  ui().click_at(ui().item("values/bars").center(), {}, 1);
  ui().click("values/bars/copy");
  ui().frame();
  ASSERT_EQ(panel_.requests().size(), 1u);
  EXPECT_EQ(panel_.requests()[0].kind, Request::Kind::copy);
  std::istringstream rows(panel_.requests()[0].text);
  std::string heading;
  std::getline(rows, heading);
  EXPECT_EQ(heading, "exponent\tcount mixed_float16");
  const TensorStats recorded = stats();
  int exponent = 0, count_rows = 0;
  int64_t count = 0;
  while (rows >> exponent >> count) {
    EXPECT_EQ(count, recorded.exponents[static_cast<size_t>(exponent - kMinExponentBin)]);
    ++count_rows;
  }
  EXPECT_EQ(count_rows, kExponentBins);
}

}  // namespace
}  // namespace halfscope::gui
