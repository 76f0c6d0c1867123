// SPDX-License-Identifier: MIT
// Documented failures and healthy networks as ONNX files, run under plans: networks that no format
// harms get no warning, and failures keep their error. The files are not committed; without them
// the tests skip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/bad_inputs.h"
#include "tests/data/test_files.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using testing::Not;

std::filesystem::path case_file(const std::string& name) {
  return test::outside_data("zoo-cases") / name;
}

/// The findings of the lane that is not float32, and of float32.
struct Findings {
  std::vector<nlohmann::json> lane, harm, reference;

  std::string worst() const {
    std::string worst = "none";
    for (const nlohmann::json& each : lane) {
      const std::string severity = each["severity"];
      if (severity == "error" || worst == "none" || worst == "info") worst = severity;
    }
    return worst;
  }
};

Findings findings_of(const test::Bench& bench) {
  const test::Outcome report = bench.run({"report", "r.hscope", "--json", "r.json"});
  EXPECT_EQ(report.code, 0) << report.err;
  Findings found;
  const auto json = nlohmann::json::parse(test::text_of(bench / "r.json"));
  for (const nlohmann::json& each : json["findings"]) {
    if (each["lane"] == "float32") {
      found.reference.push_back(each);
    } else {
      (each["rule"] == "harm" ? found.harm : found.lane).push_back(each);
    }
  }
  return found;
}

/// A plan of the data's folder, or a preset.
std::string lane_of(const std::string& plan) {
  const std::filesystem::path file = case_file("plans/" + plan + ".json");
  return std::filesystem::exists(file) ? file.string() : plan;
}

Findings run_case(const std::string& name, const std::string& plan) {
  const test::Bench bench;
  const test::Outcome run = bench.run({"run", case_file(name + "/net.onnx").string(), "--input",
                                       case_file(name + "/data.npz").string(), "--lanes",
                                       "float32," + lane_of(plan), "--record", "r.hscope"});
  EXPECT_EQ(run.code, 0) << run.err;
  return findings_of(bench);
}

class NoAlarm : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(case_file("F6"))) GTEST_SKIP() << "no " << case_file("F6");
  }
};

TEST_F(NoAlarm, AMaskThatOverflowsIsARemarkUnlessARowIsFullyMasked) {
  const Findings partly = run_case("F6ok", "half");
  EXPECT_EQ(partly.worst(), "info");
  ASSERT_EQ(partly.lane.size(), 1u);
  EXPECT_EQ(partly.lane[0]["rule"], "forward_overflow");
  EXPECT_THAT(partly.lane[0]["text"].get<std::string>(), HasSubstr("This is harmless: "));
  const Findings fully = run_case("F6", "half");
  EXPECT_EQ(fully.worst(), "error");
  EXPECT_EQ(fully.lane[0]["site"], partly.lane[0]["site"]) << "the constant";
}

TEST_F(NoAlarm, HealthyNetworksGetNone) {
  for (const char* name : {"F8ok", "F30ok", "OKcnnrun", "OKgptrun"}) {
    for (const char* plan :
         {"mixed_float16", "mixed_bfloat16", "float16", "bfloat16", "half", "bf"}) {
      SCOPED_TRACE(std::string(name) + " " + plan);
      const Findings found = run_case(name, plan);
      EXPECT_THAT(found.worst(), testing::AnyOf("none", "info"));
      EXPECT_TRUE(found.reference.empty());
      for (const nlohmann::json& each : found.lane) {
        EXPECT_THAT(each["text"].get<std::string>(), Not(HasSubstr("loss scale")));
      }
    }
  }
}

// The results are finite, and wrong by 54 and 95 %: absorbed, but not harmless.
TEST_F(NoAlarm, AVarianceThatOverflowsIsStillAWarning) {
  for (const char* name : {"F3", "F4"}) {
    SCOPED_TRACE(name);
    const Findings found = run_case(name, "half");
    EXPECT_EQ(found.worst(), "warning");
    ASSERT_EQ(found.harm.size(), 1u);
    EXPECT_EQ(found.harm[0]["severity"], "error");
    EXPECT_EQ(found.lane[0]["rule"], "forward_overflow");
    EXPECT_THAT(found.lane[0]["text"].get<std::string>(), HasSubstr("No NaN appears"));
  }
}

TEST_F(NoAlarm, OverflowThatReachesTheOutputsIsStillAnError) {
  for (const char* name : {"F1", "F7", "F31"}) {
    SCOPED_TRACE(name);
    const Findings found = run_case(name, "mixed_float16");
    EXPECT_EQ(found.worst(), "error");
    EXPECT_TRUE(found.reference.empty());
  }
}

// Zeros that fp16 made are named, not the division or the logarithm that meets them.
TEST_F(NoAlarm, NanOfAFlushedConstantNamesTheConstant) {
  const Findings norm = run_case("F5", "half");
  EXPECT_THAT(norm.lane[0]["mechanism"].get<std::string>(), HasSubstr(" underflows fp16 to 0"));
  const Findings box = run_case("F12", "half");
  EXPECT_THAT(box.lane[0]["mechanism"].get<std::string>(), HasSubstr(": a constant of "));
}

}  // namespace
}  // namespace halfscope
