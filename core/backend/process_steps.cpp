// SPDX-License-Identifier: MIT
#include "core/backend/process_steps.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/exchange/rank_means.h"

namespace halfscope {
namespace {

/// The tensors of one exchange, and where they come from and go to.
template <class T>
struct Exchanged {
  std::vector<std::vector<T>> own{}, mean{};
  std::vector<RankTensor<T>> tensors{};

  void add(std::vector<T> gradient, const FloatFormat& format, bool rounded) {
    mean.emplace_back(gradient.size());
    own.push_back(std::move(gradient));
    tensors.push_back({format, own.back(), mean.back(), rounded});
  }
};

}  // namespace

void exchange_gradients(Exchange& exchange, const Executable& executable, Program& program,
                        bool measured) {
  if (program.exchange_means(exchange, measured)) return;
  const bool in_double = executable.double_precision;
  Exchanged<float> singles;
  Exchanged<double> doubles;
  for (const ReducedGradient& each : executable.reduced) {
    const Value& reduced = executable.graph.value(each.reduced);
    if (in_double) {
      doubles.add(program.read_exact(each.stack), reduced.format, false);
    } else {
      singles.add(program.read(each.stack).data, reduced.format, !measured);
    }
  }
  if (in_double) {
    exchange_means<double>(exchange, executable.reduction, doubles.tensors);
  } else {
    exchange_means<float>(exchange, executable.reduction, singles.tensors);
  }
  for (size_t i = 0; i < executable.reduced.size(); ++i) {
    const ValueId mean = executable.reduced[i].mean;
    if (in_double) {
      program.write_exact(mean, doubles.mean[i]);
    } else {
      program.write(mean, std::span<const float>(singles.mean[i]));
    }
  }
}

std::vector<float> gathered_gradients(Exchange& exchange, const ReducedGradient& gradient,
                                      const Program& program) {
  const std::vector<float> own = program.read(gradient.stack).data;
  return all_gather(exchange, std::span<const float>(own));
}

ProcessSteps::ProcessSteps(Program& program, const Executable& executable, const StepRules& rules,
                           int64_t micro_batches, Exchange& exchange)
    : HostSteps(program, executable, rules, micro_batches), exchange_(exchange) {
  for (const Node& node : executable.graph.nodes()) {
    if (node.op == "ScaleUpdate") histories_.push_back(node.inputs.at(1));
  }
  for (const Variable& variable : executable.graph.variables()) {
    const bool history =
        std::find(histories_.begin(), histories_.end(), variable.value) != histories_.end();
    if (variable.buffer && !history) buffers_.push_back(variable.value);
  }
}

void ProcessSteps::begin_rank(int64_t) {
  in_rank_ = true;
  measures_ = false;
  own_stats_.clear();
  program_.write_scalar(executable_.rank, 0.0);  // the only row that this process has
}

/// Statistics of the ranks are merged in their order, so those of this rank must wait.
void ProcessSteps::run(Entry entry, bool measured) {
  measures_ = measures_ || measured;
  if (!in_rank_ || !measured) {
    HostSteps::run(entry, measured && exchange_.records());
    return;
  }
  own_stats_.emplace_back(executable_.taps.size());
  program_.run(entry, own_stats_.back());
}

void ProcessSteps::end_rank(int64_t) {
  in_rank_ = false;
  share_losses();
  share_buffers();
  if (measures_) share_stats();
  program_.write(executable_.rank_takes_part, std::vector<float>{1.0f});
  exchange_gradients(exchange_, executable_, program_, measures_);
}

/// Also shares whether gradients are finite.
void ProcessSteps::share_losses() {
  std::vector<double> own = current_.kept;
  own.push_back(std::isfinite(program_.read_scalar(executable_.rank_norm)) ? 1.0 : 0.0);
  const std::vector<double> all = all_gather(exchange_, std::span<const double>(own));
  current_.kept.clear();
  all_finite_ = true;
  for (size_t first = 0; first < all.size(); first += own.size()) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    const auto flag = begin + static_cast<std::ptrdiff_t>(own.size()) - 1;
    current_.kept.insert(current_.kept.end(), begin, flag);
    all_finite_ = all_finite_ && *flag != 0.0;
  }
}

/// All ranks go on with the buffers of rank 0, as torch's DistributedDataParallel does. The history
/// of delayed scales gets the largest magnitude on any rank.
void ProcessSteps::share_buffers() {
  std::vector<double> of_rank_0 = read(buffers_), largest = read(histories_);
  if (!of_rank_0.empty()) broadcast(exchange_, 0, std::span(of_rank_0));
  write(buffers_, of_rank_0);
  if (largest.empty()) return;
  const std::vector<double> all = all_gather(exchange_, std::span<const double>(largest));
  for (size_t i = 0; i < all.size(); ++i) {
    double& kept = largest[i % largest.size()];
    kept = i < largest.size() ? all[i] : std::max(kept, all[i]);
  }
  write(histories_, largest);
}

std::vector<double> ProcessSteps::read(const std::vector<ValueId>& variables) const {
  std::vector<double> values;
  for (const ValueId variable : variables) {
    const std::vector<double> each = program_.read_exact(variable);
    values.insert(values.end(), each.begin(), each.end());
  }
  return values;
}

void ProcessSteps::write(const std::vector<ValueId>& variables, std::span<const double> values) {
  for (const ValueId variable : variables) {
    const auto count = static_cast<size_t>(element_count(executable_.graph.value(variable).shape));
    program_.write_exact(variable, values.first(count));
    values = values.subspan(count);
  }
}

void ProcessSteps::share_stats() {
  static_assert(std::is_trivially_copyable_v<TensorStats>);
  const size_t taps = executable_.taps.size();
  std::vector<TensorStats> own;
  for (const std::vector<TensorStats>& each : own_stats_) {
    own.insert(own.end(), each.begin(), each.end());
  }
  const int to = exchange_.size() - 1;
  if (!exchange_.records()) {
    const Exchange::Send send{to, std::as_bytes(std::span(own))};
    exchange_.transfer({&send, 1}, {});
    return;
  }
  for (int rank = 0; rank <= to; ++rank) {
    std::vector<TensorStats> received(rank == to ? 0 : own.size());
    if (rank != to) {
      const Exchange::Receive receive{rank, std::as_writable_bytes(std::span(received))};
      exchange_.transfer({}, {&receive, 1});
    }
    const std::span<const TensorStats> parts = rank == to ? own : received;
    for (size_t first = 0; first < parts.size(); first += taps) {
      add_stats(parts.subspan(first, taps));
    }
  }
}

void ProcessSteps::update(bool measured) {
  update_together(exchange_.size(), all_finite_, measured && exchange_.records());
}

}  // namespace halfscope
