// SPDX-License-Identifier: MIT
// LaneSet: lanes in lock step, whether they train or only infer. One that fails is lost and the
// others go on; at sampled steps lanes are compared and their kernels checked.
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
  /// `before_loss` is called before a lane is lost.
  explicit LaneSet(Work work, std::function<void()> before_loss = {})
      : work_(work), before_loss_(std::move(before_loss)) {}

  /// Adds a lane that has no program yet.
  Lane& add(const LaneConfig& config, Executable executable, const ErrorSampling& errors);
  /// Does `work`, which compiles the lane's program or writes to it. If memory runs out or the
  /// device is lost, so is the lane, before `step`. Any other Error is thrown on, with its name.
  void set_up(Lane& lane, int64_t step, const std::function<void()>& work);
  /// Finds out which of these lanes, which are those that were added, are compared. Throws Error
  /// (usage) for pairs that cannot be.
  void pair_up(const ErrorSampling& errors, std::span<const LaneConfig> lanes);
  /// Throws Error, with what happened to each, if all lanes are lost.
  void check_any() const;
  /// Moves the lanes that are lost to the step before which a run goes on.
  void move_lost(int64_t step);

  /// A run begins with this step: `sink`, which may be null, is told of the lanes that are lost
  /// and, until the next run, of those that will be.
  void watch(TapSink* sink, int64_t step);

  /// Does work(lane) unless the lane is lost, and loses the lane if that fails (Error, out of
  /// memory). Returns whether it was done. Throws once no lane is left; in training the sink is
  /// then told that the run was interrupted.
  template <class F>
  bool guarded(size_t lane, int64_t step, const F& work) {
    if (lanes_[lane]->lost) return false;
    LostLane lost{.step = step, .why = "out of memory", .name = lanes_[lane]->config.name()};
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

  /// Tells the sink how lanes differ, what happened in their sums and what their kernels did.
  /// `probe` reads a value of a lane: what a comparison fails over is found by asking both
  /// programs, and the one that fails is lost.
  void compare(int64_t step, const RandomSource& random, void (*probe)(const Lane&));

  std::vector<LaneInfo> describe() const;
  std::vector<ProductKernel> product_kernels() const;
  std::vector<EntryLaunch> entry_launches() const;
  const std::vector<LostLane>& lost() const noexcept { return lost_; }

  size_t size() const noexcept { return lanes_.size(); }
  bool empty() const noexcept { return lanes_.empty(); }
  Lane& operator[](size_t lane) const { return *lanes_.at(lane); }
  auto begin() const noexcept { return lanes_.begin(); }
  auto end() const noexcept { return lanes_.end(); }

 private:
  void lose(size_t lane, LostLane&& lost);
  static void release(Lane& lane);
  void compare_lane(const Lane& lane, int64_t step, std::vector<SiteError>& errors) const;

  Work work_;
  std::function<void()> before_loss_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<LostLane> lost_;
  TapSink* sink_ = nullptr;
};

/// Order of the first site, states left aside, that overflowed or made a non-finite value; -1 if
/// there is none.
int first_bad_site(const Executable& executable, std::span<const TensorStats> stats);

}  // namespace halfscope
