// SPDX-License-Identifier: MIT
// The HTML report: well-formed, self-contained, accessible, and its numbers against the run's own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>

#include "analysis/report/html_parts.h"
#include "analysis/report/report.h"
#include "analysis/rules/text.h"
#include "analysis/spectrum/lens_text.h"
#include "tests/report/html_fault.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::test {
namespace {

/// Unlike HasSubstr it does not print a whole page when it fails.
testing::AssertionResult has(const std::string& page, const std::string& text) {
  if (page.find(text) != std::string::npos) return testing::AssertionSuccess() << "has " << text;
  return testing::AssertionFailure() << "lacks " << text;
}

std::string page_of(const RunView& run) { return report_html(make_report(run)); }

/// Text of the table row with this id, cells parted by blanks.
std::string row_text(const std::string& page, const std::string& id) {
  const size_t begin = page.find("<tr id=\"" + id + "\"");
  if (begin == std::string::npos) return "";
  std::string row = page.substr(begin, page.find("</tr>", begin) - begin);
  row = std::regex_replace(row, std::regex("<title>[^<]*</title>"), "");
  row = std::regex_replace(row, std::regex("<[^>]*>"), " ");
  row = std::regex_replace(row, std::regex("&nbsp;"), " ");
  row = std::regex_replace(row, std::regex("&lt;"), "<");
  return std::regex_replace(row, std::regex(" +"), " ");
}

TEST(ReportHtml, IsWellFormedAndSelfContained) {
  RunSpec single = healthy_spec(), empty = healthy_spec(), nan = healthy_spec();
  single.steps = 1;
  empty.steps = 0;
  nan.nan_from_the_start = true;
  std::vector<RunView> runs{full_run(), large_run(60),
                            with_status(full_run(), RunStatus::died, 99)};
  for (const RunSpec& spec : {healthy_spec(), hot_spec(), no_scale_spec(), single, empty, nan}) {
    runs.push_back(make_run(spec));
  }
  for (const RunView& run : runs) {
    const std::string page = page_of(run);
    EXPECT_EQ(html_fault(page), "");
    for (const char* word : {"://", "src=", "url(", "@import", "<link", "<img", "fetch("}) {
      EXPECT_FALSE(has(page, word));
    }
    EXPECT_EQ(page.find("<script"), page.rfind("<script"));
    EXPECT_TRUE(has(page, "default-src 'none'"));
  }
  EXPECT_EQ(html_fault(page_of(RunView(RunInfo{}, RunStatus::running))), "");
}

TEST(ReportHtml, TheSpectrumShowsWhatIsLostWhere) {
  const RunView run = make_run(hot_spec());
  const Report report = make_report(run);
  const std::string page = report_html(report);
  const size_t from = page.find("<section class=\"spectrum\""), to = page.find("</section>", from);
  ASSERT_NE(from, std::string::npos);
  const std::string spectrum = page.substr(from, to - from);
  EXPECT_LT(page.find("<h1>"), from);
  EXPECT_LT(to, page.find("<nav"));
  for (const char* text :
       {"Activations", "Gradients", "<b>fp16 normal range</b><i>fp16</i>", "<h3>Loss"}) {
    EXPECT_TRUE(has(spectrum, text)) << text;
  }
  EXPECT_TRUE(has(spectrum, "class=\"guilty\""));
  const TensorStats total = run.total(1, *run.find_site(1, "conv2.activation"));
  const double lost = static_cast<double>(total.overflow + total.underflow) /
                      static_cast<double>(total.n - total.zero - total.non_finite());
  EXPECT_TRUE(has(spectrum, ">" + percent(lost) + "</span>"));
  EXPECT_TRUE(has(spectrum, "<path class=\"sl\""));
  EXPECT_TRUE(has(spectrum, "<th scope=\"row\">bf16</th><td class=\"n\">0</td>"));
}

TEST(ReportHtml, TheSpectrumOfALargeNetworkIsFoldedAndSmall) {
  const RunView run = large_run(1000);
  const std::string page = page_of(run);
  const size_t from = page.find("<section class=\"spectrum\""), to = page.find("</section>", from);
  ASSERT_NE(from, std::string::npos);
  const std::string spectrum = page.substr(from, to - from);
  const std::regex ridge("<g><title>");
  const auto ridges =
      std::distance(std::sregex_iterator(spectrum.begin(), spectrum.end(), ridge), {});
  EXPECT_GT(ridges, 75) << "two charts";
  EXPECT_LE(ridges, 150);
  EXPECT_LT(spectrum.size(), 150'000u);
}

TEST(ReportHtml, TheSpectrumOfNothingFiniteSaysSo) {
  RunSpec spec = healthy_spec();
  spec.nan_from_the_start = true;
  EXPECT_TRUE(has(page_of(make_run(spec)), "<small class=\"bad\">only NaN and infinities</small>"));
  EXPECT_TRUE(has(page_of(make_run(healthy_spec())), "<small>nothing lost</small>"));
}

TEST(ReportHtml, SaysWhetherOtherFormatsWouldDo) {
  const std::string hot = page_of(make_run(hot_spec()));
  EXPECT_TRUE(has(hot, "<p class=\"fits\">bf16 can represent every value of this run. "));
  const Report report = make_report(make_run(healthy_spec()));
  const std::string healthy = report_html(report);
  constexpr SpectrumChart kCharts[] = {SpectrumChart::activations, SpectrumChart::gradients};
  for (const char* lens : {"e4m3fn", "mxfp8_e4m3"}) {
    EXPECT_TRUE(
        has(healthy, html::prose(lens_answer(report.spectrum, kCharts, *parse_lens(lens)))));
  }
  EXPECT_FALSE(has(healthy, "<p class=\"fits\">bf16"));
  RunSpec few = healthy_spec();
  layer_of(few, "conv1").activation = -20.0;
  const Report rarely = make_report(make_run(few));
  EXPECT_GT(total_loss(rarely.spectrum, SpectrumChart::activations, {}, 0.0).high, 0.0);
  EXPECT_TRUE(has(report_html(rarely), "<p class=\"fits\">e4m3fn")) << "too few to show";
  RunSpec nothing = healthy_spec();
  nothing.nan_from_the_start = true;
  EXPECT_FALSE(has(page_of(make_run(nothing)), "<p class=\"fits\">"));
}

/// Returns the list beside the loss, or "".
std::string ends_of(const std::string& page) {
  const size_t at = page.find("<ul class=\"ends\">");
  return at == std::string::npos ? "" : page.substr(at, page.find("</ul>", at) - at);
}

TEST(ReportHtml, TheLossSaysHowLanesEndBeforeAndAfterTheFix) {
  const Report report = make_report(full_run());  // lane 2 keeps conv2 in fp32
  const std::string page = report_html(report), ends = ends_of(page);
  const auto entry = [&](const std::string& name, size_t lane) {
    return fmt::format("<li>{} <span>{}</span></li>", name,
                       html::value_text(report.lanes[lane].last_loss));
  };
  EXPECT_EQ(ends, "<ul class=\"ends\">" + entry("Before: mixed_float16", 1) +
                      entry("With mixed_float16+fp32", 2) + entry("Full precision: float32", 0));
  const std::regex strong("<g class=\"strong\"><path class=\"curve [^>]*><title>([^<]*)<");
  std::set<std::string> names;
  for (std::sregex_iterator i(page.begin(), page.end(), strong), end; i != end; ++i)
    names.insert((*i)[1]);
  EXPECT_TRUE(names.contains("mixed_float16+fp32"));
  EXPECT_FALSE(names.contains("float32"));
  const std::string healthy = page_of(make_run(healthy_spec()));
  EXPECT_EQ(ends_of(healthy), "");
  EXPECT_FALSE(has(healthy, "<g class=\"strong\">"));
}

TEST(ReportHtml, WithoutALaneThatWorksTheProofSaysWhatTheFixDoes) {
  RunView run = make_run(hot_spec());
  run.set_proof(1, proof_json());
  EXPECT_EQ(ends_of(page_of(run)),
            "<ul class=\"ends\"><li>Before: mixed_float16 <span>not finite</span></li>"
            "<li>With the change <span>0.41%</span></li>");
}

TEST(ReportHtml, WithoutStatisticsTheLossIsAmongTheCurves) {
  RunInfo info = make_run(healthy_spec()).info();
  for (LaneInfo& lane : info.lanes) lane.sites.clear();
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < 5; ++step) run.add_step(0, {.step = step, .loss = 1.0});
  const std::string page = page_of(run);
  EXPECT_FALSE(has(page, "<section class=\"spectrum\""));
  EXPECT_LT(page.find("id=\"curves\""), page.find("<h3>Loss"));
  EXPECT_EQ(html_fault(page), "");
}

TEST(ReportHtml, SectionsStandInOrder) {
  const std::string page = page_of(full_run());
  size_t before = page.find("<h1>");
  ASSERT_NE(before, std::string::npos);
  for (const char* id : {"cause", "actions", "proof", "run", "layers", "curves", "events", "lanes",
                         "errors", "definitions", "reproduce"}) {
    const size_t at = page.find(fmt::format(" id=\"{}\"", id));
    ASSERT_NE(at, std::string::npos) << id;
    EXPECT_GT(at, before) << id;
    EXPECT_TRUE(has(page, fmt::format("<a href=\"#{}\">", id)));
    before = at;
  }
}

TEST(ReportHtml, EscapesEverything) {
  const std::string evil = "<script>alert('x')</script>&\"\n`|\x01";
  RunSpec spec = hot_spec();
  for (LayerSpec& layer : spec.layers) {
    layer.path += evil;
    layer.op += evil;
    for (std::string& input : layer.inputs) {
      if (input != "input") input += evil;
    }
  }
  spec.lanes[1].name += evil;
  RunInfo info = make_run(spec).info();
  info.model = info.data = info.optimizer = info.command = info.isa = info.version = evil;
  RunView run(info, RunStatus::complete);
  const RunView source = make_run(spec);
  for (int lane = 0; lane < 2; ++lane) {
    for (const StepRow& row : source.steps(lane)) run.add_step(lane, row);
    for (size_t site = 0; site < info.lanes[static_cast<size_t>(lane)].sites.size(); ++site) {
      for (const StatsWindow& window : source.windows(lane, static_cast<int>(site))) {
        run.add_window(lane, static_cast<int>(site), window);
      }
    }
  }
  const Report report = make_report(run);
  const std::string page = report_html(report);
  EXPECT_EQ(html_fault(page), "");
  EXPECT_FALSE(has(page, "<script>alert"));
  EXPECT_TRUE(has(page, "&lt;script&gt;alert(&#39;x&#39;)"));
}

TEST(ReportHtml, LayerLinesShowTheRunsOwnTotals) {
  const RunView run = make_run(hot_spec());
  const std::string page = page_of(run);
  const std::string row = row_text(page, "layer-conv2");
  const TensorStats total = run.total(1, *run.find_site(1, "conv2.activation"));
  const double over = static_cast<double>(total.overflow) / static_cast<double>(total.n);
  EXPECT_TRUE(has(row, percent(over) + " over"));
  EXPECT_TRUE(has(row, "keep in fp32"));
  double up = INFINITY;
  for (const char* site : {"conv2.activation", "conv2.weight"}) {
    const float largest = run.total(1, *run.find_site(1, site)).max_abs;
    up = std::min(up, std::log2(65504.0 / static_cast<double>(largest)));
  }
  EXPECT_TRUE(has(row, fmt::format(" {:.1f} ", up)));
  EXPECT_LT(up, 0.0);
  EXPECT_FALSE(has(row_text(page, "layer-conv1"), "over"));
  EXPECT_TRUE(has(row_text(page, "layer-relu1"), "inherits NaN/Inf"));
}

TEST(ReportHtml, HeadroomDownIsWhereOnePercentWouldBeFlushed) {
  const RunView run = make_run(healthy_spec());
  const Report report = make_report(run);
  for (const LayerReport& layer : report.layers) {
    for (const SiteReport& site : layer.sites) {
      const TensorStats& total = run.total(layer.lane, site.order);
      int64_t values = 0, below = 0;
      for (int64_t count : total.exponents) values += count;
      if (values == 0) continue;
      ASSERT_TRUE(site.headroom_down_bits) << site.name;
      // The flush threshold of an m-bit format is 2^(min_exponent - m - 1).
      const int first = site.format.min_exponent() - site.format.mantissa_bits - 1 +
                        static_cast<int>(*site.headroom_down_bits);
      for (int e = kMinExponentBin; e < first; ++e) {
        below += total.exponents[static_cast<size_t>(e - kMinExponentBin)];
      }
      EXPECT_LE(static_cast<double>(below), 0.01 * static_cast<double>(values)) << site.name;
      below += total.exponents[static_cast<size_t>(first - kMinExponentBin)];
      EXPECT_GT(static_cast<double>(below), 0.01 * static_cast<double>(values)) << site.name;
    }
  }
}

TEST(ReportHtml, ProofShowsWhoIsInsideTheTolerance) {
  const std::string page = page_of(full_run());
  const std::string proof =
      page.substr(page.find("id=\"proof\""), page.find("id=\"run\"") - page.find("id=\"proof\""));
  EXPECT_TRUE(has(proof, "the change works"));
  EXPECT_TRUE(has(proof, "With conv2 and fc1 in fp32 the loss follows fp32"));
  EXPECT_TRUE(has(proof, "dropped from the advice: fc2"));
  for (const char* word : {"1.2%", "0.60%", "0.41%", "31%", "not finite", "without conv2",
                           "without fc1", "2 of them to find the loss scale"}) {
    EXPECT_TRUE(has(proof, word));
  }
  EXPECT_FALSE(has(proof, "16 of them to find the loss scale")) << "a lane that never finds one";
  EXPECT_TRUE(has(proof, "%\">10%</span>")) << "a tick of the axis";
  EXPECT_FALSE(has(proof, "&lt; 0.01"));
  // Marks: one inside and left of the band's edge, the others right of it.
  const std::regex trial("width:([0-9.]+)%\"></b><i class=\"(\\w+)\" style=\"left:([0-9.]+)%");
  std::multiset<std::string> kinds;
  for (std::sregex_iterator i(proof.begin(), proof.end(), trial), end; i != end; ++i) {
    kinds.insert((*i)[2]);
    EXPECT_EQ(std::stod((*i)[3]) <= std::stod((*i)[1]), (*i)[2] == "pass");
  }
  EXPECT_EQ(kinds, (std::multiset<std::string>{"fail", "gone", "gone", "pass"}));
}

TEST(ReportHtml, ErrorsSayWhoAddsAndWhoPassesOn) {
  const std::string page = page_of(full_run());
  const std::string errors = page.substr(page.find("id=\"errors\""));
  EXPECT_TRUE(has(errors,
                  "conv1.activation is the first tensor to differ from float32, at step 44: "
                  "58.6% of its elements differ, by at most 9 ulp of fp16."));
  EXPECT_TRUE(has(errors, "conv2.activation adds the most error: 3%"));
  const auto row = [&](const std::string& site) {
    const size_t at = errors.find(">" + site + "</a></th>");
    return errors.substr(at, errors.find("</tr>", at) - at);
  };
  EXPECT_TRUE(has(row("conv2"), ">adds<"));
  EXPECT_TRUE(has(row("conv2"), ">0.03<"));
  EXPECT_TRUE(has(row("fc1"), ">passes on<"));
  EXPECT_TRUE(has(row("conv1"), "0.59%"));  // 3 of 512 signs
  EXPECT_TRUE(has(errors, "conv1.activation has the most sign flips in front of a ReLU: 0.59%"));
  EXPECT_FALSE(has(row("loss"), "100%"));  // no ReLU reads it
  // The filled mark is right of the hollow one for layers that add error.
  const std::regex marks(
      "class=\"in\" style=\"left:([0-9.]+)%.*class=\"lo\" style=\"left:([0-9.]+)%");
  std::smatch match;
  const std::string conv2 = row("conv2"), fc1 = row("fc1");
  ASSERT_TRUE(std::regex_search(conv2, match, marks));
  EXPECT_GT(std::stod(match[2]), std::stod(match[1]));
  ASSERT_TRUE(std::regex_search(fc1, match, marks));
  EXPECT_LT(std::stod(match[2]), std::stod(match[1]));
  // 212 of 512 elements are equal, and 200 are one ulp apart.
  EXPECT_TRUE(has(page,
                  "compared with float32: 41.4% of the values are equal, 80.5% within 1 "
                  "ulp of fp16"));
}

/// A broken layer of the fp16 lane and the cured one kept in fp32, in pictures of one unit.
TEST(ReportHtml, ErrorsOfAllLanesHaveOneAxisAndShowNaN) {
  RunView run = full_run();
  const auto add = [&run](int lane, double local, int64_t not_finite) {
    SiteError error{.step = 44, .site = *run.find_site(lane, "conv2.activation"), .other_lane = 0};
    error.other_site = *run.find_site(0, "conv2.activation");
    error.n = 512;
    error.differing = 512;
    error.ulps[1] = 512 - not_finite;
    error.ulps.back() = not_finite;
    error.total = error.local_fp64 = error.inherited = local;
    run.add_error(lane, error);
  };
  add(2, 1e-6, 0);
  const std::string page = page_of(run);
  const std::regex ticks("<div class=\"ticks\"[^>]*>(<span.*?</span>)</div>");
  std::set<std::string> axes;
  const std::string errors = page.substr(page.find("id=\"errors\""));
  for (std::sregex_iterator i(errors.begin(), errors.end(), ticks), end; i != end; ++i) {
    axes.insert((*i)[1]);
  }
  EXPECT_EQ(axes.size(), 1u) << "the same for all lanes, whatever their errors";

  RunView broken(full_run().info(), RunStatus::complete);
  SiteError gone{.step = 0, .site = *broken.find_site(1, "conv2.activation"), .other_lane = 0};
  gone.n = 400;
  gone.differing = gone.ulps.back() = 100;
  gone.ulps[0] = 300;
  gone.total = gone.local_fp64 = gone.inherited = 0.0;
  broken.add_error(1, gone);
  const std::string red = page_of(broken);
  EXPECT_TRUE(has(red, "<td class=\"n bad\">100 (25%)</td>"));
  EXPECT_TRUE(has(red,
                  "conv2.activation is the first with NaN or Inf in one lane only: 25% of its "
                  "elements."));
}

TEST(ReportHtml, CuredRunTellsTheLanesApart) {
  const std::string page = page_of(full_run());
  EXPECT_TRUE(has(page, "<h1>Keeping conv2 in fp32 fixes mixed_float16.</h1>"));
  EXPECT_TRUE(has(page, "<li class=\"broken\">"));
  EXPECT_TRUE(has(page, "<li class=\"healthy\">"));
  EXPECT_FALSE(has(page, "<p class=\"todo\">A static loss scale"));
}

TEST(ReportHtml, ThinnedCurvesSaySo) {
  RunView run(make_run(healthy_spec()).info(), RunStatus::complete);
  for (int step = 0; step < 4000; ++step) {
    run.add_step(1,
                 {.step = step, .loss = 1.0 + step % 7, .loss_scale = 8.0, .skipped = step == 77});
  }
  const std::string page = page_of(run);
  EXPECT_TRUE(has(page, "every 5th step is shown (802 of 4000), and every skipped one."));
  EXPECT_TRUE(has(page, "step skipped at step 77<"));
  EXPECT_FALSE(has(page_of(full_run()), "step is shown"));
}

/// Relative luminance, WCAG 2.1.
double luminance(const std::string& color) {
  std::string hex = color.substr(1);
  if (hex.size() == 3) hex = {hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]};
  const auto channel = [&](size_t i) {
    const double c = std::stoi(hex.substr(i, 2), nullptr, 16) / 255.0;
    return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4);
}

