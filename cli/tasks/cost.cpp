// SPDX-License-Identifier: MIT
#include "cli/tasks/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "analysis/cost/cost.h"
#include "analysis/rules/text.h"  // bytes_text
#include "cli/args/lanes.h"
#include "cli/args/planned_network.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

using TableRows = std::vector<std::vector<std::string>>;

constexpr double kGiga = 1e9;

/// The costs of all plans, and the network they are plans for.
struct Costs {
  std::string model;
  int64_t batch = 0;  ///< 0 if the network does not say
  int64_t parameters = 0;
  std::vector<PlanCost> plans;
  std::vector<std::optional<int64_t>> largest;  ///< batch by plan, where it is open
};

std::string ms_text(double seconds) {
  const double ms = 1e3 * seconds;
  return fmt::format("{:.{}f}", ms, ms < 10.0 ? 2 : ms < 100.0 ? 1 : 0);
}

std::string bytes_or_dash(int64_t bytes) { return bytes == 0 ? "-" : bytes_text(bytes); }

std::string count_text(double count) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (count >= 1000.0 && unit + 1 < std::size(kUnits)) {
    count /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.3g} {}", count, kUnits[unit]);
}

std::string table(const TableRows& rows) {
  std::vector<bool> right(rows.front().size(), true);
  right.front() = false;
  return aligned(rows, right);
}

Settings with_batch(Settings settings, int64_t batch) {
  settings.batch = batch;
  return settings;
}

Model network_for(const Settings& settings, const CostOptions& options) {
  Settings wanted = settings;
  if (options.inference) wanted.loss.clear();
  return planned_network(wanted);
}

Executable lowered(const Model& model, const Plan& plan, const Settings& settings,
                   const CostOptions& options) {
  const bool trains = !options.inference && model.loss != kNone;
  return trains ? lower(model, plan, {settings.optimizer}) : lower_inference(model, plan);
}

std::optional<int64_t> largest_for(const Plan& plan, const Settings& settings,
                                   const CostOptions& options) {
  const auto build = [&](int64_t batch) {
    const Settings sized = with_batch(settings, batch);
    return lowered(network_for(sized, options), plan, sized, options);
  };
  try {
    if (samples_of(build(1)) != 1 || samples_of(build(2)) != 2) return std::nullopt;
    const auto bytes = static_cast<int64_t>(options.devices.front().memory_gb * kGiga);
    return largest_batch(build, bytes);
  } catch (const Error&) {  // the network has a fixed number of samples
    return std::nullopt;
  }
}

Costs costs_of(const Settings& settings, const CostOptions& options) {
  const Model model = network_for(settings, options);
  Costs costs{.model = settings.model, .plans = {}, .largest = {}};
  for (const Variable& variable : model.graph.variables()) {
    if (!variable.buffer)
      costs.parameters += element_count(model.graph.value(variable.value).shape);
  }
  for (const LaneConfig& lane : lanes_of(settings)) {
    if (lane.plan.double_precision) {
      throw usage_error(
          "--lanes: '" + lane.plan.name + "' runs in double precision, which is only a reference",
          "name plans of 32 or fewer bits")
          .about({"lanes"});
    }
    costs.plans.emplace_back(lane.plan.name, lowered(model, lane.plan, settings, options));
    costs.largest.push_back(largest_for(lane.plan, settings, options));
  }
  costs.batch = samples_of(costs.plans.front().executable);
  return costs;
}

std::string heading(const Costs& costs) {
  const PlanCost& first = costs.plans.front();
  int64_t operations = 0;
  for (const auto& [format, count] : first.operations()) operations += count;
  std::string text = costs.model;
  if (costs.batch > 0) {
    const std::string sample = sample_text(first.executable);
    text += fmt::format(", batch {}{}{}", costs.batch, sample.empty() ? "" : " of ", sample);
  }
  text += fmt::format(": {} weights", count_text(static_cast<double>(costs.parameters)));
  if (text.back() == ' ') text.pop_back();
  return text + fmt::format("; one {} needs {}FLOP in matrix products and convolutions\n\n",
                            first.trains() ? "training step" : "forward pass",
                            count_text(static_cast<double>(operations)));
}

