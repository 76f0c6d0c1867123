// SPDX-License-Identifier: MIT
#include "python/src/background.h"

#include <unistd.h>

#include <csignal>
#include <utility>

namespace halfscope::python {

Background::~Background() {
  if (thread_ == nullptr) return;
  if (is_copy()) {
    static_cast<void>(thread_.release());  // fork() did not copy the thread
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_->join();
}

/// Returns whether this is the memory of a process that fork() made after the thread began.
bool Background::is_copy() const noexcept { return thread_ != nullptr && ::getpid() != owner_; }

void Background::start(std::function<void()> work) {
  wait();
  if (thread_ == nullptr) {
    // Signals go to the program's own threads, whose handlers expect that.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    owner_ = ::getpid();
    try {
      thread_ = std::make_unique<std::thread>([this] { run(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void Background::wait() {
  if (thread_ == nullptr || is_copy()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  if (fault_ != nullptr) std::rethrow_exception(std::exchange(fault_, nullptr));
}

void Background::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || work_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr fault;
    try {
      work_();  // start() changes it only after it is empty
    } catch (...) {
      fault = std::current_exception();
    }
    lock.lock();
    fault_ = fault;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace halfscope::python
