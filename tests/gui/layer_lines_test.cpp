// SPDX-License-Identifier: MIT
// The layer list as a tree: folded groups hide nothing, and keys go through what is visible.
#include "gui/panels/layer_lines.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/gui/panel_fixture.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using test::stats_of;
using testing::ElementsAre;
using testing::IsEmpty;

/// Layers with one activation each. Half of the values of `bad` overflow, and the values
/// of `broken` are NaN.
RunView layers_of(const std::vector<std::string>& paths, const std::string& bad = "",
                  const std::string& broken = "") {
  RunInfo info = test::plain_info(0);
  for (LaneInfo& lane : info.lanes) {
    for (const std::string& path : paths) {
      SiteInfo site{.path = path,
                    .tensor = "activation",
                    .role = Role::activation,
                    .op = "Gemm",
                    .format = kFp16,
                    .shape = {4}};
      site.order = static_cast<int>(lane.sites.size());
      lane.sites.push_back(site);
    }
  }
  RunView run(info, RunStatus::complete);
  for (int lane = 0; lane < 2; ++lane) {
    run.add_step(lane, {.step = 0, .loss = 1.0, .loss_scale = 1.0});
    for (const SiteInfo& site : run.lane(lane).sites) {
      const float value = lane == 1 && site.path == bad      ? 1e6f
                          : lane == 1 && site.path == broken ? std::nanf("")
                                                             : 8.0f;
      run.add_window(lane, site.order,
                     {.step = 0, .step_count = 1, .stats = stats_of({value, 2.0f})});
    }
  }
  return run;
}

const std::vector<std::string> kNested{"stem",          "block1.0.conv1", "block1.0.conv2",
                                       "block1.1.conv", "block2/a",       "block2/b",
                                       "block3/a",      "block3/b",       "head"};

class LayerList : public testing::Test {
 protected:
  explicit LayerList(RunView run = layers_of(kNested, "block1.0.conv2", "block2/b"))
      : panel_(std::move(run),
               [this](const Frame& frame) {
                 draw_layers(frame);
                 lines_ = layer_lines(frame);
                 if (by_ != 0) frame.select_layer(layer_after(lines_, frame.at.layer, by_));
                 by_ = 0;
               },
               {320, 600}) {
    panel_.view().lane = "half";
    panel_.ui().frame(3);
  }
  ViewState& view() { return panel_.view(); }
  UiDriver& ui() { return panel_.ui(); }
  /// Moves the selection like the keys J and K.
  std::string move(int by) {
    by_ = by;
    ui().frame(2);
    return view().layer;
  }
  const LayerLine& head(const std::string& group) {
    for (const LayerLine& line : lines_) {
      if (line.group == group) return line;
    }
    ADD_FAILURE() << "no group " << group;
    return lines_[0];
  }

  int by_ = 0;
  std::vector<LayerLine> lines_;
  PanelFixture panel_;
};

TEST_F(LayerList, GroupsAreNamedByTheirPaths) {
  for (const char* group : {"block1", "block1.0", "block2"}) {
    EXPECT_TRUE(ui().has(std::string("layers/group/") + group)) << group;
  }
  EXPECT_FALSE(ui().has("layers/group/block1.1")) << "one layer is not a group";
  EXPECT_EQ(head("block1.0").depth, 1);
  EXPECT_EQ(head("block1").layers.size(), 3u);
}

TEST_F(LayerList, AFoldedGroupShowsTheWorstOfItsLayers) {
  ui().click("layers/group/block1");
  ui().click("layers/group/block2");
  ui().frame(2);
  EXPECT_FALSE(ui().has("layers/row/block1.0.conv2"));
  const LayerLine& folded = head("block1");
  EXPECT_FALSE(folded.open);
  EXPECT_EQ(folded.share, 0.5);
  EXPECT_EQ(folded.severity, Severity::warning);
  const std::vector<LayerModel>& layers = panel_.run().lane(1).layers;
  EXPECT_EQ(layers[static_cast<size_t>(folded.worst)].path, "block1.0.conv2");
  EXPECT_TRUE(head("block2").non_finite);
  const LayerLine& healthy = head("block3");
  EXPECT_EQ(healthy.share, 0.0);
  EXPECT_FALSE(healthy.non_finite);
  EXPECT_FALSE(healthy.severity);
}

