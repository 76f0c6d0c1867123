// SPDX-License-Identifier: MIT
// `halfscope train`: lanes in lock step, recorded to a run file.
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <iostream>
#include <memory>
#include <set>

#include "analysis/output_file.h"
#include "analysis/recorder.h"
#include "cli/backends.h"
#include "cli/command.h"
#include "core/data/npz.h"
#include "core/error.h"
#include "core/train/trainer.h"
#include "emulation/isa.h"

namespace halfscope {
namespace {

std::atomic<bool> g_stop{false};

void on_signal(int) {
  // The second Ctrl-C ends the program the hard way; what was committed stays.
  if (g_stop.exchange(true)) std::_Exit(130);
}

struct Options {
  std::string model = "lenet", data = "digits", optimizer = "sgd", out = "run.hscope";
  std::string plan, accumulate, loss_scale, init, save_weights;
  std::string lanes = "float32,mixed_float16";
  std::vector<std::string> fp32;
  int64_t steps = 200, batch = 128;
  uint64_t seed = 1;
  double learning_rate = 0.0;
  int every = 1, threads = 0;
  bool no_shuffle = false, force = false, no_record = false, no_eval = false, quiet = false;
  bool lanes_given = false, rate_given = false;
  std::string command;
};

/// The items of a comma-separated list. Throws Error (usage) for an empty one.
std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> items;
  for (size_t start = 0; start <= list.size();) {
    const size_t comma = std::min(list.find(',', start), list.size());
    items.push_back(list.substr(start, comma - start));
    if (items.back().empty()) throw usage_error("--lanes " + list + ": an empty name", "write A,B without blanks");
    start = comma + 1;
  }
  return items;
}

std::vector<LaneConfig> lanes_of(const Options& options) {
  std::vector<std::string> names = split_list(options.lanes);
  if (!options.plan.empty()) {
    if (options.lanes_given) throw usage_error("--plan and --lanes exclude each other", "add the plan to --lanes");
    names = {"float32"};
    if (options.plan != "float32") names.push_back(options.plan);
  }
  std::optional<Accumulation> accumulation;
  if (!options.accumulate.empty()) {
    accumulation = parse_accumulation(options.accumulate);
    if (!accumulation) {
      throw usage_error("unknown accumulation " + options.accumulate, "use fp32, fp64 or format");
    }
  }
  std::vector<LaneConfig> lanes;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    LaneConfig lane;
    lane.plan = load_plan(name);
    const bool reference = is_full_precision(lane.plan);
    if (!reference) {
      for (const std::string& glob : options.fp32) keep_fp32(lane.plan, glob);
      if (!options.fp32.empty()) lane.plan.name += "+fp32";
      if (accumulation) accumulate_in(lane.plan, *accumulation);
    }
    if (!options.loss_scale.empty()) {
      const LossScalerConfig scaler = parse_loss_scale(options.loss_scale);
      if (!reference) lane.scaler = scaler;
    } else if (needs_loss_scaling(lane.plan)) {
      lane.scaler = parse_loss_scale("dynamic");
    }
    if (!seen.insert(lane.plan.name).second) {
      throw usage_error("two lanes are named " + lane.plan.name, "give every lane's plan its own name");
    }
    lane.backend = &backend_for(lane.plan);
    lanes.push_back(std::move(lane));
  }
  const bool only_references =
      std::all_of(lanes.begin(), lanes.end(), [](const LaneConfig& lane) { return is_full_precision(lane.plan); });
  if (only_references && (!options.fp32.empty() || accumulation)) {
    throw usage_error("--fp32 and --accumulate need a lane that is not a reference", "add a plan to --lanes");
  }
  return lanes;
}

/// CLI11's own checks print the largest double in full.
CLI::Validator number_check(bool (*holds)(double), const char* text) {
  return CLI::Validator([holds, text](std::string& value) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    return *end == '\0' && holds(number) ? "" : value + " is not " + text;
  }, "");
}
CLI::Validator positive() {
  return number_check([](double x) { return x > 0.0 && x <= 1e15; }, "a positive number up to 1e15");
}
CLI::Validator not_negative() {
  return number_check([](double x) { return x >= 0.0 && x <= 3.4e38; }, "a number >= 0");
}
CLI::Validator seed_number() {
  return number_check([](double x) { return x >= 0.0 && x <= 4294967295.0; }, "a number from 0 to 4294967295");
}
CLI::Validator thread_count() {
  return number_check([](double x) { return x >= 1.0 && x <= 1024.0; }, "a number from 1 to 1024");
}

