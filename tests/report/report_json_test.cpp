// SPDX-License-Identifier: MIT
// report.json and report.csv against docs/reference/report-json.md, docs/report.schema.json and
// the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "analysis/report/report.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

/// Returns the words in backticks in the row of docs/reference/report-json.md starting with `cell`.
std::vector<std::string> contract_words(const std::string& cell) {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/docs/reference/report-json.md");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("| " + cell + " |")) continue;
    std::vector<std::string> words;
    std::istringstream rest(line.substr(line.find('|', 2)));
    std::string part;
    for (bool inside = false; std::getline(rest, part, '`'); inside = !inside) {
      if (inside && part != "null") words.push_back(part);
    }
    return words;
  }
  return {};
}

Json json_of(const RunView& run) { return Json::parse(report_json(make_report(run))); }

TEST(ReportJson, HasTheKeysOfTheContract) {
  RunView run = full_run();
  run.add_sums(1, {.step = 44, .site = 1, .counts = {.sums = 1, .products = 2, .largest = 0.5}});
  run.add_kernel(1, {.step = 44, .site = 1, .n = 8});
  const Json json = json_of(run);
  EXPECT_EQ(json["schema"], "halfscope.report/1");
  EXPECT_THAT(keys(json),
              ElementsAre("schema", "version", "run", "verdict", "lanes", "findings", "gate",
                          "recommendation", "actions", "diagnosis", "proof", "layers", "errors",
                          "sums", "kernels", "events", "steps", "reproduce"));
  EXPECT_EQ(keys(json["run"]), contract_words("`schema`, `version`, `run`"));
  EXPECT_THAT(keys(json["verdict"]), ElementsAre("state", "text"));
  for (const char* key : {"lanes", "actions", "layers", "errors", "sums", "kernels", "events"}) {
    ASSERT_FALSE(json[key].empty()) << key;
    EXPECT_EQ(keys(json[key][0]), contract_words(std::string("`") + key + "[]`")) << key;
  }
  std::vector<std::string> finding = contract_words("`findings[]`");
  ASSERT_GE(finding.size(), 12u);
  finding.resize(11);  // then comes the shape of `action`
  EXPECT_EQ(keys(json["findings"][0]), finding);
  EXPECT_THAT(keys(json["findings"][0]["action"]),
              ElementsAre("kind", "layers", "loss_scale", "text"));
  EXPECT_EQ(keys(json["recommendation"]), contract_words("`recommendation`"));
  EXPECT_EQ(keys(json["diagnosis"]), contract_words("`diagnosis`"));
  EXPECT_EQ(keys(json["proof"]), contract_words("`proof`"));
  EXPECT_EQ(keys(json["layers"][1]["sites"][0]), contract_words("`sites[]`"));
  EXPECT_EQ(keys(json["errors"][0]["sites"][0]), contract_words("`errors[].sites[]`"));
  EXPECT_EQ(keys(json["kernels"][0]["sites"][0]), contract_words("`kernels[].sites[]`"));
  EXPECT_EQ(keys(json["steps"]["float32"]), contract_words("`steps`"));
  EXPECT_EQ(json["steps"]["mixed_float16"]["loss"][0], "nan");
  EXPECT_EQ(json["steps"]["float32"]["thinned"], false);
  EXPECT_TRUE(json["lanes"][1]["plan"].is_object());
  EXPECT_TRUE(json["recommendation"]["plan"].is_object());
  EXPECT_TRUE(json["recommendation"]["cured_by"].is_null())
      << "fc1 is proved, and not in that lane";
  run.set_proof(1, "");
  EXPECT_EQ(json_of(run)["recommendation"]["cured_by"], "mixed_float16+fp32");
}

