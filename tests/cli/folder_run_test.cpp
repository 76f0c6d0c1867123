// SPDX-License-Identifier: MIT
// Folders of tensors as runs: what the commands say about steps that were left out. What is
// measured is compared with NumPy in tests/python/folder_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/data/npz.h"
#include "tests/cli/program.h"
#include "tests/support/text_file.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using testing::HasSubstr;

/// Writes a folder with tensors of the steps 0, 10 and 20.
void write_folder(const Bench& bench) {
  std::filesystem::create_directory(bench / "tensors");
  for (const char* name : {"0.fc.weight.npy", "10.fc.weight.npy", "20.fc.weight.npy"}) {
    write_npy(bench / "tensors" / name, {{2}, {1.0F, 2.0F}});
  }
}

TEST(CliFolderRun, StepsThatWereLeftOutAreNotCounted) {
  const Bench bench;
  write_folder(bench);
  const auto steps = [&] {
    const Outcome made = bench.run({"convert", "tensors", "--out", "run.hscope", "--force"});
    EXPECT_EQ(made.code, 0) << made.err;
    return bench.run({"inspect", "run.hscope"}).out;
  };
  EXPECT_THAT(steps(), HasSubstr(" 3/3 "));
  // A step may have a loss and no tensors.
  test::write_text(bench / "tensors" / "run.json",
                   R"({"schema": "halfscope.tensors/1", "steps": [{"step": 0, "loss": 3},
                       {"step": 5, "loss": 2}, {"step": 10, "loss": 1}]})");
  EXPECT_THAT(steps(), HasSubstr(" 4/4 "));
  const auto report = nlohmann::json::parse(bench.run({"report", "run.hscope", "--json", "-"}).out);
  EXPECT_EQ(report["run"]["steps"], 4);
  EXPECT_EQ(report["run"]["steps_planned"], 4);
}

TEST(CliFolderRun, ANameOfAnotherKindOfFileIsRefused) {
  const Bench bench;
  write_folder(bench);
  for (const auto& [what, out, hint] :
       {std::tuple{"tensors", "net.onnx", "hint: add --out run.hscope"},
        {"mlp:784-16-10", "net.hscope", "hint: add --out net.onnx"}}) {
    const Outcome outcome = bench.run({"convert", what, "--out", out});
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("is named like another kind of file"));
    EXPECT_THAT(outcome.err, HasSubstr(hint));
    EXPECT_FALSE(std::filesystem::exists(bench / out));
  }
}

}  // namespace
}  // namespace halfscope
