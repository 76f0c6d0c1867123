// SPDX-License-Identifier: MIT
// NullSink: for trainings that nobody records.
#pragma once

#include <span>

#include "core/observe/recording.h"

namespace halfscope {

class NullSink final : public TapSink {
 public:
  void begin(const RunInfo&) override {}
  void step(int, const StepRow&, std::span<const TensorStats>) override {}
  void eval(int, const EvalRow&) override {}
  void error(int, const SiteError&) override {}
  void sums(int, const SiteSums&) override {}
  void end(RunEnd) override {}
};

}  // namespace halfscope
