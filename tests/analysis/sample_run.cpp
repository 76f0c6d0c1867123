// SPDX-License-Identifier: MIT
#include "tests/analysis/sample_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "analysis/recorder.h"

namespace halfscope::test {

namespace fs = std::filesystem;

RunInfo sample_info(int sites) {
  static constexpr Role kRoles[] = {Role::input,           Role::activation,  Role::weight,
                                    Role::activation_grad, Role::weight_grad, Role::update};
  RunInfo info;
  info.model = "mlp:64-32-10";
  info.data = "digits";
  info.optimizer = "sgd:momentum=0.9";
  info.command = "halfscope train --model \"mlp:64-32-10\"";
  info.settings = {"--model", "mlp:64-32-10", "--fp32", "conv \"1\" \xc3\xa4"};
  info.batch = 128;
  info.steps_planned = 200;
  info.classes = 10;
  info.train_samples = 1500;
  info.test_samples = 297;
  info.seed = 0xfedcba9876543210;  // does not fit into a signed integer
  info.threads = 8;
  info.every = 1;
  info.isa = "avx2";
  info.version = "0.1.0";
  for (const char* name : {"float32", "mixed_float16"}) {
    const FloatFormat format = info.lanes.empty() ? kFp32 : kFp16;
    LaneInfo lane;
    lane.name = name;
    lane.backend = "emulated";
    lane.plan_json = fmt::format(R"({{"schema": "halfscope.plan/1", "name": "{}"}})", name);
    lane.loss_scale = info.lanes.empty() ? "none" : "dynamic:65536";
    lane.layers.push_back({"fc1", "Gemm", {"input"}, format, format, false, 64 * 32 + 32});
    lane.layers.push_back({"relu1", "Relu", {"fc1"}, format, format, true, 0});
    for (int i = 0; i < sites; ++i) {
      SiteInfo site;
      site.path = fmt::format("block{}/fc{}", i / 4, i);
      site.role = kRoles[i % 6];
      site.tensor = role_name(site.role);
      site.phase = i % 6 < 3 ? Phase::forward : i % 6 < 5 ? Phase::backward : Phase::update;
      site.op = "Gemm";
      site.format = i % 6 == 5 ? kFp32 : format;
      site.shape = i == 1 ? Shape{} : Shape{128, 32 + i};
      site.order = i;
      lane.sites.push_back(site);
    }
    info.lanes.push_back(lane);
  }
  return info;
}

StepRow sample_step(int lane, int64_t step) {
  StepRow row;
  row.step = step;
  row.loss = 2.3 / (1.0 + 0.1 * static_cast<double>(step)) + lane;
  row.loss_scale = lane == 0 ? 1.0 : 65536.0;
  if (step != 3) row.learning_rate = 0.1 / static_cast<double>(step + 1);  // step 3: not known
  row.skipped = lane == 1 && step == 2;
  row.grad_norm = row.skipped ? std::numeric_limits<double>::infinity() : 0.1 + lane;
  if (step != 1) row.accuracy = 0.5;  // step 1: not measured
  row.ms = 1.25;
  row.first_bad = row.skipped ? 3 : -1;
  return row;
}

TensorStats sample_stats(int lane, int64_t step, int site) {
  TensorStats stats;
  if (lane == 1 && step == 2 && site == 5) return stats;  // an update of a skipped step
  const uint64_t key = static_cast<uint64_t>(step * 1000 + lane * 100 + site);
  for (int bin = 100; bin < 100 + 30; ++bin) {
    const uint64_t mixed = (key + static_cast<uint64_t>(bin)) * 0x9e3779b97f4a7c15u;
    const int64_t count = static_cast<int64_t>(mixed >> (40 + bin % 20));
    stats.exponents[static_cast<size_t>(bin)] = count;
    stats.n += count;
  }
  stats.zero = 3;
  stats.pos_inf = lane;
  stats.neg_inf = 2 * lane;
  stats.nan = site;
  stats.n += stats.zero + stats.non_finite();
  stats.overflow = 4;
  stats.underflow = 5;
  stats.subnormal = 6;
  stats.lost = site == 5 ? 7 : 0;
  stats.max_abs = std::ldexp(1.0f + 0.1f * static_cast<float>(site), -20);
  stats.min_abs = std::numeric_limits<float>::denorm_min();
  stats.sum = -0.1 * static_cast<double>(key);
  stats.sum_sq = 1.0 / (1.0 + static_cast<double>(key));
  return stats;
}

bool has_errors(int lane, int64_t step, int site) { return lane == 1 && step % 4 == 0 && site < 3; }

SiteError sample_error(int lane, int64_t step, int site) {
  SiteError error;
  error.step = step;
  error.site = site;
  error.other_lane = lane - 1;
  error.other_site = 2 - site;
  error.n = 1000 + step;
  error.differing = error.n - 1;
  error.sign_flips = site;
  error.total = 0.1 * (site + 1);
  error.max_ulps = site == 2 ? std::numeric_limits<double>::infinity() : 3.0;
  if (site > 0) {  // site 0: not measured
    error.local_fp32 = 1e-3;
    error.local_fp64 = 2e-3;
    error.inherited = std::numeric_limits<double>::denorm_min();
  }
  error.ulps[0] = 1;
  error.ulps[7] = error.n - 3;
  error.ulps[SiteError::kBins - 1] = 2;
  return error;
}

KernelCheck sample_check(int lane, int64_t step, int site) {
  if (site == 0) return {.step = step, .site = site, .n = 40 + step};  // all equal
  return {.step = step,
          .site = site,
          .n = 1000 + step,
          .differing = 10 * (lane + 1),
          .max_ulps = 2.0 * site,
          .worst = 7 + step,
          .beyond = site - 1,
          .kernel = "library 1." + std::to_string(lane),
          .order = "tensor-core:h100",
          .sampled = 500 + step,
          .explained = 400 + step,
          .unexplained = site == 2 ? "results change from run to run" : ""};
}

SiteSums sample_sums(int lane, int64_t step, int site) {
  SiteSums row{.step = step, .site = site, .layer = "layer" + std::to_string(site)};
  row.accumulation =
      parse_accumulation("format:rounding=up,promote=" + std::to_string(lane + 2)).value();
  row.counts = {
      .sums = 10 + site, .products = 1000 + step, .swamped = 7 * site, .largest = 0x1.8p-30};
  if (site % 2 != 0) {
    row.counts.overflowed = site;
    row.counts.first_overflow = step;
  }
  return row;
}

std::vector<TensorStats> sample_all_stats(const RunInfo& info, int lane, int64_t step) {
  std::vector<TensorStats> stats;
  for (const SiteInfo& site : info.lanes[static_cast<size_t>(lane)].sites) {
    stats.push_back(sample_stats(lane, step, site.order));
  }
  return stats;
}

void send_steps(TapSink& sink, const RunInfo& info, int64_t first, int64_t count) {
  const int lanes = static_cast<int>(info.lanes.size());
  for (int64_t step = first; step < first + count; ++step) {
    for (int lane = 0; lane < lanes; ++lane) {
      // In any order: here from the last site to the first.
      const auto sites = static_cast<int>(info.lanes[static_cast<size_t>(lane)].sites.size());
      for (int site = sites - 1; site >= 0; --site) {
        if (has_errors(lane, step, site)) sink.error(lane, sample_error(lane, step, site));
        if (has_errors(lane, step, site)) sink.sums(lane, sample_sums(lane, step, site));
        if (has_errors(lane, step, site)) sink.kernel(lane, sample_check(lane, step, site));
      }
    }
    for (int lane = 0; lane < lanes; ++lane) {
      sink.step(lane, sample_step(lane, step), sample_all_stats(info, lane, step));
    }
  }
}

void send_run(TapSink& sink, const RunInfo& info, int64_t steps, bool interrupted) {
  sink.begin(info);
  send_steps(sink, info, 0, steps);
  for (int lane = 0; lane < static_cast<int>(info.lanes.size()); ++lane) {
    sink.eval(lane, {steps, 0.25, 0.9});
  }
  sink.end(interrupted ? RunEnd::interrupted : RunEnd::complete);
}

namespace {

bool same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

}  // namespace

bool same(const SiteSums& a, const SiteSums& b) {
  return a.step == b.step && a.site == b.site && a.layer == b.layer &&
         a.accumulation == b.accumulation && a.counts == b.counts;
}

bool same(const KernelCheck& a, const KernelCheck& b) {
  return a.step == b.step && a.site == b.site && a.n == b.n && a.differing == b.differing &&
         same(a.max_ulps, b.max_ulps) && a.worst == b.worst && a.beyond == b.beyond &&
         a.kernel == b.kernel && a.order == b.order && a.sampled == b.sampled &&
         a.explained == b.explained && a.unexplained == b.unexplained;
}

bool same(const SiteError& a, const SiteError& b) {
  return a.step == b.step && a.site == b.site && a.other_lane == b.other_lane &&
         a.other_site == b.other_site && a.n == b.n && a.differing == b.differing &&
         a.sign_flips == b.sign_flips && same(a.total, b.total) && same(a.max_ulps, b.max_ulps) &&
         same(a.local_fp32, b.local_fp32) && same(a.local_fp64, b.local_fp64) &&
         same(a.inherited, b.inherited) && a.ulps == b.ulps;
}

std::vector<StatsWindow> unpacked(const WindowRange& windows) {
  return {windows.begin(), windows.end()};
}

bool same(const StepRow& a, const StepRow& b) {
  return a.step == b.step && same(a.loss, b.loss) && same(a.loss_scale, b.loss_scale) &&
         a.skipped == b.skipped && same(a.learning_rate, b.learning_rate) &&
         same(a.grad_norm, b.grad_norm) && same(a.accuracy, b.accuracy) && same(a.ms, b.ms) &&
         a.first_bad == b.first_bad;
}

namespace {

using test::same;  // beside the ones below

bool same(const LayerInfo& a, const LayerInfo& b) {
  return a.path == b.path && a.op == b.op && a.inputs == b.inputs && a.read == b.read &&
         a.write == b.write && a.follows == b.follows && a.parameters == b.parameters;
}

bool same(const SiteInfo& a, const SiteInfo& b) {
  return a.path == b.path && a.tensor == b.tensor && a.role == b.role && a.phase == b.phase &&
         a.op == b.op && a.format == b.format && a.shape == b.shape && a.order == b.order;
}

bool same(const EvalRow& a, const EvalRow& b) {
  return a.step == b.step && same(a.loss, b.loss) && same(a.accuracy, b.accuracy);
}

bool same(const StatsWindow& a, const StatsWindow& b) {
  return a.step == b.step && a.step_count == b.step_count && a.stats == b.stats;
}

template <typename Rows>
void expect_same_rows(const char* what, const Rows& actual, const Rows& expected) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(same(actual[i], expected[i])) << what << " " << i;
  }
}

}  // namespace

