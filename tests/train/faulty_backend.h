// SPDX-License-Identifier: MIT
// A backend that does what the emulator does, but for one element of one tensor.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "core/train/backend.h"
#include "emulation/backends.h"

namespace halfscope::test {

/// Whoever reads the first result of the node with that path finds NaN in place of its element 3.
class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(std::string path) : path_(std::move(path)) {}
  const char* name() const noexcept override { return "faulty"; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    ValueId faulty = kNone;
    for (const Node& node : executable.graph.nodes()) {
      if (faulty == kNone && node.path == path_) faulty = node.outputs[0];
    }
    return std::make_unique<Faulty>(faulty, emulation_backend().compile(executable));
  }

 private:
  class Faulty final : public Program {
   public:
    Faulty(ValueId faulty, std::unique_ptr<Program> program)
        : faulty_(faulty), program_(std::move(program)) {}
    void write(ValueId v, std::span<const float> data) override { program_->write(v, data); }
    void write(ValueId v, std::span<const int32_t> data) override { program_->write(v, data); }
    void write_scalar(ValueId v, double x) override { program_->write_scalar(v, x); }
    void set_random(uint64_t seed, uint64_t step) override { program_->set_random(seed, step); }
    void run(Entry entry, std::span<TensorStats> stats) override { program_->run(entry, stats); }
    Tensor read(ValueId v) const override {
      Tensor tensor = program_->read(v);
      if (v == faulty_) tensor.data.at(3) = NAN;
      return tensor;
    }
    double read_scalar(ValueId v) const override { return program_->read_scalar(v); }
    std::vector<int32_t> read_indices(ValueId v) const override {
      return program_->read_indices(v);
    }
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
    ValueId faulty_;
    std::unique_ptr<Program> program_;
  };

  std::string path_;
};

}  // namespace halfscope::test
