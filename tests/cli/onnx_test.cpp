// SPDX-License-Identifier: MIT
// ONNX files at the command line: a built-in network that went out and came back is the same
// network, whether it runs or trains; bad files and what cannot be written end in one clear error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/data/npz.h"
#include "tests/cli/bad_inputs.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using test::Bench;
using test::Outcome;
using test::Words;

const char* const kNetwork = "mlp:784-16-10";

void convert(const Bench& bench, const std::string& network, const std::string& file,
             Words more = {}) {
  Words words{"convert", network, "--data", "digits", "--out", file};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = bench.run(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

/// What `run` prints, without the time that it took.
Json results(const Bench& bench, const std::string& network, const std::string& lanes) {
  const Outcome outcome =
      bench.run({"run", network, "--data", "digits", "--limit", "64", "--lanes", lanes, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  Json json = Json::parse(outcome.out);
  for (Json& lane : json.at("lanes")) {
    for (const char* key : {"seconds", "samples_per_second"}) lane.erase(key);
  }
  return json.at("lanes");
}

TEST(CliOnnx, SizesAreToldInFittingUnits) {
  const Bench bench;
  const Outcome small = bench.run({"convert", "mlp:6-3", "--out", "small.onnx"});
  const auto size = std::filesystem::file_size(bench / "small.onnx");
  ASSERT_LT(size, 1000u);
  EXPECT_EQ(small.out, "small.onnx: " + std::to_string(size) + " bytes\n");
  const Outcome larger = bench.run({"convert", "mlp:100-100-10", "--out", "larger.onnx"});
  EXPECT_THAT(larger.out, testing::MatchesRegex("larger.onnx: 4[0-9.]* kB\n"));
}

TEST(CliOnnx, ANetworkThatWentOutRunsAsItWas) {
  const Bench bench;
  for (const std::string network : {"mlp:784-16-10", "lenet"}) {
    SCOPED_TRACE(network);
    convert(bench, network, "net.onnx", {"--force"});
    const std::string lanes = "float32,mixed_float16,bfloat16";
    EXPECT_EQ(results(bench, "net.onnx", lanes), results(bench, network, lanes));
  }
}

TEST(CliOnnx, AndTrainsAsItDid) {
  const Bench bench;
  convert(bench, kNetwork, "net.onnx");
  const auto losses = [&](const std::string& model, const std::string& run, Words more) {
    Words words{"train",
                "--model",
                model,
                "--data",
                "digits",
                "--steps",
                "5",
                "--batch",
                "32",
                "--lanes",
                "float32,mixed_float16",
                "--no-eval",
                "--quiet",
                "--out",
                run};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(bench.run(words).code, 0) << test::text_of(bench / "stderr.txt");
    EXPECT_EQ(bench.run({"export", run, "--steps", run + ".csv"}).code, 0);
    std::string text;
    for (const std::string& line : test::lines_of(test::text_of(bench / (run + ".csv")))) {
      size_t end = 0;  // of step, lane, loss, loss_scale, skipped, grad_norm and accuracy
      for (int column = 0; column < 7; ++column) end = line.find(',', end + 1);
      text += line.substr(0, end) + "\n";
    }
    return text;
  };
  const std::string before = losses(kNetwork, "a.hscope", {});
  EXPECT_THAT(before, HasSubstr("mixed_float16"));
  EXPECT_EQ(losses("net.onnx", "b.hscope", {"--loss", "cross-entropy"}), before);
}

TEST(CliOnnx, AFileShowsWhatAPlanRounds) {
  const Bench bench;
  convert(bench, kNetwork, "net.onnx");
  const Outcome outcome =
      bench.run({"convert", "net.onnx", "--plan", "float16", "--out", "half.onnx"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  // The plan of the file's own types rounds where the first plan did.
  const Json half = results(bench, "half.onnx", "as_exported");
  const Json direct = results(bench, "net.onnx", "float16");
  EXPECT_EQ(half[0].at("accuracy"), direct[0].at("accuracy"));
}

TEST(CliOnnx, DoctorListsTheLayersOfAFile) {
  const Bench bench;
  test::FileBuilder open_file;
  open_file.input("x", {-1, 24}).output("y").floats("w", {24, 10}, std::vector<float>(240, 0.5f));
  open_file.node("MatMul", {"x", "w"}, {"y"}, "fc2");
  const std::vector<uint8_t> bytes = open_file.bytes();
  std::ofstream(bench / "open.onnx", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  convert(bench, "mlp:784-16-10", "fixed.onnx", {"--batch", "5"});
  const auto layers = [&bench](const Words& words) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const Json open = layers({"doctor", "--model", "open.onnx", "--batch", "12", "--json"});
  EXPECT_EQ(open.at("network").at("batch"), 12);
  EXPECT_EQ(open.at("layers").at(0).at("m"), 12);
  EXPECT_EQ(open.at("layers").at(0).at("path"), "fc2");
  EXPECT_EQ(open.at("layers").at(0).at("k"), 24);
  const Json fixed = layers({"doctor", "--model", "fixed.onnx", "--plan", "as_exported", "--json"});
  EXPECT_TRUE(fixed.at("network").at("batch").is_null());
  EXPECT_EQ(fixed.at("layers").at(0).at("m"), 5);
  EXPECT_EQ(fixed.at("layers").at(0).at("read"), "fp32");
}

TEST(CliOnnx, TellsWhatIsWrong) {
  const Bench bench;
  convert(bench, kNetwork, "net.onnx");
  std::ofstream(bench / "bad.onnx") << "no model";
  const auto refused = [&](const Words& words, int code, const std::string& text) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  };
  refused({"run", "bad.onnx", "--random-input", "1"}, 3, "bad.onnx is no ONNX model");
  refused({"run", "none.onnx", "--random-input", "1"}, 3, "cannot read none.onnx");
  refused({"convert", "net.onnx"}, 2, "nothing to write");
  refused({"convert", "net.onnx", "--out", "net.onnx", "--force"}, 2, "net.onnx");
  refused({"convert", "net.onnx", "--out", "half.onnx", "--plan", "mxfp8"}, 3,
          "fc1: ONNX cannot say how the scale");
  EXPECT_FALSE(std::filesystem::exists(bench / "half.onnx"));
  refused({"convert", "lenet", "--out", "l.onnx"}, 2, "needs to know the shape");
  refused({"run", "foo", "--random-input", "1"}, 2, "unknown model foo");
  refused({"run", kNetwork, "--random-input", "1", "--lanes", "as_exported"}, 2,
          "is that of a network's file");
  refused({"train", "--model", "net.onnx", "--steps", "1"}, 2, "does not say what to train it for");
}

}  // namespace
}  // namespace halfscope
