// SPDX-License-Identifier: MIT
// The four written reports against docs/contracts.md. With HALFSCOPE_REPORT_DIR set, the pages of
// a few synthetic runs are written there to be looked at.
#include "analysis/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "analysis/report/html_parts.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

size_t lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Words in backticks in the table row of docs/contracts.md that starts with `key`, after it.
std::vector<std::string> contract_words(const std::string& key) {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/docs/contracts.md");
  std::string line;
  bool section = false;
  while (std::getline(file, line)) {
    if (line.starts_with("## ")) section = line == "## Report JSON";
    if (!section || !line.starts_with("| `" + key)) continue;
    std::vector<std::string> words;
    std::istringstream cell(line.substr(line.find('|', 2)));
    std::string part;
    for (bool inside = false; std::getline(cell, part, '`'); inside = !inside) {
      if (inside) words.push_back(part);
    }
    return words;
  }
  return {};
}

/// Every tag closed in order, every link with a target, every id once. Empty if all is well.
std::string html_fault(const std::string& page) {
  const std::set<std::string> empty_tags{"meta", "br", "!DOCTYPE"};
  std::vector<std::string> open;
  std::set<std::string> ids;
  std::vector<std::string> links;
  const auto attribute = [](const std::string& tag, const std::string& name) -> std::string {
    const size_t at = tag.find(" " + name + "=\"");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 3;
    return tag.substr(begin, tag.find('"', begin) - begin);
  };
  for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    const size_t end = page.find('>', at);
    if (end == std::string::npos) return "unfinished tag";
    const std::string tag = page.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != std::string::npos) return "stray <: " + tag;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closes " + tag;
      open.pop_back();
      continue;
    }
    const std::string id = attribute(tag, "id"), link = attribute(tag, "href");
    if (!id.empty() && !ids.insert(id).second) return "id twice: " + id;
    if (!link.empty()) links.push_back(link);
    const std::string name = tag.substr(0, tag.find_first_of(" /\n"));
    if (name == "style") at = page.find("</style>", at);
    if (tag.back() != '/' && !empty_tags.contains(name)) open.push_back(name);
  }
  if (!open.empty()) return "not closed: " + open.back();
  for (const std::string& link : links) {
    if (link[0] != '#' || !ids.contains(link.substr(1))) return "dead link: " + link;
  }
  return "";
}

TEST(ReportJson, HasTheKeysOfTheContract) {
  const Json json = Json::parse(report_json(make_report(make_run(hot_spec()))));
  EXPECT_EQ(json["schema"], "halfscope.report/1");
  EXPECT_THAT(keys(json), ElementsAre("schema", "version", "run", "verdict", "lanes", "findings",
                                      "recommendation", "layers", "steps"));
  // `schema`, `version`, `run` share a row; the run's own keys follow its three names.
  std::vector<std::string> run = contract_words("schema`, `version`, `run");
  EXPECT_EQ(keys(json["run"]), run);
  EXPECT_EQ(keys(json["lanes"][0]), contract_words("lanes[]"));
  EXPECT_THAT(keys(json["verdict"]), ElementsAre("state", "text"));
  EXPECT_EQ(json["verdict"]["state"], "broken");

  std::vector<std::string> finding = contract_words("findings[]");
  ASSERT_GE(finding.size(), 12u);
  finding.resize(11);  // then comes the shape of `action`
  EXPECT_EQ(keys(json["findings"][0]), finding);
  EXPECT_THAT(keys(json["findings"][0]["action"]),
              ElementsAre("kind", "layers", "loss_scale", "text"));
  EXPECT_THAT(keys(json["recommendation"]),
              ElementsAre("lane", "layers", "plan", "loss_scale", "text"));

  const std::vector<std::string> layer = contract_words("layers[]");
  ASSERT_EQ(layer.size(), 7u + 15u);
  std::vector<std::string> own(layer.begin(), layer.begin() + 7);
  own[6] = "sites";
  EXPECT_EQ(keys(json["layers"][0]), own);
  EXPECT_EQ(keys(json["layers"][1]["sites"][0]),
            std::vector<std::string>(layer.begin() + 7, layer.end()));

  std::vector<std::string> steps = contract_words("steps");
  EXPECT_THAT(keys(json["steps"]), ElementsAre("float32", "mixed_float16"));
  EXPECT_EQ(keys(json["steps"]["float32"]), steps);
  EXPECT_EQ(json["steps"]["mixed_float16"]["loss"][0], "nan");
  EXPECT_EQ(json["steps"]["float32"]["thinned"], false);
  EXPECT_TRUE(json["lanes"][1]["plan"].is_object());
  EXPECT_TRUE(json["recommendation"]["plan"].is_object());
}

