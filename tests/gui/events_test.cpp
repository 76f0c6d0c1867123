// SPDX-License-Identifier: MIT
// The list of events: what repeats is one line that opens.
#include "gui/panels/events.h"

#include <gmock/gmock.h>

#include "tests/gui/panel_fixture.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

Event at(int64_t step, Event::Kind kind, int site = -1) {
  return {.kind = kind, .step = step, .site = site};
}

TEST(Events, ThoseOfOneKindInConsecutiveStepsAreAGroup) {
  using enum Event::Kind;
  const std::vector<Event> events{at(3, skipped),    at(3, scale_down), at(4, skipped),
                                  at(4, scale_down), at(5, skipped, 2), at(7, skipped),
                                  at(7, finding),    at(8, finding)};
  std::vector<std::vector<size_t>> groups;
  for (const EventGroup& group : group_events(events)) groups.push_back(group.events);
  EXPECT_THAT(groups, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4),
                                  ElementsAre(5), ElementsAre(6), ElementsAre(7)));
  EXPECT_TRUE(group_events({}).empty());
}

TEST(Events, AGroupSaysHowManyThereAreAndFromWhereToWhere) {
  using enum Event::Kind;
  std::vector<Event> events;
  for (int i = 0; i < 17; ++i) events.push_back(at(12 + i, skipped));
  EXPECT_EQ(group_text(events, group_events(events)[0]),
            "17 skipped steps, 12 to 28: a gradient is NaN or infinite");
  events.clear();
  for (int i = 0; i < 3; ++i) {
    events.push_back(at(1200 + i, scale_down));
    events.back().scale_before = 1024.0 / (1 << i);
    events.back().scale = 512.0 / (1 << i);
  }
  EXPECT_EQ(group_text(events, group_events(events)[0]),
            "3 changes of the loss scale, 1,200 to 1,202: from 1024 (2^10) to 128 (2^7)");
}

TEST(Events, FindingsComeWithTheReportOfTheSameSnapshot) {
  UiDriver ui;
  const auto view = std::make_shared<const RunView>(test::make_run(test::hot_spec()));
  ViewState state;
  state.lane = "mixed_float16";
  MemoryTextures textures;
  std::vector<Request> requests;
  PanelCaches caches;
  const auto has_finding = [&](bool with_report) {
    const auto run = RunModel::make("run.hscope", view, with_report);
    const Frame frame{state,        *run,       nullptr, resolve_selection(*run, state),
                      dark_theme(), ui.fonts(), 1.0f,    textures,
                      requests,     caches};
    const std::vector<Event>& events = lane_events(frame);
    return std::any_of(events.begin(), events.end(),
                       [](const Event& event) { return event.kind == Event::Kind::finding; });
  };
  EXPECT_FALSE(has_finding(false));
  EXPECT_TRUE(has_finding(true)) << "the snapshot is the same, its report is new";
}

TEST(Events, AGroupOpensWithAClick) {
  RunView run(test::plain_info(1), RunStatus::complete);
  for (int64_t step = 0; step < 10; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      run.add_step(lane, {.step = step, .loss = 1.0, .skipped = lane == 1 && step >= 4});
    }
  }
  PanelFixture panel(std::move(run), [](const Frame& frame) { draw_events(frame); }, {900, 400});
  panel.view().lane = "half";
  panel.ui().frame(3);
  ASSERT_TRUE(panel.ui().has("events/group/0/step"));
  EXPECT_THAT(panel.ui().text("events/group/0/step"), testing::EndsWith("4 to 9"));
  EXPECT_THAT(panel.ui().text("events/group/0/what"), StartsWith("6 skipped steps, 4 to 9: "));
  EXPECT_FALSE(panel.ui().has("events/2/step"));
  panel.ui().click("events/group/0/step");
  panel.ui().frame(2);
  EXPECT_TRUE(panel.ui().has("events/6/step"));
  EXPECT_EQ(panel.view().cursor, 4);
  panel.ui().click("events/6/step");
  EXPECT_EQ(panel.view().cursor, 9);
  panel.ui().click("events/group/0/step");
  panel.ui().frame(2);
  EXPECT_FALSE(panel.ui().has("events/6/step"));
}

}  // namespace
}  // namespace halfscope::gui