TEST_F(LayerList, LeftFoldsAndRightOpensOneGroupAfterTheOther) {
  ui().click("layers/row/block1.0.conv1");
  ui().press_named(ImGuiKey_LeftArrow);
  EXPECT_THAT(view().closed, ElementsAre("block1.0"));
  ui().press_named(ImGuiKey_LeftArrow);
  EXPECT_THAT(view().closed, ElementsAre("block1.0", "block1"));
  ui().press_named(ImGuiKey_LeftArrow);
  EXPECT_EQ(view().closed.size(), 2u) << "nothing is left to fold";
  ui().press_named(ImGuiKey_RightArrow, {.alt = true});
  EXPECT_EQ(view().closed.size(), 2u) << "Alt+Right goes forward";
  ui().press_named(ImGuiKey_RightArrow);
  EXPECT_THAT(view().closed, ElementsAre("block1.0"));
  ui().press_named(ImGuiKey_RightArrow);
  EXPECT_THAT(view().closed, IsEmpty());
  EXPECT_EQ(view().layer, "block1.0.conv1") << "the selection stays";
}

TEST_F(LayerList, ArrowKeysOfTheFilterFoldNothing) {
  view().layer = "block1.0.conv1";
  ui().click("layers/filter");
  ui().press_named(ImGuiKey_LeftArrow);
  EXPECT_THAT(view().closed, IsEmpty());
}

TEST_F(LayerList, KeysStopOnceInAFoldedGroupAtItsWorstLayer) {
  view().layer = "stem";
  view().closed = {"block1"};
  ui().frame(2);
  EXPECT_EQ(move(1), "block1.0.conv2");
  EXPECT_EQ(move(1), "block2/a");
  EXPECT_EQ(move(1), "block2/b");
  EXPECT_EQ(move(-2), "block1.0.conv2");
  EXPECT_EQ(move(-1), "stem");
  EXPECT_EQ(move(-1), "stem");
  EXPECT_EQ(move(9), "head");
}

TEST_F(LayerList, GroupsAreInExecutionOrderOnly) {
  view().order = LayerOrder::name;
  view().closed = {"block1"};
  ui().frame(2);
  EXPECT_FALSE(ui().has("layers/group/block1"));
  EXPECT_TRUE(ui().has("layers/row/block1.0.conv1"));
}

TEST(Layers, ANetworkWithoutGroupsIsAFlatList) {
  PanelFixture panel(layers_of({"conv1", "relu", "fc"}), [](const Frame& frame) {
    draw_layers(frame);
    for (const LayerLine& line : layer_lines(frame)) {
      EXPECT_FALSE(line.is_head());
      EXPECT_EQ(line.depth, 0);
      EXPECT_EQ(line.prefix, 0u);
    }
  });
  panel.ui().frame(3);
  EXPECT_TRUE(panel.ui().has("layers/row/fc"));
}

TEST(Layers, OfAThousandOnlyTheVisibleOnesAreDrawnAndTheSelectedOneIsAmongThem) {
  PanelFixture panel(test::large_run(1000), [](const Frame& frame) { draw_layers(frame); });
  panel.ui().frame(3);
  const auto rows = [&] {
    return std::count_if(panel.ui().tracker().items().begin(), panel.ui().tracker().items().end(),
                         [&](const auto& each) {
                           return each.first.starts_with("layers/row/") &&
                                  !each.first.ends_with("/formats") && panel.ui().has(each.first);
                         });
  };
  EXPECT_GT(rows(), 5);
  EXPECT_LT(rows(), 60);
  const std::vector<LayerModel>& layers = panel.run().lane(panel.at().lane).layers;
  for (const size_t index : {layers.size() - 3, layers.size() / 2, size_t{0}}) {
    panel.view().layer = layers[index].path;
    panel.view().site.clear();
    panel.ui().frame(3);
    EXPECT_TRUE(panel.ui().item("layers/row/" + layers[index].path).visible);
  }
}

}  // namespace
}  // namespace halfscope::gui
