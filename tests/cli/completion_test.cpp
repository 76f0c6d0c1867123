// SPDX-License-Identifier: MIT
// Completion scripts, tried in the shells themselves: bash completes for real, zsh and fish, where
// installed, at least read their scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::lines_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using Words = std::vector<std::string>;

bool has_shell(const std::string& name) {
  return std::system((name + " -c 'exit 0' >/dev/null 2>&1").c_str()) == 0;
}

/// A folder with the script and some files to complete.
class Completion {
 public:
  Completion() {
    script_ = bench_.run({"completion", "bash"}).out;
    std::ofstream(bench_ / "halfscope.bash") << script_;
    for (const char* name : {"run.hscope", "hot.hscope", "plan.json", "w.npz", "notes.txt"}) {
      std::ofstream(bench_ / name) << "x";
    }
    std::filesystem::create_directories(bench_ / "mnist");
  }

  /// Returns bash's completions for the line, as it would insert them.
  Words at(const std::string& line) const {
    const std::string program =
        "cd '" + (bench_ / "").string() + "' && source ./halfscope.bash && COMP_LINE='" + line +
        "' && COMP_POINT=${#COMP_LINE} && _halfscope && printf '%s\\n' \"${COMPREPLY[@]}\"";
    std::ofstream(bench_ / "try.sh") << program;
    const std::string command = "bash --norc '" + (bench_ / "try.sh").string() + "' >'" +
                                (bench_ / "offered.txt").string() + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << line;
    Words offered = lines_of(test::text_of(bench_ / "offered.txt"));
    std::erase(offered, "");
    return offered;
  }

  const Bench& bench() const { return bench_; }

 private:
  Bench bench_;
  std::string script_;
};

TEST(CliCompletion, SubcommandsAndFlags) {
  const Completion complete;
  EXPECT_THAT(complete.at("halfscope "),
              IsSupersetOf({"train", "run", "diagnose", "report", "view", "inspect", "cost",
                            "float", "mma-check", "fprev", "doctor", "completion", "help"}));
  EXPECT_THAT(complete.at("halfscope re"), ElementsAre("report"));
  EXPECT_THAT(complete.at("halfscope help ru"), ElementsAre("run"));
  EXPECT_THAT(complete.at("halfscope help plans"), ElementsAre("plans"));
  EXPECT_THAT(complete.at("halfscope --v"), ElementsAre("--version"));
  EXPECT_THAT(complete.at("halfscope train --st"), ElementsAre("--steps"));
  EXPECT_THAT(complete.at("halfscope train --steps 5 --bat"), ElementsAre("--batch"));
  EXPECT_THAT(complete.at("halfscope report run.hscope --h"), IsSupersetOf({"--html", "--help"}));
  EXPECT_THAT(complete.at("halfscope completion "), ElementsAre("bash", "zsh", "fish"));
}

TEST(CliCompletion, ValuesOfFlags) {
  const Completion complete;
  EXPECT_THAT(complete.at("halfscope train --model len"), IsSupersetOf({"lenet", "lenet-hot"}));
  EXPECT_THAT(complete.at("halfscope train --model=len"), IsSupersetOf({"lenet", "lenet-hot"}));
  EXPECT_THAT(complete.at("halfscope train --model ml"), ElementsAre("mlp:"));
  EXPECT_THAT(complete.at("halfscope train --plan mixed_b"), ElementsAre("mixed_bfloat16"));
  EXPECT_THAT(complete.at("halfscope train --plan p"), ElementsAre("plan.json"));
  EXPECT_THAT(complete.at("halfscope train --lanes float32,mixed_f"),
              ElementsAre("float32,mixed_float16"));
  EXPECT_THAT(complete.at("halfscope train --accumulate "),
              IsSupersetOf({"fp32", "format-mul-add", "tensor-core:h100"}));
  EXPECT_THAT(complete.at("halfscope train --optimizer ad"), Contains("adam"));
  EXPECT_THAT(complete.at("halfscope train --loss-scale s"), ElementsAre("static:"));
  EXPECT_THAT(complete.at("halfscope train --steps "), IsEmpty()) << "any number will do";
  EXPECT_THAT(complete.at("halfscope fprev --model h1"), ElementsAre("h100", "h100-wgmma"));
  EXPECT_THAT(complete.at("halfscope doctor --model res"),
              ElementsAre("resnet18", "resnet20", "resnet50"));
  EXPECT_THAT(complete.at("halfscope doctor --plan mxf"), ElementsAre("mxfp8"));
  EXPECT_THAT(complete.at("halfscope mma-check --input e5"), ElementsAre("e5m2"));
  EXPECT_THAT(complete.at("halfscope diagnose run.hscope --fail-on w"), ElementsAre("warning"));
  EXPECT_THAT(complete.at("halfscope diagnose run.hscope --fix-as t"),
              ElementsAre("torchao", "transformer-engine", "tensorflow"));
  // The part before a ':' is the shell's, which replaces what follows.
  EXPECT_THAT(complete.at("halfscope train --data mnist:mn"), ElementsAre("mnist/"));
  EXPECT_THAT(complete.at("halfscope train --data mni"), ElementsAre("mnist:"));
}

