// SPDX-License-Identifier: MIT
// The viewer's own cost on a large run: opening it, memory, and frames without the graphics card.
// Budgets: open in under 2 s, under 1 GB, under 8 ms of processor time per frame.
//   viewer_bench [SITES [STEPS]]     (1000 and 100000)
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "analysis/recorder.h"
#include "core/policy/policy.h"
#include "gui/app/app.h"

namespace {

using namespace halfscope;  // NOLINT: a program of its own
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kLanes = 2;
constexpr int kEvery = 40;  ///< statistics of every 40th step: more windows than a file keeps

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Returns "VmRSS:" in MB.
double resident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes / 1e3;
  }
  return 0.0;
}

RunInfo make_info(int sites, int64_t steps) {
  RunInfo info;
  info.model = "bench";
  info.data = "none";
  info.steps_planned = steps;
  info.every = kEvery;
  for (int l = 0; l < kLanes; ++l) {
    LaneInfo lane;
    lane.name = l == 0 ? "float32" : "mixed_float16";
    lane.backend = "emulated";
    lane.plan_json = plan_to_json(*preset_plan(lane.name));
    lane.loss_scale = l == 0 ? "none" : "dynamic:65536";
    for (int s = 0; s < sites; ++s) {
      static constexpr const char* kTensors[] = {"activation", "activation_grad", "weight",
                                                 "weight_grad", "weight_update"};
      static constexpr Role kRoles[] = {Role::activation, Role::activation_grad, Role::weight,
                                        Role::weight_grad, Role::update};
      const size_t kind = static_cast<size_t>(s) % 5;
      SiteInfo site;
      site.path = "block" + std::to_string(s / 20) + "/layer" + std::to_string(s / 5);
      site.tensor = kTensors[kind];
      site.role = kRoles[kind];
      site.phase = kind == 0 || kind == 2 ? Phase::forward : Phase::backward;
      site.op = "Gemm";
      site.format = l == 0 || kind == 4 ? kFp32 : kFp16;
      site.shape = {64, 64};
      site.order = s;
      if (kind == 0) {
        lane.layers.push_back({.path = site.path,
                               .op = "Gemm",
                               .inputs = {},
                               .read = site.format,
                               .write = site.format,
                               .parameters = 4096});
      }
      lane.sites.push_back(site);
    }
    info.lanes.push_back(lane);
  }
  return info;
}

/// Returns statistics like those of log-normal tensors of some magnitude.
std::vector<TensorStats> make_stats(const RunInfo& info) {
  std::mt19937 random(1);  // NOLINT: the same in every run
  std::vector<TensorStats> all;
  for (const SiteInfo& site : info.lanes[1].sites) {
    std::vector<float> values(512), rounded(512);
    const double middle = -2.0 - static_cast<double>(random() % 24);
    std::normal_distribution<double> spread(middle, 2.0);
    for (float& value : values) value = static_cast<float>(std::exp2(spread(random)));
    all.push_back(measure(values, rounded, site.format));
  }
  return all;
}

void write_run(const fs::path& file, int sites, int64_t steps) {
  const RunInfo info = make_info(sites, steps);
  std::vector<TensorStats> stats = make_stats(info);
  Recorder recorder(file, {.force = true});
  recorder.begin(info);
  for (int64_t step = 0; step < steps; ++step) {
    const bool recorded = step % kEvery == 0;
    if (recorded) std::rotate(stats.begin(), stats.begin() + 5, stats.end());
    for (int lane = 0; lane < kLanes; ++lane) {
      const StepRow row{.step = step,
                        .loss = 2.3 / (1.0 + static_cast<double>(step) / 1000.0),
                        .loss_scale = lane == 0 ? 1.0 : 65536.0,
                        .skipped = lane == 1 && step % 2000 == 1999};
      recorder.step(
          lane, row,
          recorded ? std::span<const TensorStats>(stats) : std::span<const TensorStats>());
    }
  }
  recorder.end(RunEnd::complete);
}