void expect_same_run(const RunView& actual, const RunView& expected) {
  const RunInfo& a = actual.info();
  const RunInfo& b = expected.info();
  EXPECT_EQ(actual.status(), expected.status());
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.data, b.data);
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.command, b.command);
  EXPECT_EQ(a.settings, b.settings);
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.steps_planned, b.steps_planned);
  EXPECT_EQ(a.classes, b.classes);
  EXPECT_EQ(a.train_samples, b.train_samples);
  EXPECT_EQ(a.test_samples, b.test_samples);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.threads, b.threads);
  EXPECT_EQ(a.every, b.every);
  EXPECT_EQ(a.isa, b.isa);
  EXPECT_EQ(a.version, b.version);
  ASSERT_EQ(actual.lane_count(), expected.lane_count());
  for (int lane = 0; lane < actual.lane_count(); ++lane) {
    EXPECT_EQ(actual.lane(lane).name, expected.lane(lane).name);
    EXPECT_EQ(actual.lane(lane).backend, expected.lane(lane).backend);
    EXPECT_EQ(actual.lane(lane).plan_json, expected.lane(lane).plan_json);
    EXPECT_EQ(actual.lane(lane).loss_scale, expected.lane(lane).loss_scale);
    expect_same_rows("layer", actual.lane(lane).layers, expected.lane(lane).layers);
    expect_same_rows("site", actual.lane(lane).sites, expected.lane(lane).sites);
    expect_same_rows("step", actual.steps(lane), expected.steps(lane));
    expect_same_rows("eval", actual.evals(lane), expected.evals(lane));
    expect_same_rows("error", actual.errors(lane), expected.errors(lane));
    expect_same_rows("sums", actual.sums(lane), expected.sums(lane));
    expect_same_rows("kernel", actual.kernels(lane), expected.kernels(lane));
    EXPECT_EQ(actual.proof(lane), expected.proof(lane));
    for (const SiteInfo& site : expected.lane(lane).sites) {
      expect_same_rows(site.path.c_str(), unpacked(actual.windows(lane, site.order)),
                       unpacked(expected.windows(lane, site.order)));
      EXPECT_EQ(actual.total(lane, site.order), expected.total(lane, site.order));
    }
  }
}

