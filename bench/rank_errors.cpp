// SPDX-License-Identifier: MIT
#include "bench/rank_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "analysis/rules/rank_estimate.h"
#include "bench/networks.h"
#include "core/numeric/statistics/rates.h"
#include "core/observe/reduction_meter.h"
#include "core/policy/policy.h"
#include "core/train/feed.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

/// Elements whose gradients of all ranks are in memory at a time.
constexpr int64_t kErrorBlock = 2048;

NamedTensors trained_weights(const RankErrorOptions& options, const Workload& network,
                             const Dataset& data) {
  TrainConfig config;
  config.model = options.model;
  config.build = network.build;
  config.optimizer = network.optimizer;
  config.steps = options.steps;
  config.every = 0;
  config.evaluate = false;
  config.lanes.push_back({*preset_plan("float32"), {}, &emulation_backend()});
  Trainer trainer(config, data);
  const std::atomic<bool> stop{false};
  trainer.run(nullptr, {}, stop);
  return trainer.weights(0);
}

/// Computes the gradients of one rank at a time: all variables, one after the other.
class RankGradients {
 public:
  RankGradients(const RankErrorOptions& options, const Workload& network, const Dataset& data)
      : samples_(options.samples),
        data_(data),
        executable_(lower(network.build(options.samples), *preset_plan("float32"), {})),
        program_(emulation_backend().compile(executable_)),
        feed_(executable_, data) {
    const NamedTensors weights = trained_weights(options, network, data);
    for (const Variable& variable : executable_.graph.variables()) {
      const auto found = weights.find(variable.path);
      if (found != weights.end()) program_->write(variable.value, found->second.data);
    }
    program_->write_scalar(executable_.loss_scale, options.loss_scale);
    for (const Tap& tap : executable_.taps) {
      if (tap.site.role != Role::weight_grad || !tap.site.tensor.ends_with("_grad")) continue;
      gradients_.push_back(tap.value);
      count_ += element_count(tap.site.shape);
    }
  }

  int64_t count() const { return count_; }

  std::vector<float> of(int64_t rank) {
    std::vector<int64_t> indices(static_cast<size_t>(samples_));
    std::iota(indices.begin(), indices.end(), rank * samples_);
    for (int64_t& index : indices) index %= data_.train.size();
    feed_.write(executable_, *program_, data_.train, indices);
    program_->run(Entry::grad, {});
    std::vector<float> all;
    for (const ValueId gradient : gradients_) {
      const Tensor values = program_->read(gradient);
      all.insert(all.end(), values.data.begin(), values.data.end());
    }
    return all;
  }

 private:
  const int64_t samples_;
  const Dataset& data_;
  const Executable executable_;
  const std::unique_ptr<Program> program_;
  Feed feed_;
  std::vector<ValueId> gradients_;
  int64_t count_ = 0;
};

struct Setting {
  Reduction how;
  std::vector<ReductionMeter> by_ranks;  ///< 2, 4, 8 ...
};

std::vector<Setting> all_settings(int64_t most_ranks, int64_t n) {
  std::vector<Setting> settings;
  for (const FloatFormat& format : {kFp32, kBf16, kFp16}) {
    for (const auto average : {Reduction::Average::before, Reduction::Average::after}) {
      for (size_t i = 0; i < reduction_names().size(); ++i) {
        Setting setting;
        setting.how = {static_cast<Reduction::Algorithm>(i), format, average};
        for (int64_t ranks = 2; ranks <= most_ranks; ranks *= 2) {
          setting.by_ranks.emplace_back(setting.how, ranks, n, [format](float* x, int64_t count) {
            if (format != kFp32) round_array(x, x, count, format);
          });
        }
        settings.push_back(std::move(setting));
      }
    }
  }
  return settings;
}

std::string cell(double x) { return x == 0.0 ? "0" : fmt::format("{:.3g}", x); }

/// Prints the settings of one format and place of the division, one per algorithm.
void print_table(std::span<const Setting> settings) {
  const Reduction& how = settings.front().how;
  fmt::print("\n{}, average {}\n\n| ranks |", format_name(*how.format),
             how.average == Reduction::Average::before ? "before" : "after");
  for (const std::string& name : reduction_names()) fmt::print(" {} | lost | overflow |", name);
  fmt::print("\n| ---: |");
  for (size_t i = 0; i < settings.size(); ++i) fmt::print(" ---: | ---: | ---: |");
  for (size_t k = 0; k < settings.front().by_ranks.size(); ++k) {
    fmt::print("\n| {} |", int64_t{2} << k);
    for (const Setting& setting : settings) {
      const ReductionError row = setting.by_ranks[k].result();
      fmt::print(" {} | {} | {} |", cell(row.error), cell(share_of(row.swamped, row.additions)),
                 cell(share_of(row.broken, row.n)));
    }
  }
  fmt::print("\n");
}

