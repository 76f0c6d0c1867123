// SPDX-License-Identifier: MIT
// The speedup from narrow formats, layer by layer. Every matrix product of a training step
// (forward, and the gradients of input and weight) runs alone, under each plan on each backend.
// Prints its time, its speedup over the first plan, and the memory of its operands and output on a
// GPU. Layers with the same product share a line, and the last line is their sum. Under float32,
// products are IEEE fp32, not TF32.
//   gpu_layer_bench [--backends cuda,cuda-fast] [--models A,B] [--plans A,B] [--batch 512]
//                   [--rounds 5] [--ms 20]
// --ms is the minimum duration of each measurement. Needs a GPU (exit code 3 without one), except
// for the backend "emulated", which only tests this program.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu_options.h"
#include "bench/layer_products.h"
#include "bench/other_program.h"
#include "core/error.h"
#include "core/models/models.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

struct Options {
  std::string backends = "cuda,cuda-fast";
  std::string models = "mlp:784-4096-4096-10,resnet20";
  std::string plans = "float32,mixed_float16,mixed_bfloat16";
  int64_t batch = 512;
  int rounds = 5;
  double ms = 20.0;
};

Model model_of(const std::string& name, int64_t batch) {
  if (name.starts_with("mlp:")) {
    const std::vector<int64_t> widths = mlp_widths(name);
    return build_model(name, batch, {widths.front()}, widths.back());
  }
  const Shape images = name == "resnet20" ? Shape{3, 32, 32} : Shape{1, 28, 28};
  return build_model(name, batch, images, 10);
}

bool same_place(const LayerProduct& a, const LayerProduct& b) {
  return a.layer == b.layer && a.product == b.product && a.count == b.count;
}

/// Measurements of one product under one plan.
struct Measured {
  double ms = 0.0;
  int64_t bytes = 0;
};

Measured measure(const Options& options, const Executable& lane, const LayerProduct& product,
                 const Backend& backend) {
  const Executable single = alone(lane, product.node);
  ProductTimer timer(backend, single);
  std::vector<double> times;
  for (int round = 0; round < options.rounds; ++round) {
    times.push_back(timer.milliseconds(options.ms));
  }
  return {median(times), product_bytes(single)};
}

std::string cells(const Measured& now, const Measured& first) {
  return fmt::format("{:>11.4f} {:>7.2f} {:>9.2f}", now.ms, now.ms > 0.0 ? first.ms / now.ms : 0.0,
                     static_cast<double>(now.bytes) / (1 << 20));
}

void print_row(const std::string& layer, const std::string& product, const std::string& operands,
               const std::vector<Measured>& plans) {
  std::string line = fmt::format("{:<20} {:<11} {:<36}", layer, product, operands);
  for (const Measured& each : plans) line += " |" + cells(each, plans.front());
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void run_model(const Options& options, const std::string& name, const Backend& backend) {
  const Model model = model_of(name, options.batch);
  std::vector<Executable> lanes;
  std::vector<std::vector<LayerProduct>> products;
  std::string heads = fmt::format("{:<20} {:<11} {:<36}", "layer", "product", "operands");
  std::string columns = heads;
  heads.assign(heads.size(), ' ');
  for (const std::string& plan_name : words(options.plans)) {
    const std::optional<Plan> plan = preset_plan(plan_name);
    if (!plan) throw Error("unknown plan " + plan_name);
    lanes.push_back(lower(model, *plan, {}));
    products.push_back(layer_products(lanes.back()));
    heads += fmt::format(" |{:^29}", plan_name);
    columns += fmt::format(" |{:>11} {:>7} {:>9}", "ms", "speedup", "MiB");
    if (!std::ranges::equal(products.back(), products.front(), same_place)) {
      throw Error(plan_name + " does not have the same products as the first plan");
    }
  }
  fmt::print("\n{}, batch {}, {}\n{}\n{}\n", name, options.batch, backend.name(), heads, columns);
  std::fflush(stdout);
  std::vector<Measured> sums(lanes.size());
  for (size_t i = 0; i < products.front().size(); ++i) {
    const LayerProduct& product = products.front()[i];
    std::vector<Measured> row;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      row.push_back(measure(options, lanes[lane], products[lane][i], backend));
      sums[lane].ms += product.count * row.back().ms;
      sums[lane].bytes += product.count * row.back().bytes;
    }
    const std::string layer =
        product.count == 1 ? product.layer : fmt::format("{} x{}", product.layer, product.count);
    print_row(layer, product.product,
              to_string(product.operands[0]) + " " + to_string(product.operands[1]), row);
  }
  print_row("all", "", "", sums);
}

void run(const Options& options) {
  for (const std::string& name : words(options.backends)) backend_of(name);
  fmt::print("milliseconds per product (median of {}); speedup over the first plan\n",
             options.rounds);
  for (const std::string& model : words(options.models)) {
    for (const std::string& backend : words(options.backends)) {
      run_model(options, model, backend_of(backend));
    }
  }
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const double number = std::atof(value.c_str());
    if (flag == "--backends" && !value.empty()) {
      options.backends = value;
    } else if (flag == "--models" && !value.empty()) {
      options.models = value;
    } else if (flag == "--plans" && !value.empty()) {
      options.plans = value;
    } else if (flag == "--batch" && number >= 1.0) {
      options.batch = static_cast<int64_t>(number);
    } else if (flag == "--rounds" && number >= 1.0) {
      options.rounds = static_cast<int>(number);
    } else if (flag == "--ms" && number > 0.0) {
      options.ms = number;
    } else {
      fmt::print(stderr, "gpu_layer_bench: unknown flag '{}', or invalid value '{}'\n", flag,
                 value);
      return 2;
    }
  }
  try {
    halfscope::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_layer_bench: {}\n", error.what());
    return 3;
  }
}