/// Draws one line over and over on a terminal; stays silent in a pipe.
class ProgressLine {
 public:
  ProgressLine(int64_t steps, const RunInfo& info, bool quiet)
      : steps_(steps), info_(info), active_(!quiet && isatty(STDERR_FILENO) != 0),
        start_(Clock::now()), last_(start_ - std::chrono::hours(1)) {}
  ~ProgressLine() {
    if (active_) std::cerr << "\r\033[K" << std::flush;
  }
  void operator()(const std::vector<StepRow>& rows) {
    if (!active_) return;
    const Clock::time_point now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const double done = static_cast<double>(rows[0].step + 1);
    const double seconds = std::chrono::duration<double>(now - start_).count();
    std::string line = fmt::format("\r\033[Kstep {}/{}  {:.1f} steps/s  {:.0f} s left", rows[0].step + 1, steps_,
                                   done / seconds, seconds / done * (static_cast<double>(steps_) - done));
    for (size_t i = 0; i < rows.size(); ++i) {
      line += fmt::format("  {} {:.4f}", info_.lanes[i].name, rows[i].loss);
    }
    std::cerr << line << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t steps_;
  const RunInfo& info_;
  bool active_;
  Clock::time_point start_, last_;
};

/// Passes everything on and remembers what the closing table needs.
class Summary final : public TapSink {
 public:
  explicit Summary(TapSink& next) : next_(next) {}
  void begin(const RunInfo& run) override {
    lanes_.resize(run.lanes.size());
    next_.begin(run);
  }
  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override {
    Totals& totals = lanes_[static_cast<size_t>(lane)];
    totals.last = row;
    totals.skipped += row.skipped ? 1 : 0;
    totals.ms += row.ms;
    next_.step(lane, row, stats);
  }
  void eval(int lane, const EvalRow& row) override {
    lanes_[static_cast<size_t>(lane)].eval = row;
    next_.eval(lane, row);
  }
  void end(bool interrupted) override { next_.end(interrupted); }

  void print(const RunInfo& run) const {
    size_t width = 4;
    for (const LaneInfo& lane : run.lanes) width = std::max(width, lane.name.size());
    fmt::print("{:<{}}  {:>6} {:>9} {:>9} {:>10} {:>9} {:>9} {:>8}\n", "lane", width, "steps", "last loss",
               "skipped", "loss scale", "test loss", "test acc", "ms/step");
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const Totals& t = lanes_[i];
      const double steps = static_cast<double>(t.last.step + 1);
      const std::string accuracy = t.eval ? fmt::format("{:.2f}%", 100.0 * t.eval->accuracy) : "-";
      fmt::print("{:<{}}  {:>6} {:>9} {:>9} {:>10} {:>9} {:>9} {:>8}\n", run.lanes[i].name, width,
                 t.last.step + 1, table_number(t.last.loss), t.skipped, table_number(t.last.loss_scale),
                 t.eval ? table_number(t.eval->loss) : "-", accuracy, table_number(t.ms / steps));
    }
  }

 private:
  struct Totals {
    StepRow last{.step = -1};
    int64_t skipped = 0;
    double ms = 0.0;
    std::optional<EvalRow> eval;
  };
  TapSink& next_;
  std::vector<Totals> lanes_;
};

