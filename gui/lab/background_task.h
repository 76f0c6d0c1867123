// SPDX-License-Identifier: MIT
// Work on another thread that ends early if nobody waits for its result any more.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <utility>

namespace halfscope::gui {

/// One task at a time. Destroying it, or moving another one into it, tells the work to stop and
/// waits until it has.
template <class Result>
class BackgroundTask {
 public:
  BackgroundTask() = default;
  BackgroundTask(BackgroundTask&& other) noexcept = default;
  BackgroundTask& operator=(BackgroundTask&& other) noexcept {
    halt();
    future_ = std::move(other.future_);
    stop_ = std::move(other.stop_);
    return *this;
  }
  ~BackgroundTask() { halt(); }

  /// Starts `work`, a function without arguments. It must keep its own copy of stop().
  template <class Work>
  void start(Work work) {
    future_ = std::async(std::launch::async, std::move(work));
  }
  bool running() const noexcept { return future_.valid(); }
  /// Returns the result once it is there, and then forgets it. Throws what the work threw.
  std::optional<Result> take() {
    if (!running() || future_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return std::nullopt;
    return future_.get();
  }
  /// Returns what becomes true when the work should stop.
  std::shared_ptr<const std::atomic<bool>> stop() const noexcept { return stop_; }

 private:
  void halt() noexcept {
    if (stop_ != nullptr) *stop_ = true;
    if (running()) future_.wait();
  }

  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  std::future<Result> future_{};
};

}  // namespace halfscope::gui
