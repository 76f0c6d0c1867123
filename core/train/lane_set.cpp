// SPDX-License-Identifier: MIT
#include "core/train/lane_set.h"

#include <algorithm>

#include "core/observe/mask.h"
#include "core/observe/rank_check.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "core/train/probe.h"

namespace halfscope {
namespace {

/// Returns the events in the sums before the taps of the last run.
std::vector<SiteSums> diagnosed_sums(const Executable& executable, const Program& program,
                                     int64_t step) {
  std::vector<SiteSums> sums;
  for (const Tap& tap : executable.taps) {
    const NodeId node = executable.graph.value(tap.value).producer;
    if (node == kNone) continue;
    const std::optional<SumDiagnostics> seen = program.diagnose(node);
    const Node& summing = executable.graph.node(node);
    if (seen) {
      sums.push_back({step, tap.site.order, summing.path, summing.plan.accumulation, *seen});
    }
  }
  return sums;
}

}  // namespace

Lane& LaneSet::add(const LaneConfig& config, Executable executable, const ErrorSampling& errors) {
  Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
  lane.config = config;
  if (work_ == Work::inference) lane.config.scaler = {};
  lane.executable = std::move(executable);
  lane.checker = kernel_checker(errors, lane.config, lane.executable);
  lane.state.scaler = initial_state(lane.config.scaler);
  return lane;
}

void LaneSet::set_up(Lane& lane, int64_t step, const std::function<void()>& work) {
  FailedLane lost{.step = step, .why = "out of memory", .name = lane.config.name()};
  lost.hint = "lower --batch, or use fewer lanes";
  try {
    work();
    return;
  } catch (const DeviceError& error) {
    lost.why = error.what();
    lost.hint = error.hint();
  } catch (const Error& error) {
    throw error.with_text("lane " + lost.name + ": " + error.what());
  } catch (const std::bad_alloc&) {
  }
  release(lane);
  lost_.push_back(std::move(lost));
}

void LaneSet::pair_up(const ErrorSampling& errors, std::span<const LaneConfig> lanes) {
  for (size_t i = 0; i < lanes.size(); ++i) lanes_[i]->reference = reference_for(lanes, i);
  for (const auto& [first, other] : lane_pairs(errors, lanes)) {
    Lane& lane = *lanes_[first];
    lane.comparators.emplace_back(lane.executable, lanes_[other]->executable,
                                  static_cast<int>(other));
    lane.compared_with.push_back(other);
  }
}

void LaneSet::check_any() const {
  if (lost_.empty() || goes_on()) return;
  std::string text;
  for (const FailedLane& lost : lost_) {
    text += (text.empty() ? "lane " : "; lane ") + lost.name + ": " + lost.why;
  }
  throw Error(text, lost_.front().hint);
}

void LaneSet::move_lost(int64_t step) {
  for (FailedLane& lost : lost_) lost.step = step;
}

void LaneSet::watch(TapSink* sink, int64_t step) {
  sink_ = sink;
  for (size_t i = 0; sink != nullptr && i < lanes_.size(); ++i) {
    if (!lanes_[i]->lost) continue;
    const auto found = std::find_if(lost_.begin(), lost_.end(), [&](const FailedLane& each) {
      return each.name == lanes_[i]->config.name();
    });
    sink->lost(static_cast<int>(i), step, found->why);
  }
}

/// Stops the lane: its program may be in any state, and other lanes may need the memory.
void LaneSet::release(Lane& lane) {
  lane.lost = true;
  lane.steps.reset();
  lane.ranks = nullptr;
  lane.program.reset();
}

void LaneSet::lose(size_t lane, FailedLane&& lost) {
  if (before_loss_) before_loss_();
  if (lanes_[lane]->lost) return;
  release(*lanes_[lane]);
  lost_.push_back(std::move(lost));
  const FailedLane& last = lost_.back();
  if (sink_ != nullptr) sink_->lost(static_cast<int>(lane), last.step, last.why);
  if (goes_on()) return;
  const bool trains = work_ == Work::training;
  if (trains && sink_ != nullptr) sink_->end(RunEnd::interrupted);
  const std::string text = "lane " + last.name + " failed at " + (trains ? "step " : "batch ") +
                           std::to_string(last.step) + ": " + last.why;
  if (trains) throw Error(text, last.hint);
  // If all lanes fail for the same reason, such as an index out of range, no lane is to blame.
  const bool alike = std::all_of(lost_.begin(), lost_.end(),
                                 [&](const FailedLane& each) { return each.why == last.why; });
  throw Error(alike ? last.why : text, last.hint, last.kind);
}

void LaneSet::compare(int64_t step, const RandomSource& random, void (*probe)(const Lane&)) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    std::vector<SiteError> errors;
    std::vector<SiteSums> sums;
    std::vector<KernelCheck> checks;
    std::vector<ReductionError> reductions;
    guarded(i, step, [&](const Lane& lane) {
      try {
        compare_lane(lane, step, errors);
      } catch (const Error&) {
        const size_t lost_before = lost_.size();
        probe(lane);
        for (const size_t other : lane.compared_with) guarded(other, step, probe);
        if (lost_.size() == lost_before) throw;
      }
      if (lane.checker) checks = lane.checker->check(step, *lane.program, random);
      sums = diagnosed_sums(lane.executable, *lane.program, step);
      if (!lane.config.plan.double_precision) {
        reductions = check_reductions(
            step, lane.executable, *lane.program,
            [&](const ReducedGradient& gradient) { return gradients(lane, gradient); });
      }
    });
    for (const SiteError& error : errors) sink_->error(static_cast<int>(i), error);
    for (const SiteSums& each : sums) sink_->sums(static_cast<int>(i), each);
    for (const KernelCheck& check : checks) sink_->kernel(static_cast<int>(i), check);
    for (const ReductionError& each : reductions) sink_->reduction(static_cast<int>(i), each);
  }
}