int train(const Options& options) {
  TrainConfig config;
  config.model = options.model;
  config.optimizer = parse_optimizer(options.optimizer);
  if (options.rate_given) config.optimizer.learning_rate = options.learning_rate;
  config.batch = options.batch;
  config.steps = options.steps;
  config.seed = options.seed;
  config.shuffle = !options.no_shuffle;
  config.every = options.no_record ? 0 : options.every;
  config.evaluate = !options.no_eval;
  config.lanes = lanes_of(options);
  active_isa();  // a bad HALFSCOPE_ISA shows before the work
  check_output_file(options.out, options.force);
  check_distinct({options.out, options.save_weights});
  if (!options.save_weights.empty()) check_output_file(options.save_weights, options.force);
  if (!options.init.empty()) config.init = read_npz(options.init);
  if (options.threads > 0) omp_set_num_threads(options.threads);

  const Dataset data = load_dataset(options.data);
  Trainer trainer(config, data);
  RunInfo info = trainer.describe();
  info.data = options.data;
  info.command = options.command;
  info.version = kVersion;
  info.threads = omp_get_max_threads();
  info.isa = isa_name(active_isa());

  Recorder recorder(options.out, {.force = options.force});
  Summary summary(recorder);
  summary.begin(info);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  {
    ProgressLine progress(config.steps, info, options.quiet);
    trainer.run(&summary, std::ref(progress), g_stop);
  }
  if (!options.save_weights.empty()) {
    write_npz(options.save_weights, trainer.weights(static_cast<int>(config.lanes.size()) - 1));
  }
  if (!options.quiet) {
    summary.print(info);
    if (g_stop) fmt::print("stopped early; what was recorded is in the run file\n");
    fmt::print("run file: {}\nnext: halfscope report {} --html report.html\n", options.out, options.out);
  }
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Command& command, const std::string& command_line) {
  auto options = std::make_shared<Options>();
  options->command = command_line;
  CLI::App* sub = app.add_subcommand("train", "Train lanes in lock step and record them");
  sub->footer("Example:  halfscope train --model lenet-hot --lanes float32,mixed_float16 --out hot.hscope");
  sub->add_option("--model", options->model, "lenet, lenet-hot or mlp:A-B-...-Z")->capture_default_str();
  sub->add_option("--data", options->data, "digits (embedded) or mnist:DIR")->capture_default_str();
  CLI::Option* lanes = sub->add_option("--lanes", options->lanes, "Plans to train, presets or files, separated by commas")
                           ->capture_default_str();
  sub->add_option("--plan", options->plan, "Short for --lanes float32,PLAN");
  sub->add_option("--fp32", options->fp32, "Keep nodes whose path matches this glob in fp32; may be repeated")
      ->take_all();
  sub->add_option("--accumulate", options->accumulate, "fp32, fp64 or format; default: the plan's");
  sub->add_option("--loss-scale", options->loss_scale,
                  "dynamic[:INIT], static:X or none; default: dynamic for narrow exponents");
  sub->add_option("--steps", options->steps, "Optimizer steps")->capture_default_str()->check(positive());
  sub->add_option("--batch", options->batch, "Samples per step")->capture_default_str()->check(positive());
  sub->add_option("--optimizer", options->optimizer,
                  "sgd[:momentum=M,weight_decay=W] or adam[:beta1=,beta2=,eps=,weight_decay=]")
      ->capture_default_str();
  CLI::Option* rate = sub->add_option("--lr", options->learning_rate,
                                      "Learning rate; default 0.1 for sgd, 0.001 for adam")
                          ->check(not_negative());
  sub->add_option("--seed", options->seed, "Initial weights and shuffling")
      ->capture_default_str()->check(seed_number());
  sub->add_flag("--no-shuffle", options->no_shuffle, "Take samples in file order");
  sub->add_option("--init", options->init, "Initial weights, an .npz by variable path");
  sub->add_option("--save-weights", options->save_weights, "Write the last lane's weights to this .npz");
  sub->add_option("--out", options->out, "Run file")->capture_default_str();
  sub->add_flag("--force", options->force, "Replace existing output files");
  sub->add_flag("--no-record", options->no_record, "No statistics");
  sub->add_option("--every", options->every, "Record statistics every N steps")
      ->capture_default_str()->check(positive());
  sub->add_flag("--no-eval", options->no_eval, "No evaluation on the test part");
  sub->add_option("--threads", options->threads, "Threads; results do not depend on it")
      ->check(thread_count());
  sub->add_flag("--quiet", options->quiet, "No progress, no closing table");
  sub->callback([=, &command] {
    options->lanes_given = lanes->count() > 0;
    options->rate_given = rate->count() > 0;
    command = [options] { return train(*options); };
  });
}

}  // namespace halfscope
