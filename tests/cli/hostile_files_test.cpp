// SPDX-License-Identifier: MIT
// Files that someone else made: names that act on terminals or in HTML, links that leave a folder.
// What is refused is refused in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/recorder.h"
#include "core/data/npz.h"
#include "tests/analysis/sample_run.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::text_of;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHostile = "<script>alert(1)</script>\x1b[2J\x07\xff|`x`";

/// Expects text without control characters and with valid UTF-8.
void expect_printable(const std::string& text, const std::string& what) {
  EXPECT_FALSE(text.empty()) << what;
  for (const char c : text) {
    const bool control = (c >= 0 && c < ' ' && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
    ASSERT_FALSE(control) << what << ": byte " << static_cast<int>(c);
  }
  // nlohmann's parser checks UTF-8.
  EXPECT_NO_THROW(nlohmann::json(text).dump()) << what;
}

void expect_refused(const Outcome& outcome, int code, const char* what) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_THAT(outcome.out, testing::IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr(what));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("\nhint: "));
}

TEST(CliHostileFiles, NamesInRunFilesActNowhere) {
  const Bench bench;
  RunInfo info = test::sample_info();
  info.model = info.data = info.optimizer = info.command = kHostile;
  for (LaneInfo& lane : info.lanes) {
    lane.backend = lane.loss_scale = kHostile;
    for (LayerInfo& layer : lane.layers) layer.path += kHostile;
    for (SiteInfo& site : lane.sites) site.path += kHostile;
  }
  info.lanes[0].name = std::string("a") + kHostile;
  for (const char* file : {"a.hscope", "b.hscope"}) {
    Recorder recorder(bench / file);
    test::send_run(recorder, info, 6);
  }
  const Outcome written =
      bench.run({"report", "a.hscope", "--html", "r.html", "--json", "r.json", "--csv", "r.csv",
                 "--stats", "s.csv", "--steps", "t.csv", "--md", "r.md", "--tensorboard", "logs"});
  ASSERT_EQ(written.code, 0) << written.err;
  for (const char* file : {"r.html", "r.json", "r.csv", "s.csv", "t.csv", "r.md"}) {
    expect_printable(text_of(bench / file), file);
  }
  EXPECT_THAT(text_of(bench / "r.html"), Not(HasSubstr("<script>alert")));
  EXPECT_THAT(text_of(bench / "r.html"), HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_TRUE(nlohmann::json::accept(text_of(bench / "r.json")));
  const std::vector<std::vector<std::string>> commands = {
      {"report", "a.hscope"},
      {"report", "a.hscope", "--summary"},
      {"inspect", "a.hscope"},
      {"diagnose", "a.hscope"},
      {"inspect", "a.hscope", "--json"},
      {"diagnose", "a.hscope", "--json"},
      {"diff", "a.hscope", "b.hscope"},
      {"diff", "a.hscope", "--lanes", "mixed_float16,mixed_float16", "--json"}};
  for (const std::vector<std::string>& words : commands) {
    const Outcome outcome = bench.run(words);
    EXPECT_LE(outcome.code, 1) << words[0] << ": " << outcome.err;
    expect_printable(outcome.out, words[0]);
  }
}

/// Writes two tensors, one with a hostile name, whose fp32 value has this first byte: far beyond
/// fp16.
void write_named(const std::filesystem::path& file, char last) {
  const std::string header = R"({"<b>\u001b[2J":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  std::ofstream(file, std::ios::binary)
      << length << header << std::string("\0\0\0", 3) << last << '\1';
}

TEST(CliHostileFiles, NamesOfTensorsAreShownEscaped) {
  const Bench bench;
  write_named(bench / "w.safetensors", '\x7f');
  write_named(bench / "v.safetensors", '\x7e');
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"inspect", "w.safetensors"},
        {"inspect", "w.safetensors", "--csv", "-"},
        {"inspect", "w.safetensors", "--json"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    expect_printable(outcome.out, words.back());
  }
  EXPECT_THAT(bench.run({"inspect", "w.safetensors"}).out, HasSubstr("<b>\\x1b[2J overflows"));
  const Outcome differs = bench.run({"diff", "w.safetensors", "v.safetensors"});
  EXPECT_EQ(differs.code, 1) << differs.err;
  expect_printable(differs.out, "diff");
}

TEST(CliHostileFiles, LinksOutOfTheFolderAreNotFollowed) {
  const Bench bench;
  namespace fs = std::filesystem;
  fs::create_directories(bench / "in" / "deep");
  fs::create_directories(bench / "out");
  write_npy(bench / "in" / "mine.npy", {{1}, {1.0F}});
  write_npy(bench / "out" / "secret.npy", {{1}, {1.0F}});
  fs::create_symlink(bench / "out" / "secret.npy", bench / "in" / "a.npy");
  fs::create_symlink("../../out", bench / "in" / "deep" / "b");
  fs::create_symlink("../mine.npy", bench / "in" / "deep" / "c.npy");
  fs::create_symlink("loop", bench / "in" / "loop");
  const Outcome outcome = bench.run({"inspect", "in"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("secret")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("a.npy")));
  EXPECT_THAT(outcome.out, HasSubstr("c.npy"));
  EXPECT_THAT(outcome.out, HasSubstr("3 links out of the folder skipped."));
}

TEST(CliHostileFiles, DamagedTensorsAreRefusedInOneLine) {
  const Bench bench;
  const struct {
    std::string header;
    int code;
    const char* what;
  } cases[] = {
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "overlaps"},
      {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 3, "beyond the file's"},
      {R"({"a":{"dtype":"U8","shape":[-3],"data_offsets":[0,3]}})", 3, "whole numbers from 0"},
      {"{\"\x1b[2J\n\":{}}", 3, "'\\x1b[2J\\x0a'"},
  };
  for (const auto& each : cases) {
    std::string file(8, '\0');
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(each.header.size() >> (8 * i));
    std::ofstream(bench / "x.safetensors", std::ios::binary) << file << each.header << "abc";
    expect_refused(bench.run({"inspect", "x.safetensors"}), each.code, each.what);
  }
  std::ofstream(bench / "plan.json") << R"({"schema": "halfscope.plan/1", "\u001b[2J\n": 1})";
  expect_refused(bench.run({"plan", "show", "plan.json"}), 2, "unknown key \"\\x1b[2J\\x0a\"");
  std::ofstream(bench / "x.safetensors", std::ios::binary)
      << std::string("\x00\xca\x9a\x3b\0\0\0\0", 8) << "{}";
  expect_refused(bench.run({"inspect", "x.safetensors"}), 3, "1000000000 bytes, expected at most");
}

}  // namespace
}  // namespace halfscope
