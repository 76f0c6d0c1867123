// SPDX-License-Identifier: MIT
// `halfscope diff`: runs and lanes against the numbers of reports, tensors against distances that
// are known by construction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/recorder.h"
#include "core/data/npz.h"
#include "tests/analysis/sample_run.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::small_training;
using test::text_of;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using DiffJson = nlohmann::ordered_json;

DiffJson json_of(const Bench& bench, std::vector<std::string> words) {
  words.insert(words.begin(), "diff");
  words.emplace_back("--json");
  const Outcome outcome = bench.run(words);
  EXPECT_THAT(outcome.err, IsEmpty());
  const DiffJson json = DiffJson::parse(outcome.out);
  EXPECT_EQ(outcome.code, json["same"] == true ? 0 : 1);
  return json;
}

TEST(CliDiff, TheSameTrainingIsTheSame) {
  const Bench bench;
  for (const char* file : {"a.hscope", "b.hscope"}) {
    ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16", "--out", file})).code,
              0);
  }
  const Outcome same = bench.run({"diff", "a.hscope", "b.hscope"});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("float32: the same in "));
  EXPECT_THAT(same.out, HasSubstr("mixed_float16: the same in "));
}

TEST(CliDiff, ALongerTrainingIsTheSameInTheStepsOfBoth) {
  const Bench bench;
  const auto train = [&](const char* steps, const char* file) {
    const Outcome outcome =
        bench.run({"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", steps,
                   "--no-eval", "--quiet", "--lanes", "float32", "--out", file});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  train("4", "short.hscope");
  train("6", "long.hscope");
  const DiffJson json = json_of(bench, {"short.hscope", "long.hscope"});
  EXPECT_EQ(json["same"], false) << "one has more steps";
  const DiffJson& lane = json["lanes"][0];
  EXPECT_EQ(lane["steps"], (DiffJson{4, 6}));
  EXPECT_GT(lane["compared"], 10);
  EXPECT_EQ(lane["sites"], DiffJson::array()) << "the totals differ, but no step of both does";
}

TEST(CliDiff, ALearningRateFirstShowsInTheUpdates) {
  const Bench bench;
  const auto record = [&](const char* rate, const char* file) {
    return bench.run(small_training({"--optimizer", rate, "--lanes", "float32", "--out", file}))
        .code;
  };
  ASSERT_EQ(record("sgd:lr=0.1", "a.hscope"), 0);
  ASSERT_EQ(record("sgd:lr=0.2", "b.hscope"), 0);
  const DiffJson lane = json_of(bench, {"a.hscope", "b.hscope"})["lanes"][0];
  EXPECT_EQ(lane["first_step"], 0);
  EXPECT_THAT(lane["first_site"].get<std::string>(), HasSubstr("_update"));
  EXPECT_EQ(lane["series"][0]["name"], "loss");
  EXPECT_EQ(lane["series"][0]["first_step"], 1) << "the first loss comes before the first update";
  EXPECT_EQ(lane["series"][1]["name"], "loss scale");
  EXPECT_TRUE(lane["series"][1]["first_step"].is_null());
  // Twice the rate is twice the first update; the table has the largest differences first.
  double before = 1.0;
  for (const DiffJson& site : lane["sites"]) {
    EXPECT_LE(site["size"], before);
    before = site["size"];
  }
}

/// Records a run of one lane with a layer of this path, which its network file calls `alias`.
void record_layers(const std::filesystem::path& file,
                   const std::vector<std::pair<std::string, std::string>>& layers) {
  RunInfo info = test::sample_info(static_cast<int>(layers.size()));
  info.lanes.resize(1);
  LaneInfo& lane = info.lanes[0];
  lane.layers.clear();
  for (size_t i = 0; i < layers.size(); ++i) {
    lane.layers.push_back({layers[i].first, "Gemm", {}, kFp32, kFp32, false, 0});
    lane.layers.back().alias = layers[i].second;
    lane.sites[i].path = layers[i].first;
    lane.sites[i].tensor = "activation";
  }
  Recorder recorder(file);
  test::send_run(recorder, info, 3);
}

TEST(CliDiff, LayersAreFoundByTheirOtherNames) {
  const Bench bench;
  record_layers(bench / "own.hscope", {{"conv1", ""}, {"conv2", ""}, {"fc", ""}});
  record_layers(bench / "file.hscope", {{"Conv_0", "conv1"}, {"Conv_3", "conv2"}, {"fc", ""}});
  record_layers(bench / "other.hscope", {{"n1", "conv1"}, {"n2", "conv2"}, {"head", "fc"}});
  for (const auto& [a, b] : {std::pair{"own.hscope", "file.hscope"},
                             {"file.hscope", "own.hscope"},
                             {"file.hscope", "other.hscope"}}) {
    const DiffJson lane = json_of(bench, {a, b})["lanes"][0];
    EXPECT_EQ(lane["compared"], 3) << a << " " << b;
    EXPECT_EQ(lane["same"], true) << lane.dump();
  }
  // A name of two layers says nothing.
  record_layers(bench / "twice.hscope", {{"x", "conv1"}, {"y", "conv1"}, {"fc", ""}});
  const DiffJson lane = json_of(bench, {"own.hscope", "twice.hscope"})["lanes"][0];
  EXPECT_EQ(lane["compared"], 1);
  EXPECT_EQ(lane["only"][1], (DiffJson{"x.activation", "y.activation"}));
}

TEST(CliDiff, NumbersAreThoseOfTheReport) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  const DiffJson lane =
      json_of(bench, {"run.hscope", "--lanes", "float32,mixed_float16"})["lanes"][0];
  const DiffJson report = DiffJson::parse(bench.run({"report", "run.hscope", "--json", "-"}).out);
  EXPECT_EQ(lane["series"][0]["last"][0], report["lanes"][0]["last_loss"]);
  EXPECT_EQ(lane["series"][0]["last"][1], report["lanes"][1]["last_loss"]);
  double scales[2] = {};
  for (const size_t which : {0, 1}) {
    const DiffJson& all = report["steps"][which == 0 ? "float32" : "mixed_float16"]["loss_scale"];
    scales[which] = all[0];
    for (const DiffJson& each : all) ASSERT_EQ(each, scales[which]);
  }
  ASSERT_NE(scales[0], scales[1]);
  const auto is_gradient = [](const std::string& role) { return role.ends_with("_grad"); };
  size_t checked = 0;
  for (const DiffJson& layer : report["layers"]) {
    for (const DiffJson& site : layer["sites"]) {
      for (const DiffJson& mine : lane["sites"]) {
        if (mine["site"] != site["site"]) continue;
        ++checked;
        const size_t which = layer["lane"] == "float32" ? 0 : 1;
        // The loss scale does not change in these steps.
        const double scale = is_gradient(site["role"]) ? scales[which] : 1.0;
        EXPECT_EQ(mine["max_abs"][which], site["max_abs"].get<double>() / scale) << site["site"];
        const double finite = site["n"].get<double>() - site["non_finite"].get<double>();
        const double norm = site["rms"].get<double>() * std::sqrt(finite) / scale;
        EXPECT_NEAR(mine["norm"][which].get<double>(), norm, 1e-9 * norm) << site["site"];
        const double overflow = site["overflow"].get<double>() / site["n"].get<double>();
        EXPECT_DOUBLE_EQ(mine["overflow"][which].get<double>(), overflow) << site["site"];
      }
    }
  }
  EXPECT_GT(checked, 4u);
}

