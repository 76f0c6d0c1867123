// SPDX-License-Identifier: MIT
// No command overwrites a file that it reads, whatever flag names the file (docs/contracts.md).
#include <gtest/gtest.h>

#include "core/data/npz.h"
#include "tests/cli/network_file.h"
#include "tests/cli/refusals.h"

namespace halfscope {
namespace {

using test::Bench;
using test::expect_refusals;
using test::Outcome;
using test::small_training;
using test::text_of;
using test::Words;
using test::write_text;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Runs `words` with each flag of `inputs` and the output flag, both naming one file.
void expect_refused(const Bench& bench, const Words& words,
                    const std::vector<std::pair<std::string, std::string>>& inputs,
                    const Words& outputs) {
  for (const auto& [flag, file] : inputs) {
    for (const std::string& output : outputs) {
      Words line = words;
      if (!flag.empty()) line = joined(line, {flag, file});
      const std::string name = file.substr(file.find_last_of(":=") + 1);
      line = joined(line, {output, "./" + name, "--force"});
      expect_refusals(bench, {{line, 2, "'./" + name + "' is also an input", "a different file"}});
    }
  }
}

/// Everything that commands read. Few of these files are valid: names are checked before the work.
void write_inputs(const Bench& bench) {
  const Outcome trained = bench.run(small_training({"--out", "run.hscope"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  write_text(bench / "base.hscope", text_of(bench / "run.hscope"));
  write_text(bench / "p.json", R"({"schema": "halfscope.plan/1", "name": "p"})");
  write_text(bench / "gate.json", R"({"schema": "halfscope.gate/1", "rules": []})");
  write_text(bench / "level.json", "{}");
  write_text(bench / "scale.csv", "1\n2\n");
  write_npz(bench / "rates.npz", {{"rates", Tensor{{1}, {0.1f}}}});
  for (const char* name : {"x.npz", "y.npz", "w.npz"}) {
    write_npz(bench / name, {{"a", Tensor{{2}, {1.0f, 2.0f}}}});
  }
}

TEST(CliOwnInputs, NetworksDataAndPlans) {
  const Bench bench;
  write_inputs(bench);
  expect_refused(bench, {"train", "--model", "mlp:784-10"},
                 {{"--init", "w.npz"},
                  {"--plan", "p.json"},
                  {"--resume", "w.npz"},
                  {"--data", "x.npz"},
                  {"--data", "text:scale.csv"},
                  {"--schedule", "file:rates.npz"}},
                 {"--out", "--save-weights"});
  expect_refused(bench, {"run", "mlp:784-10", "--input", "x=x.npz"},
                 {{"--init", "w.npz"}, {"--plan", "p.json"}, {"--labels", "y.npz"}, {"", "x.npz"}},
                 {"--out", "--record"});
  expect_refused(bench, {"convert", "mlp:784-10", "--plan", "p.json"},
                 {{"--init", "w.npz"}, {"", "p.json"}, {"--input", "x.npz"}}, {"--out"});
  expect_refused(bench, {"quantize", "mlp:784-10", "--data", "digits"},
                 {{"--init", "w.npz"}, {"--labels", "y.npz"}, {"--plan", "p.json"}}, {"--out"});
  expect_refused(bench, {"quantize", "mlp:784-10"}, {{"--input", "x=x.npz"}, {"--data", "x.npz"}},
                 {"--out"});
  expect_refused(bench, {"diagnose", "mlp:784-10"}, {{"--init", "w.npz"}, {"--plan", "p.json"}},
                 {"--out", "--record"});
}

TEST(CliOwnInputs, RunsTablesAndTensors) {
  const Bench bench;
  write_inputs(bench);
  for (const char* output : {"--html", "--md", "--json", "--csv", "--steps", "--stats", "--sums",
                             "--kernels", "--junit", "--sarif"}) {
    const Words report{"report", "run.hscope", "--gate", "gate.json", "--baseline", "base.hscope"};
    expect_refused(bench, report,
                   {{"", "run.hscope"},
                    {"", "run.hscope-wal"},
                    {"", "gate.json"},
                    {"", "base.hscope"},
                    {"", "base.hscope-wal"}},
                   {output});
  }
  expect_refused(bench, {"diagnose", "run.hscope"}, {{"", "run.hscope"}}, {"--out"});
  expect_refused(bench, {"plan", "scalers", "run.hscope"}, {{"", "run.hscope"}}, {"--csv"});
  expect_refused(bench, {"plan", "scalers"}, {{"--trajectory", "scale.csv"}}, {"--csv"});
  expect_refused(bench, {"puzzle", "level.json"}, {{"", "level.json"}}, {"--html"});
  expect_refused(bench, {"inspect", "x.npz", "y.npz"}, {{"", "y.npz"}}, {"--csv"});
  std::filesystem::create_directories(bench / "folder");
  std::filesystem::create_symlink(bench / "folder/a.npz", bench / "link.csv");
  write_npz(bench / "folder/a.npz", {{"a", Tensor{{2}, {1.0f, 2.0f}}}});
  expect_refused(bench, {"inspect", "folder"}, {{"", "folder/a.npz"}, {"", "link.csv"}}, {"--csv"});
}

TEST(CliOwnInputs, FilesBesideThoseThatAreNamed) {
  const Bench bench;
  write_inputs(bench);
  test::write_mnist(bench / "mnist");
  const std::string samples = "mnist/t10k-images-idx3-ubyte";
  expect_refusals(
      bench,
      {{{"train", "--model", "mlp:784-10", "--data", "mnist:mnist", "--out", samples, "--force"},
        2,
        "is also an input"}});
  std::filesystem::create_directories(bench / "ranks");
  for (const char* name : {"ranks/r.rank0.hscope", "ranks/r.rank1.hscope"}) {
    write_text(bench / name, text_of(bench / "run.hscope"));
  }
  expect_refused(bench, {"convert", "ranks/r.rank0.hscope"}, {{"", "ranks/r.rank1.hscope"}},
                 {"--out"});
  std::filesystem::create_directories(bench / "tensors");
  write_npy(bench / "tensors/0.fc1.weight.npy", Tensor{{2}, {1.0f, 2.0f}});
  expect_refused(bench, {"convert", "tensors"}, {{"", "tensors/0.fc1.weight.npy"}}, {"--out"});

  test::FileBuilder network;
  network.input("x", {1, 4}).floats("w", {4, 2}, {}).output("y").node("MatMul", {"x", "w"}, {"y"});
  ::onnx::TensorProto& weights = *network.graph().mutable_initializer(0);
  weights.set_data_location(::onnx::TensorProto::EXTERNAL);
  ::onnx::StringStringEntryProto& location = *weights.add_external_data();
  location.set_key("location");
  location.set_value("net.onnx.data");
  test::write_network(bench, "net.onnx", network);
  write_text(bench / "net.onnx.data", std::string(4 * 2 * sizeof(float), '\0'));
  expect_refused(bench, {"convert", "net.onnx"}, {{"", "net.onnx"}, {"", "net.onnx.data"}},
                 {"--out"});
  expect_refused(bench, {"run", "net.onnx", "--random-input", "1"}, {{"", "net.onnx.data"}},
                 {"--record"});
}

}  // namespace
}  // namespace halfscope
