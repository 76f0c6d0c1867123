// SPDX-License-Identifier: MIT
// `halfscope diagnose FOLDER` of twins: good ones are repeated, others refused before any
// judgement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "core/data/npz.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::HasSubstr;

/// A twin of a small network, with the losses of halfscope's own float32.
class CliTwin : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(bench_ / "twin");
    ASSERT_EQ(
        bench_.run({"convert", "mlp:784-4-10", "--data", "digits", "--out", "twin/net.onnx"}).code,
        0);
    Tensor x{{4, 1, 28, 28}, std::vector<float>(4 * 784)}, y{{4}, {1, 2, 3, 4}};
    for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(i % 13) / 13.0f;
    write_npz(bench_ / "twin/data.npz", {{"input", x}, {"labels", y}});
    std::vector<std::string> words{
        "train",   "--model",       "twin/net.onnx", "--data",     "twin/data.npz",
        "--loss",  "cross-entropy", "--optimizer",   "sgd:lr=0.1", "--batch",
        "2",       "--no-shuffle",  "--steps",       "4",          "--lanes",
        "float32", "--quiet"};
    const Outcome trained = bench_.run(words);
    ASSERT_EQ(trained.code, 0) << trained.err;
    twin_ = {{"schema", "halfscope.twin/1"},
             {"arguments",
              {"--model", "net.onnx", "--data", "data.npz", "--loss", "cross-entropy",
               "--optimizer", "sgd:lr=0.1", "--batch", "2", "--no-shuffle", "--steps", "4"}}};
    const RunView run = RunView::open(bench_ / "run.hscope");
    for (const StepRow& row : run.steps(0)) twin_["losses"].push_back(row.loss);
  }

  Outcome diagnose(const json& twin, std::vector<std::string> more = {}) const {
    std::ofstream(bench_ / "twin/twin.json") << twin;
    std::vector<std::string> words{"diagnose", "twin", "--plan", "mixed_float16", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return bench_.run(words);
  }
  void refused(const json& twin, const std::string& text) const {
    const Outcome outcome = diagnose(twin);
    EXPECT_EQ(outcome.code, 3) << text;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_THAT(outcome.err, HasSubstr("hint: "));
    EXPECT_EQ(outcome.out, "");
  }
  json with_argument(size_t index, const std::string& value) const {
    json twin = twin_;
    twin["arguments"][index] = value;
    return twin;
  }

  Bench bench_;
  json twin_;
};

TEST_F(CliTwin, IsRepeatedAndThenJudged) {
  const Outcome outcome = diagnose(twin_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("twin").at("repeats"), "bitwise");
  EXPECT_EQ(result.at("twin").at("steps"), 4);
  EXPECT_EQ(result.at("lane"), "mixed_float16");
}

TEST_F(CliTwin, LossesWithinRoundingAreAccepted) {
  json twin = twin_;
  twin["losses"][2] = twin["losses"][2].get<double>() * (1 + 3e-7);
  const Outcome outcome = diagnose(twin);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out).at("twin").at("repeats"), "rounding");
}

TEST_F(CliTwin, AnotherTrainingIsNotJudged) {
  json twin = twin_;
  twin["losses"][2] = twin["losses"][2].get<double>() * 1.001;
  refused(twin, "at step 2 the fp32 loss is");
  refused(with_argument(7, "sgd:lr=0.11"), "at step 1 the fp32 loss is");
}

TEST_F(CliTwin, FilesStayInTheFolder) {
  refused(with_argument(1, "missing.onnx"), "file not found: missing.onnx");
  refused(with_argument(1, (bench_ / "twin/net.onnx").string()), "is not in the folder");
  fs::copy_file(bench_ / "twin/net.onnx", bench_ / "other.onnx");
  refused(with_argument(1, "../other.onnx"), "is not in the folder");
  fs::create_symlink("../other.onnx", bench_ / "twin/link.onnx");
  refused(with_argument(1, "link.onnx"), "is not in the folder");
  fs::create_directory(bench_ / "twin2");  // its name begins like the folder's
  fs::copy_file(bench_ / "other.onnx", bench_ / "twin2/net.onnx");
  refused(with_argument(1, "../twin2/net.onnx"), "is not in the folder");
}

TEST_F(CliTwin, BadTwinJsonIsRefused) {
  const auto changed = [this](const char* key, const json& value) {
    json twin = twin_;
    twin[key] = value;
    return twin;
  };
  refused(changed("schema", "halfscope.twin/2"), "does not say");
  refused(changed("losses", json::array()), "has no losses");
  refused(changed("losses", {1.0, nullptr}), "the loss of step 1 is not a finite number");
  refused(changed("losses", "NaN"), "has no losses");
  refused(changed("arguments", "--steps 3"), "is not a list");
  refused(changed("arguments", {"--model"}), "--model has no value");
  refused(changed("arguments", {"--out", "/tmp/x"}), "which twins do not set");
  refused(changed("arguments", json::array()), "lacks --model");
  refused(with_argument(7, "sgd:lr=fast"), "twin 'twin'");
  refused(json::array(), "is not a JSON object");
  std::ofstream(bench_ / "twin/twin.json") << "{\"losses\": [NaN]}";
  EXPECT_EQ(bench_.run({"diagnose", "twin"}).code, 3);
  fs::remove(bench_ / "twin/twin.json");
  const Outcome missing = bench_.run({"diagnose", "twin"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("without a twin.json, so it is not a twin"));
}

TEST_F(CliTwin, ItsOwnSettingsCannotBeChanged) {
  for (const char* flag : {"--batch", "--lr", "--optimizer", "--data", "--random-input"}) {
    const Outcome outcome =
        diagnose(twin_, {flag, std::string(flag) == "--optimizer" ? "sgd" : "4"});
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(flag) + " does not go with the twin"));
  }
  EXPECT_EQ(diagnose(twin_, {"--steps", "6"}).code, 0);
}

}  // namespace
}  // namespace halfscope
