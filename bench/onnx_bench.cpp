// SPDX-License-Identifier: MIT
// Memory and time for networks from ONNX files, as ratios within one run.
//   onnx_bench [FILE.onnx [--batch N] [--loss LOSS]] [--threads N] [--rounds R]
// Memory: the peak of a process that imports a file and runs or trains lanes of it, relative to the
// bytes that the lanes themselves need (weights, states, gradients, and all computed values). Each
// line is a separate process. Without a file, a perceptron of 134 MB is exported.
// Time: a training step of a network with dilated convolutions and upsampling, and the same step
// recorded and compared in two lanes, relative to its multiply-adds at the rate of a large matrix
// product.
#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/other_program.h"
#include "core/error.h"
#include "core/lower/execution.h"
#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"
#include "core/observe/null_sink.h"
#include "core/onnx/export.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "core/train/runner.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"
#include "emulation/gemm/gemm.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

struct Settings {
  std::string file, loss = "mse";
  int64_t batch = 1;
  int threads = 2, rounds = 3;
};

float number(uint64_t i) { return static_cast<float>(splitmix64(i) >> 40) * 0x1p-23f - 1.0f; }

/// Returns the bytes that a backend has to keep for a lane: all values of its graph that do not
/// share another's memory.
int64_t lane_bytes(const Executable& executable) {
  const std::map<ValueId, ValueId> aliases = memory_aliases(executable.graph);
  std::vector<bool> used(executable.graph.values().size(), false);
  const auto use = [&](ValueId value) {
    if (value != kNone && !aliases.contains(value)) used[static_cast<size_t>(value)] = true;
  };
  for (const Variable& variable : executable.graph.variables()) use(variable.value);
  for (const std::vector<NodeId>& entry : executable.entries) {
    for (const NodeId id : entry) {
      for (const ValueId value : executable.graph.node(id).inputs) use(value);
      for (const ValueId value : executable.graph.node(id).outputs) use(value);
    }
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) bytes += 4 * element_count(executable.graph.values()[i].shape);
  }
  return bytes;
}

/// Returns samples for every input of the network: numbers, and index 0.
Dataset samples_for(const Graph& graph, int64_t samples) {
  Dataset data;
  data.name = "numbers";
  for (const Input& input : graph.inputs()) {
    const Value& value = graph.value(input.value);
    const int64_t count = element_count(value.shape);
    SampleArray array{.name = input.name, .sample_shape = {}, .samples = samples};
    array.sample_shape.assign(value.shape.begin() + 1, value.shape.end());
    if (value.shape[0] != samples) array.sample_shape = {count / samples};
    if (value.type == ElementType::index) {
      array.integers.assign(static_cast<size_t>(count), 0);
    } else {
      for (int64_t i = 0; i < count; ++i) array.reals.push_back(number(static_cast<uint64_t>(i)));
    }
    data.train.arrays.push_back(std::move(array));
  }
  data.test = data.train;
  return data;
}

std::vector<LaneConfig> lanes_named(const std::vector<std::string>& plans) {
  std::vector<LaneConfig> lanes;
  for (const std::string& name : plans) {
    lanes.push_back({*preset_plan(name), {}, &emulation_backend()});
    if (needs_loss_scaling(lanes.back().plan)) lanes.back().scaler = parse_loss_scale("dynamic");
  }
  return lanes;
}

TrainConfig training(const std::function<Model()>& build, const std::vector<std::string>& plans,
                     const std::string& optimizer, int64_t batch, int64_t steps) {
  TrainConfig config;
  config.build = [build](int64_t) { return build(); };
  config.optimizer = parse_optimizer(optimizer);
  config.batch = batch;
  config.steps = steps;
  config.every = 0;
  config.evaluate = false;
  config.lanes = lanes_named(plans);
  return config;
}

Model with_loss(const Settings& settings) {
  Model model = read_onnx(settings.file, {.batch = settings.batch}).model;
  add_loss(model, parse_loss(settings.loss));
  return model;
}

/// Memory that some work needs for its own data, and the peak of its process, in bytes.
struct Memory {
  int64_t needed = 0, taken = 0;
};