TEST(ReportJson, WhatWasNotMeasuredIsNull) {
  RunSpec spec = healthy_spec();
  spec.steps = 0;
  const Json json = Json::parse(report_json(make_report(make_run(spec))));
  for (const char* key :
       {"first_loss", "last_loss", "last_loss_scale", "test_loss", "test_accuracy"}) {
    EXPECT_TRUE(json["lanes"][0][key].is_null()) << key;
  }
  EXPECT_TRUE(json["recommendation"].is_null());
  EXPECT_TRUE(json["layers"][0]["sites"][0]["max_abs"].is_null());
  EXPECT_TRUE(json["findings"].is_array());
  EXPECT_TRUE(
      Json::parse(report_json(make_report(RunView(RunInfo{}, RunStatus::running)))).is_object());
}

TEST(ReportJson, NumbersReadBackAndCountersAreExact) {
  const RunView run = make_run(healthy_spec());
  const Json json = Json::parse(report_json(make_report(run)));
  const SiteInfo& site = run.lane(1).sites[1];
  const TensorStats total = run.total(1, 1);
  const Json* found = nullptr;
  for (const Json& layer : json["layers"]) {
    for (const Json& candidate : layer["sites"]) {
      if (layer["lane"] == "mixed_float16" && candidate["site"] == site.name()) found = &candidate;
    }
  }
  ASSERT_NE(found, nullptr);
  EXPECT_EQ((*found)["n"], total.n);
  EXPECT_EQ((*found)["subnormal"], total.subnormal);
  EXPECT_EQ((*found)["max_abs"].get<double>(), static_cast<double>(total.max_abs));
  int64_t counted = 0;
  for (const auto& [exponent, count] : (*found)["exponents"].items()) {
    counted += count.get<int64_t>();
  }
  EXPECT_EQ(counted, total.n - total.zero);
}

TEST(ReportJson, ThinningKeepsSkippedSteps) {
  RunView run(make_run(healthy_spec()).info(), RunStatus::complete);
  for (int step = 0; step < 5000; ++step) {
    run.add_step(1, {.step = step, .loss = 1.0, .loss_scale = 8.0, .skipped = step % 37 == 5});
  }
  const Json json = Json::parse(report_json(make_report(run)))["steps"]["mixed_float16"];
  EXPECT_EQ(json["thinned"], true);
  EXPECT_LE(json["step"].size(), 1000u);
  EXPECT_GE(json["step"].size(), 990u);
  EXPECT_EQ(json["step"].front(), 0);
  EXPECT_EQ(json["step"].back(), 4999);
  std::set<int> kept;
  for (size_t i = 0; i < json["step"].size(); ++i) kept.insert(json["step"][i].get<int>());
  for (int step = 5; step < 5000; step += 37) EXPECT_TRUE(kept.contains(step)) << step;
}

TEST(ReportCsv, HasOneRowPerSiteAndQuotesNames) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc1").path = "odd,\"name\"";
  layer_of(spec, "relu3").inputs = {"odd,\"name\""};
  const Report report = make_report(make_run(spec));
  const std::string csv = report_csv(report);
  EXPECT_TRUE(csv.starts_with(
      "lane,path,op,read,write,parameters,site,role,format,n,zero,overflow,underflow,subnormal,"
      "non_finite,lost,max_abs,min_abs,rms,headroom_bits\n"));
  size_t sites = 0;
  for (const LayerReport& layer : report.layers) sites += layer.sites.size();
  EXPECT_EQ(lines(csv), sites + 1);
  EXPECT_THAT(csv, HasSubstr("mixed_float16,\"odd,\"\"name\"\"\",Gemm,fp16,fp16,512,"));
}

