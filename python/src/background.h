// SPDX-License-Identifier: MIT
// Background: runs one piece of work after the other on a thread of its own, so that a training
// does not wait for the disk.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace halfscope::python {

class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  /// Finishes the work that has started.
  ~Background();

  /// Starts work once the work before is done. Throws what that threw, and then does not start.
  void start(std::function<void()> work);
  /// Waits until nothing runs. Throws what the last work threw, once.
  void wait();

 private:
  void run();
  bool is_copy() const noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: nothing runs
  std::exception_ptr fault_;
  bool ends_ = false;
  int owner_ = 0;  // the process in which the thread runs
  std::unique_ptr<std::thread> thread_;
};

}  // namespace halfscope::python
