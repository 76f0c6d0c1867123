// SPDX-License-Identifier: MIT
// The run file as written and read back by one healthy process.
#include "analysis/recorder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "analysis/memory_sink.h"
#include "analysis/run_schema.h"
#include "analysis/run_view.h"
#include "analysis/sqlite.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using testing::HasSubstr;

template <typename Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error came";
  return Error("");
}

TEST(Recorder, EveryFieldReadsBack) {
  const TemporaryFolder folder;
  const RunInfo info = sample_info();
  MemorySink memory;
  send_run(memory, info, 5);
  {
    Recorder recorder(folder / "run.hscope");
    send_run(recorder, info, 5);
  }
  const RunView run = RunView::open(folder / "run.hscope");
  expect_same_run(run, memory.view());
  EXPECT_EQ(run.status(), RunStatus::complete);
  EXPECT_EQ(expect_whole_steps(run), 5);
  EXPECT_EQ(run.find_lane("mixed_float16"), 1);
  EXPECT_EQ(run.find_lane("bfloat16"), std::nullopt);
  for (const SiteInfo& site : info.lanes[1].sites) {
    EXPECT_EQ(run.find_site(1, site.name()), site.order);
  }
  EXPECT_EQ(run.find_site(1, "fc1.nothing"), std::nullopt);
  EXPECT_EQ(run.windows(1, 5).size(), 4u) << "the skipped step has no update";
  EXPECT_EQ(run.total(0, 1).zero, 15);
  ASSERT_EQ(run.errors(1).size(), 6u);
  EXPECT_EQ(run.errors(1)[1].site, 1) << "ordered by step and site";
  EXPECT_TRUE(run.errors(0).empty());
}

TEST(Recorder, RowsOfSeveralStepsReadBack) {
  const TemporaryFolder folder;
  RunInfo info = sample_info();
  info.lanes.resize(1);
  std::vector<StepRow> rows(3);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].step = static_cast<int64_t>(i) * 2;
    rows[i].loss = 0.5 / static_cast<double>(i + 1);
  }
  Recorder recorder(folder / "run.hscope");
  recorder.begin(info);
  recorder.rows(rows);
  EXPECT_EQ(RunView::open(folder / "run.hscope").steps(0).size(), 3u) << "readable at once";
  EXPECT_THAT(error_of([&] { recorder.rows(rows); }).what(), HasSubstr("not the next one"));
}

TEST(Recorder, RowsNeedARunWithOneLane) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "run.hscope");
  recorder.begin(sample_info());
  EXPECT_THAT(error_of([&] { recorder.rows({}); }).what(), HasSubstr("several lanes"));
}

TEST(Recorder, EveryRoleReadsBack) {
  const TemporaryFolder folder;
  RunInfo info = sample_info(7);
  info.lanes[0].sites[6].role = Role::state;
  {
    Recorder recorder(folder / "run.hscope");
    send_run(recorder, info, 1);
  }
  EXPECT_EQ(RunView::open(folder / "run.hscope").lane(0).sites[6].role, Role::state);
}

TEST(Recorder, RanksReadBack) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const RunInfo info = sample_info();
  {
    Recorder recorder(file);
    recorder.begin(info);
    EXPECT_THROW(recorder.reduction(1, {.site = 6, .ranks = 2}), Error) << "no such site";
    EXPECT_THROW(recorder.ranks(2, {.ranks = 2}), Error) << "no such lane";
    recorder.reduction(1, {0, 4, 8, 100, 2, 0.25, 0.125, 700, 30});
    recorder.reduction(1, {0, 4, 2, 100, 0, kInf, 0.0, 100, 3});
    recorder.step(0, sample_step(0, 0), sample_all_stats(info, 0, 0));
    recorder.ranks(1, {0, 8, 3, 0.5});
    recorder.step(1, sample_step(1, 0), sample_all_stats(info, 1, 0));
    recorder.end(RunEnd::complete);
  }
  const RunView run = RunView::open(file);
  EXPECT_TRUE(run.reductions(0).empty());
  ASSERT_EQ(run.reductions(1).size(), 2u);
  const ReductionError &few = run.reductions(1)[0], &all = run.reductions(1)[1];
  EXPECT_EQ(few.ranks, 2);
  EXPECT_EQ(few.error, kInf);
  EXPECT_EQ(all.step, 0);
  EXPECT_EQ(all.site, 4);
  EXPECT_EQ(all.ranks, 8);
  EXPECT_EQ(all.n, 100);
  EXPECT_EQ(all.broken, 2);
  EXPECT_EQ(all.error, 0.25);
  EXPECT_EQ(all.stored, 0.125);
  EXPECT_EQ(all.additions, 700);
  EXPECT_EQ(all.swamped, 30);
  ASSERT_EQ(run.ranks(1).size(), 1u);
  EXPECT_EQ(run.ranks(1)[0].ranks, 8);
  EXPECT_EQ(run.ranks(1)[0].skipped, 3);
  EXPECT_EQ(run.ranks(1)[0].distance, 0.5);
}