class Frames {
 public:
  explicit Frames(gui::App& app) : app_(app) {}
  void draw() {
    ImGui::NewFrame();
    app_.frame();
    ImGui::Render();
  }
  /// Prints the median processor time per frame; `before` runs before each frame.
  void print(const char* what, const std::function<void(int)>& before) {
    constexpr int kWarm = 5, kFrames = 120;
    std::vector<double> times;
    for (int i = 0; i < kWarm + kFrames; ++i) {
      before(i);
      const double start = processor_ms();
      draw();
      if (i >= kWarm) times.push_back(processor_ms() - start);
    }
    std::sort(times.begin(), times.end());
    std::printf("  %-44s %6.2f ms a frame, 95th percentile %6.2f ms\n", what,
                times[times.size() / 2], times[times.size() * 95 / 100]);
  }

 private:
  gui::App& app_;
};

}  // namespace

int main(int argc, char** argv) {
  const int sites = argc > 1 ? std::max(10, std::atoi(argv[1])) : 1000;
  const int64_t steps = argc > 2 ? std::max(100, std::atoi(argv[2])) : 100'000;
  const fs::path file = fs::temp_directory_path() / "halfscope_viewer_bench.hscope";
  std::printf("%d lanes of %d sites, %lld steps, statistics of every %dth\n", kLanes, sites,
              static_cast<long long>(steps), kEvery);
  auto start = Clock::now();
  write_run(file, sites, steps);
  std::printf("  file: %.1f MB, written in %.1f s\n",
              static_cast<double>(fs::file_size(file)) / 1e6, seconds_since(start));

  const double before = resident();
  start = Clock::now();
  const double processor = processor_ms();
  auto view = std::make_shared<const RunView>(RunView::open(file));
  const double read = seconds_since(start);
  auto first = gui::RunModel::make(file.string(), view, false);
  const double pictures = seconds_since(start), worked = processor_ms() - processor;
  auto run = gui::RunModel::make(file.string(), view, true);
  std::printf(
      "  opened in %.2f s (processor %.2f s; reading %.2f s), with verdict and advice %.2f s "
      "(processor %.2f s); %.0f MB more\n",
      pictures, worked / 1e3, read, seconds_since(start), (processor_ms() - processor) / 1e3,
      resident() - before);
  std::printf("  %zu columns of pictures\n", run->columns().size());
  first.reset();

  ImGui::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.DisplaySize = {1920, 1080};
  io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;  // as OpenGL 3.3 has it
  {
    gui::MemoryTextures textures;
    gui::App app(textures, {});
    app.prepare(1.0f);
    unsigned char* pixels = nullptr;
    int width = 0, height = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
    app.show(run, nullptr);
    app.view().layer = "block3/layer12";
    Frames frames(app);
    std::puts(" Spectrum");
    const auto spectrum = [&] {
      const gui::ViewState fresh;
      app.view() = fresh;
      app.view().layer = "block3/layer12";
    };
    spectrum();
    frames.print("nothing changes", [](int) {});
    frames.print("it plays: other steps each frame",
                 [&](int i) { app.view().cursor = steps / 2 + i * kEvery; });
    frames.print("the loss scale slides", [&](int i) { app.view().scale_shift = i % 20; });
    frames.print("another format each frame", [&](int i) {
      static constexpr const char* kLenses[] = {"fp16", "e4m3fn", "e5m2/tensor", "mxfp8"};
      app.view().window = kLenses[i % 4];
    });
    spectrum();
    app.view().merge_steps = true;
    frames.print("a range of steps that moves", [&](int i) {
      app.view().range = {static_cast<double>(i * kEvery), static_cast<double>(steps) / 2 + i};
    });
    std::puts(" Details");
    spectrum();
    app.view().screen = gui::Screen::details;
    frames.print("nothing changes", [](int) {});
    frames.print("the cursor moves", [&](int i) { app.view().cursor = steps / 2 + i * kEvery; });
    frames.print("steps are zoomed: a new heatmap each frame", [&](int i) {
      const double width_of_range = static_cast<double>(steps) / (1.0 + i % 60);
      app.view().range = {static_cast<double>(steps) / 3.0,
                          static_cast<double>(steps) / 3.0 + width_of_range};
    });
    app.view().range = {};
    frames.print("another selection each frame", [&](int i) {
      app.view().layer = "block" + std::to_string(i % 40) + "/layer" + std::to_string(4 * (i % 40));
      app.view().site.clear();
    });
    app.view().tensor_rows = true;
    frames.print("tensors as rows, metric changes each frame",
                 [&](int i) { app.view().metric = gui::kMetrics[static_cast<size_t>(i) % 6]; });
  }
  ImGui::DestroyContext();
  fs::remove(file);
  return 0;
}