/// Prints the ratio of estimates, from the rows up to `known` ranks, to what was simulated.
void print_estimates(std::span<const Setting> settings, int64_t known) {
  const Reduction& how = settings.front().how;
  fmt::print("\n{}, average {}: estimates from {} ranks, relative to the simulation\n\n| ranks |",
             format_name(*how.format),
             how.average == Reduction::Average::before ? "before" : "after", known);
  std::vector<std::vector<RankEstimate>> estimates;
  std::vector<std::vector<ReductionError>> simulated;
  for (const Setting& setting : settings) {
    fmt::print(" {}: least | most | lost |",
               reduction_names()[static_cast<size_t>(setting.how.algorithm)]);
    std::vector<ReductionError>& rows = simulated.emplace_back();
    for (const ReductionMeter& meter : setting.by_ranks) rows.push_back(meter.result());
    const auto end = std::find_if(rows.begin(), rows.end(),
                                  [known](const ReductionError& row) { return row.ranks > known; });
    estimates.push_back(
        estimate_more_ranks(setting.how, *how.format, {rows.begin(), end}, rows.back().ranks));
  }
  fmt::print("\n| ---: |");
  for (size_t i = 0; i < settings.size(); ++i) fmt::print(" ---: | ---: | ---: |");
  for (size_t k = 0; k < simulated.front().size(); ++k) {
    const int64_t ranks = simulated.front()[k].ranks;
    if (ranks <= known) continue;
    fmt::print("\n| {} |", ranks);
    for (size_t i = 0; i < settings.size(); ++i) {
      const ReductionError& row = simulated[i][k];
      const auto found = std::find_if(estimates[i].begin(), estimates[i].end(),
                                      [&](const RankEstimate& e) { return e.ranks == ranks; });
      const double lost = share_of(row.swamped, row.additions);
      const bool known_error = found != estimates[i].end();
      fmt::print(" {} | {} | {} |", known_error ? cell(found->least / row.error) : "",
                 known_error ? cell(found->most / row.error) : "",
                 known_error && lost > 0.0 ? cell(found->lost / lost) : "");
    }
  }
  fmt::print("\n");
}

}  // namespace

void print_rank_errors(const RankErrorOptions& options) {
  const Workload network = workload(options.model);
  const Dataset data = network.data(options.ranks * options.samples);
  RankGradients gradients(options, network, data);
  const int64_t n = gradients.count();
  std::vector<Setting> settings = all_settings(options.ranks, n);
  std::vector<float> block(static_cast<size_t>(options.ranks * kErrorBlock));
  // Computing all gradients again for each block needs less memory than keeping them.
  for (int64_t begin = 0; begin < n; begin += kErrorBlock) {
    const int64_t end = std::min(n, begin + kErrorBlock);
    for (int64_t rank = 0; rank < options.ranks; ++rank) {
      const std::vector<float> all = gradients.of(rank);
      std::copy(all.begin() + begin, all.begin() + end, block.begin() + rank * kErrorBlock);
    }
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < settings.size(); ++i) {
      for (ReductionMeter& meter : settings[i].by_ranks) {
        meter.add(begin, end, [&](int64_t rank) { return block.data() + rank * kErrorBlock; });
      }
    }
  }
  fmt::print(
      "{} after {} steps, {} values, {} samples a rank, loss scale {:g}.\n"
      "Relative error against the exact mean; \"lost\": share of additions that change nothing; "
      "\"overflow\": share of values.\n",
      options.model, options.steps, n, options.samples, options.loss_scale);
  const size_t algorithms = reduction_names().size();
  for (size_t first = 0; first < settings.size(); first += algorithms) {
    print_table(std::span(settings).subspan(first, algorithms));
  }
  if (options.ranks <= options.known) return;
  for (size_t first = 0; first < settings.size(); first += algorithms) {
    print_estimates(std::span(settings).subspan(first, algorithms), options.known);
  }
}

}  // namespace halfscope
