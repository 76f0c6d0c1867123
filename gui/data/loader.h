// SPDX-License-Identifier: MIT
// FileLoader: follows one run file or study file on its own thread and publishes immutable models,
// so that the user interface never waits for a disk. A growing file is read again. If a file
// disappears or is damaged later, the loader reports it and keeps the last good model.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gui/data/run_model.h"
#include "gui/data/study_model.h"

namespace halfscope::gui {

template <class Model>
class FileLoader {
 public:
  struct State {
    std::shared_ptr<const Model> model{};  ///< null until the first one is there
    std::string error{}, hint{};           ///< of the last attempt; "" if it went well
    bool loading = true;                   ///< a first model, or rules and report, are under way
    int64_t generation = 0;                ///< counts what was published
  };

  /// Starts following `file`. Calls `wake` from its thread whenever there is something new.
  explicit FileLoader(std::string file, std::function<void()> wake = {});
  ~FileLoader();
  FileLoader(const FileLoader&) = delete;
  FileLoader& operator=(const FileLoader&) = delete;

  const std::string& file() const noexcept { return file_; }
  /// Asks the thread to end after its current read; the destructor waits for it.
  void ask_to_stop();
  bool stopped() const noexcept { return stopped_; }
  State state() const;

 private:
  void follow();
  void load_once();
  void read();  ///< publishes what the file contains
  void publish(std::shared_ptr<const Model> model, bool loading);
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

using Loader = FileLoader<RunModel>;
using StudyLoader = FileLoader<StudyModel>;

}  // namespace halfscope::gui
