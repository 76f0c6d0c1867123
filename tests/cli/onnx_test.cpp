// SPDX-License-Identifier: MIT
// ONNX files at the command line: a built-in network that went out and came back is the same
// network, whether it runs or trains; bad files and what cannot be written end in one clear error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/data/npz.h"
#include "core/data/tensor_file.h"
#include "tests/cli/bad_inputs.h"
#include "tests/cli/network_file.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
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

/// Returns the output of `run` without its run time.
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

/// y = softmax(x w) of x [samples, 6], the softmax over the first axis if `together`. No number of
/// samples: it is called N.
test::FileBuilder small_network(std::optional<int64_t> samples, bool together = false) {
  test::FileBuilder file;
  file.input("x", {samples.value_or(-1), 6}).output("y");
  if (!samples) {
    auto& type = *file.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
    type.mutable_shape()->mutable_dim(0)->set_dim_param("N");
  }
  file.floats("w", {6, 3}, std::vector<float>(18, 0.5f));
  file.node("MatMul", {"x", "w"}, {"m"}, "fc1");
  test::set_int(file.node("Softmax", {"m"}, {"y"}, "softmax"), "axis", together ? 0 : 1);
  return file;
}

/// Two normalizations that start alike and are stored once, with a table that follows a formula.
test::FileBuilder doubtful_network() {
  test::FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {4, 6}).output("y");
  file.floats("a.weight", {6}, std::vector<float>(6, 1.0f));
  file.floats("a.bias", {6}, std::vector<float>(6, 0.0f));
  file.floats("positions", {6}, {0, 1, 2, 3, 4, 5});
  file.node("Identity", {"a.weight"}, {"b.weight"}, "Identity_1");
  file.node("LayerNormalization", {"x", "a.weight", "a.bias"}, {"h"}, "/a/LayerNormalization");
  file.node("Add", {"h", "positions"}, {"p"}, "/Add");
  file.node("LayerNormalization", {"p", "b.weight", "a.bias"}, {"y"}, "/b/LayerNormalization");
  return file;
}

