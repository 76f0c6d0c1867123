// SPDX-License-Identifier: MIT
// One operator as a program: its real operands become variables, a chosen output y is turned
// into the scalar loss = sum(y * upstream), and the graph is differentiated, so that y's gradient
// is `upstream` and the operands' gradients can be read. All nodes run in the entry `grad`.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/autodiff.h"
#include "core/lower/lower.h"

namespace halfscope::test {

/// A tensor that is differentiated, or indices; by default, labels in one row.
struct Operand {
  Tensor real;
  std::optional<std::vector<int32_t>> labels = std::nullopt;
  std::optional<Shape> index_shape = std::nullopt;

  Shape shape() const {
    return !labels ? real.shape : index_shape.value_or(Shape{static_cast<int64_t>(labels->size())});
  }
};

struct OpCase {
  std::string name;
  std::string op;
  std::vector<Operand> operands;
  Attributes attributes = {};
};

/// Values of a tensor in a fixed order that looks random: multiples of `unit`, all different,
/// none zero, about as many negative as positive.
inline Tensor distinct(const Shape& shape, float unit = 0.125f) {
  Tensor tensor{shape, {}};
  const int64_t n = element_count(shape);
  int64_t stride = n / 2 + 1;  // coprime to n, so that i * stride % n meets every number once
  while (std::gcd(stride, n) != 1) ++stride;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t rank = (i * stride + n / 3) % n - n / 2;  // -n/2 .. n - n/2 - 1
    tensor.data.push_back(unit * static_cast<float>(rank >= 0 ? rank + 1 : rank));
  }
  return tensor;
}

class OpProgram {
 public:
  /// `make_output` adds nodes to the graph, given the operands' values, and returns y. Without an
  /// upstream, one of different small numbers is made. `probes` adds, for every element of every
  /// gradient, a scalar that can be read in double. `adjust` has the last word on the graph.
  using Builder = std::function<ValueId(Graph&, const std::vector<ValueId>&)>;
  OpProgram(const Backend& backend, const std::vector<Operand>& operands,
            const Builder& make_output, std::optional<Tensor> upstream = std::nullopt,
            bool probes = false, const std::function<void(Graph&)>& adjust = {}) {
    Graph& graph = executable_.graph;
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      if (operands[i].labels) {
        values_.push_back(graph.add_input(name, operands[i].shape(), ElementType::index));
      } else {
        values_.push_back(graph.add_variable(name, operands[i].real.shape, {}));
      }
    }
    output_ = make_output(graph, values_);
    if (!upstream) upstream = distinct(graph.value(output_).shape, 0.25f);
    const ValueId weighted = graph.add1("Mul", "probe", {output_, graph.add_constant(*upstream)});
    loss_ = graph.add1("ReduceSum", "loss", {weighted}, {{"keepdims", int64_t{0}}});
    const ValueId one = graph.add_constant(1.0f);
    gradients_ = differentiate(graph, loss_, one);
    if (probes) add_probes();
    if (adjust) adjust(graph);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      executable_.entries[static_cast<size_t>(Entry::grad)].push_back(id);
    }
    program_ = backend.compile(executable_);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].labels) {
        program_->write(values_[i], std::span<const int32_t>(*operands[i].labels));
      } else {
        write(i, operands[i].real.data);
      }
    }
  }

  OpProgram(const Backend& backend, const OpCase& op, std::optional<Tensor> upstream = std::nullopt,
            bool probes = false)
      : OpProgram(
            backend, op.operands,
            [&](Graph& graph, const std::vector<ValueId>& inputs) {
              return graph.add(op.op, op.name, inputs, op.attributes).front();
            },
            std::move(upstream), probes) {}

  void write(size_t operand, std::span<const float> data) {
    program_->write(values_.at(operand), data);
  }

  /// Runs everything and returns the loss.
  double run() {
    program_->run(Entry::grad, {});
    return program_->read_scalar(loss_);
  }

  Tensor output() const { return program_->read(output_); }
  double scalar_output() const { return program_->read_scalar(output_); }

  /// Returns nothing if no gradient reaches the operand.
  std::optional<Tensor> gradient(size_t operand) const {
    const auto found = gradients_.find(values_.at(operand));
    if (found == gradients_.end()) return std::nullopt;
    return program_->read(found->second);
  }

  /// Same in double; needs `probes`.
  std::vector<double> exact_gradient(size_t operand) const {
    std::vector<double> result;
    for (ValueId probe : probes_.at(operand)) result.push_back(program_->read_scalar(probe));
    return result;
  }

  const Graph& graph() const { return executable_.graph; }
  const Program& program() const { return *program_; }

 private:
  void add_probes() {
    Graph& graph = executable_.graph;
    for (ValueId value : values_) {
      std::vector<ValueId>& list = probes_.emplace_back();
      const auto found = gradients_.find(value);
      if (found == gradients_.end()) continue;
      const Shape shape = graph.value(value).shape;
      for (int64_t i = 0; i < element_count(shape); ++i) {
        Tensor one_hot{shape, std::vector<float>(static_cast<size_t>(element_count(shape)), 0.0f)};
        one_hot.data[static_cast<size_t>(i)] = 1.0f;
        const ValueId picked =
            graph.add1("Mul", "probe", {found->second, graph.add_constant(one_hot)});
        list.push_back(graph.add1("ReduceSum", "probe", {picked}, {{"keepdims", int64_t{0}}}));
      }
    }
  }

  Executable executable_;
  std::vector<ValueId> values_;
  ValueId output_ = kNone, loss_ = kNone;
  GradientMap gradients_;
  std::vector<std::vector<ValueId>> probes_;
  std::unique_ptr<Program> program_;
};

}  // namespace halfscope::test
