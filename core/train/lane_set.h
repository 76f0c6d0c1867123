// SPDX-License-Identifier: MIT
// LaneSet: lanes in lock step, for training or inference. A lane that fails is stopped and the
// others continue; at sampled steps lanes are compared and their kernels checked.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/observe/lane_kernels.h"
#include "core/train/lane.h"

namespace halfscope {

class LaneSet {
 public:
  LaneSet(const LaneSet&) = delete;

  enum class Work : uint8_t { training, inference };
  /// `before_loss` is called before a lane is stopped. With an exchange, work ends on the first
  /// failure of any lane, because other processes would wait for this one.
  explicit LaneSet(Work work, std::function<void()> before_loss = {}, Exchange* exchange = nullptr)
      : work_(work), before_loss_(std::move(before_loss)), exchange_(exchange) {}

  /// Adds a lane that has no program yet.
  Lane& add(const LaneConfig& config, Executable executable, const ErrorSampling& errors);
  /// Runs `work`, which compiles the lane's program or writes to it. If memory runs out or the
  /// device is lost, the lane stops before `step`. Any other Error is rethrown with the lane's
  /// name.
  void set_up(Lane& lane, int64_t step, const std::function<void()>& work);
  /// Sets up comparisons between these lanes, which must be the ones that were added. Throws Error
  /// (usage) for pairs that cannot be compared.
  void pair_up(const ErrorSampling& errors, std::span<const LaneConfig> lanes);
  /// Throws Error with the reason of each failure if no lane can go on.
  void check_any() const;
  /// Sets the step at which lanes that failed so far stopped, for a run that resumes there.
  void move_lost(int64_t step);

  /// Starts a run at this step: reports to `sink`, which may be null, the lanes that have failed
  /// and, until the next run, those that fail.
  void watch(TapSink* sink, int64_t step);

  /// Runs work(lane) unless the lane has failed, and stops the lane if that fails (Error, out of
  /// memory). Returns whether it succeeded. Throws once no lane is left; in training it first
  /// reports to the sink that the run was interrupted.
  template <class F>
  bool guarded(size_t lane, int64_t step, const F& work) {
    if (lanes_[lane]->lost) return false;
    FailedLane lost{.step = step, .why = "out of memory", .name = lanes_[lane]->config.name()};
    lost.hint = work_ == Work::training ? "lower --batch, or train fewer lanes"
                                        : "lower --batch or --limit, or run fewer lanes";
    try {
      work(*lanes_[lane]);
      return true;
    } catch (const Error& error) {
      lost.why = error.what();
      lost.hint = error.hint();
      lost.kind = error.kind();
    } catch (const std::bad_alloc&) {
    }
    lose(lane, std::move(lost));
    return false;
  }

  /// Reports to the sink how lanes differ, what happened in their sums and what their kernels did.
  /// `probe` reads a value of a lane. If a comparison fails, it is called for both programs, and
  /// the lane for which it fails is stopped.
  void compare(int64_t step, const RandomSource& random, void (*probe)(const Lane&));

  std::vector<LaneInfo> describe() const;
  std::vector<ProductKernel> product_kernels() const;
  std::vector<EntryLaunch> entry_launches() const;
  const std::vector<FailedLane>& lost() const noexcept { return lost_; }

  size_t size() const noexcept { return lanes_.size(); }
  bool empty() const noexcept { return lanes_.empty(); }
  Lane& operator[](size_t lane) const { return *lanes_.at(lane); }
  auto begin() const noexcept { return lanes_.begin(); }
  auto end() const noexcept { return lanes_.end(); }

 private:
  void lose(size_t lane, FailedLane&& lost);
  /// Returns whether lanes can go on although some have failed.
  bool goes_on() const { return exchange_ == nullptr && lost_.size() < lanes_.size(); }
  std::vector<float> gradients(const Lane& lane, const ReducedGradient& gradient) const;
  static void release(Lane& lane);
  void compare_lane(const Lane& lane, int64_t step, std::vector<SiteError>& errors) const;

  Work work_;
  std::function<void()> before_loss_;
  Exchange* exchange_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<FailedLane> lost_;
  TapSink* sink_ = nullptr;
};

/// Returns the order of the first site, except states, that overflowed or produced a non-finite
/// value; -1 if there is none.
int first_bad_site(const Executable& executable, std::span<const TensorStats> stats);

}  // namespace halfscope
