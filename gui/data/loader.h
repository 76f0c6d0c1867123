// SPDX-License-Identifier: MIT
// Loader: follows one run file on its own thread and publishes immutable models, so that the user
// interface never waits for a disk. A growing file is read again. If a file disappears or is
// damaged later, the loader reports it and keeps the last good model.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gui/data/run_model.h"

namespace halfscope::gui {

class Loader {
 public:
  struct State {
    std::shared_ptr<const RunModel> model{};  ///< null until the first one is there
    std::string error{}, hint{};              ///< of the last attempt; "" if it went well
    bool loading = true;                      ///< a first model, or rules and report, are under way
    int64_t generation = 0;                   ///< counts what was published
  };

  /// Starts following `file`. Calls `wake` from its thread whenever there is something new.
  explicit Loader(std::string file, std::function<void()> wake = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  const std::string& file() const noexcept { return file_; }
  /// Asks the thread to end after its current read; the destructor waits for it.
  void ask_to_stop();
  bool stopped() const noexcept { return stopped_; }
  State state() const;

 private:
  void follow();
  void load_once();
  void publish(std::shared_ptr<const RunModel> model, bool loading);
  void fail(const std::string& error, const std::string& hint);

  std::string file_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::condition_variable stop_signal_;
  State state_;
  bool stop_ = false;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace halfscope::gui
