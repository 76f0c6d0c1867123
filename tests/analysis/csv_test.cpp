// SPDX-License-Identifier: MIT
// The exported tables: columns as docs/reference/csv.md lists them, cells to the letter.
#include "analysis/export/csv.h"

#include <gtest/gtest.h>

#include <sstream>

#include "analysis/memory_sink.h"
#include "tests/analysis/sample_run.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: the helpers of these tests

/// The columns that a section's table lists in its first cells, joined by commas.
std::string contract_columns(const std::string& title) {
  std::istringstream lines(contract_section(title));
  std::string columns;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    for (const std::string& name : quoted_names(line.substr(0, line.find('|', 1)))) {
      columns += (columns.empty() ? "" : ",") + name;
    }
  }
  return columns;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> steps_csv(const RunView& run) {
  std::ostringstream out;
  write_steps_csv(run, out);
  return lines_of(out.str());
}

std::vector<std::string> stats_csv(const RunView& run) {
  std::ostringstream out;
  write_stats_csv(run, out);
  return lines_of(out.str());
}

std::vector<std::string> sums_csv(const RunView& run) {
  std::ostringstream out;
  write_sums_csv(run, out);
  return lines_of(out.str());
}

TEST(Csv, SumsToTheLetter) {
  RunView run(sample_info(), RunStatus::complete);
  run.add_sums(1, sample_sums(1, 4, 2));
  run.add_sums(1, sample_sums(1, 4, 1));
  run.add_sums(0, sample_sums(0, 8, 0));
  const std::vector<std::string> lines = sums_csv(run);
  ASSERT_EQ(lines.size(), 4u);
  const SiteInfo& site = run.lane(1).sites[1];
  EXPECT_EQ(lines[1].rfind("4,mixed_float16," + site.name() + ",", 0), 0u) << lines[1];
  EXPECT_NE(lines[1].find(",\"format:rounding=up,promote=3\",11,1004,7,1.3969838619232178e-09,1,4"),
            std::string::npos)
      << lines[1];
  EXPECT_EQ(lines[2].substr(lines[2].size() - 3), ",0,") << "no overflow, no first term";
  EXPECT_EQ(lines[3].rfind("8,float32,", 0), 0u) << lines[3];
}

std::vector<std::string> kernels_csv(const RunView& run) {
  std::ostringstream out;
  write_kernels_csv(run, out);
  return lines_of(out.str());
}

TEST(Csv, KernelsToTheLetter) {
  RunView run(sample_info(), RunStatus::complete);
  run.add_kernel(1, sample_check(1, 4, 2));
  run.add_kernel(1, sample_check(1, 4, 0));
  const std::vector<std::string> lines = kernels_csv(run);
  ASSERT_EQ(lines.size(), 3u);
  const SiteInfo& site = run.lane(1).sites[2];
  EXPECT_EQ(lines[1].substr(lines[1].size() - 16), ",44,0,0,,,,,0,0,") << lines[1];
  EXPECT_EQ(lines[2].rfind("4,mixed_float16," + site.name() + ",", 0), 0u) << lines[2];
  EXPECT_NE(lines[2].find(",1004,20,4,11,1,library 1.1,tensor-core:h100,504,404,results change "
                          "from run to run"),
            std::string::npos)
      << lines[2];
}

TEST(Csv, HeadersAreTheContract) {
  const RunView run(sample_info(), RunStatus::complete);
  EXPECT_EQ(steps_csv(run).at(0), contract_columns("`steps.csv`"));
  EXPECT_EQ(stats_csv(run).at(0), contract_columns("`stats.csv`"));
  EXPECT_EQ(sums_csv(run).at(0), contract_columns("`sums.csv`"));
  EXPECT_EQ(kernels_csv(run).at(0), contract_columns("`kernels.csv`"));
}