TEST(CliDiff, TensorsByUlps) {
  const Bench bench;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double step = std::ldexp(1.0, -10);  // fp16's last place at 1
  write_npz_double(bench / "a.npz", {{"same", {{2}, {0.0, nan}}},
                                     {"x", {{2, 2}, {1.0, 1.0, 4.0, 70000.0}}},
                                     {"shape", {{2}, {1.0, 2.0}}},
                                     {"only", {{1}, {1.0}}}});
  write_npz_double(bench / "b.npz", {{"same", {{2}, {-0.0, nan}}},
                                     {"x", {{2, 2}, {1.0, 1.0 + step, 4.0 + 12 * step, 80000.0}}},
                                     {"shape", {{1, 2}, {1.0, 2.0}}}});
  const auto tensor = [](const DiffJson& json, const char* name) {
    for (const DiffJson& each : json["tensors"]) {
      if (each["name"] == name) return each;
    }
    return DiffJson();
  };
  const DiffJson exact = json_of(bench, {"a.npz", "b.npz"});
  EXPECT_EQ(exact["only"], DiffJson::parse(R"([["only"], []])"));
  EXPECT_EQ(tensor(exact, "same")["same"], true);
  EXPECT_EQ(tensor(exact, "shape")["same"], false);
  EXPECT_EQ(tensor(exact, "x")["differing"], 3);
  EXPECT_EQ(tensor(exact, "x")["first"]["index"], 1);
  EXPECT_EQ(tensor(exact, "x")["first"]["ulps"], 8192);  // 2^-10 in steps of 2^-23
  // 4 + 12 * 2^-10 is 3 steps of 2^-8; both large numbers are infinite in fp16.
  const DiffJson half = json_of(bench, {"a.npz", "b.npz", "--as", "fp16"});
  EXPECT_EQ(tensor(half, "x")["differing"], 2);
  EXPECT_EQ(tensor(half, "x")["first"]["ulps"], 1);
  EXPECT_EQ(tensor(half, "x")["worst"]["ulps"], 3);
  EXPECT_EQ(tensor(half, "x")["worst"]["index"], 2);
  const double square = step * step * (1 + 12 * 12);
  EXPECT_NEAR(tensor(half, "x")["error"].get<double>(),
              std::sqrt(square / (1 + std::pow(1 + step, 2) + std::pow(4 + 12 * step, 2))), 1e-12);
  const Outcome text = bench.run({"diff", "a.npz", "b.npz", "--as", "fp16"});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, HasSubstr("[1,0]: 4 -> 4.01171875"));

  // No finite number is the distance from infinity.
  write_npz_double(bench / "c.npz", {{"x", {{2}, {1.0, INFINITY}}}});
  for (const double other : {70000.0, -static_cast<double>(INFINITY), nan}) {
    write_npz_double(bench / "d.npz", {{"x", {{2}, {1.0, other}}}});
    EXPECT_EQ(json_of(bench, {"c.npz", "d.npz"})["tensors"][0]["error"], "inf") << other;
  }
  EXPECT_EQ(json_of(bench, {"c.npz", "c.npz"})["same"], true);

  const auto differing = [&](const char* ulps) {
    const DiffJson json = json_of(bench, {"a.npz", "b.npz", "--as", "fp16", "--ulps", ulps});
    EXPECT_EQ(json["tolerance"], std::stod(ulps));
    return tensor(json, "x")["differing"].get<int>();
  };
  EXPECT_EQ(differing("1"), 1);
  EXPECT_EQ(differing("2.5"), 1);
  EXPECT_EQ(differing("3"), 0);

  // By way of fp32, this number would round to a tie, and then down to 1.
  write_npz_double(bench / "tie.npz", {{"x", {{1}, {1.0 + step / 2 + std::ldexp(1.0, -40)}}}});
  write_npz_double(bench / "one.npz", {{"x", {{1}, {1.0}}}});
  EXPECT_EQ(json_of(bench, {"tie.npz", "one.npz", "--as", "fp16"})["tensors"][0]["worst"]["ulps"],
            1);
  EXPECT_EQ(bench.run({"diff", "tie.npz", "one.npz", "--as", "bf16", "--quiet"}).code, 0);
}

