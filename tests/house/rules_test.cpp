// SPDX-License-Identifier: MIT
// Every house rule on small samples: it must report the bad ones and accept the good ones.
#include "tests/house/rules.h"

#include <gtest/gtest.h>

#include <string>

namespace halfscope::house {
namespace {

std::string including(const std::string& target) {
  return std::string("#include ").append(target).append("\n");
}

struct IncludeCase {
  const char* path;
  const char* target;
  bool allowed;
};

class Includes : public testing::TestWithParam<IncludeCase> {};

TEST_P(Includes, AreJudged) {
  const IncludeCase& sample = GetParam();
  const Violations found = check_includes({sample.path, including(sample.target)});
  EXPECT_EQ(found.empty(), sample.allowed) << sample.path << " includes " << sample.target << ": "
                                           << (found.empty() ? std::string() : found[0].text());
}

constexpr IncludeCase kIncludeCases[] = {
    {"core/numeric/formats/a.h", "<vector>", true},
    {"core/numeric/formats/a.h", "\"core/error.h\"", true},
    {"core/numeric/formats/a.h", "\"emulation/isa.h\"", false},
    {"core/data/a.cpp", "\"analysis/finding.h\"", false},
    {"core/data/a.cpp", "<analysis/finding.h>", false},
    {"core/data/a.cpp", "\"../analysis/finding.h\"", false},
    {"emulation/a.cpp", "\"core/tensor.h\"", true},
    {"emulation/a.cpp", "\"emulation/isa.h\"", true},
    {"emulation/a.cpp", "\"analysis/finding.h\"", false},
    {"gpu/a.cu", "\"emulation/isa.h\"", false},
    {"analysis/a.cpp", "\"emulation/isa.h\"", false},
    {"analysis/a.cpp", "\"cli/tasks/doctor.h\"", false},
    {"gui/a.cpp", "\"analysis/finding.h\"", true},
    {"gui/a.cpp", "\"emulation/isa.h\"", true},
    {"gui/a.cpp", "\"gpu/engine/executor.h\"", false},
    {"cli/a.cpp", "\"emulation/isa.h\"", true},
    {"cli/a.cpp", "\"tests/house/rules.h\"", false},
    {"tests/a/a.cpp", "\"cli/tasks/doctor.h\"", true},
    {"examples/a.cpp", "\"halfscope/cli/tasks/doctor.h\"", false},
    {"examples/a.cpp", "\"halfscope/core/error.h\"", true},
    {"examples/a.cpp", "\"core/error.h\"", false},
    {"examples/a.cpp", "\"halfscope/testing/gtest.h\"", true},
    {"core/testing/a.h", "<gmock/gmock.h>", true},
    {"core/numeric/formats/a.h", "<gmock/gmock.h>", false},
    {"analysis/a.cpp", "<sqlite3.h>", true},
    {"core/data/a.cpp", "<sqlite3.h>", false},
    {"cli/train.cpp", "<sqlite3.h>", false},
    {"cli/tasks/doctor.cpp", "<sqlite3.h>", true},
    {"gpu/a.cpp", "<cuda_runtime_api.h>", true},
    {"emulation/a.cpp", "<cuda_runtime_api.h>", false},
    {"core/numeric/formats/a.h", "<cuda_fp16.h>", false},
    {"emulation/gemm/a.cpp", "<Eigen/Core>", true},
    {"emulation/gemm/a.h", "<Eigen/Core>", false},
    {"core/train/a.cpp", "<Eigen/Core>", false},
    {"core/data/a.cpp", "<zlib.h>", true},
    {"core/graph/a.cpp", "<zlib.h>", false},
    {"core/data/a.cpp", "<zip.h>", true},
    {"cli/train.cpp", "<zip.h>", false},
    {"core/policy/a.cpp", "<nlohmann/json.hpp>", true},
    {"core/policy/a.h", "<nlohmann/json.hpp>", false},
    {"core/train/a.cpp", "<nlohmann/json.hpp>", false},
    {"core/ops/a.cpp", "<fmt/format.h>", false},
    {"core/graph/a.cpp", "<unistd.h>", false},
    {"analysis/a.cpp", "<CLI/CLI.hpp>", false},
    {"cli/a.cpp", "<boost/any.hpp>", false},
    {"tests/a/a.cpp", "<Eigen/Core>", true},
    {"bench/a.cpp", "<benchmark/benchmark.h>", true},
    {"README.md", "\"emulation/isa.h\"", true},
    {"core/graph/a.h", "\"core/plan/plan.h\"", true},
    {"core/graph/a.h", "\"core/graph/site.h\"", true},
    {"core/graph/a.h", "\"core/ops/ops.h\"", false},
    {"core/error.h", "\"core/graph/graph.h\"", false},
    {"core/numeric/scaling/a.h", "\"core/numeric/formats/round.h\"", true},
    {"core/numeric/formats/a.h", "\"core/numeric/sums/chain.h\"", false},
    {"gpu/libraries/a.cpp", "\"gpu/engine/executor.h\"", false},
    {"gui/widgets/a.cpp", "\"gui/panels/panel.h\"", false},
    {"emulation/isa.cpp", "\"emulation/gemm/gemm.h\"", false},
    {"analysis/a.cpp", "\"analysis/rules/rules.h\"", false},
    {"tests/gui/a.cpp", "\"tests/house/rules.h\"", true},
};
INSTANTIATE_TEST_SUITE_P(Samples, Includes, testing::ValuesIn(kIncludeCases));

TEST(IncludeParsing, FindsUnusualSpellingsAndTheLine) {
  const Violations found = check_includes({"core/a.cpp", "\n  #  include   \"gpu/x.h\" // why\n"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, 2);
  EXPECT_EQ(found[0].text(), "core/a.cpp:2: core must not know gpu/x.h");
}

TEST(FolderOrder, NamesTheFileTheIncludeAndBothFolders) {
  const Violations found =
      check_includes({"core/graph/a.h", including("\"core/train/trainer.h\"")});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text(),
            "core/graph/a.h:1: core/graph must not know core/train/trainer.h: core/train comes "
            "later");
}

TEST(FolderOrder, HasAllFolders) {
  for (const char* folder :
       {"core/tools", "core/numeric", "gui/panels/new", "gpu/kernels", "cli/new"}) {
    const Violations found = check_includes({std::string(folder) + "/a.h", ""});
    ASSERT_EQ(found.size(), 1u) << folder;
    EXPECT_EQ(found[0].what,
              std::string(folder) + " has no place in kFolders of tests/house/includes.cpp");
    EXPECT_EQ(check_includes({"core/a.h", including("\"core/tools/a.h\"")}).size(), 1u);
  }
  for (const char* folder : {"cli", "tests/new", "examples"}) {
    EXPECT_TRUE(check_includes({std::string(folder) + "/a.h", ""}).empty()) << folder;
  }
}

TEST(IncludeParsing, LeavesCommentsAlone) {
  EXPECT_TRUE(check_includes({"core/a.cpp", "// #include \"gpu/x.h\"\n#define include\n"}).empty());
}

TEST(Length, AllowsSixHundredLines) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "x\n";
  EXPECT_TRUE(check_length({"a.cpp", text}).empty());
  EXPECT_EQ(check_length({"a.cpp", text + "x\n"}).size(), 1u);
  EXPECT_EQ(check_length({"a.cpp", text + "x"}).size(), 1u);  // without a line end too
}

TEST(Spdx, ComesFirst) {
  EXPECT_TRUE(check_spdx({"a.cpp", "// SPDX-License-Identifier: MIT\nint x;\n"}).empty());
  EXPECT_FALSE(check_spdx({"a.cpp", "\n// SPDX-License-Identifier: MIT\n"}).empty());
  EXPECT_FALSE(check_spdx({"a.cpp", "// SPDX-License-Identifier: GPL-3.0\n"}).empty());
  EXPECT_FALSE(check_spdx({"a.cpp", ""}).empty());
}

TEST(Spdx, ComesSecondInScripts) {
  EXPECT_TRUE(check_spdx({"a", "#!/bin/sh\n# SPDX-License-Identifier: MIT\n"}).empty());
  EXPECT_FALSE(check_spdx({"a", "#!/bin/sh\necho\n"}).empty());
}

TEST(Characters, AreAsciiWithoutTabs) {
  EXPECT_TRUE(check_characters({"a.cpp", "int x = '~';\n"}).empty());
  EXPECT_FALSE(check_characters({"a.cpp", "\tint x;\n"}).empty());
  EXPECT_FALSE(check_characters({"a.cpp", "// caf\xc3\xa9\n"}).empty());
  EXPECT_FALSE(check_characters({"a.cpp", "int x;\r\n"}).empty());
  EXPECT_EQ(check_characters({"a.cpp", "ok\n\t\t\n"})[0].line, 2);
}

TEST(MachinePaths, AreFoundFromTheRootOn) {
  const std::string home = std::string("/ho") + "me/", work = std::string("/wo") + "rk/";
  const std::string root = std::string("/ro") + "ot/", jobs = std::string("/tmp/b") + "ash_jobs/";
  for (const std::string& start : {home, work, root, jobs}) {
    EXPECT_EQ(check_machine_paths({"a.md", "see " + start + "x\n"}).size(), 1u) << start;
    EXPECT_EQ(check_machine_paths({"a.md", start + "x\n"}).size(), 1u) << start;
    EXPECT_EQ(check_machine_paths({"a.md", "\"" + start + "x\"\n"}).size(), 1u) << start;
    EXPECT_TRUE(check_machine_paths({"a.md", "see docs" + start + "x\n"}).empty()) << start;
  }
  EXPECT_TRUE(check_machine_paths({"a.sh", "cd \"$HOME" + work + "x\"\n"}).empty());
  EXPECT_TRUE(check_machine_paths({"a.sh", "ls /usr/local/cuda /tmp/x\n"}).empty());
}

TEST(PragmaOnce, ComesBeforeIncludes) {
  EXPECT_TRUE(check_pragma_once({"a.h", "// x\n#pragma once\n#include <array>\n"}).empty());
  EXPECT_FALSE(check_pragma_once({"a.h", "#include <array>\n#pragma once\n"}).empty());
  EXPECT_FALSE(check_pragma_once({"a.h", "#ifndef A_H\n"}).empty());
}

TEST(OwnHeader, IsIncludedFirst) {
  const std::vector<File> tree = {{"core/a.h", ""}};
  const auto check = [&](const char* path, const char* text) {
    return check_own_header_first({path, text}, tree).size();
  };
  EXPECT_EQ(check("core/a.cpp", "// x\n#include \"core/a.h\"\n#include <array>\n"), 0u);
  EXPECT_EQ(check("core/a.cpp", "#include <array>\n#include \"core/a.h\"\n"), 1u);
  EXPECT_EQ(check("core/a.cpp", "int a;\n"), 1u);
  EXPECT_EQ(check("core/b.cpp", "#include <array>\n"), 0u);
}

TEST(ElementaryFunctions, AreOurs) {
  const auto found = [](const char* path, const std::string& line) {
    return check_elementary_functions({path, "int a;\n" + line + "\n"}).size();
  };
  for (const char* call : {"std::exp(x)", "::log(x)", "y = tanh(x)", "expf(x)", "__logf(x)",
                           "std::pow(2.0, 3)", "1 + std::erfc( x )"}) {
    EXPECT_EQ(found("core/numeric/formats/a.h", call), 1u) << call;
    EXPECT_EQ(found("emulation/engine/a.cpp", call), 1u) << call;
    EXPECT_EQ(found("gpu/bodies/a.h", call), 1u) << call;
    EXPECT_EQ(found("gui/a.cpp", call), 0u) << call;
    EXPECT_EQ(found("core/numeric/elementary/elementary.h", call), 0u) << call;
    EXPECT_EQ(found("core/numeric/elementary/inverse.h", call), 0u) << call;
  }
  for (const char* line : {"elementary::exp(x)", "std::sqrt(x)", "// std::exp(x)", "my_exp(x)",
                           "std::fma(a, b, c)", "log + (x)", "exponent(x)"}) {
    EXPECT_EQ(found("core/numeric/formats/a.h", line), 0u) << line;
  }
  EXPECT_EQ(found("gpu/a.cu", "std::exp(std::log(x))"), 2u);
}

TEST(Phrases, AreFoundInStringLiterals) {
  const auto found = [](const std::string& code) {
    return check_phrases({"gui/a.cpp", code + "\n"}).size();
  };
  for (const char* code :
       {"f(\"Split into so many parts\");", "f(\"So many parts\");",
        "f(\"in so \"\n  \"many parts\");", "f(R\"x(so many)x\");", "c = '\"'; f(\"is no file\");",
        "f(\"a \\\" so many\");", "n = 1'000; f(\"so many\");"}) {
    EXPECT_EQ(found(code), 1u) << code;
  }
  for (const char* code : {"// so many", "f(\"this now\");", "/* so many */ f(\"\");",
                           "f(\"so\", \"many\");", "f(\"is nothing\");"}) {
    EXPECT_EQ(found(code), 0u) << code;
  }
  const Violations second = check_phrases({"gui/a.cpp", "f(\"a\");\n\nf(\"so many\");\n"});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].line, 3);
  EXPECT_TRUE(check_phrases({"tests/a.cpp", "f(\"so many\");\n"}).empty());
}

