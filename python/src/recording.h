// SPDX-License-Identifier: MIT
// Recording: one captured run, from the first tensor to the closed run file. Tensors are measured
// when they are handed over; the file begins as soon as all sites are known. Steps that come before
// wait in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "analysis/recorder.h"
#include "core/observe/recording.h"
#include "python/src/background.h"
#include "python/src/elements.h"

namespace halfscope::python {

/// A tensor and the site that it belongs to.
struct SiteTensor {
  int site = -1;
  const Elements* elements = nullptr;
  /// The gradient of an update, or the mean of gradients of a mean of squares. May be null.
  const Elements* beside = nullptr;
  int weight = -1;  ///< of updates: site of the weight, of which before_update() keeps the bytes
};

class Recording {
 public:
  /// Creates the file. Measures on at most `threads` of OpenMP's threads; 0: all. Throws Error if
  /// the file cannot be written, or exists and `force` is off.
  Recording(const std::filesystem::path& file, bool force, int threads);

  /// Adds a site and returns its number. Sites can be added until begin(). `order` is ignored.
  int add_site(SiteInfo site);
  /// Changes the format of a site that has not been measured yet.
  void set_format(int site, const FloatFormat& format);
  int site_count() const noexcept { return static_cast<int>(sites_.size()); }
  bool begun() const noexcept { return begun_; }

  /// Measures tensors of the open step. With `merge`, their numbers are added to those that a site
  /// has; otherwise they replace them.
  void measure(std::span<const SiteTensor> tensors, bool merge);
  /// Measures weights and keeps their bytes until the step ends.
  void before_update(std::span<const SiteTensor> weights);
  /// Measures updates and states of the optimizer.
  void after_update(std::span<const SiteTensor> tensors);

  /// Returns the statistics of a site in the open step.
  const TensorStats& stats(int site) const { return stats_.at(static_cast<size_t>(site)); }
  /// Returns the 2-norm of these sites' tensors in the open step; infinite or NaN if an element is.
  double norm(const std::vector<int>& sites) const;

  /// Begins the file. `order` has every site's number once, in execution order. Writes the steps
  /// that waited.
  void begin(RunInfo run, const std::vector<int>& order);
  /// Ends the open step, which is written in the background: at most one step waits. Without
  /// `recorded`, only its row is kept. A fault of the step before is thrown here, or by any other
  /// function that writes.
  void step(const StepRow& row, bool recorded);
  /// Writes rows of steps that were not recorded, in one transaction.
  void rows(const std::vector<StepRow>& rows);
  void eval(const EvalRow& row);
  /// Adds a fact about the training script to the run (namespace observed), once.
  void observe(const std::string& fact);
  /// Forgets what was measured since the last step.
  void drop_step();
  /// Gives back memory that only recorded steps need.
  void release() noexcept;
  /// Closes the file; removes it if it never began.
  void end(RunEnd how);

 private:
  struct Waiting {
    StepRow row;
    bool recorded = false;
    std::vector<TensorStats> stats;  // by site number
  };
  void write(const Waiting& step);

  int threads_;
  std::unique_ptr<Recorder> recorder_;
  std::mutex mutex_;  // backward passes on devices call hooks from their own threads
  std::vector<SiteInfo> sites_;
  std::vector<TensorStats> stats_;  // of the open step, by site number
  /// Bytes of a weight before its update. The memory is used again: fresh pages cost more than the
  /// copy.
  struct Before {
    std::unique_ptr<uint8_t[]> bytes;
    int64_t size = 0;
    bool valid = false;
  };
  std::vector<Before> before_;  // by site number
  std::vector<int> order_;
  std::vector<TensorStats> in_order_;
  std::vector<Waiting> waiting_;
  std::vector<std::string> observed_;
  bool begun_ = false;
  Waiting last_;           // what is written in the background
  Background background_;  // ends before what it uses
};

}  // namespace halfscope::python
