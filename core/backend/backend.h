// SPDX-License-Identifier: MIT
// The narrow interface between training and the code that executes it. A Backend compiles the
// executable graph of one lane into a Program, which owns the lane's variables and runs the entry
// points. Decorators that check, record or fake a backend have the same interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/step_queue.h"
#include "core/error.h"
#include "core/exchange/exchange.h"
#include "core/lower/lower.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "core/numeric/sums/sum_diagnostics.h"

namespace halfscope {

/// Thrown when a backend's device is out of memory or lost. The lanes on that device end; the
/// others continue.
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

  /// Decides whether values of later runs stay readable, which is so at first. Otherwise run() may
  /// leave out values that only other nodes read; read() and rerun() throw Error for these. Inputs,
  /// variables, gradients of variables, outputs and scalars always stay readable.
  virtual void keep_values(bool /*keep*/) {}

  /// Sets the seed and step of the random words for stochastic rounding
  /// (core/numeric/formats/rng.h). They stay in force until the next call.
  virtual void set_random(uint64_t seed, uint64_t step) = 0;

  /// Runs an entry point. `stats`, if not empty, has one element per tap; the elements whose taps
  /// belong to this entry are overwritten. Recording never changes results. The update entry moves
  /// every variable to its next value.
  virtual void run(Entry entry, std::span<TensorStats> stats) = 0;

  /// Reads any value that the last run computed, an input, an output or a variable.
  /// Double-precision programs round to fp32 here. Indices are returned as numbers, exact up to
  /// 2^24.
  virtual Tensor read(ValueId value) const = 0;
  /// Reads a scalar without rounding it to fp32.
  virtual double read_scalar(ValueId value) const = 0;

  /// Reads an index value that the last run computed.
  virtual std::vector<int32_t> read_indices(ValueId value) const = 0;

  /// Reads a variable exactly as it is stored; write_exact() restores it bit for bit.
  virtual std::vector<double> read_exact(ValueId variable) const = 0;
  virtual void write_exact(ValueId variable, std::span<const double> data) = 0;

  /// Runs one node again on its operands from the last run, taken before they were narrowed for it.
  /// Returns its outputs before rounding and changes nothing. `accumulation` replaces the plan's:
  /// fp32 computes in fp32, fp64 in double. Index outputs are returned empty.
  virtual std::vector<std::vector<double>> rerun(NodeId node, Accumulation accumulation) const = 0;

  /// Runs a node that sums products again, exactly as it ran, on the operands that it read. Returns
  /// what happened in its sums and changes nothing. Returns nothing for other nodes, for
  /// accumulations without diagnostics, and for programs that cannot measure this.
  virtual std::optional<SumDiagnostics> diagnose(NodeId node) const = 0;

  /// Rounds numbers in place, to nearest even, as round_to_format() does.
  virtual void round(std::span<float> numbers, const FloatFormat& format) const {
    for (float& x : numbers) x = round_to_format(x, format).value;
  }

  /// Computes the means of the ranks' gradients as exchange_gradients() does (process_steps.h), on
  /// the device that has the gradients. Returns false if the program leaves that to its caller.
  virtual bool exchange_means(Exchange& /*exchange*/, bool /*measured*/) { return false; }

  /// Returns a description of the kernel that computes `node`'s product, or "" for other nodes and
  /// if the backend has only one.
  virtual std::string kernel_of(NodeId) const { return ""; }
  /// Returns whether that kernel belongs to a library, which chooses its own summation order.
  virtual bool by_library(NodeId) const { return false; }

  /// Returns a description of each way in which the entry's work has reached the device so far: as
  /// a CUDA graph, or launch by launch and why. Empty if the entry has not run, and for programs
  /// that run on the CPU.
  virtual std::vector<std::string> launches_of(Entry) const { return {}; }

  /// Returns the device memory that the program uses, in bytes; 0 for programs that run on the CPU.
  virtual int64_t device_bytes() const { return 0; }

  /// Returns the asynchronous step queue, or null if the program runs synchronously. Valid while
  /// the program is alive. `measures`: some steps will be measured. Throws DeviceError if the
  /// device has no room for it.
  virtual std::unique_ptr<StepQueue> step_queue(const StepRules& /*rules*/,
                                                int64_t /*micro_batches*/, bool /*measures*/) {
    return nullptr;
  }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const noexcept = 0;
  /// Returns the summation orders that its libraries are known to use on this hardware, as
  /// accumulations.
  virtual std::vector<Accumulation> known_orders() const { return {}; }
  /// Returns everything besides Program::kernel_of() that decides how its libraries compute on this
  /// machine: the device and the versions. Empty if that is not known.
  virtual std::string kernel_identity() const { return ""; }
  /// Returns whether several of its programs may run at once, each on its own thread.
  virtual bool runs_side_by_side() const noexcept { return false; }
  /// Compiles a program, which keeps its own copy of the graph. Throws DeviceError if the device
  /// has no room for it.
  virtual std::unique_ptr<Program> compile(const Executable& executable) const = 0;
};

}  // namespace halfscope