/// Checks that every object of the schema lists exactly the keys that the report has there. This
/// part of the check needs no validator.
void compare_keys(const Json& schema, const Json& rule, const Json& value, const std::string& at) {
  if (rule.contains("$ref")) {
    const std::string name = rule["$ref"].get<std::string>().substr(8);  // after "#/$defs/"
    ASSERT_TRUE(schema["$defs"].contains(name)) << name;
    if (name == "change") return;  // has what its kind needs
    return compare_keys(schema, schema["$defs"][name], value, at);
  }
  if (rule.contains("anyOf")) {
    for (const Json& option : rule["anyOf"]) {
      const bool null = option.contains("type") && option["type"] == "null";
      if (!null && value.is_structured()) compare_keys(schema, option, value, at);
    }
    return;
  }
  if (value.is_array() && rule.contains("items")) {
    for (size_t i = 0; i < std::min<size_t>(value.size(), 3); ++i) {
      compare_keys(schema, rule["items"], value[i], at + "[]");
    }
  }
  if (!value.is_object() || !rule.contains("properties")) return;
  EXPECT_EQ(keys(value), keys(rule["properties"])) << at;
  EXPECT_EQ(rule["required"].size(), rule["properties"].size()) << at;
  for (const auto& [key, item] : rule["properties"].items()) {
    if (value.contains(key)) compare_keys(schema, item, value[key], at + "." + key);
  }
}

Json report_schema() {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/docs/report.schema.json");
  return Json::parse(file);
}

TEST(ReportJson, HasTheKeysOfTheSchema) {
  const Json schema = report_schema();
  compare_keys(schema, schema, json_of(full_run()), "report");
  compare_keys(schema, schema, json_of(make_run(no_scale_spec())), "report");
}

TEST(ReportJson, IsValidByTheSchema) {
  if (std::system("python3 -c 'import jsonschema; jsonschema.Draft202012Validator' 2>/dev/null")) {
    GTEST_SKIP() << "python3-jsonschema is missing";
  }
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("report_schema." + std::to_string(getpid()));
  fs::create_directories(folder);
  RunSpec empty = healthy_spec();
  empty.steps = 0;
  const std::pair<const char*, RunView> runs[] = {
      {"full", full_run()},
      {"healthy", make_run(healthy_spec())},
      {"no_scale", make_run(no_scale_spec())},
      {"no_steps", make_run(empty)},
      {"nothing", RunView(RunInfo{}, RunStatus::running)},
      {"died", with_status(full_run(), RunStatus::died, 400)},
  };
  std::string files;
  for (const auto& [name, run] : runs) {
    const fs::path file = folder / (std::string(name) + ".json");
    std::ofstream(file) << report_json(make_report(run));
    files += " " + file.string();
  }
  const std::string check =
      "python3 -c 'import json,sys,jsonschema\n"
      "s=json.load(open(sys.argv[1]))\n"
      "v=jsonschema.Draft202012Validator\n"
      "v.check_schema(s)\n"
      "for f in sys.argv[2:]:\n"
      "  for e in v(s).iter_errors(json.load(open(f))): sys.exit(f+str(e.json_path)+e.message)\n"
      "' " +
      std::string(HALFSCOPE_SOURCE_DIR) + "/docs/report.schema.json" + files;
  EXPECT_EQ(std::system(check.c_str()), 0);
  fs::remove_all(folder);
}

TEST(ReportJson, WhatWasNotMeasuredIsNull) {
  RunSpec spec = healthy_spec();
  spec.steps = 0;
  const Json json = json_of(make_run(spec));
  for (const char* key : {"first_loss", "last_loss", "last_loss_scale", "test_loss",
                          "test_accuracy", "test_auc", "test_mean_iou"}) {
    EXPECT_TRUE(json["lanes"][0][key].is_null()) << key;
  }
  EXPECT_TRUE(json["recommendation"].is_null());
  EXPECT_TRUE(json["layers"][0]["sites"][0]["max_abs"].is_null());
  EXPECT_TRUE(json["findings"].is_array());
  EXPECT_TRUE(json["proof"].is_null());
  EXPECT_TRUE(json_of(RunView(RunInfo{}, RunStatus::running)).is_object());
}

