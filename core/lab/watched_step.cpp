// SPDX-License-Identifier: MIT
#include "core/lab/watched_step.h"

#include <utility>

namespace halfscope::lab {
namespace {

class WatchedProgram final : public Program {
 public:
  WatchedProgram(std::unique_ptr<Program> inner, int64_t step, WatchedStep& into)
      : inner_(std::move(inner)), executable_(*into.executable), step_(step), into_(into) {}

  void write(ValueId value, std::span<const float> data) override { inner_->write(value, data); }
  void write(ValueId value, std::span<const int32_t> data) override { inner_->write(value, data); }
  void write_scalar(ValueId value, double scalar) override {
    scalars_[value] = scalar;
    inner_->write_scalar(value, scalar);
  }
  // Values stay readable: a watched step reads them all.
  void keep_values(bool) override {}

  /// The trainer counts the parts of all steps: one per rank.
  void set_random(uint64_t seed, uint64_t step) override {
    inner_->set_random(seed, step);
    const int64_t ranks = executable_.ranks, part = static_cast<int64_t>(step);
    watches_ = part / ranks == step_;
    if (!watches_) return;
    if (part % ranks == 0) {
      into_.ranks.clear();
      for (const Variable& variable : executable_.graph.variables()) {
        copy(variable.value, into_.before);
      }
    }
    into_.ranks.push_back({.random = {seed, step}});
  }

  void run(Entry entry, std::span<TensorStats> stats) override {
    inner_->run(entry, stats);
    if (!watches_ || entry == Entry::eval || entry == Entry::begin) return;
    const bool by_rank = entry == Entry::grad;
    std::map<ValueId, std::vector<float>>& values =
        by_rank ? into_.ranks.back().values : into_.after;
    for (const NodeId id : executable_.entry(entry)) {
      const Node& node = executable_.graph.node(id);
      for (const ValueId output : node.outputs) copy(output, values);
      if (by_rank && node.op == "SoftmaxCrossEntropyLossGrad") {
        const std::vector<double> exact = inner_->rerun(id, Accumulation::fp32).at(0);
        into_.ranks.back().unrounded[node.outputs[0]].assign(exact.begin(), exact.end());
      }
    }
    if (by_rank) {
      for (const NamedValue& input : executable_.inputs) copy(input.value, values);
    }
    if (entry == Entry::update) into_.updated = true;
    into_.scalars = scalars_;
  }

  Tensor read(ValueId value) const override { return inner_->read(value); }
  double read_scalar(ValueId value) const override { return inner_->read_scalar(value); }
  std::vector<int32_t> read_indices(ValueId value) const override {
    return inner_->read_indices(value);
  }
  std::vector<double> read_exact(ValueId variable) const override {
    return inner_->read_exact(variable);
  }
  void write_exact(ValueId variable, std::span<const double> data) override {
    inner_->write_exact(variable, data);
  }
  std::vector<std::vector<double>> rerun(NodeId node, Accumulation accumulation) const override {
    return inner_->rerun(node, std::move(accumulation));
  }
  std::optional<SumDiagnostics> diagnose(NodeId node) const override {
    return inner_->diagnose(node);
  }

 private:
  void copy(ValueId value, std::map<ValueId, std::vector<float>>& to) const {
    to[value] = inner_->read(value).data;
  }

  std::unique_ptr<Program> inner_;
  const Executable& executable_;
  int64_t step_;
  WatchedStep& into_;
  std::map<ValueId, double> scalars_;
  bool watches_ = false;
};

}  // namespace

std::unique_ptr<Program> StepWatch::compile(const Executable& executable) const {
  into_ = {};
  into_.executable = std::make_unique<const Executable>(executable);
  return std::make_unique<WatchedProgram>(inner_.compile(executable), step_, into_);
}

}  // namespace halfscope::lab
