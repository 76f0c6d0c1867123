// SPDX-License-Identifier: MIT
// A small made-up run for the tests of the run file: two lanes, a few sites of every role, and
// statistics that depend only on (lane, step, site), so that any reader can check them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "analysis/run_view.h"
#include "core/observe/recording.h"
#include "tests/support/text_file.h"
#include "tests/temporary_folder.h"

namespace halfscope::test {

/// Two lanes, "float32" and "mixed_float16", with `sites` sites each.
RunInfo sample_info(int sites = 6);
StepRow sample_step(int lane, int64_t step);
TensorStats sample_stats(int lane, int64_t step, int site);
/// Steps divisible by four compare the first sites of lane 1 with those of lane 0.
bool has_errors(int lane, int64_t step, int site);
SiteError sample_error(int lane, int64_t step, int site);
SiteSums sample_sums(int lane, int64_t step, int site);
KernelCheck sample_check(int lane, int64_t step, int site);
/// One entry per site of the lane.
std::vector<TensorStats> sample_all_stats(const RunInfo& info, int lane, int64_t step);

/// Gives the sink the steps [first, first + count) of all lanes.
void send_steps(TapSink& sink, const RunInfo& info, int64_t first, int64_t count);
/// begin, `steps` steps, one evaluation per lane, end.
void send_run(TapSink& sink, const RunInfo& info, int64_t steps, bool interrupted = false);

bool same(const StepRow& a, const StepRow& b);
bool same(const SiteError& a, const SiteError& b);
bool same(const KernelCheck& a, const KernelCheck& b);
bool same(const SiteSums& a, const SiteSums& b);
/// All windows of a site, unpacked.
std::vector<StatsWindow> unpacked(const WindowRange& windows);
/// Google Test expectations: the same in every field, NaN equal to NaN.
void expect_same_run(const RunView& actual, const RunView& expected);
/// Expects that all lanes have the same steps 0, 1, ... with all rows as sent by send_steps.
/// Returns the number of steps.
int64_t expect_whole_steps(const RunView& run);

/// Runs `work` in a forked process and returns what it returns; 1000 + signal if it was killed,
/// 2000 if an exception left it.
int in_child(const std::function<int()>& work);

/// Same as in_child, but as a user other than root, so that permissions apply.
int in_unprivileged_child(const std::function<int()>& work);

/// Records `steps` steps and dies by SIGKILL, which leaves the -wal and -shm files.
void write_killed_run(const std::filesystem::path& file, int64_t steps);

std::string read_text(const std::filesystem::path& file);

/// Returns the section `## TITLE` of docs/reference/files.md or csv.md.
std::string contract_section(const std::string& title);
/// Returns the words between backquotes that consist of a-z and _, in order: `step` but not `exit
/// 2`.
std::vector<std::string> quoted_names(const std::string& markdown);

}  // namespace halfscope::test