TEST(CliDiff, DoublesThatFp32CannotTellApartDiffer) {
  const Bench bench;
  const auto element = [&](double a, double b) {
    write_npz_double(bench / "a.npz", {{"x", {{1}, {a}}}});
    write_npz_double(bench / "b.npz", {{"x", {{1}, {b}}}});
    return json_of(bench, {"a.npz", "b.npz"})["tensors"][0]["worst"];
  };
  const auto ulps = [&](double a, double b) { return element(a, b).at("ulps").get<double>(); };
  EXPECT_EQ(ulps(2.0, 2.0 + 0x1p-51), 0x1p-51 / 0x1p-22);  // fp32's last place at 2 is 2^-22
  EXPECT_EQ(ulps(16777216.0, 16777217.0), 0.5) << "fp32 has only even numbers here";
  EXPECT_EQ(ulps(0.0, 1e-50), 1e-50 / 0x1p-149) << "below fp32's subnormals";
  EXPECT_EQ(ulps(1e39, 2e39), 1e39 / 0x1p104) << "beyond fp32's range";
  EXPECT_EQ(ulps(1.0, 1.0 + 0x1p-23), 1.0);
  // They are within one ulp, if that is what the caller allows.
  element(2.0, 2.0 + 0x1p-51);
  EXPECT_EQ(bench.run({"diff", "a.npz", "b.npz"}).code, 1);
  EXPECT_EQ(bench.run({"diff", "a.npz", "b.npz", "--ulps", "1"}).code, 0);
  // The squares of these numbers are no doubles.
  element(1e300, 2e300);
  EXPECT_EQ(json_of(bench, {"a.npz", "b.npz"})["tensors"][0]["error"], 0.5);
  element(1e-300, 2e-300);
  EXPECT_EQ(json_of(bench, {"a.npz", "b.npz"})["tensors"][0]["error"], 0.5);
}