TEST(Csv, StepsToTheLetter) {
  RunInfo info = sample_info();
  info.lanes[1].name = "a,\"b\"";
  RunView run(info, RunStatus::complete);
  run.add_step(0, {.step = 1,
                   .loss = 0.1,
                   .loss_scale = 65536,
                   .grad_norm = 1e-7,
                   .accuracy = 0.5,
                   .ms = 100000});
  run.add_step(0, {.step = 0, .loss = -kInf, .grad_norm = kNan, .ms = kNan});
  run.add_step(1, {.step = 0,
                   .loss = kNan,
                   .loss_scale = 0x1p-24,
                   .skipped = true,
                   .grad_norm = kInf,
                   .accuracy = 1.0 / 3.0,
                   .ms = 1.5,
                   .first_bad = 3});
  const std::vector<std::string> expected = {
      "step,lane,loss,loss_scale,skipped,grad_norm,accuracy,ms,first_bad",
      "0,float32,-inf,1,0,nan,,,",
      "0,\"a,\"\"b\"\"\",nan,5.960464477539063e-08,1,inf,0.3333333333333333,1.5,"
      "block0/fc3.activation_grad",
      "1,float32,0.1,65536,0,1e-07,0.5,100000,",
  };
  EXPECT_EQ(steps_csv(run), expected);
}

TEST(Csv, StatsToTheLetter) {
  RunInfo info = sample_info(2);
  RunView run(info, RunStatus::complete);
  TensorStats stats;
  stats.n = 10;
  stats.zero = 1;
  stats.pos_inf = 1;
  stats.nan = 1;
  stats.overflow = 2;
  stats.underflow = 3;
  stats.subnormal = 4;
  stats.lost = 5;
  stats.max_abs = 0.1f;
  stats.min_abs = 0x1p-149f;
  stats.sum = -4.0;
  stats.sum_sq = 32.0;
  stats.exponents[0] = 1;
  stats.exponents[149] = 6;
  TensorStats nothing_finite;
  nothing_finite.n = 3;
  nothing_finite.neg_inf = 3;
  TensorStats zeros;
  zeros.n = 2;
  zeros.zero = 2;
  run.add_window(1, 1, {4, 2, stats});
  run.add_window(1, 0, {4, 1, zeros});
  run.add_window(0, 1, {4, 1, nothing_finite});
  const std::vector<std::string> lines = stats_csv(run);
  const std::string tensor = "block0/fc1.activation,block0/fc1,activation,activation,forward,Gemm,";
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "4,1,float32," + tensor + "fp32,3,0,0,3,0,0,0,0,0,,,,,");
  EXPECT_EQ(lines[2],
            "4,1,mixed_float16,block0/fc0.input,block0/fc0,input,input,forward,Gemm,fp16,"
            "2,2,0,0,0,0,0,0,0,0,,0,0,");
  EXPECT_EQ(lines[3], "4,2,mixed_float16," + tensor +
                          "fp16,10,1,1,0,1,2,3,4,5,0.10000000149011612,1.401298464324817e-45,"
                          "-0.5,2,-149:1 0:6");
}

TEST(Csv, EveryRowOnceInOrder) {
  MemorySink sink;
  const RunInfo info = sample_info();
  send_run(sink, info, 3);
  EXPECT_EQ(steps_csv(sink.view()).size(), 1u + 3 * 2);
  const std::vector<std::string> lines = stats_csv(sink.view());
  ASSERT_EQ(lines.size(), 1u + 3 * 2 * 6 - 1);  // no update on the skipped step
  EXPECT_EQ(lines[1].rfind("0,1,float32,block0/fc0.input,", 0), 0u);
  EXPECT_EQ(lines[6].rfind("0,1,float32,block1/fc5.update,", 0), 0u);
  EXPECT_EQ(lines[7].rfind("0,1,mixed_float16,block0/fc0.input,", 0), 0u);
  EXPECT_EQ(lines[13].rfind("1,1,float32,", 0), 0u);
}

}  // namespace
}  // namespace halfscope