/// The answer in a few lines: faster, smaller, and what the rest of the time is.
std::string summary(const Costs& costs, const Device& device) {
  std::string text;
  const PlanCost& first = costs.plans.front();
  const StepTime before = step_time(first, device);
  const auto percent = [](double part, double whole) { return 100.0 * part / whole; };
  for (size_t i = 1; i < costs.plans.size(); ++i) {
    const PlanCost& plan = costs.plans[i];
    const StepTime time = step_time(plan, device);
    const double memory =
        static_cast<double>(plan.memory.peak) / static_cast<double>(first.memory.peak);
    text += fmt::format(
        "{}: {:.2f} times as fast as {} on {} (estimated), with {:.2f} times the "
        "memory",
        plan.plan, before.seconds / time.seconds, first.plan, device.name, memory);
    if (costs.largest[i] && costs.largest[0] && *costs.largest[0] > 0) {
      text += fmt::format(
          " and a batch {:.2f} times as large",
          static_cast<double>(*costs.largest[i]) / static_cast<double>(*costs.largest[0]));
    }
    text += fmt::format(".\n  {:.0f}% of its time is limited by arithmetic, {:.0f}% by memory",
                        percent(time.compute, time.seconds), percent(time.memory, time.seconds));
    if (percent(time.start, time.seconds) >= 0.5) {
      text += fmt::format(", {:.0f}% goes to kernels that are too short to gain",
                          percent(time.start, time.seconds));
    }
    text += ".\n";
  }
  return text.empty() ? text : text + "\n";
}

std::string memory_text(const Costs& costs, const Device& device) {
  TableRows rows{{"memory"}};
  for (const PlanCost& plan : costs.plans) rows.front().push_back(plan.plan);
  const auto add = [&](const std::string& name, int64_t MemoryUse::*part) {
    std::vector<std::string> row{"  " + name};
    bool any = false;
    for (const PlanCost& plan : costs.plans) {
      row.push_back(bytes_or_dash(plan.memory.*part));
      any = any || plan.memory.*part > 0;
    }
    if (any) rows.push_back(row);
  };
  const bool trains = costs.plans.front().trains();
  add("weights", &MemoryUse::weights);
  add("copies of weights", &MemoryUse::weight_copies);
  add("gradients", &MemoryUse::gradients);
  add("optimizer state", &MemoryUse::optimizer);
  add("statistics, constants", &MemoryUse::buffers);
  add("inputs and labels", &MemoryUse::inputs);
  add(trains ? "activations for backward" : "activations at the peak", &MemoryUse::activations);
  add("short-lived, at the peak", &MemoryUse::temporary);
  add("peak", &MemoryUse::peak);
  const auto peak = [&](size_t i) { return static_cast<double>(costs.plans[i].memory.peak); };
  std::vector<std::string> shares{"  peak, relative"};
  for (size_t i = 0; i < costs.plans.size(); ++i)
    shares.push_back(fmt::format("{:.2f}", peak(i) / peak(0)));
  if (costs.plans.size() > 1) rows.push_back(shares);
  if (std::any_of(costs.largest.begin(), costs.largest.end(),
                  [](const auto& each) { return each; })) {
    std::vector<std::string> batches{fmt::format("  largest batch in {:g} GB", device.memory_gb)};
    for (const auto& each : costs.largest)
      batches.push_back(!each ? "-" : *each == 0 ? "none" : std::to_string(*each));
    rows.push_back(batches);
  }
  return table(rows) + "\n";
}

std::string time_text(const Costs& costs, const Device& device) {
  TableRows rows{{fmt::format("estimated ms on {}", device.name)}};
  for (const PlanCost& plan : costs.plans) rows.front().push_back(plan.plan);
  std::vector<StepTime> times;
  for (const PlanCost& plan : costs.plans) times.push_back(step_time(plan, device));
  const auto add = [&](const std::string& name, double StepTime::*part) {
    std::vector<std::string> row{"  " + name};
    bool any = false;
    for (const StepTime& time : times) {
      row.push_back(time.*part > 0.0 ? ms_text(time.*part) : "-");
      any = any || time.*part > 0.0;
    }
    if (any) rows.push_back(row);
  };
  add("matrix products, convolutions", &StepTime::products);
  add("other operators", &StepTime::others);
  add("casts", &StepTime::casts);
  add("optimizer", &StepTime::optimizer);
  add(costs.plans.front().trains() ? "whole step" : "whole pass", &StepTime::seconds);
  std::vector<std::string> speedup{"  times as fast"}, rates{"  samples per second"};
  for (const StepTime& time : times) {
    speedup.push_back(fmt::format("{:.2f}", times.front().seconds / time.seconds));
    rates.push_back(fmt::format("{:.0f}", static_cast<double>(costs.batch) / time.seconds));
  }
  if (costs.batch > 0) rows.push_back(rates);
  if (times.size() > 1) rows.push_back(speedup);
  return table(rows) + "\n";
}

