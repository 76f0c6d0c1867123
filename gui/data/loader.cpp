// SPDX-License-Identifier: MIT
// A signature of time and size shows whether there is something new. Reading takes at most half of
// the time.
#include "gui/data/loader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace halfscope::gui {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{250};

/// Time and size of a file and its write-ahead log, which change whenever a writer commits.
struct Signature {
  std::array<fs::file_time_type, 2> times{};
  std::array<uintmax_t, 2> sizes{};
  bool exists = false;
  friend bool operator==(const Signature&, const Signature&) = default;
};

Signature signature_of(const std::string& file) {
  Signature signature;
  std::error_code error;
  signature.exists = fs::exists(file, error);
  size_t i = 0;
  for (const std::string& each : {file, file + "-wal"}) {
    const fs::file_time_type time = fs::last_write_time(each, error);
    if (!error) signature.times[i] = time;
    const uintmax_t size = fs::file_size(each, error);
    if (!error) signature.sizes[i] = size;
    ++i;
  }
  return signature;
}

}  // namespace

template <class Model>
FileLoader<Model>::FileLoader(std::string file, std::function<void()> wake)
    : file_(std::move(file)), wake_(std::move(wake)), thread_([this] {
        follow();
        stopped_ = true;
      }) {}

template <class Model>
FileLoader<Model>::~FileLoader() {
  ask_to_stop();
  thread_.join();
}

template <class Model>
void FileLoader<Model>::ask_to_stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_signal_.notify_all();
}

template <class Model>
typename FileLoader<Model>::State FileLoader<Model>::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

template <class Model>
void FileLoader<Model>::publish(std::shared_ptr<const Model> model, bool loading) {
  {
    const std::lock_guard lock(mutex_);
    state_.model = std::move(model);
    state_.loading = loading;
    state_.error.clear();
    state_.hint.clear();
    ++state_.generation;
  }
  if (wake_) wake_();
}

template <class Model>
void FileLoader<Model>::fail(const std::string& error, const std::string& hint) {
  {
    const std::lock_guard lock(mutex_);
    state_.loading = false;
    if (state_.error == error) return;
    state_.error = error;
    state_.hint = hint;
    ++state_.generation;
  }
  if (wake_) wake_();
}

template <>
void FileLoader<RunModel>::read() {
  auto view = std::make_shared<const RunView>(RunView::open(file_));
  // Publish a first model at once and the rules' report a little later. Never replace a model with
  // a verdict by one without.
  if (!state().model) publish(RunModel::make(file_, view, false), true);
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
  }
  publish(RunModel::make(file_, view, true), false);
}

template <>
void FileLoader<StudyModel>::read() {
  publish(StudyModel::make(file_, StudyView::open(file_)), false);
}

template <class Model>
void FileLoader<Model>::load_once() {
  try {
    read();
  } catch (const Error& error) {
    fail(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    fail("not enough memory to read '" + file_ + "'",
         "close other programs, or record fewer steps");
  } catch (const std::exception& error) {
    fail("cannot read '" + file_ + "': " + error.what(), "");
  }
}

template <class Model>
void FileLoader<Model>::follow() {
  Signature seen;
  bool first = true, was_live = false;
  Clock::duration pause = kPoll;
  Clock::time_point last_load = Clock::now();
  for (;;) {
    const Signature now = signature_of(file_);
    // A writer that dies does not change its file, so check a live run again now and then.
    const bool look_again = was_live && Clock::now() - last_load > std::chrono::seconds(2);
    if (first || now != seen || look_again) {
      if (!now.exists && !first) {
        fail("'" + file_ + "' was moved or deleted", "the viewer keeps showing what it has read");
      } else {
        const Clock::time_point start = Clock::now();
        load_once();
        last_load = Clock::now();
        // Spend at most half of the time reading.
        pause = std::max<Clock::duration>(kPoll, last_load - start);
        const State current = state();
        was_live = current.model && current.model->live();
      }
      seen = now;
      first = false;
    }
    std::unique_lock lock(mutex_);
    if (stop_signal_.wait_for(lock, pause, [this] { return stop_; })) return;
  }
}

template class FileLoader<RunModel>;
template class FileLoader<StudyModel>;

}  // namespace halfscope::gui