TEST(CliCompletion, Files) {
  const Completion complete;
  EXPECT_THAT(complete.at("halfscope report "),
              testing::UnorderedElementsAre("run.hscope", "hot.hscope", "mnist"));
  EXPECT_THAT(complete.at("halfscope train --init "),
              testing::UnorderedElementsAre("w.npz", "mnist"));
  EXPECT_THAT(complete.at("halfscope inspect run.hscope h"), ElementsAre("hot.hscope"));
}

TEST(CliCompletion, EveryFlagOfEverySubcommandIsThere) {
  const Bench bench;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = bench.run({"completion", shell}).out;
    for (const char* name : {"train", "run", "diagnose", "report", "inspect", "cost", "float",
                             "mma-check", "fprev", "doctor"}) {
      for (std::string line : lines_of(bench.run({name, "--help"}).out)) {
        const size_t start = line.find("--");
        if (start == std::string::npos || start > 8) continue;
        line = line.substr(start + 2, line.find(' ', start) - start - 2);
        const std::string flag = std::string(shell) == "fish" ? "-l " + line : "--" + line;
        EXPECT_THAT(script, HasSubstr(flag)) << shell << " " << name;
      }
    }
  }
}

TEST(CliCompletion, ZshReadsItsScript) {
  if (!has_shell("zsh")) GTEST_SKIP() << "zsh is not installed";
  const Bench bench;
  std::ofstream(bench / "_halfscope") << bench.run({"completion", "zsh"}).out;
  const std::string file = (bench / "_halfscope").string();
  EXPECT_EQ(std::system(("zsh -f -n '" + file + "'").c_str()), 0);
  // Sourced in a shell that completes, it registers without any output.
  const std::string load = "zsh -f -c 'autoload -Uz compinit && compinit -u -D && source \"" +
                           file + "\" && [[ $_comps[halfscope] == _halfscope ]]' >'" +
                           (bench / "said.txt").string() + "' 2>&1";
  EXPECT_EQ(std::system(load.c_str()), 0);
  EXPECT_EQ(test::text_of(bench / "said.txt"), "");
}

TEST(CliCompletion, FishReadsItsScript) {
  if (!has_shell("fish")) GTEST_SKIP() << "fish is not installed";
  const Bench bench;
  std::ofstream(bench / "halfscope.fish") << bench.run({"completion", "fish"}).out;
  const auto offered = [&bench](const std::string& line) {
    const std::string out = (bench / "offered.txt").string();
    const std::string command = "HOME='" + (bench / "").string() +
                                "' fish --no-config -c 'source \"" +
                                (bench / "halfscope.fish").string() + "\"; complete -C \"" + line +
                                "\"' >'" + out + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << line;
    Words words;
    for (const std::string& each : lines_of(test::text_of(out))) {
      words.push_back(each.substr(0, each.find('\t')));
    }
    return words;
  };
  EXPECT_THAT(offered("halfscope re"), testing::UnorderedElementsAre("report"));
  EXPECT_THAT(offered("halfscope train --st"), ElementsAre("--steps"));
  EXPECT_THAT(offered("halfscope train --plan mixed_b"), ElementsAre("mixed_bfloat16"));
  EXPECT_THAT(offered("halfscope train --lanes float32,mixed_f"),
              ElementsAre("float32,mixed_float16"));
}

}  // namespace
}  // namespace halfscope
