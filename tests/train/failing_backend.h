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
#include "core/train/backend.h"
#include "emulation/backends.h"

namespace halfscope::test {

/// The emulator, until an entry runs for the `runs`-th time, or not even until its first step.
class FailingBackend final : public Backend {
 public:
  /// Where set-up fails, by fail().
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
  class Failing final : public Program {
   public:
    Failing(const FailingBackend& how, std::unique_ptr<Program> program)
        : how_(how), program_(std::move(program)) {}
    void write(ValueId v, std::span<const float> data) override {
      how_.fails_in(SetUp::write);
      program_->write(v, data);
    }
    void write(ValueId v, std::span<const int32_t> data) override { program_->write(v, data); }
    void write_scalar(ValueId v, double x) override { program_->write_scalar(v, x); }
    void set_random(uint64_t seed, uint64_t step) override { program_->set_random(seed, step); }
    void run(Entry entry, std::span<TensorStats> stats) override {
      if (entry == how_.entry_ && --left_ == 0) broken_ = true;
      check();
      program_->run(entry, stats);
    }
    Tensor read(ValueId v) const override { return check(), program_->read(v); }
    double read_scalar(ValueId v) const override { return check(), program_->read_scalar(v); }
    std::vector<int32_t> read_indices(ValueId value) const override {
      return program_->read_indices(value);
    }
    std::vector<double> read_exact(ValueId v) const override {
      return check(), program_->read_exact(v);
    }
    void write_exact(ValueId v, std::span<const double> data) override {
      how_.fails_in(SetUp::write_exact);
      program_->write_exact(v, data);
    }
    std::vector<std::vector<double>> rerun(NodeId node, Accumulation how) const override {
      if (how_.entry_ == Entry::begin) broken_ = true;  // a test that fails in comparisons
      return check(), program_->rerun(node, how);
    }
    std::optional<SumDiagnostics> diagnose(NodeId node) const override {
      return check(), program_->diagnose(node);
    }

   private:
    void check() const {
      if (broken_ && how_.out_of_memory_) throw std::bad_alloc();
      if (broken_) throw Error("CUDA launch: unspecified launch failure", "look at the device");
    }
    const FailingBackend& how_;
    std::unique_ptr<Program> program_;
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