/// Returns the layer of the same path, or `layer` itself if the reference has none.
const LayerTime& same_layer(const std::vector<LayerTime>& reference, const LayerTime& layer) {
  const auto same = std::find_if(reference.begin(), reference.end(),
                                 [&](const LayerTime& each) { return each.layer == layer.layer; });
  return same == reference.end() ? layer : *same;
}

/// Layers that take the most time under the last plan, with what keeps each from being faster than
/// under the first.
std::string layers_text(const Costs& costs, const Device& device, bool all) {
  constexpr size_t kShown = 12;
  const PlanCost &before = costs.plans.front(), &now = costs.plans.back();
  const std::vector<LayerTime> reference = layer_times(before, device);
  std::vector<LayerTime> layers = layer_times(now, device);
  if (!all) {
    std::stable_sort(layers.begin(), layers.end(),
                     [](const LayerTime& a, const LayerTime& b) { return a.seconds > b.seconds; });
  }
  const size_t shown = all ? layers.size() : std::min(kShown, layers.size());
  const bool compares = costs.plans.size() > 1;
  TableRows rows{{all ? "layer" : "slowest layers", "operator", "FLOP/byte", before.plan + " ms"}};
  if (compares) {
    rows.front().push_back(now.plan + " ms");
    rows.front().emplace_back("times as fast");
  }
  rows.front().emplace_back("limited by");
  for (size_t i = 0; i < shown; ++i) {
    const LayerTime& layer = layers[i];
    const LayerTime& first = same_layer(reference, layer);
    const double intensity =
        layer.bytes > 0 ? static_cast<double>(layer.operations) / static_cast<double>(layer.bytes)
                        : 0.0;
    std::vector<std::string> row{"  " + layer.layer, layer.op,
                                 layer.operations > 0 ? fmt::format("{:.0f}", intensity) : "-",
                                 ms_text(first.seconds)};
    if (compares) {
      row.push_back(ms_text(layer.seconds));
      row.push_back(fmt::format("{:.2f}", first.seconds / layer.seconds));
    }
    const std::string why = why_no_faster(first, layer, device);
    row.push_back(why.empty() ? "the rate of its format" : why);
    rows.push_back(row);
  }
  std::vector<bool> right(rows.front().size(), true);
  right.front() = right[1] = right.back() = false;
  std::string text = aligned(rows, right);
  if (shown < layers.size()) {
    text += fmt::format("  and {} more: --layers shows all\n", layers.size() - shown);
  }
  return text + "\n";
}

std::string casts_text(const Costs& costs) {
  std::string text;
  for (const PlanCost& plan : costs.plans) {
    const auto [number, bytes] = plan.casts();
    if (number > 0)
      text += fmt::format("{}: {} cast{} {}\n", plan.plan, number,
                          number == 1 ? " moves" : "s move", bytes_text(bytes));
  }
  return text;
}

std::string devices_text(const Costs& costs, const std::vector<Device>& all) {
  TableRows rows{{"device", "plan", "ms", "samples/s", "times as fast"}};
  for (const Device& device : all) {
    const double first = step_time(costs.plans.front(), device).seconds;
    for (const PlanCost& plan : costs.plans) {
      const double seconds = step_time(plan, device).seconds;
      rows.push_back({std::string(device.name), plan.plan, ms_text(seconds),
                      costs.batch > 0
                          ? fmt::format("{:.0f}", static_cast<double>(costs.batch) / seconds)
                          : "-",
                      fmt::format("{:.2f}", first / seconds)});
    }
  }
  return aligned(rows, {false, false, true, true, true}) + "\n";
}

std::string notes(const Device& device) {
  return fmt::format(
      "Memory is counted: every tensor of the step in its own format, freed after its last "
      "reader.\n"
      "Libraries and allocators need more.\n"
      "Times are estimates by the roofline model; nothing was measured. Assumed: one kernel per\n"
      "operator, {:.0f}% of the published operations and {:.0f}% of the bandwidth of {}\n"
      "({}), {:.0f} us for the shortest kernel.\n",
      100.0 * kComputeShare, 100.0 * kMemoryShare, device.title, device.source,
      1e6 * kKernelSeconds);
}