TEST(ReportMarkdown, FitsAComment) {
  RunSpec spec = hot_spec();
  for (int i = 0; i < 20; ++i) spec.lanes.push_back({.name = "lane" + std::to_string(i)});
  spec.steps = 5;
  const std::string md = report_markdown(make_report(make_run(spec)));
  EXPECT_LE(lines(md), 60u);
  EXPECT_THAT(md, HasSubstr("Keep conv2 in fp32"));
  EXPECT_LE(lines(report_markdown(make_report(RunView(RunInfo{}, RunStatus::running)))), 60u);
}

TEST(ReportHtml, IsWellFormedAndSelfContained) {
  RunSpec single = healthy_spec(), empty = healthy_spec(), nan = healthy_spec();
  single.steps = 1;
  empty.steps = 0;
  nan.nan_from_the_start = true;
  for (const RunSpec& spec : {healthy_spec(), hot_spec(), no_scale_spec(), single, empty, nan}) {
    const std::string page = report_html(make_report(make_run(spec)));
    EXPECT_EQ(html_fault(page), "");
    EXPECT_THAT(page, Not(HasSubstr("http")));
    EXPECT_THAT(page, Not(HasSubstr("<script")));
    EXPECT_THAT(page, HasSubstr("id=\"layer-conv2\""));
  }
  EXPECT_EQ(html_fault(report_html(make_report(RunView(RunInfo{}, RunStatus::running)))), "");
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
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"));
  EXPECT_LE(lines(report_markdown(report)), 60u);
  EXPECT_TRUE(Json::parse(report_json(report)).is_object());
}

TEST(ReportHtml, StaysSmallWithAThousandLayers) {
  RunSpec spec = healthy_spec();
  spec.layers.clear();
  std::string before = "input";
  for (int i = 0; i < 1000; ++i) {
    const std::string path = "block" + std::to_string(i / 10) + "/fc" + std::to_string(i % 10);
    spec.layers.push_back({.path = path, .op = "Gemm", .inputs = {before}, .weights = true});
    before = path;
  }
  spec.steps = 1;
  spec.elements = 4096;
  spec.spread = 3.0;
  const std::string page = report_html(make_report(make_run(spec)));
  EXPECT_LT(page.size(), 2'000'000u);
  EXPECT_EQ(html_fault(page), "");
}

TEST(Report, IsTheSameEveryTime) {
  const RunView run = make_run(hot_spec());
  EXPECT_EQ(report_html(make_report(run)), report_html(make_report(run)));
  EXPECT_EQ(report_json(make_report(run)), report_json(make_report(run)));
}

TEST(Report, PagesToLookAt) {
  const char* directory = std::getenv("HALFSCOPE_REPORT_DIR");
  if (directory == nullptr) GTEST_SKIP() << "HALFSCOPE_REPORT_DIR is not set";
  RunSpec healthy = healthy_spec(), hot = hot_spec();
  layer_of(healthy, "fc2").gradient = -2.0;
  healthy.lanes[1].loss_scale = 65536.0;
  healthy.steps = hot.steps = 60;
  hot.lanes.push_back(
      {.name = "bfloat16", .format = kBf16, .storage = kBf16, .loss_scale = 1.0, .dynamic = false});
  const std::map<std::string, RunSpec> pages{
      {"healthy", healthy}, {"hot", hot}, {"no_scale", no_scale_spec()}};
  for (const auto& [name, spec] : pages) {
    const Report report = make_report(make_run(spec));
    const std::string base = std::string(directory) + "/" + name;
    std::ofstream(base + ".html") << report_html(report);
    std::ofstream(base + ".md") << report_markdown(report);
    std::ofstream(base + ".json") << report_json(report);
    std::ofstream(base + ".csv") << report_csv(report);
  }
}

}  // namespace
}  // namespace halfscope::test