int64_t expect_whole_steps(const RunView& run) {
  const auto steps = static_cast<int64_t>(run.steps(0).size());
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    EXPECT_EQ(static_cast<int64_t>(run.steps(lane).size()), steps) << "lane " << lane;
    int64_t step = 0;
    for (const StepRow& row : run.steps(lane)) {
      EXPECT_TRUE(same(row, sample_step(lane, step))) << "lane " << lane << " step " << step;
      ++step;
    }
    for (const SiteInfo& site : run.lane(lane).sites) {
      std::vector<StatsWindow> expected;
      for (step = 0; step < steps; ++step) {
        const TensorStats stats = sample_stats(lane, step, site.order);
        if (stats.n > 0) expected.push_back({step, 1, stats});
      }
      expect_same_rows("window", unpacked(run.windows(lane, site.order)), expected);
    }
    std::vector<SiteError> errors;
    std::vector<SiteSums> sums;
    std::vector<KernelCheck> checks;
    for (step = 0; step < steps; ++step) {
      for (const SiteInfo& site : run.lane(lane).sites) {
        if (!has_errors(lane, step, site.order)) continue;
        errors.push_back(sample_error(lane, step, site.order));
        sums.push_back(sample_sums(lane, step, site.order));
        checks.push_back(sample_check(lane, step, site.order));
      }
    }
    expect_same_rows("error", run.errors(lane), std::span<const SiteError>(errors));
    expect_same_rows("sums", run.sums(lane), std::span<const SiteSums>(sums));
    expect_same_rows("kernel", run.kernels(lane), std::span<const KernelCheck>(checks));
  }
  return steps;
}