TEST(Recorder, EveryNumberOfADeviationReadsBack) {
  const TemporaryFolder folder;
  Deviation full{.step = 2, .of = Deviation::Of::output, .name = "y", .n = 9, .broken = 1};
  double next = 0.5;
  for (double* number : {&full.error, &full.worst, &full.worst_channel, &full.differences,
                         &full.ratio, &full.spread, &full.worst_spread, &full.worst_channel_spread,
                         &full.differences_spread, &full.ratio_spread, &full.noise}) {
    *number = next++;
  }
  full.channel_axis = 2;
  full.channel = 7;
  const Deviation empty{.step = 2, .of = Deviation::Of::output, .name = "z", .n = 9};
  {
    Recorder recorder(folder / "run.hscope");
    recorder.begin(sample_info());
    recorder.deviation(1, full);
    recorder.deviation(1, empty);
    recorder.end(RunEnd::complete);
  }
  const RunView run = RunView::open(folder / "run.hscope");
  ASSERT_EQ(run.deviations(1).size(), 2u);
  const Deviation &read = run.deviations(1)[0], &none = run.deviations(1)[1];
  EXPECT_EQ(read.error, 0.5);
  EXPECT_EQ(read.worst, 1.5);
  EXPECT_EQ(read.worst_channel, 2.5);
  EXPECT_EQ(read.differences, 3.5);
  EXPECT_EQ(read.ratio, 4.5);
  EXPECT_EQ(read.spread, 5.5);
  EXPECT_EQ(read.worst_spread, 6.5);
  EXPECT_EQ(read.worst_channel_spread, 7.5);
  EXPECT_EQ(read.differences_spread, 8.5);
  EXPECT_EQ(read.ratio_spread, 9.5);
  EXPECT_EQ(read.noise, 10.5);
  EXPECT_EQ(read.channel_axis, 2);
  EXPECT_EQ(read.channel, 7);
  EXPECT_TRUE(std::isnan(none.worst_channel) && std::isnan(none.noise));
  EXPECT_EQ(none.channel_axis, -1);
  EXPECT_EQ(none.channel, -1);
}

TEST(Recorder, TheEndIsWrittenDown) {
  for (const auto& [how, status] : {std::pair(RunEnd::complete, RunStatus::complete),
                                    std::pair(RunEnd::interrupted, RunStatus::interrupted),
                                    std::pair(RunEnd::early_stop, RunStatus::early_stop)}) {
    const TemporaryFolder folder;
    Recorder recorder(folder / "run.hscope");
    MemorySink memory;
    for (TapSink* sink : std::initializer_list<TapSink*>{&memory, &recorder}) {
      sink->begin(sample_info());
      send_steps(*sink, sample_info(), 0, 1);
      sink->end(how);
    }
    EXPECT_EQ(RunView::open(folder / "run.hscope").status(), status);
    EXPECT_EQ(memory.view().status(), status);
  }
}