TEST(ReportHtml, TextContrastIsAtLeastAA) {
  const std::string style(html::kStyle);
  size_t at = 0;
  for (const char* scheme : {"light", "dark"}) {
    at = style.find(":root{", at) + 1;
    const std::string block = style.substr(at, style.find('}', at) - at);
    const auto value = [&](const std::string& name) {
      const size_t begin = block.find("--" + name + ":") + name.size() + 3;
      return luminance(block.substr(begin, block.find_first_of(";}\n", begin) - begin));
    };
    const std::pair<const char*, std::vector<const char*>> uses[] = {
        {"ink", {"bg", "card", "accent-soft"}},
        {"soft", {"bg", "card", "accent-soft"}},
        {"accent", {"bg", "card", "accent-soft"}},
        {"good", {"bg", "good-soft"}},
        {"warn", {"bg", "warn-soft"}},
        {"bad", {"bg", "card", "bad-soft"}}};
    for (const auto& [text, grounds] : uses) {
      for (const char* ground : grounds) {
        const double a = value(text), b = value(ground);
        EXPECT_GE((std::max(a, b) + 0.05) / (std::min(a, b) + 0.05), 4.5)
            << scheme << ": " << text << " on " << ground;
      }
    }
    // Drawings: 3 to 1 against their ground (1.4.11).
    for (const char* ink : {"bar", "lost", "l0", "l1", "l2", "l3"}) {
      const double a = value(ink), b = value("bg");
      EXPECT_GE((std::max(a, b) + 0.05) / (std::min(a, b) + 0.05), 3.0) << scheme << ": " << ink;
    }
  }
}

TEST(ReportHtml, StaysSmallWithAThousandLayers) {
  const Report report = make_report(large_run(1000));
  const std::string page = report_html(report);
  EXPECT_LT(page.size(), 2'000'000u);
  EXPECT_EQ(html_fault(page), "");
  size_t rows = 0;
  for (size_t i = 0; (i = page.find("<tr id=\"layer-", i)) != std::string::npos; ++i) ++rows;
  EXPECT_GE(rows, 1001u);  // every layer of the lane in focus
  EXPECT_TRUE(has(page, "more are in the JSON and CSV reports"));
}

}  // namespace
}  // namespace halfscope::test
