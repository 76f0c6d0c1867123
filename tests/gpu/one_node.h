// SPDX-License-Identifier: MIT
// A program of one node on variables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/lower/lower.h"
#include "tests/gpu/lockstep.h"

namespace halfscope::test {

struct OneNode {
  Executable executable{};
  std::vector<ValueId> operands{};
  std::vector<int64_t> counts{};
  ValueId result = kNone;

  /// Operands are stored in `read`, also a bias.
  OneNode(const std::string& op, const std::vector<Shape>& shapes, const FloatFormat& read,
          const FloatFormat& write, const Attributes& attributes = {}) {
    Graph& graph = executable.graph;
    for (const Shape& shape : shapes) {
      operands.push_back(graph.add_variable("x" + std::to_string(operands.size()), shape, {}));
      counts.push_back(element_count(shape));
    }
    result = graph.add1(op, "node", operands, attributes);
    for (const ValueId value : operands) graph.value(value).format = read;
    graph.value(result).format = write;
    NodePlan& plan = graph.node(0).plan;
    plan.read = read;
    plan.write = write;
    plan.accumulation = Accumulation::fp32;
    executable.entries[static_cast<size_t>(Entry::grad)] = {0};
    Tap tap;
    tap.value = result;
    tap.site.shape = graph.value(result).shape;
    tap.site.format = write;
    tap.site.order = 0;
    executable.taps.push_back(tap);
  }

  /// Writes noise to a Program or a Lockstep.
  template <class P>
  void write_operands(P& program) const {
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::vector<float> values = noise(counts[i], i + 1);
      program.write(operands[i], std::span<const float>(values));
    }
  }

  /// Returns how many launches an entry repeats without statistics on a backend of the host.
  int64_t launches_on_host(const Backend& backend) const {
    const std::unique_ptr<Program> program = backend.compile(executable);
    write_operands(*program);
    program->keep_values(false);  // a plain step
    program->run(Entry::grad, {});
    const std::vector<std::string> ways = program->launches_of(Entry::grad);
    const std::string begin = "repeats ";
    const bool told = ways.size() == 1 && ways[0].starts_with(begin);
    EXPECT_TRUE(told) << "unknown text about launches";
    return told ? std::stoll(ways[0].substr(begin.size())) : -1;
  }
};

}  // namespace halfscope::test