int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    int code = 250;
    try {
      code = work();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return 1000 + WTERMSIG(status);
  return WEXITSTATUS(status) == 250 ? 2000 : WEXITSTATUS(status);
}

int in_unprivileged_child(const std::function<int()>& work) {
  return in_child([&work] {
    constexpr uid_t kNobody = 65534;
    const bool root = ::geteuid() == 0;
    if (root && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) return 77;
    return work();
  });
}

void write_killed_run(const fs::path& file, int64_t steps) {
  const int code = in_child([&] {
    Recorder recorder(file);
    const RunInfo info = sample_info();
    recorder.begin(info);
    send_steps(recorder, info, 0, steps);
    ::raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(code, 1000 + SIGKILL);
}

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string contract_section(const std::string& title) {
  const fs::path folder = fs::path(HALFSCOPE_SOURCE_DIR) / "docs" / "reference";
  const std::string text = read_text(folder / "files.md") + read_text(folder / "csv.md");
  const std::string heading = "\n## " + title + "\n";
  const size_t begin = text.find(heading);
  if (begin == std::string::npos) return "";
  const size_t end = text.find("\n## ", begin + heading.size());
  return text.substr(begin + heading.size(), end - begin - heading.size());
}

std::vector<std::string> quoted_names(const std::string& markdown) {
  std::vector<std::string> names;
  for (size_t open = markdown.find('`'); open != std::string::npos;) {
    const size_t close = markdown.find('`', open + 1);
    if (close == std::string::npos) break;
    const std::string name = markdown.substr(open + 1, close - open - 1);
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos) {
      names.push_back(name);
    }
    open = markdown.find('`', close + 1);
  }
  return names;
}

}  // namespace halfscope::test
