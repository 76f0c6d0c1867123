// SPDX-License-Identifier: MIT
#include "analysis/cost/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope {
namespace {

constexpr int64_t kMostSamples = int64_t{1} << 24;

void add_limit(double seconds, Limit limit, double& compute, double& memory, double& start) {
  (limit == Limit::compute ? compute : limit == Limit::memory ? memory : start) += seconds;
}

double share(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

}  // namespace

PlanCost::PlanCost(std::string name, Executable lowered)
    : plan(std::move(name)),
      executable(std::move(lowered)),
      memory(memory_of(executable)),
      work(work_of(executable)) {}

std::map<std::string, int64_t> PlanCost::operations() const {
  std::map<std::string, int64_t> sums;
  for (const NodeWork& each : work) {
    if (each.is_product())
      sums[format_name(executable.graph.node(each.node).plan.read)] += each.flops;
  }
  return sums;
}

int64_t PlanCost::bytes() const {
  int64_t sum = 0;
  for (const NodeWork& each : work) sum += each.bytes;
  return sum;
}

std::pair<int64_t, int64_t> PlanCost::casts() const {
  std::pair<int64_t, int64_t> sums{0, 0};
  for (const NodeWork& each : work) {
    if (!each.cast) continue;
    ++sums.first;
    sums.second += each.bytes;
  }
  return sums;
}

Limit LayerTime::limit() const noexcept {
  if (compute >= memory && compute >= start) return Limit::compute;
  return memory >= start ? Limit::memory : Limit::start;
}

std::vector<LayerTime> layer_times(const PlanCost& cost, const Device& device) {
  std::vector<LayerTime> layers;
  std::map<std::string, size_t> places;
  std::map<std::string, double> slowest;
  for (const NodeWork& each : cost.work) {
    const auto [place, is_new] = places.emplace(each.layer, layers.size());
    if (is_new) layers.push_back({.layer = each.layer, .op = each.op});
    LayerTime& layer = layers[place->second];
    const Estimate time = estimate(cost.executable, each, device);
    if (!each.cast) layer.op = each.op;  // casts come first and have the reader's path
    layer.operations += each.flops;
    layer.bytes += each.bytes;
    layer.seconds += time.seconds;
    layer.kernels += each.fused ? 0 : 1;
    if (each.cast) layer.casts += time.seconds;
    add_limit(time.seconds, time.limit, layer.compute, layer.memory, layer.start);
    if (each.is_product() && time.seconds > slowest[each.layer]) {
      slowest[each.layer] = time.seconds;
      layer.use = time.use;
    }
  }
  return layers;
}

StepTime step_time(const PlanCost& cost, const Device& device) {
  StepTime step;
  for (const NodeWork& each : cost.work) {
    const Estimate time = estimate(cost.executable, each, device);
    step.seconds += time.seconds;
    double& part = each.is_product()             ? step.products
                   : each.cast                   ? step.casts
                   : each.phase == Phase::update ? step.optimizer
                                                 : step.others;
    part += time.seconds;
    add_limit(time.seconds, time.limit, step.compute, step.memory, step.start);
  }
  return step;
}

std::string why_no_faster(const LayerTime& before, const LayerTime& now, const Device& device) {
  constexpr double kMost = 0.5, kNoticed = 0.2, kSameBytes = 0.95;
  const double casts = share(now.casts, now.seconds);
  const auto with_casts = [&](std::string text) {
    if (casts < kNoticed) return text;
    return text +
           fmt::format("{}{:.0f}% of its time is casts", text.empty() ? "" : "; ", 100.0 * casts);
  };
  if (share(now.start, now.seconds) > kMost) {
    return fmt::format("too small: {} kernel{} of less than {:.0f} us", now.kernels,
                       now.kernels == 1 ? "" : "s", kKernelSeconds * 1e6);
  }
  const bool multiplies = now.operations > 0;
  if (multiplies && now.limit() == Limit::compute) {
    if (now.use.no_unit) {
      return with_casts(
          fmt::format("no units for this format on {}: runs as {}", device.name, now.use.format));
    }
    if (now.use.thin) return with_casts("one channel per group: no matrices for tensor cores");
    if (now.use.misaligned) return with_casts("sizes are not multiples of 16 bytes: half the rate");
    if (now.use.padded_to > 0) {
      return with_casts(fmt::format("padded to multiples of {}: {:.0f}% of the units are used",
                                    now.use.padded_to, 100.0 * now.use.used));
    }
    if (now.use.few_tiles) {
      return with_casts(fmt::format("too few results for {} multiprocessors", device.processors));
    }
    return with_casts("");
  }
  const double bytes = share(static_cast<double>(now.bytes), static_cast<double>(before.bytes));
  if (bytes >= kSameBytes) {
    return with_casts(&before == &now ? "limited by memory"
                                      : "limited by memory, and moves as many bytes as before");
  }
  return with_casts(fmt::format("limited by memory: moves {:.2f} times the bytes", bytes));
}

int64_t largest_batch(const std::function<Executable(int64_t batch)>& build, int64_t bytes) {
  const auto peak = [&](int64_t batch) { return memory_of(build(batch)).peak; };
  int64_t fits = 0, at_fits = 0, too_many = 1, at_too_many = peak(1);
  while (at_too_many <= bytes && too_many < kMostSamples) {
    const int64_t before = fits, at_before = at_fits;
    fits = too_many;
    at_fits = at_too_many;
    too_many *= 2;
    try {
      at_too_many = peak(too_many);
    } catch (const Error&) {  // tensors of a file may become too large to be read
      if (before == 0) throw;
      const double slope =
          static_cast<double>(at_fits - at_before) / static_cast<double>(fits - before);
      return fits + static_cast<int64_t>(static_cast<double>(bytes - at_fits) / slope);
    }
  }
  if (at_too_many <= bytes) return too_many;
  // Memory grows almost linearly, so a line between the two finds it in a few tries.
  while (too_many - fits > 1) {
    const double slope =
        static_cast<double>(at_too_many - at_fits) / static_cast<double>(too_many - fits);
    const auto guess = fits + static_cast<int64_t>(static_cast<double>(bytes - at_fits) / slope);
    const int64_t next = std::clamp(guess, fits + 1, too_many - 1);
    const int64_t at_next = peak(next);
    (at_next <= bytes ? fits : too_many) = next;
    (at_next <= bytes ? at_fits : at_too_many) = at_next;
  }
  return fits;
}

}  // namespace halfscope
