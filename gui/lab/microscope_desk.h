// SPDX-License-Identifier: MIT
// MicroscopeDesk: what the tab "Training step" shows and what a user has chosen there. Changed
// settings train again at once, in the same frame if that is quick, else in the background.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/lab/microscope.h"

namespace halfscope::gui {

using namespace lab;

/// Trains what is asked for and keeps it until something else is.
class MicroscopeStudy {
 public:
  /// `waits`: always trains in the same frame, as where there are no threads.
  explicit MicroscopeStudy(bool waits = false);

  /// Returns the newest result: of these settings, or of earlier ones while busy(). Null before the
  /// first.
  const Microscope* of(const SmallTraining& training, const MicroscopePlace& place);
  /// Returns whether a training is running in the background.
  bool busy() const noexcept { return pending_.valid(); }

 private:
  struct Trained {
    SmallTraining training{};
    int64_t step = 0;  ///< that was watched
    SmallRun run{};
    double ms_per_step = 0.0;
  };
  using Result = std::shared_ptr<const Trained>;
  static Result train(const SmallTraining& training, int64_t step, const Result& curves);
  void take(Result result);

  bool waits_;
  Result trained_{};
  std::future<Result> pending_{};
  double ms_per_step_ = 0.2;  ///< of one rank, as last measured
  Microscope microscope_{};
  std::optional<MicroscopePlace> shown_{};  ///< place of microscope_
};

struct MicroscopeDesk {
  SmallTraining training{};
  MicroscopePlace place{};
  std::string selected = "gradient";  ///< key of the station
  std::string note{};                 ///< what the preset shows
  // As typed or chosen; applied when they are valid.
  std::string format = "fp16", learning_rate = "0.02";
  bool scales = false, dynamic = false;  ///< a loss scale, and whether it adapts
  double scale_log2 = 16.0;
  MicroscopeStudy study{};

  MicroscopeDesk();
  /// Makes `training` from the fields.
  void edited();
  /// Sets the fields from `training`.
  void set(const SmallTraining& to);
  /// Moves the weight into the layer.
  void clamp_place();
};

struct MicroscopePreset {
  const char* name;
  const char* tip;
  void (*apply)(MicroscopeDesk& desk);
};
std::span<const MicroscopePreset> microscope_presets();

}  // namespace halfscope::gui