/// Returns a variable's gradients on all ranks, [ranks, ...].
std::vector<float> LaneSet::gradients(const Lane& lane, const ReducedGradient& gradient) const {
  return exchange_ != nullptr ? gathered_gradients(*exchange_, gradient, *lane.program)
                              : lane.program->read(gradient.stack).data;
}

void LaneSet::compare_lane(const Lane& lane, int64_t step, std::vector<SiteError>& errors) const {
  for (size_t pair = 0; pair < lane.comparators.size(); ++pair) {
    const Lane& other = *lanes_[lane.compared_with[pair]];
    if (other.lost) continue;
    const std::vector<SiteError> found = lane.comparators[pair].compare(
        step, {lane.executable, *lane.program, lane.state.scaler.scale},
        {other.executable, *other.program, other.state.scaler.scale});
    errors.insert(errors.end(), found.begin(), found.end());
  }
}

std::vector<LaneInfo> LaneSet::describe() const {
  std::vector<LaneInfo> infos;
  for (const auto& lane : lanes_) infos.push_back(describe_lane(lane->config, lane->executable));
  return infos;
}

std::vector<ProductKernel> LaneSet::product_kernels() const {
  std::vector<ProductKernel> kernels;
  for (const auto& lane : lanes_) {
    if (lane->lost) continue;
    add_product_kernels(kernels, lane->config.name(), lane->executable, *lane->program);
  }
  return kernels;
}

std::vector<EntryLaunch> LaneSet::entry_launches() const {
  std::vector<EntryLaunch> launches;
  for (const auto& lane : lanes_) {
    if (!lane->lost) add_entry_launches(launches, lane->config.name(), *lane->program);
  }
  return launches;
}

int first_bad_site(const Executable& executable, std::span<const TensorStats> stats) {
  for (size_t i = 0; i < stats.size(); ++i) {
    // States may have received a bad value in an earlier step.
    if (executable.taps[i].site.role == Role::state) continue;
    if (contains_mask(executable.taps[i].site, stats[i])) continue;
    const bool saturates = !executable.taps[i].site.scale.empty();
    if ((saturates ? 0 : stats[i].overflow) + stats[i].non_finite() > 0) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace halfscope
