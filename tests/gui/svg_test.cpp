// SPDX-License-Identifier: MIT
// Panels as SVG: well-formed, reproducible, and their lines contain the run's numbers.
#include "gui/widgets/svg.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/utf8.h"
#include "tests/analysis/sample_run.h"
#include "tests/gui/app_driver.h"
#include "tests/gui/plain_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::gui {
namespace {

using testing::HasSubstr;

/// Returns the first XML problem, or "": every element must be closed in order, attributes quoted
/// and unique, markup escaped.
std::string xml_problem(const std::string& text) {
  static const std::regex kName("[A-Za-z_][-A-Za-z0-9_.:]*");
  static const std::regex kAttribute("\\s+([A-Za-z_][-A-Za-z0-9_.:]*)=\"([^\"<]*)\"");
  static const std::regex kReference("&(amp|lt|gt|quot|#[0-9]+|#x[0-9A-Fa-f]+);");
  const auto bare_ampersand = [](const std::string& part) {
    return std::regex_replace(part, kReference, "").find('&') != std::string::npos;
  };
  std::vector<std::string> open;
  size_t at = text.starts_with("<?xml") ? text.find("?>") + 2 : 0;
  bool has_root = false;
  while (at < text.size()) {
    const size_t begin = std::min(text.find('<', at), text.size());
    const std::string between = text.substr(at, begin - at);
    if (bare_ampersand(between) || between.find("]]>") != std::string::npos) return between;
    if (open.empty() && between.find_first_not_of(" \n") != std::string::npos) return between;
    if (begin == text.size()) break;
    const size_t end = text.find('>', begin);
    if (end == std::string::npos) return "an element without an end";
    std::string inside = text.substr(begin + 1, end - begin - 1);
    at = end + 1;
    if (inside.starts_with('/')) {
      if (open.empty() || open.back() != inside.substr(1)) return "</" + inside;
      open.pop_back();
      continue;
    }
    if (open.empty() && has_root) return "a second root";
    has_root = true;
    const bool closed = inside.ends_with('/');
    if (closed) inside.pop_back();
    std::smatch name;
    if (!std::regex_search(inside, name, kName, std::regex_constants::match_continuous)) {
      return inside;
    }
    if (!closed) open.push_back(name.str());
    std::string rest = name.suffix();
    std::vector<std::string> seen;
    std::smatch attribute;
    while (std::regex_search(rest, attribute, kAttribute, std::regex_constants::match_continuous)) {
      if (std::count(seen.begin(), seen.end(), attribute[1].str()) > 0) return inside;
      if (bare_ampersand(attribute[2].str())) return inside;
      seen.push_back(attribute[1].str());
      rest = attribute.suffix();
    }
    if (rest.find_first_not_of(" \n") != std::string::npos) return inside;
  }
  if (!has_root) return "no root";
  return open.empty() ? "" : "not closed: " + open.back();
}

TEST(Svg, TheCheckOfXmlFindsWhatIsWrong) {
  EXPECT_EQ(xml_problem("<a b=\"1\"><c/>x &amp; y</a>\n"), "");
  for (const char* wrong : {"<a><b></a></b>", "<a", "<a>&</a>", "<a b=1/>", "<a b=\"&\"/>",
                            "<a/><b/>", "x", "<a b=\"1\" b=\"2\"/>", "<a>"}) {
    EXPECT_NE(xml_problem(wrong), "") << wrong;
  }
}

TEST(Svg, TextIsSafe) {
  EXPECT_EQ(markup_text("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
  EXPECT_EQ(markup_text("2\u207b\u00b9 \u2207"), "2\u207b\u00b9 \u2207");
  const std::string other = "\xef\xbf\xbd";
  EXPECT_EQ(markup_text("\x01\x7f"), other + other);
  EXPECT_EQ(markup_text("\xff\xc3"), other + other) << "no UTF-8";
  EXPECT_EQ(markup_text("\xc0\x80"), other + other) << "too long a form";
  EXPECT_EQ(markup_text("\xed\xa0\x80"), other + other + other) << "half of a pair";
}

TEST(Svg, ShapesSayWhereTheyAre) {
  SvgPicture svg({10.0f, 20.0f}, 2.0f);
  svg.rect({10.0f, 20.0f}, {30.0f, 40.0f}, IM_COL32(255, 128, 0, 255));
  svg.rect({10.0f, 20.0f}, {10.0f, 40.0f}, IM_COL32(1, 2, 3, 255));
  svg.circle({12.0f, 24.0f}, 3.0f, IM_COL32(0, 0, 0, 51));
  const std::string text = svg.document({100.0f, 50.0f}, "a & b", IM_COL32_WHITE);
  EXPECT_EQ(xml_problem(text), "");
  EXPECT_THAT(text, HasSubstr(R"(width="50" height="25" viewBox="0 0 50 25")"));
  EXPECT_THAT(text, HasSubstr("<title>a &amp; b</title>"));
  EXPECT_THAT(text, HasSubstr(R"(<rect x="0" y="0" width="10" height="10" fill="#ff8000"/>)"));
  EXPECT_THAT(text,
              HasSubstr(R"(<circle cx="1" cy="2" r="1.5" fill="#000000" fill-opacity="0.2"/>)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("#010203"))) << "nothing is to be seen of it";
}

/// A group of an SVG by its data-name: its axes and its first line.
struct Group {
  std::string text;
  double number(const char* attribute, int which) const {
    std::smatch found;
    const std::regex wanted(std::string(attribute) + "=\"([^ \"]+) ([^ \"]+)\"");
    return std::regex_search(text, found, wanted) ? std::stod(found[1 + which]) : std::nan("");
  }
  Axis axis(const char* which, AxisScale scale) const {
    const std::string name = std::string("data-") + which, at = name + "-at";
    return {.scale = scale,
            .low = number(name.c_str(), 0),
            .high = number(name.c_str(), 1),
            .from = static_cast<float>(number(at.c_str(), 0)),
            .to = static_cast<float>(number(at.c_str(), 1))};
  }
  std::string scale(const char* which) const {
    std::smatch found;
    const std::regex wanted(std::string("data-") + which + "-scale=\"([a-z0-9]+)\"");
    return std::regex_search(text, found, wanted) ? found[1].str() : "";
  }
  std::vector<PlotPoint> line() const {
    std::vector<PlotPoint> points;
    const size_t begin = text.find("points=\"");
    if (begin == std::string::npos) return points;
    std::istringstream stream(text.substr(begin + 8, text.find('"', begin + 8) - begin - 8));
    PlotPoint point;
    char comma = 0;
    while (stream >> point.x >> comma >> point.y) points.push_back(point);
    return points;
  }
};

Group group_of(const std::string& svg, const std::string& name) {
  const size_t begin = svg.find("<g data-name=\"" + name + "\"");
  EXPECT_NE(begin, std::string::npos) << name;
  if (begin == std::string::npos) return {};
  return {svg.substr(begin, svg.find("</g>", begin) - begin)};
}

class PanelSvg : public testing::Test {
 protected:
  std::string svg_of(AppDriver& user, PanelPicture panel) {
    const std::filesystem::path file = folder_ / "panel.svg";
    user.app().save_svg(panel, file.string());
    user.frame();
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  test::TemporaryFolder folder_;
};

constexpr PanelPicture kAll[]{PanelPicture::loss,       PanelPicture::heatmap,
                              PanelPicture::magnitudes, PanelPicture::histogram,
                              PanelPicture::distances,  PanelPicture::errors};

TEST_F(PanelSvg, EveryPanelIsWellFormedAndTheSameEveryTime) {
  std::string first;
  for (const bool again : {false, true}) {
    std::string all;
    AppDriver user(test::full_run());
    user.app().view().lane = "mixed_float16";
    user.app().view().site = "conv2.activation";
    user.frame(3);
    for (const PanelPicture panel : kAll) {
      const std::string svg = svg_of(user, panel);
      EXPECT_EQ(xml_problem(svg), "") << static_cast<int>(panel);
      EXPECT_THAT(svg, HasSubstr("</text>"));
      all += svg;
    }
    if (!again) first = all;
    EXPECT_EQ(all, first);
  }
}

TEST_F(PanelSvg, TheLossLineHoldsTheLosses) {
  AppDriver user(test::plain_run(2, 60));
  user.app().view().lane = "float32";
  user.app().view().range = {10.0, 29.0};
  user.frame(2);
  const Group group = group_of(svg_of(user, PanelPicture::loss), "steps/loss/float32");
  ASSERT_EQ(group.scale("y"), "linear");
  const Axis x = group.axis("x", AxisScale::steps), y = group.axis("y", AxisScale::linear);
  int in_sight = 0;
  for (const PlotPoint& point : group.line()) {
    const double step = x.value(static_cast<float>(point.x)) - 0.5;
    if (step < 9.6 || step > 29.4) continue;  // a line goes on beyond both ends
    EXPECT_NEAR(step, std::round(step), 0.01);
    // plain_run's loss is 1 + step.
    EXPECT_NEAR(y.value(static_cast<float>(point.y)), 1.0 + std::round(step), 0.01);
    ++in_sight;
  }
  EXPECT_EQ(in_sight, 20);
}

TEST_F(PanelSvg, TheBarsHoldTheCounts) {
  AppDriver user(test::plain_run(2, 60));
  user.app().view().lane = "half";
  user.app().view().site = "layer0.activation";
  user.frame(2);
  const Group group = group_of(svg_of(user, PanelPicture::histogram), "values/bars");
  const Axis x = group.axis("x", AxisScale::exponent), y = group.axis("y", AxisScale::linear);
  EXPECT_EQ(y.high, 0.25);
  std::smatch bar;
  std::string rest = group.text;
  std::vector<int> exponents;
  const std::regex wanted("<rect x=\"([^\"]+)\" y=\"([^\"]+)\"");
  while (std::regex_search(rest, bar, wanted)) {
    exponents.push_back(static_cast<int>(std::lround(x.value(std::stof(bar[1])))));
    EXPECT_NEAR(y.value(std::stof(bar[2])), 0.25, 1e-3) << "one of four elements";
    rest = bar.suffix();
  }
  EXPECT_EQ(exponents, (std::vector<int>{-1, 1, 3})) << "0.5, 2 and 8; 0 has none";
}

TEST_F(PanelSvg, TheHeatmapIsOneImageWithNames) {
  AppDriver user(test::plain_run(3, 60));
  user.frame(2);
  const std::string svg = svg_of(user, PanelPicture::heatmap);
  const size_t image = svg.find("<image");
  ASSERT_NE(image, std::string::npos);
  EXPECT_EQ(svg.find("<image", image + 1), std::string::npos);
  // The first bytes of every PNG, "\x89PNG\r\n", in base64.
  EXPECT_THAT(svg, HasSubstr("data:image/png;base64,iVBORw0K"));
  EXPECT_THAT(svg, HasSubstr(">layer2</text>"));
  EXPECT_THAT(svg, HasSubstr(">50</text>")) << "an axis of steps";
}

TEST_F(PanelSvg, WhatTheScreenHasCachedIsNotDisturbed) {
  AppDriver user(test::plain_run(3, 60));
  user.frame(2);
  const MemoryTextures::Picture before = *user.textures().find("heatmap");
  EXPECT_FALSE(svg_of(user, PanelPicture::heatmap).empty());
  user.frame(2);
  EXPECT_EQ(user.textures().find("heatmap")->rgba, before.rgba);
}

TEST_F(PanelSvg, NothingToDrawIsAnError) {
  AppDriver user(test::plain_run(2, 60));  // its lanes were not compared
  user.frame(2);
  user.app().save_svg(PanelPicture::errors, (folder_ / "x.svg").string());
  user.frame();
  EXPECT_THAT(user.app().svg_problem(), HasSubstr("nothing to draw"));
  EXPECT_EQ(user.app().problem(), user.app().svg_problem()) << "it is told";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x.svg"));
}

TEST_F(PanelSvg, TheMenuAndThePaletteOfferIt) {
  AppDriver user(test::full_run());
  user.frame(3);
  user.press(letter_key('P'), {.ctrl = true});
  user.frame(2);
  user.type("loss as svg");
  user.frame(2);
  user.press_named(ImGuiKey_Enter);
  user.frame(3);
  EXPECT_EQ(user.text("dialog/name"), "run-loss.svg");
  user.click("dialog/cancel");
  user.frame(2);
  user.click_at(user.item("steps/loss").center(), {}, 1);
  user.click("steps/loss/svg");
  user.frame(2);
  EXPECT_TRUE(user.has("dialog/ok"));
}

}  // namespace
}  // namespace halfscope::gui
