// SPDX-License-Identifier: MIT
// The plan painted on layers: colours, tags, reasons, and marks where two lanes differ.
#include "gui/panels/plan_paint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "core/policy/policy.h"
#include "tests/gui/panel_fixture.h"
#include "tests/gui/plain_run.h"

namespace halfscope::gui {
namespace {

using Color = std::array<double, 3>;
using Matrix = std::array<Color, 3>;

/// How people see linear RGB: Machado, Oliveira and Fernandes, 2009, severity 1.
constexpr std::array<Matrix, 4> kEyes{{{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
                                       {{{0.152286, 1.052583, -0.204868},
                                         {0.114503, 0.786281, 0.099216},
                                         {-0.003882, -0.048116, 1.051998}}},
                                       {{{0.367322, 0.860646, -0.227968},
                                         {0.280085, 0.672501, 0.047413},
                                         {-0.011820, 0.042940, 0.968881}}},
                                       {{{1.255528, -0.076749, -0.178779},
                                         {-0.078411, 0.930809, 0.147602},
                                         {0.004733, 0.691367, 0.303900}}}}};

/// Returns the colour in CIELAB (D65), in which equal distances look alike.
Color lab(ImU32 color, const Matrix& eye) {
  Color rgb{}, seen{};
  for (size_t i = 0; i < 3; ++i) {
    const double c = static_cast<double>((color >> (8 * i)) & 255) / 255.0;
    rgb[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) seen[i] += eye[i][j] * rgb[j];
    seen[i] = std::clamp(seen[i], 0.0, 1.0);
  }
  const auto root = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116.0; };
  const double x = root((0.4124 * seen[0] + 0.3576 * seen[1] + 0.1805 * seen[2]) / 0.9505);
  const double y = root(0.2126 * seen[0] + 0.7152 * seen[1] + 0.0722 * seen[2]);
  const double z = root((0.0193 * seen[0] + 0.1192 * seen[1] + 0.9505 * seen[2]) / 1.089);
  return {116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)};
}

TEST(PlanPaint, ColoursAreApartForAllEyes) {
  for (const Theme* theme : {&dark_theme(), &light_theme()}) {
    for (size_t eye = 0; eye < kEyes.size(); ++eye) {
      std::vector<ImU32> colors(theme->formats.begin(), theme->formats.end());
      colors.push_back(theme->card);
      for (size_t i = 0; i < colors.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          const Color a = lab(colors[i], kEyes[eye]), b = lab(colors[j], kEyes[eye]);
          EXPECT_GT(std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]), 15.0)
              << "dark " << theme->dark << ", eye " << eye << ", colours " << i << " and " << j;
        }
      }
    }
  }
}

TEST(PlanPaint, TagsFitIntoChips) {
  EXPECT_EQ(format_tag(kFp16), "fp16");
  EXPECT_EQ(format_tag(kE4m3fn), "e4m3");
  EXPECT_EQ(format_tag(kBf16, true), "b16");
  EXPECT_EQ(format_tag(kE4m3fn, true), "8");
  EXPECT_EQ(format_tag(moved_range(kFp16, -2).value()), "16*");
}

/// Two lanes of fc1 -> act -> fc2: "half" in fp16 but for fc2, "mixed" with an fp8 fc1.
RunView planned_run() {
  RunInfo info;
  const auto lane = [&](const char* name, Plan plan, FloatFormat first_reads) {
    plan.name = name;
    LaneInfo lane;
    lane.name = name;
    lane.backend = "emulated";
    lane.plan_json = plan_to_json(plan);
    lane.loss_scale = "none";
    const auto add = [&](const char* path, const char* op, const char* input, FloatFormat read,
                         FloatFormat write, bool follows) {
      LayerInfo& layer = lane.layers.emplace_back();
      layer.path = path;
      layer.op = op;
      layer.inputs = {input};
      layer.read = read;
      layer.write = write;
      layer.follows = follows;
      lane.sites.push_back({.path = path,
                            .tensor = "activation",
                            .op = op,
                            .format = write,
                            .shape = {4},
                            .order = static_cast<int>(lane.sites.size())});
    };
    add("fc1", "Gemm", "input", first_reads, kFp16, false);
    add("act", "Relu", "fc1", kFp16, kFp16, true);
    add("fc2", "Gemm", "act", kFp32, kFp32, false);
    info.lanes.push_back(lane);
  };
  Plan half;
  half.defaults.read = half.defaults.write = kFp16;
  half.why = "Everything runs in half precision.";
  half.rules = {{.path = "", .op = "Relu", .follow = true},
                {.path = "fc2",
                 .op = "",
                 .read = kFp32,
                 .write = kFp32,
                 .why = "Its sums overflow.",
                 .change = "Remove this rule."}};
  Plan mixed = half;
  mixed.rules.push_back({.path = "fc1", .op = "", .read = kE4m3fn, .why = "fp8 is faster."});
  lane("half", half, kFp16);
  lane("mixed", mixed, kE4m3fn);
  RunView run(info, RunStatus::complete);
  for (int i = 0; i < 2; ++i) {
    run.add_step(i, {.step = 0, .loss = 1.0});
    for (const SiteInfo& site : run.lane(i).sites) {
      run.add_window(i, site.order,
                     {.step = 0, .step_count = 1, .stats = test::stats_of({1.0f, 2.0f})});
    }
  }
  return run;
}