TEST(Recorder, AStepAndItsErrorsAreOneTransaction) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const RunInfo info = sample_info();
  Recorder recorder(file);
  recorder.begin(info);
  recorder.error(1, sample_error(1, 0, 1));
  EXPECT_TRUE(RunView::open(file).errors(1).empty());
  recorder.step(0, sample_step(0, 0), sample_all_stats(info, 0, 0));
  EXPECT_THROW(recorder.error(1, sample_error(1, 0, 0)), Error) << "in the middle of a step";
  EXPECT_TRUE(RunView::open(file).steps(0).empty()) << "half a step";
  EXPECT_TRUE(RunView::open(file).errors(1).empty());
  recorder.step(1, sample_step(1, 0), sample_all_stats(info, 1, 0));
  EXPECT_EQ(RunView::open(file).steps(0).size(), 1u);
  EXPECT_EQ(RunView::open(file).errors(1).size(), 1u);

  EXPECT_THROW(recorder.sums(1, sample_sums(1, 1, 6)), Error) << "no such site";
  EXPECT_THROW(recorder.sums(2, sample_sums(1, 1, 0)), Error) << "no such lane";
  EXPECT_THROW(recorder.kernel(1, sample_check(1, 1, 6)), Error) << "no such site";
  EXPECT_THROW(recorder.kernel(2, sample_check(1, 1, 0)), Error) << "no such lane";
  for (SiteError wrong : {sample_error(1, 1, 0), sample_error(1, 1, 1), sample_error(1, 1, 2)}) {
    (wrong.site == 0 ? wrong.other_lane : wrong.site == 1 ? wrong.other_site : wrong.site) = 6;
    EXPECT_THROW(recorder.error(1, wrong), Error);
  }
  EXPECT_THROW(recorder.error(0, sample_error(1, 1, 0)), Error) << "a lane against itself";
  recorder.error(1, sample_error(1, 7, 1));  // of another step than the one that follows
  EXPECT_THROW(send_steps(recorder, info, 1, 1), Error);
  EXPECT_EQ(RunView::open(file).steps(0).size(), 1u);
}

TEST(Recorder, ExtremeValuesReadBack) {
  const TemporaryFolder folder;
  RunInfo info = sample_info(3);
  info.lanes.resize(1);
  info.model = "";
  info.data = "a'b\"c\\\xc3\xa4";
  StepRow row;
  row.loss = kNan;
  row.loss_scale = 0x1p-1022;
  row.grad_norm = -kInf;
  row.ms = std::numeric_limits<double>::denorm_min();
  row.first_bad = 0;
  std::vector<TensorStats> stats(3);
  stats[0].n = int64_t{1} << 48;  // all non-finite: no magnitudes, empty histogram
  stats[0].nan = stats[0].n;
  stats[1].n = 277;
  stats[1].exponents.fill(1);
  stats[1].max_abs = std::numeric_limits<float>::max();
  stats[1].min_abs = std::numeric_limits<float>::denorm_min();
  stats[1].sum = std::numeric_limits<double>::max();
  stats[2].n = (int64_t{1} << 40) + 127;
  stats[2].exponents[276] = stats[2].n;

  MemorySink memory;
  Recorder recorder(folder / "run.hscope");
  for (TapSink* sink : std::initializer_list<TapSink*>{&memory, &recorder}) {
    sink->begin(info);
    sink->step(0, row, stats);
    row.step = 1;
    sink->step(0, row, {});  // not recorded
    row.step = 0;
    sink->eval(0, {2, 0.5, 0.75});
    sink->eval(0, {2, kInf, kNan});  // replaces it
    sink->end(RunEnd::interrupted);
  }
  const RunView run = RunView::open(folder / "run.hscope");
  expect_same_run(run, memory.view());
  EXPECT_EQ(run.status(), RunStatus::interrupted);
  EXPECT_EQ(run.windows(0, 0).size(), 1u);
  EXPECT_EQ(run.evals(0).size(), 1u);
}

