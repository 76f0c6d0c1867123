// SPDX-License-Identifier: MIT
#include "gui/web/link.h"

#include <gtest/gtest.h>

#include "gui/lab/float_lab.h"

namespace halfscope::gui {
namespace {

TEST(Link, OpensNumberAndTab) {
  FloatLab lab;
  EXPECT_TRUE(open_link(lab, "#bf16%203.5&tab=line"));
  EXPECT_EQ(lab.format, "bf16");
  EXPECT_EQ(lab.code, 0x4060u);
  EXPECT_EQ(lab.tab, LabTab::line);
  EXPECT_TRUE(open_link(lab, "tab=accumulate&e4m3fn 0x7e"));  // in any order, escaped or not
  EXPECT_EQ(lab.number(), 448.0f);
  EXPECT_EQ(lab.tab, LabTab::accumulate);
  EXPECT_TRUE(open_link(lab, "fp16"));
  EXPECT_EQ(lab.tab, LabTab::bits);
  EXPECT_TRUE(open_link(lab, ""));
}

TEST(Link, ReportsWhatItDoesNotKnow) {
  FloatLab lab;
  EXPECT_FALSE(open_link(lab, "tab=nothing&fp16 2"));
  EXPECT_EQ(lab.number(), 2.0f);
  for (const char* link : {"fp17 1", "fp16 one", "%", "%zz", "fp16%2", "tab="}) {
    EXPECT_FALSE(open_link(lab, link)) << link;
    EXPECT_EQ(lab.number(), 2.0f) << link;
  }
}

TEST(Link, ReadsWhatItWrites) {
  for (const char* text : {"fp16 0.1", "bf16 -1e-30", "e2m1 6", "fp32 inf", "e5m10 0x2e66"}) {
    for (const LabTab tab : {LabTab::bits, LabTab::rounding, LabTab::formats}) {
      FloatLab lab, other;
      ASSERT_TRUE(lab.open(text));
      lab.show(tab);
      EXPECT_TRUE(open_link(other, link_of(lab))) << link_of(lab);
      EXPECT_EQ(other.code, lab.code) << link_of(lab);
      EXPECT_EQ(other.shown(), lab.shown()) << link_of(lab);
      EXPECT_EQ(other.tab, tab);
    }
  }
  FloatLab lab;
  EXPECT_EQ(link_of(lab), "fp16%200.1");
  lab.show(LabTab::line);
  EXPECT_EQ(link_of(lab), "fp16%200.1&tab=line");
  lab.set_code(0x3c00);  // not what was typed any more
  FloatLab other;
  EXPECT_TRUE(open_link(other, link_of(lab)));
  EXPECT_EQ(other.number(), 1.0f);
}

TEST(Link, TitleShowsTheValue) {
  FloatLab lab;
  EXPECT_EQ(page_title(lab), "fp16 0.1 = 0.0999755859375 - HalfScope float lab");
  ASSERT_TRUE(lab.open("fp32 1e-30"));  // too many digits for a title
  EXPECT_EQ(page_title(lab), "fp32 1e-30 - HalfScope float lab");
}

}  // namespace
}  // namespace halfscope::gui
