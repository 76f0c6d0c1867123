// SPDX-License-Identifier: MIT
// A device in software, with the interfaces of the CUDA runtime, cuBLASLt and cuDNN as far as
// gpu/ uses them, so that the sources of the backend cuda run where there is no GPU. It is strict
// where a GPU is, and where it only may be:
//
//   - what is put on a stream runs when somebody waits for it, and not before;
//   - a kernel is handed device memory only, and the host cannot touch that;
//   - memory begins as NaN, ends at its last 256 bytes, and is gone when it is freed;
//   - threads of a block meet at every barrier, blocks and threads run in any order;
//   - between the begin and the end of a capture nothing is allocated, freed or waited for;
//   - memory runs out, captures fail, and the device is lost, when a test wants it;
//   - a kernel takes a millisecond.
//
// It says nothing about speed, about what nvcc makes of the kernels (tensor cores, contraction,
// memory order), or about which algorithms the libraries choose.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <typeinfo>

namespace halfscope::simulated {

/// What the built-in variables of a kernel say.
struct ThreadPlace {
  uint3 thread{}, block{};
  dim3 threads{}, blocks{};
};
ThreadPlace& this_thread();

/// __syncthreads().
void barrier();

/// Runs `kernel` once for every thread when the stream gets there.
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> kernel);

/// Work of a library's, on a stream.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// Whether [memory, memory + bytes) lies in one allocation of the device.
bool on_device(const void* memory, size_t bytes);

/// Reports what no program may do, such as a wild pointer, and ends the program.
[[noreturn]] void violated(const std::string& rule);

/// Looks for pointers in the bytes of a kernel's argument: those to the device must be valid, and
/// there must be none to the host.
void check_argument_bytes(const void* argument, size_t bytes, const char* type);
template <class T>
void check_argument(T argument) {
  static_assert(std::is_trivially_copyable_v<T>, "a kernel is handed what cannot be copied there");
#if defined(__GNUC__) && !defined(__clang__)
  __builtin_clear_padding(&argument);  // where anything may lie
  check_argument_bytes(&argument, sizeof argument, typeid(T).name());
#endif
}

/// The device has so much memory from now on; HALFSCOPE_SIMULATED_MEMORY says it from the start.
void limit_memory(int64_t bytes);
/// After so many more launches every call fails; HALFSCOPE_SIMULATED_LOST_AFTER says it from the
/// start.
void lose_after(int64_t launches);
/// What a capture fails over from now on. HALFSCOPE_SIMULATED_REFUSES says it from the start:
/// launch, end or instantiate.
enum class InCapture : uint8_t { nothing, launch, end, instantiate };
void refuse(InCapture what);
/// Launches since the program began, by themselves and as parts of graphs.
struct Launches {
  int64_t single = 0, graphs = 0;
};
Launches launches();
/// Copies from the device to the host, how often the host waited for work, and how often memory was
/// pinned, since the program began.
struct Transfers {
  int64_t to_host = 0, waits = 0, pinned = 0;
};
Transfers transfers();
/// What is taken and not given back.
struct InUse {
  int64_t memory = 0;  ///< allocations of the device, and
  int64_t pinned = 0;  ///< of pinned memory
  int64_t streams = 0, graphs = 0, events = 0;

  friend bool operator==(const InUse&, const InUse&) = default;
};
InUse in_use();

}  // namespace halfscope::simulated