/// Runs `work` in a separate process.
Memory measured(const std::function<int64_t()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw Error("cannot create a pipe");
  const pid_t child = fork();
  if (child == 0) {
    int64_t needed = -1;
    try {
      needed = work();
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    _exit(write(ends[1], &needed, sizeof needed) == sizeof needed ? 0 : 1);
  }
  close(ends[1]);
  Memory memory;
  if (read(ends[0], &memory.needed, sizeof memory.needed) != sizeof memory.needed) {
    memory.needed = -1;
  }
  close(ends[0]);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  memory.taken = int64_t{1024} * usage.ru_maxrss;
  return memory;
}

int64_t import_alone(const Settings& settings) {
  const Model model = read_onnx(settings.file, {.batch = settings.batch}).model;
  int64_t bytes = 0;
  for (const auto& [path, tensor] : model.initial) {
    bytes += static_cast<int64_t>(tensor.data.size() * sizeof(float));
  }
  return bytes;
}

int64_t run_once(const Settings& settings) {
  Model model = read_onnx(settings.file, {.batch = settings.batch}).model;
  const Dataset data = samples_for(model.graph, settings.batch);
  const int64_t needed = lane_bytes(lower_inference(model, *preset_plan("float32")));
  RunnerConfig config;
  config.lanes = lanes_named({"float32"});
  Runner runner(std::move(model), config, data);
  const std::atomic<bool> stop{false};
  runner.run(
      nullptr, [](const std::vector<StepRow>&) {}, stop);
  return needed;
}

int64_t train_twice(const Settings& settings, const std::vector<std::string>& plans,
                    const std::string& optimizer) {
  Dataset data;
  int64_t needed = 0;
  const auto build = [&] {
    Model model = with_loss(settings);
    const TrainingSpec spec{.optimizer = parse_optimizer(optimizer)};
    for (const std::string& plan : plans) {
      needed += lane_bytes(lower(model, *preset_plan(plan), spec));
    }
    return model;
  };
  {
    Model model = with_loss(settings);
    data = samples_for(model.graph, settings.batch);
  }
  Trainer trainer(training(build, plans, optimizer, settings.batch, 2), data);
  const std::atomic<bool> stop{false};
  trainer.run(
      nullptr, [](const std::vector<StepRow>&) {}, stop);
  return needed;
}

void print_memory(const Settings& settings) {
  fmt::print("{:<44} {:>10} {:>10} {:>7}\n", "memory", "needed MB", "taken MB", "ratio");
  const auto row = [](const std::string& what, const std::function<int64_t()>& work) {
    const Memory memory = measured(work);
    if (memory.needed <= 0) return fmt::print("{:<44} failed\n", what);
    fmt::print("{:<44} {:>10} {:>10} {:>7.2f}\n", what, memory.needed >> 20, memory.taken >> 20,
               static_cast<double>(memory.taken) / static_cast<double>(memory.needed));
  };
  row("import", [&] { return import_alone(settings); });
  row("run, float32", [&] { return run_once(settings); });
  for (const std::string optimizer : {"sgd", "adam"}) {
    row("train, float32, " + optimizer,
        [&] { return train_twice(settings, {"float32"}, optimizer); });
  }
  row("train, float32 and mixed_float16, sgd", [&] {
    return train_twice(settings, {"float32", "mixed_float16"}, "sgd");
  });
}

/// Returns a network of dilated convolutions, followed by an upsampling to twice the size.
Model dilated_network(int64_t* multiply_adds) {
  Model model;
  model.name = "dilated";
  Graph& graph = model.graph;
  ValueId x = model.input = graph.add_input("input", {2, 32, 32, 32});
  *multiply_adds = 0;
  const auto conv = [&](const std::string& path, int64_t out, int64_t kernel, int64_t dilation) {
    const int64_t in = graph.value(x).shape[1], pad = dilation * (kernel / 2);
    const ValueId w =
        graph.add_variable(path + ".weight", {out, in, kernel, kernel}, {.bound = 0.05});
    x = graph.add1("Conv", path, {x, w},
                   {{"pads", std::vector<int64_t>{pad, pad, pad, pad}},
                    {"dilations", std::vector<int64_t>{dilation, dilation}}});
    const int64_t forward = element_count(graph.value(x).shape) * in * kernel * kernel;
    *multiply_adds += (path == "conv1" ? 2 : 3) * forward;  // the input's gradient is not computed
  };
  conv("conv1", 128, 3, 1);
  x = graph.add1("Relu", "relu1", {x});
  conv("conv2", 128, 3, 2);
  x = graph.add1("Relu", "relu2", {x});
  conv("conv3", 128, 3, 4);
  x = graph.add1("Relu", "relu3", {x});
  conv("conv4", 16, 1, 1);
  for (const int64_t axis : {2, 3}) {
    std::vector<int32_t> from;
    for (int32_t i = 0; i < 64; ++i) from.push_back(i / 2);
    const ValueId places = graph.add_index_constant({64}, std::move(from));
    x = graph.add1("Gather", "up" + std::to_string(axis), {x, places}, {{"axis", axis}});
  }
  model.outputs = {{"output", x}};
  add_loss(model, parse_loss("mse"));
  return model;
}

/// Returns the milliseconds per multiply-add of a 1024 x 1024 x 1024 matrix product.
double product_rate() {
  constexpr int64_t kSize = 1024;
  std::vector<float> a(kSize * kSize), b(a.size()), c(a.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] = b[i] = number(i);
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gemm(kSize, kSize, kSize, {a.data(), kSize, 1}, {b.data(), kSize, 1}, nullptr, c.data(), {});
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    times.push_back(spent.count());
  }
  return median(times) / static_cast<double>(kSize * kSize * kSize);
}