TEST(PlanPaint, LayersShowTheirFormats) {
  PanelFixture panel(planned_run(), draw_layers, {260, 600});
  panel.view().lane = "half";
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("layers/row/fc1/formats"), "fp16 fp16");
  EXPECT_EQ(panel.ui().text("layers/row/fc2/formats"), "fp32 fp32");
  EXPECT_EQ(panel.ui().text("layers/formats/fp16"), "2");
  EXPECT_EQ(panel.ui().text("layers/formats/fp32"), "1");
  EXPECT_FALSE(panel.ui().has("layers/differing"));
  panel.view().lane = "mixed";
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("layers/row/fc1/formats"), "e4m3fn fp16");
  EXPECT_EQ(panel.ui().text("layers/formats/e4m3fn-fp16"), "1");
}

TEST(PlanPaint, MarksLayersWhoseFormatsDifferBetweenLanes) {
  PanelFixture panel(planned_run(), draw_layers, {260, 600});
  panel.view().lane = "half";
  panel.view().other_lane = "mixed";
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("layers/row/fc1/formats"), "fp16 fp16 differs");
  EXPECT_EQ(panel.ui().text("layers/row/act/formats"), "fp16 fp16");
  EXPECT_NE(panel.ui().text("layers/differing").find("1 layer differs from mixed"),
            std::string::npos);
  panel.view().other_lane = "half";
  panel.ui().frame(2);
  EXPECT_EQ(panel.ui().text("layers/row/fc1/formats"), "fp16 fp16");
}

TEST(PlanPaint, ReasonsAreInDetailsAndBesideTheHeatmap) {
  PanelFixture details(planned_run(), draw_layer_details, {900, 300});
  details.view().lane = "half";
  details.view().other_lane = "mixed";
  details.view().layer = "fc1";
  details.ui().frame(2);
  EXPECT_EQ(
      details.ui()
          .text("details/plan")
          .find("Reads fp16, writes fp16. Why: Everything runs in half precision. To change it: "),
      0u);
  EXPECT_EQ(details.ui().text("details/differs"), "In lane mixed it reads e4m3fn and writes fp16.");
  details.view().layer = "act";
  details.ui().frame(2);
  EXPECT_NE(details.ui().text("details/plan").find("It follows its inputs: fc1 (fp16)."),
            std::string::npos);

  PanelFixture heatmap(planned_run(), draw_heatmap, {900, 300});
  heatmap.view().lane = "half";
  heatmap.ui().frame(2);
  heatmap.ui().hover("steps/heatmap/row/fc2");
  heatmap.ui().frame(2);
  const std::string tip = heatmap.ui().text("steps/heatmap/rows/tip");
  EXPECT_NE(tip.find("Reads fp32, writes fp32."), std::string::npos);
  EXPECT_NE(tip.find("Why: Its sums overflow."), std::string::npos);
  EXPECT_NE(tip.find("To change it: Remove this rule."), std::string::npos);
}

TEST(PlanPaint, RunsWithoutAPlanAreShown) {
  PanelFixture panel(test::plain_run(3, 4), draw_layers, {260, 600});
  panel.ui().frame(2);
  EXPECT_FALSE(panel.ui().has("layers/row/layer0/formats"));
}

}  // namespace
}  // namespace halfscope::gui