Json memory_json(const MemoryUse& use) {
  return {{"weights", use.weights},
          {"weight_copies", use.weight_copies},
          {"gradients", use.gradients},
          {"optimizer", use.optimizer},
          {"buffers", use.buffers},
          {"inputs", use.inputs},
          {"activations", use.activations},
          {"temporary", use.temporary},
          {"peak", use.peak}};
}

Json layer_json(const LayerTime& layer, const LayerTime& before, const Device& device) {
  constexpr const char* kLimits[] = {"compute", "memory", "start"};
  return {{"path", layer.layer},
          {"op", layer.op},
          {"flops", layer.operations},
          {"bytes", layer.bytes},
          {"seconds", layer.seconds},
          {"cast_seconds", layer.casts},
          {"kernels", layer.kernels},
          {"limit", kLimits[static_cast<size_t>(layer.limit())]},
          {"why", why_no_faster(before, layer, device)}};
}

Json plan_json(const Costs& costs, size_t which, const std::vector<Device>& devices) {
  const PlanCost& plan = costs.plans[which];
  Json json{{"plan", plan.plan}, {"memory", memory_json(plan.memory)}};
  json["largest_batch"] = costs.largest[which] ? Json(*costs.largest[which]) : Json(nullptr);
  json["flops"] = plan.operations();
  json["bytes"] = plan.bytes();
  json["casts"] = {{"count", plan.casts().first}, {"bytes", plan.casts().second}};
  Json times = Json::array();
  for (const Device& device : devices) {
    const StepTime time = step_time(plan, device);
    const std::vector<LayerTime> layers = layer_times(plan, device);
    const std::vector<LayerTime> reference = layer_times(costs.plans.front(), device);
    Json list = Json::array();
    for (const LayerTime& layer : layers) {
      list.push_back(layer_json(layer, same_layer(reference, layer), device));
    }
    times.push_back({{"device", device.name},
                     {"seconds", time.seconds},
                     {"products", time.products},
                     {"others", time.others},
                     {"casts", time.casts},
                     {"optimizer", time.optimizer},
                     {"layers", list}});
  }
  json["estimates"] = times;
  return json;
}

Json costs_json(std::string_view version, const Costs& costs, const std::vector<Device>& devices) {
  Json json{{"schema", "halfscope.cost/1"},
            {"version", version},
            {"model", costs.model},
            {"batch", costs.batch},
            {"training", costs.plans.front().trains()},
            {"parameters", costs.parameters}};
  Json list = Json::array();
  for (const Device& device : devices) {
    Json rates;
    for (const ProductRate& rate : device.rates) rates[std::string(rate.format)] = rate.tera * 1e12;
    list.push_back({{"name", device.name},
                    {"title", device.title},
                    {"memory", device.memory_gb * kGiga},
                    {"bandwidth", device.bandwidth * kGiga},
                    {"flops", rates},
                    {"source", device.source}});
  }
  json["devices"] = list;
  json["assumptions"] = {{"compute_share", kComputeShare},
                         {"memory_share", kMemoryShare},
                         {"kernel_seconds", kKernelSeconds}};
  Json plans = Json::array();
  for (size_t i = 0; i < costs.plans.size(); ++i) plans.push_back(plan_json(costs, i, devices));
  json["plans"] = plans;
  return json;
}

}  // namespace

std::vector<Device> parse_devices(const std::string& list) {
  if (list == "all") return {devices().begin(), devices().end()};
  std::vector<Device> chosen;
  size_t from = 0;
  while (from <= list.size()) {
    const size_t end = std::min(list.find(',', from), list.size());
    chosen.push_back(find_device(list.substr(from, end - from)));
    from = end + 1;
  }
  return chosen;
}

int print_cost(std::string_view version, const Settings& settings, const CostOptions& options) {
  const Costs costs = costs_of(settings, options);
  if (settings.json) {
    write_json(costs_json(version, costs, options.devices));
    return 0;
  }
  const Device& device = options.devices.front();
  std::string text = heading(costs) + summary(costs, device) + memory_text(costs, device) +
                     time_text(costs, device);
  if (options.devices.size() > 1) text += devices_text(costs, options.devices);
  text += layers_text(costs, device, options.all_layers) + casts_text(costs) + notes(device);
  write_out(text);
  return 0;
}

}  // namespace halfscope
