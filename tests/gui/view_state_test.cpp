// SPDX-License-Identifier: MIT
// The view state: going back and forward, filters, edits of a plan.
#include "gui/state/view_state.h"

#include <gtest/gtest.h>

namespace halfscope::gui {
namespace {

TEST(History, GoesBackAndForwardAndForgetsWhatWasLeft) {
  History history;
  Place place;
  for (const char* layer : {"a", "b", "c"}) {
    place.layer = layer;
    history.note(place);
    history.note(place);  // the same place twice is one
  }
  EXPECT_FALSE(history.can_go_forward());
  history.back(place);
  EXPECT_EQ(place.layer, "b");
  history.back(place);
  EXPECT_EQ(place.layer, "a");
  EXPECT_FALSE(history.can_go_back());
  history.back(place);
  EXPECT_EQ(place.layer, "a");
  history.forward(place);
  EXPECT_EQ(place.layer, "b");
  place.layer = "d";
  history.note(place);
  EXPECT_FALSE(history.can_go_forward()) << "what was ahead is gone";
  history.back(place);
  EXPECT_EQ(place.layer, "b");
}

TEST(Filter, ContainsOrGlobWhateverTheCase) {
  EXPECT_TRUE(passes_filter("block2/Conv1", ""));
  EXPECT_TRUE(passes_filter("block2/Conv1", "conv"));
  EXPECT_TRUE(passes_filter("block2/Conv1", "block?/conv*"));
  EXPECT_FALSE(passes_filter("block2/Conv1", "conv*")) << "a glob matches the whole path";
  EXPECT_FALSE(passes_filter("fc1", "conv"));
}

TEST(Edits, KeepLayersOnce) {
  PlanEdit edits;
  EXPECT_TRUE(edits.empty());
  edits.keep("fc1", true);
  edits.keep("fc1", true);
  EXPECT_EQ(edits.fp32_layers().size(), 1u);
  EXPECT_TRUE(edits.keeps("fc1"));
  edits.keep("fc1", false);
  EXPECT_TRUE(edits.empty());
}

}  // namespace
}  // namespace halfscope::gui