TEST(CommentBeginnings, AreNotNounPhrases) {
  const auto found = [](const std::string& text) {
    return check_comment_beginnings({"gui/a.h", text}).size();
  };
  EXPECT_EQ(found("// What it is.\nint a;\n"), 1u);
  EXPECT_EQ(found("int a;\n  /// Of the lane.\nint b;\n"), 1u);
  EXPECT_EQ(found("// SPDX-License-Identifier: MIT\n// Those of all lanes.\n"), 1u);
  EXPECT_EQ(found("// Returns the lane.\n// What is left is empty.\n"), 0u);
  EXPECT_EQ(found("int a;  ///< of the lane\n"), 0u);
  EXPECT_EQ(found("// Often right.\n"), 0u);
  EXPECT_TRUE(check_comment_beginnings({"scripts/a.h", "// What it is.\n"}).empty());
}

TEST(Kinds, AreToldApart) {
  EXPECT_TRUE(is_cpp("core/a.h"));
  EXPECT_TRUE(is_cpp("gpu/a.cu"));
  EXPECT_FALSE(is_cpp("core/a.html"));
  EXPECT_TRUE(is_bash({"scripts/run", "#!/usr/bin/env bash\n"}));
  EXPECT_FALSE(is_bash({"a.py", "#!/usr/bin/env python3\n"}));
  EXPECT_TRUE(is_source({"core/CMakeLists.txt", ""}));
  EXPECT_FALSE(is_source({"README.md", "# HalfScope\n"}));
}

}  // namespace
}  // namespace halfscope::house
