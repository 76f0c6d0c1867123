// SPDX-License-Identifier: MIT
// The cost of a launch on a GPU: counted quantities, and the time they take by stated rates. The
// same rates judge HalfScope's program and PyTorch's. docs/benchmarks.md has their sources.
#pragma once

#include <cstdint>
#include <string>

namespace halfscope::count {

/// Work of one launch, of a library's call or of a copy.
struct Launch {
  /// A feed is an upload that overlaps other work.
  enum class Kind : uint8_t { kernel, product, copy, upload, feed };
  Kind kind = Kind::kernel;
  std::string name;        ///< the body's type, or a product in words
  double memory = 0.0;     ///< bytes from and to memory
  double cache = 0.0;      ///< bytes between the caches of first and second level
  double words = 0.0;      ///< words of 4 bytes, or parts of one, that threads read and write
  double functions = 0.0;  ///< calls of exp, log and the like, or parts of one
  double threads = 0.0;
  /// How often the slowest thread waits, one wait after another, for memory, for a cache and so
  /// on. Loads that a loop's pass requests together are one wait, and so are kUnrolled passes.
  struct Chain {
    double memory = 0.0, cache = 0.0, near = 0.0, shared = 0.0, functions = 0.0;
  } chain{};
  // Products.
  double flop = 0.0;
  int64_t m = 0, n = 0, k = 0, count = 1;
  int bits = 32;  ///< of the operands as they are multiplied; 19 for tf32
  bool convolution = false;
};

/// Sizes of an H100 or H200 that decide what a cache can hold.
inline constexpr int64_t kSector = 32, kWarp = 32, kProcessors = 132;
inline constexpr int64_t kResident = 1024;  ///< threads of a processor, at usual register counts
inline constexpr int64_t kNearBytes = 192 << 10, kFarBytes = 50 << 20;

/// Passes of a loop that the compiler unrolls, so that their loads are under way together.
inline constexpr double kUnrolled = 4.0;

/// Cost in operations in double: an exp or a log; quick_exp() (16 operations, and the conversion of
/// its argument, which takes as long as four); deciding how a result is rounded, with its
/// conversion.
inline constexpr double kFunctionOperations = 60, kQuickExpOperations = 20, kDecisionOperations = 9;

/// An H200, in seconds, bytes and operations per second.
struct Rates {
  double memory = 4.8e12 * 0.80;      ///< the data sheet's, times what long copies reach
  double cache = 5.5e12;              ///< between the caches of first and second level
  double link = 50e9;                 ///< from pinned host memory, PCIe 5.0 x16
  double tensor_16 = 989e12;          ///< dense fp16 and bf16; tf32 half of it, fp8 twice
  double plain_32 = 67e12;            ///< fp32 without tensor cores
  double matrix_share = 0.65;         ///< of the peak that large matrix products reach
  double convolution_share = 0.40;    ///< same for convolutions
  double instructions = 29.6e12 / 2;  ///< of all threads: 132 x 128 lanes x 1.755 GHz, half issued
  double double_operations = 14.8e12 / 2;  ///< 132 x 64 lanes, likewise
  double per_word = 8;                     ///< instructions for each word that is read or written
  double per_function = kFunctionOperations;
  // One thread that does one thing after another.
  double from_memory = 500e-9, from_cache = 150e-9, from_near = 19e-9;
  double from_shared = 8e-9, function = 0.27e-6;
  double launch = 2e-6;  ///< from one kernel of a CUDA graph to the next, and its start and end
  double operator_cpu = 5e-6;  ///< of PyTorch, per launch, on the processor
};

/// Returns the seconds that a thread waits.
double seconds_of(const Launch::Chain& chain, const Rates& rates);
/// Returns the seconds of one launch with the gap before it.
double seconds(const Launch& launch, const Rates& rates);

}  // namespace halfscope::count
