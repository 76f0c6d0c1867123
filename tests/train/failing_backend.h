// SPDX-License-Identifier: MIT
// A backend that does what the emulator does until it fails.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "emulation/backends.h"
#include "tests/train/forwarding_program.h"

namespace halfscope::test {

/// The emulator, until an entry runs for the `runs`-th time, or not even until its first step.
class FailingBackend final : public Backend {
 public:
  /// The step of the set-up that fails, by fail().
  enum class SetUp { compile, write, write_exact };
  FailingBackend(SetUp where, std::function<void()> fail) : FailingBackend(Entry::begin, 0) {
    where_ = where;
    fail_ = std::move(fail);
  }
  FailingBackend(Entry entry, int runs, bool out_of_memory = false)
      : entry_(entry), runs_(runs), out_of_memory_(out_of_memory) {}
  const char* name() const noexcept override { return "failing"; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    fails_in(SetUp::compile);
    return std::make_unique<Failing>(*this, emulation_backend().compile(executable));
  }

 private:
  class Failing final : public ForwardingProgram {
   public:
    Failing(const FailingBackend& how, std::unique_ptr<Program> program)
        : ForwardingProgram(std::move(program)), how_(how) {}
    void write(ValueId v, std::span<const float> data) override {
      how_.fails_in(SetUp::write);
      ForwardingProgram::write(v, data);
    }
    using ForwardingProgram::write;
    void run(Entry entry, std::span<TensorStats> stats) override {
      if (entry == how_.entry_ && --left_ == 0) broken_ = true;
      check();
      ForwardingProgram::run(entry, stats);
    }
    Tensor read(ValueId v) const override { return check(), ForwardingProgram::read(v); }
    double read_scalar(ValueId v) const override {
      return check(), ForwardingProgram::read_scalar(v);
    }
    std::vector<double> read_exact(ValueId v) const override {
      return check(), ForwardingProgram::read_exact(v);
    }
    void write_exact(ValueId v, std::span<const double> data) override {
      how_.fails_in(SetUp::write_exact);
      ForwardingProgram::write_exact(v, data);
    }
    std::vector<std::vector<double>> rerun(NodeId node, Accumulation how) const override {
      if (how_.entry_ == Entry::begin) broken_ = true;  // a test that fails in comparisons
      return check(), ForwardingProgram::rerun(node, how);
    }
    std::optional<SumDiagnostics> diagnose(NodeId node) const override {
      return check(), ForwardingProgram::diagnose(node);
    }

   private:
    void check() const {
      if (broken_ && how_.out_of_memory_) throw std::bad_alloc();
      if (broken_) throw Error("CUDA launch: unspecified launch failure", "look at the device");
    }
    const FailingBackend& how_;
    int left_ = how_.runs_;
    mutable bool broken_ = false;
  };

  void fails_in(SetUp where) const {
    if (fail_ && where == where_) fail_();
  }

  Entry entry_;
  int runs_;
  bool out_of_memory_;
  SetUp where_{};
  std::function<void()> fail_{};
};

}  // namespace halfscope::test
