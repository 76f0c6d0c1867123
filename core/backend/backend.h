// SPDX-License-Identifier: MIT
// The narrow waist between training and its executors. A Backend compiles the executable graph
// of one lane into a Program, which owns the lane's variables and runs the entry points.
// Decorators that check, record or fake a backend have the same interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/step_queue.h"
#include "core/error.h"
#include "core/lower/lower.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "core/numeric/sums/sum_diagnostics.h"

namespace halfscope {

/// What a backend throws where its device has no memory left or is lost: the lanes there end, the
/// others go on.
class DeviceError : public Error {
 public:
  using Error::Error;
};

class Program {
 public:
  virtual ~Program() = default;

  /// Writes an input, or a variable (rounded to its storage format).
  virtual void write(ValueId value, std::span<const float> data) = 0;
  /// Writes an index input.
  virtual void write(ValueId value, std::span<const int32_t> data) = 0;
  /// Writes a scalar input.
  virtual void write_scalar(ValueId value, double scalar) = 0;

  /// Where stochastic rounding takes its random words from (core/numeric/formats/rng.h), until it
  /// is called again.
  virtual void set_random(uint64_t seed, uint64_t step) = 0;

  /// Runs an entry point. `stats`, if not empty, has one element per tap; those of the taps that
  /// the entry passes are overwritten. Recording never changes results. The update entry moves
  /// every variable to its next value.
  virtual void run(Entry entry, std::span<TensorStats> stats) = 0;

  /// Reads any value that the last run computed, an input, an output or a variable;
  /// double-precision programs round to fp32 here. Indices come as numbers, exactly up to 2^24.
  virtual Tensor read(ValueId value) const = 0;
  /// Reads a scalar without that rounding.
  virtual double read_scalar(ValueId value) const = 0;

  /// Reads an index value that the last run computed.
  virtual std::vector<int32_t> read_indices(ValueId value) const = 0;

  /// A variable, exactly as it is kept; write_exact() puts it back bit for bit.
  virtual std::vector<double> read_exact(ValueId variable) const = 0;
  virtual void write_exact(ValueId variable, std::span<const double> data) = 0;

  /// Runs one node once more, on the operands it had in the last run as they were before they were
  /// narrowed for it, and returns its exact outputs without changing anything. `accumulation`
  /// replaces the plan's: fp32 computes in fp32, fp64 in double. Index outputs come back empty.
  virtual std::vector<std::vector<double>> rerun(NodeId node, Accumulation accumulation) const = 0;

  /// Runs a node that sums products once more as it ran, on the operands that it read, and returns
  /// what happened in its sums, without changing anything. Nothing for other nodes, for
  /// accumulations without diagnostics, and for programs that cannot tell.
  virtual std::optional<SumDiagnostics> diagnose(NodeId node) const = 0;

  /// What computes the product of that node, in words, where a backend has several ways; "" of
  /// other nodes and programs.
  virtual std::string kernel_of(NodeId) const { return ""; }
  /// Whether that is a library's, whose order of summing is its own affair.
  virtual bool by_library(NodeId) const { return false; }

  /// Returns how the work of an entry reaches the device, in words, one for each way that was taken
  /// so far: as a CUDA graph, or launch by launch and why. Empty if the entry has not run, and for
  /// programs that run on the processor.
  virtual std::vector<std::string> launches_of(Entry) const { return {}; }

  /// Memory that the program takes on a device; 0 of programs that run on the processor.
  virtual int64_t device_bytes() const { return 0; }

  /// What works off steps of training without being waited for, as long as the program lives; null
  /// of programs that do all they are told before they return. `measures`: statistics will be
  /// wanted of some. Throws DeviceError where there is no room for it.
  virtual std::unique_ptr<StepQueue> step_queue(const StepRules& /*rules*/,
                                                int64_t /*micro_batches*/, bool /*measures*/) {
    return nullptr;
  }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const noexcept = 0;
  /// Accumulations that libraries which it calls may sum in, where that is known of the hardware.
  virtual std::vector<Accumulation> known_orders() const { return {}; }
  /// All that decides, beside Program::kernel_of(), how libraries which it calls compute on this
  /// machine: the device, and versions. Empty where that is not known.
  virtual std::string kernel_identity() const { return ""; }
  /// Whether several of its programs may run at once, each on a thread of its own.
  virtual bool runs_side_by_side() const noexcept { return false; }
  /// The program keeps its own copy of the graph. Throws DeviceError where there is no room for it.
  virtual std::unique_ptr<Program> compile(const Executable& executable) const = 0;
};

}  // namespace halfscope
