// SPDX-License-Identifier: MIT
// `halfscope diagnose FOLDER` of twins: good ones are repeated, others refused before any
// judgement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

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
  std::string said(const json& twin) const {
    std::ofstream(bench_ / "twin/twin.json") << twin;
    const Outcome outcome = bench_.run({"diagnose", "twin", "--plan", "mixed_float16"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::regex_replace(outcome.out, std::regex("\\s+"), " ");
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

/// Where one ulp moves PyTorch's own losses, they say nothing; before, they do.
TEST_F(CliTwin, LossesThatRoundingMovesAreNotCompared) {
  json twin = twin_;
  twin["lost_casts"] = {"0", "", "2"};
  twin["autocast_off"] = {"", "0"};
  twin["losses"][3] = twin["losses"][3].get<double>() * 1.01;
  json moved = twin["losses"];
  moved[3] = moved[3].get<double>() * 1.002;
  twin["moved_losses"] = {twin["losses"], moved};
  const Outcome outcome = diagnose(twin);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out).at("twin").at("compared_steps"), 3);
  EXPECT_EQ(json::parse(outcome.out).at("twin").at("steps"), 4);
  // Before, and further than rounding goes.
  json other = twin;
  other["losses"][1] = other["losses"][1].get<double>() * 1.01;
  other["moved_losses"][0][1] = other["moved_losses"][1][1] = other["losses"][1];
  refused(other, "at step 1 the fp32 loss is");
  other = twin;
  other["losses"][3] = other["losses"][3].get<double>() * 3;
  other["moved_losses"][0][3] = other["moved_losses"][1][3] = other["losses"][3];
  refused(other, "at step 3 the fp32 loss is");

  // With fewer than three steps the text warns.
  const std::string text = said(twin);
  EXPECT_THAT(text,
              HasSubstr("the first 3 of PyTorch's 4 fp32 losses bit for bit. From step 3 on"));
  EXPECT_THAT(text, HasSubstr("later losses are not compared"));
  EXPECT_THAT(text, HasSubstr(".float() in 0, the model's forward and 2, so plans do not cast"));
  EXPECT_THAT(text, HasSubstr("torch.autocast(enabled=False) in the model's forward and 0: plans"));
  twin["moved_losses"][0][1] = nullptr;
  EXPECT_THAT(said(twin), HasSubstr("this may be another training"));
}

TEST_F(CliTwin, ComparesTheStepsThatAreJudged) {
  json twin = twin_;
  twin["losses"][3] = twin["losses"][3].get<double>() * 1.001;
  twin["moved_losses"] = {twin["losses"]};
  const Outcome outcome = diagnose(twin, {"--steps", "3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out).at("twin").at("steps"), 3);
  const Outcome all = diagnose(twin);
  EXPECT_EQ(all.code, 3);
  EXPECT_THAT(all.err, HasSubstr("or judge the steps before with --steps 3"));
  twin.erase("moved_losses");
  EXPECT_THAT(diagnose(twin).err, HasSubstr("Write the folder again with save_twin()"));
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
  refused(changed("moved_losses", {{1.0, 2.0}}), "\"moved_losses\" is damaged");
  refused(changed("moved_losses", {{1.0, 2.0, 3.0, "4"}}), "\"moved_losses\" is damaged");
  refused(changed("gradients", {{{"parameter", "a"}, {"norm", 1.0}}}), "\"gradients\" is damaged");
  refused(changed("outputs", {{{"module", "a"}, {"norm", 1.0}}}), "\"outputs\" is damaged");
  refused(changed("lost_casts", {1}), "\"lost_casts\" is damaged");
  refused(changed("autocast_off", "0"), "\"autocast_off\" is damaged");
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
  for (const char* flag : {"--micro-batches", "--ranks"}) {
    const Outcome outcome = diagnose(twin_, {flag, "2"});
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(flag) + " does not go with the twin"));
    EXPECT_THAT(outcome.err, HasSubstr("takes all 2 samples of a batch at once"));
  }
}

}  // namespace
}  // namespace halfscope