TEST(ReportJson, NumbersReadBackAndCountersAreExact) {
  const RunView run = make_run(healthy_spec());
  const Json json = json_of(run);
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

// A lane that has gone astray says nothing of its operators; only the first sample is kept whatever
// happened in it.
TEST(ReportJson, SamplesOfLostStepsAreLeftOut) {
  RunView run = full_run();
  for (int64_t step : {0, 7, 20}) {  // the lane skips every one of its 40 steps
    SiteError error{.step = step, .site = 0, .other_lane = 0, .other_site = 0};
    error.n = error.ulps[0] = 10;
    run.add_error(1, error);
  }
  EXPECT_THAT(json_of(run)["errors"][0]["steps"], ElementsAre(0, 44, 49));
}

TEST(ReportJson, ErrorsAreMediansAndSums) {
  const RunView run = full_run();
  const Json json = json_of(run)["errors"];
  ASSERT_EQ(json.size(), 1u);
  EXPECT_THAT(json[0]["steps"], ElementsAre(44, 49));
  EXPECT_EQ(json[0]["first_site"], "conv1.activation");
  EXPECT_EQ(json[0]["first_step"], 44);
  for (const Json& site : json[0]["sites"]) {
    int64_t n = 0, equal = 0;
    double largest = 0.0;
    for (const SiteError& error : run.errors(1)) {
      if (run.lane(1).sites[static_cast<size_t>(error.site)].name() != site["site"]) continue;
      n += error.n;
      equal += error.ulps[0];
      if (!std::isnan(error.local_fp64)) largest = std::max(largest, error.local_fp64);
    }
    EXPECT_EQ(site["n"], n) << site["site"];
    EXPECT_EQ(site["ulps"][0], equal) << site["site"];
    EXPECT_TRUE(site["local_fp32"].is_null());
    // For two values, the upper one is the median.
    if (!site["local_fp64"].is_null()) {
      EXPECT_EQ(site["local_fp64"].get<double>(), largest);
    }
  }
}

TEST(ReportJson, ThinningKeepsSkippedSteps) {
  RunView run(make_run(healthy_spec()).info(), RunStatus::complete);
  for (int step = 0; step < 5000; ++step) {
    run.add_step(1, {.step = step, .loss = 1.0, .loss_scale = 8.0, .skipped = step % 37 == 5});
  }
  const Json json = json_of(run)["steps"]["mixed_float16"];
  EXPECT_EQ(json["thinned"], true);
  EXPECT_LE(json["step"].size(), 1000u);
  EXPECT_EQ(json["step"].front(), 0);
  EXPECT_EQ(json["step"].back(), 4999);
  std::set<int> kept;
  for (size_t i = 0; i < json["step"].size(); ++i) kept.insert(json["step"][i].get<int>());
  int others = 0, shown = 0;
  for (int step = 0; step < 5000; ++step) {
    if (step % 37 == 5) {
      EXPECT_TRUE(kept.contains(step)) << step;
    } else if (step != 4999) {  // the last one is always there
      // Exactly each kept_every-th, as the page says.
      const bool due = others % json["kept_every"].get<int>() == 0;
      EXPECT_EQ(kept.contains(step), due) << step;
      ++others;
      shown += due ? 1 : 0;
    }
  }
  EXPECT_GT(shown, 500);
}

TEST(ReportCsv, HasOneRowPerSiteAndQuotesNames) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc1").path = "odd,\"name\"";
  layer_of(spec, "relu3").inputs = {"odd,\"name\""};
  const Report report = make_report(make_run(spec));
  const std::string csv = report_csv(report);
  EXPECT_TRUE(csv.starts_with(
      "lane,path,op,read,write,parameters,site,role,format,n,zero,overflow,underflow,subnormal,"
      "non_finite,lost,max_abs,min_abs,rms,headroom_bits,headroom_down_bits,error_total,error_"
      "local,"
      "error_inherited,max_ulps\n"));
  size_t sites = 0;
  for (const LayerReport& layer : report.layers) sites += layer.sites.size();
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), sites + 1);
  EXPECT_THAT(csv, HasSubstr("mixed_float16,\"odd,\"\"name\"\"\",Gemm,fp16,fp16,512,"));
}

TEST(ReportCsv, HoldsTheErrorsOfTheLane) {
  const std::string csv = report_csv(make_report(full_run()));
  std::istringstream lines(csv);
  int with = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 24) << line;
    with += line.ends_with(",,,,") ? 0 : 1;
  }
  EXPECT_GT(with, 10);
  EXPECT_THAT(csv, HasSubstr(",0.03,"));  // conv2.activation adds it
}

}  // namespace
}  // namespace halfscope::test