TEST(CliOnnx, InspectListsWhatWouldTrain) {
  const Bench bench;
  test::write_network(bench, "net.onnx", doubtful_network());
  const Outcome text = bench.run({"inspect", "net.onnx"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  EXPECT_THAT(text.out, HasSubstr("net.onnx: trains 3 parameters (18 numbers), keeps 1 tensor "
                                  "constant, takes 4 samples at once; 1 point is doubtful.\n"
                                  "  tied: a.bias is read by a and b\n"));
  EXPECT_THAT(text.out, HasSubstr("positions: its values follow a formula"));
  const Json json = Json::parse(bench.run({"inspect", "net.onnx", "--json"}).out);
  EXPECT_EQ(json.at("schema"), "halfscope.network/1");
  EXPECT_EQ(json.at("parameters").size(), 3u);
  EXPECT_EQ(json.at("parameters")[2].at("name"), "b.weight");
  EXPECT_EQ(json.at("parameters")[2].at("file_name"), "a.weight");
  EXPECT_EQ(json.at("doubtful")[0].at("name"), "positions");
  EXPECT_EQ(json.at("nodes")[0].at("path"), "a");
  EXPECT_EQ(json.at("nodes")[0].at("file_name"), "/a/LayerNormalization");
  // A wrong guess is corrected.
  const Json other = Json::parse(bench
                                     .run({"inspect", "net.onnx", "--trainable", "pos*", "--untie",
                                           "a.bias", "--frozen", "b.weight", "--json"})
                                     .out);
  EXPECT_EQ(other.at("parameters").size(), 4u);
  EXPECT_EQ(other.at("doubtful").size(), 0u);
  // Impossible requests are reported.
  for (const auto& [words, error] :
       {std::pair{Words{"inspect", "net.onnx", "--frozen", "z"}, "no weight matches 'z'"},
        {Words{"inspect", "net.onnx", "net.onnx"}, "inspect takes one ONNX file at a time"},
        {Words{"inspect", "none.onnx"}, "none.onnx"},
        {Words{"inspect", "r.hscope", "--frozen", "z"}, "--frozen is for ONNX files"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_NE(outcome.code, 0);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(error));
  }
}

TEST(CliOnnx, TrainSaysWhatItUnderstood) {
  const Bench bench;
  test::write_network(bench, "net.onnx", doubtful_network());
  Tensor x{{4, 6}, {}}, y{{4, 6}, {}};
  for (int i = 0; i < 24; ++i) {
    x.data.push_back(static_cast<float>(i % 7) / 7.0f);
    y.data.push_back(static_cast<float>(i % 5));
  }
  write_npz((bench / "d.npz").string(), {{"x", x}, {"y", y}});
  const Words train{"train", "--model", "net.onnx", "--loss",  "mse", "--data",
                    "d.npz", "--batch", "4",        "--steps", "2"};
  const Outcome text = bench.run(train);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.err, HasSubstr("warning: net.onnx: positions: its values follow a formula"));
  EXPECT_THAT(text.err, HasSubstr("net.onnx: trains 3 parameters (18 numbers)"));
  Words frozen = train;
  frozen.insert(frozen.end(), {"--frozen", "positions", "--force", "--json", "--quiet"});
  const Outcome quiet = bench.run(frozen);
  EXPECT_EQ(quiet.err, "");
  const Json network = Json::parse(quiet.out).at("network");
  EXPECT_EQ(network.at("parameters"), 3);
  EXPECT_EQ(network.at("elements"), 18);
  EXPECT_EQ(network.at("tied")[0].at("name"), "a.bias");
  EXPECT_EQ(network.at("doubtful").size(), 0u);
  EXPECT_EQ(network.at("batch").at("samples"), 4);
}

// A request that cannot be fulfilled is an error; something else must not run instead.
TEST(CliOnnx, ABatchThatTheFileContradictsIsRefused) {
  const Bench bench;
  test::write_network(bench, "open.onnx", small_network(std::nullopt));
  test::write_network(bench, "five.onnx", small_network(5));
  test::write_network(bench, "one.onnx", small_network(1));
  test::write_network(bench, "alone.onnx", small_network(1, true));  // samples cannot be stacked
  Tensor x{{10, 6}, std::vector<float>(60, 0.25f)};
  write_npy(bench / "x.npy", x);
  struct Case {
    Words words;
    std::string error, hint;  ///< no error: it works
  };
  const std::string export_again =
      "hint: leave --batch out, or export the network again with a symbolic batch; --dimension "
      "x.0=";
  const std::string five = "halfscope: five.onnx takes 5 samples at once, not the 8 of --batch\n";
  const std::string dimension =
      "halfscope: --dimension N=5 lets open.onnx take 5 samples at once, not the 8 of --batch\n";
  const std::string one = "hint: leave out one of the two\n";
  const std::vector<Case> cases{
      {{"five.onnx", "--batch", "8"}, five, export_again + "8 "},
      {{"five.onnx", "--batch", "5"}, "", ""},
      {{"five.onnx"}, "", ""},
      {{"five.onnx", "--batch", "8", "--dimension", "x.0=8"}, "", ""},
      {{"one.onnx", "--batch", "8"}, "", ""},
      {{"alone.onnx", "--batch", "8"},
       "halfscope: alone.onnx takes 1 sample at once, not the 8 of --batch: softmax (Softmax): it "
       "works along the dimension of the samples\n",
       export_again + "8 "},
      {{"alone.onnx", "--batch", "1"}, "", ""},
      {{"open.onnx", "--batch", "8"}, "", ""},
      {{"open.onnx", "--batch", "8", "--dimension", "N=5"}, dimension, one},
      {{"open.onnx", "--batch", "5", "--dimension", "N=5"}, "", ""},
      {{"open.onnx", "--dimension", "N=5"}, "", ""},
  };
  const std::vector<std::pair<Words, std::string>> commands{
      {{"run", "--input", "x.npy", "--quiet"}, ""},
      {{"run", "--random-input", "1", "--quiet"}, ""},
      {{"doctor", "--json"}, "--model"},
      {{"convert", "--out", "made.onnx", "--force"}, ""}};
  for (const Case& each : cases) {
    for (const auto& [command, flag] : commands) {
      Words words = command;
      if (!flag.empty()) words.push_back(flag);
      words.insert(words.end(), each.words.begin(), each.words.end());
      SCOPED_TRACE(testing::PrintToString(words));
      std::filesystem::remove(bench / "made.onnx");
      const Outcome outcome = bench.run(words);
      EXPECT_EQ(outcome.code, each.error.empty() ? 0 : 2) << outcome.err;
      if (each.error.empty()) continue;
      EXPECT_THAT(outcome.err, HasSubstr(each.error + each.hint));
      EXPECT_EQ(outcome.out, "");
      EXPECT_FALSE(std::filesystem::exists(bench / "made.onnx"));
    }
  }
  // Trainings have always said so.
  Tensor labels{{10}, std::vector<float>(10, 1.0f)};
  write_npz(bench / "data.npz", {{"x", x}, {"labels", labels}});
  for (const Words& words :
       {Words{"--model", "five.onnx"}, Words{"--model", "open.onnx", "--dimension", "N=5"}}) {
    Words all{"train", "--data",   "data.npz", "--loss", "cross-entropy", "--batch", "8",
              "--out", "t.hscope", "--steps",  "1",      "--no-eval"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = bench.run(all);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("takes 5 samples at once, not 8"));
  }
}

// A run says how many samples it took at once; that command must work again.
TEST(CliOnnx, ARunOfAFixedFileCanBeRepeated) {
  const Bench bench;
  test::write_network(bench, "five.onnx", small_network(5));
  Tensor x{{10, 6}, std::vector<float>(60, 0.25f)}, whole{{2, 5, 6}, x.data};
  write_npy(bench / "x.npy", x);
  write_npy(bench / "whole.npy", whole);  // a sample has all of the input's shape
  for (const auto& [input, batch] : {std::pair{"x.npy", "5"}, std::pair{"whole.npy", "1"}}) {
    SCOPED_TRACE(input);
    const Outcome outcome = bench.run({"run", "five.onnx", "--input", input, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(Json::parse(outcome.out).at("batch").dump(), batch);
    EXPECT_EQ(bench.run({"run", "five.onnx", "--input", input, "--batch", batch}).code, 0);
  }
  const Outcome other = bench.run({"run", "five.onnx", "--input", "whole.npy", "--batch", "5"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("takes 1 sample at once, not the 5 of --batch"));
}

TEST(CliOnnx, NotesWhichInputsGetAnotherType) {
  const Bench bench;
  test::FileBuilder file;
  file.input("ids", {-1}, 6).input("h", {-1, 4}, 10).input("x", {-1, 4}).input("rows", {-1}, 7);
  file.output("y").floats("table", {8, 4}, std::vector<float>(32, 0.5f));
  file.node("Gather", {"table", "ids"}, {"a"});
  file.node("Gather", {"table", "rows"}, {"b"});
  test::set_int(file.node("Cast", {"h"}, {"c"}), "to", 1);
  file.node("Sum", {"a", "b", "c", "x"}, {"y"});
  test::write_network(bench, "net.onnx", file);
  const std::string h = "input h is float32, in net.onnx it is float16\n",
                    ids = "input ids is int64, in net.onnx it is int32\n";
  for (const Words& more : {Words{}, Words{"--batch", "3"}, Words{"--plan", "mixed_float16"}}) {
    Words words{"convert", "net.onnx", "--out", "made.onnx", "--force"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = bench.run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string note = "note: made.onnx: ";
    const bool planned = more.size() == 2 && more[0] == "--plan";
    const std::string check = planned ? note + "read back: 8 numbers of outputs equal\n" : "";
    EXPECT_EQ(outcome.err, note + h + note + ids + check);
  }
  // The written file has these types.
  EXPECT_EQ(bench.run({"convert", "made.onnx", "--out", "again.onnx"}).err, "");
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
    EXPECT_EQ(bench.run({"report", run, "--steps", run + ".csv"}).code, 0);
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
  EXPECT_THAT(outcome.err, HasSubstr("half.onnx: read back: 10 numbers of outputs equal"));
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
  test::write_network(bench, "open.onnx", open_file);
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

// A fixed, single dimension of a vector is not a batch; an open one is.
TEST(CliOnnx, AVectorIsOneSample) {
  const Bench bench;
  test::FileBuilder vector;
  vector.input("x", {5}).output("y").floats("w", {7, 5}, std::vector<float>(35, 0.5f));
  vector.node("MatMul", {"w", "x"}, {"y"}, "fc");
  test::write_network(bench, "vector.onnx", vector);
  test::FileBuilder scalars;
  scalars.input("x", {-1}).output("y").node("Relu", {"x"}, {"y"}, "relu");
  test::write_network(bench, "scalars.onnx", scalars);

  const auto batch_of = [&](const Words& words) {
    Words all{"doctor", "--json", "--model"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = bench.run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out).at("network").at("batch");
  };
  EXPECT_TRUE(batch_of({"vector.onnx"}).is_null());
  EXPECT_EQ(batch_of({"vector.onnx", "--batch", "1"}), 1);
  EXPECT_EQ(batch_of({"scalars.onnx", "--batch", "5"}), 5);
  for (const Words& words :
       {Words{"doctor", "--model", "vector.onnx", "--batch", "5"},
        Words{"run", "vector.onnx", "--random-input", "1", "--batch", "5", "--quiet"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err,
                HasSubstr("vector.onnx takes 1 sample at once, not the 5 of --batch\n"
                          "hint: leave --batch out, or export the network again with a symbolic "
                          "batch\n"));
  }
  const Outcome ran = bench.run(
      {"run", "vector.onnx", "--random-input", "1", "--limit", "5", "--json", "--out", "y.npz"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(Json::parse(ran.out).at("outputs")[0].at("shape").dump(), "[5,7]");
}

TEST(CliOnnx, TypedFilesComputeWhatThePlanSays) {
  const Bench bench;
  convert(bench, kNetwork, "net.onnx");
  std::ofstream(bench / "plan.json")
      << R"({"schema": "halfscope.plan/1", "name": "p", "default": {"format": "fp16"},
             "rules": [{"path": "fc2", "format": "fp32"}]})";
  for (const char* plan : {"mixed_float16", "bfloat16_stagewise", "plan.json"}) {
    const Outcome made = bench.run(
        {"convert", "net.onnx", "--plan", plan, "--typed", "--out", "typed.onnx", "--force"});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_THAT(made.err, HasSubstr("checked: the formats of ")) << plan;
    EXPECT_THAT(made.err, HasSubstr(" output numbers agree\n")) << plan;
  }
  const auto outputs = [&](const std::string& network, const std::string& plan) {
    const Outcome ran = bench.run({"run", network, "--random-input", "3", "--limit", "5", "--lanes",
                                   plan, "--out", "y.npy", "--force", "--quiet"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return read_npy(bench / "y.npy").data;
  };
  EXPECT_EQ(outputs("typed.onnx", "as_exported"), outputs("net.onnx", "plan.json"));
  EXPECT_NE(outputs("typed.onnx", "float32"), outputs("net.onnx", "float16"));
}

// PyTorch's exporters write a linear layer on sequences as a product in a module and its bias,
// which the plan may compute in another format.
TEST(CliOnnx, ATypedBiasKeepsItsFormatWhenReadBack) {
  const Bench bench;
  std::vector<float> weights(6 * 8), biases(8, 0.3f);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::sin(static_cast<float>(i));
  test::FileBuilder file;
  file.input("x", {4, 2, 6}).output("y").floats("0.weight", {6, 8}, weights);
  file.floats("0.bias", {8}, biases);
  file.node("MatMul", {"x", "0.weight"}, {"z"}, "/0/MatMul");
  file.node("Add", {"0.bias", "z"}, {"y"}, "/0/Add");
  test::write_network(bench, "net.onnx", file);
  test::write_text(bench / "plan.json", R"({"schema": "halfscope.plan/1", "name": "p",
    "default": {"read": "fp32", "write": "fp32"},
    "rules": [{"op": "MatMul", "read": "fp16", "write": "fp16"}]})");
  const Outcome typed =
      bench.run({"convert", "net.onnx", "--plan", "plan.json", "--typed", "--out", "typed.onnx"});
  EXPECT_THAT(typed.err,
              HasSubstr("formats of 2 nodes are the plan's, and 64 output numbers agree"));
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
  refused({"run", "bad.onnx", "--random-input", "1"}, 3, "'bad.onnx' is not a valid ONNX file");
  refused({"run", "none.onnx", "--random-input", "1"}, 3, "cannot open 'none.onnx'");
  refused({"convert", "net.onnx"}, 2, "convert needs a file to write");
  refused({"convert", "net.onnx", "--out", "net.onnx", "--force"}, 2, "net.onnx");
  refused({"convert", "net.onnx", "--out", "half.onnx", "--plan", "mxfp8"}, 3,
          "fc1: ONNX cannot express how the scale");
  std::ofstream(bench / "clamped.json")
      << R"({"schema": "halfscope.plan/1", "name": "c", "default": {"format": "fp16"},
             "rules": [{"path": "fc1", "overflow": "saturate"}]})";
  refused({"convert", "net.onnx", "--out", "half.onnx", "--plan", "clamped.json"}, 3,
          "fc1: a Cast to float16 cannot saturate in ONNX");
  refused({"convert", "net.onnx", "--out", "half.onnx", "--typed"}, 2, "--typed needs a plan");
  refused({"convert", "net.onnx", "--out", "half.onnx", "--input", "x.npy"}, 2,
          "--input is for the check of a file with a plan");
  EXPECT_FALSE(std::filesystem::exists(bench / "half.onnx"));
  refused({"run", "foo", "--random-input", "1"}, 2, "unknown model 'foo'");
  refused({"run", kNetwork, "--random-input", "1", "--lanes", "as_exported"}, 2,
          "as_exported is the plan of an ONNX file");
  refused({"train", "--model", "net.onnx", "--steps", "1"}, 2, "has no loss to train for");
}

// PyTorch's weight of a linear layer is the transpose of what the file has: --init reads it, and
// --save-weights writes it, in PyTorch's form.
TEST(CliOnnx, WeightsOfLinearLayersKeepTheFormOfPyTorch) {
  const Bench bench;
  test::FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {1, 2}).output("y").floats("onnx::MatMul_5", {2, 2}, {1, 2, 3, 4});
  file.node("MatMul", {"x", "onnx::MatMul_5"}, {"y"}, "/fc/MatMul");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "d.npz", {{"x", {{1, 2}, {1, 0}}}, {"targets", {{1, 2}, {0, 0}}}});
  const Outcome saved = bench.run({"train", "--model", "net.onnx", "--loss", "mse", "--data",
                                   "d.npz", "--lanes", "float32", "--steps", "1", "--batch", "1",
                                   "--lr", "0", "--no-eval", "--quiet", "--save-weights", "w.npz"});
  ASSERT_EQ(saved.code, 0) << saved.err;
  EXPECT_THAT(read_tensors(bench / "w.npz").at("fc.weight").data, ElementsAre(1, 3, 2, 4));
  write_npz(bench / "x.npz", {{"x", {{1, 2}, {1, 0}}}});
  for (const bool again : {false, true}) {
    Words words{"run",     "net.onnx", "--input", "x.npz",   "--lanes",
                "float32", "--out",    "y.npz",   "--force", "--quiet"};
    if (again) words.insert(words.end(), {"--init", "w.npz"});
    const Outcome run = bench.run(words);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(read_tensors(bench / "y.npz").at("y").data, ElementsAre(1, 2));
  }
}

}  // namespace
}  // namespace halfscope
