// SPDX-License-Identifier: MIT
// A backend that does the same as the emulator, except for one element of one tensor.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "emulation/backends.h"
#include "tests/train/forwarding_program.h"

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
  class Faulty final : public ForwardingProgram {
   public:
    Faulty(ValueId faulty, std::unique_ptr<Program> program)
        : ForwardingProgram(std::move(program)), faulty_(faulty) {}
    Tensor read(ValueId v) const override {
      Tensor tensor = ForwardingProgram::read(v);
      if (v == faulty_) tensor.data.at(3) = NAN;
      return tensor;
    }

   private:
    ValueId faulty_;
  };

  std::string path_;
};

}  // namespace halfscope::test
