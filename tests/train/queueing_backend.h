// SPDX-License-Identifier: MIT
// The emulator as a backend whose steps are launched and collected later, as a device's are; it can
// fail at either.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "core/backend/host_steps.h"
#include "core/error.h"
#include "emulation/backends.h"
#include "tests/train/forwarding_program.h"

namespace halfscope::test {

class QueueingBackend final : public Backend {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  /// Steps count from 0.
  explicit QueueingBackend(int64_t fails_to_launch = kNever, int64_t fails_to_collect = kNever)
      : fails_to_launch_(fails_to_launch), fails_to_collect_(fails_to_collect) {}

  const char* name() const noexcept override { return "queueing"; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return std::make_unique<Queueing>(*this, executable);
  }
  /// The most steps that were launched and not collected.
  int64_t most_in_flight() const { return most_in_flight_; }

 private:
  class Steps final : public StepQueue {
   public:
    Steps(const QueueingBackend& how, HostSteps steps) : how_(how), steps_(std::move(steps)) {}
    void open(const StepState* state) override {
      if (launched_++ == how_.fails_to_launch_) throw Error("cannot launch", "look at the device");
      // If there is a queued step, the previous one has not reported its state.
      EXPECT_EQ(state == nullptr, launched_ - collected_ > 1);
      how_.most_in_flight_ = std::max(how_.most_in_flight_, launched_ - collected_);
      steps_.open(state);
    }
    void run(Entry entry, bool measured) override { steps_.run(entry, measured); }
    void keep(ValueId scalar) override { steps_.keep(scalar); }
    void set_parameter(size_t scalar, double parameter) override {
      steps_.set_parameter(scalar, parameter);
    }
    void update(bool measured) override { steps_.update(measured); }
    void close() override { steps_.close(); }
    StepReport collect() override {
      if (collected_++ == how_.fails_to_collect_) throw Error("cannot collect", "wait");
      return steps_.collect();
    }

   private:
    const QueueingBackend& how_;
    HostSteps steps_;
    int64_t launched_ = 0, collected_ = 0;
  };

  class Queueing final : public ForwardingProgram {
   public:
    Queueing(const QueueingBackend& how, const Executable& executable)
        : ForwardingProgram(emulation_backend().compile(executable)),
          how_(how),
          executable_(executable) {}
    std::unique_ptr<StepQueue> step_queue(const StepRules& rules, int64_t micro_batches,
                                          bool) override {
      return std::make_unique<Steps>(how_, HostSteps(*this, executable_, rules, micro_batches));
    }

   private:
    const QueueingBackend& how_;
    const Executable executable_;
  };

  int64_t fails_to_launch_, fails_to_collect_;
  mutable int64_t most_in_flight_ = 0;
};

}  // namespace halfscope::test