/// Returns the milliseconds per step of the network.
double step_time(const Dataset& data, const std::vector<std::string>& plans, bool compares) {
  int64_t unused = 0;
  TrainConfig config =
      training([&] { return dilated_network(&unused); }, plans, "sgd", 2, compares ? 3 : 8);
  config.every = compares ? 1 : 0;
  config.errors.enabled = compares;
  config.errors.every = compares ? 1 : 0;
  Trainer trainer(config, data);
  NullSink sink;
  std::vector<double> times;
  auto last = std::chrono::steady_clock::now();
  const std::atomic<bool> stop{false};
  trainer.run(
      compares ? &sink : nullptr,
      [&](const std::vector<StepRow>&) {
        const auto now = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::milli>(now - last).count());
        last = now;
      },
      stop);
  return median(times);
}

void print_times(int rounds) {
  int64_t multiply_adds = 0;
  const Model model = dilated_network(&multiply_adds);
  const Dataset data = samples_for(model.graph, 2);
  struct Row {
    const char* name;
    std::vector<std::string> plans;
    bool compares;
    std::vector<double> times{}, ratios{};
  } rows[] = {{"step, float32", {"float32"}, false},
              {"step, mixed_float16", {"mixed_float16"}, false},
              {"step, both, recorded and compared", {"float32", "mixed_float16"}, true}};
  for (int round = 0; round < rounds; ++round) {
    for (Row& row : rows) {
      const double ideal = product_rate() * static_cast<double>(multiply_adds);
      row.times.push_back(step_time(data, row.plans, row.compares));
      row.ratios.push_back(row.times.back() / ideal);
    }
  }
  fmt::print("{:<44} {:>10} {:>18}\n", "dilated convolutions, upsampling", "ms", "to its products");
  for (const Row& row : rows) {
    fmt::print("{:<44} {:>10.1f} {:>18.2f}\n", row.name, median(row.times), median(row.ratios));
  }
}

void run(Settings settings) {
  const bool given = !settings.file.empty();
  if (!given) {
    settings.file = (std::filesystem::temp_directory_path() / "halfscope_onnx_bench.onnx").string();
    measured([&] {  // in another process: a new process inherits this one's memory
      const Model model = build_network("mlp:2048-4096-4096-2048", settings.batch, {2048}, 2048);
      const std::string bytes = onnx_bytes(model, starting_weights(model, 1, {}));
      std::ofstream(settings.file, std::ios::binary)
          .write(bytes.data(), static_cast<int64_t>(bytes.size()));
      return int64_t{1};
    });
  }
  fmt::print("{} threads, {} rounds, kernels {}, {}, batch {}\n", settings.threads, settings.rounds,
             isa_name(active_isa()), given ? settings.file : "a perceptron", settings.batch);
  print_memory(settings);  // first: no threads may run when a process is forked
  if (!given) std::filesystem::remove(settings.file);
  omp_set_num_threads(settings.threads);
  print_times(settings.rounds);
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
  halfscope::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::max(1, std::atoi(argv[++i])) : 1; };
    if (flag == "--threads") {
      settings.threads = number();
    } else if (flag == "--rounds") {
      settings.rounds = number();
    } else if (flag == "--batch") {
      settings.batch = number();
    } else if (flag == "--loss" && i + 1 < argc) {
      settings.loss = argv[++i];
    } else {
      settings.file = flag;
    }
  }
  try {
    halfscope::run(settings);
  } catch (const halfscope::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