TEST(Recorder, LeavesOnePlainFile) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "run.hscope");
  const RunInfo info = sample_info();
  recorder.begin(info);
  send_steps(recorder, info, 0, 2);
  EXPECT_TRUE(fs::exists(folder / "run.hscope-wal"));
  EXPECT_EQ(RunView::open(folder / "run.hscope").status(), RunStatus::running);
  recorder.end(RunEnd::complete);
  const auto files = std::distance(fs::directory_iterator(folder.path()), {});
  EXPECT_EQ(files, 1);
  // Bytes 18 and 19 of the header: 1 is a rollback journal, 2 is WAL.
  EXPECT_EQ(read_text(folder / "run.hscope").substr(18, 2), "\1\1");
}

/// The CREATE TABLE statements of `sql` with single blanks.
std::set<std::string> table_statements(const std::string& sql) {
  std::set<std::string> statements;
  std::istringstream parts(sql);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    std::string statement;
    for (std::string word; words >> word;) statement += (statement.empty() ? "" : " ") + word;
    if (!statement.empty()) statements.insert(statement);
  }
  return statements;
}

TEST(Recorder, SchemaIsTheContract) {
  const TemporaryFolder folder;
  { Recorder(folder / "run.hscope").begin(sample_info()); }
  const std::string section = contract_section("Run file");
  const size_t begin = section.find("```sql\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string sql = section.substr(begin + 7, section.find("```", begin + 7) - begin - 7);

  sqlite::Database database(folder / "run.hscope", sqlite::Access::read_only);
  const std::string created =
      database.query_text("SELECT group_concat(sql, ';') FROM sqlite_schema WHERE sql NOT NULL");
  EXPECT_EQ(table_statements(created), table_statements(sql));
  EXPECT_EQ(table_statements(sql).size(), 14u);

  EXPECT_THAT(section, HasSubstr("`application_id` is 0x48534350"));
  EXPECT_EQ(database.query_integer("PRAGMA application_id"), 0x48534350);
  EXPECT_THAT(section, HasSubstr("`user_version` is the schema version, 7."));
  EXPECT_EQ(database.query_integer("PRAGMA user_version"), 7);

  // The meta keys that the text lists are those of the file.
  const size_t keys_begin = section.find("**`meta`** has these keys:");
  const std::string keys = section.substr(keys_begin, section.find(".\n", keys_begin) - keys_begin);
  const std::vector<std::string> names = quoted_names(keys);
  std::set<std::string> listed(names.begin(), names.end());
  for (const char* not_a_key : {"meta", "running", "complete", "interrupted", "early_stop", "lane",
                                "step", "why", "kind", "inference", "evaluated", "accuracy",
                                "averages", "evals", "train --eval-ema", "observed"}) {
    listed.erase(not_a_key);
  }
  EXPECT_EQ(listed.erase("node_names"), 1u) << "a key of networks that are files";
  listed.erase("trials.N");
  EXPECT_EQ(listed.erase("trial"), 1u) << "a key of trials of a study";
  EXPECT_EQ(listed.erase("checksum"), 1u) << "a key of trials of a study";
  EXPECT_EQ(listed.erase("lost_lanes"), 1u) << "a key of runs that lost one, which this is not";
  std::set<std::string> stored;
  sqlite::Statement rows(database, "SELECT key FROM meta");
  while (rows.step()) stored.insert(rows.text(0));
  EXPECT_EQ(stored, listed);
}

TEST(Recorder, RefusesAnExistingFile) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_text(file, "precious");
  const Error error = error_of([&] { Recorder recorder(file); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_THAT(error.what(), HasSubstr(file.string()));
  EXPECT_THAT(error.hint(), HasSubstr("--force"));
  EXPECT_EQ(read_text(file), "precious");

  write_text(folder / "run.hscope-wal", "stale");
  {
    Recorder recorder(file, {.force = true});
    send_run(recorder, sample_info(), 1);
  }
  EXPECT_EQ(expect_whole_steps(RunView::open(file)), 1);
}

TEST(Recorder, RefusesASecondWriter) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const RunInfo info = sample_info();
  Recorder first(file);
  EXPECT_THROW(Recorder{file}, Error);
  first.begin(info);
  send_steps(first, info, 0, 2);
  const Error error = error_of([&] { Recorder second(file, {.force = true}); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_THAT(error.what(), HasSubstr("in use"));
  // Same from another process, whose locks are detected in another way.
  EXPECT_EQ(in_child([&] {
              try {
                Recorder second(file, {.force = true});
              } catch (const Error&) {
                return 3;
              }
              return 0;
            }),
            3);
  send_steps(first, info, 2, 2);
  first.end(RunEnd::complete);
  EXPECT_EQ(expect_whole_steps(RunView::open(file)), 4);
}

TEST(Recorder, WithoutEndTheRunIsInterrupted) {
  const TemporaryFolder folder;
  const RunInfo info = sample_info();
  {
    Recorder recorder(folder / "run.hscope");
    recorder.begin(info);
    send_steps(recorder, info, 0, 3);
    // Half a step: only one of the lanes.
    recorder.step(0, sample_step(0, 3), sample_all_stats(info, 0, 3));
  }
  const RunView run = RunView::open(folder / "run.hscope");
  EXPECT_EQ(run.status(), RunStatus::interrupted);
  EXPECT_EQ(expect_whole_steps(run), 3);
  EXPECT_FALSE(fs::exists(folder / "run.hscope-wal"));
}

TEST(Recorder, WithoutBeginTheFileGoesAway) {
  const TemporaryFolder folder;
  {
    Recorder recorder(folder / "run.hscope");
    EXPECT_TRUE(fs::exists(folder / "run.hscope"));
    const Error error = error_of([&] { RunView::open(folder / "run.hscope"); });
    EXPECT_THAT(error.what(), HasSubstr("does not contain a run yet"));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Recorder, ChecksItsCaller) {
  const TemporaryFolder folder;
  const RunInfo info = sample_info();
  Recorder recorder(folder / "run.hscope");
  EXPECT_THROW(recorder.step(0, {}, {}), Error);
  EXPECT_THROW(recorder.end(RunEnd::complete), Error);
  RunInfo wrong = info;
  wrong.lanes[0].sites[1].order = 7;
  EXPECT_THROW(recorder.begin(wrong), Error);
  EXPECT_THROW(RunView(wrong, RunStatus::running), Error);
  recorder.begin(info);
  EXPECT_THROW(recorder.begin(info), Error);
  EXPECT_THROW(recorder.step(1, {}, {}), Error);
  EXPECT_THROW(recorder.eval(2, {}), Error);
  EXPECT_THROW(recorder.step(0, {}, std::vector<TensorStats>(3)), Error);
  EXPECT_THROW(recorder.step(0, {.first_bad = 6}, {}), Error);
  send_steps(recorder, info, 0, 1);
  {
    Recorder other(folder / "other.hscope");
    other.begin(info);
    other.step(0, {.step = 3}, {});
    EXPECT_THROW(other.step(1, {.step = 4}, {}), Error) << "lanes in different steps";
  }
  // Sending the same step again is a caller's mistake; the file stays unchanged.
  EXPECT_THROW(send_steps(recorder, info, 0, 1), Error);
  EXPECT_THAT(error_of([&] { send_steps(recorder, info, 1, 1); }).what(),
              HasSubstr("earlier error"));
  EXPECT_EQ(expect_whole_steps(RunView::open(folder / "run.hscope")), 1);
}

TEST(Recorder, WrongNamesAreErrors) {
  const TemporaryFolder folder;
  EXPECT_THROW(Recorder(folder.path()), Error);
  EXPECT_THROW(Recorder(folder / "missing/run.hscope"), Error);
  EXPECT_THROW(Recorder(""), Error);
  EXPECT_THROW(Recorder("/dev/null"), Error);
  // Names that mean something else to SQLite.
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  for (const char* name : {":memory:", "file:a?mode=memory", "a%20b?c#d.hscope"}) {
    {
      Recorder recorder(name);
      send_run(recorder, sample_info(), 1);
    }
    EXPECT_TRUE(fs::exists(name));
    EXPECT_EQ(expect_whole_steps(RunView::open(name)), 1);
  }
  fs::current_path(before);
}

}  // namespace
}  // namespace halfscope
