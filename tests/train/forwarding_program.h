// SPDX-License-Identifier: MIT
// A program that has another one do everything; those of tests differ from it in a point or two.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/backend/backend.h"

namespace halfscope::test {

class ForwardingProgram : public Program {
 public:
  explicit ForwardingProgram(std::unique_ptr<Program> program) : program_(std::move(program)) {}

  void write(ValueId v, std::span<const float> data) override { program_->write(v, data); }
  void write(ValueId v, std::span<const int32_t> data) override { program_->write(v, data); }
  void write_scalar(ValueId v, double x) override { program_->write_scalar(v, x); }
  void keep_values(bool keep) override { program_->keep_values(keep); }
  void set_random(uint64_t seed, uint64_t step) override { program_->set_random(seed, step); }
  void run(Entry entry, std::span<TensorStats> stats) override { program_->run(entry, stats); }
  Tensor read(ValueId v) const override { return program_->read(v); }
  double read_scalar(ValueId v) const override { return program_->read_scalar(v); }
  std::vector<int32_t> read_indices(ValueId v) const override { return program_->read_indices(v); }
  std::vector<double> read_exact(ValueId v) const override { return program_->read_exact(v); }
  void write_exact(ValueId v, std::span<const double> data) override {
    program_->write_exact(v, data);
  }
  std::vector<std::vector<double>> rerun(NodeId node, Accumulation how) const override {
    return program_->rerun(node, how);
  }
  std::optional<SumDiagnostics> diagnose(NodeId node) const override {
    return program_->diagnose(node);
  }

 private:
  std::unique_ptr<Program> program_;
};

}  // namespace halfscope::test