TEST(CliDiff, AnOverflowIsNoRoundingError) {
  const Bench bench;
  write_npz_double(bench / "a.npz", {{"x", {{1}, {65504.0}}}});
  write_npz_double(bench / "b.npz", {{"x", {{1}, {65520.0}}}});  // infinite in fp16
  const DiffJson json = json_of(bench, {"a.npz", "b.npz", "--as", "fp16", "--ulps", "1e9"});
  EXPECT_EQ(json["same"], false);
  EXPECT_EQ(json["tensors"][0]["worst"]["ulps"], "inf");
  EXPECT_EQ(json["tensors"][0]["worst"]["b"], "inf");
  EXPECT_EQ(json_of(bench, {"a.npz", "b.npz", "--as", "bf16", "--ulps", "1"})["same"], true);
}

TEST(CliDiff, BadInputIsOneLineAndAHint) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  write_npy(bench / "a.npy", {{1}, {1.0f}});
  const auto refused = [&](std::vector<std::string> words, const std::string& hint) {
    words.insert(words.begin(), "diff");
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, EndsWith("hint: " + hint + "\n"));
  };
  refused({"run.hscope"}, "add another file, or --lanes A,B");
  refused({"run.hscope", "a.npy"}, "give two runs, or two files of tensors");
  refused({"run.hscope", "--lanes", "float32,mixed_float61"}, "did you mean mixed_float16?");
  refused({"run.hscope", "--lanes", "float32,"}, "write for example --lanes float32,mixed_float16");
  refused({"run.hscope", "run.hscope", "--as", "fp16"}, "leave it out");
  refused({"run.hscope", "run.hscope", "--ulps", "1"}, "leave it out");
  refused({"a.npy"}, "add another file");
  EXPECT_EQ(bench.run({"diff", "a.npy", "a.npy", "--as", "fp61"}).code, 2);
  EXPECT_EQ(bench.run({"diff", "a.npy", "none.npy"}).code, 3);
}

}  // namespace
}  // namespace halfscope
